//! Granite 3 and 4 without recurrent layers: scales of embeddings, attention, residual stream and
//! logits.

use super::llama::base;
use super::{Architecture, Windows};

pub(super) static GRANITE: Architecture =
    Architecture { scales_in_file: true, windows: Windows::None, ..base("granite") };

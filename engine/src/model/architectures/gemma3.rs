//! Gemma 3: as Gemma 2 with norms on each head instead of caps; five of six layers have a window and
//! a rotation of their own.

use super::gemma2::gemma;
use super::{Architecture, Caps, HeadNorms, WindowedRope, Windows};

pub(super) static GEMMA3: Architecture = Architecture {
    head_norms: HeadNorms::EachHead,
    caps: Caps::Logits,
    windows: Windows::Pattern { period: 6, width: None },
    windowed_rope: WindowedRope::OwnBase,
    // The 27B.
    scaled_by_width: Some(62),
    ..gemma("gemma3")
};

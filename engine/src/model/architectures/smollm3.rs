//! SmolLM3: every fourth layer has no rotation.

use super::llama::base;
use super::{Architecture, Experts, Windows};

pub(super) static SMOLLM3: Architecture = Architecture {
    windows: Windows::None,
    unrotated: Some(4),
    rope_factors: false,
    experts: Experts::Never,
    ..base("smollm3")
};

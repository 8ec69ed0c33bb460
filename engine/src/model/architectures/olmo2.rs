//! OLMo 2 and 3: norms after each sub-layer instead of before, and over whole rows of queries and
//! keys; OLMo 3 has a window on three of four layers, whose rotation is not scaled.

use super::llama::base;
use super::{Architecture, Experts, HeadNorms, Norms, RopeLayout, WindowedRope, Windows};

pub(super) static OLMO2: Architecture = Architecture {
    rope_layout: RopeLayout::Halves,
    norms: Norms::After,
    head_norms: HeadNorms::WholeRow,
    windows: Windows::Pattern { period: 4, width: None },
    windowed_rope: WindowedRope::Unscaled,
    rope_factors: false,
    experts: Experts::Never,
    ..base("olmo2")
};

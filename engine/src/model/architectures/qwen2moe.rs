//! Qwen2 with experts: the weights of those chosen are not normalised, and a shared expert runs for
//! every token, behind a sigmoid of its own.

use super::qwen2::qwen;
use super::{Architecture, Experts};

pub(super) static QWEN2MOE: Architecture = Architecture {
    experts: Experts::Always { normalised: false, shared: true },
    ..qwen("qwen2moe")
};

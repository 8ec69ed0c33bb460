//! What a sweep was asked for beyond its definition, as the journal keeps it.

use serde::{Deserialize, Serialize};

use crate::cell::length::Length;
use crate::cell::quiet::SweepQuiet;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Device {
    /// The GPU where the machine has one, else the processor.
    #[default]
    Auto,
    /// The processor, whatever else there is.
    Cpu,
}

/// Values that replace those of the definition: what was given on the command line. They are kept
/// in the journal, so that a resumed sweep need not be told again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    /// The definition's path, relative to the workspace.
    pub(crate) config: Option<String>,
    /// Words that stand for models.
    pub(crate) models: Option<Vec<String>>,
    pub(crate) lengths: Option<Vec<Length>>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) warmup_tokens: Option<u64>,
    pub(crate) timeout_s: Option<f64>,
    pub(crate) cooldown_s: Option<f64>,
    pub(crate) big_cooldown_s: Option<f64>,
    pub(crate) runner: Option<String>,
    pub(crate) cell_memory_limit_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quiet: Option<SweepQuiet>,
    /// Cells that run out of memory without being launched, as `MODEL:LEN[,MODEL:LEN…]`.
    pub(crate) fake_oom: Option<String>,
    /// Cells that are not launched but yield a class, as `MODEL:LEN:CLASS`.
    pub(crate) fake_cells: Option<Vec<String>>,
}

impl Request {
    /// This request, with what it leaves open taken from an earlier one.
    pub(crate) fn or(self, earlier: Request) -> Request {
        Request {
            config: self.config.or(earlier.config),
            models: self.models.or(earlier.models),
            lengths: self.lengths.or(earlier.lengths),
            max_tokens: self.max_tokens.or(earlier.max_tokens),
            warmup_tokens: self.warmup_tokens.or(earlier.warmup_tokens),
            timeout_s: self.timeout_s.or(earlier.timeout_s),
            cooldown_s: self.cooldown_s.or(earlier.cooldown_s),
            big_cooldown_s: self.big_cooldown_s.or(earlier.big_cooldown_s),
            runner: self.runner.or(earlier.runner),
            cell_memory_limit_mb: self.cell_memory_limit_mb.or(earlier.cell_memory_limit_mb),
            quiet: self.quiet.or(earlier.quiet),
            fake_oom: self.fake_oom.or(earlier.fake_oom),
            fake_cells: self.fake_cells.or(earlier.fake_cells),
        }
    }
}

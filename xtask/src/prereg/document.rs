//! The document of a ladder: what is asked, what is measured, and the rules that decide.
//!
//! It owns the checked types. How they are read from TOML is in `parse`; what is wrong with a document
//! that reads well is for `lint` to say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cell::quiet::QuietRule;
use crate::stats::expr::Expr;

pub(crate) use parse::parse_document;

mod display;
mod parse;
mod raw;
pub(crate) mod signature;

#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) question: String,
    pub(crate) background: String,
    pub(crate) protocol: Protocol,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) oracles: Vec<Oracle>,
    pub(crate) items: Vec<Item>,
    /// The ladder; the first rung is the base.
    pub(crate) rungs: Vec<Rung>,
    pub(crate) reads: Vec<Read>,
    /// Figures that must stay within a bound.
    pub(crate) guards: Vec<Guard>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) expectations: Vec<Expectation>,
    pub(crate) transfer: Option<Transfer>,
    /// Findings of the linter that the author accepts, with the reason.
    pub(crate) waivers: Vec<Waiver>,
}

#[derive(Debug, Clone)]
pub(crate) struct Protocol {
    pub(crate) runner: String,
    /// The model, as `cargo xtask sweep` takes it; `None` for a runner whose result is its log.
    pub(crate) model: Option<String>,
    /// 0 for a runner that takes no prompt.
    pub(crate) prompt_tokens: u64,
    /// Steps of one launch: tokens to decode, or training steps.
    pub(crate) steps: u64,
    /// Leading steps that the statistic leaves out.
    pub(crate) discard_steps: u64,
    /// How the steps that are left become one figure.
    pub(crate) statistic: Statistic,
    /// Decode tokens of the discarded pass before the measured one, where the runner makes one.
    pub(crate) warmup_tokens: u64,
    pub(crate) repeats: u64,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    /// Compute threads, where the runner takes them.
    pub(crate) threads: Option<u64>,
    /// Machine time that may be spent, in minutes, building and loading included.
    pub(crate) ceiling_min: f64,
    /// What one launch is expected to take, in minutes, loading included.
    pub(crate) launch_estimate_min: Option<f64>,
    /// How long one launch may take, in seconds.
    pub(crate) timeout_s: f64,
    /// Field of the runner's log that says what the launch cost, in seconds of machine time, where
    /// the runner hands the work to another machine; else the time here counts.
    pub(crate) cost_field: Option<String>,
    /// What follows from a launch of the ladder that other processes disturbed.
    pub(crate) quiet: QuietRule,
    /// How much of all processors others may take meanwhile, as a fraction.
    pub(crate) max_other_load: f64,
    pub(crate) null_rung: NullRung,
    /// The noise floor, as a fraction, where an earlier measurement tells it.
    pub(crate) noise_floor: Option<f64>,
    pub(crate) env: BTreeMap<String, String>,
    /// Runner arguments of every rung.
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NullRung {
    Added,
    /// The author refused it, for this reason.
    Refused(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// All repeats of a rung, then the next rung.
    Sequential,
    /// Blocks that hold each rung once, in a rotated, seeded order.
    Interleaved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Statistic {
    /// The middle value; of an even number, the mean of the middle two.
    Median,
    Mean,
    Min,
    Max,
    Last,
    /// The value that nine of ten readings do not exceed (nearest rank).
    P90,
    /// The same for 99 of a hundred.
    P99,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// The cell report; the field is a path such as `timing.decode_step_ms`.
    Report,
    /// The JSON lines that the runner writes, one record a step or log window.
    Log,
}

#[derive(Debug, Clone)]
pub(crate) struct Metric {
    pub(crate) id: String,
    pub(crate) source: Source,
    pub(crate) field: String,
    pub(crate) unit: String,
    pub(crate) statistic: Statistic,
    /// Whether a launch of the base may report nothing of it.
    pub(crate) optional: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    pub(crate) id: String,
    pub(crate) check: OracleCheck,
    /// The rung that it judges, for an oracle that belongs to no item.
    pub(crate) rung: Option<String>,
    /// Steps of its launches, where they differ from the ladder's.
    pub(crate) steps: Option<u64>,
    /// Prompt length of its launches, where it differs from the ladder's.
    pub(crate) prompt_tokens: Option<u64>,
    /// What one of its launches, or its command, is expected to take, in minutes, where that differs
    /// from a launch of the ladder.
    pub(crate) estimate_min: Option<f64>,
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OracleCheck {
    /// The generated tokens are the same, by the hash in the cell report.
    TokensEqual,
    /// A file that the launch writes into its output folder has the same bytes.
    FileEqual { file: String },
    /// A metric differs by no more than the bound; `None` is a bound that the author forgot.
    Metric { metric: String, bound: Option<Bound> },
    /// The curve of a metric stays within the base's step-to-step band and holds no NaN or infinity.
    Overlay {
        metric: String,
        /// The width of the band, in largest step-to-step changes of the base.
        band: Option<f64>,
    },
    /// Both peaks are always reported, the lifetime peak is never below the window's, and never falls.
    Peaks {
        /// The metric of the lifetime peak.
        lifetime: String,
        /// The metric of the windowed peak.
        window: String,
    },
    /// A command, run in the item's tree with the item's environment, ends with this exit code.
    Command { command: Vec<String>, exit: Option<i32> },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    pub(crate) of: Difference,
    pub(crate) at_most: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// `|b − a|`
    Absolute,
    /// `|b − a| / |a|`
    Relative,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) features: Vec<String>,
    /// The commit, or range of commits, that it applies on top of the frozen one.
    pub(crate) rev: Option<String>,
    /// Items without which it does nothing.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) oracles: Vec<String>,
    /// Why it may land without a rung that measured it, if it may.
    pub(crate) lands_unmeasured: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rung {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) items: Vec<String>,
    /// What becomes of it when one of its items is dropped.
    #[serde(default)]
    pub(crate) on_drop: OnDrop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnDrop {
    /// It runs without the item, under a new name; without any item left it does not run.
    #[default]
    Recompose,
    /// It runs as it is, as a receipt of what the item does. It can never land.
    Measure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReadRole {
    /// The figure that the question is about.
    Primary,
    /// A figure that explains.
    Secondary,
}

#[derive(Debug, Clone)]
pub(crate) struct Read {
    pub(crate) id: String,
    pub(crate) role: ReadRole,
    /// The metric whose figures the rungs' names stand for.
    pub(crate) metric: String,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub(crate) id: String,
    /// The metric whose figures the rungs' names stand for.
    pub(crate) metric: String,
    pub(crate) value: Expr,
    /// The condition on `value` under which it passes.
    pub(crate) passes: Expr,
    pub(crate) fails: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) when: Expr,
    pub(crate) action: Action,
    /// What that means, in words, for the report.
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Land every item that survived its oracles.
    LandAll,
    /// Land these items and no others, as far as they survived.
    Land(Vec<Landed>),
    Park,
    /// Drop the item and measure the ladder again without it.
    Drop(String),
}

/// An item that a rule lands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Landed {
    pub(crate) item: String,
    /// The condition under which it lands; else it stays out, whatever becomes of the others.
    pub(crate) only_if: Option<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) struct Expectation {
    /// Its number, `3` or `3b`.
    pub(crate) number: String,
    pub(crate) text: String,
    pub(crate) confidence: Confidence,
    pub(crate) holds: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Confidence {
    /// 30 %
    Low,
    /// 45 %
    MediumLow,
    /// 60 %
    Medium,
    /// 75 %
    MediumHigh,
    /// 90 %
    High,
}

#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) reads: Vec<String>,
    pub(crate) repeats: u64,
    /// Steps of its launches, where they differ from the ladder's.
    pub(crate) steps: Option<u64>,
    /// What is expected, over `here.READ` (the machine of the transfer) and `there.READ` (the
    /// machine of the decision).
    pub(crate) expect: Expr,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiver {
    pub(crate) finding: String,
    pub(crate) why: String,
}

impl Document {
    /// Every prompt length that a launch can have: the protocol's, and the oracles' own.
    pub(crate) fn prompt_lengths(&self) -> Vec<u64> {
        let own = self.oracles.iter().filter_map(|oracle| oracle.prompt_tokens);
        std::iter::once(self.protocol.prompt_tokens).chain(own).collect()
    }

    /// The most steps that a launch can have.
    pub(crate) fn most_steps(&self) -> u64 {
        let own = self.oracles.iter().filter_map(|oracle| oracle.steps);
        own.fold(self.protocol.steps, u64::max)
    }

    /// The rung that everything is compared with.
    pub(crate) fn base(&self) -> &Rung {
        &self.rungs[0]
    }

    pub(crate) fn item(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    pub(crate) fn metric(&self, id: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.id == id)
    }

    pub(crate) fn read(&self, id: &str) -> Option<&Read> {
        self.reads.iter().find(|read| read.id == id)
    }

    /// The read that the question is about.
    pub(crate) fn primary(&self) -> Option<&Read> {
        self.reads.iter().find(|read| read.role == ReadRole::Primary)
    }

    pub(crate) fn oracle(&self, id: &str) -> Option<&Oracle> {
        self.oracles.iter().find(|oracle| oracle.id == id)
    }

    pub(crate) fn rung(&self, id: &str) -> Option<&Rung> {
        self.rungs.iter().find(|rung| rung.id == id)
    }
}

/// The rungs that a formula speaks of, each once.
pub(crate) fn rungs_in(formula: &Expr) -> Vec<&str> {
    let mut rungs = formula.names();
    formula.walk(&mut |expr| {
        if let Expr::Call(function, args) = expr
            && function == "value"
            && !rungs.contains(&args[1].as_str())
        {
            rungs.push(&args[1]);
        }
    });
    rungs
}

impl Confidence {
    /// The probability that the word stands for.
    pub(crate) fn probability(self) -> f64 {
        match self {
            Confidence::Low => 0.30,
            Confidence::MediumLow => 0.45,
            Confidence::Medium => 0.60,
            Confidence::MediumHigh => 0.75,
            Confidence::High => 0.90,
        }
    }
}

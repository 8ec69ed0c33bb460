//! The document of a ladder: what is asked, what is measured, and the rules that decide.
//!
//! It owns the checked types. How they are read from TOML is in `parse`; what is wrong with a document
//! that reads well is for `lint` to say.

use std::collections::BTreeMap;

use super::expr::Expr;
use crate::cell::quiet::QuietRule;

pub(crate) use display::number;
pub(crate) use parse::parse_document;

mod display;
mod parse;
mod raw;
pub(crate) mod signature;

/// A whole document.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// The question, in one sentence.
    pub(crate) question: String,
    /// What is known beforehand, free text.
    pub(crate) background: String,
    /// How it is measured.
    pub(crate) protocol: Protocol,
    /// What is read from each launch.
    pub(crate) metrics: Vec<Metric>,
    /// Parity checks.
    pub(crate) oracles: Vec<Oracle>,
    /// The changes under test.
    pub(crate) items: Vec<Item>,
    /// The ladder; the first rung is the base.
    pub(crate) rungs: Vec<Rung>,
    /// Figures that decide or explain.
    pub(crate) reads: Vec<Read>,
    /// Figures that must stay within a bound.
    pub(crate) guards: Vec<Guard>,
    /// What follows from them, in order.
    pub(crate) rules: Vec<Rule>,
    /// What was expected beforehand.
    pub(crate) expectations: Vec<Expectation>,
    /// The same reads on another machine, later.
    pub(crate) transfer: Option<Transfer>,
    /// Findings of the linter that the author accepts, with the reason.
    pub(crate) waivers: Vec<Waiver>,
}

/// How a ladder is measured.
#[derive(Debug, Clone)]
pub(crate) struct Protocol {
    /// Name of the runner in `bench-configs/runners/`.
    pub(crate) runner: String,
    /// The model, as `cargo xtask sweep` takes it.
    pub(crate) model: String,
    /// Prompt length in tokens.
    pub(crate) prompt_tokens: u64,
    /// Steps of one launch: tokens to decode, or training steps.
    pub(crate) steps: u64,
    /// Leading steps that the statistic leaves out.
    pub(crate) discard_steps: u64,
    /// How the steps that are left become one figure.
    pub(crate) statistic: Statistic,
    /// Decode tokens of the discarded pass before the measured one, where the runner makes one.
    pub(crate) warmup_tokens: u64,
    /// Launches of each rung.
    pub(crate) repeats: u64,
    /// In which order rungs and repeats run.
    pub(crate) order: Order,
    /// Seeds the order.
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
    /// Whether the base rung is measured a second time.
    pub(crate) null_rung: NullRung,
    /// The noise floor, as a fraction, where an earlier measurement tells it.
    pub(crate) noise_floor: Option<f64>,
    /// Environment of every rung.
    pub(crate) env: BTreeMap<String, String>,
    /// Runner arguments of every rung.
    pub(crate) args: Vec<String>,
}

/// Whether the base rung is measured again, to see the noise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NullRung {
    /// It is.
    Added,
    /// The author refused it, for this reason.
    Refused(String),
}

/// The order of launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// All repeats of a rung, then the next rung.
    Sequential,
    /// Blocks that hold each rung once, in a rotated, seeded order.
    Interleaved,
}

/// How a series becomes one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    /// The middle value; of an even number, the mean of the middle two.
    Median,
    /// The arithmetic mean.
    Mean,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The last value.
    Last,
}

/// Where a metric is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The cell report; the field is a path such as `timing.decode_step_ms`.
    Report,
    /// The JSON lines that the runner writes, one record a step or log window.
    Log,
}

/// One thing that is read from each launch.
#[derive(Debug, Clone)]
pub(crate) struct Metric {
    /// Its name in expressions.
    pub(crate) id: String,
    /// Where it is read.
    pub(crate) source: Source,
    /// The field there.
    pub(crate) field: String,
    /// Its unit, for the report.
    pub(crate) unit: String,
    /// How its series becomes one figure.
    pub(crate) statistic: Statistic,
}

/// A parity check.
#[derive(Debug, Clone)]
pub(crate) struct Oracle {
    /// Its name.
    pub(crate) id: String,
    /// What it compares, and the bound.
    pub(crate) check: OracleCheck,
    /// The rung that it judges, for an oracle that belongs to no item.
    pub(crate) rung: Option<String>,
    /// Steps of its launches, where they differ from the ladder's.
    pub(crate) steps: Option<u64>,
    /// Prompt length of its launches, where it differs from the ladder's.
    pub(crate) prompt_tokens: Option<u64>,
    /// Runner arguments of its launches, besides those of the protocol.
    pub(crate) args: Vec<String>,
}

/// What an oracle compares between the base and the item on the base.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OracleCheck {
    /// The generated tokens are the same, by the hash in the cell report.
    TokensEqual,
    /// A file that the launch writes into its output folder has the same bytes.
    FileEqual {
        /// Its path within the folder.
        file: String,
    },
    /// A metric differs by no more than the bound; `None` is a bound that the author forgot.
    Metric {
        /// The metric.
        metric: String,
        /// The bound.
        bound: Option<Bound>,
    },
    /// The curve of a metric stays within the base's step-to-step band and holds no NaN or infinity.
    Overlay {
        /// The metric.
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
    Command {
        /// The command and its arguments.
        command: Vec<String>,
        /// The exit code that it must have.
        exit: Option<i32>,
    },
}

/// How far a metric may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// Of which difference.
    pub(crate) of: Difference,
    /// At most this much.
    pub(crate) at_most: f64,
}

/// A difference between two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// `|b − a|`
    Absolute,
    /// `|b − a| / |a|`
    Relative,
}

/// A change under test.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its name.
    pub(crate) id: String,
    /// What it is, in words.
    pub(crate) title: String,
    /// Environment that it sets.
    pub(crate) env: BTreeMap<String, String>,
    /// Runner arguments that it adds.
    pub(crate) args: Vec<String>,
    /// Cargo features that it builds with.
    pub(crate) features: Vec<String>,
    /// The commit, or range of commits, that it applies on top of the frozen one.
    pub(crate) rev: Option<String>,
    /// Items without which it does nothing.
    pub(crate) needs: Vec<String>,
    /// The oracles that it must pass.
    pub(crate) oracles: Vec<String>,
    /// Why it may land without a rung that measured it, if it may.
    pub(crate) lands_unmeasured: Option<String>,
}

/// A step of the ladder.
#[derive(Debug, Clone)]
pub(crate) struct Rung {
    /// Its name in expressions.
    pub(crate) id: String,
    /// The items that it carries.
    pub(crate) items: Vec<String>,
    /// What becomes of it when one of its items is dropped.
    pub(crate) on_drop: OnDrop,
}

/// What becomes of a rung when one of its items is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// It runs without the item, under a new name; without any item left it does not run.
    Recompose,
    /// It runs as it is, as a receipt of what the item does. It can never land.
    Measure,
}

/// Whether a read decides or explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The figure that the question is about.
    Primary,
    /// A figure that explains.
    Secondary,
}

/// A figure over the rungs.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    /// Its name in rules and expectations.
    pub(crate) id: String,
    /// Whether it decides or explains.
    pub(crate) role: Role,
    /// The metric whose figures the rungs' names stand for.
    pub(crate) metric: String,
    /// The formula, over rungs.
    pub(crate) value: Expr,
}

/// A figure that must stay within a bound.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    /// Its name in rules and expectations.
    pub(crate) id: String,
    /// The metric whose figures the rungs' names stand for.
    pub(crate) metric: String,
    /// The formula, over rungs.
    pub(crate) value: Expr,
    /// The condition on `value` under which it passes.
    pub(crate) passes: Expr,
    /// The reads that fail with it.
    pub(crate) fails: Vec<String>,
}

/// What follows from a condition.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// Its name.
    pub(crate) id: String,
    /// The condition.
    pub(crate) when: Expr,
    /// What is authorised when it fires.
    pub(crate) action: Action,
    /// What that means, in words, for the report.
    pub(crate) text: String,
}

/// What a rule authorises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Land every item that survived its oracles.
    LandAll,
    /// Land these items and no others, as far as they survived.
    Land(Vec<String>),
    /// Land nothing.
    Park,
    /// Drop the item and measure the ladder again without it.
    Drop(String),
}

/// An expectation, banked before the run.
#[derive(Debug, Clone)]
pub(crate) struct Expectation {
    /// Its number, `3` or `3b`.
    pub(crate) number: String,
    /// What was expected, in words.
    pub(crate) text: String,
    /// How sure the author was.
    pub(crate) confidence: Confidence,
    /// The condition under which it held.
    pub(crate) holds: Expr,
}

/// How sure an author is, as a probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// A later check on another machine.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    /// The reads that are measured there.
    pub(crate) reads: Vec<String>,
    /// Launches of each rung there.
    pub(crate) repeats: u64,
    /// What is expected, over `here.READ` (the machine of the transfer) and `there.READ` (the
    /// machine of the decision).
    pub(crate) expect: Expr,
    /// What that means, in words.
    pub(crate) text: String,
}

/// A finding of the linter that the author accepts.
#[derive(Debug, Clone)]
pub(crate) struct Waiver {
    /// The finding, `code:subject`.
    pub(crate) finding: String,
    /// Why it is accepted.
    pub(crate) why: String,
}

impl Document {
    /// Every prompt length that a launch can have: the protocol's, and the oracles' own.
    pub(crate) fn prompt_lengths(&self) -> Vec<u64> {
        let own = self.oracles.iter().filter_map(|oracle| oracle.prompt_tokens);
        std::iter::once(self.protocol.prompt_tokens).chain(own).collect()
    }

    /// The rung that everything is compared with.
    pub(crate) fn base(&self) -> &Rung {
        &self.rungs[0]
    }

    /// The item of this name.
    pub(crate) fn item(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    /// The metric of this name.
    pub(crate) fn metric(&self, id: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.id == id)
    }

    /// The read of this name.
    pub(crate) fn read(&self, id: &str) -> Option<&Read> {
        self.reads.iter().find(|read| read.id == id)
    }

    /// The oracle of this name.
    pub(crate) fn oracle(&self, id: &str) -> Option<&Oracle> {
        self.oracles.iter().find(|oracle| oracle.id == id)
    }

    /// The rung of this name.
    pub(crate) fn rung(&self, id: &str) -> Option<&Rung> {
        self.rungs.iter().find(|rung| rung.id == id)
    }
}

impl Confidence {
    /// All of them, least sure first.
    pub(crate) const ALL: [Confidence; 5] = [
        Confidence::Low,
        Confidence::MediumLow,
        Confidence::Medium,
        Confidence::MediumHigh,
        Confidence::High,
    ];

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

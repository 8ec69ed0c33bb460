//! What each check must show.
//!
//! A run that failed fails its check. A run that was not made leaves the check to the others, or
//! without a verdict. A run whose settings are not those that were asked for proves nothing and fails:
//! a kill switch that did nothing, or a fallback that took over in silence, is what this is for.

use serde_json::{Value, json};

use super::plan::{Leg, Setting};
use super::seen::{LegEnd, LegNumbers};
use super::{CheckResult, CheckVerdict};

pub(crate) use memory::{judge_cap, judge_memory, judge_oom_rescue};
pub(crate) use sanitizer::{SANITIZER_ERRORS, judge_sanitizer};

use crate::stats::location::median;

mod memory;
mod sanitizer;

/// A run and how it ended.
pub(crate) type Run = (Leg, LegEnd);

/// Driver calls of a step with the cache are at most this share of those without it …
const MOST_CALLS_SHARE: f64 = 0.1;
/// … or fewer than this.
const FEW_CALLS: f64 = 2.0;

/// The driver that the cache is measured over, in the words of the report.
const DRIVER: &str = "cuda";

pub(super) struct Judged {
    verdict: CheckVerdict,
    seen: String,
    figures: Value,
}

impl Judged {
    pub(super) fn pass(seen: String, figures: Value) -> Judged {
        Judged { verdict: CheckVerdict::Pass, seen, figures }
    }

    pub(super) fn fail(seen: impl Into<String>) -> Judged {
        Judged { verdict: CheckVerdict::Fail, seen: seen.into(), figures: Value::Null }
    }

    pub(super) fn not_possible(seen: impl Into<String>) -> Judged {
        Judged { verdict: CheckVerdict::NotPossible, seen: seen.into(), figures: Value::Null }
    }

    pub(super) fn with(self, figures: Value) -> Judged {
        Judged { figures, ..self }
    }

    pub(super) fn result(self, name: &str, legs: Vec<String>) -> CheckResult {
        let Judged { verdict, seen, figures } = self;
        CheckResult { name: name.to_owned(), verdict, seen, figures, legs }
    }
}

/// A check that could not be made.
pub(crate) fn not_possible(name: &str, why: &str) -> CheckResult {
    Judged::not_possible(why).result(name, Vec::new())
}

/// The program runs, and where it was told to.
pub(crate) fn judge_start(name: &str, runs: &[Run]) -> CheckResult {
    with_runs(name, runs, |measured| {
        let (_, numbers) = measured[0];
        let device = &numbers.report.device;
        let backend = device.backend.as_deref().unwrap_or("a backend without a name");
        if backend != "cuda" {
            return Judged::fail(format!("it ran on {backend}, not on a CUDA device"));
        }
        let memory = device.total_memory_bytes.map_or("unknown memory".to_owned(), |bytes| {
            format!("{:.0} GiB", bytes as f64 / f64::from(1_u32 << 30))
        });
        let (state, driver) = numbers.allocator();
        Judged::pass(
            format!(
                "{}, {memory}; allocator `{state}` over `{driver}`; loaded in {:.1} s",
                numbers.card().unwrap_or("an unnamed card"),
                numbers.report.timing.load_ms.unwrap_or_default() / 1e3
            ),
            json!({ "device": device, "wall_s": numbers.wall_s }),
        )
    })
}

/// The cache takes the driver calls out of a step and changes no token.
pub(crate) fn judge_decode(name: &str, runs: &[Run]) -> CheckResult {
    with_runs(name, runs, |measured| {
        let of = |setting| -> Vec<&LegNumbers> {
            let of_it = measured.iter().filter(|(leg, _)| leg.setting == setting);
            of_it.map(|(_, numbers)| *numbers).collect()
        };
        let (on, killed) = (Side::of(&of(Setting::On)), Side::of(&of(Setting::Killed)));
        let (on, killed) = match (on, killed) {
            (Ok(Some(on)), Ok(Some(killed))) => (on, killed),
            (Err(why), _) => return Judged::fail(format!("on: {why}")),
            (_, Err(why)) => return Judged::fail(format!("killed: {why}")),
            _ => return Judged::not_possible("there was no time for both `on` and `killed`"),
        };
        let figures = json!({
            "on": on.figures(),
            "killed": killed.figures(),
            "tok_s_change_pct": on.change_pct(&killed),
        });
        if let Some(problem) = on.problem_against(&killed) {
            return Judged::fail(problem).with(figures);
        }
        if let Err(why) = check_same_tokens(measured) {
            return Judged::fail(why).with(figures);
        }
        let change = on.change_pct(&killed).map_or(String::new(), |pct| format!(" ({pct:+.1} %)"));
        Judged::pass(
            format!(
                "per step: on {}, killed {}; tok/s: on {}, killed {}{change}; same tokens in {} runs",
                on.describe(),
                killed.describe(),
                describe_number(on.tok_s),
                describe_number(killed.tok_s),
                measured.len()
            ),
            figures,
        )
    })
}

/// The medians of the runs with one setting.
struct Side {
    allocs: f64,
    frees: f64,
    host_ms: Option<f64>,
    tok_s: Option<f64>,
    runs: usize,
}

impl Side {
    /// `None` without a run. An error where a run does not count its driver calls.
    fn of(runs: &[&LegNumbers]) -> Result<Option<Side>, String> {
        if runs.is_empty() {
            return Ok(None);
        }
        let steps = runs
            .iter()
            .map(|run| run.per_step())
            .collect::<Option<Vec<_>>>()
            .ok_or("the report counts no driver calls for decode steps")?;
        let middle = |values: Vec<f64>| median(&values).unwrap_or_default();
        let host: Option<Vec<f64>> = steps.iter().map(|step| step.host_ms).collect();
        let tok_s: Option<Vec<f64>> = runs.iter().map(|run| run.tok_s()).collect();
        Ok(Some(Side {
            allocs: middle(steps.iter().map(|step| step.driver_allocs).collect()),
            frees: middle(steps.iter().map(|step| step.driver_frees).collect()),
            host_ms: host.map(middle),
            tok_s: tok_s.map(middle),
            runs: runs.len(),
        }))
    }

    fn figures(&self) -> Value {
        json!({
            "driver_allocs_per_step": self.allocs,
            "driver_frees_per_step": self.frees,
            "host_ms_per_step": self.host_ms,
            "decode_tok_s": self.tok_s,
            "runs": self.runs,
        })
    }

    fn describe(&self) -> String {
        let host = self.host_ms.map_or(String::new(), |ms| format!(" in {ms:.2} ms"));
        format!("{:.1} allocs + {:.1} frees{host}", self.allocs, self.frees)
    }

    fn change_pct(&self, base: &Side) -> Option<f64> {
        Some((self.tok_s? / base.tok_s.filter(|speed| *speed > 0.0)? - 1.0) * 100.0)
    }

    /// What is wrong with the driver calls of the side with the cache.
    fn problem_against(&self, killed: &Side) -> Option<String> {
        if killed.allocs < FEW_CALLS {
            return Some(format!(
                "killed makes {:.1} driver allocations a step, so the hook does not see candle's",
                killed.allocs
            ));
        }
        let calls =
            [("allocations", self.allocs, killed.allocs), ("frees", self.frees, killed.frees)];
        calls.into_iter().find_map(|(what, on, killed)| {
            (on >= FEW_CALLS && on > killed * MOST_CALLS_SHARE).then(|| {
                format!("on makes {on:.1} driver {what} a step, killed {killed:.1}: the cache saves too few")
            })
        })
    }
}

fn describe_number(value: Option<f64>) -> String {
    value.map_or("unknown".to_owned(), |value| format!("{value:.1}"))
}

/// Sorts the runs out: judges the measured ones, once none has failed and all had the settings that
/// they were to have.
pub(super) fn with_runs(
    name: &str,
    runs: &[Run],
    judge: impl FnOnce(&[(&Leg, &LegNumbers)]) -> Judged,
) -> CheckResult {
    let mut measured: Vec<(&Leg, &LegNumbers)> = Vec::new();
    let mut skipped = None;
    let mut failed = None;
    for (leg, end) in runs {
        match end {
            LegEnd::Measured(numbers) => measured.push((leg, &**numbers)),
            LegEnd::Failed(why) => failed = failed.or(Some(format!("{}: {why}", leg.name))),
            LegEnd::Skipped(why) => skipped = skipped.or(Some(format!("{}: {why}", leg.name))),
        }
    }
    let legs: Vec<String> = runs
        .iter()
        .filter(|(_, end)| !matches!(end, LegEnd::Skipped(_)))
        .map(|(leg, _)| leg.name.clone())
        .collect();
    let wrong = measured
        .iter()
        .find_map(|(leg, numbers)| Some(format!("{}: {}", leg.name, find_wrong(leg, numbers)?)));
    if let Some(why) = failed.or(wrong) {
        return Judged::fail(why).result(name, legs);
    }
    if measured.is_empty() {
        let why = skipped.unwrap_or_else(|| "no run was planned".to_owned());
        return Judged::not_possible(why).result(name, legs);
    }
    let mut judged = judge(&measured);
    if let Some(skipped) = skipped {
        judged.seen.push_str(&format!("; skipped {skipped}"));
    }
    judged.result(name, legs)
}

/// What is wrong with a run, whatever it was for: settings, sums, or a counter that must be 0.
fn find_wrong(leg: &Leg, numbers: &LegNumbers) -> Option<String> {
    find_wrong_setting(leg, numbers).or_else(|| find_wrong_count(numbers))
}

fn find_wrong_setting(leg: &Leg, numbers: &LegNumbers) -> Option<String> {
    let (state, driver) = numbers.allocator();
    let settings = numbers.report.settings.allocator.as_ref();
    if driver.contains("pool") {
        let reason =
            settings.and_then(|settings| settings.reason.as_deref()).unwrap_or("no reason given");
        return Some(format!("the fallback `{driver}` is in force instead of the cache: {reason}"));
    }
    if driver != DRIVER {
        return Some(format!("the driver is `{driver}`, not `{DRIVER}`"));
    }
    let wanted = if leg.setting == Setting::Killed { "killed" } else { "policy" };
    if state != wanted {
        return Some(format!("the allocator is `{state}`, but `{wanted}` was requested"));
    }
    numbers
        .cap_bytes()
        .filter(|_| leg.setting == Setting::Unbounded)
        .map(|cap| format!("a cap of {cap} bytes is in force, but none was requested"))
}

fn find_wrong_count(numbers: &LegNumbers) -> Option<String> {
    let Some(allocator) = &numbers.report.allocator else {
        return Some("the report has no `allocator` section".to_owned());
    };
    let totals = &allocator.totals;
    let sum = totals.hits + totals.misses + totals.bypasses.values().sum::<u64>();
    if sum != totals.requests {
        return Some(format!(
            "{} requests, but hits, misses and bypasses add up to {sum}",
            totals.requests
        ));
    }
    let zeros = &totals.must_be_zero;
    if let Some((name, count)) = zeros.iter().find(|(_, count)| **count > 0) {
        return Some(format!("`{name}` must be 0 but is {count}"));
    }
    let missing =
        formats::cell_report::MUST_BE_ZERO.iter().find(|name| !zeros.contains_key(**name));
    missing.map(|name| format!("`{name}` must be 0 but is not reported"))
}

/// Checks that all runs yield what the first one yields: as many tokens, where as many were asked for,
/// and otherwise the same as far as the shorter one goes.
///
/// # Errors
/// Where one of them parts from the first, is shorter or longer, or has none.
pub(super) fn check_same_tokens(runs: &[(&Leg, &LegNumbers)]) -> Result<(), String> {
    let Some(((first_leg, first), rest)) = runs.split_first() else { return Ok(()) };
    let expected = &first.report.output.token_ids;
    if expected.is_empty() {
        return Err(format!("{} reports no tokens", first_leg.name));
    }
    for (leg, numbers) in rest {
        let found = &numbers.report.output.token_ids;
        if found.is_empty() {
            return Err(format!("{} reports no tokens", leg.name));
        }
        if let Some(at) = expected.iter().zip(found).position(|(a, b)| a != b) {
            return Err(format!(
                "{} and {} differ at token {at}: {} and {}",
                first_leg.name, leg.name, expected[at], found[at]
            ));
        }
        if leg.max_tokens == first_leg.max_tokens && found.len() != expected.len() {
            let mut ends = [(expected.len(), &first_leg.name), (found.len(), &leg.name)];
            ends.sort_unstable();
            let [(fewer, short), (more, long)] = ends;
            return Err(format!("{long} generated {more} tokens, {short} only {fewer}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

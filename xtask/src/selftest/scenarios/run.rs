//! `cargo xtask scenarios`: the promises of a sweep, proved on this machine over the real binary.
//!
//! Each scenario works in a temporary checkout of its own and returns what it proved, or how the
//! promise was broken. All chosen ones run, then the command fails if any did.

use std::path::Path;

use crate::base::outcome::Outcome;
use crate::selftest::scenarios::args::Args;
use crate::sys::{clock, terminal};

mod check;
mod class;
mod durable;
mod memory;
mod real;

struct Scenario {
    name: &'static str,
    promise: &'static str,
    /// Runs it; the root is that of this workspace, which is only read and built.
    prove: fn(root: &Path) -> anyhow::Result<String>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "fake-oom",
        promise: "an out-of-memory keeps longer cells of its model from being launched",
        prove: |_| memory::fake_oom(),
    },
    Scenario {
        name: "unsorted",
        promise: "the backstop holds for a ladder in any order",
        prove: |_| memory::unsorted(),
    },
    Scenario {
        name: "record",
        promise: "the OOM record acts across sweeps, and can be overridden",
        prove: |_| memory::record(),
    },
    Scenario {
        name: "isolation",
        promise: "nothing but a true out-of-memory feeds backstop or record",
        prove: |_| memory::isolation(),
    },
    Scenario {
        name: "names",
        promise: "names with commas, quotes and colons, and prefixes of names, are kept apart",
        prove: |_| memory::names(),
    },
    Scenario {
        name: "signatures",
        promise: "each sign of memory running out is recognised, and no near miss is",
        prove: |_| class::signatures(),
    },
    Scenario {
        name: "results",
        promise: "torn, missing and foreign results are never credited to a cell",
        prove: |_| class::results(),
    },
    Scenario {
        name: "flood",
        promise: "2 GB of output cost the harness no memory and hide no failure",
        prove: |_| class::flood(),
    },
    Scenario {
        name: "kill",
        promise: "a sweep that is killed at any moment loses nothing and can be resumed",
        prove: |_| durable::kill(),
    },
    Scenario {
        name: "lost",
        promise: "a cell that took the host down is not launched again by itself",
        prove: |_| durable::lost(),
    },
    Scenario {
        name: "interrupt",
        promise: "Ctrl-C ends the child, closes the journal and can be resumed",
        prove: |_| durable::interrupt(),
    },
    Scenario {
        name: "full-disk",
        promise: "a full disk or an unwritable output is a clear error and spoils nothing",
        prove: |_| durable::full_disk(),
    },
    Scenario {
        name: "two-sweeps",
        promise: "two sweeps at once in one checkout: the second is refused",
        prove: |_| durable::two_sweeps(),
    },
    Scenario {
        name: "real-oom",
        promise: "the real engine runs out of memory under a limit, and is not launched into it again",
        prove: real::real_oom,
    },
];

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let chosen = plan_scenarios(&args.names)?;
    if args.list {
        for scenario in chosen {
            terminal::data(&format!("{:<10}  {}", scenario.name, scenario.promise));
        }
        return Ok(Outcome::Done);
    }
    let mut broken = 0;
    for scenario in &chosen {
        let (proved, took) = clock::time(|| (scenario.prove)(root));
        let (name, seconds) = (scenario.name, took.as_secs_f64());
        match proved {
            Ok(proof) => terminal::data(&format!("ok      {name:<10}  {proof} ({seconds:.1} s)")),
            Err(error) => {
                broken += 1;
                terminal::data(&format!(
                    "BROKEN  {name:<10}  {} ({seconds:.1} s)",
                    scenario.promise
                ));
                terminal::log(&crate::base::diagnostic::render_error(&error));
            }
        }
    }
    terminal::log(&format!("scenarios: {} hold, {broken} broken", chosen.len() - broken));
    Ok(if broken == 0 { Outcome::Done } else { Outcome::Violation })
}

/// The scenarios of these names, in their fixed order; all where none is named.
fn plan_scenarios(names: &[String]) -> anyhow::Result<Vec<&'static Scenario>> {
    let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("there is no scenario `{unknown}`; the scenarios are {}", known.join(", "));
    }
    let is_chosen =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(SCENARIOS.iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_and_unknown_ones_are_refused() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let chosen: Vec<_> = plan_scenarios(&names(&["kill", "record"]))
            .unwrap()
            .iter()
            .map(|scenario| scenario.name)
            .collect();
        assert_eq!(chosen, ["record", "kill"]);
        assert_eq!(plan_scenarios(&[]).unwrap().len(), SCENARIOS.len());
        let error = plan_scenarios(&names(&["oom"])).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no scenario `oom`; the scenarios are fake-oom, "),
            "{error}"
        );
    }
}

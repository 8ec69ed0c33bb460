//! `cargo xtask ci`: every check and test, one after the other, none skipped for another's failure.

use std::path::Path;
use std::time::Duration;

use xshell::{Shell, cmd};

use crate::base::count::render_count;
use crate::base::outcome::Outcome;
use crate::ci::args::Args;
use crate::sys::{clock, terminal};

/// One step: what it is called, what it runs, and the environment that it adds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    name: &'static str,
    cargo_args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const STEPS: &[Step] = &[
    // First, because everything after it compiles what the lock holds.
    Step {
        name: "verify-lock",
        cargo_args: &["run", "--quiet", "--locked", "--package", "lockcheck", "--", "--strict"],
        env: &[],
    },
    Step { name: "fmt", cargo_args: &["fmt", "--all", "--check"], env: &[] },
    Step {
        name: "clippy",
        cargo_args: &[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ],
        env: &[],
    },
    Step {
        name: "test",
        cargo_args: &["test", "--locked", "--workspace", "--no-fail-fast"],
        env: &[],
    },
    // After `test`: the two share most dependencies; candle is built again for the feature.
    Step {
        name: "cuda-check",
        cargo_args: &["run", "--quiet", "--locked", "--package", "xtask", "--", "cuda-check"],
        env: &[],
    },
    Step {
        name: "scenarios",
        cargo_args: &["run", "--quiet", "--locked", "--package", "xtask", "--", "scenarios"],
        env: &[],
    },
    Step {
        name: "doc",
        cargo_args: &["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"],
        env: &[("RUSTDOCFLAGS", "--deny warnings")],
    },
];

#[derive(Debug)]
struct StepResult {
    name: &'static str,
    passed: bool,
    took: Duration,
}

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    let steps = plan_steps(&args.only)?;
    if args.list {
        for step in steps {
            terminal::data(&format!("{:<10} cargo {}", step.name, step.cargo_args.join(" ")));
        }
        return Ok(Outcome::Done);
    }
    let shell = Shell::new()?;
    shell.change_dir(root);
    let results: Vec<StepResult> = steps.iter().map(|step| run_step(&shell, step)).collect();
    terminal::log(&render_results(&results));
    Ok(if results.iter().all(|result| result.passed) { Outcome::Done } else { Outcome::Violation })
}

/// The steps to run, in their fixed order: those named, or all.
fn plan_steps(only: &[String]) -> anyhow::Result<Vec<&'static Step>> {
    let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("there is no step `{unknown}`; the steps are {}", known.join(", "));
    }
    Ok(STEPS
        .iter()
        .filter(|step| only.is_empty() || only.iter().any(|name| name == step.name))
        .collect())
}

fn run_step(shell: &Shell, step: &'static Step) -> StepResult {
    terminal::log(&format!("ci: {} …", step.name));
    let args = step.cargo_args;
    let command = cmd!(shell, "cargo {args...}").envs(step.env.iter().copied()).quiet();
    let (ran, took) = clock::time(|| command.run());
    if let Err(error) = &ran {
        terminal::log(&format!("ci: {} failed: {error}", step.name));
    }
    StepResult { name: step.name, passed: ran.is_ok(), took }
}

fn render_results(results: &[StepResult]) -> String {
    let mut text = String::from("ci:");
    for result in results {
        let verdict = if result.passed { "ok" } else { "FAILED" };
        text.push_str(&format!(
            "\n  {:<10} {verdict:<6} {:>7.1} s",
            result.name,
            result.took.as_secs_f64()
        ));
    }
    let failed = results.iter().filter(|result| !result.passed).count();
    let passed = render_count(results.len() - failed, "step");
    text.push_str(&format!("\nci: {passed} passed, {failed} failed"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_their_order_whatever_the_order_asked_for() {
        let only = ["doc".to_owned(), "fmt".to_owned()];
        let names: Vec<_> = plan_steps(&only).unwrap().iter().map(|step| step.name).collect();
        assert_eq!(names, ["fmt", "doc"]);
    }

    #[test]
    fn an_unknown_step_is_named_with_the_known_ones() {
        let error = plan_steps(&["tests".to_owned()]).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "there is no step `tests`; the steps are verify-lock, fmt, clippy, test, cuda-check"
            ),
            "{error}"
        );
    }

    #[test]
    fn the_summary_counts_failures() {
        let results = [
            StepResult { name: "fmt", passed: true, took: Duration::from_millis(1500) },
            StepResult { name: "test", passed: false, took: Duration::from_secs(61) },
        ];
        assert_eq!(
            render_results(&results),
            "ci:\n  fmt        ok         1.5 s\n  test       FAILED    61.0 s\nci: 1 step passed, 1 failed"
        );
    }
}

//! `cargo xtask ab`: two settings of one binary, one variable apart.
//!
//! Read the definition, build the engine, take the hashes; then block by block: check, launch, keep;
//! then judge what was kept and write it. This module and those below it are the order in which
//! things happen; the rules are in the rest of the room.

use std::path::Path;

use crate::ab::analysis::{AbResult, analyse};
use crate::ab::args::Args;
use crate::ab::render::{render_legs_table, render_summary};
use crate::base::outcome::Outcome;
use crate::cell::executor::run::RealExecutor;
use crate::sys::interrupt::Interrupt;
use crate::sys::launch_lock::LaunchLock;
use crate::sys::terminal;

mod bisect;
mod measure;
mod output;
mod prepare;

/// Runs or resumes a comparison, or judges an earlier one again.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    if let Some(folder) = &args.report {
        let (start, log) = output::read_earlier(folder)?;
        let result = analyse(&start, &log)?;
        if args.check {
            return output::check_result(root, folder, &start, &result);
        }
        output::write_result(root, folder, &start, &result)?;
        return Ok(finish(&result, &folder.to_string_lossy(), args));
    }
    let interrupt = Interrupt::install()?;
    let _lock = LaunchLock::acquire(root, "ab")?;
    if let Some(range) = &args.bisect {
        let ended = bisect::run(root, args, range, interrupt);
        return if interrupt.is_set() { Ok(Outcome::Interrupted) } else { ended };
    }
    let (result, folder) = match compare(root, args, interrupt) {
        // Ctrl-C reaches the compiler as well.
        Err(_) if interrupt.is_set() => return Ok(Outcome::Interrupted),
        ended => ended?,
    };
    let outcome = finish(&result, &folder, args);
    Ok(if interrupt.is_set() { Outcome::Interrupted } else { outcome })
}

/// Makes a comparison. Returns what it shows, and the folder that it lies in, from the workspace.
fn compare(root: &Path, args: &Args, interrupt: Interrupt) -> anyhow::Result<(AbResult, String)> {
    let (prepared, guard) = prepare::prepare(root, args)?;
    let executor = RealExecutor::new(root, interrupt);
    let mut comparison = measure::Comparison::start(root, prepared, guard, executor, args.quiet)?;
    let ran = comparison.run();
    // Whatever ended the runs: what they showed so far is on disk as a report.
    let result = analyse(comparison.start_entry(), comparison.log())?;
    let written =
        output::write_result(root, comparison.folder(), comparison.start_entry(), &result);
    ran?;
    written?;
    Ok((result, comparison.shown_folder().to_owned()))
}

/// Prints the table and what it means to stdout; or the whole result, and what it means to stderr.
fn finish(result: &AbResult, folder: &str, args: &Args) -> Outcome {
    let said = render_summary(result);
    if args.json {
        terminal::data(&output::render_json(result));
    } else {
        terminal::data(&format!("{}\n\n{said}", render_legs_table(result).trim_end()));
    }
    if !args.quiet {
        if args.json {
            terminal::log(&said);
        }
        terminal::log(&format!("ab: wrote `{folder}`"));
    }
    if result.violations.is_empty() { Outcome::Done } else { Outcome::Violation }
}

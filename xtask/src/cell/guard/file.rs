//! Reads what the guard knows before a run: the record, the variables, the machine's memory.

use std::path::Path;

use anyhow::Context as _;

use super::{Guard, RecordRule, parse_overhead_factor};
use crate::cell::grid::{Cell, FakeCell, parse_fake_ooms};
use crate::model::reference::ResolvedModel;
use crate::oom_record::RECORD_PATH;
use crate::oom_record::file::{is_ignored_by_variable, read_record};
use crate::sys::host::read_host_facts;
use crate::sys::{env, terminal};

/// Cells that run out of memory without being launched.
pub(crate) const FAKE_OOM_VAR: &str = "MLXCEL_BENCH_FAKE_OOM";
const OVERHEAD_FACTOR_VAR: &str = "BENCH_MEM_OVERHEAD_FACTOR";

/// The guard of a run in the workspace at `root`, whose weights must fit into `memory_bytes`.
/// `asked` is what the command line says of the record; the variable says the same.
///
/// # Errors
/// When the record is there and cannot be read.
pub(crate) fn read_guard(
    root: &Path,
    asked: RecordRule,
    memory_bytes: Option<u64>,
) -> anyhow::Result<Guard> {
    let record = read_record(&root.join(RECORD_PATH))?;
    for warning in record.warnings() {
        terminal::log(&format!("warning: {warning}"));
    }
    // The variable is read even where the flag is given, so that a value without meaning is warned
    // of.
    let rule = if is_ignored_by_variable() { RecordRule::Ignored } else { asked };
    let (factor, warning) = parse_overhead_factor(env::read_var(OVERHEAD_FACTOR_VAR).as_deref());
    if let Some(warning) = warning {
        terminal::log(&format!("warning: {warning}"));
    }
    Ok(Guard::new(record, rule, memory_bytes, factor))
}

/// The guard of a run of one model, which refuses to begin where a cell of the model as it is would
/// be refused: without it there is nothing to compare with. No cell generates more than `most_tokens`.
/// `command` is what the user typed.
///
/// # Errors
/// When the record cannot be read, a fake names no cell of the run, or a cell is refused.
pub(crate) fn read_guard_of_model(
    root: &Path,
    asked: RecordRule,
    model: &ResolvedModel,
    lengths: &[u64],
    most_tokens: u64,
    command: &str,
) -> anyhow::Result<Guard> {
    let guard = read_guard(root, asked, read_host_facts()?.device_memory_bytes())?;
    let cells: Vec<Cell<'_>> =
        lengths.iter().map(|&len| Cell { model, len, variant: None }).collect();
    let guard = guard.with_fakes(read_fake_ooms(&cells)?).with_most_tokens(most_tokens);
    for cell in cells {
        guard.require(cell, command)?;
        if let Some((_, line)) = guard.held(cell) {
            terminal::log(&format!("note: the OOM record holds `{line}`; it is ignored, as asked"));
        }
    }
    Ok(guard)
}

/// The cells of a run that the variable says run out of memory without being launched.
///
/// # Errors
/// When it names a cell that the run does not have.
pub(crate) fn read_fake_ooms(cells: &[Cell<'_>]) -> anyhow::Result<Vec<FakeCell>> {
    let Some(text) = env::read_var(FAKE_OOM_VAR).filter(|text| !text.trim().is_empty()) else {
        return Ok(Vec::new());
    };
    parse_fake_ooms(&text, cells).context(FAKE_OOM_VAR)
}

//! `cargo xtask oom-record`: the order in which things happen.

use std::path::Path;

use anyhow::Context as _;

use crate::base::columns::render_columns;
use crate::base::outcome::Outcome;
use crate::cell::journal::Evidence;
use crate::oom::args::{Args, Command, ExplainArgs, ListArgs, PruneArgs};
use crate::oom::explain::{find_event, find_evidence, render_explanation};
use crate::oom_record::prune::{PrunePlan, PruneRule, plan_prune, recorded_commits};
use crate::oom_record::{OomEntry, OomRecord, RECORD_PATH, file as record_file};
use crate::sys::git::history as git_history;
use crate::sys::{files, terminal};

mod confirm;

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    match &args.command {
        Command::List(args) => list(root, args),
        Command::Explain(args) => explain(root, args),
        Command::Prune(args) => prune(root, args),
        Command::Confirm(args) => confirm::run(root, args),
    }
}

fn list(root: &Path, args: &ListArgs) -> anyhow::Result<Outcome> {
    let record = read(root)?;
    let wanted = |entry: &OomEntry| args.model.as_ref().is_none_or(|model| entry.model == *model);
    let rows: Vec<Row> = record
        .entries()
        .filter(|(entry, _)| wanted(entry))
        .map(|(entry, line)| Row { line: line.number, entry })
        .collect();
    if args.json {
        terminal::data(&serde_json::to_string_pretty(&rows).context("cannot render the list")?);
    } else if rows.is_empty() {
        terminal::log(&format!("oom-record: {RECORD_PATH} has no events"));
    } else {
        terminal::data(&render_rows(&rows));
    }
    Ok(Outcome::Done)
}

fn explain(root: &Path, args: &ExplainArgs) -> anyhow::Result<Outcome> {
    let record = read(root)?;
    let event = find_event(&record, &args.model, args.len).map(|(entry, _)| entry);
    let distance = event.and_then(|entry| git_history::read_distance(root, &entry.commit, "HEAD"));
    let evidence = event.and_then(|entry| read_evidence(root, entry));
    terminal::data(&render_explanation(
        &record,
        &args.model,
        args.len,
        distance,
        evidence.as_ref(),
    ));
    Ok(Outcome::Done)
}

/// The evidence of an event: in the journal beside its CSV, or in the samples that it names.
fn read_evidence(root: &Path, entry: &OomEntry) -> Option<Evidence> {
    let source = &entry.source_csv;
    [format!("{source}.journal.jsonl"), source.clone()]
        .iter()
        .filter_map(|path| files::read_text(&root.join(path)).ok())
        .find_map(|text| find_evidence(&text, entry))
}

fn prune(root: &Path, args: &PruneArgs) -> anyhow::Result<Outcome> {
    let path = root.join(RECORD_PATH);
    let plan = |record: &OomRecord| -> anyhow::Result<PrunePlan> {
        Ok(plan_prune(record, &read_rule(root, args, record)?))
    };
    let pruned = if args.dry_run {
        record_file::preview_prune(&path, plan)?
    } else {
        record_file::prune(&path, plan)?
    };
    for note in &pruned.plan.notes {
        terminal::log(&format!("oom-record: {note}"));
    }
    let count = pruned.plan.dropped.len();
    if count == 0 {
        terminal::log(&format!("oom-record: nothing to prune in {RECORD_PATH}"));
        return Ok(Outcome::Done);
    }
    terminal::data(render_diff(&pruned.before, &pruned.after).trim_end_matches('\n'));
    let events = if count == 1 { "event" } else { "events" };
    let what = if args.dry_run { "would be removed (dry run)" } else { "removed" };
    terminal::log(&format!("oom-record: {count} {events} {what}"));
    Ok(Outcome::Done)
}

fn read_rule(root: &Path, args: &PruneArgs, record: &OomRecord) -> anyhow::Result<PruneRule> {
    if let Some(model) = &args.model {
        return Ok(PruneRule::Model(model.clone()));
    }
    if let Some(day) = args.before {
        return Ok(PruneRule::Before(day));
    }
    let revision = args.fixed_by.as_deref().context("give --model, --before or --fixed-by")?;
    let ages = git_history::read_commit_ages(root, &recorded_commits(record), revision)?;
    Ok(PruneRule::FixedBy(ages))
}

/// Reads the record and tells of its malformed lines.
fn read(root: &Path) -> anyhow::Result<OomRecord> {
    let record = record_file::read_record(&root.join(RECORD_PATH))?;
    for warning in record.warnings() {
        terminal::log(&format!("warning: {warning}"));
    }
    Ok(record)
}

#[derive(Debug, serde::Serialize)]
struct Row<'a> {
    line: usize,
    #[serde(flatten)]
    entry: &'a OomEntry,
}

fn render_rows(rows: &[Row<'_>]) -> String {
    let mut table = vec![
        ["LINE", "MODEL", "LENGTH", "DATE", "COMMIT", "PEAK BYTES", "SOURCE"].map(str::to_owned),
    ];
    table.extend(rows.iter().map(|Row { line, entry }| {
        [
            line.to_string(),
            entry.model.clone(),
            entry.prompt_target_len.to_string(),
            entry.date.clone(),
            entry.commit.clone(),
            entry.peak_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            entry.source_csv.clone(),
        ]
    }));
    render_columns(&table, |column| matches!(column, 0 | 2 | 5))
}

fn render_diff(before: &str, after: &str) -> String {
    similar::TextDiff::from_lines(before, after)
        .unified_diff()
        .context_radius(2)
        .header(RECORD_PATH, RECORD_PATH)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom_record::parse_record;

    const TEXT: &str = "tiny,8192,2026-07-06,8f14e45,123456789,benchmarks/a.csv\n\
                        \"it's, 7b\",512,2026-07-05,unknown,,benchmarks/b.csv\n";

    #[test]
    fn the_list_is_a_table() {
        let record = parse_record(TEXT);
        let rows: Vec<Row> =
            record.entries().map(|(entry, line)| Row { line: line.number, entry }).collect();
        insta::assert_snapshot!(render_rows(&rows), @r#"
            LINE  MODEL     LENGTH  DATE        COMMIT   PEAK BYTES  SOURCE
               1  tiny        8192  2026-07-06  8f14e45   123456789  benchmarks/a.csv
               2  it's, 7b     512  2026-07-05  unknown              benchmarks/b.csv
        "#);
    }

    #[test]
    fn the_diff_shows_the_lines_that_go() {
        let after = TEXT.split_inclusive('\n').nth(1).unwrap();
        insta::assert_snapshot!(render_diff(TEXT, after), @r#"
            --- benchmarks/.oom-record
            +++ benchmarks/.oom-record
            @@ -1,2 +1 @@
            -tiny,8192,2026-07-06,8f14e45,123456789,benchmarks/a.csv
             "it's, 7b",512,2026-07-05,unknown,,benchmarks/b.csv
        "#);
    }
}

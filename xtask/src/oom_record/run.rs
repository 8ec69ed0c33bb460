//! `cargo xtask oom-record`: reads, explains and prunes the OOM record.

use std::path::Path;

use anyhow::Context as _;

use crate::base::columns::render_columns;
use crate::base::nearest::nearest;
use crate::base::outcome::Outcome;
use crate::base::shell::{quote_list_word, quote_word};
use crate::oom_record::args::{Args, Command, ExplainArgs, ListArgs, PruneArgs};
use crate::oom_record::prune::{PrunePlan, PruneRule, plan_prune, recorded_commits};
use crate::oom_record::{
    OomEntry, OomRecord, RECORD_PATH, file as record_file, render_prune_command,
};
use crate::sys::git::history as git_history;
use crate::sys::terminal;

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    match &args.command {
        Command::List(args) => list(root, args),
        Command::Explain(args) => explain(root, args),
        Command::Prune(args) => prune(root, args),
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
    let distance = record
        .blocking(&args.model, args.len)
        .and_then(|(entry, _)| git_history::read_distance(root, &entry.commit, "HEAD"));
    terminal::data(&render_explanation(&record, &args.model, args.len, distance));
    Ok(Outcome::Done)
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

/// Says what a sweep would do with the cell and why; `distance` is how many commits were made since
/// the blocking event's.
fn render_explanation(record: &OomRecord, model: &str, len: u64, distance: Option<u64>) -> String {
    let Some((entry, raw)) = record.blocking(model, len) else {
        return render_free_cell(record, model, len);
    };
    let age = match distance {
        Some(0) => format!("at commit {}, which is HEAD", entry.commit),
        Some(1) => format!("at commit {}, 1 commit before HEAD", entry.commit),
        Some(count) => format!("at commit {}, {count} commits before HEAD", entry.commit),
        None if entry.commit == "unknown" => "at an unknown commit".to_owned(),
        None => format!("at commit {}, which this repository does not have", entry.commit),
    };
    let word = quote_word(&quote_list_word(model));
    format!(
        "{model} at {len} tokens: skipped before launch (SKIP:oom_record)\n  recorded: {raw}\n  it \
         ran out of memory at {} tokens on {}, {age}\nto run the cell once anyway:\n  \
         MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models {word} --lengths {len}\nif a \
         change since then fixed it:\n  {}\n  cargo xtask oom-record prune --fixed-by REV",
        entry.prompt_target_len,
        entry.date,
        render_prune_command(model),
    )
}

fn render_free_cell(record: &OomRecord, model: &str, len: u64) -> String {
    let mut text =
        format!("{model} at {len} tokens: would be launched; no recorded event forbids it");
    let longer = record.blocking(model, u64::MAX);
    let names: Vec<&str> = record.entries().map(|(entry, _)| entry.model.as_str()).collect();
    if let Some((entry, raw)) = longer {
        text.push_str(&format!(
            "\n  the shortest recorded event of this model is at {} tokens: {raw}",
            entry.prompt_target_len
        ));
    } else if let Some(near) = nearest(model, names.into_iter()) {
        text.push_str(&format!("\n  the record has no `{model}`; did you mean `{near}`?"));
    }
    text
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
    fn a_skipped_cell_is_explained_with_its_line_and_the_commands() {
        let record = parse_record(TEXT);
        insta::assert_snapshot!(render_explanation(&record, "it's, 7b", 2048, None), @r#"
            it's, 7b at 2048 tokens: skipped before launch (SKIP:oom_record)
              recorded: "it's, 7b",512,2026-07-05,unknown,,benchmarks/b.csv
              it ran out of memory at 512 tokens on 2026-07-05, at an unknown commit
            to run the cell once anyway:
              MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models '"it'\''s, 7b"' --lengths 2048
            if a change since then fixed it:
              cargo xtask oom-record prune --model 'it'\''s, 7b'
              cargo xtask oom-record prune --fixed-by REV
        "#);
        let text = render_explanation(&record, "tiny", 8192, Some(12));
        assert!(text.contains("at commit 8f14e45, 12 commits before HEAD"), "{text}");
    }

    #[test]
    fn a_cell_that_is_free_is_explained_too() {
        let record = parse_record(TEXT);
        insta::assert_snapshot!(render_explanation(&record, "tiny", 8191, None), @r#"
            tiny at 8191 tokens: would be launched; no recorded event forbids it
              the shortest recorded event of this model is at 8192 tokens: tiny,8192,2026-07-06,8f14e45,123456789,benchmarks/a.csv
        "#);
        insta::assert_snapshot!(render_explanation(&record, "tinny", 1, None), @r#"
            tinny at 1 tokens: would be launched; no recorded event forbids it
              the record has no `tinny`; did you mean `tiny`?
        "#);
        let text = render_explanation(&OomRecord::default(), "tiny", 1, None);
        assert_eq!(text, "tiny at 1 tokens: would be launched; no recorded event forbids it");
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

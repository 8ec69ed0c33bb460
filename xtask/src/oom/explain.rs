//! What `oom-record explain` says: whether a sweep would skip a cell, because of which line, and how
//! well that is known.

use serde_json::Value;

use crate::base::nearest::nearest;
use crate::base::shell::{quote_list_word, quote_word};
use crate::cell::classify::{Classification, DecidedBy};
use crate::cell::evidence::{Grade, describe_plenty};
use crate::cell::journal::Evidence;
use crate::cell::length::parse_generate;
use crate::oom_record::{OomEntry, OomRecord, render_confirm_command, render_prune_command};

/// The evidence of an event, in the text of the journal or the samples that it names: the last line about
/// this cell. `None` where there is none.
pub(super) fn find_evidence(journal: &str, entry: &OomEntry) -> Option<Evidence> {
    journal
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| is_about(line, entry))
        .filter_map(|line| serde_json::from_value(line.get("evidence")?.clone()).ok())
        .next_back()
}

fn is_about(line: &Value, entry: &OomEntry) -> bool {
    // The samples of a comparison are of one model and name none.
    let model = line.get("model").is_none_or(|model| *model == *entry.model);
    let len = line.get("prompt_target_len").is_none_or(|len| *len == entry.prompt_target_len);
    let class = line.get("classification").and_then(Value::as_str);
    model && len && class == Some(Classification::Oom.token())
}

/// How well a true OOM is known. Journals that did not note it yet say what decided.
fn grade_of(evidence: &Evidence) -> Option<Grade> {
    evidence.grade.or_else(|| {
        let kernel = evidence.cgroup_oom_kills.is_some_and(|kills| kills > 0);
        match evidence.decided_by? {
            DecidedBy::Kernel => Some(Grade::Kernel),
            DecidedBy::Sigkill | DecidedBy::Pattern if kernel => Some(Grade::Kernel),
            DecidedBy::Sigkill if evidence.line.is_none() => Some(Grade::Signal),
            DecidedBy::Sigkill | DecidedBy::Pattern => Some(Grade::Allocator),
            DecidedBy::Result | DecidedBy::NoResult | DecidedBy::Timeout | DecidedBy::Failure => {
                None
            }
        }
    })
}

fn render_evidence(evidence: Option<&Evidence>, source: &str) -> String {
    let Some((evidence, grade)) = evidence.and_then(|found| Some((found, grade_of(found)?))) else {
        return format!("evidence: not known; there is none in `{source}` or its journal");
    };
    let api = match &evidence.api {
        Some(api) if api != "any" => format!(" ({api})"),
        _ => String::new(),
    };
    let said = evidence.line.as_ref().map(|line| format!("the output says `{line}`{api}"));
    match grade {
        Grade::Kernel => {
            let line =
                evidence.kernel_line.as_ref().map(|line| format!("the kernel says `{line}`"));
            let said = line.or(said);
            let said =
                said.unwrap_or_else(|| "the kernel killed for memory in its cgroup".to_owned());
            format!("evidence: kernel: {said}")
        }
        Grade::Allocator => format!("evidence: allocator: {}", said.unwrap_or_default()),
        Grade::Signal => {
            let plenty = describe_plenty(evidence.available_low_bytes, evidence.memory_bytes);
            let doubt = plenty.map(|plenty| format!(", while {plenty}: it may be a false alarm"));
            let doubt = doubt.unwrap_or_default();
            format!(
                "evidence: signal: SIGKILL that the harness did not send, and nothing else{doubt}"
            )
        }
    }
}

/// Says what a sweep would do with the cell and why; `distance` is how many commits were made since
/// the blocking event's.
pub(super) fn render_explanation(
    record: &OomRecord,
    model: &str,
    len: u64,
    distance: Option<u64>,
    evidence: Option<&Evidence>,
) -> String {
    let (base, generate) = split_pair(model);
    let Some((entry, raw)) = find_event(record, model, len) else {
        return match find_pair_event(record, base, len).filter(|_| generate.is_none()) {
            Some((least, entry, raw)) => format!(
                "{model} at {len} tokens: skipped before launch (SKIP:oom_record) where {least} tokens or \
                 more are generated, else launched\n  recorded: {raw}\nto find out whether it still \
                 runs out of memory:\n  {}",
                render_confirm_command(&entry.model)
            ),
            None => render_free_cell(record, model, len),
        };
    };
    let age = match distance {
        Some(0) => format!("at commit {}, which is HEAD", entry.commit),
        Some(1) => format!("at commit {}, 1 commit before HEAD", entry.commit),
        Some(count) => format!("at commit {}, {count} commits before HEAD", entry.commit),
        None if entry.commit == "unknown" => "at an unknown commit".to_owned(),
        None => format!("at commit {}, which this repository does not have", entry.commit),
    };
    let word = quote_word(&quote_list_word(base));
    let length = generate.map_or(len.to_string(), |generate| format!("{len}:{generate}"));
    format!(
        "{model} at {len} tokens: skipped before launch (SKIP:oom_record)\n  recorded: {raw}\n  it \
         ran out of memory at {} tokens on {}, {age}\n  {}\nto find out whether it still does:\n  \
         {}\nto run the cell once anyway:\n  \
         MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models {word} --lengths {length}\nif a \
         change since then fixed it:\n  {}\n  cargo xtask oom-record prune --fixed-by REV",
        entry.prompt_target_len,
        entry.date,
        render_evidence(evidence, &entry.source_csv),
        render_confirm_command(&entry.model),
        render_prune_command(&entry.model),
    )
}

/// The event that forbids a cell in any sweep, with its line: its own, or that of a pair which generated no
/// more tokens.
pub(super) fn find_event<'r>(
    record: &'r OomRecord,
    model: &str,
    len: u64,
) -> Option<(&'r OomEntry, &'r str)> {
    let (base, generate) = split_pair(model);
    let pair = || find_pair_event(record, base, len).filter(|(least, ..)| Some(*least) <= generate);
    record.blocking(model, len).or_else(|| pair().map(|(_, entry, raw)| (entry, raw)))
}

/// A model and how many tokens are generated, where its name says so.
fn split_pair(model: &str) -> (&str, Option<u64>) {
    let pair = model.rsplit_once('+').and_then(|(base, last)| Some((base, parse_generate(last)?)));
    pair.map_or((model, None), |(base, generate)| (base, Some(generate)))
}

/// The event of a pair of this model at `len` or fewer tokens, of several the one that generated the fewest, and
/// how many these are.
fn find_pair_event<'r>(
    record: &'r OomRecord,
    base: &str,
    len: u64,
) -> Option<(u64, &'r OomEntry, &'r str)> {
    let pairs = record
        .entries()
        .filter(|(entry, _)| entry.is_of_sweep_cell() && entry.prompt_target_len <= len);
    let pairs = pairs.filter_map(|(entry, line)| match split_pair(&entry.model) {
        (model, Some(generate)) if model == base => Some((generate, entry, line.raw.as_str())),
        _ => None,
    });
    pairs.min_by_key(|(generate, entry, _)| (*generate, entry.prompt_target_len))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom_record::parse_record;

    const TEXT: &str = "tiny,8192,2026-07-06,8f14e45,123456789,benchmarks/a.csv\n\
                        \"it's, 7b\",512,2026-07-05,unknown,,benchmarks/b.csv\n";

    #[test]
    fn a_skipped_cell_is_explained_with_its_line_and_the_commands() {
        let record = parse_record(TEXT);
        insta::assert_snapshot!(render_explanation(&record, "it's, 7b", 2048, None, None), @r#"
            it's, 7b at 2048 tokens: skipped before launch (SKIP:oom_record)
              recorded: "it's, 7b",512,2026-07-05,unknown,,benchmarks/b.csv
              it ran out of memory at 512 tokens on 2026-07-05, at an unknown commit
              evidence: not known; there is none in `benchmarks/b.csv` or its journal
            to find out whether it still does:
              cargo xtask oom-record confirm 'it'\''s, 7b'
            to run the cell once anyway:
              MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models '"it'\''s, 7b"' --lengths 2048
            if a change since then fixed it:
              cargo xtask oom-record prune --model 'it'\''s, 7b'
              cargo xtask oom-record prune --fixed-by REV
        "#);
        let text = render_explanation(&record, "tiny", 8192, Some(12), None);
        assert!(text.contains("at commit 8f14e45, 12 commits before HEAD"), "{text}");
    }

    #[test]
    fn a_cell_that_is_free_is_explained_too() {
        let record = parse_record(TEXT);
        insta::assert_snapshot!(render_explanation(&record, "tiny", 8191, None, None), @r#"
            tiny at 8191 tokens: would be launched; no recorded event forbids it
              the shortest recorded event of this model is at 8192 tokens: tiny,8192,2026-07-06,8f14e45,123456789,benchmarks/a.csv
        "#);
        insta::assert_snapshot!(render_explanation(&record, "tinny", 1, None, None), @r#"
            tinny at 1 tokens: would be launched; no recorded event forbids it
              the record has no `tinny`; did you mean `tiny`?
        "#);
        let text = render_explanation(&OomRecord::default(), "tiny", 1, None, None);
        assert_eq!(text, "tiny at 1 tokens: would be launched; no recorded event forbids it");
    }

    #[test]
    fn pairs_are_explained_by_what_generated_no_more() {
        let record = parse_record(
            "tiny+g64,1024,d,c,,a.csv\ntiny+g8,2048,d,c,,a.csv\ntiny+g8,4096,d,c,,b.csv,ab\n",
        );
        let said = |model: &str, len| render_explanation(&record, model, len, None, None);
        insta::assert_snapshot!(said("tiny+g100", 1500), @r#"
            tiny+g100 at 1500 tokens: skipped before launch (SKIP:oom_record)
              recorded: tiny+g64,1024,d,c,,a.csv
              it ran out of memory at 1024 tokens on d, at commit c, which this repository does not have
              evidence: not known; there is none in `a.csv` or its journal
            to find out whether it still does:
              cargo xtask oom-record confirm tiny+g64
            to run the cell once anyway:
              MLXCEL_BENCH_IGNORE_OOM_RECORD=1 cargo xtask sweep --models tiny --lengths 1500:100
            if a change since then fixed it:
              cargo xtask oom-record prune --model tiny+g64
              cargo xtask oom-record prune --fixed-by REV
        "#);
        insta::assert_snapshot!(said("tiny", 2048), @r#"
            tiny at 2048 tokens: skipped before launch (SKIP:oom_record) where 8 tokens or more are generated, else launched
              recorded: tiny+g8,2048,d,c,,a.csv
            to find out whether it still runs out of memory:
              cargo xtask oom-record confirm tiny+g8
        "#);
        for (model, len) in [("tiny+g63", 2047), ("tiny+g7", 9999), ("tiny", 1023), ("other", 9999)]
        {
            assert!(said(model, len).contains("would be launched"), "{model} at {len}");
        }
    }

    #[test]
    fn the_evidence_is_the_last_of_the_cell() {
        let record = parse_record(TEXT);
        let (entry, _) = record.blocking("tiny", 8192).unwrap();
        let line = |model: &str, len: u64, said: &str| {
            format!(
                "{{\"event\":\"cell_end\",\"model\":\"{model}\",\"prompt_target_len\":{len},\
                 \"classification\":\"SKIP:oom\",\"evidence\":{{\"line\":\"{said}\",\
                 \"decided_by\":\"pattern\"}}}}\n"
            )
        };
        let journal = [
            line("tiny", 8192, "first"),
            "torn".to_owned(),
            line("tiny", 512, "other length"),
            line("big", 8192, "other model"),
        ]
        .join("\n");
        assert_eq!(find_evidence(&journal, entry).unwrap().line.as_deref(), Some("first"));
        let samples = "{\"event\":\"run_end\",\"classification\":\"SKIP:oom\",\
                       \"evidence\":{\"grade\":\"signal\"}}\n";
        assert_eq!(find_evidence(samples, entry).unwrap().grade, Some(Grade::Signal));
        assert_eq!(find_evidence("", entry), None);
    }

    #[test]
    fn the_grade_is_said_with_what_it_rests_on() {
        let said = |evidence: Evidence| render_evidence(Some(&evidence), "a.csv");
        let signal = Evidence { decided_by: Some(DecidedBy::Sigkill), ..Evidence::default() };
        assert_eq!(
            said(signal.clone()),
            "evidence: signal: SIGKILL that the harness did not send, and nothing else"
        );
        let plentiful = Evidence {
            grade: Some(Grade::Signal),
            available_low_bytes: Some(12 << 30),
            memory_bytes: Some(16 << 30),
            ..signal.clone()
        };
        assert!(said(plentiful).ends_with(
            "while at least 12.0 of 16.0 GiB of memory were free: it may be a false alarm"
        ));
        let kernel = Evidence { cgroup_oom_kills: Some(1), ..signal };
        assert_eq!(said(kernel), "evidence: kernel: the kernel killed for memory in its cgroup");
        let allocator = Evidence {
            grade: Some(Grade::Allocator),
            line: Some("ErrorOutOfDeviceMemory".to_owned()),
            api: Some("Vulkan".to_owned()),
            ..Evidence::default()
        };
        assert_eq!(
            said(allocator),
            "evidence: allocator: the output says `ErrorOutOfDeviceMemory` (Vulkan)"
        );
    }
}

//! The OOM record: which cells ran out of memory in earlier sweeps. It parses, asks and renders; the
//! file itself is `oom_record::file`'s.
//!
//! One event a line, without a header: `model,prompt_target_len,date,commit,peak_bytes,source_csv`,
//! quoted as in CSV where a field needs it. A line is read on its own, so that a torn or hand-made one
//! can never swallow those after it.

use crate::base::shell::quote_word;
use std::fmt;

pub(crate) mod file;
pub(crate) mod prune;

/// The record's file, relative to the workspace.
pub(crate) const RECORD_PATH: &str = "benchmarks/.oom-record";

/// The command that launches a recorded cell again, as [`OomEntry::found_by`] has it.
pub(crate) const CONFIRM_COMMAND: &str = "oom-record confirm";

/// One true OOM.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct OomEntry {
    /// The model's name, exactly as the sweep calls it.
    pub(crate) model: String,
    pub(crate) prompt_target_len: u64,
    /// The day of the event, `YYYY-MM-DD`.
    pub(crate) date: String,
    /// The abbreviated commit that was measured, or `unknown`.
    pub(crate) commit: String,
    /// The highest memory use that was seen, where it is known.
    pub(crate) peak_bytes: Option<u64>,
    /// The CSV that holds the cell's row, or a comparison's samples, relative to the workspace.
    pub(crate) source_csv: String,
    /// The command that found it, as a seventh field; `None` for a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found_by: Option<String>,
}

impl OomEntry {
    /// Whether its model's name is that of a cell of a sweep, which may say how many tokens are generated:
    /// other commands add names of legs and rungs.
    pub(crate) fn is_of_sweep_cell(&self) -> bool {
        self.found_by.as_deref().is_none_or(|command| command == CONFIRM_COMMAND)
    }
}

/// The record as it was read: the lines that hold an event, and those that do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OomRecord {
    lines: Vec<RecordLine>,
}

/// One line of the record, blank ones left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordLine {
    /// Its number in the file, counted from 1.
    pub(crate) number: usize,
    /// Its text, without the end of line.
    pub(crate) raw: String,
    /// The event, or why there is none.
    pub(crate) entry: Result<OomEntry, MalformedLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MalformedLine {
    /// It has fewer than six fields: this many.
    TooFewFields(usize),
    EmptyModel,
    LengthNotANumber,
}

impl fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MalformedLine::TooFewFields(count) => write!(f, "it has {count} of 6 fields"),
            MalformedLine::EmptyModel => f.write_str("the model is empty"),
            MalformedLine::LengthNotANumber => f.write_str("the length is not a number"),
        }
    }
}

impl OomRecord {
    /// Every line that is not blank, in the order of the file.
    pub(crate) fn lines(&self) -> &[RecordLine] {
        &self.lines
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&OomEntry, &RecordLine)> {
        self.lines.iter().filter_map(|line| Some((line.entry.as_ref().ok()?, line)))
    }

    /// One warning for each malformed line, with its number.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.lines
            .iter()
            .filter_map(|line| {
                let why = line.entry.as_ref().err()?;
                Some(format!(
                    "OOM record, line {}: skipped because {why}: `{}`",
                    line.number,
                    line.raw.escape_debug()
                ))
            })
            .collect()
    }

    /// Whether it holds the event of this model at this length out of this file.
    pub(crate) fn holds(&self, model: &str, len: u64, source: &str) -> bool {
        let model = one_line(model);
        self.entries().any(|(entry, _)| {
            entry.model == model && entry.prompt_target_len == len && entry.source_csv == source
        })
    }

    /// The event that forbids a cell of `model` with `len` prompt tokens, with its line: of exactly
    /// that model, at that length or a shorter one. Of several, the shortest, and of those the last
    /// in the file.
    pub(crate) fn blocking(&self, model: &str, len: u64) -> Option<(&OomEntry, &str)> {
        let model = one_line(model);
        self.entries()
            .filter(|(entry, _)| entry.model == model && entry.prompt_target_len <= len)
            .min_by_key(|(entry, line)| (entry.prompt_target_len, std::cmp::Reverse(line.number)))
            .map(|(entry, line)| (entry, line.raw.as_str()))
    }
}

/// Reads the record's text. Nothing in it is an error: a line without an event is kept as such.
pub(crate) fn parse_record(text: &str) -> OomRecord {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text
        .split('\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.strip_suffix('\r').unwrap_or(line)))
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| RecordLine { number, raw: line.to_owned(), entry: parse_entry(line) })
        .collect();
    OomRecord { lines }
}

/// Renders one event as a line of the record, with its line feed.
///
/// A line break within a field becomes a space, since an event is one line; [`OomRecord::blocking`]
/// compares names in the same form, so such a model is still found.
pub(crate) fn render_entry(entry: &OomEntry) -> String {
    let length = entry.prompt_target_len.to_string();
    let peak = entry.peak_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    let fields = [&entry.model, &length, &entry.date, &entry.commit, &peak, &entry.source_csv];
    let fields: Vec<String> = fields
        .into_iter()
        .chain(&entry.found_by)
        .map(|field| {
            let field = one_line(field);
            // A byte-order mark in front would be taken for one of the file's when it is read.
            if field.contains([',', '"', '\u{feff}']) {
                format!("\"{}\"", field.replace('"', "\"\""))
            } else {
                field
            }
        })
        .collect();
    format!("{}\n", fields.join(","))
}

/// The command that drops a model's events, as it is typed in a shell.
pub(crate) fn render_prune_command(model: &str) -> String {
    format!("cargo xtask oom-record prune --model {}", quote_word(model))
}

/// The command that launches a model's shortest recorded cell again, as it is typed in a shell.
pub(crate) fn render_confirm_command(model: &str) -> String {
    format!("cargo xtask oom-record confirm {}", quote_word(model))
}

fn one_line(field: &str) -> String {
    field.replace(['\n', '\r'], " ")
}

fn parse_entry(line: &str) -> Result<OomEntry, MalformedLine> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line.as_bytes());
    let mut fields = csv::StringRecord::new();
    // A reader over text in memory fails neither on reading nor on UTF-8, and `flexible` accepts any
    // number of fields; an error would leave no fields, which is malformed as well.
    let _ = reader.read_record(&mut fields);
    if fields.len() < 6 {
        return Err(MalformedLine::TooFewFields(fields.len()));
    }
    if fields[0].trim().is_empty() {
        return Err(MalformedLine::EmptyModel);
    }
    let Ok(prompt_target_len) = fields[1].trim().parse() else {
        return Err(MalformedLine::LengthNotANumber);
    };
    Ok(OomEntry {
        model: fields[0].to_owned(),
        prompt_target_len,
        date: fields[2].to_owned(),
        commit: fields[3].to_owned(),
        peak_bytes: fields[4].trim().parse().ok(),
        source_csv: fields[5].to_owned(),
        found_by: fields.get(6).filter(|command| !command.is_empty()).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests;

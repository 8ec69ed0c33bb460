//! A sweep as a picture needs it: rows with a length and an outcome, and where they come from.
//!
//! Pure: it is given the texts of the CSV and of its journal. A row that cannot be read is left out
//! and named; a file without any row is an error.

use std::collections::BTreeMap;

use crate::cell::journal::{CellEnd, Journal};
use crate::cell::row::{CsvError, LineEnd, Record, Table, parse_csv};

/// What can be a speed: far beyond what anything measures, and small enough to calculate with.
pub(super) const SPEEDS_TOK_S: std::ops::RangeInclusive<f64> = 1e-9..=1e12;

/// A cell of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) model: String,
    /// The prompt length that was asked for, else the real one. A row that was not measured and
    /// was asked for by a text has neither.
    pub(super) length: Option<u64>,
    pub(super) outcome: Outcome,
    /// Why it ended so, in words; the journal says.
    pub(super) evidence: Option<String>,
    /// What disturbed it while it was measured, in words; the journal says.
    pub(super) disturbed: Option<String>,
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Measured {
        decode_tok_s: Option<f64>,
        prefill_tok_s: Option<f64>,
    },
    NotMeasured {
        /// The token of the row. A text, so that a class of a later version is drawn as well.
        class: String,
        /// Where the journal says so.
        launched: Option<bool>,
    },
}

/// A sweep that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sweep {
    /// In the order of the CSV.
    pub(super) rows: Vec<Row>,
    /// Values of the column, each once.
    pub(super) hardware: Vec<String>,
    pub(super) dates: Vec<String>,
    pub(super) engine_versions: Vec<String>,
    /// What the journal says of the whole sweep.
    pub(super) origin: Option<Origin>,
    /// Rows that were left out, and why.
    pub(super) warnings: Vec<String>,
}

/// What a journal says of the whole sweep.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Origin {
    pub(super) commit: String,
    pub(super) dirty: bool,
    pub(super) cores: Option<u64>,
    pub(super) runner: String,
    pub(super) cell_memory_limit_mb: Option<u64>,
}

/// Why a text is not the CSV of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SweepError {
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error("it is empty")]
    Empty,
    #[error("line 1: no column `{column}`, so it is not the CSV of a sweep")]
    NoColumn { column: &'static str },
    #[error("it holds no row below its header: nothing was measured yet")]
    NoRow,
    #[error("no row can be read; {first}")]
    NoReadableRow { first: String },
}

/// Reads a CSV with either header history. Columns are found by name, so that one with columns of
/// its own is read as well.
pub(super) fn parse_sweep(csv: &str) -> Result<Sweep, SweepError> {
    let table = parse_csv(csv)?;
    let header = table.records.first().ok_or(SweepError::Empty)?;
    for column in ["model", "prefill_tok_s", "decode_tok_s"] {
        if !header.fields.iter().any(|field| field.text == column) {
            return Err(SweepError::NoColumn { column });
        }
    }
    if table.rows().is_empty() {
        return Err(SweepError::NoRow);
    }
    let mut sweep = Sweep::default();
    for (index, record) in table.rows().iter().enumerate() {
        match parse_row(&table, record) {
            Ok(row) => {
                sweep.rows.push(row);
                for (values, column) in [
                    (&mut sweep.hardware, "hardware"),
                    (&mut sweep.dates, "date"),
                    (&mut sweep.engine_versions, "mlx_version"),
                ] {
                    let value = table.value(record, column).unwrap_or_default();
                    if !value.is_empty() && !values.iter().any(|known| known == value) {
                        values.push(value.to_owned());
                    }
                }
            }
            Err(problem) => sweep.warnings.push(format!("row {}: {problem}", index + 1)),
        }
    }
    sweep.rows = without_superseded(sweep.rows);
    match sweep.warnings.first() {
        Some(first) if sweep.rows.is_empty() => {
            Err(SweepError::NoReadableRow { first: first.clone() })
        }
        _ => Ok(sweep),
    }
}

fn parse_row(table: &Table, record: &Record) -> Result<Row, String> {
    let columns = table.records[0].fields.len();
    let class = record.classification_token();
    if record.fields.len() < columns && class.is_none() {
        let cut_off = if record.line_end == LineEnd::Missing { "cut off: " } else { "" };
        return Err(format!("{cut_off}{} of {columns} fields", record.fields.len()));
    }
    let text = |column| table.value(record, column).unwrap_or_default();
    let speed = |column| match text(column) {
        "" => Ok(None),
        value => match value.parse::<f64>() {
            // A speed of zero is a number that is missing.
            Ok(0.0) => Ok(None),
            Ok(number) if SPEEDS_TOK_S.contains(&number) => Ok(Some(number)),
            _ => Err(format!("`{column}` is `{value}`, which is not a speed")),
        },
    };
    let length = ["prompt_target_len", "prompt_tokens"]
        .into_iter()
        .find_map(|column| text(column).parse().ok())
        .filter(|length| *length > 0);
    let outcome = match class {
        Some(class) => Outcome::NotMeasured { class: class.to_owned(), launched: None },
        None => Outcome::Measured {
            decode_tok_s: speed("decode_tok_s")?,
            prefill_tok_s: speed("prefill_tok_s")?,
        },
    };
    match text("model") {
        "" => Err("no model".to_owned()),
        model => {
            Ok(Row { model: model.to_owned(), length, outcome, evidence: None, disturbed: None })
        }
    }
}

/// A cell that was lost with its host and launched again has two rows, of which the last counts.
fn without_superseded(rows: Vec<Row>) -> Vec<Row> {
    let is_lost = |row: &Row| matches!(&row.outcome, Outcome::NotMeasured { class, .. } if class == "FAIL:host_lost");
    let is_superseded = |index: usize, row: &Row| {
        is_lost(row)
            && rows[index + 1..]
                .iter()
                .any(|later| later.model == row.model && later.length == row.length)
    };
    let kept = rows.iter().enumerate().filter(|(index, row)| !is_superseded(*index, row));
    kept.map(|(_, row)| row.clone()).collect()
}

impl Sweep {
    /// Adds what the journal knows: the commit and the machine, and the evidence of each cell.
    pub(super) fn add_journal(&mut self, journal: &Journal) {
        self.origin = journal.start().map(|start| Origin {
            commit: start.commit.clone(),
            dirty: start.dirty == Some(true),
            cores: start.host.cores,
            runner: start.settings.runner.clone(),
            cell_memory_limit_mb: start.settings.cell_memory_limit_mb,
        });
        let ends: BTreeMap<(&str, u64), &CellEnd> = journal
            .cell_ends()
            .filter(|end| end.row.is_some())
            .map(|end| ((end.model.as_str(), end.prompt_target_len), end))
            .collect();
        for row in &mut self.rows {
            let Some(length) = row.length else { continue };
            let Some(end) = ends.get(&(row.model.as_str(), length)) else { continue };
            if let Outcome::NotMeasured { launched, .. } = &mut row.outcome {
                *launched = Some(end.launched);
                row.evidence = evidence_of(end);
            } else {
                let disturbances = end.quiet.as_ref().map(|quiet| quiet.disturbances.join("; "));
                row.disturbed = disturbances.filter(|words| !words.is_empty());
            }
        }
    }

    /// The models, each once, in the order of the CSV.
    pub(super) fn models(&self) -> Vec<&str> {
        let mut models = Vec::new();
        for row in &self.rows {
            if !models.contains(&row.model.as_str()) {
                models.push(row.model.as_str());
            }
        }
        models
    }

    /// How many cells were measured, and how many not.
    pub(super) fn counts(&self) -> (usize, usize) {
        let measured = self.rows.iter().filter(|row| row.is_measured()).count();
        (measured, self.rows.len() - measured)
    }
}

impl Row {
    pub(super) fn is_measured(&self) -> bool {
        matches!(self.outcome, Outcome::Measured { .. })
    }
}

fn evidence_of(end: &CellEnd) -> Option<String> {
    let evidence = end.evidence.as_ref();
    end.reason
        .clone()
        .or_else(|| evidence?.line.clone())
        .or_else(|| evidence?.result_problem.clone())
        .or_else(|| evidence?.stderr_tail.last().cloned())
        .filter(|text| !text.trim().is_empty())
}

/// The index of the newest of some sweeps: by the last date in its rows, then by its name.
pub(super) fn find_newest(sweeps: &[(String, Sweep)]) -> Option<usize> {
    (0..sweeps.len()).max_by_key(|index| {
        let (name, sweep) = &sweeps[*index];
        (sweep.dates.iter().max(), name)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cell::journal::parse_journal;
    use crate::cell::row::render_header;

    /// A CSV of the present history with these rows: model, length, prefill and decode speed, class.
    pub(in crate::report) fn csv(rows: &[(&str, u64, &str, &str, &str)]) -> String {
        let mut text = render_header();
        for (model, length, prefill, decode, class) in rows {
            let class = if class.is_empty() { String::new() } else { format!(",{class}") };
            text.push_str(&format!(
                "{model},p,{length},32,1.00,{prefill},1.00,{decode},2026-07-03,NVIDIA_GB10_122GB,\
                 0.3.3,release,32,\"\",{length}{class}\n"
            ));
        }
        text
    }

    #[test]
    fn rows_have_a_length_and_an_outcome() {
        let sweep = parse_sweep(&csv(&[
            ("a", 512, "3000.50", "54.30", ""),
            ("a", 2048, "", "", "SKIP:oom"),
            ("b", 512, "9.00", "", ""),
        ]))
        .unwrap();
        let measured =
            |decode_tok_s, prefill_tok_s| Outcome::Measured { decode_tok_s, prefill_tok_s };
        assert_eq!(sweep.rows[0].outcome, measured(Some(54.3), Some(3000.5)));
        assert_eq!(
            sweep.rows[1].outcome,
            Outcome::NotMeasured { class: "SKIP:oom".to_owned(), launched: None }
        );
        assert_eq!(sweep.rows[2].outcome, measured(None, Some(9.0)));
        assert_eq!(sweep.rows[1].length, Some(2048));
        assert_eq!(sweep.models(), ["a", "b"]);
        assert_eq!(sweep.counts(), (2, 1));
        assert_eq!(sweep.hardware, ["NVIDIA_GB10_122GB"]);
        assert_eq!(sweep.dates, ["2026-07-03"]);
    }

    #[test]
    fn the_older_history_has_the_real_length_alone() {
        let header = render_header().replace(",prompt_target_len", "");
        let sweep = parse_sweep(&format!(
            "{header}a,p,8,100,82.29,97.22,931.63,107.34,2026-06-12,Apple,0.1.4,release,100,\"Hi, \
             you\"\na,p,,,,,,,2026-06-12,Apple,0.1.4,release,100,\"Hi\",FAIL:bench\n"
        ))
        .unwrap();
        assert_eq!(sweep.rows[0].length, Some(8));
        assert_eq!(sweep.rows[1].length, None);
        assert!(!sweep.rows[1].is_measured());
    }

    #[test]
    fn a_lost_cell_that_was_launched_again_counts_once() {
        let sweep = parse_sweep(&csv(&[
            ("a", 512, "", "", "FAIL:host_lost"),
            ("b", 512, "", "", "FAIL:host_lost"),
            ("a", 512, "2.00", "1.00", ""),
        ]))
        .unwrap();
        let seen: Vec<_> = sweep.rows.iter().map(|row| (&*row.model, row.is_measured())).collect();
        assert_eq!(seen, [("b", false), ("a", true)]);
    }

    #[test]
    fn what_is_not_a_sweep_says_why() {
        let error = |text: &str| parse_sweep(text).unwrap_err().to_string();
        assert_eq!(error(""), "it is empty");
        assert_eq!(
            error(&render_header()),
            "it holds no row below its header: nothing was measured yet"
        );
        assert_eq!(
            error("model,perplexity\na,3\n"),
            "line 1: no column `prefill_tok_s`, so it is not the CSV of a sweep"
        );
        assert_eq!(error("model,\"\n"), "line 1: a quoted field that is never closed");
        assert_eq!(
            error(&csv(&[("a", 512, "1.00", "fast", "")])),
            "no row can be read; row 1: `decode_tok_s` is `fast`, which is not a speed"
        );
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named_and_the_rest_is_there() {
        let text = csv(&[("a", 512, "2.00", "1.00", ""), ("", 512, "2.00", "1.00", "")]);
        let sweep = parse_sweep(&format!("{text}a,p,2048,32,1.0")).unwrap();
        assert_eq!(sweep.rows.len(), 1);
        assert_eq!(sweep.warnings, ["row 2: no model", "row 3: cut off: 5 of 15 fields"]);
    }

    #[test]
    fn the_journal_adds_commit_and_evidence() {
        let mut sweep = parse_sweep(&csv(&[
            ("a", 512, "2.00", "1.00", ""),
            ("a", 2048, "", "", "SKIP:oom"),
            ("a", 4096, "", "", "SKIP:oom_backstop"),
        ]))
        .unwrap();
        sweep.add_journal(&parse_journal(
            r#"{"event":"sweep_start","commit":"da5e04e","dirty":true,"host":{"cores":2}}
{"event":"cell_end","model":"a","prompt_target_len":2048,"row":"r","launched":true,"evidence":{"line":"bad_alloc"}}
{"event":"cell_end","model":"a","prompt_target_len":4096,"row":"r","launched":false,"reason":"too long"}
"#,
        ));
        let origin = sweep.origin.as_ref().unwrap();
        assert_eq!((&*origin.commit, origin.dirty, origin.cores), ("da5e04e", true, Some(2)));
        let seen: Vec<_> = sweep.rows.iter().map(|row| row.evidence.as_deref()).collect();
        assert_eq!(seen, [None, Some("bad_alloc"), Some("too long")]);
        let launched = |row: &Row| match row.outcome {
            Outcome::NotMeasured { launched, .. } => launched,
            Outcome::Measured { .. } => None,
        };
        assert_eq!(launched(&sweep.rows[1]), Some(true));
        assert_eq!(launched(&sweep.rows[2]), Some(false));
    }

    #[test]
    fn the_newest_is_the_one_with_the_last_date() {
        let dated = |name: &str, date: &str| {
            (name.to_owned(), Sweep { dates: vec![date.to_owned()], ..Sweep::default() })
        };
        let sweeps = [
            dated("c", "2026-07-03"),
            dated("a", "2026-07-12"),
            dated("b", "2026-07-12"),
            dated("d", "2026-06-12"),
        ];
        assert_eq!(find_newest(&sweeps), Some(2));
        assert_eq!(find_newest(&[]), None);
    }
}

//! The CSV of a sweep: its columns, one row, and a reader that gives back every byte.
//!
//! Pure. The reader keeps what each field looked like (quoted or not, line ends), so that a file
//! which is read and written is the same file, whichever of the two header histories it has. It
//! finds a row's classification from the end: the history with 14 columns has it in field 15, the
//! one with 15 columns in field 16.

use crate::cell::classify::Classification;
use crate::cell::runner::Measured;

/// The named columns, in order.
pub(crate) const COLUMNS: [&str; 15] = [
    "model",
    "model_path",
    "prompt_tokens",
    "generated_tokens",
    "prefill_ms",
    "prefill_tok_s",
    "decode_ms",
    "decode_tok_s",
    "date",
    "hardware",
    "mlx_version",
    "build_type",
    "max_tokens",
    "prompt",
    "prompt_target_len",
];

/// One row of a sweep, as values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) model: String,
    /// Where the model lies, relative to the workspace where it is inside.
    pub(crate) model_path: String,
    /// The numbers; all empty in a row that was not measured.
    pub(crate) measured: Measured,
    /// `YYYY-MM-DD`.
    pub(crate) date: String,
    /// Chip and memory, spaces as underscores.
    pub(crate) hardware: String,
    /// The measuring engine's version; the column keeps its historical name.
    pub(crate) engine_version: String,
    /// `release` or `debug`.
    pub(crate) build_type: String,
    pub(crate) max_tokens: u64,
    /// The prompt's text, where one was given.
    pub(crate) prompt: String,
    pub(crate) prompt_target_len: u64,
    /// Why it was not measured; `None` in a measured row.
    pub(crate) classification: Option<Classification>,
}

/// The header line, with its line end.
pub(crate) fn render_header() -> String {
    format!("{}\n", COLUMNS.join(","))
}

/// One row as a line, with its line end.
pub(crate) fn render_row(row: &Row) -> String {
    let count = |value: Option<u64>| Field::plain(value.map(|n| n.to_string()).unwrap_or_default());
    let number =
        |value: Option<f64>| Field::plain(value.map(|n| format!("{n:.2}")).unwrap_or_default());
    let text = |value: &str| Field::plain(value.to_owned());
    let measured = &row.measured;
    let mut fields = vec![
        text(&row.model),
        text(&row.model_path),
        count(measured.prompt_tokens),
        count(measured.generated_tokens),
        number(measured.prefill_ms),
        number(measured.prefill_tok_s),
        number(measured.decode_ms),
        number(measured.decode_tok_s),
        text(&row.date),
        text(&row.hardware),
        text(&row.engine_version),
        text(&row.build_type),
        text(&row.max_tokens.to_string()),
        Field { text: row.prompt.clone(), quoting: Quoting::Always },
        text(&row.prompt_target_len.to_string()),
    ];
    fields.extend(row.classification.map(|class| text(class.token())));
    Record { fields, line_end: LineEnd::Lf }.render()
}

/// Whether a field is quoted although it need not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quoting {
    /// Quoted only where its text makes that necessary.
    WhereNeeded,
    /// Quoted in any case.
    Always,
}

/// One field: its text and how it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// The text, without quotes.
    pub(crate) text: String,
    pub(crate) quoting: Quoting,
}

impl Field {
    pub(crate) fn plain(text: String) -> Field {
        Field { text, quoting: Quoting::WhereNeeded }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnd {
    Lf,
    CrLf,
    /// The text ended without one.
    Missing,
}

/// One line (or more, where a quoted field holds line ends).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fields: Vec<Field>,
    pub(crate) line_end: LineEnd,
}

impl Record {
    /// The bytes of the record, line end included.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            let needed = field.text.contains([',', '"', '\n', '\r']);
            if needed || field.quoting == Quoting::Always {
                text.push('"');
                text.push_str(&field.text.replace('"', "\"\""));
                text.push('"');
            } else {
                text.push_str(&field.text);
            }
        }
        text.push_str(match self.line_end {
            LineEnd::Lf => "\n",
            LineEnd::CrLf => "\r\n",
            LineEnd::Missing => "",
        });
        text
    }

    /// The classification token: the last field, where it is one. Measured rows have none.
    pub(crate) fn classification_token(&self) -> Option<&str> {
        let last = self.fields.last()?.text.as_str();
        (last.starts_with("SKIP:") || last.starts_with("FAIL:")).then_some(last)
    }
}

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// The header and the rows, in order; empty for an empty file.
    pub(crate) records: Vec<Record>,
}

/// Why a text is not CSV.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct CsvError {
    /// The line on which the record starts, from 1.
    pub(crate) line: usize,
    pub(crate) problem: &'static str,
}

impl Table {
    #[cfg(test)]
    pub(crate) fn render(&self) -> String {
        self.records.iter().map(Record::render).collect()
    }

    /// The rows, without the header.
    pub(crate) fn rows(&self) -> &[Record] {
        self.records.get(1..).unwrap_or_default()
    }

    /// The text of a row's named column; `None` where the header does not have it or the row is
    /// too short.
    pub(crate) fn value<'row>(&self, row: &'row Record, column: &str) -> Option<&'row str> {
        let header = self.records.first()?;
        let index = header.fields.iter().position(|field| field.text == column)?;
        Some(&row.fields.get(index)?.text)
    }
}

/// Reads a file. Every byte is kept: `parse_csv(text)?.render() == text`.
pub(crate) fn parse_csv(text: &str) -> Result<Table, CsvError> {
    let mut records = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let (record, after) = parse_record(rest).map_err(|problem| CsvError { line, problem })?;
        line += rest[..rest.len() - after.len()].matches('\n').count();
        records.push(record);
        rest = after;
    }
    Ok(Table { records })
}

/// Reads one record off the front of a text that is not empty.
fn parse_record(text: &str) -> Result<(Record, &str), &'static str> {
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        let (field, after) = parse_field(rest)?;
        fields.push(field);
        let ended = if let Some(after) = after.strip_prefix(',') {
            rest = after;
            continue;
        } else if let Some(after) = after.strip_prefix('\n') {
            (LineEnd::Lf, after)
        } else if let Some(after) = after.strip_prefix("\r\n") {
            (LineEnd::CrLf, after)
        } else if after.is_empty() {
            (LineEnd::Missing, after)
        } else {
            return Err("text after a closing quote");
        };
        return Ok((Record { fields, line_end: ended.0 }, ended.1));
    }
}

fn parse_field(text: &str) -> Result<(Field, &str), &'static str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', '\n']).unwrap_or(text.len());
        // A carriage return belongs to the line end, anywhere else it needs quotes.
        let end = if text[..end].ends_with('\r') && text[end..].starts_with('\n') {
            end - 1
        } else {
            end
        };
        let value = &text[..end];
        if value.contains('"') {
            return Err("a quote inside an unquoted field");
        }
        if value.contains('\r') {
            return Err("a carriage return inside an unquoted field");
        }
        return Ok((Field::plain(value.to_owned()), &text[end..]));
    };
    let mut value = String::new();
    let mut rest = quoted;
    loop {
        let quote = rest.find('"').ok_or("a quoted field that is never closed")?;
        value.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                value.push('"');
                rest = after;
            }
            None => return Ok((Field { text: value, quoting: Quoting::Always }, rest)),
        }
    }
}

#[cfg(test)]
mod tests;

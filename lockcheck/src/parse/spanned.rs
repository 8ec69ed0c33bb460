//! TOML with line numbers. It parses text and looks values up; what they mean is for others.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A TOML value with its place.
pub(crate) type Value<'t> = Spanned<DeValue<'t>>;

/// What is wrong with a text, and on which line (1-based), where one can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextError {
    /// The 1-based line.
    pub(crate) line: Option<usize>,
    /// What is wrong.
    pub(crate) message: String,
}

/// Translates byte offsets into 1-based lines.
#[derive(Debug)]
pub(crate) struct Lines {
    newlines: Vec<usize>,
}

impl Lines {
    /// Indexes a text.
    pub(crate) fn new(text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { newlines: newlines.map(|(at, _)| at).collect() }
    }

    /// The 1-based line on which a span starts.
    pub(crate) fn line(&self, span: Range<usize>) -> usize {
        self.newlines.partition_point(|newline| *newline < span.start) + 1
    }

    /// An error at a place.
    pub(crate) fn error(&self, span: Range<usize>, message: impl Into<String>) -> TextError {
        TextError { line: Some(self.line(span)), message: message.into() }
    }
}

/// Parses a document. The message is the parser's first line, the place is given as a line number.
pub(crate) fn parse_document<'t>(
    text: &'t str,
    lines: &Lines,
) -> Result<Spanned<DeTable<'t>>, TextError> {
    DeTable::parse(text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or("not TOML").trim().to_owned();
        let message = message.trim_end_matches('.').to_owned();
        TextError { line: error.span().map(|span| lines.line(span)), message }
    })
}

/// Looks a key up as a table.
pub(crate) fn table<'v, 't>(
    parent: &'v DeTable<'t>,
    key: &str,
    lines: &Lines,
) -> Result<Option<&'v DeTable<'t>>, TextError> {
    match parent.get(key) {
        None => Ok(None),
        Some(value) => as_table(value, key, lines).map(Some),
    }
}

/// Takes a value as a table.
pub(crate) fn as_table<'v, 't>(
    value: &'v Value<'t>,
    key: &str,
    lines: &Lines,
) -> Result<&'v DeTable<'t>, TextError> {
    value.get_ref().as_table().ok_or_else(|| wrong_type(value, key, "a table", lines))
}

/// Takes a value as a string.
pub(crate) fn as_str<'v>(
    value: &'v Value<'_>,
    key: &str,
    lines: &Lines,
) -> Result<&'v str, TextError> {
    value.get_ref().as_str().ok_or_else(|| wrong_type(value, key, "a string", lines))
}

/// Looks a key up as a string.
pub(crate) fn string<'v>(
    parent: &'v DeTable<'_>,
    key: &str,
    lines: &Lines,
) -> Result<Option<&'v str>, TextError> {
    parent.get(key).map(|value| as_str(value, key, lines)).transpose()
}

/// Looks a key up as an array of strings, each with its line.
pub(crate) fn strings(
    parent: &DeTable<'_>,
    key: &str,
    lines: &Lines,
) -> Result<Vec<(String, usize)>, TextError> {
    let Some(value) = parent.get(key) else { return Ok(Vec::new()) };
    let items =
        value.get_ref().as_array().ok_or_else(|| wrong_type(value, key, "an array", lines))?;
    items
        .iter()
        .map(|item| Ok((as_str(item, key, lines)?.to_owned(), lines.line(item.span()))))
        .collect()
}

fn wrong_type(value: &Value<'_>, key: &str, wanted: &str, lines: &Lines) -> TextError {
    let found = value.get_ref().type_str();
    lines.error(value.span(), format!("`{key}` must be {wanted}, not {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one_with_any_line_end() {
        let lines = Lines::new("a = 1\r\nb = 2\n\nc = 3");
        assert_eq!(lines.line(0..1), 1);
        assert_eq!(lines.line(7..8), 2);
        assert_eq!(lines.line(14..15), 4);
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let text = "a = 1\nb = = 2\n";
        let error = parse_document(text, &Lines::new(text)).unwrap_err();
        assert_eq!(error.line, Some(2));
    }

    #[test]
    fn a_wrong_type_names_key_line_and_types() {
        let text = "x = 1\nmembers = [\"a\",\n 3]\n";
        let lines = Lines::new(text);
        let document = parse_document(text, &lines).unwrap();
        let error = strings(document.get_ref(), "members", &lines).unwrap_err();
        assert_eq!(error.line, Some(3));
        assert_eq!(error.message, "`members` must be a string, not integer");
    }
}

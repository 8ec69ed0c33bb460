//! TOML with line numbers: tables and values that know their place, so that every error names its
//! line. What the values mean is for others.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Error;

/// What is wrong with a text, and on which line (1-based), where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextError {
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl TextError {
    pub(crate) fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }

    /// The error with the name of its file.
    pub(crate) fn in_file(self, path: &str) -> Error {
        Error::Text { path: path.to_owned(), line: self.line, message: self.message }
    }
}

/// Parses a document and hands its root table to `read`. Of the parser's message the first line is
/// kept.
pub(crate) fn parse_document<T, E: From<TextError>>(
    text: &str,
    read: impl FnOnce(Table<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let lines = Lines::new(text);
    let document = DeTable::parse(text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or("not TOML").trim();
        let message = message.trim_end_matches('.').to_owned();
        TextError { line: error.span().map(|span| lines.line(&span)), message }
    })?;
    read(Table { table: document.get_ref(), span: 0..0, lines: &lines })
}

/// Translates byte offsets into 1-based lines.
#[derive(Debug)]
struct Lines {
    newlines: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { newlines: newlines.map(|(at, _)| at).collect() }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.newlines.partition_point(|newline| *newline < span.start) + 1
    }
}

/// A table with its place.
#[derive(Debug, Clone)]
pub(crate) struct Table<'t> {
    table: &'t DeTable<'t>,
    span: Range<usize>,
    lines: &'t Lines,
}

/// A value with the key that it was found under; the items of an array have the array's.
#[derive(Debug, Clone)]
pub(crate) struct Item<'t> {
    pub(crate) key: &'t str,
    key_span: Range<usize>,
    value: &'t Spanned<DeValue<'t>>,
    lines: &'t Lines,
}

impl<'t> Table<'t> {
    /// An error on the line where the table starts.
    pub(crate) fn error(&self, message: impl Into<String>) -> TextError {
        TextError::at(self.lines.line(&self.span), message)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Item<'t>> + use<'t> {
        let lines = self.lines;
        self.table.iter().map(move |(key, value)| Item {
            key: key.get_ref(),
            key_span: key.span(),
            value,
            lines,
        })
    }

    pub(crate) fn get(&self, key: &str) -> Option<Item<'t>> {
        let (key, value) = self.table.get_key_value(key)?;
        Some(Item { key: key.get_ref(), key_span: key.span(), value, lines: self.lines })
    }

    pub(crate) fn table(&self, key: &str) -> Result<Option<Table<'t>>, TextError> {
        self.get(key).map(|item| item.as_table()).transpose()
    }

    pub(crate) fn string(&self, key: &str) -> Result<Option<&'t str>, TextError> {
        self.get(key).map(|item| item.as_str()).transpose()
    }

    /// Whether a key is `true`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.table.get(key).and_then(|value| value.get_ref().as_bool()).unwrap_or(false)
    }

    /// An array of strings, each with its line; empty where the key is missing.
    pub(crate) fn strings(&self, key: &str) -> Result<Vec<(String, usize)>, TextError> {
        let items = self.get(key).map(|item| item.as_array()).transpose()?.unwrap_or_default();
        items.iter().map(|item| Ok((item.as_str()?.to_owned(), item.line()))).collect()
    }

    /// An array of tables; empty where the key is missing.
    pub(crate) fn tables(&self, key: &str) -> Result<Vec<Table<'t>>, TextError> {
        let items = self.get(key).map(|item| item.as_array()).transpose()?.unwrap_or_default();
        items.iter().map(Item::as_table).collect()
    }
}

impl<'t> Item<'t> {
    pub(crate) fn key_line(&self) -> usize {
        self.lines.line(&self.key_span)
    }

    pub(crate) fn line(&self) -> usize {
        self.lines.line(&self.value.span())
    }

    pub(crate) fn value(&self) -> &'t DeValue<'t> {
        self.value.get_ref()
    }

    /// An error on the line of the value.
    pub(crate) fn error(&self, message: impl Into<String>) -> TextError {
        TextError::at(self.line(), message)
    }

    pub(crate) fn as_table(&self) -> Result<Table<'t>, TextError> {
        let table = self.value().as_table().ok_or_else(|| self.wrong_type("a table"))?;
        Ok(Table { table, span: self.value.span(), lines: self.lines })
    }

    pub(crate) fn as_str(&self) -> Result<&'t str, TextError> {
        self.value().as_str().ok_or_else(|| self.wrong_type("a string"))
    }

    pub(crate) fn as_array(&self) -> Result<Vec<Item<'t>>, TextError> {
        let items = self.value().as_array().ok_or_else(|| self.wrong_type("an array"))?;
        Ok(items.iter().map(|value| Item { value, ..self.clone() }).collect())
    }

    fn wrong_type(&self, wanted: &str) -> TextError {
        self.error(format!("`{}` must be {wanted}, not {}", self.key, self.value().type_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one_with_any_line_end() {
        let lines = Lines::new("a = 1\r\nb = 2\n\nc = 3");
        assert_eq!(lines.line(&(0..1)), 1);
        assert_eq!(lines.line(&(7..8)), 2);
        assert_eq!(lines.line(&(14..15)), 4);
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let text = "a = 1\nb = = 2\n";
        let error = parse_document(text, |_| Ok::<_, TextError>(())).unwrap_err();
        assert_eq!(error.line, Some(2));
    }

    #[test]
    fn a_wrong_type_names_key_line_and_types() {
        let text = "x = 1\nmembers = [\"a\",\n 3]\n";
        let error = parse_document(text, |root| root.strings("members")).unwrap_err();
        assert_eq!(error.line, Some(3));
        assert_eq!(error.message, "`members` must be a string, not integer");
    }
}

//! Parses TOML definitions into `Raw…` structs, with errors that name the file, the line and, for an
//! unknown key, the nearest known one. It reads no file: the text and the path to show are given.

use anyhow::anyhow;
use serde::de::DeserializeOwned;

use crate::base::diagnostic::HintExt as _;
use crate::base::nearest::nearest;

/// Parses `text`, which was read from `display_path`.
///
/// # Errors
/// A syntax error, a wrong type, a missing or (where `T` denies them) an unknown key. The message
/// starts with `PATH:LINE:`; an unknown key or value comes with the nearest known one.
pub(crate) fn parse_toml<T: DeserializeOwned>(display_path: &str, text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| explain(display_path, text, &error))
}

fn explain(display_path: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let place = match error.span() {
        Some(span) => format!("{display_path}:{}", line_number(text, span.start)),
        None => display_path.to_owned(),
    };
    let message = error.message().trim().replace('\n', ", ");
    let Some(unknown) = parse_unknown(&message) else {
        return anyhow!("{place}: {message}");
    };
    let Unknown { what, name, known } = &unknown;
    if known.is_empty() {
        return anyhow!("{place}: unknown {what} `{name}`; nothing is expected here");
    }
    let list = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let error = anyhow!("{place}: unknown {what} `{name}`; expected one of {list}");
    match nearest(name, known.iter().copied()) {
        Some(near) => Err::<(), _>(error).hint(format!("did you mean `{near}`?")).unwrap_err(),
        None => error,
    }
}

/// What serde says about a name that it does not know.
#[derive(Debug, PartialEq, Eq)]
struct Unknown<'a> {
    /// `key` or `value`.
    what: &'static str,
    name: &'a str,
    known: Vec<&'a str>,
}

/// Takes serde's sentence apart: "unknown field `a`, expected one of `b`, `c`" and its variants. The
/// sentence is the only place where the known names can be had.
fn parse_unknown(message: &str) -> Option<Unknown<'_>> {
    let (what, rest) = [("key", "unknown field `"), ("value", "unknown variant `")]
        .into_iter()
        .find_map(|(what, start)| Some((what, message.strip_prefix(start)?)))?;
    let (name, rest) = rest.split_once("`, ")?;
    // Names stand between backticks, so every second piece is one.
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some(Unknown { what, name, known })
}

/// The line, counted from 1, that holds the byte at `offset`.
fn line_number(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::base::diagnostic::render_error;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Config {
        max_tokens: u64,
        #[serde(default)]
        inner: Inner,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct Inner {
        mode: Mode,
        lengths: Vec<u64>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        #[default]
        Plain,
        ProfileText,
    }

    fn error_of(text: &str) -> String {
        render_error(&parse_toml::<Config>("dir/a.toml", text).unwrap_err())
    }

    #[test]
    fn a_good_file_is_read() {
        let config: Config =
            parse_toml("a.toml", "max_tokens = 3\n[inner]\nlengths = [1]\n").unwrap();
        assert_eq!(
            config,
            Config { max_tokens: 3, inner: Inner { mode: Mode::Plain, lengths: vec![1] } }
        );
    }

    #[test]
    fn an_unknown_key_comes_with_its_line_and_the_nearest_known_one() {
        assert_eq!(
            error_of("max_tokens = 3\n\n[inner]\nlenghts = [1]\n"),
            "error: dir/a.toml:4: unknown key `lenghts`; expected one of `mode`, `lengths`\nhint: did \
             you mean `lengths`?"
        );
        assert_eq!(
            error_of("# comment\nmax-tokens = 3\n"),
            "error: dir/a.toml:2: unknown key `max-tokens`; expected one of `max_tokens`, `inner`\nhint: \
             did you mean `max_tokens`?"
        );
    }

    #[test]
    fn a_key_that_is_like_no_other_gets_the_list_alone() {
        assert_eq!(
            error_of("max_tokens = 3\nzzz = 1\n"),
            "error: dir/a.toml:2: unknown key `zzz`; expected one of `max_tokens`, `inner`"
        );
    }

    #[test]
    fn an_unknown_value_is_explained_the_same_way() {
        assert_eq!(
            error_of("max_tokens = 3\ninner.mode = \"profile_text\"\n"),
            "error: dir/a.toml:2: unknown value `profile_text`; expected one of `plain`, \
             `profile-text`\nhint: did you mean `profile-text`?"
        );
    }

    #[test]
    fn wrong_types_missing_keys_and_syntax_errors_keep_their_place() {
        assert_eq!(
            error_of("\nmax_tokens = \"3\"\n"),
            "error: dir/a.toml:2: invalid type: string \"3\", expected u64"
        );
        assert_eq!(error_of("\n"), "error: dir/a.toml:1: missing field `max_tokens`");
        let error = error_of("max_tokens = 3\n[inner\n");
        assert!(error.starts_with("error: dir/a.toml:2: "), "{error}");
        let error = error_of("max_tokens = 3\nmax_tokens = 4\n");
        assert!(error.starts_with("error: dir/a.toml:2: duplicate key"), "{error}");
    }
}

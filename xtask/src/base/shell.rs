//! Words and commands as a shell takes them, for hints that can be pasted.

/// A word as it is typed in a shell.
pub(crate) fn quote_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+@,%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A word as it stands in a list whose words are separated by blanks, such as that of `--models`.
pub(crate) fn quote_list_word(word: &str) -> String {
    let quote = if word.contains('"') { '\'' } else { '"' };
    match word.contains(char::is_whitespace) || word.starts_with(['"', '\'']) {
        true => format!("{quote}{word}{quote}"),
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_list_or_a_shell_needs_it() {
        for (word, in_list, in_shell) in [
            ("llama-3.1", "llama-3.1", "llama-3.1"),
            ("a b", r#""a b""#, r#"'"a b"'"#),
            ("it's", "it's", r"'it'\''s'"),
            (r#"the "a""#, r#"'the "a"'"#, r#"''\''the "a"'\'''"#),
        ] {
            assert_eq!(quote_list_word(word), in_list);
            assert_eq!(quote_word(in_list), in_shell);
        }
    }
}

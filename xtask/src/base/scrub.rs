//! Keeps the paths of one machine out of what is tracked: the workspace becomes `.`, home `~`.
//!
//! Pure: it is told the paths and changes values.

/// Replaces the beginnings of paths.
#[derive(Debug, Clone)]
pub(crate) struct Scrub {
    /// What is replaced by what, longest first.
    rules: Vec<(String, String)>,
}

impl Scrub {
    /// A scrub with the given paths and what stands for each. Paths that are empty or the root of
    /// everything are left out.
    pub(crate) fn new(rules: &[(&str, &str)]) -> Scrub {
        let mut rules: Vec<(String, String)> = rules
            .iter()
            .map(|(path, name)| (path.trim_end_matches('/').to_owned(), (*name).to_owned()))
            .filter(|(path, _)| !path.is_empty())
            .collect();
        rules.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Scrub { rules }
    }

    /// The text with every path replaced that is one: `/home/ann` is not part of `/home/anna`.
    pub(crate) fn text(&self, text: &str) -> String {
        self.rules
            .iter()
            .fold(text.to_owned(), |text, (path, name)| replace_path(&text, path, name))
    }
}

fn replace_path(text: &str, path: &str, name: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(path) {
        let after = &rest[at + path.len()..];
        let continues =
            after.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '-' | '_'));
        result.push_str(&rest[..at]);
        result.push_str(if continues { path } else { name });
        rest = after;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_and_home_are_replaced_the_longer_first() {
        let scrub =
            Scrub::new(&[("/home/ann", "~"), ("/home/ann/arc/", "."), ("", "x"), ("/", "y")]);
        assert_eq!(
            scrub.text("/home/ann/arc/target/a /home/ann/b --x=/home/ann /home/anna /usr"),
            "./target/a ~/b --x=~ /home/anna /usr"
        );
    }
}

//! How errors read: lower case, no final period, the whole cause chain, and a `hint:` line with the
//! command that helps. It renders; it prints nothing.

use std::fmt;

/// A way out, attached to an error with [`HintExt::hint`] and shown on a line of its own.
#[derive(Debug)]
struct Hint {
    text: String,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An error together with the way out of it.
#[derive(Debug)]
struct Hinted {
    error: anyhow::Error,
    hint: Hint,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl std::error::Error for Hinted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Attaches the way out to an error.
pub(crate) trait HintExt<T> {
    /// Adds a `hint:` line to the error, if it is one. More context may follow.
    fn hint(self, text: impl Into<String>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> HintExt<T> for Result<T, E> {
    fn hint(self, text: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| {
            anyhow::Error::new(Hinted { error: error.into(), hint: Hint { text: text.into() } })
        })
    }
}

/// Renders an error with its causes, each on a line, and the hints of the whole chain at the end.
pub(crate) fn render_error(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("\n  caused by: {cause}"));
    }
    for hinted in error.chain().filter_map(|cause| cause.downcast_ref::<Hinted>()) {
        text.push_str(&format!("\nhint: {}", hinted.hint));
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_come_in_order_and_the_hint_last() {
        let error = Err::<(), _>(std::io::Error::other("disk is full"))
            .context("cannot write `a.csv`")
            .hint("free some space, then run with --resume")
            .context("cell tiny at 512 tokens")
            .unwrap_err();
        assert_eq!(
            render_error(&error),
            "error: cell tiny at 512 tokens\n  caused by: cannot write `a.csv`\n  caused by: disk \
             is full\nhint: free some space, then run with --resume"
        );
    }
}

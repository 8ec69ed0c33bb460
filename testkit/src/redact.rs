//! What differs from run to run, taken out of snapshots.

use std::path::Path;

use crate::Workspace;

/// Filters of insta: what a test does not want to see in its snapshots.
#[derive(Clone)]
#[must_use]
pub struct Redaction(insta::Settings);

impl Redaction {
    /// Paths of the workspace.
    pub fn new(workspace: &Workspace) -> Redaction {
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        Redaction(settings).path(workspace.root(), "[ROOT]")
    }

    /// Another path, as it was given and without links.
    pub fn path(self, path: &Path, by: &str) -> Redaction {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.text(&real.to_string_lossy(), by).text(&path.to_string_lossy(), by)
    }

    /// Dates and times of day.
    pub fn dates(self) -> Redaction {
        let day = r"\b\d{4}-\d{2}-\d{2}";
        let time = r"\d{2}:?\d{2}:?\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?";
        self.pattern(&format!("{day}[T_ ]{time}"), "[TIME]")
            .pattern(&format!(r"{day}(-\d+)?\b"), "[DATE]")
    }

    /// SHA-256 sums and commits in full.
    pub fn hashes(self) -> Redaction {
        self.pattern(r"\b[0-9a-f]{64}\b", "[SHA256]").pattern(r"\b[0-9a-f]{40}\b", "[COMMIT]")
    }

    /// How long something took or will take, and `, … left` of a sweep's progress.
    pub fn durations(self) -> Redaction {
        self.pattern(r", (about )?[^,\n]* left\b", "")
            .pattern(r"\b\d+(\.\d+)? (ns|µs|ms|s|min|h)\b", "[DURATION]")
    }

    /// Tokens per second.
    pub fn speeds(self) -> Redaction {
        self.pattern(r"\b\d+(\.\d+)? tok/s", "[SPEED] tok/s")
    }

    /// Chip and memory, as a CSV has them.
    pub fn machine(self) -> Redaction {
        self.pattern(r"[A-Za-z0-9_().@-]+_\d+GB\b", "[MACHINE]")
    }

    /// Versions of programs.
    pub fn versions(self) -> Redaction {
        self.pattern(r"\bv?\d+\.\d+\.\d+(\.\d+)*\b", "[VERSION]")
    }

    /// A regular expression.
    pub fn pattern(mut self, pattern: &str, by: &str) -> Redaction {
        self.0.add_filter(pattern, by);
        self
    }

    /// A text as it stands.
    pub fn text(self, text: &str, by: &str) -> Redaction {
        let escape = |c: char| match c.is_alphanumeric() || !c.is_ascii() {
            true => c.to_string(),
            false => format!("\\x{:02x}", u32::from(c)),
        };
        let pattern: String = text.chars().map(escape).collect();
        self.pattern(&pattern, by)
    }

    /// In force until the value goes.
    pub fn bind(&self) -> insta::internals::SettingsBindDropGuard {
        self.0.bind_to_scope()
    }
}

/// Compares what is shown with the snapshot of this test, in `snapshots/` beside it:
/// `assert_shown!(Redaction::new(&workspace), ran)`, with a name before `ran` where there are several.
///
/// `INSTA_UPDATE=always cargo test …` writes what is new or has changed; look at the diff.
#[macro_export]
macro_rules! assert_shown {
    ($redaction:expr, $($shown:tt)+) => {{
        let _in_force = $redaction.bind();
        $crate::insta::assert_snapshot!($($shown)+);
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_replaced_and_the_rest_is_not() {
        let workspace = Workspace::empty("/bin/sh");
        let shown = format!(
            "{}/x of 2026-12-01, 2026-12-01-2 and 2026-12-01T03:04:05Z: {} {} abc1234\n\
             [done] a @ 512: 100.00 tok/s (0.1 s) — 1/4, about 3 s left\nv0.1.0 on AMD_EPYC_122GB",
            workspace.root().display(),
            "0a".repeat(32),
            "0b".repeat(20),
        );
        let redaction = Redaction::new(&workspace).dates().hashes().durations().speeds();
        let redaction = redaction.machine().versions();
        let _in_force = redaction.bind();
        insta::assert_snapshot!(shown, @r"
        [ROOT]/x of [DATE], [DATE] and [TIME]: [SHA256] [COMMIT] abc1234
        [done] a @ 512: [SPEED] tok/s ([DURATION]) — 1/4
        [VERSION] on [MACHINE]
        ");
    }
}

//! What differs from run to run, taken out of snapshots.

use crate::Workspace;

/// Filters of insta. Paths of the workspace, dates, times and hashes always go; what a test may want
/// to see is asked for.
#[derive(Clone)]
#[must_use]
pub struct Redaction(insta::Settings);

impl Redaction {
    /// For a snapshot of what a command printed in a workspace.
    pub fn new(workspace: &Workspace) -> Redaction {
        let redaction = Redaction::bare();
        let root = workspace.root();
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        redaction.text(&real.to_string_lossy(), "[ROOT]").text(&root.to_string_lossy(), "[ROOT]")
    }

    /// For one that no workspace is in.
    pub fn bare() -> Redaction {
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        Redaction(settings)
            .pattern(
                r"\b\d{4}-\d{2}-\d{2}[T_]\d{2}:?\d{2}:?\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?",
                "[TIME]",
            )
            .pattern(r"\b\d{4}-\d{2}-\d{2}(-\d+)?\b", "[DATE]")
            .pattern(r"\b\d{2}:\d{2}:\d{2}\b", "[TIME]")
            .pattern(r"\b[0-9a-f]{64}\b", "[SHA256]")
            .pattern(r"\b[0-9a-f]{40}\b", "[COMMIT]")
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
            "{}/x of 2026-12-01, 2026-12-01-2 and 2026-12-01T03:04:05Z at 03:04:05: {} {} abc1234\n\
             [done] a @ 512: 100.00 tok/s (0.1 s) — 1/4, about 3 s left\nv0.1.0 on AMD_EPYC_122GB",
            workspace.root().display(),
            "0a".repeat(32),
            "0b".repeat(20),
        );
        let redaction = Redaction::new(&workspace).durations().speeds().machine().versions();
        let _in_force = redaction.bind();
        insta::assert_snapshot!(shown, @r"
        [ROOT]/x of [DATE], [DATE] and [TIME] at [TIME]: [SHA256] [COMMIT] abc1234
        [done] a @ 512: [SPEED] tok/s ([DURATION]) — 1/4
        [VERSION] on [MACHINE]
        ");
    }
}

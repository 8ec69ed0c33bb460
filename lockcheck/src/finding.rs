//! What the check can find: the codes, and one finding with its place, both sides and the repair.
//! It holds values; deciding and printing are for others.

use std::fmt;

use serde::{Serialize, Serializer};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The lock and the manifests disagree, or the question cannot be answered.
    Error,
    /// They agree, but not in the way one might think.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $means:literal;)*) => {
        /// What a finding is about. The letter before the dash is its severity by default.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $means] $name,)*
        }

        impl Code {
            /// Every code, errors first.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as it is printed.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => $means,)* }
            }
        }
    };
}

codes! {
    LockParse = "E-LOCK-PARSE", "the lock is broken, or its version is unknown";
    NoLock = "E-NO-LOCK", "there is no lock";
    Rev = "E-REV", "the locked revision is not the one that the manifest pins";
    RevSpelling = "E-REV-SPELLING", "lock and manifest spell one commit differently, which a locked build refuses";
    Ref = "E-REF", "the lock holds a different branch, tag or kind of reference";
    Url = "E-URL", "the lock holds a different repository or registry";
    SourceKind = "E-SOURCE-KIND", "lock and manifest name different kinds of source: git, registry or path";
    Version = "E-VERSION", "the locked version does not meet the requirement";
    Fragment = "E-FRAGMENT", "the commit after `#` is not the revision in the url before it; cargo silently builds the commit";
    Split = "E-SPLIT", "one source is locked at several commits; cargo silently builds one of them for all";
    NotPrecise = "E-NOT-PRECISE", "the entry has no full commit id, so it locks nothing";
    Patch = "E-PATCH", "the lock and a patch disagree";
    PatchRev = "E-PATCH-REV", "the locked revision is not the one that the patch pins";
    Missing = "E-MISSING", "the lock has no entry for what the manifests declare";
    Orphan = "E-ORPHAN", "the lock has an entry that nothing needs";
    MemberVersion = "E-MEMBER-VERSION", "the lock holds a different version of a package on disk";
    UnknownCommit = "E-UNKNOWN-COMMIT", "the clone does not have the commit, so nothing can be said about it";
    MixedPins = "W-MIXED-PINS", "one family is locked at several revisions";
    Dup = "W-DUP", "one package is locked from several sources";
    PatchUnused = "W-PATCH-UNUSED", "a patch replaces nothing";
    PatchIgnored = "W-PATCH-IGNORED", "cargo ignores patches outside the root manifest";
    Shadowed = "W-SHADOWED", "a patch replaces the dependency, so its pin has no effect";
    Floating = "W-FLOATING", "the reference can move; only the lock holds the commit";
    ShortRev = "W-SHORT-REV", "the revision is so short that several commits may match";
    PathsOverride = "W-PATHS-OVERRIDE", "a `paths` override replaces packages without a trace in the lock";
    UnusedWorkspaceDependency = "W-UNUSED-WS-DEP", "no member inherits this entry";
    StrayLock = "W-STRAY-LOCK", "cargo ignores a lock beside a member's manifest";
    ReplaceDeprecated = "W-REPLACE-DEPRECATED", "`[replace]` is deprecated in favour of `[patch]`";
    Backward = "W-BACKWARD", "the new commit is an ancestor of the old one";
    Sibling = "W-SIBLING", "neither commit is an ancestor of the other";
    RepositoryChanged = "W-REPOSITORY-CHANGED", "the old and the new commit come from different repositories";
}

impl Code {
    /// Reads a code as it is printed.
    pub fn parse(text: &str) -> Option<Code> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// The severity that it has where nothing raises it.
    pub fn default_severity(self) -> Severity {
        if self.as_str().starts_with('E') { Severity::Error } else { Severity::Warning }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A line of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file, as it is shown.
    pub file: String,
    /// The 1-based line.
    pub line: usize,
    /// The section, as `[dependencies]`; empty where it says nothing.
    pub section: String,
}

/// What a finding is about, which decides whether it counts when one family is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The lock as a whole: it always counts.
    Lock,
    /// A setting of the workspace: it is always shown, and counts where everything is checked.
    Workspace,
    /// One package, with the canonical urls that it has or is wanted from.
    Package {
        /// Its name.
        name: String,
        /// The urls.
        urls: Vec<String>,
    },
}

/// The command that repairs a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// `cargo update -p SPEC`.
    UpdatePackage(String),
    /// `cargo update -w`.
    UpdateWorkspace,
    /// `cargo generate-lockfile`.
    GenerateLock,
    /// Restore a lock that cargo cannot read either, then `cargo update -w`.
    RestoreLock,
    /// No command of cargo: what to do instead.
    ByHand(String),
}

/// One thing that the check found.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What it is.
    pub code: Code,
    /// How bad it is here.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// The line of a manifest that it is about.
    pub at: Option<Location>,
    /// The line of the lock that it is about.
    pub lock_line: Option<usize>,
    /// What the manifest wants.
    pub wanted: Option<String>,
    /// What the lock holds.
    pub locked: Option<String>,
    /// What else there is to know.
    pub note: Option<String>,
    /// The repair.
    pub repair: Option<Repair>,
}

impl Finding {
    pub(crate) fn new(code: Code, subject: Subject) -> Self {
        Self {
            code,
            severity: code.default_severity(),
            subject,
            at: None,
            lock_line: None,
            wanted: None,
            locked: None,
            note: None,
            repair: None,
        }
    }

    pub(crate) fn at(mut self, at: &Location) -> Self {
        self.at = Some(at.clone());
        self
    }

    pub(crate) fn lock_line(mut self, line: usize) -> Self {
        self.lock_line = Some(line);
        self
    }

    pub(crate) fn wanted(mut self, wanted: impl Into<String>) -> Self {
        self.wanted = Some(wanted.into());
        self
    }

    pub(crate) fn locked(mut self, locked: impl Into<String>) -> Self {
        self.locked = Some(locked.into());
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    pub(crate) fn repair(mut self, repair: Repair) -> Self {
        self.repair = Some(repair);
        self
    }

    /// The package that it is about, or `Cargo.lock`.
    pub fn package(&self) -> &str {
        match &self.subject {
            Subject::Package { name, .. } => name,
            Subject::Lock => "Cargo.lock",
            Subject::Workspace => "workspace",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_they_are_printed() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!(!code.meaning().is_empty());
        }
        assert_eq!(Code::parse("E-NONE"), None);
        assert_eq!(Code::Rev.default_severity(), Severity::Error);
        assert_eq!(Code::Dup.default_severity(), Severity::Warning);
    }
}

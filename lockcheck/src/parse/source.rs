//! Where a package comes from: git references, canonical urls, and the `source` strings of a
//! lockfile. It compares sources as cargo does; it reads nothing.

use std::fmt;

/// The index of the default registry, as a lockfile spells it after `registry+`.
const CRATES_IO_GIT_INDEX: &str = "https://github.com/rust-lang/crates.io-index";
/// The same registry over the sparse protocol.
const CRATES_IO_SPARSE_INDEX: &str = "sparse+https://index.crates.io/";

/// What a git dependency asks for within its repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum GitReference {
    /// No reference: the head of the default branch.
    DefaultBranch,
    Branch(String),
    Tag(String),
    /// `rev = "…"`: a commit, abbreviated or not, or any other name that git resolves.
    Rev(String),
}

impl GitReference {
    /// The key and the value by which a manifest asks for it.
    fn parts(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::DefaultBranch => None,
            Self::Branch(name) => Some(("branch", name)),
            Self::Tag(name) => Some(("tag", name)),
            Self::Rev(rev) => Some(("rev", rev)),
        }
    }

    pub(crate) fn describe(&self) -> String {
        self.parts()
            .map_or("the default branch".to_owned(), |(key, value)| format!("{key} `{value}`"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitSource {
    /// The url as written.
    pub(crate) url: String,
    /// The url that cargo compares: see [`canonical_url`].
    pub(crate) canonical: String,
    pub(crate) reference: GitReference,
}

impl GitSource {
    pub(crate) fn new(url: &str, reference: GitReference) -> Self {
        Self { url: url.to_owned(), canonical: canonical_url(url), reference }
    }

    /// Whether cargo takes both for one source.
    pub(crate) fn is_same(&self, other: &GitSource) -> bool {
        self.canonical == other.canonical && self.reference == other.reference
    }
}

impl fmt::Display for GitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "git+{}", self.url)?;
        self.reference.parts().map_or(Ok(()), |(key, value)| write!(f, "?{key}={value}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockedSource {
    /// No `source` line: a package on disk.
    Path,
    /// A registry, by the index url that [`canonical_registry`] gives.
    Registry(String),
    /// A git repository; the commit is what follows `#`, if anything does.
    Git {
        source: GitSource,
        /// The text after `#`.
        commit: Option<String>,
    },
}

impl LockedSource {
    pub(crate) fn git(&self) -> Option<&GitSource> {
        match self {
            Self::Git { source, .. } => Some(source),
            Self::Path | Self::Registry(_) => None,
        }
    }

    pub(crate) fn commit(&self) -> Option<&str> {
        match self {
            Self::Git { commit, .. } => commit.as_deref(),
            Self::Path | Self::Registry(_) => None,
        }
    }

    /// The url that cargo compares, for what is not on disk.
    pub(crate) fn canonical(&self) -> Option<&str> {
        match self {
            Self::Path => None,
            Self::Registry(index) => Some(index),
            Self::Git { source, .. } => Some(&source.canonical),
        }
    }
}

/// How percent signs in the reference of a git source are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefEncoding {
    /// Lock versions before 4 write the reference as it is.
    Literal,
    /// Version 4 writes it as a url query.
    Percent,
}

pub(crate) fn parse_locked_source(text: &str, encoding: RefEncoding) -> LockedSource {
    let Some(git) = text.strip_prefix("git+") else {
        return LockedSource::Registry(canonical_registry(text));
    };
    let (location, commit) = match git.split_once('#') {
        Some((location, commit)) => (location, Some(commit.to_owned())),
        None => (git, None),
    };
    let (url, reference) = match location.split_once('?') {
        Some((url, query)) => (url, parse_reference(query, encoding)),
        None => (location, GitReference::DefaultBranch),
    };
    LockedSource::Git { source: GitSource::new(url, reference), commit }
}

fn parse_reference(query: &str, encoding: RefEncoding) -> GitReference {
    let decode = |value: &str| match encoding {
        RefEncoding::Literal => value.to_owned(),
        RefEncoding::Percent => decode_query(value),
    };
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("branch", value)) => return GitReference::Branch(decode(value)),
            Some(("tag", value)) => return GitReference::Tag(decode(value)),
            // `ref=` is what very old locks wrote for a revision.
            Some(("rev" | "ref", value)) => return GitReference::Rev(decode(value)),
            _ => {}
        }
    }
    GitReference::DefaultBranch
}

/// Decodes a url query value: `+` is a space and `%41` is `A`. Half an escape stays as it is, and
/// bytes that are not UTF-8 become replacement characters.
fn decode_query(value: &str) -> String {
    let spaced = value.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// The url that cargo compares git sources by: without a trailing slash and without `.git`, and for
/// github.com, which takes any spelling, in lower case with `https`.
pub(crate) fn canonical_url(url: &str) -> String {
    let url = url.trim_end_matches('/');
    let mut url = url.strip_suffix(".git").unwrap_or(url).trim_end_matches('/').to_owned();
    if let Some((_, rest)) = url.split_once("://") {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.eq_ignore_ascii_case("github.com") {
            url = format!("https://github.com/{}", path.to_ascii_lowercase());
        }
    }
    url
}

/// The index of the default registry, in the form that [`canonical_registry`] gives.
pub(crate) fn crates_io() -> String {
    canonical_registry(CRATES_IO_GIT_INDEX)
}

/// The form in which registry indexes are compared. The default registry has one form, whichever
/// protocol reached it.
pub(crate) fn canonical_registry(index: &str) -> String {
    let index = index.strip_prefix("registry+").unwrap_or(index);
    if index.trim_end_matches('/') == CRATES_IO_SPARSE_INDEX.trim_end_matches('/') {
        return canonical_url(CRATES_IO_GIT_INDEX);
    }
    canonical_url(index)
}

/// How two references relate, seen from the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReferenceDrift {
    Spelling,
    Revision,
    /// Another kind of reference, or another branch or tag.
    Reference,
}

/// Compares the reference that a manifest asks for with the one that is locked.
///
/// `commit` is the locked commit. `None` means that both are the same.
pub(crate) fn compare_references(
    wanted: &GitReference,
    locked: &GitReference,
    commit: Option<&str>,
) -> Option<ReferenceDrift> {
    if wanted == locked {
        return None;
    }
    match (wanted, locked) {
        (GitReference::Rev(wanted), GitReference::Rev(_)) => {
            let same_commit = is_hex_rev(wanted) && commit.is_some_and(|at| is_prefix(wanted, at));
            Some(if same_commit { ReferenceDrift::Spelling } else { ReferenceDrift::Revision })
        }
        _ => Some(ReferenceDrift::Reference),
    }
}

/// Whether a `rev` can only be a commit id: 4 to 64 hex digits (git abbreviates to no fewer).
pub(crate) fn is_hex_rev(rev: &str) -> bool {
    (4..=64).contains(&rev.len()) && rev.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a locked commit is whole: 40 hex digits (SHA-1) or 64 (SHA-256).
pub(crate) fn is_full_commit(commit: &str) -> bool {
    matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether `rev` abbreviates `commit`, in any case of letters.
pub(crate) fn is_prefix(rev: &str, commit: &str) -> bool {
    commit.get(..rev.len()).is_some_and(|head| head.eq_ignore_ascii_case(rev))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(url: &str, reference: GitReference, commit: Option<&str>) -> LockedSource {
        LockedSource::Git {
            source: GitSource::new(url, reference),
            commit: commit.map(str::to_owned),
        }
    }

    #[test]
    fn suffix_slash_and_the_case_of_github_are_no_difference() {
        let canonical = "https://github.com/ericlbuehler/candle";
        for url in [
            "https://github.com/EricLBuehler/candle.git",
            "https://github.com/ericlbuehler/candle/",
            "http://github.com/ericlbuehler/candle.git/",
        ] {
            assert_eq!(canonical_url(url), canonical);
        }
        assert_ne!(
            canonical_url("https://gitlab.com/A/b"),
            canonical_url("https://gitlab.com/a/b")
        );
        assert_eq!(canonical_url("file:///srv/Repo.git"), "file:///srv/Repo");
    }

    #[test]
    fn the_default_registry_has_one_form() {
        let forms = [
            "registry+https://github.com/rust-lang/crates.io-index",
            "sparse+https://index.crates.io/",
            "registry+sparse+https://index.crates.io/",
        ];
        for form in forms {
            assert_eq!(canonical_registry(form), crates_io());
        }
        assert_ne!(canonical_registry("sparse+https://index.example.org/"), crates_io());
    }

    #[test]
    fn references_are_decoded_in_version_4_only() {
        let text = "git+https://example.org/c?branch=feat%2Fx+y#abc";
        assert_eq!(
            parse_locked_source(text, RefEncoding::Percent),
            git("https://example.org/c", GitReference::Branch("feat/x y".into()), Some("abc"))
        );
        assert_eq!(
            parse_locked_source(text, RefEncoding::Literal),
            git("https://example.org/c", GitReference::Branch("feat%2Fx+y".into()), Some("abc"))
        );
    }

    #[test]
    fn half_an_escape_stays_as_it_is() {
        assert_eq!(decode_query("100%"), "100%");
        assert_eq!(decode_query("%4"), "%4");
        assert_eq!(decode_query("%zz%41"), "%zzA");
        assert_eq!(decode_query("%é"), "%é");
    }

    #[test]
    fn an_abbreviated_or_upper_case_revision_is_a_spelling() {
        let commit = Some("a81f67bc984aaedad4917086fb031a82b7210bdf");
        let rev = |text: &str| GitReference::Rev(text.to_owned());
        let compare = |wanted, locked| compare_references(&wanted, &locked, commit);
        assert_eq!(compare(rev("a81f67b"), rev("a81f67b")), None);
        assert_eq!(compare(rev("A81F67B"), rev("a81f67b")), Some(ReferenceDrift::Spelling));
        assert_eq!(compare(rev("8ec202b"), rev("a81f67b")), Some(ReferenceDrift::Revision));
        assert_eq!(
            compare(GitReference::Tag("v1".into()), rev("a81f67b")),
            Some(ReferenceDrift::Reference)
        );
        assert_eq!(
            compare(GitReference::Branch("main".into()), GitReference::DefaultBranch),
            Some(ReferenceDrift::Reference)
        );
    }

    #[test]
    fn only_whole_commits_are_precise() {
        assert!(is_full_commit(&"a".repeat(40)));
        assert!(is_full_commit(&"0".repeat(64)));
        assert!(!is_full_commit(&"a".repeat(41)));
        assert!(!is_full_commit(&"g".repeat(40)));
        assert!(!is_hex_rev("v1"));
        assert!(!is_hex_rev("abc"));
    }
}

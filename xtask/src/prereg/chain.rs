//! The frozen document: what was fixed, when, and every amendment since.
//!
//! It owns `NAME.frozen.json`: a chain of versions, each with the whole text, so that a later change
//! can be shown as a diff, and each with the hash of the one before, so that none can be rewritten
//! unseen. It reads no file and no clock.

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::base::hash::sha256_hex;
use crate::cell::pins::diff_pins;

const SCHEMA: u32 = 1;

/// `NAME.frozen.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Frozen {
    schema: u32,
    pub(crate) name: String,
    pub(crate) versions: Vec<Version>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Version {
    /// From 1.
    pub(crate) version: u32,
    /// `YYYY-MM-DD`
    pub(crate) date: String,
    /// Why it was amended; `None` for the first version.
    pub(crate) why: Option<String>,
    /// What had been measured under earlier versions when it was made.
    pub(crate) data: DataBefore,
    pub(crate) pins: Pins,
    pub(crate) document_sha256: String,
    pub(crate) document: String,
    pub(crate) previous_sha256: Option<String>,
    /// SHA-256 of this entry without this field, as compact JSON.
    pub(crate) entry_sha256: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pins {
    pub(crate) commit: String,
    /// Hash of the code that base rungs run; for a foreign runner, of its program. `None` where the
    /// program is not a file that can be read.
    pub(crate) code_sha256: Option<String>,
    pub(crate) runner_sha256: String,
    pub(crate) model_sha256: String,
    /// Commits that items apply, by the revision that the document names.
    pub(crate) revisions: std::collections::BTreeMap<String, String>,
    pub(crate) machine: String,
    /// SHA-256 of the files that the runner's command and the arguments of the document name, by their
    /// path; for a foreign runner its program as well, as `program`.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty", default)]
    pub(crate) files: std::collections::BTreeMap<String, String>,
}

impl Pins {
    /// What differs in what is measured, in words.
    pub(crate) fn diff_words(&self, then: &Pins) -> Vec<String> {
        let mut words = Vec::new();
        for (what, differs) in [
            ("the runner's definition", self.runner_sha256 != then.runner_sha256),
            ("the model", self.model_sha256 != then.model_sha256),
            ("the code", self.code_sha256 != then.code_sha256),
            ("the revisions", self.revisions != then.revisions),
        ] {
            if differs {
                words.push(what.to_owned());
            }
        }
        if !then.files.is_empty() {
            words.extend(diff_pins(&then.files, &self.files));
        }
        words
    }

    /// Whether a run under either measures the same; the commit and the machine may differ.
    pub(crate) fn same_measurement(&self, other: &Pins) -> bool {
        self.diff_words(other).is_empty()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataBefore {
    pub(crate) runs: u64,
    pub(crate) launches: u64,
    /// The names of these runs.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) names: Vec<String>,
}

/// A new version, before it has a place in the chain.
#[derive(Debug, Clone)]
pub(crate) struct NewVersion {
    pub(crate) date: String,
    pub(crate) why: Option<String>,
    pub(crate) data: DataBefore,
    pub(crate) pins: Pins,
    pub(crate) document: String,
}

impl Frozen {
    pub(crate) fn new(name: &str) -> Frozen {
        Frozen { schema: SCHEMA, name: name.to_owned(), versions: Vec::new() }
    }

    pub(crate) fn with(mut self, new: NewVersion) -> anyhow::Result<Frozen> {
        let mut version = Version {
            version: self.versions.len() as u32 + 1,
            date: new.date,
            why: new.why,
            data: new.data,
            pins: new.pins,
            document_sha256: sha256_hex(new.document.as_bytes()),
            document: new.document,
            previous_sha256: self.versions.last().map(|last| last.entry_sha256.clone()),
            entry_sha256: String::new(),
        };
        version.entry_sha256 = entry_hash(&version)?;
        self.versions.push(version);
        Ok(self)
    }

    pub(crate) fn last(&self) -> anyhow::Result<&Version> {
        match self.versions.last() {
            Some(last) => Ok(last),
            None => bail!("no version is frozen"),
        }
    }

    pub(crate) fn render(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

fn entry_hash(version: &Version) -> anyhow::Result<String> {
    let mut bare = version.clone();
    bare.entry_sha256 = String::new();
    Ok(sha256_hex(serde_json::to_string(&bare)?.as_bytes()))
}

/// Parses `NAME.frozen.json` and holds every link of the chain.
///
/// # Errors
/// Names the version that is not what its hash, or the one after it, says.
pub(crate) fn parse_frozen(display_path: &str, text: &str) -> anyhow::Result<Frozen> {
    let frozen: Frozen = serde_json::from_str(text)
        .map_err(|error| anyhow::anyhow!("`{display_path}` is not a frozen ladder: {error}"))?;
    ensure!(
        frozen.schema == SCHEMA,
        "`{display_path}` has schema {}, but this version reads {SCHEMA}",
        frozen.schema
    );
    let mut previous: Option<String> = None;
    for (index, version) in frozen.versions.iter().enumerate() {
        let whole = version.version as usize == index + 1
            && version.previous_sha256 == previous
            && version.document_sha256 == sha256_hex(version.document.as_bytes())
            && version.entry_sha256 == entry_hash(version)?;
        ensure!(
            whole,
            "version {} in `{display_path}` was changed after it was frozen: its hash does not match",
            index + 1
        );
        previous = Some(version.entry_sha256.clone());
    }
    Ok(frozen)
}

/// The change since a version was frozen, as a unified diff; `None` without any.
pub(crate) fn diff_document(frozen: &str, now: &str, name: &str) -> Option<String> {
    (frozen != now).then(|| {
        TextDiff::from_lines(frozen, now)
            .unified_diff()
            .context_radius(2)
            .header(&format!("{name}.toml (frozen)"), &format!("{name}.toml"))
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(document: &str, why: Option<&str>) -> NewVersion {
        NewVersion {
            date: "2026-08-08".to_owned(),
            why: why.map(str::to_owned),
            data: DataBefore::default(),
            pins: Pins {
                commit: "36495d9".to_owned(),
                code_sha256: None,
                runner_sha256: "r".to_owned(),
                model_sha256: "m".to_owned(),
                revisions: [].into(),
                machine: "CPU_8GB".to_owned(),
                files: [].into(),
            },
            document: document.to_owned(),
        }
    }

    fn chain() -> Frozen {
        let first = Frozen::new("seed").with(new("a = 1\n", None)).unwrap();
        first.with(new("a = 2\n", Some("a typo"))).unwrap()
    }

    #[test]
    fn a_chain_survives_its_file() {
        let text = chain().render().unwrap();
        assert_eq!(parse_frozen("f", &text).unwrap(), chain());
    }

    #[test]
    fn any_change_to_any_version_is_seen() {
        let text = chain().render().unwrap();
        for (from, to, version) in [
            ("a = 1", "a = 3", 1),
            ("a typo", "a mistake", 2),
            ("2026-08-08", "2026-08-07", 1),
            ("\"launches\": 0", "\"launches\": 9", 1),
            ("\"version\": 2", "\"version\": 3", 2),
        ] {
            let error = parse_frozen("f", &text.replacen(from, to, 1)).unwrap_err().to_string();
            let named = format!("version {version} in `f` was changed");
            assert!(error.starts_with(&named), "{from}: {error}");
        }
    }

    #[test]
    fn a_version_cannot_be_taken_out() {
        let mut frozen = chain();
        frozen.versions.remove(0);
        frozen.versions[0].version = 1;
        assert!(parse_frozen("f", &frozen.render().unwrap()).is_err());
    }

    #[test]
    fn a_re_hashed_first_version_breaks_the_link_of_the_second() {
        let mut frozen = chain();
        frozen.versions[0] =
            Frozen::new("seed").with(new("a = 9\n", None)).unwrap().versions.remove(0);
        let error = parse_frozen("f", &frozen.render().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("version 2"), "{error}");
    }

    #[test]
    fn a_change_is_shown_as_a_diff() {
        assert_eq!(diff_document("a = 1\n", "a = 1\n", "x"), None);
        let diff = diff_document("a = 1\nb = 1\n", "a = 2\nb = 1\n", "x").unwrap();
        assert!(diff.contains("-a = 1\n+a = 2\n"), "{diff}");
    }
}

//! Variants: named changes of a runner's arguments, and which of them need no less memory than others.
//!
//! Pure. What is declared holds through others: if `a` uses no more than `b`, and `b` no more than `c`,
//! then what `a` runs out of memory at, `c` does too. Nothing else is inferred.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::base::diagnostic::HintExt as _;
use crate::base::nearest::nearest;
use crate::cell::length::parse_generate;
use crate::cell::runner::Runner;

/// How the model as it is is called among variants.
pub(crate) const PLAIN: &str = "plain";

/// A change that has a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// What follows on the model's name and a plus in rows and in the record.
    pub(crate) name: String,
    /// Arguments after those of the runner, each passed as it stands.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Values of placeholders of the runner, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) set: BTreeMap<String, String>,
    /// Variants, or [`PLAIN`], that need at least as much memory at each length.
    #[serde(default)]
    pub(crate) uses_no_more_memory_than: Vec<String>,
}

impl Variant {
    /// The runner as this changes it.
    ///
    /// # Errors
    /// It sets a placeholder that the runner does not have.
    pub(crate) fn apply_to(&self, runner: &Runner) -> anyhow::Result<Runner> {
        let set = runner.with_set(&self.set).with_context(|| format!("variant `{}`", self.name))?;
        Ok(set.with_extra_args(&self.args))
    }
}

/// The name that a number of streams at the same time has among variants.
pub(crate) fn streams_name(count: u64) -> String {
    format!("c{count}")
}

/// The number in such a name.
pub(crate) fn parse_streams(name: &str) -> Option<u64> {
    name.strip_prefix('c')?.parse().ok()
}

/// What is before the number of streams that a name ends with, and that number's name.
pub(crate) fn split_streams(name: &str) -> (Option<&str>, Option<&str>) {
    let (before, last) = match name.rsplit_once('+') {
        Some((before, last)) => (Some(before), last),
        None => (None, name),
    };
    if parse_streams(last).is_some() { (before, Some(last)) } else { (Some(name), None) }
}

/// Checks names and what they refer to.
///
/// # Errors
/// What is wrong with which variant.
pub(crate) fn check_variants(variants: &[Variant]) -> anyhow::Result<()> {
    let mut names = BTreeSet::from([PLAIN]);
    for variant in variants {
        let name = variant.name.as_str();
        let is_word = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !is_word {
            bail!("variant `{name}`: a name is of letters, digits, `-`, `_` and `.`");
        }
        if parse_streams(name).is_some() {
            bail!("variant `{name}`: such a name stands for a number of streams");
        }
        if parse_generate(name).is_some() {
            bail!("variant `{name}`: such a name stands for a number of generated tokens");
        }
        if !names.insert(name) {
            bail!("variant `{name}`: the name is taken");
        }
        if variant.args.is_empty() && variant.set.is_empty() {
            bail!("variant `{name}` changes nothing: it has neither `args` nor `set`");
        }
    }
    for variant in variants {
        for other in &variant.uses_no_more_memory_than {
            if names.contains(other.as_str()) {
                continue;
            }
            let error = anyhow::anyhow!(
                "variant `{}`, `uses_no_more_memory_than`: there is no variant `{other}`",
                variant.name
            );
            let known: Vec<&str> = names.iter().copied().collect();
            let hint = match nearest(other, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the variants are {}", known.join(", ")),
            };
            return Err(error).hint(hint);
        }
    }
    Ok(())
}

/// The variants whose true OOM forbids this one ([`PLAIN`] for the model as it is) at the same and at
/// greater lengths, itself first.
pub(crate) fn forbidding<'v>(variants: &'v [Variant], of: &'v str) -> Vec<&'v str> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&wanted) = found.get(next) {
        next += 1;
        for variant in variants {
            let needs_no_more = variant.uses_no_more_memory_than.iter().any(|name| name == wanted);
            if needs_no_more && !found.contains(&variant.name.as_str()) {
                found.push(&variant.name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(name: &str, below: &[&str]) -> Variant {
        Variant {
            name: name.to_owned(),
            args: vec!["-x".to_owned()],
            set: BTreeMap::new(),
            uses_no_more_memory_than: below.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn what_needs_less_and_fails_forbids_what_needs_more_and_nothing_else() {
        let all = [
            variant("q8", &["plain"]),
            variant("q4", &["q8"]),
            variant("wide", &[]),
            variant("same", &["alike"]),
            variant("alike", &["same"]),
        ];
        assert_eq!(forbidding(&all, PLAIN), ["plain", "q8", "q4"]);
        assert_eq!(forbidding(&all, "q8"), ["q8", "q4"]);
        assert_eq!(forbidding(&all, "q4"), ["q4"]);
        assert_eq!(forbidding(&all, "wide"), ["wide"]);
        assert_eq!(forbidding(&all, "same"), ["same", "alike"]);
    }

    #[test]
    fn streams_end_a_name() {
        assert_eq!(split_streams("q8+c4"), (Some("q8"), Some("c4")));
        assert_eq!(split_streams("c4"), (None, Some("c4")));
        assert_eq!(split_streams("q8"), (Some("q8"), None));
        assert_eq!(split_streams("q8+cool"), (Some("q8+cool"), None));
        assert_eq!(parse_streams(&streams_name(16)), Some(16));
    }

    #[test]
    fn names_are_checked() {
        let error = |all: &[Variant]| format!("{:#}", check_variants(all).unwrap_err());
        assert!(check_variants(&[variant("a", &["plain"]), variant("b", &["a"])]).is_ok());
        assert!(error(&[variant("a b", &[])]).starts_with("variant `a b`: a name is of letters"));
        assert!(error(&[variant("c4", &[])]).contains("stands for a number of streams"));
        assert!(error(&[variant("plain", &[])]).contains("the name is taken"));
        assert!(error(&[variant("a", &[]), variant("a", &[])]).contains("the name is taken"));
        assert!(
            error(&[Variant { args: Vec::new(), ..variant("a", &[]) }])
                .contains("neither `args` nor `set`")
        );
        assert!(error(&[variant("g64", &[])]).contains("a number of generated tokens"));
        let unknown = error(&[variant("kv-q8", &["plian"])]);
        assert!(unknown.contains("there is no variant `plian`"), "{unknown}");
    }
}

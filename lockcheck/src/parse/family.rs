//! Families: crates that belong together and must come from one place. It knows names and urls, and
//! the table `[workspace.metadata.arc.verify-lock]` that adds to them.

use std::collections::BTreeSet;

use toml::de::DeTable;

use super::spanned::{self, Lines, TextError};
use crate::finding::Code;
use crate::nearest::did_you_mean;

/// `[workspace.metadata.arc.verify-lock]`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Settings {
    /// Warnings that are errors in this workspace.
    pub(crate) deny: Vec<Code>,
    /// Families that the workspace defines; one named `candle` takes the place of the built-in one.
    pub(crate) families: Vec<Family>,
}

impl Settings {
    /// The families of the workspace and the built-in one, which comes first unless redefined.
    pub(crate) fn all_families(&self) -> Vec<Family> {
        let mut families = self.families.clone();
        if !families.iter().any(|family| family.name == "candle") {
            families.insert(0, Family::candle());
        }
        families
    }
}

/// Crates that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name, as `--only` takes it.
    pub(crate) name: String,
    /// Name patterns; `*` stands for anything.
    names: Vec<String>,
    /// Names that a pattern would take in though they are others' crates.
    exclude: Vec<String>,
    /// The crate whose git repository belongs to the family as a whole.
    pub(crate) anchor: Option<String>,
}

impl Family {
    /// The candle crates: `candle-*` and whatever else comes from the repository of `candle-core`.
    /// `candle-hf-hub` is a download client that only shares the prefix.
    fn candle() -> Self {
        Self {
            name: "candle".to_owned(),
            names: vec!["candle-*".to_owned()],
            exclude: vec!["candle-hf-hub".to_owned()],
            anchor: Some("candle-core".to_owned()),
        }
    }

    /// Whether a name alone makes a package one of the family.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        !self.exclude.iter().any(|pattern| matches(pattern, name))
            && self.names.iter().any(|pattern| matches(pattern, name))
    }

    /// Whether a package is of the family: by its name, or because one of its git repositories is
    /// among those of the anchor.
    pub(crate) fn contains<'u>(
        &self,
        name: &str,
        urls: impl IntoIterator<Item = &'u str>,
        anchor_urls: &BTreeSet<String>,
    ) -> bool {
        self.has_name(name) || urls.into_iter().any(|url| anchor_urls.contains(url))
    }
}

/// Matches a name against a pattern in which `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    while let Some((middle, after)) = rest.split_once('*') {
        let Some(at) = name.find(middle) else { return false };
        name = &name[at + middle.len()..];
        rest = after;
    }
    name.ends_with(rest)
}

/// Reads `[workspace.metadata.arc.verify-lock]`. An unknown key is an error.
pub(crate) fn parse_settings(table: &DeTable<'_>, lines: &Lines) -> Result<Settings, TextError> {
    check_keys(table, &["deny", "families"], lines)?;
    let mut settings = Settings::default();
    for (text, line) in spanned::strings(table, "deny", lines)? {
        let code = Code::parse(&text).ok_or_else(|| TextError {
            line: Some(line),
            message: format!("`deny` names `{text}`, which is no code of verify-lock"),
        })?;
        settings.deny.push(code);
    }
    let Some(families) = spanned::table(table, "families", lines)? else { return Ok(settings) };
    for (name, value) in families {
        let table = spanned::as_table(value, name.get_ref(), lines)?;
        check_keys(table, &["names", "exclude", "anchor"], lines)?;
        let texts = |key: &str| -> Result<Vec<String>, TextError> {
            let items = spanned::strings(table, key, lines)?;
            Ok(items.into_iter().map(|(text, _)| text).collect())
        };
        let family = Family {
            name: name.get_ref().to_string(),
            names: texts("names")?,
            exclude: texts("exclude")?,
            anchor: spanned::string(table, "anchor", lines)?.map(str::to_owned),
        };
        if family.names.is_empty() && family.anchor.is_none() {
            let message = format!("family `{}` gives neither `names` nor `anchor`", family.name);
            return Err(lines.error(name.span(), message));
        }
        settings.families.push(family);
    }
    Ok(settings)
}

fn check_keys(table: &DeTable<'_>, known: &[&str], lines: &Lines) -> Result<(), TextError> {
    for (key, _) in table {
        if known.contains(&&**key.get_ref()) {
            continue;
        }
        let near = did_you_mean(key.get_ref(), known.iter().copied());
        let message = format!("unknown key `{}`{near}", key.get_ref());
        return Err(lines.error(key.span(), message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, TextError> {
        let lines = Lines::new(text);
        let document = spanned::parse_document(text, &lines).unwrap();
        parse_settings(document.get_ref(), &lines)
    }

    #[test]
    fn candle_is_its_names_and_its_repository_but_not_the_hub_client() {
        let candle = Family::candle();
        let anchor_urls = BTreeSet::from(["https://github.com/x/candle".to_owned()]);
        let contains = |name, url| candle.contains(name, [url], &anchor_urls);
        assert!(contains("candle-core", "anything"));
        assert!(contains("candle-core-mold", "anything"));
        assert!(contains("tensor-tools", "https://github.com/x/candle"));
        assert!(!contains("candle-hf-hub", "https://github.com/rust-lang/crates.io-index"));
        assert!(!contains("serde", "https://github.com/rust-lang/crates.io-index"));
    }

    #[test]
    fn a_star_stands_for_any_run() {
        assert!(matches("a-*", "a-"));
        assert!(matches("*-sys", "windows-sys"));
        assert!(matches("a*c*e", "abcde"));
        assert!(!matches("a*c*e", "abde"));
        assert!(!matches("ab*b", "ab"));
        assert!(!matches("candle", "candle-core"));
    }

    #[test]
    fn a_workspace_may_redefine_a_family_and_add_others() {
        let text = "deny = [\"W-MIXED-PINS\"]\n[families.candle]\nnames = [\"c-*\"]\n[families.cuda]\nanchor = \"cudarc\"\n";
        let settings = settings(text).unwrap();
        assert_eq!(settings.deny, [Code::MixedPins]);
        let names: Vec<_> = settings.all_families().into_iter().map(|family| family.name).collect();
        assert_eq!(names, ["candle", "cuda"]);
        assert!(!settings.all_families()[0].has_name("candle-core"));
        assert!(Settings::default().all_families()[0].has_name("candle-core"));
    }

    #[test]
    fn unknown_keys_and_codes_are_named_with_their_line() {
        let error = settings("\nfamilys = 1\n").unwrap_err();
        assert_eq!(error.line, Some(2));
        assert_eq!(error.message, "unknown key `familys`; did you mean `families`?");
        assert_eq!(settings("deny = [\n\"W-MIXED\"]").unwrap_err().line, Some(2));
        assert_eq!(settings("[families.x]\n").unwrap_err().line, Some(1));
    }
}

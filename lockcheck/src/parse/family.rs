//! Families: crates that belong together and must come from one place. It knows names and urls, and
//! the table `[workspace.metadata.arc.verify-lock]` that adds to them.

use std::collections::BTreeSet;

use glob::{Pattern, PatternError};

use super::spanned::{Table, TextError};
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
    pub(crate) name: String,
    /// Name patterns; `*` stands for anything.
    names: Vec<Pattern>,
    /// Names that a pattern would take in though they are others' crates.
    exclude: Vec<Pattern>,
    /// The crate whose git repository belongs to the family as a whole.
    pub(crate) anchor: Option<String>,
}

impl Family {
    /// The candle crates: `candle-*` and whatever else comes from the repository of `candle-core`.
    /// `candle-hf-hub` is a download client that only shares the prefix.
    fn candle() -> Self {
        Self {
            name: "candle".to_owned(),
            names: Pattern::new("candle-*").into_iter().collect(),
            exclude: Pattern::new("candle-hf-hub").into_iter().collect(),
            anchor: Some("candle-core".to_owned()),
        }
    }

    /// Whether a name alone makes a package one of the family.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        any(&self.names) && !any(&self.exclude)
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

/// Reads `[workspace.metadata.arc.verify-lock]`. An unknown key is an error.
pub(crate) fn parse_settings(table: &Table<'_>) -> Result<Settings, TextError> {
    check_keys(table, &["deny", "families"])?;
    let mut settings = Settings::default();
    for (text, line) in table.strings("deny")? {
        let code = Code::parse(&text).ok_or_else(|| {
            let near = did_you_mean(&text, Code::ALL.iter().map(|code| code.as_str()));
            TextError::at(line, format!("unknown code `{text}` in `deny`{near}"))
        })?;
        settings.deny.push(code);
    }
    let Some(families) = table.table("families")? else { return Ok(settings) };
    for item in families.items() {
        let table = item.as_table()?;
        check_keys(&table, &["names", "exclude", "anchor"])?;
        let patterns = |key: &str| -> Result<Vec<Pattern>, TextError> {
            let pattern = |(text, line): (String, usize)| {
                let wrong = |error: PatternError| {
                    let why = error.msg;
                    TextError::at(
                        line,
                        format!("`{text}` in `{key}` is not a valid pattern: {why}"),
                    )
                };
                Pattern::new(&text).map_err(wrong)
            };
            table.strings(key)?.into_iter().map(pattern).collect()
        };
        let family = Family {
            name: item.key.to_owned(),
            names: patterns("names")?,
            exclude: patterns("exclude")?,
            anchor: table.string("anchor")?.map(str::to_owned),
        };
        if family.names.is_empty() && family.anchor.is_none() {
            let message = format!("family `{}` has neither `names` nor `anchor`", family.name);
            return Err(TextError::at(item.key_line(), message));
        }
        settings.families.push(family);
    }
    Ok(settings)
}

fn check_keys(table: &Table<'_>, known: &[&str]) -> Result<(), TextError> {
    let Some(item) = table.items().find(|item| !known.contains(&item.key)) else { return Ok(()) };
    let near = did_you_mean(item.key, known.iter().copied());
    Err(TextError::at(item.key_line(), format!("unknown key `{}`{near}", item.key)))
}

#[cfg(test)]
mod tests {
    use super::super::spanned::parse_document;
    use super::*;

    fn settings(text: &str) -> Result<Settings, TextError> {
        parse_document(text, |root| parse_settings(&root))
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
        let matches = |pattern: &str, name| {
            let text = format!("[families.x]\nnames = [\"{pattern}\"]\n");
            settings(&text).unwrap().families[0].has_name(name)
        };
        assert!(matches("a-*", "a-"));
        assert!(matches("*-sys", "windows-sys"));
        assert!(matches("a*c*e", "abcde"));
        assert!(!matches("a*c*e", "abde"));
        assert!(!matches("ab*b", "ab"));
        assert!(!matches("candle", "candle-core"));
        let error = settings("[families.x]\nnames = [\n\"a[\"]\n").unwrap_err();
        assert_eq!(error.line, Some(3));
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
        let error = settings("deny = [\n\"W-MIXED\"]").unwrap_err();
        assert_eq!(error.line, Some(2));
        assert_eq!(error.message, "unknown code `W-MIXED` in `deny`; did you mean `W-MIXED-PINS`?");
        assert_eq!(settings("[families.x]\n").unwrap_err().line, Some(1));
    }
}

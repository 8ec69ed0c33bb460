//! The part of `verify-lock` that a local clone answers: pins that can move, and ancestry.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

use crate::cli::verify_lock::Args;
use crate::diagnostic::HintExt as _;
use crate::edge::family_repo::GitRepo;
use crate::edge::manifests::Loaded;
use crate::lock::ancestry::{
    self, Ancestry, AncestryRule, PinFact, Relation, classify, judge, judge_pin,
};
use crate::lock::check::Checked;
use crate::lock::family::Family;
use crate::lock::finding::{Code, Finding, Severity, Subject};
use crate::lock::lockfile::{LockFile, LockedPackage, parse_lock};
use crate::lock::source::{GitReference, LockedSource};

/// Asks the clone about the family's locked commits, adds what it finds, and returns how they relate
/// to the old one where that was asked.
pub(super) fn check_clone(
    args: &Args,
    clone: &Path,
    loaded: &Loaded,
    families: &[Family],
    checked: &mut Checked,
) -> anyhow::Result<Vec<Ancestry>> {
    let repo = GitRepo::open(clone)?;
    // A lock that is missing or broken is a finding already, and there is nothing to ask about.
    let Some(lock) = &checked.lock else { return Ok(Vec::new()) };
    let name = args.only.as_deref().unwrap_or("candle");
    let family = families
        .iter()
        .find(|family| family.name == name)
        .with_context(|| format!("no family `{name}`"))?;
    let lead = find_lead(lock, family);
    let mut findings = Vec::new();
    let mut settled = Vec::new();
    if let Some(url) = lead.and_then(|lead| lead.source.git()).map(|source| &source.canonical) {
        for pin in find_pins(lock, url) {
            let fact = repo.read_pin_fact(pin.reference, pin.commit)?;
            if settles(pin.reference, &fact) {
                settled.push(pin.source.clone());
            }
            if let Some((code, note)) = judge_pin(pin.reference, pin.commit, &fact) {
                let urls = vec![url.clone()];
                let subject = Subject::Package { name: pin.package.name.clone(), urls };
                findings.push(
                    Finding::new(code, subject)
                        .lock_line(pin.package.line)
                        .wanted(pin.source.clone())
                        .locked(pin.package.describe_source())
                        .note(note),
                );
            }
        }
    }
    let relations = compare_with_old(args, &repo, loaded, lock, lead)?;
    let rule =
        if args.require_ancestor { AncestryRule::RequireAncestor } else { AncestryRule::Tell };
    findings.extend(relations.iter().filter_map(|ancestry| judge(ancestry, rule)));
    for finding in &mut findings {
        if args.strict || loaded.workspace.settings.deny.contains(&finding.code) {
            finding.severity = Severity::Error;
        }
    }
    // What the clone settled is no longer open.
    checked.findings.retain(|finding| {
        let open = matches!(finding.code, Code::Floating | Code::ShortRev);
        !(open && finding.wanted.as_ref().is_some_and(|wanted| settled.contains(wanted)))
    });
    checked.findings.extend(findings);
    checked.findings.sort_by_key(|finding| finding.severity);
    Ok(relations)
}

/// Whether the clone answers what the lock alone leaves open. A branch stays open: it will move.
fn settles(reference: &GitReference, fact: &PinFact) -> bool {
    !matches!(reference, GitReference::Branch(_) | GitReference::DefaultBranch)
        && !matches!(fact, PinFact::CommitMissing | PinFact::Settled)
}

/// The package that stands for the family: its anchor, or else the first with its name; one from git
/// before others.
fn find_lead<'l>(lock: &'l LockFile, family: &Family) -> Option<&'l LockedPackage> {
    let of_family = || lock.packages.iter().filter(|package| family.has_name(&package.name));
    let anchors = || of_family().filter(|package| Some(&package.name) == family.anchor.as_ref());
    let from_git = |package: &&LockedPackage| package.source.git().is_some();
    anchors()
        .find(from_git)
        .or_else(|| of_family().find(from_git))
        .or_else(|| anchors().next())
        .or_else(|| of_family().next())
}

/// One reference that is locked at one commit.
struct Pin<'l> {
    package: &'l LockedPackage,
    reference: &'l GitReference,
    commit: &'l str,
    source: String,
}

/// The references of a repository with their commits, each once.
fn find_pins<'l>(lock: &'l LockFile, url: &str) -> Vec<Pin<'l>> {
    let mut pins = BTreeMap::new();
    for package in &lock.packages {
        if let LockedSource::Git { source, commit: Some(commit) } = &package.source
            && source.canonical == url
        {
            pins.entry((&source.reference, commit)).or_insert_with(|| Pin {
                package,
                reference: &source.reference,
                commit,
                source: source.to_string(),
            });
        }
    }
    pins.into_values().collect()
}

/// The old commit, and the repository that it is of where that is known.
struct Old {
    rev: String,
    url: Option<String>,
    is_commit: bool,
}

fn compare_with_old(
    args: &Args,
    repo: &GitRepo,
    loaded: &Loaded,
    lock: &LockFile,
    lead: Option<&LockedPackage>,
) -> anyhow::Result<Vec<Ancestry>> {
    let old = match (&args.old, &args.base) {
        (Some(rev), _) => Old { rev: rev.clone(), url: None, is_commit: true },
        (None, Some(base)) => read_old(base, loaded, lead)?,
        (None, None) => return Ok(Vec::new()),
    };
    let url = lead.and_then(|lead| lead.source.git()).map(|source| source.canonical.as_str());
    let news: Vec<(String, String)> = match (&args.new, url) {
        (Some(rev), _) => {
            let name = lead.map_or("the family", |lead| lead.name.as_str());
            vec![(name.to_owned(), rev.clone())]
        }
        (None, Some(url)) => {
            let mut commits = BTreeMap::new();
            for pin in find_pins(lock, url) {
                commits.entry(pin.commit.to_owned()).or_insert_with(|| pin.package.name.clone());
            }
            commits.into_iter().map(|(commit, name)| (name, commit)).collect()
        }
        (None, None) => {
            return Err(anyhow::anyhow!("the lock has no commit of the family to compare with"))
                .hint("the family does not come from git; give the new commit with --new REV");
        }
    };
    let same_repository = old.is_commit
        && match (&old.url, url) {
            (Some(old), Some(new)) => old == new,
            _ => true,
        };
    news.into_iter()
        .map(|(package, new)| {
            let (relation, note) = if old.is_commit {
                let facts = repo.read_commit_facts(&old.rev, &new)?;
                let lacking: Vec<&str> = [(&facts.old, &old.rev), (&facts.new, &new)]
                    .into_iter()
                    .filter(|(found, _)| found.is_none())
                    .map(|(_, rev)| rev.as_str())
                    .collect();
                let note =
                    (!lacking.is_empty()).then(|| format!("it lacks {}", lacking.join(" and ")));
                (classify(&facts, same_repository), note)
            } else {
                (Relation::RepositoryChanged, Some("the old lock has it from no git".to_owned()))
            };
            Ok(ancestry::Ancestry { package, old: old.rev.clone(), new, relation, note })
        })
        .collect()
}

/// The family's commit in the lock of another revision of the workspace.
fn read_old(base: &str, loaded: &Loaded, lead: Option<&LockedPackage>) -> anyhow::Result<Old> {
    let own_repo = GitRepo::open(&loaded.root_dir)?;
    let text = own_repo.read_file_at(base, "Cargo.lock")?;
    let lock = parse_lock(&text).map_err(|error| {
        let error = error.text();
        let line = error.line.map_or_else(String::new, |line| format!(":{line}"));
        anyhow::anyhow!("Cargo.lock{line} of `{base}`: {}", error.message)
    })?;
    let lead = lead.context("the lock has no package of the family")?;
    let same_name = || lock.named(&lead.name).iter().map(|&index| &lock.packages[index]);
    let old = same_name()
        .find(|package| package.source.commit().is_some())
        .or_else(|| same_name().next())
        .with_context(|| format!("Cargo.lock of `{base}` has no `{}`", lead.name))
        .hint("give the old commit with --old REV")?;
    Ok(Old {
        rev: old.source.commit().map_or_else(|| old.describe_source(), str::to_owned),
        url: old.source.git().map(|source| source.canonical.clone()),
        is_commit: old.source.commit().is_some(),
    })
}

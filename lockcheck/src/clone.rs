//! What a local clone of a family's repository answers: pins that can move, and ancestry. It asks
//! through [`crate::read`]; what the answers mean is for [`crate::ancestry`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Error;
use crate::ancestry::{Ancestry, AncestryRule, PinFact, Relation, classify, judge, judge_pin};
use crate::check::{Report, Strictness, raise};
use crate::finding::{Code, Finding, Subject};
use crate::parse::family::Family;
use crate::parse::lockfile::{LockFile, LockedPackage, parse_lock};
use crate::parse::source::{GitReference, LockedSource};
use crate::parse::workspace::Workspace;
use crate::read::GitRepo;

/// What is asked of a local clone.
#[derive(Debug, Clone)]
pub struct CloneQuestion {
    /// The folder of the clone.
    pub clone: PathBuf,
    /// The commit that was locked before; without one, ancestry is not checked.
    pub before: Option<Before>,
    /// The commit that is locked now; without one, those of the lock count.
    pub new: Option<String>,
    /// Which steps are allowed.
    pub rule: AncestryRule,
}

/// Where the commit that was locked before is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// Given.
    Commit(String),
    /// In the lock of this revision of the workspace's own repository.
    LockOf(String),
}

/// Asks the clone about the family's locked commits, and adds what it finds to the report. Findings
/// that the clone settles go from it.
///
/// # Errors
///
/// When git cannot be run, when there is no such clone or revision, or when the lock has no commit of
/// the family to compare.
pub fn check_clone(
    workspace: &Workspace,
    family: &Family,
    question: &CloneQuestion,
    strictness: Strictness,
    report: &mut Report,
) -> Result<(), Error> {
    let repo = GitRepo::open(&question.clone)?;
    // A lock that is missing or broken is a finding already, and there is nothing to ask about.
    let Some(lock) = &report.lock_file else { return Ok(()) };
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
    if let Some(before) = &question.before {
        let old = match before {
            Before::Commit(rev) => Old { rev: rev.clone(), url: None, is_commit: true },
            Before::LockOf(rev) => read_old(rev, workspace, family, lead)?,
        };
        report.ancestry = relate(&repo, &old, question.new.as_deref(), lock, family, lead)?;
        let judged = report.ancestry.iter().filter_map(|ancestry| judge(ancestry, question.rule));
        findings.extend(judged);
    }
    for finding in &mut findings {
        raise(finding, workspace, strictness);
    }
    // What the clone settled is no longer open.
    report.findings.retain(|finding| {
        let open = matches!(finding.code, Code::Floating | Code::ShortRev);
        !(open && finding.wanted.as_ref().is_some_and(|wanted| settled.contains(wanted)))
    });
    report.findings.extend(findings);
    report.findings.sort_by_key(|finding| finding.severity);
    Ok(())
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

/// What was locked before, and the repository that it is from where that is known.
struct Old {
    rev: String,
    url: Option<String>,
    is_commit: bool,
}

fn relate(
    repo: &GitRepo,
    old: &Old,
    new: Option<&str>,
    lock: &LockFile,
    family: &Family,
    lead: Option<&LockedPackage>,
) -> Result<Vec<Ancestry>, Error> {
    let url = lead.and_then(|lead| lead.source.git()).map(|source| source.canonical.as_str());
    let news: Vec<(String, String)> = match (new, url) {
        (Some(rev), _) => {
            let name = lead.map_or("the family", |lead| lead.name.as_str());
            vec![(name.to_owned(), rev.to_owned())]
        }
        (None, Some(url)) => {
            let mut commits = BTreeMap::new();
            for pin in find_pins(lock, url) {
                commits.entry(pin.commit.to_owned()).or_insert_with(|| pin.package.name.clone());
            }
            commits.into_iter().map(|(commit, name)| (name, commit)).collect()
        }
        (None, None) => return Err(Error::NoFamilyCommit { family: family.name.clone() }),
    };
    let same_repository = match (&old.url, url) {
        (Some(old), Some(new)) => old == new,
        _ => true,
    };
    let relate_one = |(package, new): (String, String)| {
        let (relation, note) = if old.is_commit {
            let facts = repo.read_commit_facts(&old.rev, &new)?;
            let lacking: Vec<&str> = [(&facts.old, &old.rev), (&facts.new, &new)]
                .into_iter()
                .filter(|(found, _)| found.is_none())
                .map(|(_, rev)| rev.as_str())
                .collect();
            let note =
                (!lacking.is_empty()).then(|| format!("the clone lacks {}", lacking.join(" and ")));
            (classify(&facts, same_repository), note)
        } else {
            (Relation::RepositoryChanged, Some("the old lock does not take it from git".to_owned()))
        };
        Ok(Ancestry { package, old: old.rev.clone(), new, relation, note })
    };
    news.into_iter().map(relate_one).collect()
}

/// The family's commit in the lock of another revision of the workspace.
fn read_old(
    rev: &str,
    workspace: &Workspace,
    family: &Family,
    lead: Option<&LockedPackage>,
) -> Result<Old, Error> {
    let text = GitRepo::open(&workspace.root_dir)?.read_file_at(rev, "Cargo.lock")?;
    let lock = parse_lock(&text)
        .map_err(|error| error.text().clone().in_file(&format!("{rev}:Cargo.lock")))?;
    let lead = lead.ok_or_else(|| Error::NoFamilyPackage { family: family.name.clone() })?;
    let same_name = || lock.named(&lead.name).iter().map(|&index| &lock.packages[index]);
    let old = same_name()
        .find(|package| package.source.commit().is_some())
        .or_else(|| same_name().next())
        .ok_or_else(|| Error::NoOldPackage { rev: rev.to_owned(), package: lead.name.clone() })?;
    Ok(Old {
        rev: old.source.commit().map_or_else(|| old.describe_source(), str::to_owned),
        url: old.source.git().map(|source| source.canonical.clone()),
        is_commit: old.source.commit().is_some(),
    })
}

//! How a new commit relates to an old one. It judges facts that a clone gave; it runs no git.

use std::fmt;

use serde::Serialize;

use crate::finding::{Code, Finding, Repair, Severity, Subject};
use crate::parse::source::GitReference;

/// How a new commit relates to an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Both are the same commit.
    Same,
    /// The old one is an ancestor of the new one.
    Forward,
    /// The new one is an ancestor of the old one.
    Backward,
    /// Neither is an ancestor of the other.
    Sibling,
    /// The clone lacks one of them.
    UnknownCommit,
    /// They come from different repositories.
    RepositoryChanged,
}

impl Relation {
    /// The relation as it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Sibling => "sibling",
            Self::UnknownCommit => "unknown-commit",
            Self::RepositoryChanged => "repository-changed",
        }
    }
}

/// The relation of one package's commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ancestry {
    /// The package.
    pub package: String,
    /// The old commit, as it was given or found.
    pub old: String,
    /// The new commit.
    pub new: String,
    /// The relation.
    pub relation: Relation,
    /// What else there is to know.
    #[serde(skip)]
    pub note: Option<String>,
}

impl fmt::Display for Ancestry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { package, old, new, relation, .. } = self;
        write!(f, "ancestry: {package} {old} -> {new}: {}", relation.as_str())
    }
}

/// Which steps from the old commit to the new one are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AncestryRule {
    /// Every step is allowed; those backward and sideways are warnings.
    Tell,
    /// Only steps forward are allowed; others are errors.
    RequireAncestor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitFacts {
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
    pub(crate) old_leads_to_new: bool,
    pub(crate) new_leads_to_old: bool,
}

/// How the commits relate. What a clone lacks is unknown whatever else holds, and another repository
/// is another history.
pub(crate) fn classify(facts: &CommitFacts, same_repository: bool) -> Relation {
    match (&facts.old, &facts.new) {
        (None, _) | (_, None) => Relation::UnknownCommit,
        _ if !same_repository => Relation::RepositoryChanged,
        (Some(old), Some(new)) if old == new => Relation::Same,
        _ if facts.old_leads_to_new => Relation::Forward,
        _ if facts.new_leads_to_old => Relation::Backward,
        _ => Relation::Sibling,
    }
}

/// The finding for a relation that is not a step forward.
pub(crate) fn judge(ancestry: &Ancestry, rule: AncestryRule) -> Option<Finding> {
    let code = match ancestry.relation {
        Relation::Same | Relation::Forward => return None,
        Relation::Backward => Code::Backward,
        Relation::Sibling => Code::Sibling,
        Relation::UnknownCommit => Code::UnknownCommit,
        Relation::RepositoryChanged => Code::RepositoryChanged,
    };
    let subject = Subject::Package { name: ancestry.package.clone(), urls: Vec::new() };
    let mut finding = Finding::new(code, subject)
        .wanted(format!("a descendant of {}", ancestry.old))
        .locked(ancestry.new.clone());
    finding.note = ancestry.note.clone();
    if rule == AncestryRule::RequireAncestor {
        finding.severity = Severity::Error;
    }
    if code == Code::UnknownCommit {
        let fetch = "fetch the commit into the clone: `git -C DIR fetch --all --tags`".to_owned();
        finding.repair = Some(Repair::ByHand(fetch));
    }
    Some(finding)
}

/// What a clone says of a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PinFact {
    /// The clone lacks the locked commit.
    CommitMissing,
    /// An abbreviated revision: how many commits it may mean.
    Candidates(usize),
    /// A tag: the commit that it points at, if the clone has it.
    TagAt(Option<String>),
    /// A branch: whether the locked commit is on it, if the clone has the branch.
    OnBranch(Option<bool>),
    /// The reference needs no clone.
    Settled,
}

/// What the clone says against a pin, if anything: a code and a sentence.
pub(crate) fn judge_pin(
    reference: &GitReference,
    commit: &str,
    fact: &PinFact,
) -> Option<(Code, String)> {
    let wanted = reference.describe();
    match fact {
        PinFact::CommitMissing => {
            Some((Code::UnknownCommit, format!("{commit} is locked for {wanted}")))
        }
        PinFact::Candidates(count) if *count > 1 => {
            Some((Code::ShortRev, format!("{wanted} matches {count} commits of the clone")))
        }
        PinFact::TagAt(None) => Some((Code::Floating, format!("the clone does not have {wanted}"))),
        PinFact::TagAt(Some(now)) if now != commit => Some((
            Code::Floating,
            format!("{wanted} was moved: it points at {now} now, the lock holds {commit}"),
        )),
        PinFact::OnBranch(None) => {
            Some((Code::Floating, format!("the clone does not have {wanted}")))
        }
        PinFact::OnBranch(Some(false)) => {
            Some((Code::Floating, format!("{commit} is not on {wanted}")))
        }
        PinFact::Candidates(_)
        | PinFact::TagAt(Some(_))
        | PinFact::OnBranch(Some(true))
        | PinFact::Settled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(old: &str, new: &str, forward: bool, backward: bool) -> CommitFacts {
        let known = |id: &str| (!id.is_empty()).then(|| id.to_owned());
        CommitFacts {
            old: known(old),
            new: known(new),
            old_leads_to_new: forward,
            new_leads_to_old: backward,
        }
    }

    #[test]
    fn relations_follow_from_the_facts() {
        let classify_same = |facts: CommitFacts| classify(&facts, true);
        assert_eq!(classify_same(facts("a", "a", true, true)), Relation::Same);
        assert_eq!(classify_same(facts("a", "b", true, false)), Relation::Forward);
        assert_eq!(classify_same(facts("a", "b", false, true)), Relation::Backward);
        assert_eq!(classify_same(facts("a", "b", false, false)), Relation::Sibling);
        assert_eq!(classify_same(facts("", "b", true, false)), Relation::UnknownCommit);
        assert_eq!(classify(&facts("a", "", true, false), false), Relation::UnknownCommit);
        assert_eq!(classify(&facts("a", "a", true, true), false), Relation::RepositoryChanged);
    }

    #[test]
    fn unknown_never_passes_and_the_rest_only_where_it_may() {
        let severity = |relation, rule| {
            let ancestry = Ancestry {
                package: "c".to_owned(),
                old: "a".to_owned(),
                new: "b".to_owned(),
                relation,
                note: None,
            };
            judge(&ancestry, rule).map(|finding| finding.severity)
        };
        use AncestryRule::{RequireAncestor, Tell};
        for relation in [Relation::Backward, Relation::Sibling, Relation::RepositoryChanged] {
            assert_eq!(severity(relation, Tell), Some(Severity::Warning));
            assert_eq!(severity(relation, RequireAncestor), Some(Severity::Error));
        }
        assert_eq!(severity(Relation::UnknownCommit, Tell), Some(Severity::Error));
        assert_eq!(severity(Relation::Forward, RequireAncestor), None);
        assert_eq!(severity(Relation::Same, RequireAncestor), None);
    }

    #[test]
    fn a_clone_settles_tags_branches_and_abbreviations() {
        let tag = GitReference::Tag("v2".to_owned());
        let moved = judge_pin(&tag, "aaa", &PinFact::TagAt(Some("bbb".to_owned()))).unwrap();
        assert_eq!(moved.0, Code::Floating);
        assert!(moved.1.contains("was moved"), "{}", moved.1);
        assert_eq!(judge_pin(&tag, "aaa", &PinFact::TagAt(Some("aaa".to_owned()))), None);
        let branch = GitReference::Branch("main".to_owned());
        assert!(judge_pin(&branch, "aaa", &PinFact::OnBranch(Some(false))).is_some());
        assert_eq!(judge_pin(&branch, "aaa", &PinFact::OnBranch(Some(true))), None);
        let rev = GitReference::Rev("2d77".to_owned());
        assert_eq!(judge_pin(&rev, "aaa", &PinFact::Candidates(2)).unwrap().0, Code::ShortRev);
        assert_eq!(judge_pin(&rev, "aaa", &PinFact::Candidates(1)), None);
        assert_eq!(judge_pin(&rev, "aaa", &PinFact::CommitMissing).unwrap().0, Code::UnknownCommit);
    }
}

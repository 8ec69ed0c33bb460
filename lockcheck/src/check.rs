//! The check: a workspace against its lock. It takes values and returns findings; it reads and
//! prints nothing.

use serde::Serialize;

use crate::ancestry::Ancestry;
use crate::finding::{Code, Finding, Repair, Severity, Subject};
use crate::parse::lockfile::{LockError, LockFile, parse_lock};
use crate::parse::spanned::TextError;
use crate::parse::workspace::Workspace;
use crate::repair::render_repair;

mod context;
mod dependencies;
mod entries;
mod graph;
mod patches;
mod settings;

pub use context::Scope;
use context::{Anchors, Context};

/// What warnings count as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Warnings.
    Warn,
    /// Errors.
    Deny,
}

/// How the check of one workspace ended.
#[derive(Debug)]
pub struct Report {
    /// The root manifest, as it is shown.
    pub manifest: String,
    /// The lock, as it is shown.
    pub lock: String,
    /// What repairs pass as `--manifest-path`, if anything.
    pub manifest_path: Option<String>,
    /// The family that was asked for; none where everything was.
    pub family: Option<String>,
    /// What was found: errors first, the first family's before others.
    pub findings: Vec<Finding>,
    /// How much was looked at.
    pub counts: Counts,
    /// How locked commits relate to older ones, where that was asked.
    pub ancestry: Vec<Ancestry>,
    /// The lock, where it could be read.
    pub(crate) lock_file: Option<LockFile>,
}

impl Report {
    /// Whether lock and manifests agree. Warnings are not a disagreement.
    pub fn agrees(&self) -> bool {
        self.count(Severity::Error) == 0
    }

    /// How many findings are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// The repair of a finding as a command line, or as a sentence where no command helps.
    pub fn fix(&self, finding: &Finding) -> Option<String> {
        let repair = finding.repair.as_ref()?;
        Some(render_repair(repair, self.manifest_path.as_deref()))
    }
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The version of the lock; 0 where it could not be read.
    pub lock_version: u32,
    /// Members of the workspace.
    pub members: usize,
    /// Declared dependencies that were compared with the lock.
    pub pins: usize,
    /// Packages of the lock that were looked at.
    pub packages: usize,
}

/// Checks a workspace against its lock. A missing or broken lock is a finding, not an error.
pub fn check(workspace: &Workspace, scope: Scope<'_>, strictness: Strictness) -> Report {
    let families = workspace.settings.all_families();
    let mut counts = Counts { members: workspace.members().count(), ..Counts::default() };
    let (lock_file, mut findings, anchors) = match read_lock(workspace.lock_text.as_deref()) {
        Err(finding) => (None, vec![*finding], Anchors::default()),
        Ok(lock) => {
            let anchors = Anchors::new(&families, workspace, &lock);
            let context =
                Context { workspace, lock: &lock, families: &families, anchors: &anchors, scope };
            let findings = check_lock(&context, &mut counts);
            (Some(lock), findings, anchors)
        }
    };
    findings.extend(settings::check_settings(workspace));
    findings.retain(|finding| is_in_scope(finding, scope, &anchors));
    for finding in &mut findings {
        let counts_here = match scope {
            Scope::Everything => true,
            Scope::Only(family) => {
                finding.subject == Subject::Lock || anchors.holds(family, &finding.subject)
            }
        };
        if counts_here {
            raise(finding, workspace, strictness);
        }
    }
    let place = |finding: &Finding| {
        families.iter().position(|family| anchors.holds(family, &finding.subject))
    };
    findings.sort_by_cached_key(|finding| {
        let family = place(finding).unwrap_or(usize::MAX);
        (finding.severity, family, finding.code, finding.at.clone(), finding.package().to_owned())
    });
    Report {
        manifest: workspace.manifest.clone(),
        lock: workspace.lock.clone(),
        manifest_path: None,
        family: match scope {
            Scope::Everything => None,
            Scope::Only(family) => Some(family.name.clone()),
        },
        findings,
        counts,
        ancestry: Vec::new(),
        lock_file,
    }
}

/// Makes a finding an error where warnings are, or where the workspace denies its code.
pub(crate) fn raise(finding: &mut Finding, workspace: &Workspace, strictness: Strictness) {
    if strictness == Strictness::Deny || workspace.settings.deny.contains(&finding.code) {
        finding.severity = Severity::Error;
    }
}

/// Whether a finding is shown. Where one family is asked for, so are findings about the lock as a
/// whole and about settings; an unused patch is a setting, too, as it may have been meant for the
/// family.
fn is_in_scope(finding: &Finding, scope: Scope<'_>, anchors: &Anchors) -> bool {
    let Scope::Only(family) = scope else { return true };
    matches!(finding.subject, Subject::Lock | Subject::Workspace)
        || finding.code == Code::PatchUnused
        || anchors.holds(family, &finding.subject)
}

fn read_lock(text: Option<&str>) -> Result<LockFile, Box<Finding>> {
    let Some(text) = text else {
        let finding = Finding::new(Code::NoLock, Subject::Lock).repair(Repair::GenerateLock);
        return Err(Box::new(finding));
    };
    parse_lock(text).map_err(|error| {
        let repair = match &error {
            LockError::Broken(_) => Repair::RestoreLock,
            LockError::UnknownVersion(_) => Repair::ByHand(
                "lock with a cargo that writes a known version, or check with a newer lockcheck"
                    .to_owned(),
            ),
        };
        Box::new(report_broken(error.text(), repair))
    })
}

fn report_broken(error: &TextError, repair: Repair) -> Finding {
    let mut finding = Finding::new(Code::LockParse, Subject::Lock).note(error.message.clone());
    finding.lock_line = error.line;
    finding.repair(repair)
}

fn check_lock(context: &Context<'_>, counts: &mut Counts) -> Vec<Finding> {
    let problems = context.lock.problems.iter();
    let mut findings: Vec<Finding> =
        problems.map(|problem| report_broken(problem, Repair::RestoreLock)).collect();
    let states = patches::find_states(context);
    let matching = dependencies::match_dependencies(context, &states);
    findings.extend(patches::check_patches(context, &states));
    findings.extend(patches::check_replaces(context));
    findings.extend(entries::check_entries(context, &matching));
    findings.extend(graph::check_graph(context, &matching));
    counts.lock_version = context.lock.version;
    match context.scope {
        Scope::Everything => {
            counts.pins = matching.pins.len();
            counts.packages = context.lock.packages.len();
        }
        Scope::Only(family) => {
            let of_family = |subject: &&Subject| context.anchors.holds(family, subject);
            counts.pins = matching.pins.iter().filter(of_family).count();
            counts.packages = (0..context.lock.packages.len())
                .filter(|&index| context.anchors.holds(family, &context.subject_of(index)))
                .count();
        }
    }
    findings.extend(matching.findings);
    findings
}

#[cfg(test)]
mod tests;

//! The lock as a graph: what nothing reaches, what leads nowhere, what is there more than once.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::context::{Context, Matching, Scope, subject};
use crate::finding::{Code, Finding, Location, Repair};
use crate::parse::family::Family;
use crate::parse::lockfile::PackageIndex;
use crate::parse::workspace::Want;

pub(super) fn check_graph(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let mut findings = check_orphans(context, matching);
    findings.extend(check_dangling(context, matching));
    findings.extend(check_duplicates(context, matching));
    findings.extend(check_mixed_pins(context, matching));
    findings
}

fn check_orphans(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let packages = &context.lock.packages;
    let is_claimed = |from: PackageIndex, to: PackageIndex| {
        !matching.declared.contains(&from) || matching.claimed.contains(&(from, to))
    };
    let mut reached: HashSet<PackageIndex> = matching.declared.clone();
    let mut stack: Vec<PackageIndex> = reached.iter().copied().collect();
    while let Some(from) = stack.pop() {
        let edges = packages[from].dependencies.iter().filter(|&&to| is_claimed(from, to));
        for &to in edges.chain(&packages[from].replacement) {
            if reached.insert(to) {
                stack.push(to);
            }
        }
    }
    // Edges of known packages that no manifest declares, by what they lead to.
    let mut undeclared: BTreeMap<PackageIndex, Vec<&str>> = BTreeMap::new();
    for &from in &matching.declared {
        for &to in packages[from].dependencies.iter().filter(|&&to| !is_claimed(from, to)) {
            undeclared.entry(to).or_default().push(&packages[from].name);
        }
    }
    let unreached = (0..packages.len()).filter(|index| !reached.contains(index));
    let orphans: BTreeSet<PackageIndex> = unreached.chain(undeclared.keys().copied()).collect();
    orphans
        .into_iter()
        .map(|index| {
            let note = match undeclared.get_mut(&index) {
                Some(names) => {
                    names.sort_unstable();
                    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                    format!("the entry of {} lists it, but its manifest does not", names.join(", "))
                }
                None => "nothing that the manifests declare depends on it".to_owned(),
            };
            let package = &packages[index];
            Finding::new(Code::Orphan, context.subject_of(index))
                .lock_line(package.line)
                .locked(package.describe())
                .note(note)
                .repair(Repair::UpdateWorkspace)
        })
        .collect()
}

/// Edges that name no entry. Those of known packages are missing dependencies already.
fn check_dangling(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let packages = context.lock.packages.iter().enumerate();
    packages
        .filter(|(index, _)| !matching.declared.contains(index))
        .flat_map(|(index, package)| {
            package.dangling.iter().map(move |edge| {
                let name = edge.split(' ').next().unwrap_or(edge);
                let mut urls: Vec<&str> = Vec::new();
                urls.extend(context.lock.packages[index].source.canonical());
                Finding::new(Code::Missing, subject(name, urls.into_iter().map(Some)))
                    .lock_line(package.line)
                    .wanted(edge.clone())
                    .note(format!("the entry of `{}` lists it", package.name))
                    .repair(Repair::UpdateWorkspace)
            })
        })
        .collect()
}

/// One name from several sources, or of a family more than once.
fn check_duplicates(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let packages = &context.lock.packages;
    let mut by_name: BTreeMap<&str, Vec<PackageIndex>> = BTreeMap::new();
    for (index, package) in packages.iter().enumerate() {
        // What `[replace]` replaced is not built.
        if package.replacement.is_none() {
            by_name.entry(&package.name).or_default().push(index);
        }
    }
    let mut findings = Vec::new();
    for (name, indexes) in by_name.into_iter().filter(|(_, indexes)| indexes.len() > 1) {
        let sources: BTreeSet<Option<&str>> =
            indexes.iter().map(|&index| packages[index].source.canonical()).collect();
        let of_family = indexes.iter().any(|&index| context.family_of(index).is_some());
        if !of_family && sources.len() == 1 {
            continue;
        }
        let held: Vec<String> = indexes
            .iter()
            .map(|&index| {
                let package = &packages[index];
                format!(
                    "{} ({}) for {}",
                    package.version,
                    package.describe_source(),
                    render_dependents(context, index)
                )
            })
            .collect();
        let about = subject(name, sources);
        let mut finding = Finding::new(Code::Dup, about)
            .lock_line(packages[indexes[0]].line)
            .locked(held.join("; "));
        finding.at = indexes.iter().find_map(|index| matching.places.get(index)).cloned();
        findings.push(finding);
    }
    findings
}

/// Who pulls a package in: at most four names.
fn render_dependents(context: &Context<'_>, index: PackageIndex) -> String {
    let mut names: Vec<&str> = context
        .lock
        .packages
        .iter()
        .filter(|package| package.dependencies.contains(&index))
        .map(|package| package.name.as_str())
        .collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(4);
    names.truncate(4);
    match (names.is_empty(), more) {
        (true, _) => "nothing".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// A family of which one repository is locked at several revisions, or which is pinned to several
/// exact versions.
fn check_mixed_pins(context: &Context<'_>, matching: &Matching) -> Vec<Finding> {
    let families = context.families.iter().filter(|family| match context.scope {
        Scope::Everything => true,
        Scope::Only(only) => *family == only,
    });
    let mut findings = Vec::new();
    for family in families {
        // Revision, then the places where it is used, by repository.
        let mut repositories: BTreeMap<&str, BTreeMap<String, Vec<PackageIndex>>> = BTreeMap::new();
        for (index, package) in context.lock.packages.iter().enumerate() {
            let Some(source) = package.source.git() else { continue };
            if context.anchors.contains(family, &package.name, [source.canonical.as_str()]) {
                let revisions = repositories.entry(&source.canonical).or_default();
                revisions.entry(package.describe_source()).or_default().push(index);
            }
        }
        for (url, revisions) in repositories.into_iter().filter(|(_, it)| it.len() > 1) {
            let held: Vec<String> = revisions
                .iter()
                .map(|(revision, indexes)| {
                    let names: Vec<&str> =
                        indexes.iter().map(|&index| &*context.lock.packages[index].name).collect();
                    format!("{revision} for {}", names.join(", "))
                })
                .collect();
            let first = revisions.values().flatten().min().copied().unwrap_or_default();
            let about = subject(&context.lock.packages[first].name, [Some(url)]);
            let mut finding = Finding::new(Code::MixedPins, about)
                .lock_line(context.lock.packages[first].line)
                .locked(held.join("; "));
            let places = revisions.values().flatten().find_map(|index| matching.places.get(index));
            finding.at = places.cloned();
            findings.push(finding);
        }
        findings.extend(check_mixed_versions(context, family));
    }
    findings
}

fn check_mixed_versions(context: &Context<'_>, family: &Family) -> Option<Finding> {
    let mut versions: BTreeMap<String, (&str, &Location)> = BTreeMap::new();
    for dependency in context.workspace.packages.iter().flat_map(|package| &package.dependencies) {
        let (Want::Registry(url), Some(req)) = (&dependency.want, &dependency.req) else {
            continue;
        };
        let exact = matches!(req.comparators.as_slice(), [one] if one.op == semver::Op::Exact);
        if exact && context.anchors.contains(family, &dependency.name, [url.as_str()]) {
            versions.entry(req.to_string()).or_insert((&dependency.name, &dependency.at));
        }
    }
    if versions.len() < 2 {
        return None;
    }
    let pins: Vec<String> =
        versions.iter().map(|(version, (name, _))| format!("{name} {version}")).collect();
    let (name, at) = versions.values().next().copied()?;
    Some(
        Finding::new(Code::MixedPins, subject(name, []))
            .at(at)
            .wanted(pins.join("; "))
            .note("the family is pinned to several exact versions"),
    )
}

//! The shared cases: real repositories and minimal trees, without any sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use testkit::{Command, shared_data};

use crate::LOCKCHECK;

/// The rows of a `CASES.tsv`, by column name.
fn read_rows(cases: &Path) -> Vec<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(cases.join("CASES.tsv")).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split('\t').collect();
    lines
        .map(|line| {
            header
                .iter()
                .map(|&it| it.to_owned())
                .zip(line.split('\t').map(str::to_owned))
                .collect()
        })
        .collect()
}

struct Ran {
    exit_code: i32,
    errors: BTreeSet<String>,
    warnings: BTreeSet<String>,
    /// The packages of each code.
    packages: BTreeMap<String, BTreeSet<String>>,
    members: u64,
}

/// Runs the check as a program would, with no cargo and no git to be found.
fn verify(manifest: &Path, args: &[&str]) -> Ran {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(LOCKCHECK, home.path())
        .args(["--json", "--manifest-path"])
        .args([manifest])
        .args(args)
        .env("CARGO_HOME", home.path())
        .env("PATH", "")
        .run();
    let report = output.json();
    let mut ran = Ran {
        exit_code: output.code.unwrap(),
        errors: BTreeSet::new(),
        warnings: BTreeSet::new(),
        packages: BTreeMap::new(),
        members: report["workspaces"][0]["members"].as_u64().unwrap(),
    };
    for finding in report["findings"].as_array().unwrap() {
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        let set = if text("severity") == "error" { &mut ran.errors } else { &mut ran.warnings };
        set.insert(text("code"));
        ran.packages.entry(text("code")).or_default().insert(text("package"));
    }
    assert_eq!(report["verdict"] == "agree", ran.exit_code == 0, "{}", manifest.display());
    ran
}

fn exit_code_of(verdict: &str) -> i32 {
    match verdict {
        "agree" => 0,
        "disagree" => 1,
        other => panic!("unknown verdict `{other}`"),
    }
}

#[test]
fn every_synthetic_case_has_its_verdict_and_exactly_its_errors() {
    let Some(cases) = shared_data("lock-cases/synthetic") else { return };
    let rows = read_rows(&cases);
    assert_eq!(rows.len(), 75);
    let mut wrong = Vec::new();
    for row in &rows {
        let ran = verify(&cases.join(&row["name"]).join("Cargo.toml"), &[]);
        let verdict = row["expected"].split(':').nth(1).unwrap().trim();
        let codes = row["codes"].split(',').filter(|code| *code != "-").map(str::to_owned);
        let (errors, warnings): (BTreeSet<_>, BTreeSet<_>) =
            codes.partition(|code| code.starts_with('E'));
        let as_expected = ran.exit_code == exit_code_of(verdict)
            && ran.errors == errors
            && ran.warnings.is_superset(&warnings);
        if !as_expected {
            wrong.push(format!(
                "{}: exit {}, errors {:?}, warnings {:?}",
                row["name"], ran.exit_code, ran.errors, ran.warnings
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_real_case_has_its_verdicts_members_and_warnings() {
    let Some(cases) = shared_data("lock-cases/real") else { return };
    let rows = read_rows(&cases);
    assert_eq!(rows.len(), 22);
    let mut wrong = Vec::new();
    for row in &rows {
        let manifest = cases.join(&row["name"]).join(&row["root"]).join("Cargo.toml");
        let (full, candle) = (verify(&manifest, &[]), verify(&manifest, &["--only", "candle"]));
        let verdicts = (full.exit_code, candle.exit_code);
        let expected =
            (exit_code_of(&row["verdict_full_lock"]), exit_code_of(&row["verdict_candle_only"]));
        if verdicts != expected {
            wrong.push(format!("{}: exits {verdicts:?}, not {expected:?}", row["name"]));
        }
        if full.members.to_string() != row["members"] {
            wrong.push(format!("{}: {} members", row["name"], full.members));
        }
        for warning in row["candle_warnings"].split(';').filter(|warning| *warning != "-") {
            let (kind, what) = warning.split_once(' ').unwrap();
            let (code, package) = match kind {
                "duplicate" => ("W-DUP", Some(what)),
                "patch-unused" => ("W-PATCH-UNUSED", Some(what)),
                "mixed-revs" => ("W-MIXED-PINS", None),
                other => panic!("unknown warning `{other}`"),
            };
            for ran in [&full, &candle] {
                let packages = ran.packages.get(code);
                let found = packages.is_some_and(|packages| {
                    package.is_none_or(|package| packages.contains(package))
                });
                if !found {
                    wrong.push(format!("{}: no {code} for {what}", row["name"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

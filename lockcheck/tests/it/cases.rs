//! Small trees, one phenomenon each: verdict, codes, and the report word for word. A case is a file in
//! `tests/cases/` with what is expected and the files of the tree; its report is the snapshot beside
//! it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use testkit::{Ran, Workspace};

use crate::LOCKCHECK;

struct Case {
    name: String,
    args: Vec<String>,
    errors: BTreeSet<String>,
    warnings: BTreeSet<String>,
    files: Vec<(String, String)>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn parse_case(path: &Path) -> Case {
    let text = std::fs::read_to_string(path).unwrap();
    let mut head = String::new();
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let name = line.trim_end().strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --"));
        match (name, sections.last_mut()) {
            (Some(name), _) => sections.push((name.to_owned(), String::new())),
            (None, Some((_, body))) => body.push_str(line),
            (None, None) => head.push_str(line),
        }
    }
    let field = |name: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        words(found.unwrap_or_else(|| panic!("{}: no `{name}:`", path.display())))
    };
    Case {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        args: field("args"),
        errors: field("errors").into_iter().collect(),
        warnings: field("warnings").into_iter().collect(),
        files: sections,
    }
}

/// A tree in a folder of its own.
fn write_tree(files: &[(String, String)]) -> Workspace {
    let tree = Workspace::empty(LOCKCHECK);
    for (name, body) in files {
        tree.write(name, body);
    }
    tree
}

/// Runs the check in a tree, with no cargo and no git to be found.
fn verify(tree: &Workspace, args: &[&str]) -> Ran {
    tree.command(args).env("CARGO_HOME", tree.path("no-cargo-home")).env("PATH", "").run()
}

fn all_cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths.iter().map(|path| parse_case(path)).collect()
}

/// Writes the tree of one case.
fn write_case(name: &str) -> Workspace {
    let case = all_cases().into_iter().find(|case| case.name == name).unwrap();
    write_tree(&case.files)
}

/// Snapshots lie beside their cases, under their names alone.
fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../cases");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn every_case_has_its_codes_and_its_report() {
    let settings = snapshots();
    let mut wrong = Vec::new();
    for case in all_cases() {
        let tree = write_tree(&case.files);
        let args: Vec<&str> = case.args.iter().map(String::as_str).collect();
        let report = verify(&tree, &[&args[..], &["--json"]].concat()).json();
        let codes = |severity: &str| -> BTreeSet<String> {
            let findings = report["findings"].as_array().unwrap();
            let of_severity = findings.iter().filter(|it| it["severity"] == severity);
            of_severity.map(|it| it["code"].as_str().unwrap().to_owned()).collect()
        };
        let name = &case.name;
        if codes("error") != case.errors || codes("warning") != case.warnings {
            wrong.push(format!("{name}: {:?}, {:?}", codes("error"), codes("warning")));
        }
        let human = verify(&tree, &args);
        let expected_exit = if case.errors.is_empty() { 0 } else { 1 };
        if human.code != Some(expected_exit) {
            wrong.push(format!("{name}: exit {:?}", human.code));
        }
        settings.bind(|| insta::assert_snapshot!(name.as_str(), human.stdout));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The codes that need a clone have their cases in `clone.rs`.
const NEED_A_CLONE: [&str; 4] =
    ["E-UNKNOWN-COMMIT", "W-BACKWARD", "W-SIBLING", "W-REPOSITORY-CHANGED"];

#[test]
fn every_code_of_the_documentation_has_a_case() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/VERIFY-LOCK.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let documented: BTreeSet<String> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .map(str::to_owned)
        .collect();
    let covered: BTreeSet<String> = all_cases()
        .into_iter()
        .flat_map(|case| case.errors.into_iter().chain(case.warnings))
        .chain(NEED_A_CLONE.map(str::to_owned))
        .collect();
    assert_eq!(documented, covered);
}

#[test]
fn the_help_teaches_with_examples() {
    let tree = Workspace::empty(LOCKCHECK);
    let help = tree.command(&["--help"]).env_remove("COLUMNS").run().exits_with(0).stdout;
    snapshots().bind(|| insta::assert_snapshot!("help", help));
}

#[test]
fn annotations_name_file_line_and_code() {
    let ran = verify(&write_case("e-version"), &["--github"]).exits_with(1);
    assert_eq!(
        ran.stdout.lines().next().unwrap(),
        "::error file=Cargo.toml,line=7,title=E-VERSION candle-core::the locked version does not \
         meet the requirement%0Alocked: candle-core 0.9.1 \
         (registry+https://github.com/rust-lang/crates.io-index)%0Awanted: candle-core \
         =0.9.2%0Afix: cargo update -p candle-core"
    );
}

#[test]
fn json_has_a_verdict_and_every_field_of_a_finding() {
    let args = ["--json", "--manifest-path", "./Cargo.toml"];
    let report = verify(&write_case("e-rev"), &args).json();
    assert_eq!(report["verdict"], "disagree");
    assert_eq!(report["errors"], 2);
    let finding = &report["findings"][0];
    for (key, value) in [
        ("code", "E-REV"),
        ("package", "candle-core"),
        ("manifest", "Cargo.toml"),
        ("section", "[dependencies]"),
        ("fix", "cargo update -p candle-core --manifest-path ./Cargo.toml"),
        ("verdict", "disagree"),
    ] {
        assert_eq!(finding[key], value, "{key}");
    }
    assert_eq!(finding["line"], 7);
    assert!(finding["wanted"].as_str().unwrap().ends_with(&"b2".repeat(20)));
    assert!(finding["locked"].as_str().unwrap().ends_with(&"a1".repeat(20)));
}

/// A copy of the manifests and the lock of the workspace that these tests are in.
fn copy_own_workspace() -> Workspace {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let copy = Workspace::empty(LOCKCHECK);
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let manifests = members.iter().map(|it| format!("{}/Cargo.toml", it.as_str().unwrap()));
    for name in ["Cargo.toml".to_owned(), "Cargo.lock".to_owned()].into_iter().chain(manifests) {
        copy.write(&name, std::fs::read(root.join(&name)).unwrap());
    }
    copy
}

#[test]
fn the_own_workspace_agrees_and_a_bumped_copy_does_not() {
    let copy = copy_own_workspace();
    verify(&copy, &["--strict"]).exits_with(0);
    let manifest = copy.read("Cargo.toml");
    let pin = manifest.lines().find(|line| line.starts_with("candle-core = ")).unwrap();
    let version = pin.split('"').nth(1).unwrap();
    assert!(version.starts_with('='), "candle is pinned exactly: {pin}");

    copy.edit("Cargo.toml", pin, &pin.replace(version, "=99.0.0"));
    let report = verify(&copy, &["--json"]).json();
    assert_eq!(report["verdict"], "disagree");
    let findings = report["findings"].as_array().unwrap();
    let codes: BTreeSet<&str> = findings
        .iter()
        .filter(|finding| finding["severity"] == "error")
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    // The bump disagrees with the lock, and with the pins of the other candle crates.
    assert_eq!(codes, BTreeSet::from(["E-VERSION", "W-MIXED-PINS"]));
    let version = findings.iter().find(|finding| finding["code"] == "E-VERSION").unwrap();
    assert_eq!(version["package"], "candle-core");
    assert_eq!(version["manifest"], "Cargo.toml");
    assert_eq!(version["fix"], "cargo update -p candle-core");
}

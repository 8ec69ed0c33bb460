//! The pages of the project, held to what they speak of: links, commands, tracked results.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use testkit::{Command, Workspace};

use crate::XTASK;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files that git knows. A sweep that was just run leaves others, which are its user's business.
fn tracked(folder: &str) -> Vec<String> {
    let args = ["ls-files", "--cached", "--", folder];
    let listed = Command::new("git", repository()).args(args).run().exits_with(0).stdout;
    listed.lines().map(str::to_owned).collect()
}

fn pages() -> Vec<String> {
    let all = tracked(".");
    let pages: Vec<String> = all
        .into_iter()
        .filter(|path| path.ends_with(".md") && repository().join(path).exists())
        .collect();
    assert!(pages.contains(&"README.md".to_owned()), "{pages:?}");
    pages
}

/// A page without its code, in which brackets are no links.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            kept.extend(line.split('`').step_by(2));
            kept.push('\n');
        }
    }
    kept
}

/// What `](…)` leads to.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a page, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    heads
        .map(|head| {
            let head = head.trim_start_matches('#').trim().to_lowercase();
            let kept = head.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// Links of a page that lead to nothing.
fn find_broken(page: &str, text: &str) -> Vec<String> {
    let folder = repository().join(page).parent().unwrap().to_owned();
    let is_broken = |link: &String| {
        if link.contains("://") {
            return false;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { repository().join(page) } else { folder.join(path) };
        let has_anchor = || {
            let text = std::fs::read_to_string(&target).unwrap_or_default();
            anchors(&text).contains(anchor)
        };
        !target.exists() || !(anchor.is_empty() || has_anchor())
    };
    links(text).into_iter().filter(is_broken).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(repository().join(&page)).unwrap();
        let broken = find_broken(&page, &text);
        assert!(broken.is_empty(), "{page}: {broken:?}");
        seen += links(&text).len();
    }
    assert!(seen > 20, "{seen} links");
}

#[test]
fn a_broken_link_is_found() {
    let text =
        "[a](docs/NONE.md) [b](docs/FORMATS.md#none) [c](docs/FORMATS.md#the-csv) `[d](e)`\n";
    assert_eq!(find_broken("README.md", text), ["docs/NONE.md", "docs/FORMATS.md#none"]);
}

#[test]
fn the_tour_has_every_command() {
    let help = Workspace::empty(XTASK).run(&["--help"]).exits_with(0).stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let commands: BTreeSet<&str> = commands
        .lines()
        .filter(is_name)
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| *name != "help")
        .collect();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let in_tour: BTreeSet<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `cargo xtask "))
        .map(|rest| rest.split([' ', '`']).next().unwrap())
        .collect();
    assert_eq!(in_tour, commands);
}

#[test]
fn every_tracked_result_is_explained() {
    let readme = std::fs::read_to_string(repository().join("benchmarks/README.md")).unwrap();
    let results = tracked("benchmarks");
    let explained = results.iter().filter_map(|path| {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts[..] {
            ["README.md"] => None,
            ["ab", folder, ..] => Some(folder.to_owned()),
            ["prereg", ladder, run, ..] => Some(format!("prereg/{ladder}/{run}")),
            [file, ..] => Some(file.trim_end_matches(".journal.jsonl").to_owned()),
            [] => None,
        }
    });
    let explained: BTreeSet<String> = explained.collect();
    assert!(explained.len() > 3, "{explained:?}");
    for name in explained {
        assert!(readme.contains(&format!("`{name}`")), "benchmarks/README.md has no `{name}`");
    }
}

#[test]
fn the_picture_is_what_its_command_draws() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let command = readme.split('`').find(|code| code.ends_with(" --out docs/sweep.svg"));
    let command = command.expect("the README says how its picture is drawn");
    let csv = command.strip_prefix("cargo xtask report ").unwrap();
    let csv = csv.strip_suffix(" --out docs/sweep.svg").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let drawn = folder.path().join("sweep.svg");
    Command::new(XTASK, repository())
        .args(["report", csv, "--out", &drawn.to_string_lossy()])
        .run()
        .exits_with(0);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert!(
        read(&drawn) == read(&repository().join("docs/sweep.svg")),
        "docs/sweep.svg is not what is drawn today; draw it again: {command}"
    );
}

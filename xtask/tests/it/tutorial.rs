//! docs/TUTORIAL.md, run block by block: files are written, commands run in order, and what they
//! print is what the page says.
//!
//! A block is either `console`, with commands after `$ ` and their output below each, or a file, whose
//! path follows the language. Dates, times, hashes and the machine's name may differ. To paste the
//! present output into the page:
//!
//! ```sh
//! SNAPSHOTS=overwrite cargo test -p xtask --test it tutorial
//! ```

use std::path::{Path, PathBuf};

use regex::Regex;
use snapbox::Redactions;
use testkit::{Command, Workspace};

use crate::XTASK;

/// A block of the page.
#[derive(Debug, PartialEq)]
enum Block {
    /// The text of a file.
    File { path: String, text: String },
    /// Commands, each with the output that the page shows.
    Console(Vec<Step>),
}

#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    output: String,
}

/// A part of the page: text between blocks as it is, or a block.
#[derive(Debug, PartialEq)]
enum Part {
    Prose(String),
    Block(Block),
}

/// Takes the page apart.
///
/// # Panics
/// At a block that nothing would run.
fn parse_page(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut prose = String::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        prose.push_str(line);
        prose.push('\n');
        let Some(info) = line.strip_prefix("```") else { continue };
        let text: String = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .fold(String::new(), |text, line| text + line + "\n");
        let block = match info.split_once(' ') {
            Some((_, path)) => Block::File { path: path.to_owned(), text },
            None if info == "console" => Block::Console(parse_console(&text)),
            None => panic!("line {}: a block `{info}` that is not run", index + 1),
        };
        parts.push(Part::Prose(std::mem::take(&mut prose)));
        parts.push(Part::Block(block));
        prose.push_str("```\n");
    }
    parts.push(Part::Prose(prose));
    parts
}

fn parse_console(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                steps.push(Step { command: command.to_owned(), output: String::new() });
            }
            (None, Some(step)) => step.output += &format!("{line}\n"),
            (None, None) => panic!("output before any command: {line}"),
        }
    }
    steps
}

fn render_page(parts: &[Part]) -> String {
    let render_step = |step: &Step| format!("$ {}\n{}", step.command, step.output);
    parts
        .iter()
        .map(|part| match part {
            Part::Prose(text) | Part::Block(Block::File { text, .. }) => text.clone(),
            Part::Block(Block::Console(steps)) => steps.iter().map(render_step).collect(),
        })
        .collect()
}

/// What differs from run to run and from machine to machine.
fn redactions() -> Redactions {
    let mut redactions = Redactions::new();
    for (name, pattern) in [
        ("[DATE]", r"\d{4}-\d\d-\d\d"),
        ("[TIME]", r"\d+\.\d s\b|\d+ s left|\d+\.\d of 5 min"),
        ("[MACHINE]", r"(?P<redacted>(cpu|cuda|metal)_[a-z0-9]+)_toy"),
        ("[MEMORY]", r"peak resident MiB *(?P<redacted>\|[ .0-9|]+)"),
        ("[PEAK]", r"tiny,16384,[^,]*,[^,]*,(?P<redacted>\d*),"),
        ("[PEAK]", r"16384  \S+  \w+ +(?P<redacted>\d+)"),
        ("[HASH]", r"\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b"),
        ("[COMMIT]", r"(?:commit |,)(?P<redacted>[0-9a-f]{7,10})\b"),
        ("[COMMIT]", r"(?P<redacted>[0-9a-f]{10}) was frozen"),
    ] {
        redactions.insert(name, Regex::new(pattern).unwrap()).unwrap();
    }
    redactions
}

/// Output without what says that the machine was busy: such runs are repeated.
fn without_disturbances(text: &str) -> String {
    let is_kept = |line: &&str| !line.contains(": rejected and repeated: ");
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// A checkout with what the page needs, and a `cargo` that runs the tested binary.
fn make_checkout() -> Workspace {
    let checkout = Workspace::new(XTASK, &[]);
    copy_folder(&repository().join("bench-configs"), &checkout.path("bench-configs"));
    for folder in ["engines", "target"] {
        std::fs::create_dir(checkout.path(folder)).unwrap();
    }
    checkout.write(".gitignore", "/target\n/bin\n/benchmarks/.oom-record\n");
    let run = format!("[ \"$1\" = xtask ] || exit 64\nshift\nexec '{XTASK}' \"$@\"");
    checkout.write_program("bin/cargo", &run);
    checkout.commit("start");
    checkout
}

/// What a command of the page prints, on both streams in order.
fn run_in_shell(checkout: &Workspace, command: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let root = checkout.root().canonicalize().unwrap();
    let mut sh = Command::new("sh", &root)
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .env_remove("TOY_FUSED")
        .env("PATH", format!("{}:{path}", root.join("bin").display()));
    for role in ["AUTHOR", "COMMITTER"] {
        sh = sh.env(format!("GIT_{role}_NAME"), "tutorial");
        sh = sh.env(format!("GIT_{role}_EMAIL"), "tutorial@example.invalid");
    }
    sh.run().stdout.replace(&*root.to_string_lossy(), ".")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn every_block_of_the_tutorial_does_what_the_page_says() {
    let path = repository().join("docs/TUTORIAL.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let checkout = make_checkout();
    let mut parts = parse_page(&page);
    for part in &mut parts {
        match part {
            Part::Prose(_) => {}
            Part::Block(Block::File { path, text }) => {
                checkout.write(path, text);
            }
            Part::Block(Block::Console(steps)) => {
                for step in steps {
                    let output = run_in_shell(&checkout, &step.command);
                    step.output = without_disturbances(&output);
                }
            }
        }
    }
    let now = render_page(&parts);
    if std::env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite") {
        std::fs::write(&path, &now).unwrap();
        return;
    }
    let redactions = redactions();
    let (page, now) = (redactions.redact(&page), redactions.redact(&now));
    let diff = similar::TextDiff::from_lines(&page, &now);
    let diff = diff.unified_diff().context_radius(2).header("the page", "the commands").to_string();
    assert!(
        diff.is_empty(),
        "docs/TUTORIAL.md is not what its commands print; SNAPSHOTS=overwrite pastes it:\n{diff}"
    );
}

#[test]
fn a_page_is_taken_apart_and_put_together_again() {
    let page =
        "Text\n\n```toml a/b.toml\nx = 1\n```\n\n```console\n$ one\nout\n\n$ two\n```\nend\n";
    let parts = parse_page(page);
    assert_eq!(render_page(&parts), page);
    let blocks: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Block(block) => Some(block),
            Part::Prose(_) => None,
        })
        .collect();
    let step = |command: &str, output: &str| Step {
        command: command.to_owned(),
        output: output.to_owned(),
    };
    assert_eq!(
        blocks,
        [
            &Block::File { path: "a/b.toml".to_owned(), text: "x = 1\n".to_owned() },
            &Block::Console(vec![step("one", "out\n\n"), step("two", "")]),
        ]
    );
}

#[test]
#[should_panic(expected = "line 2: a block `sh` that is not run")]
fn a_block_that_nothing_runs_is_refused() {
    parse_page("Text\n```sh\nrm -rf /\n```\n");
}

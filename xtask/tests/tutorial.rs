//! docs/TUTORIAL.md, run block by block: files are written, commands run in order, and what they
//! print is what the page says.
//!
//! A block is either `console`, with commands after `$ ` and their output below each, or a file, whose
//! path follows the language. Dates, times, hashes and the machine's name may differ. To paste the
//! present output into the page:
//!
//! ```sh
//! SNAPSHOTS=overwrite cargo test -p xtask --test tutorial
//! ```

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;
use snapbox::Redactions;

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
struct Checkout {
    folder: tempfile::TempDir,
}

impl Checkout {
    fn new() -> Checkout {
        let checkout = Checkout { folder: tempfile::tempdir().unwrap() };
        let root = checkout.root();
        copy_folder(&repository().join("bench-configs"), &root.join("bench-configs"));
        for folder in ["engines", "target", "bin"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("Cargo.toml"), "[workspace]\n").unwrap();
        std::fs::write(root.join(".gitignore"), "/target\n/bin\n/benchmarks/.oom-record\n")
            .unwrap();
        let cargo = root.join("bin/cargo");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = xtask ] || exit 64\nshift\nexec '{}' \"$@\"\n",
            env!("CARGO_BIN_EXE_xtask")
        );
        std::fs::write(&cargo, script).unwrap();
        std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(checkout.sh("git init -q && git add -A && git commit -qm start"), "");
        checkout
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// What a command prints, on both streams in order.
    fn sh(&self, command: &str) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut sh = Command::new("sh");
        // A variable of the shell that the tests are started from is not part of the page.
        for (name, _) in std::env::vars() {
            if ["ARC_", "BENCH_", "MLXCEL_", "GIT_", "TOY_"].iter().any(|own| name.starts_with(own))
            {
                sh.env_remove(name);
            }
        }
        let output = sh
            .args(["-c", &format!("exec 2>&1\n{command}")])
            .current_dir(self.root())
            .env("PATH", format!("{}:{path}", self.root().join("bin").display()))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "tutorial")
            .env("GIT_AUTHOR_EMAIL", "tutorial@localhost")
            .env("GIT_COMMITTER_NAME", "tutorial")
            .env("GIT_COMMITTER_EMAIL", "tutorial@localhost")
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
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
    let checkout = Checkout::new();
    let mut parts = parse_page(&page);
    for part in &mut parts {
        match part {
            Part::Prose(_) => {}
            Part::Block(Block::File { path, text }) => {
                std::fs::write(checkout.root().join(path), text).unwrap();
            }
            Part::Block(Block::Console(steps)) => {
                for step in steps {
                    let output = checkout.sh(&step.command);
                    step.output = without_disturbances(&output)
                        .replace(&*checkout.root().to_string_lossy(), ".");
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

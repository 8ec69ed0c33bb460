//! `cargo xtask prereg`: freeze a ladder with its rules, run it, and have the rules judge it.

use std::path::Path;

use crate::base::count::render_count;
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::executor::run::RealExecutor;
use crate::cell::guard::RecordRule;
use crate::cell::guard::file::read_guard_of_model;
use crate::cell::session::{Finder, Session};
use crate::prereg::args::{Args, Command};
use crate::prereg::template::render_template;
use crate::sys::interrupt::Interrupt;
use crate::sys::{files, git, terminal};

use ladder::{DOCUMENTS, Ladder, RUNNERS, SAMPLES, StoredRun, free_name, version_of};

mod bench;
mod entries;
mod freeze;
mod ladder;
mod launch;
mod measure;
mod program;
mod report;
mod steps;
mod transfer;
mod verify;

use verify::Checked;

pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<Outcome> {
    match &args.command {
        Command::New(args) => new(root, &args.name),
        Command::Check(args) => check(root, &args.name),
        Command::Freeze(args) => freeze::freeze(root, &args.name),
        Command::Amend(args) => freeze::amend(root, &args.name, &args.why),
        Command::Run(args) => measure::run(root, args),
        Command::Report(args) => report::report(root, args),
        Command::Transfer(args) => transfer::transfer(root, args),
    }
}

/// The session of a run in `folder`, with the guard over every length that the ladder measures.
fn open_session(
    ladder: &Ladder<'_>,
    checked: &Checked,
    folder: &Path,
    asked: RecordRule,
    command: &'static str,
    interrupt: Interrupt,
) -> anyhow::Result<Session<RealExecutor>> {
    let mut lengths = checked.document.prompt_lengths();
    lengths.sort_unstable();
    lengths.dedup();
    let typed = format!("{command} {}", ladder.name);
    let most = checked.document.most_steps();
    let guard = read_guard_of_model(ladder.root, asked, &checked.model, &lengths, most, &typed)?;
    let finder = Finder {
        commit: git::read_git_state(ladder.root).commit,
        source: format!(
            "{}/{SAMPLES}",
            folder.strip_prefix(ladder.root).unwrap_or(folder).display()
        ),
        command: Some(command),
    };
    Ok(Session::new(RealExecutor::new(ladder.root, interrupt), guard, finder).watching_health())
}

fn new(root: &Path, name: &str) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, name)?;
    let path = ladder.document_path();
    files::create_folder(&root.join(DOCUMENTS))?;
    files::AppendFile::create_new(&root.join(&path), &render_template(name))
        .hint("choose another name, or edit the file")?;
    terminal::data(&path);
    terminal::log(&format!("edit it, then run: cargo xtask prereg check {}", name));
    Ok(Outcome::Done)
}

fn check(root: &Path, name: &str) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, name)?;
    let (_, document) = ladder.read_document()?;
    let (_, runner) = ladder.read_runner(&document)?;
    let findings = ladder.lint(&document, &runner)?;
    for finding in &findings {
        terminal::data(&finding.to_string());
    }
    let blocking = findings.iter().filter(|finding| finding.is_blocking()).count();
    terminal::log(&format!(
        "prereg: {}, {} in {}",
        render_count(blocking, "error"),
        render_count(findings.len() - blocking, "other finding"),
        ladder.document_path()
    ));
    Ok(if blocking == 0 { Outcome::Done } else { Outcome::Violation })
}

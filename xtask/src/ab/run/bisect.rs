//! `--bisect GOOD..BAD`: a program for each commit, from a work tree of its own, and a comparison of each
//! with that of GOOD.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::prepare::{read_plan, vars_of_nothing};
use crate::ab::args::Args;
use crate::ab::bisect::{Judged, Search};
use crate::ab::config::LegRole;
use crate::ab::render::render_verdicts;
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::cell::runner::{Runner, file as runner_store, render_command};
use crate::sys::command::cargo;
use crate::sys::git::git;
use crate::sys::git::trees::{list_commits, make_tree, remove_tree};
use crate::sys::interrupt::Interrupt;
use crate::sys::{files, terminal};

/// Where programs and work trees of commits lie; they go with the command.
const FOLDER: &str = "target/ab";

/// Looks for the first commit of a range that is slower than its good end.
pub(super) fn run(
    root: &Path,
    args: &Args,
    range: &str,
    interrupt: Interrupt,
) -> anyhow::Result<Outcome> {
    let (good, bad) = range
        .split_once("..")
        .filter(|(good, bad)| !good.is_empty() && !bad.is_empty() && !bad.starts_with('.'))
        .with_context(|| format!("`{range}` is not a range of commits"))
        .hint("write --bisect GOOD..BAD, for example v0.1.0..HEAD")?;
    let good = list_commits(root, good)?.remove(0);
    let commits = list_commits(root, &format!("{good}..{bad}"))?;
    let plan = read_plan(root, args)?;
    let (runner, _) = runner_store::read_runner(root, &plan.runner)?;
    let scratch = files::create_scratch(&root.join(FOLDER), "bisect-")?;
    let bisection = Bisection { root, args, interrupt, runner, folder: scratch.path().to_owned() };

    let good_program = bisection.build(&good)?;
    let last = commits.len() - 1;
    let end = bisection.judge(&good_program, &commits[last])?;
    if interrupt.is_set() {
        return Ok(Outcome::Interrupted);
    }
    if end != Judged::Bad {
        terminal::data(&format!(
            "nothing to bisect: {} is not shown to be slower than {}",
            describe(root, &commits[last]),
            describe(root, &good)
        ));
        return Ok(Outcome::Violation);
    }
    let mut search = Search::new(commits.len());
    while let Some(next) = search.next() {
        let judged = bisection.judge(&good_program, &commits[next])?;
        if interrupt.is_set() {
            return Ok(Outcome::Interrupted);
        }
        search.note(next, judged);
    }
    let suspects = &commits[search.suspects()];
    let [only] = suspects else {
        terminal::data(
            "the first slower commit is one of these; those between could not be judged:",
        );
        for commit in suspects {
            terminal::data(&describe(root, commit));
        }
        return Ok(Outcome::Violation);
    };
    terminal::data(&format!("the first slower commit is {}", describe(root, only)));
    Ok(Outcome::Done)
}

struct Bisection<'a> {
    root: &'a Path,
    args: &'a Args,
    interrupt: Interrupt,
    runner: Runner,
    folder: PathBuf,
}

impl Bisection<'_> {
    /// Compares the program of a commit with that of the good end.
    fn judge(&self, good: &Path, commit: &str) -> anyhow::Result<Judged> {
        let (judged, why) = match self.build(commit) {
            Err(error) => (Judged::Skipped, format!("{error:#}")),
            Ok(program) if files::read_sha256(&program)? == files::read_sha256(good)? => {
                (Judged::Good, "byte for byte the program of the good end".to_owned())
            }
            Ok(program) => {
                let args = Args {
                    base_bin: Some(good.to_owned()),
                    baseline_bin: Some(program),
                    bisect: None,
                    ..self.args.clone()
                };
                let (result, _) = super::compare(self.root, &args, self.interrupt)?;
                let leg = result.legs.iter().find(|leg| leg.leg.role == LegRole::Baseline);
                let judged = Judged::of(leg.and_then(|leg| leg.verdict));
                (judged, render_verdicts(&result).join("; "))
            }
        };
        let shown = describe(self.root, commit);
        terminal::log(&format!("bisect: {shown}: {}: {why}", judged.word()));
        Ok(judged)
    }

    /// The program of a commit: built in a work tree, or taken from it where nothing is built.
    fn build(&self, commit: &str) -> anyhow::Result<PathBuf> {
        let tree = self.folder.join("tree");
        make_tree(self.root, &tree, commit, &[])?;
        let program = self.folder.join(format!("program-{}", &commit[..12]));
        let built = self.build_in(&tree, &program);
        remove_tree(self.root, &tree)?;
        built.map(|()| program)
    }

    fn build_in(&self, tree: &Path, program: &Path) -> anyhow::Result<()> {
        let target = self.folder.join("build").to_string_lossy().into_owned();
        if let Some(build) = &self.runner.build {
            cargo(tree, "build --locked --release")
                .args(["--package", &build.package, "--bin", &build.bin])
                .env(&[("CARGO_TARGET_DIR".to_owned(), Some(target.clone()))])
                .show()?;
        }
        let command = render_command(&self.runner, &vars_of_nothing(&target));
        files::copy(&runner_store::find_program(tree, &self.runner, &command)?, program)
    }
}

/// A commit as git shows it.
fn describe(root: &Path, commit: &str) -> String {
    let shown = git(root, ["log", "-1", "--format=%h %s", commit]).read();
    shown.map_or_else(|_| commit.to_owned(), |line| line.trim().to_owned())
}

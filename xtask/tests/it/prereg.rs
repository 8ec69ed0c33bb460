//! `cargo xtask prereg` as people use it: the real binary over a workspace with the scripted runner.

use std::path::PathBuf;

use serde_json::Value;
use testkit::{Command, Ran, Redaction, Workspace};

use crate::XTASK;
use script::{Figures, render_script};

mod bundle;
mod document;
mod frozen;
mod outcome;
mod resume;
mod revision;
mod script;

const SEED: &str = include_str!("prereg/seed.toml");
const DOCUMENT: &str = "bench-configs/prereg/seed.toml";
const RUNS: &str = "benchmarks/prereg/seed";

/// A workspace under git, with a ladder called `seed`.
struct Lab {
    workspace: Workspace,
}

impl std::ops::Deref for Lab {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl Lab {
    fn new(document: &str, figures: &Figures) -> Lab {
        let workspace = Workspace::new(XTASK, &[]);
        workspace.write("Cargo.toml", "[workspace]\n");
        workspace.write("model.toml", "layers = 1\n");
        workspace.write("checks.sh", format!("exit {}\n", i32::from(!figures.checks_green)));
        workspace.script(&render_script(figures));
        workspace.write(DOCUMENT, document);
        workspace.write_scripted_runner("scripted", "profile-text");
        workspace.commit("x");
        Lab { workspace }
    }

    /// The seed with these figures, frozen and committed.
    fn frozen(figures: &Figures) -> Lab {
        let lab = Lab::new(SEED, figures);
        lab.freeze();
        lab
    }

    fn freeze(&self) {
        self.prereg(&["freeze", "seed"]).exits_with(0);
        self.commit("x");
    }

    fn command(&self, args: &[&str]) -> Command {
        // What the shell of the developer has set is no part of a ladder.
        self.workspace
            .command(&[&["prereg"], args].concat())
            .env("P1", "1")
            .env("ARC_ALLOC_CACHE_MAX_MB", "7")
    }

    fn prereg(&self, args: &[&str]) -> Ran {
        self.command(args).run()
    }

    /// The folders of all runs, by date.
    fn runs(&self) -> Vec<PathBuf> {
        self.names(RUNS).iter().map(|name| self.path(RUNS).join(name)).collect()
    }

    /// The folder of the only run.
    fn run_folder(&self) -> PathBuf {
        self.only_entry(RUNS)
    }

    fn result(&self) -> Value {
        self.read_json(self.run_folder().join("result.json"))
    }

    fn report(&self) -> String {
        self.read(self.run_folder().join("report.md"))
    }

    /// Launches of the ladder itself, without those of the oracles.
    fn ladder_launches(&self) -> usize {
        self.launches().iter().filter(|launch| launch.ends_with(" 1100")).count()
    }
}

/// Runs the seed with these figures: exit code, and the result.
fn run_seed(figures: &Figures) -> (i32, Value, Lab) {
    let lab = Lab::frozen(figures);
    let ran = lab.prereg(&["run", "seed"]);
    assert!(matches!(ran.code, Some(0 | 1)), "{ran}");
    let result = lab.result();
    (ran.code.unwrap(), result, lab)
}

fn redacted(lab: &Lab) -> Redaction {
    Redaction::new(lab)
        .dates()
        .hashes()
        .pattern(r"entry [0-9a-f]{12}\b", "entry [ENTRY]")
        .pattern(r"on [A-Za-z0-9_().@-]+_\d+GB", "on [MACHINE]")
}

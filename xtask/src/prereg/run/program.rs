//! The programs that a ladder's steps run: a tree for each set of revisions, and a binary for each
//! set of revisions and features, built once and checked before every launch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::entries::seconds;
use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::cell::child::ChildSpec;
use crate::cell::classify::ExitKind;
use crate::cell::executor::Executor;
use crate::cell::runner::{Build, Runner};
use crate::cell::session::Session;
use crate::prereg::chain::Version;
use crate::prereg::compose::Configuration;
use crate::prereg::sample::{BuildRecord, Record};
use crate::sys::git::trees as git_trees;
use crate::sys::{env, files, terminal};

/// Where trees, binaries and scratch files of ladders lie.
pub(super) const TARGET: &str = "target/prereg";

/// A program that is ready to run.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// Where commands run: the user's tree, or one of its own.
    pub(super) tree: PathBuf,
    /// What `{target_dir}` stands for.
    pub(super) target_dir: String,
    /// The binary and its hash; `None` for a foreign runner.
    binary: Option<(PathBuf, String)>,
}

/// The programs of one ladder. Trees of revisions go with the value; binaries stay.
pub(super) struct Programs<'a> {
    root: &'a Path,
    name: &'a str,
    version: &'a Version,
    build: Option<&'a Build>,
    /// Those that were checked in this process, by build key.
    ready: BTreeMap<String, Program>,
}

impl<'a> Programs<'a> {
    pub(super) fn new(
        root: &'a Path,
        name: &'a str,
        version: &'a Version,
        runner: &'a Runner,
    ) -> Programs<'a> {
        Programs { root, name, version, build: runner.build.as_ref(), ready: BTreeMap::new() }
    }

    /// Makes the program of a configuration ready. Returns the record of a build, if one was needed.
    ///
    /// # Errors
    /// When it does not build, or is not the binary that earlier launches of this run used.
    pub(super) fn prepare(
        &mut self,
        session: &mut Session<impl Executor>,
        configuration: &Configuration,
        records: &[Record],
    ) -> anyhow::Result<Option<BuildRecord>> {
        let key = configuration.build_key();
        if self.ready.contains_key(&key) {
            return Ok(None);
        }
        let folder = self.root.join(TARGET).join(self.name);
        let slug =
            sha256_hex(format!("{} {key}", self.version.entry_sha256).as_bytes())[..16].to_owned();
        let tree = self.make_tree(configuration, &folder.join("trees").join(&slug))?;
        let Some(build) = self.build else {
            let target_dir = env::read_target_dir();
            self.ready.insert(key, Program { tree, target_dir, binary: None });
            return Ok(None);
        };
        let target_dir = folder.join("bin").join(&slug);
        let binary = target_dir.join("release").join(&build.bin);
        let earlier = records.iter().rev().find_map(|record| match record {
            Record::Build(build) if build.key == key => Some(&build.sha256),
            _ => None,
        });
        let is_there = match earlier {
            Some(earlier) => files::exists(&binary) && files::read_sha256(&binary)? == *earlier,
            None => false,
        };
        let cost_s = match is_there {
            true => None,
            false => Some(self.build(session, build, &tree, configuration, &binary)?),
        };
        let sha256 = files::read_sha256(&binary)?;
        ensure!(
            earlier.is_none_or(|earlier| *earlier == sha256),
            "the binary for `{key}` is not the one that earlier launches of this run used"
        );
        let program = Program {
            tree,
            target_dir: target_dir.to_string_lossy().into_owned(),
            binary: Some((binary, sha256.clone())),
        };
        self.ready.insert(key.clone(), program);
        Ok(cost_s.map(|cost_s| BuildRecord { key, sha256, cost_s }))
    }

    /// The program of a configuration that was made ready.
    ///
    /// # Errors
    /// When it was not, or its binary was changed since.
    pub(super) fn get(&self, configuration: &Configuration) -> anyhow::Result<Program> {
        let key = configuration.build_key();
        let program = self.ready.get(&key);
        let program = program.with_context(|| format!("the program for `{key}` is not ready"))?;
        if let Some((binary, sha256)) = &program.binary {
            ensure!(
                files::read_sha256(binary)? == *sha256,
                "`{}` changed during the run",
                binary.display()
            );
        }
        Ok(program.clone())
    }

    /// The tree for a configuration: the user's, or one of its own for revisions.
    fn make_tree(&self, configuration: &Configuration, tree: &Path) -> anyhow::Result<PathBuf> {
        if configuration.revs.is_empty() {
            return Ok(self.root.to_owned());
        }
        let mut commits = Vec::new();
        for revision in &configuration.revs {
            let pinned = self.version.pins.revisions.get(revision);
            let pinned = pinned.with_context(|| format!("revision `{revision}` is not frozen"))?;
            commits.extend(pinned.split(' ').map(str::to_owned));
        }
        terminal::log(&format!(
            "prereg: making a work tree with {}",
            configuration.revs.join(", ")
        ));
        files::create_folder(tree.parent().unwrap_or(self.root))?;
        git_trees::make_tree(self.root, tree, &self.version.pins.commit, &commits)?;
        Ok(tree.to_owned())
    }

    /// Builds the program and copies it to `binary`. Returns how long that took, in seconds: it
    /// counts under the ceiling, and can be interrupted, as every step can.
    fn build(
        &self,
        session: &mut Session<impl Executor>,
        build: &Build,
        tree: &Path,
        configuration: &Configuration,
        binary: &Path,
    ) -> anyhow::Result<f64> {
        // Trees of revisions share a target folder of their own, so that the user's stays warm.
        let target_dir = match tree == self.root {
            true => self.root.join(env::read_target_dir()),
            false => self.root.join(TARGET).join("build"),
        };
        let mut args = vec![
            "build",
            "--release",
            "--locked",
            "--package",
            &build.package,
            "--bin",
            &build.bin,
        ];
        let features = configuration.features.join(",");
        if !features.is_empty() {
            args.extend(["--features", &features]);
        }
        let command = format!("cargo {}", args.join(" "));
        terminal::log(&format!("prereg: {command}"));
        let mut spec = ChildSpec::new("cargo", tree);
        spec.args = args.iter().map(Into::into).collect();
        spec.env =
            vec![("CARGO_TARGET_DIR".to_owned(), Some(target_dir.to_string_lossy().into_owned()))];
        let end = session.run_check(&spec)?;
        if end.exit != ExitKind::Code(0) {
            let said = end.stderr.last_lines(20).join("\n");
            return Err(anyhow::anyhow!("`{command}` failed:\n{said}"))
                .hint(format!("run it in `{}` to see everything", tree.display()));
        }
        files::create_folder(binary.parent().unwrap_or(tree))?;
        files::copy(&target_dir.join("release").join(&build.bin), binary)?;
        Ok(seconds(end.wall))
    }
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        for program in self.ready.values().filter(|program| program.tree != self.root) {
            // Nothing fails where a tree cannot be removed: it lies below `target/`.
            let _ = git_trees::remove_tree(self.root, &program.tree);
        }
    }
}

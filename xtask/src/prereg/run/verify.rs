//! Whether everything is what was frozen: the document, the runner, the model, the code, the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use super::{Ladder, RUNNERS};
use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::cell::pins::file::watch_runner;
use crate::cell::pins::{Pins as FilePins, diff_pins};
use crate::cell::runner::{CellVars, Runner, check_model, render_command};
use crate::cell::spec::program_path;
use crate::model::reference::{ModelKind, ResolvedModel};
use crate::model::store::file as model_store;
use crate::prereg::chain::{Frozen, Pins, Version, diff_document};
use crate::prereg::document::Document;
use crate::prereg::sample::{Judging, RunRecord};
use crate::sys::git::trees::{list_changes, list_commits, list_tree, read_head};
use crate::sys::watched::Watched;
use crate::sys::{clock, env, files, host};

/// What the tree holds that no measured program is built from.
const NOT_CODE: [&str; 7] =
    [".ci/", ".github/", "bench-configs/", "benchmarks/", "docs/", "xtask/", "models/"];

/// A ladder that is what was frozen, ready to run.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) frozen: Frozen,
    pub(super) document: Document,
    pub(super) runner: Runner,
    pub(super) model: ResolvedModel,
    /// The commit that is checked out.
    pub(super) head: String,
    /// Chip and memory of this machine.
    pub(super) machine: String,
    /// What the user should know, though nothing is refused for it.
    pub(super) notes: Vec<String>,
}

impl Checked {
    /// The first line of a run's samples.
    pub(super) fn run_record(&self, name: &str) -> anyhow::Result<RunRecord> {
        let version = self.version()?;
        Ok(RunRecord {
            name: name.to_owned(),
            version: version.version,
            entry_sha256: version.entry_sha256.clone(),
            date: clock::today(),
            machine: self.machine.clone(),
            commit: self.head.clone(),
            judging: Judging::WithNoise,
        })
    }

    pub(super) fn version(&self) -> anyhow::Result<&Version> {
        self.frozen.last()
    }
}

/// Refuses whatever differs from what was frozen; the hint says what to do.
pub(super) fn check_frozen(ladder: &Ladder<'_>) -> anyhow::Result<Checked> {
    let name = &ladder.name;
    let frozen = ladder.require_frozen()?;
    let version = frozen.last()?.clone();
    let amend = format!("restore it, or run: cargo xtask prereg amend {name} --why \"…\"");
    let text = files::read_text(&ladder.root.join(ladder.document_path()))?;
    if let Some(diff) = diff_document(&version.document, &text, name) {
        return Err(anyhow::anyhow!(
            "`{}` changed after version {} was frozen:\n{}",
            ladder.document_path(),
            version.version,
            diff.trim_end()
        ))
        .hint(amend);
    }
    let document = ladder.document_of(&version)?;
    let (_, runner) = ladder.read_runner(&document)?;
    let model = resolve_model(ladder.root, &document)?;
    let pins = read_pins(ladder, &document)?;
    check_pins(ladder.root, &version.pins, &pins, &document, &amend)?;
    check_committed(ladder, &document, &runner, &model)?;

    let mut notes = Vec::new();
    if pins.commit != version.pins.commit {
        notes.push(format!(
            "commit {} is checked out and {} was frozen; the code that the rungs run is the same",
            short(&pins.commit),
            short(&version.pins.commit)
        ));
    }
    if pins.machine != version.pins.machine {
        notes.push(format!(
            "this is {}, but the ladder was frozen on {}; the report will say so",
            pins.machine, version.pins.machine
        ));
    }
    Ok(Checked { frozen, document, runner, model, head: pins.commit, machine: pins.machine, notes })
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

fn check_pins(
    root: &Path,
    frozen: &Pins,
    now: &Pins,
    document: &Document,
    amend: &str,
) -> anyhow::Result<()> {
    let changed = |what: String| Err(anyhow::anyhow!(what)).hint(amend.to_owned());
    if frozen.runner_sha256 != now.runner_sha256 {
        return changed(format!(
            "runner `{}` changed after the ladder was frozen",
            document.protocol.runner
        ));
    }
    if frozen.model_sha256 != now.model_sha256 {
        return changed(format!(
            "model `{}` changed after the ladder was frozen: its SHA-256 is {}…, not {}…",
            document.protocol.model.as_deref().unwrap_or_default(),
            short(&now.model_sha256),
            short(&frozen.model_sha256)
        ));
    }
    if frozen.code_sha256 != now.code_sha256 {
        return changed(format!(
            "the code that the rungs run differs from what was frozen at commit {}{}",
            short(&frozen.commit),
            render_changed(root, frozen, now)
        ));
    }
    if !frozen.files.is_empty() && frozen.files != now.files {
        return changed(format!(
            "what the command names changed after the ladder was frozen: {}",
            diff_pins(&frozen.files, &now.files).join("; ")
        ));
    }
    for (revision, commits) in &frozen.revisions {
        if now.revisions.get(revision) != Some(commits) {
            return changed(format!("revision `{revision}` has moved since the ladder was frozen"));
        }
    }
    Ok(())
}

/// Which files changed, in words, as far as it can be told.
fn render_changed(root: &Path, frozen: &Pins, now: &Pins) -> String {
    const MOST: usize = 8;
    let mut changed =
        if frozen.files.is_empty() { Vec::new() } else { diff_pins(&frozen.files, &now.files) };
    let code_at = |commit: &str| -> Option<BTreeMap<String, String>> {
        let tree = list_tree(root, commit).ok()?;
        let code = tree.into_iter().filter(|entry| is_code(&entry.path));
        Some(code.map(|entry| (entry.path, entry.object)).collect())
    };
    if let (true, Some(then), Some(now)) =
        (changed.is_empty(), code_at(&frozen.commit), code_at(&now.commit))
    {
        let paths: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        let differing = paths.into_iter().filter(|path| then.get(*path) != now.get(*path));
        changed = differing.map(|path| format!("`{path}`")).collect();
    }
    let more = changed.len().saturating_sub(MOST);
    changed.truncate(MOST);
    if more > 0 {
        changed.push(format!("and {more} more"));
    }
    if changed.is_empty() { String::new() } else { format!(": {}", changed.join(", ")) }
}

fn check_committed(
    ladder: &Ladder<'_>,
    document: &Document,
    runner: &Runner,
    model: &ResolvedModel,
) -> anyhow::Result<()> {
    let mut ours = vec![
        ladder.document_path(),
        ladder.frozen_path(),
        format!("{RUNNERS}/{}.toml", document.protocol.runner),
    ];
    if model.kind == ModelKind::Synthetic {
        ours.push(model.path.clone());
    }
    ours.extend(command_files(ladder.root, runner));
    let changes: Vec<String> = list_changes(ladder.root)?
        .into_iter()
        .filter(|path| ours.contains(path) || (runner.build.is_some() && is_code(path)))
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    Err(anyhow::anyhow!("not committed: {}", changes.join(", ")))
        .hint("commit them: a run names a commit that others can check out")
}

/// Whether a path belongs to what a program of this workspace is built from.
fn is_code(path: &str) -> bool {
    let is_prose = !path.contains('/')
        && (path.ends_with(".md") || path.starts_with("LICENSE") || path == ".gitignore");
    !is_prose && !NOT_CODE.iter().any(|folder| path.starts_with(folder))
}

pub(super) fn read_pins(ladder: &Ladder<'_>, document: &Document) -> anyhow::Result<Pins> {
    let root = ladder.root;
    let (runner_text, runner) = ladder.read_runner(document)?;
    let model = resolve_model(root, document)?;
    check_model(&runner, model.kind).map_err(anyhow::Error::msg)?;
    let mut revisions = BTreeMap::new();
    for revision in document.items.iter().filter_map(|item| item.rev.as_ref()) {
        revisions.insert(revision.clone(), list_commits(root, revision)?.join(" "));
    }
    let commit = read_head(root)?;
    Ok(Pins {
        code_sha256: read_code_hash(root, &runner, &commit)?,
        commit,
        runner_sha256: sha256_hex(runner_text.as_bytes()),
        model_sha256: match document.protocol.model {
            Some(_) => read_model_hash(root, &model)?,
            None => sha256_hex(b""),
        },
        revisions,
        machine: host::read_host_facts()?.hardware(),
        files: watch_files(root, document, &runner, &model)?.0,
    })
}

/// For a program of this workspace the tracked files that it is built from; for any other its own
/// bytes and those of the files that its command names.
fn read_code_hash(root: &Path, runner: &Runner, commit: &str) -> anyhow::Result<Option<String>> {
    if runner.build.is_some() {
        let code: String = list_tree(root, commit)?
            .iter()
            .filter(|entry| is_code(&entry.path))
            .map(|entry| format!("{} {}\n", entry.object, entry.path))
            .collect();
        ensure!(!code.is_empty(), "commit {commit} holds no code");
        return Ok(Some(sha256_hex(code.as_bytes())));
    }
    let mut listed = String::new();
    let program = render_command(runner, &no_vars()).into_iter().next().unwrap_or_default();
    if let Some(path) = find_program(root, &program) {
        listed.push_str(&format!("{} program\n", files::read_sha256(&path)?));
    }
    for file in command_files(root, runner) {
        listed.push_str(&format!("{} {file}\n", files::read_sha256(&root.join(&file))?));
    }
    Ok((!listed.is_empty()).then(|| sha256_hex(listed.as_bytes())))
}

/// The files that a launch runs and reads, as far as the command and the arguments of the document name
/// them, each with its hash and a watch; the model's file is watched alone.
///
/// # Errors
/// When one cannot be read.
pub(super) fn watch_files(
    root: &Path,
    document: &Document,
    runner: &Runner,
    model: &ResolvedModel,
) -> anyhow::Result<(FilePins, Vec<Watched>)> {
    let mut words = render_command(runner, &no_vars());
    let program = words.first().cloned().unwrap_or_default();
    words.extend(document.protocol.args.iter().cloned());
    words.extend(document.items.iter().flat_map(|item| item.args.iter().cloned()));
    words.extend(document.oracles.iter().flat_map(|oracle| oracle.args.iter().cloned()));
    let model_path = root.join(&model.path);
    let (mut pins, mut watched) =
        watch_runner(root, runner, &words, &model_path, &env::read_scrub(root))?;
    if runner.build.is_none()
        && let Some(path) = find_program(root, &program)
    {
        let file = Watched::begin("the program", &path)?;
        pins.insert("program".to_owned(), file.sha256().to_owned());
        watched.push(file);
    }
    if files::is_file(&model_path) {
        watched.push(Watched::begin("the model", &model_path)?);
    }
    Ok((pins, watched))
}

/// The file of a foreign runner's program, where it is one.
fn find_program(root: &Path, program: &str) -> Option<PathBuf> {
    let path = program_path(root, program);
    let path = if path.is_absolute() { Some(path) } else { host::which(program) };
    path.filter(|path| files::is_file(path))
}

/// Files of the workspace that a runner's command names.
fn command_files(root: &Path, runner: &Runner) -> Vec<String> {
    render_command(runner, &no_vars())
        .into_iter()
        .skip(1)
        .filter(|arg| !arg.is_empty() && !Path::new(arg).is_absolute())
        .filter(|arg| files::is_file(&root.join(arg)))
        .collect()
}

fn no_vars() -> CellVars {
    CellVars { target_dir: "target".to_owned(), ..CellVars::default() }
}

/// The model; for a runner without one, what the OOM record calls its runs: the runner's name.
fn resolve_model(root: &Path, document: &Document) -> anyhow::Result<ResolvedModel> {
    let Some(word) = document.protocol.model.as_deref() else {
        return Ok(ResolvedModel {
            name: document.protocol.runner.clone(),
            path: String::new(),
            tracked_path: String::new(),
            kind: ModelKind::Directory,
            weight_bytes: None,
            note: None,
        });
    };
    let mut models = model_store::resolve_models(root, &[word.to_owned()])?;
    let model = models.pop().with_context(|| format!("`{word}` matches no model"))?;
    ensure!(models.is_empty(), "`{word}` matches several models, and a ladder has one");
    if model.kind == ModelKind::Missing {
        let why = model.note.clone().unwrap_or_default();
        return Err(anyhow::anyhow!("model `{word}` is missing: {why}"))
            .hint("cargo xtask model list");
    }
    Ok(model)
}

fn read_model_hash(root: &Path, model: &ResolvedModel) -> anyhow::Result<String> {
    let path = root.join(&model.path);
    match model.kind {
        ModelKind::Synthetic | ModelKind::Gguf => files::read_sha256(&path),
        ModelKind::Directory => {
            let mut listed = String::new();
            for file in files::list_files(&path).iter().filter(|path| files::is_file(path)) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                listed.push_str(&format!("{} {name}\n", files::read_sha256(file)?));
            }
            for folder in files::list_folders(&path) {
                listed.push_str(&format!("folder {folder}\n"));
            }
            Ok(sha256_hex(listed.as_bytes()))
        }
        ModelKind::Missing => bail!("model `{}` is missing", model.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_a_program_is_built_from() {
        for path in ["Cargo.lock", "engine/src/lib.rs", "formats/Cargo.toml", ".cargo/config.toml"]
        {
            assert!(is_code(path), "{path}");
        }
        for path in
            ["README.md", "docs/a.md", "benchmarks/x.csv", "xtask/src/main.rs", "LICENSE-MIT"]
        {
            assert!(!is_code(path), "{path}");
        }
    }
}

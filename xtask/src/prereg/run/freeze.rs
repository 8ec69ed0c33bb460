//! `prereg freeze` and `prereg amend`.

use std::path::Path;

use anyhow::{Context as _, ensure};

use super::verify::read_pins;
use super::{Ladder, version_of};
use crate::base::count::render_count;
use crate::base::diagnostic::HintExt as _;
use crate::base::outcome::Outcome;
use crate::prereg::chain::{Frozen, NewVersion, diff_document};
use crate::sys::{clock, files, terminal};

pub(super) fn freeze(root: &Path, name: &str) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, name)?;
    if let Some(frozen) = ladder.read_frozen()? {
        let version = frozen.last()?;
        return Err(anyhow::anyhow!(
            "ladder `{name}` is already frozen: version {} of {}",
            version.version,
            version.date
        ))
        .hint(format!("cargo xtask prereg amend {name} --why \"…\" freezes a new version"));
    }
    write_version(&ladder, Frozen::new(name), None)
}

pub(super) fn amend(root: &Path, name: &str, why: &str) -> anyhow::Result<Outcome> {
    let ladder = Ladder::new(root, name)?;
    ensure!(!why.trim().is_empty(), "`--why` must not be empty: every later report shows it");
    let frozen = ladder.require_frozen()?;
    let (text, document) = ladder.read_document()?;
    let last = frozen.last()?;
    let diff = diff_document(&last.document, &text, name);
    if let Some(diff) = &diff {
        terminal::log(diff);
    }
    // The text may be the same where the runner, the model or the code is what changed.
    if diff.is_none() && read_pins(&ladder, &document)?.same_measurement(&last.pins) {
        return Err(anyhow::anyhow!("nothing changed since version {}", last.version))
            .hint(format!("cargo xtask prereg run {name}"));
    }
    for stored in ladder.read_runs()? {
        let Some(run) = &stored.run else { continue };
        if version_of(&frozen, run).is_some_and(|version| version.version == last.version)
            && !stored.is_finished(&ladder.document_of(last)?)
        {
            terminal::log(&format!(
                "warning: run {} of version {} is unfinished, and can no longer be resumed",
                stored.name, last.version
            ));
        }
    }
    write_version(&ladder, frozen, Some(why.trim().to_owned()))
}

fn write_version(
    ladder: &Ladder<'_>,
    frozen: Frozen,
    why: Option<String>,
) -> anyhow::Result<Outcome> {
    let (text, document) = ladder.read_document()?;
    let (_, runner) = ladder.read_runner(&document)?;
    let findings = ladder.lint(&document, &runner)?;
    for finding in &findings {
        terminal::log(&finding.to_string());
    }
    if findings.iter().any(|finding| finding.is_blocking()) {
        terminal::log(&format!(
            "prereg: not frozen\nhint: fix the errors above, or waive a finding with its reason under \
             [[waivers]]; `cargo xtask prereg check {}` lists them",
            ladder.name
        ));
        return Ok(Outcome::Violation);
    }
    let frozen = frozen.with(NewVersion {
        date: clock::today(),
        why,
        data: ladder.read_data()?,
        pins: read_pins(ladder, &document)?,
        document: text,
    })?;
    let path = ladder.frozen_path();
    files::replace_text(&ladder.root.join(&path), &frozen.render()?)?;
    let version = frozen.last().context("the version that was just added is gone")?;
    if version.data.launches > 0 {
        terminal::log(&format!(
            "note: {} in {} existed before this version; every report says so",
            render_count(version.data.launches as usize, "launch"),
            render_count(version.data.runs as usize, "run")
        ));
    }
    terminal::data(&format!("{path}: version {}, entry {}", version.version, version.entry_sha256));
    terminal::log(&format!(
        "commit {} and {path}, then run: cargo xtask prereg run {}",
        ladder.document_path(),
        ladder.name
    ));
    Ok(Outcome::Done)
}

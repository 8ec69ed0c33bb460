//! Links a model of the user's into `models/`, and reads the definitions of models to fetch.

use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use crate::base::diagnostic::HintExt as _;
use crate::base::nearest::nearest;
use crate::model::reference::{MODELS_DIR, is_gguf_file, is_glob, is_plain_name, is_weight_file};
use crate::model::source::{ModelSource, SOURCES_DIR, parse_source};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linked {
    Now,
    /// The link was there and leads to the same place.
    Already,
}

/// Links the file or folder at `path` (relative to the current folder) as `name`. Returns the name and
/// where it is under the workspace.
pub(crate) fn link(
    root: &Path,
    path: &Path,
    name: Option<&str>,
) -> anyhow::Result<(String, PathBuf, Linked)> {
    let target = path
        .canonicalize()
        .with_context(|| format!("cannot find `{}`", path.display()))
        .hint("give a GGUF file or a folder of weights")?;
    let is_dir = check_weights(&target)?;
    let own = if is_dir { target.file_name() } else { target.file_stem() };
    let own = own.map(|own| own.to_string_lossy().into_owned());
    let name = match name {
        Some(name) => name.to_owned(),
        None => own.context("the path has no file name").hint("give one with --name")?,
    };
    // A name with a blank would need quotes within `--models` ever after.
    let has_blank = name.contains(char::is_whitespace);
    if !is_plain_name(&name) || is_glob(&name) || has_blank || name.starts_with(['.', '-']) {
        return Err(anyhow!("`{name}` cannot be the name of a model")).hint(
            "choose one with --name: no blanks, `/`, `*`, `?` or `[`, and no `.` or `-` at the start",
        );
    }
    let models = root.join(MODELS_DIR);
    if models.is_symlink() && !models.exists() {
        return Err(anyhow!("`{MODELS_DIR}` is a dangling link"))
            .hint("mount or create the model store that it points to, or remove the link");
    }
    if models.canonicalize().is_ok_and(|models| target.starts_with(models)) {
        bail!("`{}` is already under `{MODELS_DIR}/`", path.display());
    }
    let folder = Path::new(MODELS_DIR).join(&name);
    let link =
        if is_dir { folder.clone() } else { folder.join(target.file_name().unwrap_or_default()) };
    let full = root.join(&link);
    if full.is_symlink() && full.canonicalize().is_ok_and(|found| found == target) {
        return Ok((name, link, Linked::Already));
    }
    let occupied = root.join(&folder);
    if occupied.exists() || occupied.is_symlink() {
        return Err(anyhow!("`{}` already exists", folder.display()))
            .hint("choose another name with --name, or remove what is there");
    }
    let make = || -> std::io::Result<()> {
        std::fs::create_dir_all(full.parent().unwrap_or(root))?;
        symlink(&target, &full)
    };
    make().with_context(|| format!("cannot link `{}`", link.display()))?;
    Ok((name, link, Linked::Now))
}

/// Checks that there are weights at the path; whether it is a folder.
fn check_weights(path: &Path) -> anyhow::Result<bool> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path)
            .with_context(|| format!("cannot read `{}`", path.display()))?
            .flatten()
            .any(|entry| is_weight_file(&entry.file_name().to_string_lossy()));
        if !entries {
            bail!("`{}` has neither *.gguf nor *.safetensors files", path.display());
        }
        return Ok(true);
    }
    if !is_gguf_file(&path.to_string_lossy()) {
        return Err(anyhow!("`{}` is not named like a GGUF file", path.display()))
            .hint("for weights in another format, give the folder that holds them");
    }
    let mut magic = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(4).read_to_end(&mut magic))
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    if magic != *b"GGUF" {
        bail!("`{}` is not a GGUF file: it starts with {magic:02x?}", path.display());
    }
    Ok(false)
}

/// Reads every definition of a model to fetch, sorted by name.
pub(crate) fn read_sources(root: &Path) -> anyhow::Result<Vec<ModelSource>> {
    let dir = root.join(SOURCES_DIR);
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{SOURCES_DIR}`")),
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            entry.file_name().into_string().ok()?.strip_suffix(".toml").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
        .iter()
        .map(|name| {
            let path = format!("{SOURCES_DIR}/{name}.toml");
            let text = std::fs::read_to_string(root.join(&path))
                .with_context(|| format!("cannot read `{path}`"))?;
            parse_source(name, &path, &text)
        })
        .collect()
}

pub(crate) fn find_source(root: &Path, name: &str) -> anyhow::Result<ModelSource> {
    let mut sources = read_sources(root)?;
    if let Some(at) = sources.iter().position(|source| source.name == name) {
        return Ok(sources.remove(at));
    }
    let known: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let near = nearest(name, known.iter().copied())
        .map(|near| format!("did you mean `cargo xtask model fetch {near}`?"))
        .unwrap_or_else(|| "to use a model that you have: cargo xtask model add PATH".to_owned());
    Err(anyhow!("no model `{name}` to fetch; {SOURCES_DIR}/ has {list}")).hint(near)
}

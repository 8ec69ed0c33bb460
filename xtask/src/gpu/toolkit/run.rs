//! A Python environment of its own for the wheels of the CUDA toolchain.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use super::file as cuda_files;
use crate::base::diagnostic::HintExt as _;
use crate::base::hash::sha256_hex;
use crate::gpu::toolkit::{Release, parse_pins, render_install_hint};
use crate::sys::command::{Tool, render_last};
use crate::sys::glob::find_matches;
use crate::sys::{files, terminal};

const PYTHONS: &[&str] = &["python3", "python"];
/// Making an environment unpacks pip, which is slow on a network disk.
const VENV_DEADLINE: Duration = Duration::from_secs(600);
/// Within the environment: the pins that are installed, written when all of them are.
const STAMP: &str = ".arc-installed";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installed {
    Now,
    Already,
}

/// Installs the wheels of a release into `folder`, unless they are there. Returns the root of the
/// toolkit within it.
///
/// # Errors
/// No Python or no `venv`, no registry, a full disk, another file than the pinned one: each with its
/// hint.
pub(crate) fn install(folder: &Path, release: Release) -> anyhow::Result<(PathBuf, Installed)> {
    let pins = sha256_hex(release.requirements.as_bytes());
    let stamp = folder.join(STAMP);
    if files::read_text_if_present(&stamp)?.is_some_and(|found| found.trim() == pins)
        && let Ok(home) = find_home(folder)
    {
        return Ok((home, Installed::Already));
    }
    check_room(folder, release)?;
    create_environment(folder)?;
    let requirements = folder.join("requirements.txt");
    files::replace_text(&requirements, release.requirements)?;
    let packages = parse_pins(release.requirements);
    let named: Vec<String> =
        packages.iter().map(|pin| format!("{} {}", pin.package, pin.version)).collect();
    terminal::log(&format!("cuda-setup: installing {} …", named.join(", ")));
    let (status, messages) = Tool::new(folder.join("bin/python"))
        .args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary", ":all:", "--require-hashes", "--requirement"])
        .arg(&requirements)
        .relay()?;
    if !status.success() {
        return Err(anyhow!(render_last(messages.iter().map(String::as_str))))
            .context(format!(
                "pip could not install the wheels of CUDA {} ({status})",
                release.name
            ))
            .hint(render_install_hint(&messages.join("\n")));
    }
    let home = find_home(folder)?;
    files::replace_text(&stamp, &format!("{pins}\n"))?;
    Ok((home, Installed::Now))
}

fn check_room(folder: &Path, release: Release) -> anyhow::Result<()> {
    let parent = folder.parent().unwrap_or(folder);
    files::create_folder(parent)?;
    match cuda_files::read_free_bytes(parent) {
        Some(free) if free < release.disk_bytes => {
            let gib = |bytes: u64| bytes as f64 / f64::from(1_u32 << 30);
            Err(anyhow!(
                "`{}` has {:.1} GiB free, but the wheels of CUDA {} need {:.1} GiB",
                parent.display(),
                gib(free),
                release.name,
                gib(release.disk_bytes)
            ))
            .hint("free some space, or set CARGO_TARGET_DIR to another disk")
        }
        _ => Ok(()),
    }
}

/// Makes the environment; one that is there is completed.
fn create_environment(folder: &Path) -> anyhow::Result<()> {
    let is_python = |name: &&&str| {
        let question = "import sys; sys.exit(sys.version_info < (3, 8))";
        Tool::new(**name).args(["-c", question]).read().is_ok()
    };
    let python = PYTHONS
        .iter()
        .find(is_python)
        .with_context(|| format!("there is no Python 3.8 or newer (tried {})", PYTHONS.join(", ")))
        .hint("install Python (on Debian and Ubuntu: apt install python3 python3-venv), or a CUDA toolkit")?;
    let made =
        Tool::new(*python).args(["-m", "venv"]).arg(folder).deadline(VENV_DEADLINE).output()?;
    if !made.status.success() {
        let said = [made.stdout, made.stderr].concat();
        return Err(anyhow!(render_last(String::from_utf8_lossy(&said).lines())))
            .context(format!("`{python} -m venv` could not make `{}`", folder.display()))
            .hint("on Debian and Ubuntu: apt install python3-venv");
    }
    Ok(())
}

/// The root of the toolkit that the wheels make up: the folder with `bin/nvcc`.
fn find_home(folder: &Path) -> anyhow::Result<PathBuf> {
    let pattern = "lib/python*/site-packages/nvidia/cu*/bin/nvcc";
    let found: Vec<PathBuf> = find_matches(folder, pattern)?
        .paths
        .iter()
        .filter_map(|nvcc| Some(nvcc.parent()?.parent()?.to_owned()))
        .collect();
    match found.as_slice() {
        [home] => Ok(home.clone()),
        [] => bail!("the wheels have no `nvcc` at `{}/{pattern}`", folder.display()),
        _ => Err(anyhow!("`{}` holds several toolkits", folder.display()))
            .hint(format!("remove `{}` and run `cargo xtask cuda-setup` again", folder.display())),
    }
}

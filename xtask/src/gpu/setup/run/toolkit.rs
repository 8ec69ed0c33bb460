//! The toolkit that builds: the installed one, or the one from wheels; and its libraries under the
//! names that the linker asks for.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::base::diagnostic::HintExt as _;
use crate::gpu::setup::args::Args;
use crate::gpu::toolkit::run::{Installed, install};
use crate::gpu::toolkit::{ToolkitVersion, file as cuda_files, find_release, plan_libraries};
use crate::sys::{files, terminal};

pub(super) struct Toolkit {
    pub(super) nvcc: PathBuf,
    pub(super) version: ToolkitVersion,
    /// Where its libraries may lie, in the order of looking.
    pub(super) library_folders: Vec<PathBuf>,
}

pub(super) fn find_or_install(folder: &Path, args: &Args) -> anyhow::Result<Toolkit> {
    let installed = if args.wheels { None } else { cuda_files::find_installed_nvcc() };
    let toolkit = match installed {
        Some(nvcc) => {
            let toolkit = describe(nvcc)?;
            terminal::log(&format!(
                "cuda-setup: using the installed toolkit, CUDA {}: {}",
                toolkit.version,
                toolkit.nvcc.display()
            ));
            toolkit
        }
        None => {
            let release = find_release(&args.cuda_version).context("there is no such release")?;
            let environment = folder.join(format!("wheels-{}", release.name));
            let (home, installed) = install(&environment, release)
                .context("cannot make a CUDA toolchain from wheels")?;
            let toolkit = describe(home.join("bin/nvcc"))?;
            let how = match installed {
                Installed::Now => "installed from wheels",
                Installed::Already => "wheels installed before",
            };
            terminal::log(&format!(
                "cuda-setup: CUDA {}, {how}: {}",
                toolkit.version,
                toolkit.nvcc.display()
            ));
            toolkit
        }
    };
    if !toolkit.version.is_known() {
        return Err(anyhow!(
            "the pinned cudarc does not know CUDA {}; it knows {}",
            toolkit.version,
            ToolkitVersion::known_range()
        ))
        .hint("use the wheels: cargo xtask cuda-setup --wheels");
    }
    Ok(toolkit)
}

fn describe(nvcc: PathBuf) -> anyhow::Result<Toolkit> {
    // The compiler in PATH is often a link into the toolkit.
    let real = nvcc.canonicalize().with_context(|| format!("cannot find `{}`", nvcc.display()))?;
    let home = real.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
    let platform = if cfg!(target_arch = "aarch64") {
        ["targets/sbsa-linux/lib", "lib/aarch64-linux-gnu"]
    } else {
        ["targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"]
    };
    let folders = ["lib64", platform[0], platform[1], "lib"];
    Ok(Toolkit {
        version: cuda_files::read_nvcc_version(&real)?,
        library_folders: folders.iter().map(|name| home.join(name)).collect(),
        nvcc: real,
    })
}

/// Makes a folder whose `lib64` has every name that the linker asks for. Returns the folder.
///
/// The runtime library is linked statically, where the toolkit has it so: constructors in the kernels'
/// library call it before `main`, and the binary must start on a machine without it. The driver is a
/// stub; it is looked up when the program first needs it.
pub(super) fn link_libraries(folder: &Path, toolkit: &Toolkit) -> anyhow::Result<PathBuf> {
    let home = folder.join(format!("link-{}", toolkit.version));
    let names = home.join("lib64");
    files::create_folder(&names)?;
    cuda_files::build_driver_stub(&names)?;
    for library in plan_libraries(toolkit.version) {
        let name = format!("lib{}.so", library.link_name);
        let source = cuda_files::find_in(&toolkit.library_folders, &name)
            .or_else(|| cuda_files::find_in(&toolkit.library_folders, &library.soname));
        cuda_files::place_link(
            &names,
            &name,
            &source.ok_or_else(|| missing(toolkit, &name)).hint(WAY_OUT)?,
        )?;
    }
    let name = "libcudart_static.a";
    let runtime = cuda_files::find_in(&toolkit.library_folders, name)
        .ok_or_else(|| missing(toolkit, name))
        .hint(WAY_OUT)?;
    cuda_files::place_link(&names, "libcudart.a", &runtime)?;
    Ok(home)
}

const WAY_OUT: &str = "complete the toolkit, or use the wheels: cargo xtask cuda-setup --wheels";

fn missing(toolkit: &Toolkit, name: &str) -> anyhow::Error {
    let folders: Vec<String> =
        toolkit.library_folders.iter().map(|folder| folder.display().to_string()).collect();
    anyhow!("the toolkit has no `{name}` in {}", folders.join(", "))
}

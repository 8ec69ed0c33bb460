//! NVML, asked by a child of its own: `ask` starts it and `answer` is what it does.

use std::ffi::OsStr;
use std::process::ExitCode;
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use serde::{Deserialize, Serialize};

use super::{DriverFacts, Gpu, NoReply};
use crate::sys::command::Tool;
use crate::sys::{env, terminal};

/// The library as every driver installs it; the name without a number comes with developers' packages.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The path of an NVML to load instead: for systems that have it in no search path, and for tests.
const LIBRARY_VAR: &str = "ARC_NVML_LIBRARY";
/// The hidden command that runs [`answer`].
const COMMAND: &str = "driver-facts";

/// The library that the user names.
pub(super) fn named_library() -> Option<String> {
    env::read_var(LIBRARY_VAR).filter(|path| !path.is_empty())
}

/// Asks in a child.
pub(super) fn ask(deadline: Duration) -> Result<DriverFacts, NoReply> {
    // On Linux the link leads to this very program, even if a build has replaced the file since.
    let program = match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe().map_err(|_| NoReply::Failed)?,
    };
    let output = Tool::new(program).arg(COMMAND).deadline(deadline).output()?;
    match serde_json::from_slice(&output.stdout) {
        Ok(Said::Facts(facts)) => Ok(facts),
        Ok(Said::Broken(why)) => Err(NoReply::Broken(why)),
        Err(_) => Err(NoReply::Failed),
    }
}

/// What the child writes to stdout; nothing where NVML does not know.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Facts(DriverFacts),
    Broken(String),
}

/// Writes what NVML says as JSON to stdout.
pub(crate) fn answer() -> ExitCode {
    let said = match read_facts() {
        Ok(facts) => Said::Facts(facts),
        Err(error) if is_of_a_broken_driver(&error) => Said::Broken(error.to_string()),
        Err(error) => {
            terminal::log(&format!("NVML: {error}"));
            return ExitCode::FAILURE;
        }
    };
    terminal::data(&serde_json::to_string(&said).unwrap_or_default());
    ExitCode::SUCCESS
}

/// Whether an error says that the driver or its GPU cannot work, rather than that this NVML knows
/// less than is asked or may not say it.
fn is_of_a_broken_driver(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::IrqIssue
            | NvmlError::InsufficientPower
            | NvmlError::CorruptedInfoROM
            | NvmlError::LibRmVersionMismatch
            | NvmlError::Unknown
    )
}

fn read_facts() -> Result<DriverFacts, NvmlError> {
    let library = named_library().unwrap_or_else(|| LIBRARY.to_owned());
    let nvml = Nvml::builder().lib_path(OsStr::new(&library)).init()?;
    let read = |index| match nvml.device_by_index(index).and_then(|device| read_gpu(&device)) {
        // One that nobody looks at does no harm to the others.
        Err(error) if is_of_a_broken_driver(&error) => {
            Ok(Gpu { broken: Some(error.to_string()), ..Gpu::default() })
        }
        read => read,
    };
    let gpus = (0..nvml.device_count()?).map(read).collect::<Result<Vec<Gpu>, NvmlError>>()?;
    if gpus.is_empty() {
        return Err(NvmlError::NotFound);
    }
    Ok(DriverFacts { version: nvml.sys_driver_version().ok(), gpus })
}

fn read_gpu(device: &Device<'_>) -> Result<Gpu, NvmlError> {
    let memory = match device.memory_info() {
        Ok(memory) => Some(memory),
        // A GPU that shares the system's memory.
        Err(NvmlError::NotSupported) => None,
        // A driver from before 510, for example: `nvidia-smi` knows.
        Err(error) => return Err(error),
    };
    let processes = device.running_compute_processes().ok();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let reasons = device.current_throttle_reasons().ok();
    Ok(Gpu {
        name: device.name()?,
        uuid: device.uuid().ok(),
        memory_bytes: memory.as_ref().map(|memory| memory.total),
        free_bytes: memory.as_ref().map(|memory| memory.free),
        processes: processes.map(|all| all.into_iter().map(|process| process.pid).collect()),
        drawing: drawing.into_iter().map(|process| process.pid).collect(),
        clock_event_reasons: reasons.map(|reasons| reasons.bits()),
        instances: read_instances(device),
        broken: None,
    })
}

/// The instances of a GPU; none where it is not cut, or knows nothing of instances.
fn read_instances(device: &Device<'_>) -> Vec<Gpu> {
    let count = device.mig_device_count().unwrap_or(0);
    // Numbers of instances that do not exist answer "not found".
    let instances = (0..count).filter_map(|index| device.mig_device_by_index(index).ok());
    instances.filter_map(|instance| read_gpu(&instance).ok()).collect()
}

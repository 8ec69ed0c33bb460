//! Modules, functions and launches. A function is its name: the kernels that have a host version do
//! their work, others are counted by name and do nothing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::capture;
use crate::code::{self, Code};
use crate::counters::COUNTERS;
use crate::kernels;
use crate::launch::Launch;
use crate::state::{Function, code_of, enter, enter_context};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuModuleLoadData(
    module: *mut usize,
    _image: *const c_void,
) -> Code {
    code_of(enter_context("cuModuleLoadData").map(|(mut state, _)| {
        let handle = state.new_handle();
        state.modules.insert(handle);
        // SAFETY: the caller passes a place for one handle.
        unsafe { module.write(handle) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleUnload(module: usize) -> Code {
    code_of(enter("cuModuleUnload").and_then(|mut state| {
        if state.modules.remove(&module) { Ok(()) } else { Err(code::INVALID_HANDLE) }
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> Code {
    code_of(enter("cuModuleGetFunction").and_then(|mut state| {
        if !state.modules.contains(&module) {
            return Err(code::INVALID_HANDLE);
        }
        // SAFETY: the caller passes a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let known = state.functions.iter().find(|(_, known)| known.name == name);
        let handle = match known {
            Some((&handle, _)) => handle,
            None => {
                let plan = kernels::find(&name);
                let handle = state.new_handle();
                // Functions live as long as the process, as in a driver that unloads nothing.
                state.functions.insert(handle, Box::leak(Box::new(Function { name, plan })));
                handle
            }
        };
        // SAFETY: the caller passes a place for one handle.
        unsafe { function.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuFuncSetAttribute(
    _function: usize,
    _attribute: c_uint,
    _value: c_int,
) -> Code {
    code_of(enter("cuFuncSetAttribute").map(|_| ()))
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    stream: usize,
    params: *const *const c_void,
    _extra: *mut c_void,
) -> Code {
    let call = "cuLaunchKernel";
    code_of(enter(call).and_then(|mut state| {
        state.check_stream(call, stream)?;
        let Some(&function) = state.functions.get(&function) else {
            state.violate(format!("{call}: function {function:#x} does not exist"));
            return Err(code::INVALID_HANDLE);
        };
        if grid_x == 0 || grid_y == 0 || grid_z == 0 {
            return Err(code::INVALID_VALUE);
        }
        COUNTERS.launch.add();
        let Some(plan) = function.plan else {
            state.note_without_host_version(function.name.clone());
            return Ok(());
        };
        // SAFETY: the caller passes the arguments that the kernel of this name takes.
        let work = unsafe { plan(&Launch::new(params, grid_x)) };
        capture::submit(call, state, stream, work)
    }))
}

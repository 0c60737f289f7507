//! Compiling, loading and launching: the driver's side of `cuda.rs`.
//!
//! One module per device, compiled for its own architecture and kept for the life of the process.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use tch::{Device, TchError};

use crate::shim;

const SOURCE: &str = concat!(include_str!("kernels.cu"), include_str!("adamw.cu"));
const NAMES: [&str; 15] = [
    "norm_forward",
    "add_norm",
    "add_norm_wide",
    "norm_backward",
    "norm_backward_short",
    "norm_backward_long",
    "rotate",
    "rotate_back",
    "gate_forward",
    "gate_forward_wide",
    "gate_backward",
    "gate_backward_wide",
    "head_forward",
    "head_backward",
    "head_backward_wide",
];

const OPTIMIZER_NAMES: [&str; 7] = [
    "adamw_float_float",
    "adamw_float_bf16",
    "adamw_bf16_float",
    "adamw_bf16_bf16",
    "squares_float",
    "squares_bf16",
    "adamw_begin",
];

/// Kernels that wait by themselves for the one before (`after_previous`), and may therefore be
/// brought onto the device while it ends: in a graph of kernels of a few microseconds that counts.
const WAITING: [&str; 12] = [
    "norm_forward",
    "add_norm",
    "add_norm_wide",
    "gate_forward",
    "gate_forward_wide",
    "decode_attention",
    "decode_join",
    "append",
    "rotate_append",
    "feed",
    "draw",
    "draw_join",
];

/// One argument of a kernel, in the width that the kernel declares.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    Pointer(*mut c_void),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
}

/// Blocks and threads, both along x.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
}

/// The functions of one device. Handles stay valid as long as the primary context lives, which
/// torch keeps until the process ends.
pub struct Functions {
    by_name: HashMap<&'static str, sys::CUfunction>,
    /// The device's primary context. Made current before every launch: torch's backward threads
    /// select a device without it, and their first work may be a kernel of ours.
    context: sys::CUcontext,
    /// Whether the device can begin a kernel before the one before has ended (Hopper and later).
    can_overlap: bool,
}

// SAFETY: function and context handles are plain names inside the driver, usable from any thread.
unsafe impl Send for Functions {}

static LOADED: Mutex<Option<HashMap<usize, Result<Functions, String>>>> = Mutex::new(None);

fn names() -> Vec<&'static str> {
    [&NAMES[..], &OPTIMIZER_NAMES].concat()
}

fn with_functions<T>(
    device: Device,
    use_them: impl FnOnce(&Result<Functions, String>) -> T,
) -> Option<T> {
    let Device::Cuda(index) = device else { return None };
    // Held for one launch; launches come from one thread at a time in practice.
    let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let by_device = loaded.get_or_insert_default();
    Some(use_them(by_device.entry(index).or_insert_with(|| load(index, SOURCE, &names()))))
}

/// Whether a device is of the Hopper generation or later.
pub fn is_hopper(device: Device) -> bool {
    let ready = |functions: &Result<Functions, String>| {
        functions.as_ref().is_ok_and(|functions| functions.can_overlap)
    };
    with_functions(device, ready).unwrap_or(false)
}

/// Whether the kernels can be used on a device; compiles them on the first call.
pub fn is_ready(device: Device) -> bool {
    with_functions(device, Result::is_ok).unwrap_or(false)
}

/// Why the kernels are not used on a device, if they are not.
pub fn why_not_ready(device: Device) -> Option<String> {
    with_functions(device, |functions| functions.as_ref().err().cloned())
        .unwrap_or_else(|| Some("not a CUDA device".to_owned()))
}

/// Compiles and loads kernels for one device.
pub fn load(index: usize, source: &str, names: &[&'static str]) -> Result<Functions, String> {
    // SAFETY: only looks for the libraries; without this check cudarc panics where they are absent.
    if !unsafe { nvrtc::sys::is_culib_present() && sys::is_culib_present() } {
        return Err("libnvrtc or libcuda was not found".to_owned());
    }
    let major =
        attribute(index, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor =
        attribute(index, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    if major < 8 {
        return Err(format!("compute capability {major}.{minor} has no bf16"));
    }
    // SAFETY: the primary context is the one torch uses; it is retained for the whole process.
    let context = unsafe {
        let device = result::device::get(index as i32).map_err(|error| error.to_string())?;
        let context = result::primary_ctx::retain(device).map_err(|error| error.to_string())?;
        result::ctx::set_current(context).map_err(|error| error.to_string())?;
        context
    };
    let ptx = compile(&format!("compute_{major}{minor}"), source)?;
    let image = CString::new(ptx).map_err(|error| error.to_string())?;
    // SAFETY: the image is null-terminated PTX; the device's context was made current above.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
    let module = module.map_err(|error| format!("loading the kernels failed: {error}"))?;
    let mut by_name = HashMap::new();
    for &name in names {
        let symbol = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: the module was loaded above and is never unloaded.
        let function = unsafe { result::module::get_function(module, symbol) };
        by_name.insert(name, function.map_err(|error| format!("{name}: {error}"))?);
    }
    Ok(Functions { by_name, context, can_overlap: major >= 9 })
}

fn attribute(index: usize, which: sys::CUdevice_attribute) -> Result<i32, String> {
    let device = result::device::get(index as i32).map_err(|error| error.to_string())?;
    // SAFETY: the device was just returned by the driver.
    unsafe { result::device::get_attribute(device, which) }.map_err(|error| error.to_string())
}

/// PTX of the kernels for an architecture such as `compute_90`. Needs NVRTC but no device.
pub fn compile(architecture: &str, source: &str) -> Result<String, String> {
    let options = nvrtc::CompileOptions {
        options: vec![format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()],
        ..nvrtc::CompileOptions::default()
    };
    let ptx = nvrtc::compile_ptx_with_opts(source, options);
    Ok(ptx.map_err(|error| format!("NVRTC: {error}"))?.to_src())
}

/// Launches a kernel on torch's current stream of the device.
pub(super) fn launch(
    name: &'static str,
    device: Device,
    grid: Grid,
    arguments: &mut [Argument],
) -> Result<(), TchError> {
    let outcome = with_functions(device, |functions| match functions {
        Ok(functions) => functions.launch(name, device, grid, arguments),
        Err(problem) => Err(TchError::Torch(problem.clone())),
    });
    outcome.unwrap_or_else(|| Err(TchError::Torch("kernels need a CUDA device".to_owned())))
}

impl Functions {
    /// Launches a kernel on torch's current stream of the device.
    pub fn launch(
        &self,
        name: &'static str,
        device: Device,
        grid: Grid,
        arguments: &mut [Argument],
    ) -> Result<(), TchError> {
        if grid.blocks == 0 {
            return Ok(());
        }
        let stream: sys::CUstream = shim::current_stream(device)?.cast();
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| match argument {
                Argument::Pointer(value) => (&raw mut *value).cast(),
                Argument::Int(value) => (&raw mut *value).cast(),
                Argument::Long(value) => (&raw mut *value).cast(),
                Argument::Float(value) => (&raw mut *value).cast(),
                Argument::Double(value) => (&raw mut *value).cast(),
            })
            .collect();
        let function =
            self.by_name.get(name).ok_or_else(|| TchError::Torch(format!("no kernel {name}")))?;
        let mut overlap = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared_bytes,
            hStream: stream,
            attrs: &raw mut overlap,
            numAttrs: u32::from(self.can_overlap && WAITING.contains(&name)),
        };
        // SAFETY: arguments match the kernel's declaration (tests/cuda.rs and `bench decode --check`
        // run each), point to live tensors of checked sizes, and the stream is torch's own. What
        // may begin early waits by itself.
        let launched = unsafe {
            result::ctx::set_current(self.context)
                .map_err(|error| TchError::Torch(error.to_string()))?;
            let arguments = pointers.as_mut_ptr();
            sys::cuLaunchKernelEx(&raw const config, *function, arguments, std::ptr::null_mut())
                .result()
        };
        launched.map_err(|error| TchError::Torch(format!("{name}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_compile_where_nvrtc_is_there() {
        // SAFETY: only looks for the library.
        if !unsafe { nvrtc::sys::is_culib_present() } {
            println!("skipped: libnvrtc was not found");
            return;
        }
        let ptx = compile("compute_90", SOURCE).unwrap();
        for name in names() {
            assert!(ptx.contains(name), "{name}");
        }
    }

    #[test]
    fn the_cpu_is_never_ready() {
        assert!(!is_ready(Device::Cpu));
        assert!(why_not_ready(Device::Cpu).is_some());
    }
}

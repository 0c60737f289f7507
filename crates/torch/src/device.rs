//! What this machine has: libtorch, CUDA devices, and the libraries that parts of scalerl need.
//!
//! [`open`] must run before the first tensor: it opens libtorch's CUDA half where a driver is
//! present and fixes the arithmetic (no TF32). It runs once; later calls return the same findings.
//!
//! Not here: printing (`scalerl doctor` does that).

use std::sync::OnceLock;

use tch::{Cuda, Device};
use thiserror::Error;

use crate::cpu::{self, IsaLimit};
use crate::{nvidia, shim};

/// What was found when libtorch was opened.
#[derive(Debug, Clone)]
pub struct Found {
    /// Version of the libtorch that the loader found, where it says it.
    pub torch_version: Option<String>,
    /// CUDA devices that torch can use.
    pub cuda_devices: usize,
    /// Why there are none.
    pub why_no_cuda: Option<String>,
    /// Libraries of NVIDIA that lie beside libtorch and could not be opened, with reasons.
    pub nvidia_problems: Vec<String>,
    /// Which CPU instructions may be used.
    pub isa_limit: &'static IsaLimit,
}

/// Peak bytes so far: of tensors on a GPU, of the whole process on the CPU. `None` where it is not
/// known.
pub fn peak_memory(device: Device) -> Option<u64> {
    if let Device::Cuda(_) = device {
        return shim::peak_memory(device).ok().map(|(used, _)| used);
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DeviceError {
    /// Another libtorch may load and then compute nonsense or crash.
    #[error(
        "libtorch {found} was loaded, but this binary was built for {BUILT_FOR}: look at LD_LIBRARY_PATH"
    )]
    OtherTorch { found: String },
    #[error("`{name}` is not a device; choose auto, cpu, cuda or cuda:N")]
    Unknown { name: String },
    #[error("{name} was asked for, but {found} CUDA devices can be used{}", reason(why.as_deref()))]
    Missing { name: String, found: usize, why: Option<String> },
}

fn reason(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(": {why}"))
}

/// Opens libtorch for this process.
pub fn open() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        // Where the loader runs no initialisers this is the last moment before a product.
        let isa_limit = cpu::limit();
        let opened = shim::open_cuda();
        let nvidia_problems = if opened.is_ok() { nvidia::open_beside_torch() } else { Vec::new() };
        shim::exact_matmuls().expect("setting flags of libtorch cannot fail");
        let cuda_devices = if opened.is_ok() { Cuda::device_count().max(0) as usize } else { 0 };
        let why_no_cuda = match opened {
            Err(why) => Some(why),
            Ok(()) if cuda_devices == 0 => Some("the driver shows no device".to_owned()),
            Ok(()) => None,
        };
        let torch_version = shim::torch_version();
        Found { torch_version, cuda_devices, why_no_cuda, nvidia_problems, isa_limit }
    })
}

/// Gives the calling thread this many CPU threads for torch's loops, whatever others have.
///
/// The number belongs to the thread, but torch sets it once more from the latest of all threads at
/// a thread's first loop. Asking for it brings that moment forward.
pub fn use_threads(count: usize) {
    tch::set_num_threads(count.max(1) as i32);
    let first = tch::get_num_threads();
    if first != count as i32 {
        // Another thread's number slipped in between.
        tch::set_num_threads(count.max(1) as i32);
    }
}

/// Turns `auto`, `cpu`, `cuda` or `cuda:N` into a device that is there.
pub fn parse(name: &str) -> Result<Device, DeviceError> {
    let found = open();
    if let Some(version) = found.torch_version.as_ref().filter(|version| *version != BUILT_FOR) {
        return Err(DeviceError::OtherTorch { found: version.clone() });
    }
    let wanted = match name {
        "cpu" => return Ok(Device::Cpu),
        "auto" if found.cuda_devices == 0 => return Ok(Device::Cpu),
        "auto" | "cuda" => 0,
        other => other
            .strip_prefix("cuda:")
            .and_then(|index| index.parse::<usize>().ok())
            .ok_or_else(|| DeviceError::Unknown { name: name.to_owned() })?,
    };
    if wanted < found.cuda_devices {
        return Ok(Device::Cuda(wanted));
    }
    let why = found.why_no_cuda.clone();
    Err(DeviceError::Missing { name: name.to_owned(), found: found.cuda_devices, why })
}

/// What the driver calls a CUDA device; `None` where the system does not say.
pub fn name(index: usize) -> Option<String> {
    let entries = std::fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    let text = std::fs::read_to_string(folders.get(index)?.join("information")).ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
    Some(model.trim().to_owned())
}

/// One library that some part of scalerl opens at run time.
#[derive(Debug, Clone)]
pub struct Library {
    pub name: &'static str,
    pub needed_for: &'static str,
    /// `None` when it is there.
    pub problem: Option<String>,
}

/// Looks for the libraries that are only needed on GPU machines.
pub fn gpu_libraries() -> Vec<Library> {
    [
        ("libcuda.so.1", "any GPU work (the NVIDIA driver)"),
        ("libtorch_cuda.so", "any GPU work (torch's CUDA half, with cuBLAS and cuDNN beside it)"),
        ("libnvrtc.so.13", "our fused kernels"),
        ("libnccl.so.2", "training on several GPUs"),
    ]
    .map(|(name, needed_for)| Library { name, needed_for, problem: shim::can_open(name).err() })
    .into()
}

/// The torch that this binary was built for.
pub const BUILT_FOR: &str = "2.11.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_libtorch_says_its_version() {
        assert_eq!(open().torch_version.as_deref(), Some(BUILT_FOR));
    }

    #[test]
    fn device_names_are_checked() {
        assert_eq!(parse("cpu"), Ok(Device::Cpu));
        assert!(matches!(parse("gpu"), Err(DeviceError::Unknown { .. })));
        assert!(matches!(parse("cuda:x"), Err(DeviceError::Unknown { .. })));
        let said = parse("cuda:99").unwrap_err().to_string();
        assert!(said.contains("cuda:99 was asked for"), "{said}");
    }

    #[test]
    fn a_missing_library_is_named_with_its_reason() {
        assert!(shim::can_open("libc.so.6").is_ok());
        let said = shim::can_open("libsurely-not-there.so.7").unwrap_err();
        assert!(said.contains("libsurely-not-there.so.7"), "{said}");
    }
}

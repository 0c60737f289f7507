//! `scalerl doctor`: libtorch, devices, libraries, memory, what is missing for what and what to type;
//! and on every device a product and an attention held against float64 (`proof.rs`).
//!
//! Fails (exit code 1) when a result is wrong, and when a machine with an NVIDIA driver cannot use it.

mod proof;

use std::io::Write;

use anyhow::{Context as _, bail};

use scalerl_model::memory::meminfo;
use scalerl_torch::device::{self, Found};
use scalerl_torch::tch::{self, Device};
use scalerl_torch::{nvidia, shim};

use crate::failure::Failed;

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

const GIB: f64 = (1_u64 << 30) as f64;

/// Prints what was found.
pub(crate) fn run(_args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let found = device::open();
    let version = found.torch_version.as_deref().unwrap_or("of an unknown version");
    writeln!(out, "libtorch   {version} (built for {}), loaded from", device::BUILT_FOR)?;
    let loaded = nvidia::loaded_from("libtorch_cpu.so");
    let loaded =
        loaded.map_or("(this system does not say)".to_owned(), |path| path.display().to_string());
    writeln!(out, "           {loaded}")?;
    writeln!(out, "CPU        {} threads{}", tch::get_num_threads(), host_memory())?;
    writeln!(out, "           {}", found.isa_limit)?;
    writeln!(out, "           {}", scalerl_torch::mkl::path())?;
    cuda(found, out)?;
    writeln!(out, "libraries that GPU work needs")?;
    for library in device::gpu_libraries() {
        let state =
            library.problem.map_or_else(|| "found".to_owned(), |why| format!("missing: {why}"));
        writeln!(
            out,
            "  {:<18} {state}\n  {:<18} needed for {}",
            library.name, "", library.needed_for
        )?;
    }
    let waits = std::env::var("OMP_WAIT_POLICY").unwrap_or_default();
    if !waits.eq_ignore_ascii_case("passive") && found.cuda_devices == 0 {
        writeln!(
            out,
            "hint: set OMP_WAIT_POLICY=passive on a machine that others use; waiting threads spin otherwise"
        )?;
    }
    let devices = (0..found.cuda_devices).map(Device::Cuda);
    let proofs = proofs(&devices.chain([Device::Cpu]).collect::<Vec<_>>(), out);
    unused_gpu(found, has_driver())?;
    proofs
}

/// Whether this machine has an NVIDIA driver, used or not.
fn has_driver() -> bool {
    shim::can_open("libcuda.so.1").is_ok()
}

/// A GPU that is there and cannot be used: what to do about it.
fn unused_gpu(found: &Found, has_driver: bool) -> anyhow::Result<()> {
    let Some(why) = found.why_no_cuda.as_ref().filter(|_| has_driver) else { return Ok(()) };
    let error = std::io::Error::other(format!("this machine has an NVIDIA driver, but {why}"));
    let hint = if why.contains(".so") {
        "scalerl setup --cuda (fetches NVIDIA's libraries, about 2 GB, and puts them beside libtorch)"
    } else {
        "see what nvidia-smi says: torch 2.11 is built for CUDA 13, which needs driver 580 or newer"
    };
    Err(Failed::new(error, hint).into())
}

/// Computes on each device and prints how far off and how fast.
fn proofs(devices: &[Device], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "proofs, largest error against float64 over the largest number")?;
    let mut wrong = Vec::new();
    for &device in devices {
        let name = match device {
            Device::Cuda(index) => format!("cuda:{index}"),
            _ => "cpu".to_owned(),
        };
        for proof in proof::prove(device).with_context(|| format!("{name} cannot compute"))? {
            let verdict = if proof.holds() { "holds" } else { "WRONG" };
            writeln!(
                out,
                "  {name:<8} {:<31} {verdict}: error {:.1e}, {:.3} ms",
                proof.what, proof.error, proof.milliseconds
            )?;
            if !proof.holds() {
                wrong.push(format!("{name}: {}", proof.what));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("wrong results: {}", wrong.join("; "));
    }
    Ok(())
}

fn cuda(found: &Found, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(why) = &found.why_no_cuda {
        writeln!(out, "CUDA       not used: {why}")?;
        return Ok(());
    }
    for problem in &found.nvidia_problems {
        writeln!(out, "           beside libtorch, but not to be opened: {problem}")?;
    }
    for index in 0..found.cuda_devices {
        let (free, total) = shim::device_memory(Device::Cuda(index))?;
        writeln!(
            out,
            "CUDA       cuda:{index}: {:.1} of {:.1} GiB free",
            free as f64 / GIB,
            total as f64 / GIB
        )?;
    }
    Ok(())
}

fn host_memory() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match (meminfo(&text, "MemAvailable:"), meminfo(&text, "MemTotal:")) {
        (Some(free), Some(total)) => {
            format!(", {:.1} of {:.1} GiB memory free", free as f64 / GIB, total as f64 / GIB)
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use scalerl_torch::cpu::IsaLimit;

    use super::*;

    fn found(why_no_cuda: Option<&str>) -> Found {
        static NO_LIMIT: IsaLimit = IsaLimit::None { has_amx: false };
        Found {
            torch_version: None,
            cuda_devices: usize::from(why_no_cuda.is_none()),
            why_no_cuda: why_no_cuda.map(str::to_owned),
            nvidia_problems: Vec::new(),
            isa_limit: &NO_LIMIT,
        }
    }

    #[test]
    fn a_machine_without_a_driver_is_well_without_a_gpu() {
        assert!(unused_gpu(&found(Some("no NVIDIA driver")), false).is_ok());
        assert!(unused_gpu(&found(None), true).is_ok());
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_a_failure() {
        let missing = "libcublas.so.13: cannot open shared object file";
        let said = unused_gpu(&found(Some(missing)), true).unwrap_err().to_string();
        assert!(said.contains("NVIDIA driver") && said.contains("libcublas.so.13"), "{said}");
        assert!(unused_gpu(&found(Some("the driver shows no device")), true).is_err());
    }

    #[test]
    fn the_cpu_is_proved_in_two_lines() {
        let mut out = Vec::new();
        proofs(&[Device::Cpu], &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.matches("holds: error").count(), 2, "{out}");
    }
}

//! `scalerl doctor`: libtorch, devices, libraries, memory, and what is missing for what.

use std::io::Write;

use scalerl_model::memory::meminfo;
use scalerl_torch::device::{self, Found};
use scalerl_torch::shim;
use scalerl_torch::tch::{self, Device};

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

const GIB: f64 = (1_u64 << 30) as f64;

/// Prints what was found.
pub(crate) fn run(_args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let found = device::open();
    let version = found.torch_version.as_deref().unwrap_or("of an unknown version");
    writeln!(out, "libtorch   {version} (built for {}), loaded from", device::BUILT_FOR)?;
    writeln!(out, "           {}", loaded_from("libtorch_cpu.so"))?;
    writeln!(out, "CPU        {} threads{}", tch::get_num_threads(), host_memory())?;
    writeln!(out, "           {}", found.isa_limit)?;
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
    Ok(())
}

fn cuda(found: &Found, out: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(why) = &found.why_no_cuda {
        writeln!(out, "CUDA       not used: {why}")?;
        return Ok(());
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

/// Where the loader found a library, from this process' own map.
fn loaded_from(name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let line = maps.lines().find(|line| line.ends_with(name));
    line.and_then(|line| line.split_whitespace().last())
        .map_or_else(|| "(this system does not say)".to_owned(), str::to_owned)
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

//! What a run ran on, for its folder.

use std::time::{SystemTime, UNIX_EPOCH};

use scalerl_curve::Provenance;
use scalerl_journal::{AdapterSize, Environment};
use scalerl_torch::device;
use scalerl_torch::tch::Device;

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

pub(crate) fn environment(
    device: Device,
    provenance: Provenance,
    adapter: Option<AdapterSize>,
) -> Environment {
    let found = device::open();
    let torch = found.torch_version.clone().unwrap_or_else(|| "unknown".to_owned());
    Environment {
        scalerl: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("SCALERL_COMMIT").map(str::to_owned),
        command: std::env::args().collect(),
        started_at: now(),
        devices: vec![match device {
            Device::Cuda(index) => device::name(index).unwrap_or_else(|| format!("cuda:{index}")),
            _ => format!("{} CPU threads", threads()),
        }],
        machine: machine(),
        libraries: [("libtorch".to_owned(), torch)].into(),
        provenance,
        adapter,
    }
}

/// CPU threads of this machine.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| {
        line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned())
    });
    let system = read("/proc/sys/kernel/osrelease");
    let processor = processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    format!("{} {}, {processor}", std::env::consts::OS, system.trim())
}

//! What a CUDA device did while something ran, kernel by kernel, as CUPTI saw it.

use std::collections::HashMap;

use serde::Serialize;
use tch::{Device, TchError};

use crate::shim;

/// All calls of one kernel (or kind of copy).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelTime {
    pub name: String,
    pub calls: usize,
    pub ms: f64,
}

/// What a device did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DeviceTime {
    /// From the beginning of the first to the end of the last kernel.
    pub ms: f64,
    /// Of that, with nothing running.
    pub idle_ms: f64,
    /// Longest first.
    pub kernels: Vec<KernelTime>,
}

/// Runs `work` and says what the device did meanwhile, in milliseconds over `times`.
pub fn profile<E: From<TchError>>(
    device: Device,
    times: usize,
    work: impl FnOnce() -> Result<(), E>,
) -> Result<DeviceTime, E> {
    let list = shim::profile(device, work)?;
    Ok(summed(&list, times as f64))
}

fn summed(list: &[shim::DeviceWork], times: f64) -> DeviceTime {
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6 / times;
    let mut by_name: HashMap<&str, KernelTime> = HashMap::new();
    let (mut idle, mut until) = (0, list.first().map_or(0, |work| work.start_ns));
    for work in list {
        let name = work.name.clone();
        let entry = by_name.entry(&work.name).or_insert(KernelTime { name, calls: 0, ms: 0.0 });
        entry.calls += 1;
        entry.ms += ms(work.length_ns);
        idle += work.start_ns.saturating_sub(until);
        until = until.max(work.start_ns + work.length_ns);
    }
    let mut kernels: Vec<KernelTime> = by_name.into_values().collect();
    kernels.sort_by(|a, b| b.ms.total_cmp(&a.ms).then_with(|| a.name.cmp(&b.name)));
    let from = list.first().map_or(0, |work| work.start_ns);
    DeviceTime { ms: ms(until - from), idle_ms: ms(idle), kernels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_added_up_and_gaps_are_idle() {
        let work = |name: &str, start_ns: u64, length_ns: u64| shim::DeviceWork {
            name: name.to_owned(),
            start_ns,
            length_ns,
        };
        // The second overlaps the first; then a gap of two.
        let list = [
            work("a", 1_000_000, 4_000_000),
            work("b", 3_000_000, 1_000_000),
            work("a", 7_000_000, 3_000_000),
        ];
        let found = summed(&list, 2.0);
        assert_eq!((found.ms, found.idle_ms), (4.5, 1.0));
        let names: Vec<(&str, usize, f64)> =
            found.kernels.iter().map(|k| (k.name.as_str(), k.calls, k.ms)).collect();
        assert_eq!(names, [("a", 2, 3.5), ("b", 1, 0.5)]);
        assert_eq!(summed(&[], 1.0), DeviceTime::default());
    }
}

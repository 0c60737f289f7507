//! What this machine has free, asked before something large is made.
//!
//! An allocation that does not fit is no error on Linux: it succeeds, and the process is killed
//! when it uses it. Not here: memory of GPUs, whose driver refuses by itself.

use tch::{Device, Kind};

use crate::config::ModelConfig;
use crate::error::LoadError;

/// Bytes that can be had without pushing others out; `None` where the system does not say.
pub fn free() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo(&text, "MemAvailable:")? + meminfo(&text, "SwapFree:").unwrap_or(0);
    let group = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let group =
        group("memory.max").map(|most| most.saturating_sub(group("memory.current").unwrap_or(0)));
    Some(group.map_or(machine, |group| group.min(machine)))
}

/// One line of /proc/meminfo, in bytes.
pub fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Refuses a model whose weights do not fit into memory.
pub fn check(config: &ModelConfig, kind: Kind, device: Device) -> Result<(), LoadError> {
    if device != Device::Cpu {
        return Ok(());
    }
    let parameters = config.parameter_count();
    let needed = parameters as u64 * kind.elt_size_in_bytes() as u64;
    match free() {
        Some(free) if needed > free => Err(LoadError::NoRoom { parameters, needed, free }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_system_are_read_in_bytes() {
        let text = "MemTotal:       24612345 kB\nMemAvailable:   2 kB\nBroken: x kB\n";
        assert_eq!(meminfo(text, "MemAvailable:"), Some(2048));
        assert_eq!(meminfo(text, "Broken:"), None);
        assert_eq!(meminfo(text, "SwapFree:"), None);
    }

    #[test]
    fn weights_that_do_not_fit_are_refused_before_they_are_made() {
        let config = serde_json::json!({
            "model_type": "llama", "vocab_size": 1 << 20, "hidden_size": 1 << 17,
            "intermediate_size": 1 << 18, "num_hidden_layers": 30, "num_attention_heads": 64,
        });
        let config = ModelConfig::from_json(config, std::path::Path::new("config.json")).unwrap();
        let refused = check(&config, Kind::Float, Device::Cpu);
        assert!(matches!(refused, Err(LoadError::NoRoom { .. })), "{refused:?}");
        assert!(check(&config, Kind::Float, Device::Cuda(0)).is_ok());
    }
}

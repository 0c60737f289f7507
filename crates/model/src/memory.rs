//! What this machine has free, asked before something large is made.
//!
//! An allocation that does not fit is no error on Linux: it succeeds, and the process is killed
//! when it uses it. Not here: memory of GPUs, whose driver refuses by itself.

use std::path::Path;

use tch::{Device, Kind};

use crate::config::ModelConfig;
use crate::error::LoadError;

/// Bytes that can be had without pushing others out; `None` where the system does not say.
pub fn free() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo(&text, "MemAvailable:")?;
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = left_by_groups(Path::new("/sys/fs/cgroup"), &own);
    Some(groups.map_or(machine, |left| left.min(machine)))
}

/// Whether a copy of so many bytes can be made and written: whoever writes it holds a tensor more, and
/// others on the machine go on too.
pub fn has_room(needed: u64, free: u64) -> bool {
    needed.saturating_add(needed / 8 + (256 << 20)) <= free
}

/// What the control groups of a process, and all above them, leave it; `own` is its /proc/self/cgroup.
/// `None` where none has a limit.
fn left_by_groups(root: &Path, own: &str) -> Option<u64> {
    let of_line = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        // The second version has one tree and no controllers by name; the first one for memory.
        let (tree, names) = match controllers {
            "" => ("", ["memory.max", "memory.current", "inactive_file "]),
            "memory" => {
                let names =
                    ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];
                ("memory", names)
            }
            _ => return None,
        };
        let tree = root.join(tree);
        // A container sees its own group as the root of the tree.
        let path = tree.join(path.trim_start_matches('/'));
        let above = path.ancestors().take_while(|folder| folder.starts_with(&tree));
        above.filter_map(|folder| left_in(folder, names)).min()
    };
    own.lines().filter_map(of_line).min()
}

/// Pages of files that nobody uses now make room for whoever asks.
fn left_in(group: &Path, [limit, used, unused]: [&str; 3]) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let stat = read("memory.stat").unwrap_or_default();
    let pages = stat.lines().find_map(|line| line.strip_prefix(unused)?.trim().parse::<u64>().ok());
    let used = number(used)?.saturating_sub(pages.unwrap_or(0));
    Some(number(limit)?.saturating_sub(used))
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
    let swap = || {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        meminfo(&text, "SwapFree:").unwrap_or(0)
    };
    match free().map(|free| free + swap()) {
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
    fn the_group_that_leaves_least_counts_and_pages_of_files_are_no_use() {
        let root = tempfile::tempdir().unwrap();
        let write = |group: &str, files: &[(&str, &str)]| {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                std::fs::write(folder.join(name), text).unwrap();
            }
        };
        let left = |own: &str| left_by_groups(root.path(), own);
        assert_eq!(left("0::/job/step\n"), None, "no group says anything");
        write("", &[("memory.stat", "inactive_file 7\n")]);
        write("job/step", &[("memory.max", "max\n"), ("memory.current", "90\n")]);
        assert_eq!(left("0::/job/step\n"), None, "no limit");
        let full = [("memory.max", "100\n"), ("memory.current", "90\n")];
        write("job", &full);
        assert_eq!(left("0::/job/step\n"), Some(10), "a limit above");
        write("job", &[("memory.stat", "anon 20\ninactive_file 60\nactive_file 5\n")]);
        assert_eq!(left("0::/job/step\n"), Some(70));
        write("job/step", &[("memory.max", "30\n"), ("memory.current", "15\n")]);
        assert_eq!(left("0::/job/step\n"), Some(15));
        // Inside a container the path is one of outside.
        write("", &full);
        assert_eq!(left("0::/outside/of/it\n"), Some(17));
        let first = [("memory.limit_in_bytes", "50\n"), ("memory.usage_in_bytes", "49\n")];
        write("memory/slurm", &first);
        write("memory/slurm", &[("memory.stat", "inactive_file 1\ntotal_inactive_file 4\n")]);
        assert_eq!(left("5:cpu:/\n4:memory:/slurm\n"), Some(5), "the first version's tree");
        assert_eq!(left("garbage\n\n1:name=systemd:/\n"), None);
    }

    #[test]
    fn a_copy_needs_more_room_than_it_takes() {
        let gibibyte = 1_u64 << 30;
        assert!(has_room(8 * gibibyte, 10 * gibibyte));
        assert!(!has_room(8 * gibibyte, 9 * gibibyte));
        assert!(!has_room(0, 1 << 20) && has_room(u64::MAX / 2, u64::MAX));
        assert!(!has_room(u64::MAX, u64::MAX - 1));
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

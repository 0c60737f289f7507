//! Memory of all processes in a sandbox together, where no cgroup counts it.
//!
//! Read from outside, every time the run is looked at (20 ms). What a program takes between two
//! looks is not bounded by this; each process is, by its own limit. What lies in files is bounded by
//! the size of the scratch folder; that there are files at all costs the kernel a kilobyte each,
//! which no size bounds, so they are counted.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::walls::SCRATCH;

/// A file costs about a kilobyte; so many take a quarter of the memory.
const BYTES_PER_FILE: u64 = 4096;

/// Whether the process and all below it hold more than so many bytes, or their share of files.
pub(crate) fn holds_more(root: u32, bytes: u64) -> bool {
    let family = family(root);
    let total =
        |measure: fn(u32) -> Option<u64>| family.iter().filter_map(|pid| measure(*pid)).sum();
    let resident: u64 = total(resident);
    // After a fork both sides show the same pages: before anything is killed, shares are counted.
    (resident > bytes && total(|pid| shares(pid).or_else(|| self::resident(pid))) > bytes)
        || family.iter().rev().find_map(|pid| files(*pid)) > Some(bytes / BYTES_PER_FILE)
}

/// Files in the scratch folder that a process sees, once it sees another root than we do.
fn files(pid: u32) -> Option<u64> {
    let root = format!("/proc/{pid}/root");
    let place = |path: &str| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    if place(&format!("{root}/"))? == place("/")? {
        return None;
    }
    let scratch = rustix::fs::statvfs(format!("{root}{SCRATCH}")).ok()?;
    scratch.f_files.checked_sub(scratch.f_ffree)
}

/// The process and its descendants. One that loses its parent stays below the sandbox's first.
fn family(root: u32) -> Vec<u32> {
    let mut family = vec![root];
    let mut next = 0;
    while let Some(pid) = family.get(next).copied() {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    family
}

/// Memory that no file on disk backs.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(field(&status, "RssAnon:")? + field(&status, "RssShmem:").unwrap_or(0))
}

/// The same, a page that n processes share counted as 1/n of it.
fn shares(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(field(&rollup, "Pss_Anon:")? + field(&rollup, "Pss_Shmem:").unwrap_or(0))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_children_is_counted_and_shared_pages_once() {
        // 64 MiB, then four children that share them, each through a fork of its own.
        let script = "import os, sys\nblock = bytearray(b'x') * (64 << 20)\n\
                      for _ in range(4):\n    if os.fork() == 0:\n        sys.stdin.read()\n        os._exit(0)\n\
                      print('ready', flush=True)\nsys.stdin.read()\n";
        let mut child = std::process::Command::new("/usr/bin/python3")
            .args(["-I", "-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let resident: u64 = family(child.id()).into_iter().filter_map(resident).sum();
        assert!(resident > 5 * (60 << 20), "every process shows the block: {resident}");
        assert!(holds_more(child.id(), 50 << 20));
        assert!(!holds_more(child.id(), 200 << 20), "there is one block, not five");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

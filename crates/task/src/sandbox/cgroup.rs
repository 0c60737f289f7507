//! A cgroup for each run: memory and processes of everything in the sandbox together.
//!
//! Limits of a process (`runner.py`) count each process alone, and neither files in memory nor what
//! the kernel keeps for it. A cgroup counts it all. Version 2 needs a folder that is ours: root's,
//! or one that systemd delegated (`systemd-run --user --scope -p Delegate=yes`); version 1 needs
//! root. Where there is none, `watch.rs` counts memory instead.
//!
//! ```text
//! own cgroup ─┬─ scalerl-self-PID     ourselves, where version 2 wants a folder without processes
//!             └─ scalerl-PID-N        one run; removed with it
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::SandboxLimits;

/// For bubblewrap itself and the kernel's own bookkeeping, beside the program's memory.
const OVERHEAD_BYTES: u64 = 32 << 20;

/// Bubblewrap's two processes, and room for one that is just ending.
const OVERHEAD_PROCESSES: u64 = 4;

/// The folder of our own process begins with it.
const SELF: &str = "scalerl-self-";

/// Folders under which cgroups for runs can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cgroups {
    /// Version 2: one folder for all.
    Unified(PathBuf),
    /// Version 1: a folder for each kind; processes can do without.
    Legacy { memory: PathBuf, pids: Option<PathBuf> },
}

impl Cgroups {
    /// The first place where a cgroup with limits can really be made.
    pub(crate) fn find() -> Option<Self> {
        let cgroup = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mut places = Vec::new();
        if let Some(own) = locate(&cgroup, &mounts, "").map(outside_of_self) {
            enable(&own);
            // Root may make a sibling where a child is refused.
            let parent = own.parent().filter(|parent| parent.join("cgroup.procs").exists());
            places.extend(parent.map(|parent| Self::Unified(parent.to_owned())));
            places.insert(0, Self::Unified(own));
        }
        if let Some(memory) = locate(&cgroup, &mounts, "memory") {
            let pids = locate(&cgroup, &mounts, "pids");
            places.push(Self::Legacy { memory: memory.clone(), pids });
            places.push(Self::Legacy { memory, pids: None });
        }
        let is_usable = |place: &Self| place.make(SandboxLimits::default()).is_ok();
        let found = places.into_iter().find(is_usable)?;
        found.sweep();
        Some(found)
    }

    /// Removes what runs of a process that was killed have left.
    fn sweep(&self) {
        let places = match self {
            Self::Unified(place) => vec![place],
            Self::Legacy { memory, pids } => std::iter::once(memory).chain(pids).collect(),
        };
        for entry in places.into_iter().flat_map(fs::read_dir).flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix("scalerl-").and_then(|rest| rest.split_once('-'));
            if pid.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
                // Refused where something is inside.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Makes a cgroup for one run.
    pub(crate) fn make(&self, limits: SandboxLimits) -> io::Result<Cgroup> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("scalerl-{}-{count}", std::process::id());
        let memory = ((limits.memory_mib << 20) + OVERHEAD_BYTES).to_string();
        let processes = (limits.processes + OVERHEAD_PROCESSES).to_string();
        let mut cgroup = Cgroup { folders: Vec::new() };
        match self {
            Self::Unified(place) => {
                let folder = cgroup.add(place.join(name))?;
                set(&folder, "memory.max", &memory)?;
                // Not there where processes or swap are not counted, or in older kernels.
                let _ = set(&folder, "pids.max", &processes);
                let _ = set(&folder, "memory.swap.max", "0");
                let _ = set(&folder, "memory.oom.group", "1");
            }
            Self::Legacy { memory: place, pids } => {
                let folder = cgroup.add(place.join(&name))?;
                set(&folder, "memory.limit_in_bytes", &memory)?;
                // Not there where swap is not counted.
                let _ = set(&folder, "memory.memsw.limit_in_bytes", &memory);
                if let Some(place) = pids {
                    let folder = cgroup.add(place.join(&name))?;
                    set(&folder, "pids.max", &processes)?;
                }
            }
        }
        Ok(cgroup)
    }
}

/// The cgroup of one run. Dropped, it is emptied and removed.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folders: Vec<PathBuf>,
}

impl Cgroup {
    fn add(&mut self, folder: PathBuf) -> io::Result<PathBuf> {
        fs::create_dir(&folder)?;
        self.folders.push(folder.clone());
        Ok(folder)
    }

    /// What a process writes 0 to in order to enter.
    pub(crate) fn doors(&self) -> io::Result<Vec<File>> {
        self.folders.iter().map(|folder| open(folder, "cgroup.procs")).collect()
    }
}

/// Kills whatever is inside. A process can fork while we read who is there, so until nobody is.
fn empty(folder: &Path) -> bool {
    let _ = set(folder, "cgroup.kill", "1");
    let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in inside.lines().filter_map(|line| line.parse().ok()) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    inside.is_empty() && fs::remove_dir(folder).is_ok()
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // The kernel takes the dead away by itself; a cgroup that stays is empty and harmless.
            for wait_ms in [0, 1, 2, 5, 10, 20, 50, 100, 200, 500] {
                thread::sleep(Duration::from_millis(wait_ms));
                if empty(folder) {
                    break;
                }
            }
        }
    }
}

/// Never creates: outside of a cgroup the file must not appear.
fn open(folder: &Path, name: &str) -> io::Result<File> {
    OpenOptions::new().write(true).open(folder.join(name))
}

fn set(folder: &Path, name: &str, value: &str) -> io::Result<()> {
    open(folder, name)?.write_all(value.as_bytes())
}

/// The folder of the cgroup we are in: that of `kind` in version 1, or version 2's for "".
fn locate(cgroup: &str, mounts: &str, kind: &str) -> Option<PathBuf> {
    let own = cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (kinds, path) = (parts.next()?, parts.next()?);
        kinds.split(',').any(|one| one == kind).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        // id parent device ROOT PLACE options … - TYPE source OPTIONS
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, place) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (system, options) = (after.next()?, after.nth(1)?);
        let is_right = match kind {
            "" => system == "cgroup2",
            kind => system == "cgroup" && options.split(',').any(|one| one == kind),
        };
        // In a container the mount may begin below the root of the tree.
        let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or(own);
        is_right.then(|| Path::new(place).join(below.trim_start_matches('/')))
    })
}

/// Where a process went one down already, itself or whoever started it, its folders are beside it.
fn outside_of_self(own: PathBuf) -> PathBuf {
    let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match own.parent() {
        Some(parent) if name.starts_with(SELF) => parent.to_owned(),
        _ => own,
    }
}

/// Has version 2 count memory and processes below our own cgroup. It refuses while processes are
/// in it, so where we are alone we go one down.
fn enable(own: &Path) {
    let switch = || set(own, "cgroup.subtree_control", "+memory +pids");
    let id = std::process::id().to_string();
    let inside = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
    if switch().is_ok() || inside.trim() != id {
        return;
    }
    let below = own.join(format!("{SELF}{id}"));
    if fs::create_dir(&below).is_ok()
        && set(&below, "cgroup.procs", &id).is_ok()
        && switch().is_err()
    {
        let _ = set(own, "cgroup.procs", &id);
        let _ = fs::remove_dir(&below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cgroup_is_found_in_either_version() {
        let systemd = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope\n";
        let mounts =
            "24 30 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let own =
            "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope";
        assert_eq!(locate(systemd, mounts, ""), Some(PathBuf::from(own)));
        assert_eq!(locate(systemd, mounts, "memory"), None);

        let both = "8:pids:/\n4:memory:/jobs/12\n1:cpu,cpuacct:/\n0::/\n";
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let memory = PathBuf::from("/sys/fs/cgroup/memory/jobs/12");
        assert_eq!(locate(both, mounts, "memory"), Some(memory));
        assert_eq!(locate(both, mounts, "pids"), Some("/sys/fs/cgroup/pids/".into()));
        assert_eq!(locate(both, mounts, ""), Some("/sys/fs/cgroup/unified/".into()));
    }

    #[test]
    fn nobody_goes_down_twice() {
        let scope = PathBuf::from("/sys/fs/cgroup/app.slice/run-7.scope");
        assert_eq!(outside_of_self(scope.join("scalerl-self-77")), scope);
        assert_eq!(outside_of_self(scope.clone()), scope);
    }

    #[test]
    fn a_mount_that_begins_below_the_root_is_a_containers() {
        let cgroup = "4:memory:/docker/f00/inner\n";
        let mounts = "30 25 0:26 /docker/f00 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let memory = PathBuf::from("/sys/fs/cgroup/memory/inner");
        assert_eq!(locate(cgroup, mounts, "memory"), Some(memory));
    }

    #[test]
    fn a_cgroup_is_gone_with_its_run() {
        let Some(cgroups) = Cgroups::find() else { return println!("SKIPPED: no cgroup is ours") };
        let cgroup = cgroups.make(SandboxLimits::default()).unwrap();
        let folders = cgroup.folders.clone();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for folder in &folders {
            set(folder, "cgroup.procs", &child.id().to_string()).unwrap();
        }
        let reaper = thread::spawn(move || child.wait().unwrap());
        drop(cgroup);
        assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
        assert!(!reaper.join().unwrap().success(), "it was killed, not waited for");
    }
}

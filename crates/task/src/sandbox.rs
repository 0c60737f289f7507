//! A sandbox for Python programs that a model wrote.
//!
//! ```text
//! walls.rs    what a program sees and names         bubblewrap: namespaces, read-only files
//! seccomp.rs  which system calls it gets            a filter that bubblewrap installs
//! runner.py   limits of each process                set before the first line of the program
//! cgroup.rs   limits of all processes together      where a cgroup is ours
//! watch.rs    the same, counted from outside        where none is
//! ```
//!
//! All of it dies with the run. As root the sandbox runs under uid 65534: the kernel does not count
//! root's processes, so a fork bomb of root's would not be bounded by a limit.
//!
//! Not here: what a program must do to be right (`verify/code.rs`).

mod cgroup;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod seccomp;
mod walls;
mod watch;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use self::cgroup::{Cgroup, Cgroups};
use self::walls::Bubblewrap;
use crate::process::{Bounds, Ending, Finished, Running, Start, Streams, until};
use crate::spawn::Spawn;

/// What a program may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxLimits {
    /// Seconds of wall-clock time for one test.
    pub time_per_test_s: f64,
    /// Seconds of wall-clock time for all tests of one program together.
    pub time_s: f64,
    /// Memory of all processes of a program together, its files among it, in MiB; where there is
    /// no cgroup, of its processes and of its files each.
    pub memory_mib: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes a program may print.
    pub output_bytes: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            time_per_test_s: 10.0,
            time_s: 30.0,
            memory_mib: 512,
            processes: 32,
            output_bytes: 1 << 20,
        }
    }
}

/// Where programs run.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    /// Without: limits alone, only after the user has said so in words.
    walls: Option<Bubblewrap>,
    cgroups: Option<Cgroups>,
    python: PathBuf,
    limits: SandboxLimits,
}

const RUNNER: &str = include_str!("sandbox/runner.py");

/// Python on a busy machine.
pub(crate) const START: Start =
    Start { mark: b"scalerl-started\n", within: Duration::from_secs(20) };

/// The user that programs run as when we are root.
const NOBODY: u32 = 65_534;

impl Sandbox {
    /// Finds bubblewrap and a Python that works inside; the problem in words otherwise.
    pub(crate) fn find(python: &str, limits: SandboxLimits) -> Result<Self, String> {
        let walls = Bubblewrap::find()?.ways();
        let cgroups = Cgroups::find();
        // A cgroup that can be made but not entered is none.
        let cgroups: Vec<_> = cgroups.into_iter().map(Some).chain([None]).collect();
        let mut problem = format!("no Python interpreter: {python} is not on the PATH");
        for python in interpreters(python) {
            for (walls, cgroups) in walls.iter().flat_map(|w| cgroups.iter().map(move |c| (w, c))) {
                let (walls, cgroups) = (Some(walls.clone()), cgroups.clone());
                let sandbox = Self { walls, cgroups, python: python.clone(), limits };
                match sandbox.try_out() {
                    Ok(()) => return Ok(sandbox),
                    Err(reason) => problem = format!("{} in bwrap: {reason}", python.display()),
                }
            }
        }
        Err(problem)
    }

    /// Python without walls.
    pub(crate) fn without_walls(python: &str, limits: SandboxLimits) -> Result<Self, String> {
        let mut found = interpreters(python).into_iter();
        let python = found.next().ok_or_else(|| format!("{python} is not on the PATH"))?;
        Ok(Self { walls: None, cgroups: Cgroups::find(), python, limits })
    }

    /// The same as on a machine where no cgroup is ours.
    pub(crate) fn without_cgroup(self) -> Self {
        Self { cgroups: None, ..self }
    }

    fn try_out(&self) -> Result<(), String> {
        let time = Duration::from_secs(10);
        let run = self.start(&[("program.py", "print(6 * 7)")], Streams::Collected(b""), time);
        let finished = run.and_then(SandboxRun::wait).map_err(|error| error.to_string())?;
        if finished.stdout == b"42\n" {
            return Ok(());
        }
        Err(last_line(&finished.stderr).unwrap_or_else(|| "it printed nothing".to_owned()))
    }

    /// Starts the first of `files` as a script that finds the others beside it.
    pub(crate) fn start(
        &self,
        files: &[(&str, &str)],
        streams: Streams<'_>,
        time: Duration,
    ) -> io::Result<SandboxRun> {
        let folder = tempfile::tempdir()?;
        for (name, text) in files.iter().chain(&[("runner.py", RUNNER)]) {
            fs::write(folder.path().join(name), text)?;
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644))?;
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let cgroup = self.cgroups.as_ref().map(|cgroups| cgroups.make(self.limits)).transpose()?;
        let mut command = match &self.walls {
            Some(walls) => self.walled(walls, folder.path())?,
            None => self.unwalled(folder.path())?,
        };
        command.cgroups = cgroup.as_ref().map(Cgroup::doors).transpose()?.unwrap_or_default();
        let place = if self.walls.is_some() { Path::new(walls::TASK) } else { folder.path() };
        command.args(["-I", "-B"]).arg(place.join("runner.py"));
        command.args(self.limit_arguments(time)).arg(place.join(files[0].0));
        let bounds = Bounds { time, output_bytes: self.limits.output_bytes, start: Some(START) };
        let running = Running::start(&command, streams, bounds)?;
        let most_bytes = self.limits.memory_mib << 20;
        let watched = cgroup.is_none().then_some(most_bytes);
        Ok(SandboxRun { running, watched, _cgroup: cgroup, _folder: folder })
    }

    fn walled(&self, walls: &Bubblewrap, files: &Path) -> io::Result<Spawn> {
        let filter = walls::filter()?;
        let scratch_bytes = self.limits.memory_mib << 20;
        let mut command = walls.command(&self.python, files, scratch_bytes, filter.as_ref());
        command.keep.extend(filter);
        command.user = rustix::process::getuid().is_root().then_some(NOBODY);
        Ok(command)
    }

    fn unwalled(&self, folder: &Path) -> io::Result<Spawn> {
        let scratch = folder.join("scratch");
        fs::create_dir(&scratch)?;
        let mut command = Spawn::new(&self.python);
        command.only_environment(&[("PYTHONHASHSEED", "0")]).folder(&scratch);
        Ok(command)
    }

    fn limit_arguments(&self, time: Duration) -> [String; 4] {
        let memory = self.limits.memory_mib << 20;
        [memory, time.as_secs() + 2, self.limits.processes, memory].map(|n| n.to_string())
    }
}

/// A program in its sandbox. Dropped, it is killed with all it started.
#[derive(Debug)]
pub(crate) struct SandboxRun {
    // Dropped in this order: a cgroup is removed after its processes, files after both.
    running: Running,
    /// Most bytes of memory, where no cgroup counts it.
    watched: Option<u64>,
    _cgroup: Option<Cgroup>,
    _folder: TempDir,
}

impl SandboxRun {
    /// Whether it has ended, by itself or because it broke a bound just now.
    pub(crate) fn poll(&mut self) -> io::Result<bool> {
        if !self.running.poll()?
            && self.watched.is_some_and(|bytes| watch::holds_more(self.running.id(), bytes))
        {
            self.running.stop(Ending::OutOfMemory)?;
        }
        self.running.poll()
    }

    /// Whether it has said so.
    pub(crate) fn has_started(&self) -> bool {
        self.running.has_started()
    }

    /// Ends it because its time is over.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.running.stop(Ending::OutOfTime)
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> io::Result<Finished> {
        until(|| self.poll())?;
        self.running.finish()
    }

    /// What is left of it; kills it where it still runs.
    pub(crate) fn finish(self) -> io::Result<Finished> {
        self.running.finish()
    }
}

/// The last line of what a process said, where it said anything.
pub(crate) fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.trim().lines().next_back().map(str::to_owned)
}

/// The named interpreter first, then the system's own: one under /root cannot be read by others.
fn interpreters(python: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for name in [python, "/usr/bin/python3"] {
        let path = if name.contains('/') { Some(PathBuf::from(name)) } else { on_path(name) };
        if let Some(real) = path.and_then(|path| fs::canonicalize(path).ok())
            && !found.contains(&real)
        {
            found.push(real);
        }
    }
    found
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

//! A sandbox for Python programs that a model wrote, by bubblewrap.
//!
//! Inside: the system's libraries read-only, a scratch folder in memory, `/proc` and `/dev` of its
//! own, no network, no user namespaces, no capabilities, no environment. Every process has limits
//! (address space, processor time, file size, open files, processes) set before the first line of
//! the program runs; all of them die with the sandbox.
//!
//! As root the sandbox runs under uid 65534: the kernel does not count root's processes, so a fork
//! bomb of root's would not be bounded by a limit.
//!
//! Not here: what a program must do to be right (`verify/code.rs`).

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::{self, Bounds, Finished};

/// What a program may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxLimits {
    /// Seconds of wall-clock time for one run.
    pub time_s: f64,
    /// Memory of one process, and of the scratch folder, in MiB.
    pub memory_mib: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Bytes a program may print.
    pub output_bytes: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self { time_s: 10.0, memory_mib: 512, processes: 32, output_bytes: 1 << 20 }
    }
}

/// Where programs run.
#[derive(Debug, Clone)]
pub(crate) enum Sandbox {
    Bubblewrap {
        bwrap: PathBuf,
        python: PathBuf,
    },
    /// With limits but without walls; only after the user has said so in words.
    None {
        python: PathBuf,
    },
}

/// Sets the limits, says that it has started, then becomes the program.
const RUNNER: &str = r"
import os, resource, runpy, sys
memory, seconds, processes, size = (int(x) for x in sys.argv[1:5])
for name, value in (('AS', memory), ('CPU', seconds), ('NPROC', processes), ('FSIZE', size),
                    ('NOFILE', 64), ('CORE', 0)):
    kind = getattr(resource, 'RLIMIT_' + name)
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
os.write(2, b'scalerl-started\n')
program = sys.argv[5]
sys.argv = [program]
runpy.run_path(program, run_name='__main__')
";

/// The line on standard error by which a started program is told from a broken sandbox.
pub(crate) const STARTED: &[u8] = b"scalerl-started\n";

/// The user that programs run as when we are root.
const NOBODY: u32 = 65_534;

impl Sandbox {
    /// Finds bubblewrap and a Python that works inside; the problem in words otherwise.
    pub(crate) fn find(python: &str) -> Result<Self, String> {
        let bwrap = on_path("bwrap").ok_or("bubblewrap (bwrap) is not installed")?;
        let mut problem = format!("no Python interpreter: {python} is not on the PATH");
        for python in interpreters(python) {
            let sandbox = Self::Bubblewrap { bwrap: bwrap.clone(), python: python.clone() };
            match sandbox.try_out() {
                Ok(()) => return Ok(sandbox),
                Err(reason) => problem = format!("{} in bwrap: {reason}", python.display()),
            }
        }
        Err(problem)
    }

    /// Python without walls.
    pub(crate) fn without_walls(python: &str) -> Result<Self, String> {
        let mut found = interpreters(python).into_iter();
        let python = found.next().ok_or_else(|| format!("{python} is not on the PATH"))?;
        Ok(Self::None { python })
    }

    fn try_out(&self) -> Result<(), String> {
        let finished = self
            .run("print(6 * 7)", b"", SandboxLimits::default())
            .map_err(|error| error.to_string())?;
        if finished.stdout == b"42\n" {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&finished.stderr);
        Err(stderr.trim().lines().next_back().unwrap_or("it printed nothing").to_owned())
    }

    /// Runs a program; how it ended is for the caller to judge.
    pub(crate) fn run(
        &self,
        program: &str,
        input: &[u8],
        limits: SandboxLimits,
    ) -> io::Result<Finished> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        for (name, text) in [("program.py", program), ("runner.py", RUNNER)] {
            fs::write(folder.path().join(name), text)?;
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644))?;
        }
        let mut command = match self {
            Self::Bubblewrap { bwrap, python } => walled(bwrap, python, folder.path(), limits),
            Self::None { python } => {
                let mut command = Command::new(python);
                let scratch = folder.path().join("scratch");
                fs::create_dir(&scratch)?;
                fs::set_permissions(&scratch, fs::Permissions::from_mode(0o777))?;
                command.current_dir(scratch).env_clear();
                command.args(["-I", "-B"]).arg(folder.path().join("runner.py"));
                command.args(limit_arguments(limits)).arg(folder.path().join("program.py"));
                command
            }
        };
        if rustix::process::getuid().is_root() && matches!(self, Self::Bubblewrap { .. }) {
            command.uid(NOBODY).gid(NOBODY);
        }
        let time = Duration::from_secs_f64(limits.time_s);
        process::run(&mut command, input, Bounds { time, output_bytes: limits.output_bytes })
    }
}

fn limit_arguments(limits: SandboxLimits) -> [String; 4] {
    let memory = limits.memory_mib << 20;
    [memory, limits.time_s.ceil() as u64 + 1, limits.processes, memory].map(|n| n.to_string())
}

fn walled(bwrap: &Path, python: &Path, folder: &Path, limits: SandboxLimits) -> Command {
    let mut command = Command::new(bwrap);
    command.env_clear().current_dir("/");
    command.args(["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]);
    command.args(["--new-session", "--cap-drop", "ALL", "--clearenv"]);
    command.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]);
    for link in ["/bin", "/lib", "/lib64", "/lib32", "/sbin"] {
        if let Ok(target) = fs::read_link(link) {
            command.arg("--symlink").arg(target).arg(link);
        } else if Path::new(link).is_dir() {
            command.args(["--ro-bind", link, link]);
        }
    }
    if !python.starts_with("/usr")
        && let Some(prefix) = python.parent().and_then(Path::parent)
    {
        command.arg("--ro-bind").arg(prefix).arg(prefix);
    }
    command.arg("--ro-bind").arg(folder).arg("/task");
    let bytes = (limits.memory_mib << 20).to_string();
    for place in ["/tmp", "/scratch"] {
        command.args(["--size", &bytes, "--tmpfs", place]);
    }
    command.args(["--chdir", "/scratch", "--setenv", "HOME", "/scratch", "--setenv", "PATH"]);
    command.args(["/usr/bin:/bin", "--setenv", "PYTHONHASHSEED", "0", "--"]);
    command.arg(python).args(["-I", "-B", "/task/runner.py"]);
    command.args(limit_arguments(limits)).arg("/task/program.py");
    command
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

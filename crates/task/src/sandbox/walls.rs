//! Bubblewrap's walls: what a program can see, name and reach.
//!
//! Everything it sees is named here: the system's libraries and the interpreter, read-only, five
//! devices, its own files, and one folder in memory to write to. No /proc, no /sys, no /dev/shm:
//! what is not there can be neither read nor filled, and a container that hides parts of its /proc
//! need not mount another.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::spawn::{self, Spawn};

/// An installed bubblewrap.
#[derive(Debug, Clone)]
pub(crate) struct Bubblewrap {
    path: PathBuf,
    /// Has it lock user namespaces too. The filter of system calls does so anyway; this one needs
    /// a version that can, and a /proc/sys that a container did not make read-only.
    disables_userns: bool,
}

/// The first with `--size`, without which the scratch folder has no bound.
const OLDEST: (u32, u32) = (0, 7);

/// The first with `--disable-userns`.
const DISABLES_USERNS: (u32, u32) = (0, 8);

/// Where a program finds its files, and where it may write.
pub(super) const TASK: &str = "/task";
pub(super) const SCRATCH: &str = "/scratch";

impl Bubblewrap {
    /// Looks for it on PATH; the problem in words otherwise.
    pub(crate) fn find() -> Result<Self, String> {
        let path = super::on_path("bwrap").ok_or("bubblewrap (bwrap) is not installed")?;
        let output = Command::new(&path).arg("--version").output();
        let output = output.map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match version(&text) {
            Some(version) if version >= OLDEST => {
                Ok(Self { path, disables_userns: version >= DISABLES_USERNS })
            }
            Some(_) => Err(format!("{text} is too old, {}.{} is needed", OLDEST.0, OLDEST.1)),
            None => Err(format!("{} does not say its version: {text}", path.display())),
        }
    }

    /// The ways to use it, the stricter first.
    pub(crate) fn ways(self) -> Vec<Self> {
        let lenient = Self { disables_userns: false, ..self.clone() };
        if self.disables_userns && HAS_FILTER { vec![self, lenient] } else { vec![self] }
    }

    /// The command that runs `python` behind walls; its arguments are for the caller to add.
    /// `filter` is kept open for it.
    pub(crate) fn command(
        &self,
        python: &Path,
        files: &Path,
        scratch_bytes: u64,
        filter: Option<&OwnedFd>,
    ) -> Spawn {
        let mut command = Spawn::new(&self.path);
        command.only_environment(&[]).folder(Path::new("/"));
        // A session of its own has no terminal to type into.
        command.args(["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]);
        if self.disables_userns {
            command.arg("--disable-userns");
        }
        command.args(["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534"]);
        command.args(["--hostname", "sandbox"]);
        show_system(&mut command);
        show_interpreter(&mut command, python);
        for device in ["null", "zero", "full", "random", "urandom"] {
            let path = format!("/dev/{device}");
            command.args(["--dev-bind", &path, &path]);
        }
        command.arg("--ro-bind").arg(files).arg(TASK);
        command.args(["--size", &scratch_bytes.to_string(), "--tmpfs", SCRATCH]);
        // Last, so that everything above found its place: `/` is in memory too and has no size.
        command.args(["--symlink", "scratch", "/tmp", "--remount-ro", "/", "--chdir", SCRATCH]);
        for (name, value) in [("HOME", SCRATCH), ("PATH", "/usr/bin:/bin"), ("PYTHONHASHSEED", "0")]
        {
            command.args(["--setenv", name, value]);
        }
        if let Some(filter) = filter {
            command.args(["--seccomp", &spawn::number(filter)]);
        }
        command.arg("--").arg(python);
        command
    }
}

/// `bubblewrap 0.8.0`
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.rsplit(' ').next()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn show_system(command: &mut Spawn) {
    command.args(["--ro-bind", "/usr", "/usr"]);
    for link in ["/bin", "/lib", "/lib64", "/lib32", "/sbin"] {
        if let Ok(target) = fs::read_link(link) {
            command.arg("--symlink").arg(target).arg(link);
        } else if Path::new(link).is_dir() {
            command.args(["--ro-bind", link, link]);
        }
    }
    // Where libraries are, and which of several is meant.
    for path in ["/etc/ld.so.cache", "/etc/alternatives"] {
        command.args(["--ro-bind-try", path, path]);
    }
}

/// An interpreter outside of /usr: its programs and libraries, and nothing beside them, for it may
/// be installed in somebody's home.
fn show_interpreter(command: &mut Spawn, python: &Path) {
    let prefix = python.parent().and_then(Path::parent);
    if let Some(prefix) = prefix.filter(|prefix| !prefix.starts_with("/usr")) {
        for name in ["bin", "lib", "lib64"] {
            let folder = prefix.join(name);
            command.arg("--ro-bind-try").arg(&folder).arg(&folder);
        }
    }
}

/// Whether we know the numbers of system calls here.
const HAS_FILTER: bool =
    cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")));

/// The filter of system calls in an open file of its own: bubblewrap reads it to its end.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn filter() -> io::Result<Option<OwnedFd>> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile()?;
    file.write_all(&super::seccomp::filter())?;
    file.rewind()?;
    Ok(Some(file.into()))
}

/// Calls have other numbers here, and nobody has written them down yet.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn filter() -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("bubblewrap 0.8.0"), Some((0, 8)));
        assert_eq!(version("bubblewrap 0.11"), Some((0, 11)));
        assert_eq!(version("bubblewrap"), None);
        assert!(version("bubblewrap 0.6.1").is_some_and(|version| version < OLDEST));
    }

    #[test]
    fn an_interpreter_in_a_home_does_not_show_the_home() {
        let bubblewrap = Bubblewrap { path: "bwrap".into(), disables_userns: true };
        let python = Path::new("/home/ada/bin/python3");
        let command = bubblewrap.command(python, Path::new("/tmp/files"), 1 << 20, None);
        let shows = |command: &Spawn, path: &str| command.arguments().iter().any(|a| a == path);
        assert!(shows(&command, "/home/ada/lib") && !shows(&command, "/home/ada"));
        let system = Path::new("/usr/bin/python3");
        let command = bubblewrap.command(system, Path::new("/tmp/files"), 1 << 20, None);
        assert!(!shows(&command, "/usr/lib"));
    }
}

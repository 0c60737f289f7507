//! Starts child processes that inherit nothing but their three standard streams.
//!
//! libtorch, Gloo and CUDA open sockets and files without close-on-exec; a program that inherits
//! them can read and write past every wall. So everything above the standard streams is closed by
//! exec, except descriptors that are named. A child may also enter cgroups and give up root.
//!
//! `std::process` can do the same between fork and exec, but fork copies the page tables of the
//! whole process: a tenth of a second per GiB that the trainer holds, for every program that is
//! judged. Like `posix_spawn`, the child here shares our memory until it calls exec, while the
//! thread that made it waits.
//!
//! Not here: how long a child may take and what it says (`process.rs`).

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

/// What to run, and what it keeps and becomes.
#[derive(Debug, Default)]
pub(crate) struct Spawn {
    program: OsString,
    arguments: Vec<OsString>,
    /// Instead of ours.
    environment: Option<Vec<(&'static str, &'static str)>>,
    folder: Option<PathBuf>,
    /// Descriptors that stay open, under the numbers they have here.
    pub(crate) keep: Vec<OwnedFd>,
    /// Opened `cgroup.procs` of the cgroups to enter.
    pub(crate) cgroups: Vec<File>,
    /// The user and group to become; only root can.
    pub(crate) user: Option<u32>,
}

impl Spawn {
    /// A program by its path, or by its name on PATH.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self { program: program.as_ref().to_owned(), ..Self::default() }
    }

    pub(crate) fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args(
        &mut self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> &mut Self {
        self.arguments.extend(arguments.into_iter().map(|one| one.as_ref().to_owned()));
        self
    }

    /// These variables and no others.
    pub(crate) fn only_environment(
        &mut self,
        variables: &[(&'static str, &'static str)],
    ) -> &mut Self {
        self.environment = Some(variables.to_vec());
        self
    }

    pub(crate) fn folder(&mut self, folder: &Path) -> &mut Self {
        self.folder = Some(folder.to_owned());
        self
    }

    #[cfg(test)]
    pub(crate) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Starts it in a process group of its own.
    pub(crate) fn start(&self, streams: [OwnedFd; 3]) -> io::Result<Child> {
        #[cfg(target_os = "linux")]
        return linux::start(self, streams);
        #[cfg(not(target_os = "linux"))]
        portable::start(self, streams)
    }

    fn texts(&self) -> io::Result<Texts> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let program = text(&self.program)?;
        let rest = self.arguments.iter().map(|one| text(one));
        let arguments =
            std::iter::once(Ok(program.clone())).chain(rest).collect::<io::Result<_>>()?;
        let pair = |name: &OsStr, value: &OsStr| text(&[name, value].join(OsStr::new("=")));
        let environment = match &self.environment {
            Some(only) => only.iter().map(|(n, v)| pair(n.as_ref(), v.as_ref())).collect(),
            None => std::env::vars_os().map(|(n, v)| pair(&n, &v)).collect::<io::Result<_>>(),
        }?;
        let folder = self.folder.as_ref().map(|folder| text(folder.as_os_str())).transpose()?;
        Ok(Texts { program, arguments, environment, folder })
    }
}

/// The same as the kernel takes it.
struct Texts {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    folder: Option<CString>,
}

/// The number of a descriptor, for a command line that names it.
pub(crate) fn number(descriptor: &OwnedFd) -> String {
    descriptor.as_raw_fd().to_string()
}

/// A child process and its group. Dropped, both are killed.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    status: Option<ExitStatus>,
}

impl Child {
    fn new(pid: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("a child without a number"))?;
        Ok(Self { pid, status: None })
    }

    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Whether it has ended. It is not reaped yet, so its number, which is its group's, cannot have
    /// become somebody else's.
    pub(crate) fn has_exited(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(self.status.is_some()
            || rustix::process::waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// Kills it and its group, and reaps it. What a child that ended by itself left running goes
    /// with it.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // That they are gone already is fine.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
        loop {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => {
                    let status = ExitStatus::from_raw(status.as_raw());
                    self.status = Some(status);
                    return Ok(status);
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Nobody can be told; the kernel reaps what is left when we end.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn null() -> OwnedFd {
        File::options().read(true).write(true).open("/dev/null").unwrap().into()
    }

    /// What a shell script prints.
    fn shell(script: &str, change: impl FnOnce(&mut Spawn)) -> String {
        let mut spawn = Spawn::new("sh");
        spawn.args(["-c", script, "sh"]);
        change(&mut spawn);
        let (mut reader, writer) = io::pipe().unwrap();
        let child = spawn.start([null(), writer.into(), null()]).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        drop(child);
        text.trim().to_owned()
    }

    /// A pipe without close-on-exec, as a library opens it that does not care.
    fn careless() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = io::pipe().unwrap();
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        for end in [&reader, &writer] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty()).unwrap();
        }
        (reader, writer)
    }

    #[test]
    fn only_named_descriptors_reach_the_program() {
        let (reader, writer) = careless();
        let kept = reader.try_clone().unwrap();
        let named = number(&kept);
        let open = shell("for n; do [ -e /proc/self/fd/$n ] && echo $n; done", |spawn| {
            spawn.args([&named, &number(&reader), &number(&writer)]);
            spawn.keep.push(kept);
        });
        assert_eq!(open, named, "and neither {reader:?} nor {writer:?}");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error_with_its_reason() {
        let start = |spawn: &Spawn| spawn.start([null(), null(), null()]).unwrap_err().kind();
        assert_eq!(start(&Spawn::new("/no/such/program")), io::ErrorKind::NotFound);
        assert_eq!(start(&Spawn::new("no-such-program-anywhere")), io::ErrorKind::NotFound);
        assert_eq!(start(&Spawn::new("/etc/passwd")), io::ErrorKind::PermissionDenied);
        let mut nowhere = Spawn::new("sh");
        nowhere.folder(Path::new("/no/such/folder"));
        assert_eq!(start(&nowhere), io::ErrorKind::NotFound);
        assert_eq!(start(&Spawn::new("a\0b")), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_environment_and_the_folder_are_as_told() {
        let script = "echo $(env | cut -d= -f1 | sort) in $(pwd)";
        let told = shell(script, |spawn| {
            spawn
                .only_environment(&[("ONE", "1"), ("PATH", "/usr/bin:/bin")])
                .folder("/usr".as_ref());
        });
        assert_eq!(told, "ONE PATH PWD in /usr");
        assert!(shell("env", |_| ()).contains("PATH="), "ours, where nothing else is said");
    }

    #[test]
    fn signals_are_as_a_program_expects_them() {
        let status = shell("exec cat /proc/self/status", |_| ());
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(mask("SigBlk:"), 0);
        // Rust ignores SIGPIPE; a program that inherits that never ends by it.
        assert_eq!(mask("SigIgn:") & (1 << (libc::SIGPIPE - 1)), 0, "{status}");
    }

    #[test]
    fn a_child_leads_a_group_of_its_own() {
        let ids = shell("cut -d' ' -f1,5 /proc/$$/stat", |_| ());
        let (pid, group) = ids.split_once(' ').unwrap();
        assert_eq!(pid, group);
    }
}

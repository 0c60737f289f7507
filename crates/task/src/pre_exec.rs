//! What a child does between fork and exec: nothing that we hold may reach its program.
//!
//! libtorch, Gloo and CUDA open sockets and files without close-on-exec; a program that inherits
//! them can read and write past every wall. So every descriptor above the standard three is marked
//! to be closed by exec, except those that are named. As the last thing a child may enter cgroups
//! and give up root.
//!
//! Marked and not closed at once: one of them tells the parent that exec failed.
//!
//! Not here: what runs afterwards, and for how long (`process.rs`).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What a child keeps and becomes.
#[derive(Debug, Default)]
pub(crate) struct PreExec {
    /// Descriptors that stay open, under the numbers they have here.
    pub(crate) keep: Vec<OwnedFd>,
    /// Opened `cgroup.procs` of the cgroups to enter.
    pub(crate) cgroups: Vec<File>,
    /// The user and group to become; only root can.
    pub(crate) user: Option<u32>,
}

impl PreExec {
    /// Has `command` do it each time it is started.
    #[expect(unsafe_code, reason = "pre_exec has no safe form")]
    pub(crate) fn apply(mut self, command: &mut Command) {
        // SAFETY: after fork in a process with threads only async-signal-safe calls are allowed:
        // `enter` makes system calls and allocates nothing.
        unsafe { command.pre_exec(move || self.enter()) };
    }

    fn enter(&mut self) -> io::Result<()> {
        close_on_exec();
        for descriptor in &self.keep {
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
        }
        for cgroup in &mut self.cgroups {
            // 0 is whoever writes it.
            cgroup.write_all(b"0")?;
        }
        if let Some(user) = self.user {
            become_user(user)?;
        }
        Ok(())
    }
}

/// Gives up root for good, groups first: afterwards it could not any more.
#[cfg(target_os = "linux")]
fn become_user(user: u32) -> io::Result<()> {
    use rustix::process::{Gid, Uid};
    // There is one thread after fork, so the calls for threads change the process.
    rustix::thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn become_user(_: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Above standard input, output and error.
const FIRST: RawFd = 3;

/// Where the kernel cannot mark a range (before Linux 5.11): one by one up to here.
const MOST: RawFd = 1 << 16;

#[expect(unsafe_code, reason = "std has no call for descriptors it does not own")]
fn close_on_exec() {
    // SAFETY: changes a flag of this process's own descriptor table; no memory is involved.
    #[cfg(target_os = "linux")]
    let is_done = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) == 0
    };
    #[cfg(not(target_os = "linux"))]
    let is_done = false;
    if !is_done {
        for descriptor in FIRST..MOST {
            // SAFETY: as above; a number that is not open is refused, which is fine.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// The number of a descriptor, for a command line that names it.
pub(crate) fn number(descriptor: &OwnedFd) -> String {
    descriptor.as_raw_fd().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut command = Command::new("sh");
        command.args(["-c", "for n; do [ -e /proc/self/fd/$n ] && echo $n; done", "sh"]);
        command.args([&named, &number(&reader), &number(&writer)]);
        PreExec { keep: vec![kept], ..PreExec::default() }.apply(&mut command);
        let open = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(open.trim(), named, "and neither {reader:?} nor {writer:?}");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_still_an_error() {
        let mut command = Command::new("/no/such/program");
        PreExec::default().apply(&mut command);
        assert_eq!(command.status().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

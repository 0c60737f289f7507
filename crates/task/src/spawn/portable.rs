//! The same by `std::process`, on systems that have no sandbox for it to matter: descriptors are
//! closed as far as whoever opened them has said so.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{Child, Spawn};

pub(super) fn start(spawn: &Spawn, [stdin, stdout, stderr]: [OwnedFd; 3]) -> io::Result<Child> {
    let mut command = Command::new(&spawn.program);
    command.args(&spawn.arguments).stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
    if let Some(only) = &spawn.environment {
        command.env_clear().envs(only.iter().copied());
    }
    if let Some(folder) = &spawn.folder {
        command.current_dir(folder);
    }
    Child::new(command.spawn()?.id() as i32)
}

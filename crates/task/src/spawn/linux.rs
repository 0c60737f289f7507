//! A child that shares our memory until it calls exec.
//!
//! Between the two it may only make system calls: other threads of ours go on, hold locks and
//! change memory meanwhile. So everything it needs is laid out before, and `child` neither
//! allocates nor takes a lock nor returns. The one thread that waits for it lends it its
//! thread-local storage, which is why errno may be used.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{Child, Spawn, Texts};

/// Enough for a few system calls and the search of PATH.
const STACK_BYTES: usize = 256 << 10;

/// Above standard input, output and error.
const FIRST: RawFd = 3;

/// Where the kernel cannot mark a range (before Linux 5.11): one by one up to here.
const MOST: RawFd = 1 << 16;

/// Everything the child needs.
struct Prepared {
    texts: Texts,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    streams: [RawFd; 3],
    keep: Vec<RawFd>,
    cgroups: Vec<RawFd>,
    user: Option<u32>,
    /// What went wrong, written by the child.
    error: c_int,
}

/// Null-terminated, as exec takes it. Points into `texts`, which must stay.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

pub(super) fn start(spawn: &Spawn, streams: [OwnedFd; 3]) -> io::Result<Child> {
    // Out of the way of the numbers that they are about to be given.
    let away = |stream: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&stream, FIRST);
    let [stdin, stdout, stderr] = streams.map(away);
    let streams = [stdin?, stdout?, stderr?];
    let texts = spawn.texts()?;
    let mut prepared = Prepared {
        arguments: pointers(&texts.arguments),
        environment: pointers(&texts.environment),
        texts,
        streams: streams.each_ref().map(AsRawFd::as_raw_fd),
        keep: spawn.keep.iter().map(AsRawFd::as_raw_fd).collect(),
        cgroups: spawn.cgroups.iter().map(AsRawFd::as_raw_fd).collect(),
        user: spawn.user,
        error: 0,
    };
    let pid = clone(&mut prepared)?;
    let child = Child::new(pid)?;
    // Dropped where it could not be started, and so reaped.
    if prepared.error == 0 { Ok(child) } else { Err(io::Error::from_raw_os_error(prepared.error)) }
}

#[expect(unsafe_code, reason = "there is no safe call that starts a process without copying ours")]
fn clone(prepared: &mut Prepared) -> io::Result<i32> {
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    // SAFETY: no memory is touched but the two sets of signals, which are ours.
    let blocked = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        // A handler of ours must not run in the child.
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    };
    // SAFETY: the stack is the child's own, and aligned; stacks grow downwards. It and `prepared`
    // live until the child has called exec or ended, for CLONE_VFORK has us wait for that.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(child, top, flags, ptr::from_mut(prepared).cast())
    };
    let error = io::Error::last_os_error();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, ptr::null_mut()) };
    if pid < 0 { Err(error) } else { Ok(pid) }
}

#[expect(unsafe_code, reason = "runs between clone and exec")]
extern "C" fn child(prepared: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a `Prepared` that nobody else uses until we have gone.
    unsafe {
        let prepared = prepared.cast::<Prepared>();
        (*prepared).error = become_program(&*prepared);
        libc::_exit(127)
    }
}

/// Does not return unless something failed.
#[expect(unsafe_code, reason = "system calls, and nothing else")]
unsafe fn become_program(prepared: &Prepared) -> c_int {
    macro_rules! attempt {
        ($call:expr) => {
            if $call < 0 {
                return *libc::__errno_location();
            }
        };
    }
    // SAFETY: every pointer is of `prepared`, which outlives us; descriptors are open.
    unsafe {
        attempt!(libc::setpgid(0, 0));
        for (number, stream) in (0..).zip(prepared.streams) {
            attempt!(libc::dup2(stream, number));
        }
        close_on_exec();
        for descriptor in &prepared.keep {
            attempt!(libc::fcntl(*descriptor, libc::F_SETFD, 0));
        }
        for cgroup in &prepared.cgroups {
            // 0 is whoever writes it.
            attempt!(libc::write(*cgroup, c"0".as_ptr().cast(), 1));
        }
        if let Some(folder) = &prepared.texts.folder {
            attempt!(libc::chdir(folder.as_ptr()));
        }
        if let Some(user) = prepared.user {
            // Groups first: afterwards it could not any more. The C library's own functions would
            // change every thread that shares our memory.
            attempt!(libc::syscall(libc::SYS_setgroups, 0, 0));
            attempt!(libc::syscall(libc::SYS_setresgid, user, user, user));
            attempt!(libc::syscall(libc::SYS_setresuid, user, user, user));
        }
        default_signals();
        let (arguments, environment) = (prepared.arguments.as_ptr(), prepared.environment.as_ptr());
        attempt!(libc::execvpe(prepared.texts.program.as_ptr(), arguments, environment));
    }
    libc::EINVAL
}

/// Marked and not closed: `keep` is taken out again.
#[expect(unsafe_code, reason = "std has no call for descriptors it does not own")]
unsafe fn close_on_exec() {
    // SAFETY: flags of this process's own table of descriptors; one that is not open is refused.
    unsafe {
        if libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            for descriptor in FIRST..MOST {
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

/// Handlers before the mask: what comes in between must not meet one of ours.
#[expect(unsafe_code, reason = "std has no call for signals")]
unsafe fn default_signals() {
    // SAFETY: the table of handlers is a copy of ours, for clone was not told to share it.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=libc::SIGRTMAX() {
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

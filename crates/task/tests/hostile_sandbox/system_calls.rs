//! System calls that are refused, tried one by one from inside, and those that must not be.

use super::{Case, LIMITS, answer, hold, problem, report, verifier};
use scalerl_task::{Outcome, Verifier};
use serde_json::json;

/// Calls each number it reads with zeros and prints those that gave another error than wanted.
const TRY: &str = r"
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
wanted, calls = json.loads(input())
for name, number, *arguments in calls:
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in (arguments + [0] * 6)[:6]])
    if result != -1 or ctypes.get_errno() != getattr(errno, wanted):
        print(name, result, errno.errorcode.get(ctypes.get_errno()))
";

macro_rules! calls {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), libc::$name)),*]
    };
}

#[test]
fn calls_that_reach_out_are_refused() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let refused = calls![
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_ptrace,
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_chroot,
        SYS_unshare,
        SYS_setns,
        SYS_move_mount,
        SYS_open_tree,
        SYS_fsopen,
        SYS_fsconfig,
        SYS_fsmount,
        SYS_fspick,
        SYS_mount_setattr,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_userfaultfd,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_memfd_create,
        SYS_memfd_secret,
        SYS_shmget,
        SYS_shmat,
        SYS_shmctl,
        SYS_msgget,
        SYS_msgsnd,
        SYS_msgrcv,
        SYS_msgctl,
        SYS_semget,
        SYS_semctl,
        SYS_mq_open,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_process_madvise,
        SYS_pidfd_getfd,
        SYS_kcmp,
        SYS_name_to_handle_at,
        SYS_open_by_handle_at,
        SYS_fanotify_init,
        SYS_personality,
        SYS_move_pages,
        SYS_migrate_pages,
        SYS_reboot,
        SYS_kexec_load,
        SYS_kexec_file_load,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_swapon,
        SYS_swapoff,
        SYS_acct,
        SYS_quotactl,
        SYS_syslog,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_clock_adjtime,
        SYS_adjtimex,
        SYS_sethostname,
        SYS_setdomainname,
        SYS_vhangup,
    ];
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let mut denied: Vec<_> = refused.iter().map(|(name, number)| json!([name, number])).collect();
    denied.extend(
        namespaces
            .map(|flag| json!(["clone into a namespace", libc::SYS_clone, flag | libc::SIGCHLD])),
    );
    denied.push(json!(["typing into a terminal", libc::SYS_ioctl, 0, libc::TIOCSTI]));
    let missing = vec![
        json!(["clone3", libc::SYS_clone3]),
        json!(["a call of tomorrow", 1000]),
        json!(["an x32 call", 0x4000_0000 + libc::SYS_getpid]),
    ];
    let families = [libc::AF_VSOCK, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_ALG, libc::AF_KEY];
    let sockets = families.map(|family| json!(["a socket", libc::SYS_socket, family, 3])).to_vec();
    let mut count = 0;
    for (wanted, calls) in [("EPERM", denied), ("ENOSYS", missing), ("EAFNOSUPPORT", sockets)] {
        count += calls.len();
        let tests = json!([{"input": json!([wanted, calls]).to_string(), "output": ""}]);
        let outcome = verifier.verify(&problem(&tests), &answer(TRY));
        assert_eq!(outcome, Outcome::Correct, "one of {calls:?} gave no {wanted}");
    }
    report("system calls", count, count);
}

/// Calls of a 32-bit program have other numbers, which the filter does not know.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_by_another_door_end_the_program() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let program = "import ctypes, mmap\ncode = mmap.mmap(-1, 4096, prot=7)\ncode.write(bytes.fromhex('b814000000cd80c3'))\nplace = ctypes.addressof(ctypes.c_char.from_buffer(code))\nctypes.CFUNCTYPE(ctypes.c_int)(place)()\nprint('alive')";
    let case = Case::never_prints("a 32-bit call from a 64-bit program", "alive", program);
    hold("system calls by another door", &verifier, &[case]);
}

#[test]
fn what_honest_programs_need_works() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let works = |name, program| Case::prints(name, "works", program);
    hold(
        "honest programs",
        &verifier,
        &[
            works(
                "threads",
                "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool: print(*pool.map(str, ['works']))",
            ),
            works(
                "processes",
                "import subprocess, sys\nprint(subprocess.run(['echo', 'works'], capture_output=True, text=True).stdout.strip())",
            ),
            works(
                "files",
                "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n    f.write('works')\n    f.seek(0)\n    print(f.read())",
            ),
            works(
                "sockets within",
                "import socket\na, b = socket.socketpair()\na.send(b'works')\nprint(b.recv(9).decode())",
            ),
            works(
                "asyncio",
                "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return 'works'\nprint(asyncio.run(main()))",
            ),
            works(
                "chance, time and big numbers",
                "import random, time, decimal, datetime, os\nrandom.random(); time.sleep(0); os.urandom(4); datetime.datetime.now()\nprint('works' if len(str(2 ** 999)) == 301 else '')",
            ),
        ],
    );
}

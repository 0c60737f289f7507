//! System calls that a program in the sandbox does not get.
//!
//! A list of what is refused, not of what is allowed: Python and its libraries use what they use,
//! and verdicts must not depend on their version. Refused is what reaches the kernel's less tried
//! parts, other processes, mounts and namespaces, and memory that no limit counts. A call newer
//! than this list does not exist. Where two arguments decide: only local and internet sockets (a
//! network namespace does not hold vsock, which reaches the host of a virtual machine), no
//! namespaces in clone, no typing into a terminal.
//!
//! The filter is classic BPF, as `bwrap --seccomp` takes it: eight bytes an instruction.
//!
//! Not here: walls of files and names (`walls.rs`), limits (`runner.py`, `cgroup.rs`).

use libc::c_long;

/// Kernel parts that programs do not need, other processes, and their memory.
const REACH: &[c_long] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_fanotify_init,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_keyctl,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
];

/// Mounts and namespaces.
const WALLS: &[c_long] = &[
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// Memory that outlives its mapping, so that no limit of a process counts it.
const UNCOUNTED: &[c_long] = &[
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_mq_open,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
];

/// The machine itself. Root's alone anyway; a second lock.
const MACHINE: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const OF_THIS_PROCESSOR: &[c_long] = &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt];
#[cfg(target_arch = "aarch64")]
const OF_THIS_PROCESSOR: &[c_long] = &[];

/// The newest call known here (Linux 6.10). x32 calls of x86_64 have larger numbers too.
const NEWEST: u32 = libc::SYS_mseal as u32;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Flags of clone that make namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

const SOCKETS: [u32; 3] = [libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32];
const TERMINAL: [u32; 2] = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32];

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// Places in what the kernel shows a filter; arguments by their lower halves.
const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_ABOVE: u16 = 0x25;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// One instruction: what to do, how many to skip if true and if false, and with which number.
#[derive(Debug, Clone, Copy)]
struct Instruction(u16, u8, u8, u32);

fn program() -> Vec<Instruction> {
    let mut program = vec![
        Instruction(LOAD, 0, 0, PROCESSOR),
        Instruction(IF_EQUAL, 1, 0, ARCHITECTURE),
        Instruction(RETURN, 0, 0, KILL),
        Instruction(LOAD, 0, 0, NUMBER),
        Instruction(IF_ABOVE, 0, 1, NEWEST),
        Instruction(RETURN, 0, 0, refuse(libc::ENOSYS)),
    ];
    for call in [REACH, WALLS, UNCOUNTED, MACHINE, OF_THIS_PROCESSOR].concat() {
        program.push(Instruction(IF_EQUAL, 0, 1, call as u32));
        program.push(Instruction(RETURN, 0, 0, refuse(libc::EPERM)));
    }
    // Its flags lie in memory, where a filter cannot look; the C library then uses clone.
    program.push(Instruction(IF_EQUAL, 0, 1, libc::SYS_clone3 as u32));
    program.push(Instruction(RETURN, 0, 0, refuse(libc::ENOSYS)));
    program.extend([
        Instruction(IF_EQUAL, 0, 4, libc::SYS_clone as u32),
        Instruction(LOAD, 0, 0, FIRST_ARGUMENT),
        Instruction(IF_ANY_BIT, 0, 1, NAMESPACES),
        Instruction(RETURN, 0, 0, refuse(libc::EPERM)),
        Instruction(RETURN, 0, 0, ALLOW),
        Instruction(IF_EQUAL, 0, 5, libc::SYS_ioctl as u32),
        Instruction(LOAD, 0, 0, SECOND_ARGUMENT),
        Instruction(IF_EQUAL, 1, 0, TERMINAL[0]),
        Instruction(IF_EQUAL, 0, 1, TERMINAL[1]),
        Instruction(RETURN, 0, 0, refuse(libc::EPERM)),
        Instruction(RETURN, 0, 0, ALLOW),
        Instruction(IF_EQUAL, 0, 5, libc::SYS_socket as u32),
        Instruction(LOAD, 0, 0, FIRST_ARGUMENT),
        Instruction(IF_EQUAL, 3, 0, SOCKETS[0]),
        Instruction(IF_EQUAL, 2, 0, SOCKETS[1]),
        Instruction(IF_EQUAL, 1, 0, SOCKETS[2]),
        Instruction(RETURN, 0, 0, refuse(libc::EAFNOSUPPORT)),
        Instruction(RETURN, 0, 0, ALLOW),
    ]);
    program
}

/// The filter's bytes.
pub(crate) fn filter() -> Vec<u8> {
    let bytes = |Instruction(code, yes, no, k): Instruction| {
        let mut eight = [0; 8];
        eight[..2].copy_from_slice(&code.to_ne_bytes());
        eight[2..4].copy_from_slice(&[yes, no]);
        eight[4..].copy_from_slice(&k.to_ne_bytes());
        eight
    };
    program().into_iter().flat_map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel does with the bytes.
    fn run(filter: &[u8], processor: u32, number: u32, arguments: [u64; 2]) -> u32 {
        let mut seen = [0_u8; 64];
        seen[..4].copy_from_slice(&number.to_ne_bytes());
        seen[4..8].copy_from_slice(&processor.to_ne_bytes());
        for (index, argument) in arguments.into_iter().enumerate() {
            seen[16 + 8 * index..24 + 8 * index].copy_from_slice(&argument.to_ne_bytes());
        }
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let one = &filter[8 * at..8 * at + 8];
            let k = u32::from_ne_bytes(one[4..].try_into().unwrap());
            let jump = |is_true: bool| usize::from(one[if is_true { 2 } else { 3 }]);
            at += 1;
            match u16::from_ne_bytes([one[0], one[1]]) {
                LOAD => {
                    let place = k as usize;
                    accumulator = u32::from_ne_bytes(seen[place..place + 4].try_into().unwrap());
                }
                IF_EQUAL => at += jump(accumulator == k),
                IF_ABOVE => at += jump(accumulator > k),
                IF_ANY_BIT => at += jump(accumulator & k != 0),
                RETURN => return k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    /// The same in words.
    fn wanted(processor: u32, number: u32, [first, second]: [u64; 2]) -> u32 {
        let call = c_long::from(number);
        let refused = [REACH, WALLS, UNCOUNTED, MACHINE, OF_THIS_PROCESSOR].concat();
        match call {
            _ if processor != ARCHITECTURE => KILL,
            _ if number > NEWEST || call == libc::SYS_clone3 => refuse(libc::ENOSYS),
            _ if refused.contains(&call) => refuse(libc::EPERM),
            libc::SYS_clone if first as u32 & NAMESPACES != 0 => refuse(libc::EPERM),
            libc::SYS_ioctl if TERMINAL.contains(&(second as u32)) => refuse(libc::EPERM),
            libc::SYS_socket if !SOCKETS.contains(&(first as u32)) => refuse(libc::EAFNOSUPPORT),
            _ => ALLOW,
        }
    }

    #[test]
    fn every_known_call_is_decided_as_the_list_says() {
        let filter = filter();
        let socket = libc::SYS_socket as u64;
        let words = [0, 1, 2, 10, 16, 40, socket, 0x5412, 0x541c, 1 << 28, u64::MAX, 1 << 32];
        for number in 0..=NEWEST + 50 {
            for first in words {
                for second in words {
                    let (found, wanted) = (
                        run(&filter, ARCHITECTURE, number, [first, second]),
                        wanted(ARCHITECTURE, number, [first, second]),
                    );
                    assert_eq!(found, wanted, "call {number} ({first:#x}, {second:#x})");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_filter_decides_as_the_list_says(
            processor in prop_oneof![Just(ARCHITECTURE), any::<u32>()],
            number in prop_oneof![0..NEWEST + 9, any::<u32>()],
            arguments in any::<[u64; 2]>(),
        ) {
            let found = run(&filter(), processor, number, arguments);
            prop_assert_eq!(found, wanted(processor, number, arguments));
        }
    }
}

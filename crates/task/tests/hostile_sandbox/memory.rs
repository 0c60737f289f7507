//! Memory that no limit of a process counts, and many processes at once.

use scalerl_task::SandboxLimits;

use super::{Case, LIMITS, hold, verifier};

/// Time enough, so that it is memory that ends them.
const LONG: SandboxLimits = SandboxLimits { time_per_test_s: 60.0, time_s: 60.0, ..LIMITS };

/// Writes until it holds six times what it may.
const FILL: &str = r"
import os, sys
def fill(places, most=1536 << 20):
    total, block = 0, b'x' * (1 << 20)
    for place in places:
        for n in range(8):
            try:
                with open(os.path.join(place, 'fill%d' % n), 'wb', buffering=0) as f:
                    while total < most:
                        written = f.write(block)
                        total += written
                        if not written: break
            except OSError: pass
            if total >= most: print('unbounded'); return
";

const MEMFD: &str = r"
import os
total, held = 0, []
while total < 1536 << 20:
    fd = os.memfd_create('x')
    held.append(fd)
    for _ in range(64): total += os.write(fd, b'x' * (1 << 20))
print('unbounded')
";

const SHARED: &str = r"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
for n in range(24):
    number = libc.shmget(0, 64 << 20, 0o1600)
    place = libc.shmat(number, None, 0)
    assert number >= 0 and place not in (None, ctypes.c_void_p(-1).value)
    ctypes.memset(place, 1, 64 << 20)
    libc.shmdt(place)
print('unbounded')
";

const ONE_PROCESS: &str =
    "x = []\nfor _ in range(24): x.append(bytearray(b'x') * (64 << 20))\nprint('unbounded')";

/// Every process within its own limit, all together far beyond it.
const MANY_PROCESSES: &str = r"
import os, sys, time
ready_r, ready_w = os.pipe()
for _ in range(9):
    if os.fork() == 0:
        try:
            block = bytearray(b'x') * (150 << 20)
            os.write(ready_w, b'1')
            time.sleep(8)
        finally:
            os._exit(0)
os.close(ready_w)
count = 0
while count < 9:
    part = os.read(ready_r, 9)
    if not part: sys.exit('a child is gone')
    count += len(part)
time.sleep(0.5)  # all of them at once, and looked at
print('unbounded')
";

const MAPPED: &str = r"
import mmap, os
held = []
for n in range(9):
    fd = os.open('/scratch/m%d' % n, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 170 << 20)
    if os.fork() == 0:
        m = mmap.mmap(fd, 170 << 20)
        for i in range(0, 170 << 20, 4096): m[i] = 1
        os._exit(0)
codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(9)]
if not any(codes): print('unbounded')
";

/// A kilobyte of the kernel's memory each, and no byte of the folder's size.
const EMPTY_FILES: &str = r"
import os
folder = os.open('/scratch', os.O_RDONLY)
for n in range(500000):
    os.close(os.open('f%d' % n, os.O_CREAT | os.O_WRONLY, dir_fd=folder))
print('unbounded')
";

const LIMITS_RAISED: &str = r"
import resource
for name in ('AS', 'NPROC', 'FSIZE', 'CPU', 'NOFILE'):
    kind = getattr(resource, 'RLIMIT_' + name)
    for pair in ((-1, -1), (1 << 40, 1 << 40)):
        try:
            resource.setrlimit(kind, pair)
            print(name)
        except (ValueError, PermissionError, OSError): pass
";

fn cases() -> Vec<Case<'static>> {
    let never = |name, program| Case::never_prints(name, "unbounded", program);
    vec![
        never("memory of one process", ONE_PROCESS),
        never("memory of many processes together", MANY_PROCESSES),
        never("memory in memfds", MEMFD),
        never("shared memory of System V", SHARED),
        never("mapped files", MAPPED),
        never("empty files", EMPTY_FILES),
        Case::prints("raises its limits", "", LIMITS_RAISED),
    ]
}

const PLACES: &[&str] = &[
    "['/']",
    "['/dev']",
    "['/dev/shm']",
    "['/tmp', '/scratch', '/var/tmp', '/run']",
    "['/task', '/usr', '/etc', '/proc', '/sys']",
];

#[test]
fn memory_is_bounded_with_a_cgroup_and_without() {
    let Some(verifier) = verifier(LONG) else { return };
    let programs: Vec<String> =
        PLACES.iter().map(|places| format!("{FILL}\nfill({places})")).collect();
    let mut all = cases();
    for (places, program) in PLACES.iter().zip(&programs) {
        all.push(Case::never_prints(places, "unbounded", program));
    }
    hold("memory, as on this machine", &verifier, &all);
    hold("memory, where there is no cgroup", &verifier.without_cgroup(), &all);
}

#[test]
fn a_fork_bomb_stays_small_and_dies() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let counted = "import os, time\ncount = 0\ntry:\n    while count < 500:\n        if os.fork() == 0:\n            time.sleep(60)\n            os._exit(0)\n        count += 1\nexcept OSError:\n    pass\nprint(0 < count < 17)";
    let threads = "import threading, time\ncount = 0\ntry:\n    while count < 500:\n        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        count += 1\nexcept RuntimeError:\n    pass\nprint(0 < count < 17)\nimport os, sys\nsys.stdout.flush()\nos._exit(0)";
    let cases = [
        Case::prints("counts how far it gets", "True", counted),
        Case::prints("the same with threads", "True", threads),
        Case::never_prints("the classic", "still here", "import os\nwhile True: os.fork()"),
    ];
    hold("fork bombs, as on this machine", &verifier, &cases);
    hold("fork bombs, where there is no cgroup", &verifier.without_cgroup(), &cases);
}

//! What a program can see and reach of the machine it runs on.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::json;

use super::{Case, LIMITS, hold, verifier};

const LISTING: &str = "import os\nfor folder in ('/proc', '/sys', '/home', '/root', '/var', '/run', '/mnt', '/opt', '/boot', '/media', '/srv'):\n    if os.path.exists(folder) and os.listdir(folder): print(folder)\nprint(sorted(set(os.listdir('/etc')) - {'alternatives', 'ld.so.cache'}), sorted(os.listdir('/dev')), sorted(os.listdir('/task')))";

const WRITABLE: &str = "import os\nplaces = ['/usr/lib', '/usr/local', '/usr/bin']\nfor folder, below, _ in os.walk('/'):\n    places.append(folder)\n    if folder == '/': below.remove('usr')\nfor place in places:\n    try:\n        open(os.path.join(place, 'x'), 'w').close()\n        print(place)\n    except OSError: pass\nfor path in ('/dev/null', '/task/program.py', '/task/runner.py', '/usr/bin/env'):\n    for act in (os.unlink, lambda p: os.rename(p, '/scratch/x'), lambda p: os.chmod(p, 0o777), lambda p: os.link(p, '/scratch/l')):\n        try: act(path); print(path)\n        except OSError: pass";

const WHO: &str = "import os, socket\nprint(os.getuid(), os.geteuid(), os.getgid(), os.getppid(), socket.gethostname(), os.getsid(0) > 0, os.isatty(0))\nfor path in ('/dev/tty', '/dev/ptmx', '/dev/pts', '/dev/console', '/dev/mem', '/dev/kmsg', '/dev/fuse', '/dev/kvm', '/dev/vsock', '/dev/nvidia0', '/dev/nvidiactl'):\n    if os.path.exists(path): print(path)\nprint(sorted(os.environ))";

/// Capabilities by the system call, for there is no /proc, and that none can be had by exec.
const POWERS: &str = "import ctypes\nlibc = ctypes.CDLL(None)\nhead = (ctypes.c_uint32 * 2)(0x20080522, 0)\ndata = (ctypes.c_uint32 * 6)()\nassert libc.capget(head, data) == 0\nprint(list(data), libc.prctl(39, 0, 0, 0, 0), libc.prctl(3, 0, 0, 0, 0) in (0, 1))\nimport subprocess\nfor command in (['su', '-c', 'id'], ['mount', '-t', 'tmpfs', 'x', '/scratch'], ['unshare', '-U', 'true'], ['unshare', '-r', 'true'], ['chroot', '/scratch', 'true'], ['newgrp', 'root']):\n    try: r = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=2)\n    except (OSError, subprocess.TimeoutExpired): continue\n    if r.returncode == 0: print(command)";

const NETWORK: &str = "import json, socket\nport, name = json.loads(input())\ndef tries(family, address, kind=socket.SOCK_STREAM):\n    s = socket.socket(family, kind)\n    s.settimeout(1)\n    try:\n        s.connect(address)\n        if kind == socket.SOCK_STREAM or s.send(b'x'): print('reached', address)\n    except OSError: pass\ntries(socket.AF_INET, ('127.0.0.1', port))\ntries(socket.AF_INET6, ('::1', port))\ntries(socket.AF_INET, ('1.1.1.1', 53), socket.SOCK_DGRAM)\ntries(socket.AF_INET, ('169.254.169.254', 80))\ntries(socket.AF_UNIX, '\\0' + name)\nfor path in ('/var/run/docker.sock', '/run/systemd/private', '/run/dbus/system_bus_socket', '/tmp/.X11-unix/X0'): tries(socket.AF_UNIX, path)\ntry: print(socket.getaddrinfo('example.com', 80))\nexcept OSError: print('nobody')";

const LINKS: &str = "import os\nfor n, target in enumerate(('/', '/..', '/proc/1/root', '/proc/self/exe', '/etc/passwd', '/etc/shadow', '../../../../etc/shadow', '/etc/ssh')):\n    link = '/scratch/l%d' % n\n    os.symlink(target, link)\n    try:\n        print(open(link).read())\n    except OSError: pass\nos.symlink('/scratch/loop', '/scratch/loop')\nos.makedirs('/scratch/' + '/'.join(['d'] * 900))\nfor n in range(2000): open('/scratch/f%d' % n, 'w').close()\nos.mkfifo('/scratch/fifo')\nprint(sorted(set(os.listdir('/')) - {'lib32'}))";

#[test]
fn the_machine_cannot_be_seen_or_reached() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("scalerl-hostile-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let _unix = UnixListener::bind_addr(&address).unwrap();
    let mut network = Case::prints("talks to whoever listens", "nobody", NETWORK);
    let input = json!([tcp.local_addr().unwrap().port(), name]).to_string();
    network.tests = json!([{"input": input, "output": "nobody"}]);
    let devices = "['full', 'null', 'random', 'urandom', 'zero']";
    let listing = format!("[] {devices} ['program.py', 'runner.py']");
    let mut root =
        vec!["bin", "dev", "etc", "lib", "lib64", "sbin", "scratch", "task", "tmp", "usr"];
    root.retain(|name| !name.starts_with("lib64") || std::path::Path::new("/lib64").exists());
    let root = format!("['{}']", root.join("', '"));
    hold(
        "what can be seen and reached",
        &verifier,
        &[
            Case::prints("looks around", &listing, LISTING),
            Case::prints("writes wherever it can", "/scratch", WRITABLE),
            Case::prints(
                "asks who it is",
                "65534 65534 65534 1 sandbox True False\n['HOME', 'LC_CTYPE', 'PATH', 'PWD', 'PYTHONHASHSEED']",
                WHO,
            ),
            Case::prints("tries its powers", "[0, 0, 0, 0, 0, 0] 1 True", POWERS),
            Case::prints("plays with links", &root, LINKS),
            network,
        ],
    );
}

#[test]
fn floods_are_cut_off_and_input_need_not_be_read() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let flood = |name, program| Case::never_prints(name, "x", program);
    let mut unread = Case::prints("leaves 20 MB of input unread", "done", "print('done')");
    unread.tests = json!([{"input": "x".repeat(20 << 20), "output": "done"}]);
    hold(
        "floods",
        &verifier,
        &[
            flood("standard output", "while True: print('flood' * 1000)"),
            flood("standard error", "import sys\nwhile True: sys.stderr.write('flood' * 1000)"),
            flood(
                "both, from many processes",
                "import os\nfor _ in range(3): os.fork()\nwhile True: os.write(1, b'x' * 9999); os.write(2, b'x' * 9999)",
            ),
            Case::wrong(
                "printing in a function under test",
                "assert f() == 1",
                "def f():\n    while True: print('flood' * 1000)",
            ),
            unread,
        ],
    );
}

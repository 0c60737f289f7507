//! What a program inherits: nothing.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;

use rustix::io::FdFlags;

use super::{Case, LIMITS, hold, verifier};

const LIST: &str = "import os\nfound = []\nfor fd in range(3, 4096):\n    try: os.fstat(fd)\n    except OSError: continue\n    found.append(fd)\nprint(found)";

const READ: &str = "import os\nfor fd in range(3, 4096):\n    try:\n        os.lseek(fd, 0, 0)\n        print(os.read(fd, 99).decode())\n    except OSError: pass";

const WRITE: &str = "import os\nfor fd in range(3, 4096):\n    try: os.write(fd, b'x' * 64)\n    except OSError: pass\nprint('done')";

/// The judge's channel and /dev/null, and nothing else.
const STRANGE: &str = "import os, stat\ndef strange():\n    found = []\n    for fd in range(3, 4096):\n        try: s = os.fstat(fd)\n        except OSError: continue\n        if not stat.S_ISFIFO(s.st_mode) and s.st_rdev != os.stat('/dev/null').st_rdev: found.append(fd)\n    return found";

/// As a library opens that does not care: without close-on-exec.
fn careless(descriptor: impl Into<OwnedFd>) -> OwnedFd {
    let descriptor = descriptor.into();
    rustix::io::fcntl_setfd(descriptor.as_fd(), FdFlags::empty()).expect("it is open");
    descriptor
}

#[test]
fn no_descriptor_of_ours_reaches_a_program() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "root's own").unwrap();
    let written = folder.path().join("written");
    let open = OpenOptions::new().create(true).append(true).mode(0o600).open(&written).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let _open = [
        careless(File::open(&secret).unwrap()),
        careless(open),
        careless(ours),
        careless(theirs.try_clone().unwrap()),
        careless(File::open("/").unwrap()),
    ];
    let mut odd = Case::prints("looks for odd descriptors in an assertion", "", STRANGE);
    odd.tests = "assert strange() == []".into();
    hold(
        "inherited descriptors",
        &verifier,
        &[
            Case::prints("lists them", "[]", LIST),
            Case::prints("reads from all of them", "", READ),
            Case::prints("writes to all of them", "done", WRITE),
            odd,
        ],
    );
    assert_eq!(fs::read(&written).unwrap(), b"", "a program wrote to a file outside");
    let mut got = [0; 9];
    let read = std::io::Read::read(&mut &theirs, &mut got);
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "or to a socket");
}

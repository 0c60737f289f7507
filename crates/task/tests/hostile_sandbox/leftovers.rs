//! What is left of a program when its verdict is there: nothing.

use std::fs;
use std::time::{Duration, Instant};

use super::{Case, LIMITS, hold, verifier};

/// Starts processes that want to stay, each in its own way; `MARK` is in their command lines.
const STAYERS: &str = r"
import os, signal, subprocess, sys, time
sleeper = 'import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(300)'
def stay(**how): subprocess.Popen([sys.executable, '-c', sleeper, 'MARK'], **how)
stay()
stay(start_new_session=True)
stay(preexec_fn=lambda: os.setpgid(0, 0))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os._exit(0)
";

/// Waits for whoever kills, and starts anew.
const UNDEAD: &str = r"
import os, signal, subprocess, sys, time
def again(*_): subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)', 'MARK'])
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGXCPU): signal.signal(s, again)
again()
while True: time.sleep(1)
";

/// Processes outside whose command line has the mark.
fn left_running(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(mark)).collect()
}

/// Children of ours that nobody reaped.
fn zombies() -> Vec<String> {
    let own = format!(" {} ", std::process::id());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(") Z") && stat.contains(&own)).collect()
}

/// Folders of runs that hold a program with the mark.
fn left_files(mark: &str) -> usize {
    let folders = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let programs = folders.filter_map(|f| fs::read_to_string(f.path().join("program.py")).ok());
    programs.filter(|program| program.contains(mark)).count()
}

#[test]
fn nothing_outlives_its_verdict() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let mark = format!("scalerl-hostile-left-{}", std::process::id());
    let ends = format!("{STAYERS}print('ended', flush=True)\nos._exit(0)").replace("MARK", &mark);
    let stays = format!("{STAYERS}time.sleep(300)").replace("MARK", &mark);
    let undead = UNDEAD.replace("MARK", &mark);
    let cases = [
        Case::prints("ends and leaves processes behind", "ended", &ends),
        Case::never_prints("is killed with processes around", "x", &stays),
        Case::never_prints("starts anew when it is signalled", "x", &undead),
        Case::wrong("does so while it is asked", "assert f() == 1", &stays),
    ];
    for (machine, verifier) in
        [("here", verifier.clone()), ("no cgroup", verifier.without_cgroup())]
    {
        hold(&format!("leftovers, {machine}"), &verifier, &cases);
        // Killed already; the kernel may need a moment to take them away.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !(left_running(&mark).is_empty() && zombies().is_empty()) {
            assert!(Instant::now() < deadline, "{:?} {:?}", left_running(&mark), zombies());
            std::thread::yield_now();
        }
        assert_eq!(left_files(&mark), 0, "folders of runs are left");
    }
}

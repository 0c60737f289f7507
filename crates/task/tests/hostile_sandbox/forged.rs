//! Verdicts that a program gives itself.

use scalerl_task::verify::code::TestsPassed;
use serde_json::json;

use super::{Case, LIMITS, answer, hold, problem, report, verifier};

const ADD: &str = "assert add(20, 22) == 42\nassert add(-1, 1) == 0";

/// Instead of a function that adds.
const INSTEAD: &[(&str, &str)] = &[
    (
        "prints what a passed test printed, and ends",
        "import os\nprint('\\nscalerl-all-tests-passed', flush=True)\nos._exit(0)",
    ),
    (
        "prints the judge's report to every descriptor, and ends",
        "import os\nfor fd in range(64):\n    try: os.write(fd, b'\\n{\"passed\": 2, \"total\": 2}\\n')\n    except OSError: pass\nos._exit(0)",
    ),
    (
        "reports at exit",
        "import atexit, os\natexit.register(lambda: [os.write(fd, b'{\"passed\": 2, \"total\": 2}\\n') for fd in (1, 2)])\nraise SystemExit",
    ),
    ("exits with success", "import sys\nsys.exit(0)"),
    ("exits by a builtin", "quit()"),
    ("exits when asked", "def add(a, b): raise SystemExit(0)"),
    ("ends when asked", "import os\ndef add(a, b): os._exit(0)"),
    ("kills itself when asked", "import os\ndef add(a, b): os.kill(os.getpid(), 9)"),
    (
        "kills everything it can",
        "import os\ndef add(a, b):\n    os.kill(1, 9)\n    os.kill(-1, 9)\n    return 1",
    ),
    (
        "patches what compares, asserts and prints",
        "import builtins, operator, sys, unittest\nclass Never(Exception): pass\nbuiltins.AssertionError = Never\nbuiltins.print = lambda *a, **k: None\nbuiltins.__debug__ = False if False else None\nsys.excepthook = lambda *a: None\noperator.eq = lambda a, b: True\nsys.stdout = sys.stderr = open('/dev/null', 'w')\ndef add(a, b): return 0.5",
    ),
    (
        "patches the script it runs in",
        "import sys, json, os\njson.dumps = lambda *a, **k: '{\"value\": {\"mine\": 1}, \"passed\": 2, \"total\": 2}'\nfor frame in list(sys._current_frames().values()):\n    while frame:\n        if 'Peer' in frame.f_globals:\n            frame.f_globals['Peer'].encode = lambda *a: True\n        frame = frame.f_back\ndef add(a, b): return 1",
    ),
    (
        "answers by a signal handler",
        "import os, signal, sys\ndef report(*_):\n    for fd in (1, 2, 3, 4, 5): \n        try: os.write(fd, b'{\"passed\": 2, \"total\": 2}\\n')\n        except OSError: pass\n    os._exit(0)\nsignal.signal(signal.SIGALRM, report)\nsignal.setitimer(signal.ITIMER_REAL, 0.05)",
    ),
    (
        "answers from a thread that outlives it",
        "import os, threading, time\ndef report():\n    while True:\n        for fd in range(1, 9):\n            try: os.write(fd, b'{\"value\": true}\\n{\"passed\": 2, \"total\": 2}\\n')\n            except OSError: pass\n        time.sleep(0.001)\nthreading.Thread(target=report).start()",
    ),
    (
        "answers from a fork",
        "import os, time\nif os.fork():\n    os._exit(0)\nos.setsid()\nfor fd in range(1, 9):\n    try: os.write(fd, b'{\"value\": true}\\n{\"passed\": 2, \"total\": 2}\\n')\n    except OSError: pass",
    ),
    (
        "answers before it was asked",
        "import os\nfor fd in range(3, 9):\n    try: os.write(fd, b'{\"value\": null}\\n{\"value\": true}\\n' * 20)\n    except OSError: pass\ndef add(a, b): return 1",
    ),
    (
        "sends values that are none",
        "import os\ndef add(a, b):\n    for fd in range(3, 9):\n        try: os.write(fd, b'{\"value\": {\"dict\": [[[], 1]]}}\\n')\n        except OSError: pass",
    ),
    (
        "sends a value as deep as it can",
        "import os\ndef add(a, b):\n    line = b'{\"value\": ' + b'[' * 100000 + b']' * 100000 + b'}\\n'\n    for fd in range(3, 9):\n        try: os.write(fd, line)\n        except OSError: pass",
    ),
    (
        "sends a line without an end",
        "import os\ndef add(a, b):\n    while True:\n        for fd in range(3, 9):\n            try: os.write(fd, b'[' * 65536)\n            except OSError: pass",
    ),
    ("returns more than the judge can hold", "def add(a, b): return [[[]]] * (5 << 20)"),
    ("returns a huge number", "def add(a, b): return 1 << (1 << 24)"),
    ("returns itself in a list", "x = []\nx.append(x)\ndef add(a, b): return x"),
    (
        "raises classes named like the judge's own",
        "class Row(Exception): pass\nclass Gone(BaseException): pass\ndef add(a, b): raise Row('the tests test nothing') if a > 0 else Gone()",
    ),
    (
        "raises what claims to be something else",
        "class E(Exception):\n    def __str__(self): raise SystemExit\n    args = property(lambda self: 1 / 0)\nE.__name__ = 'AssertionError'\ndef add(a, b): raise E",
    ),
    ("replaces the judge's hello", "import sys\nsys.modules.clear()\ndef add(a, b): return 1"),
    (
        "waits out its time and answers the next test",
        "import time\ndef add(a, b):\n    time.sleep(4.5 if a > 0 else 0)\n    return 0",
    ),
];

/// Objects that want to be equal to whatever they meet.
const EQUAL_TO_ALL: &[(&str, &str)] = &[
    (
        "an object that is equal to everything",
        "class E:\n    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda s, o: True\n    __hash__ = lambda s: 0\n    __sub__ = __rsub__ = __abs__ = __round__ = lambda s, *o: 0\n    __contains__ = lambda s, o: True\n    __bool__ = lambda s: True\n    __float__ = lambda s: 0.5\ndef f(x): return E()",
    ),
    (
        "a class in place of the function",
        "class Meta(type):\n    __eq__ = lambda c, o: True\n    __hash__ = lambda c: 0\nclass f(metaclass=Meta):\n    def __init__(s, x): pass\n    __eq__ = lambda s, o: True\n    __sub__ = __rsub__ = __abs__ = lambda s, *o: 0",
    ),
    (
        "a number of a class of its own",
        "class I(int):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    __hash__ = lambda s: 4\n    __sub__ = __rsub__ = lambda s, o: I(0)\n    __abs__ = lambda s: I(0)\n    __lt__ = lambda s, o: True\ndef f(x): return I(99)",
    ),
    (
        "a list of a class of its own",
        "class L(list):\n    __eq__ = lambda s, o: True\n    __contains__ = lambda s, o: True\ndef f(x): return L()",
    ),
    (
        "a list of such objects",
        "class E:\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: 0\ndef f(x): return [E(), E()]",
    ),
    (
        "an exception class",
        "class f(Exception):\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: 4",
    ),
    ("not a number", "def f(x): return float('nan')"),
    ("a type", "def f(x): return object"),
    (
        "an object that patches its class when it is looked at",
        "class E:\n    def __getattribute__(s, n): return lambda *a: 4\ndef f(x): return E()",
    ),
];

/// Ways to say that f(2) is 4.
const WAYS: &[&str] = &[
    "assert f(2) == 4",
    "assert 4 == f(2)",
    "assert not f(2) != 4",
    "assert f(2) in (4, 5)",
    "assert f(2) in {4}",
    "assert [f(2)] == [4]",
    "assert {'a': f(2)} == {'a': 4}",
    "assert abs(f(2) - 4) < 1e-9",
    "assert 3 < f(2) < 5",
    "assert math.isclose(f(2), 4)",
    "assert sorted([f(2), 5]) == [4, 5]",
    "assert set([f(2)]) == {4}",
    "assert all(map(lambda n: f(n) == n * n, [2, 3]))",
    "assert f(2).__eq__(4) is True",
    "def check(g):\n    assert g(2) == 4\ncheck(f)",
    "import unittest\nunittest.TestCase().assertEqual(f(2), 4)",
];

/// Names of the tests that the program defines too.
const SHADOWS: &str = "import types\nmath = types.SimpleNamespace(isclose=lambda *a, **k: True)\nabs = round = len = sum = lambda *a: 4\nset = sorted = list = tuple = lambda *a: 'same'\nisinstance = all = any = map = lambda *a: True\ndef f(x): return 7";

/// Looks for the tests wherever an interpreter keeps things, and answers by them.
const LOOTER: &str = r"
import gc, os, re, sys, threading
known = {}
def learn(text):
    for a, b, c in re.findall(r'add\((-?\d+), (-?\d+)\) == (-?\d+)', text):
        known[int(a), int(b)] = int(c)
def search():
    for thing in gc.get_objects():
        for part in gc.get_referents(thing):
            if type(part) is str and 'assert' in part: learn(part)
            if type(part) is bytes and b'assert' in part: learn(part.decode('latin1'))
    for frame in sys._current_frames().values():
        while frame:
            for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
                learn(repr(value)[:100000])
            frame = frame.f_back
    for folder in ('/task', '/scratch', '/tmp', '/proc', '/proc/1', '/proc/self/fd', '.', '/'):
        try: names = os.listdir(folder)
        except OSError: continue
        for name in names:
            path = os.path.join(folder, name)
            try: learn(open(path, errors='replace').read(1 << 20))
            except OSError: pass
    for fd in range(64):
        try: os.lseek(fd, 0, 0); learn(os.read(fd, 1 << 20).decode('latin1'))
        except OSError: pass
    learn(repr(os.environ)); learn(repr(sys.argv)); learn(repr(sys.orig_argv))
def add(a, b):
    search()
    return known.get((a, b))
";

/// Takes what it is given apart to get at the tests behind it.
const DIGGER: &str = r"
def apply(f, x):
    found = []
    for name in ('__globals__', '__code__', '__closure__', '__self__', '__class__', '__init__', '__dict__',
                 '__builtins__', '__reduce_ex__', 'wanted', '_wanted'):
        for way in (lambda: getattr(f, name), lambda: f._peer.ask('get', f, name),
                    lambda: f._peer.ask('call', f, name), lambda: f._peer.ask('getitem', f, name),
                    lambda: f._peer.ask('name', name), lambda: f._peer.ask('plain', f),
                    lambda: f._peer.ask('set', f, '__code__', apply.__code__)):
            try: found.append(way())
            except BaseException: pass
    for number in range(99):
        try: found.append(f._peer.decode({'yours': number}))
        except BaseException: pass
    numbers = [n for n in found if type(n) is int and n > 1000]
    return numbers[0] if numbers else 0
";

#[test]
fn no_program_gives_itself_a_verdict() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let mut cases: Vec<Case<'_>> =
        INSTEAD.iter().map(|(name, program)| Case::wrong(name, ADD, program)).collect();
    cases.push(Case::wrong("looks for the tests in its interpreter", ADD, LOOTER));
    let hidden = "wanted = 4321\nassert apply(lambda x: 4321 if x is wanted else 1, 3) == wanted";
    cases.push(Case::wrong("looks for the tests through what they pass", hidden, DIGGER));
    let object = "class Box:\n    _wanted = 4321\n    def look(self): return 1\nassert apply(Box(), 3) == Box._wanted";
    cases.push(Case::wrong("looks for the tests through an object of theirs", object, DIGGER));
    let stops = "def f(x): raise StopIteration";
    let tests = "assert all(map(lambda n: f(n) == n, [1, 2, 3]))";
    cases.push(Case::wrong("ends a loop of the tests early", tests, stops));
    let swallows =
        "try:\n    f(-1)\nexcept BaseException:\n    assert True\nelse:\n    assert False";
    for (name, program) in [
        ("ends where an exception is expected", "import os\ndef f(x): os._exit(0)"),
        ("loops where an exception is expected", "def f(x):\n    while True: pass"),
    ] {
        cases.push(Case::wrong(name, swallows, program));
    }
    // An error would spare it the −1 of a wrong answer.
    let blames = "import sys\ndef blame(*_): raise ImportError('no module named math')\nsys._getframe(1).f_globals['Program'].operate = blame";
    for tests in ["import math\nassert f(2) == 4", "assert math.sqrt(f(2)) == 2"] {
        cases.push(Case::wrong("blames the row for what it cannot import", tests, blames));
    }
    let unseen = json!([{"input": "2", "output": "4"}]);
    let reads = "import os, glob\nfor path in glob.glob('/task/*') + glob.glob('/**', recursive=False):\n    try: print(open(path).read())\n    except OSError: pass";
    cases.push(Case::wrong("prints every file it finds", unseen, reads));
    hold("forged verdicts", &verifier, &cases);
}

#[test]
fn no_object_is_equal_to_what_it_does_not_know() {
    let Some(verifier) = verifier(LIMITS) else { return };
    let shadows = ("its own names for what the tests use", SHADOWS);
    let programs: Vec<_> = EQUAL_TO_ALL.iter().copied().chain([shadows]).collect();
    // All ways at once, each a test of its own: none may pass.
    let tests = problem(&json!(WAYS.join("\n")));
    let mut failed = Vec::new();
    let mut held = 0;
    for (name, program) in &programs {
        match verifier.tests_passed(&tests, &answer(program)) {
            Ok(TestsPassed { passed, total }) if total == WAYS.len() => {
                held += total - passed;
                failed.extend((passed > 0).then(|| format!("{name}: {passed} passed")));
            }
            other => failed.push(format!("{name}: {other:?}")),
        }
    }
    report("objects equal to all", held, programs.len() * WAYS.len());
    assert!(failed.is_empty(), "{failed:#?}");
}

//! What the `code` verifier says of programs that mean no harm: right ones in every form that
//! tests can take, wrong ones, slow ones.

mod sandboxed;

use std::sync::Arc;
use std::time::Duration;

use sandboxed::{LIMITS, answer, problem, verifier};
use scalerl_task::verify::code::{CodeOptions, CodeVerifier, TestsPassed, UNSANDBOXED_CONSENT};
use scalerl_task::{Outcome, SandboxLimits, Verifier, VerifierPool};
use serde_json::{Value, json};

fn judge(program: &str, tests: &Value) -> Option<Outcome> {
    Some(verifier(LIMITS)?.verify(&problem(tests), &answer(program)))
}

fn count(program: &str, tests: &Value) -> Option<(usize, usize)> {
    let counted = verifier(LIMITS)?.tests_passed(&problem(tests), &answer(program));
    let TestsPassed { passed, total } = counted.expect("a verdict");
    Some((passed, total))
}

#[test]
fn a_right_program_is_right_and_a_wrong_one_is_wrong() {
    let tests = json!(["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]);
    let Some(right) = judge("def add(a, b):\n    return a + b", &tests) else { return };
    assert_eq!(right, Outcome::Correct);
    assert_eq!(judge("def add(a, b):\n    return a - b", &tests), Some(Outcome::Incorrect));
    assert_eq!(judge("def add(a, b:", &tests), Some(Outcome::Incorrect));
    assert_eq!(judge("def plus(a, b):\n    return a + b", &tests), Some(Outcome::Incorrect));
}

#[test]
fn output_is_compared_case_by_case() {
    let tests = json!([{"input": "1 2\n", "output": "3"}, {"input": "5 5\n", "output": "10\n"}]);
    let Some(right) = judge("a, b = map(int, input().split())\nprint(a + b)", &tests) else {
        return;
    };
    assert_eq!(right, Outcome::Correct);
    assert_eq!(judge("input()\nprint(3)", &tests), Some(Outcome::Incorrect));
    assert_eq!(count("input()\nprint(3)", &tests), Some((1, 2)));
}

/// Programs and tests that they pass.
const RIGHT: &[(&str, &str, &str)] = &[
    (
        "a function that checks",
        "def double(x): return x * 2",
        "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate('a') == 'aa'\ncheck(double)",
    ),
    (
        "a method of a class",
        "class Solution:\n    def add(self, a, b): return a + b",
        "assert Solution().add(a=1, b=2) == 3",
    ),
    (
        "an object with a state",
        "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)\n    def __iter__(self): return iter(self.items)",
        "s = Stack()\ns.push(1)\ns.push(2)\nassert len(s) == 2 and list(s) == [1, 2] and 2 in s\nassert s.pop() == 2\nassert isinstance(s, Stack) and s.items == [1]",
    ),
    (
        "objects of the program that compare themselves",
        "from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\n    def __add__(self, o): return P(self.x + o.x)",
        "assert P(1) + P(2) == P(3) and P(1) < P(2) and P(1) != P(2)\nassert str(P(1)) == 'P(x=1)'",
    ),
    (
        "an argument changed in place",
        "def order(a, b=None):\n    a.sort()\n    b['n'] = len(a)",
        "xs, d = [3, 1, 2], {}\norder(xs, b=d)\nassert xs == [1, 2, 3] and d == {'n': 3}",
    ),
    (
        "functions and objects of the tests, passed to the program",
        "def apply(f, x): return f(x)\ndef invert(n):\n    if n: n.left, n.right = invert(n.right), invert(n.left)\n    return n\ndef total(xs): return sum(xs)",
        "class Node:\n    def __init__(self, v, l=None, r=None): self.v, self.left, self.right = v, l, r\nassert apply(lambda x: x + 1, 3) == 4 and apply(len, 'ab') == 2\nassert apply(lambda x: apply(lambda y: y * 2, x), 3) == 6\nt = Node(1, Node(2), Node(3))\nassert invert(t) is t and t.left.v == 3\nassert total(i for i in range(4)) == 6",
    ),
    (
        "exceptions",
        "class Bad(ValueError):\n    def __init__(self, text, code):\n        super().__init__(text)\n        self.code = code\ndef f(x):\n    if x < 0: raise Bad('no', 7)\n    return {}[x]",
        "try:\n    f(-1)\n    assert False\nexcept Bad as e:\n    assert e.code == 7 and str(e) == 'no'\ntry:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass\ntry:\n    f(1)\n    assert False\nexcept KeyError as e:\n    assert e.args == (1,)",
    ),
    (
        "generators and named tuples",
        "from collections import namedtuple, Counter, deque\nP = namedtuple('P', 'x y')\ndef point(): return P(1, 2)\ndef up(n):\n    for i in range(n): yield i\ndef rest(): return Counter('aab'), deque([1]), {1: {2}}, (1, [2]), b'x', 2 ** 5000, float('inf')",
        "import collections\nassert point() == (1, 2) and point().x == 1 and point()[1] == 2\nassert list(up(3)) == [0, 1, 2] and sum(up(4)) == 6\nassert rest() == (collections.Counter('aab'), collections.deque([1]), {1: {2}}, (1, [2]), b'x', 2 ** 5000, float('inf'))",
    ),
    (
        "numbers and dates of Python's library",
        "import datetime as d, decimal, fractions\ndef f(): return decimal.Decimal('1.10'), fractions.Fraction(1, 3), d.date(2020, 2, 29), d.datetime(2020, 1, 1, 5, tzinfo=d.timezone.utc), d.time(7), d.timedelta(1, 2, 3), range(1, 9, 2), 1 + 2j",
        "from datetime import date, datetime, time, timedelta, timezone\nfrom decimal import Decimal\nfrom fractions import Fraction\nassert f() == (Decimal('1.10'), Fraction(1, 3), date(2020, 2, 29), datetime(2020, 1, 1, 5, tzinfo=timezone.utc), time(7), timedelta(1, 2, 3), range(1, 9, 2), 1 + 2j)\nassert str(f()[0]) == '1.10'",
    ),
    (
        "numbers and texts of classes of the program's own",
        "import enum\nclass Color(enum.IntEnum):\n    RED = 1\nclass Text(str): pass\ndef f(): return Color.RED\ndef g(): return Text('ab')",
        "assert f() == 1 and f() + 1 == 2 and 3 - f() == 2 and f() < 2\nassert g() == 'ab' and g() + 'c' == 'abc' and len(g()) == 2",
    ),
    ("a name of Python's own", "def sum(a, b): return a + b", "assert sum(10, 15) == 25"),
    (
        "variables",
        "count = 0\ndef up():\n    global count\n    count += 1",
        "up()\nup()\nassert count == 2",
    ),
    (
        "a module that the tests did not import",
        "import math\ndef root(x): return x ** 0.5",
        "assert math.isclose(root(2), 1.41421356, rel_tol=1e-6)",
    ),
];

#[test]
fn right_programs_are_right_in_every_form_of_test() {
    let Some(verifier) = verifier(LIMITS) else { return };
    for (what, program, tests) in RIGHT {
        let outcome = verifier.verify(&problem(&json!(tests)), &answer(program));
        assert_eq!(outcome, Outcome::Correct, "{what}");
    }
}

#[test]
fn the_share_of_tests_passed_is_counted() {
    let tests = json!(["assert f(1) == 1", "assert f(2) == 2", "assert f(-3) == 3"]);
    let Some(some) = count("def f(x): return x", &tests) else { return };
    assert_eq!(some, (2, 3));
    assert_eq!(count("def f(x): return abs(x)", &tests), Some((3, 3)));
    assert_eq!(count("def f(x): raise ValueError", &tests), Some((0, 3)));
    assert_eq!(count("raise SystemExit", &tests), Some((0, 3)));
    // What comes before a program breaks off counts; what would come after does not.
    let ends = "import os\ndef f(x): return x if x < 2 else os._exit(0)";
    assert_eq!(count(ends, &tests), Some((1, 3)));
    // Preparations are no tests, and one that fails takes what follows with it.
    let tests = json!("s = []\ns.append(f(1))\nassert s == [1]\nt = f(0)\nassert t == 0");
    assert_eq!(count("def f(x): return 1 // x", &tests), Some((1, 2)));
}

#[test]
fn tests_that_test_nothing_are_an_error_of_the_row() {
    let Some(verifier) = verifier(LIMITS) else { return };
    for (tests, said) in [
        (json!("pass"), "test nothing"),
        (json!("assert 1 == 1"), "never use the program"),
        (json!("import random\nrandom.seed(0)"), "never use the program"),
        (json!("def test_it():\n    assert f(1) == 1"), "test nothing"),
        (json!("assert f(1 == 1"), "not Python"),
        (json!("import no_such_module\nassert f(1) == 1"), "no_such_module"),
        (json!({"a": 1}), "no tests"),
        (json!([]), "no tests"),
    ] {
        let outcome = verifier.verify(&problem(&tests), &answer("def f(x): return x"));
        let Outcome::Error { reason } = outcome else { panic!("{tests}: {outcome:?}") };
        assert!(reason.contains(said), "{tests}: {reason}");
    }
}

/// A pool that waits far less than a program may take.
fn impatient(limits: SandboxLimits) -> Option<VerifierPool> {
    Some(VerifierPool::new(Box::new(verifier(limits)?), 2, Duration::from_millis(200)))
}

#[test]
fn a_program_that_uses_up_its_time_is_wrong_and_no_error() {
    let limits = SandboxLimits { time_per_test_s: 1.0, time_s: 2.0, ..LIMITS };
    let Some(pool) = impatient(limits) else { return };
    let outputs = json!([{"input": "", "output": "1"}]);
    for (program, tests) in [
        ("while True: pass", json!("assert f() == 1")),
        ("def f():\n    while True: pass", json!("assert f() == 1")),
        ("import time\ntime.sleep(60)", json!("assert f() == 1")),
        ("def f():\n    while True: yield 1", json!("assert list(f()) == [1]")),
        // The judge itself is kept busy by what it was given.
        ("def f(): return 9 ** 9 ** 7", json!("assert f() == 1")),
        ("def f(): return 10 ** 7", json!("n = 3 ** f()\nwhile n: n -= f()\nassert not f()")),
        ("while True: pass", outputs.clone()),
        ("import time\ntime.sleep(60)", outputs),
    ] {
        let outcome = pool.verify(Arc::new(problem(&tests)), answer(program));
        assert_eq!(outcome, Outcome::Incorrect, "{program}");
    }
    assert_eq!((pool.counts().timeouts, pool.counts().errors), (0, 0));
}

#[test]
fn many_slow_tests_are_right_within_the_time_of_the_program() {
    let limits = SandboxLimits { time_per_test_s: 5.0, time_s: 30.0, ..LIMITS };
    let Some(pool) = impatient(limits) else { return };
    let program = "import time\ndef f(x):\n    time.sleep(0.2)\n    return x";
    let tests: Vec<String> = (0..8).map(|n| format!("assert f({n}) == {n}")).collect();
    let outcome = pool.verify(Arc::new(problem(&json!(tests))), answer(program));
    assert_eq!(outcome, Outcome::Correct);
    let program = "import time\ntime.sleep(0.2)\nprint(input())";
    let case = |n: usize| json!({"input": n.to_string(), "output": n.to_string()});
    let tests: Vec<Value> = (0..8).map(case).collect();
    assert_eq!(pool.verify(Arc::new(problem(&json!(tests))), answer(program)), Outcome::Correct);
}

#[test]
fn the_time_of_the_program_bounds_all_its_tests_together() {
    let limits = SandboxLimits { time_per_test_s: 1.0, time_s: 1.5, ..LIMITS };
    let Some(verifier) = verifier(limits) else { return };
    let tests: Vec<String> = (0..8).map(|n| format!("assert f({n}) == {n}")).collect();
    let program = "import time\ndef f(x):\n    time.sleep(0.6)\n    return x";
    let counted = verifier.tests_passed(&problem(&json!(tests)), &answer(program)).unwrap();
    assert!(counted.passed <= 2 && counted.total == 8, "{counted:?}");
}

#[test]
fn without_a_sandbox_programs_run_only_with_consent() {
    let options = CodeOptions { allow_unsandboxed: "sure".to_owned(), ..CodeOptions::default() };
    assert!(CodeVerifier::try_new(options).is_err());
    assert!(UNSANDBOXED_CONSENT.contains("without a sandbox"));
}

#[test]
fn times_that_make_no_sense_are_refused() {
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        for limits in [
            SandboxLimits { time_s: seconds, ..LIMITS },
            SandboxLimits { time_per_test_s: seconds, ..LIMITS },
        ] {
            let options = CodeOptions { limits, ..CodeOptions::default() };
            let error = CodeVerifier::try_new(options).unwrap_err().to_string();
            assert!(error.starts_with("verifier.limits.time"), "{error}");
        }
    }
}

//! Exceptions, hangs, crashes, nonsense: errors of one completion, and the next is judged.

use std::thread;

use scalerl_task::Outcome;

use crate::bench::{Bench, ask, error, scored};

#[test]
fn an_exception_is_an_error_with_its_traceback_and_the_same_first_line() {
    let bench = Bench::new(
        "def parse(text):\n    return float(text)\n\ndef score(completion):\n    return parse(completion)\n",
        "",
    );
    let judge = bench.judge();
    let reasons = ["one", "two"].map(|text| error(ask(&judge, text)));
    let first = |reason: &str| reason.lines().next().unwrap().to_owned();
    assert_eq!(first(&reasons[0]), first(&reasons[1]), "counted as one mistake");
    assert!(first(&reasons[0]).ends_with("line 2 raised ValueError"), "{}", reasons[0]);
    for word in ["Traceback", "return parse(completion)", "could not convert", "'one'"] {
        assert!(reasons[0].contains(word), "`{word}` is missing in {}", reasons[0]);
    }
    assert!(!reasons[0].contains("<string>"), "our own frames: {}", reasons[0]);
    bench.await_in_log("'two'");
    assert_eq!(ask(&judge, "1"), scored(1.0));
}

/// A call of several must not make errors of its innocent completions.
#[test]
fn one_bad_completion_does_not_take_its_group_with_it() {
    for mistake in
        ["raise ValueError('bad')", "import os; os._exit(3)", "import time; time.sleep(99)"]
    {
        let bench = Bench::new(
            &format!(
                "def score(completions, **kwargs):\n    \
                     if any(c[0]['content'] == 'bad' for c in completions):\n        {mistake}\n    \
                     return [1.0] * len(completions)\n"
            ),
            ", workers = 1, time_s = 2.0",
        );
        let judge = bench.judge();
        let verdicts: Vec<(usize, Outcome)> = thread::scope(|scope| {
            let ask = |n: usize| (n, ask(&judge, if n == 3 { "bad" } else { "good" }));
            let asked: Vec<_> = (0..8).map(|n| scope.spawn(move || ask(n))).collect();
            asked.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for (n, verdict) in verdicts {
            if n == 3 {
                assert!(matches!(verdict, Outcome::Error { .. }), "{mistake}: {verdict:?}");
            } else {
                assert_eq!(verdict, scored(1.0), "{mistake}");
            }
        }
    }
}

#[test]
fn a_hang_and_a_crash_are_errors_and_the_process_is_started_anew() {
    let bench = Bench::new(
        "import ctypes, os, sys, time\n\
         def score(completion):\n    \
             if completion == 'hang': time.sleep(99)\n    \
             if completion == 'spin':\n        while True: pass\n    \
             if completion == 'exit': os._exit(3)\n    \
             if completion == 'sys.exit': sys.exit(4)\n    \
             if completion == 'segfault': ctypes.string_at(0)\n    \
             if completion == 'child':\n        \
                 if os.fork() == 0: time.sleep(99)\n        \
                 os._exit(5)\n    \
             return 1.0\n",
        ", workers = 1, time_s = 2.0",
    );
    let judge = bench.judge();
    for (what, said) in [
        ("hang", "no answer within 2 s"),
        ("spin", "no answer within 2 s"),
        ("exit", "has ended (exit status: 3)"),
        ("sys.exit", "raised SystemExit"),
        ("segfault", "has ended (signal: 11 (SIGSEGV)"),
        // Its child holds its output open.
        ("child", "has ended (exit status: 5)"),
    ] {
        let reason = error(ask(&judge, what));
        assert!(reason.contains(said), "{what}: {reason}");
        assert_eq!(ask(&judge, "fine"), scored(1.0), "after {what}");
    }
    let reason = error(ask(&judge, "segfault"));
    assert!(reason.contains("it last printed") && reason.contains("line 8"), "{reason}");
}

#[test]
fn what_it_prints_goes_to_the_log_and_never_into_the_verdicts() {
    let bench = Bench::new(
        "import os, subprocess, sys\n\
         print('on import')\n\
         def score(completion):\n    \
             print('{\"id\": 1, \"replies\": [{\"score\": 0.0}]}')\n    \
             sys.__stdout__.write('to __stdout__\\n')\n    \
             os.write(1, b'to 1\\n')\n    \
             subprocess.run(['echo', 'of a child'])\n    \
             print('to stderr', file=sys.stderr)\n    \
             assert sys.stdin.read() == '', 'nothing of ours can be read'\n    \
             return 0.75\n",
        ", workers = 1",
    );
    let judge = bench.judge();
    assert_eq!((ask(&judge, "x"), ask(&judge, "x")), (scored(0.75), scored(0.75)));
    for line in ["on import", "\"score\": 0.0", "to __stdout__", "to 1", "of a child", "to stderr"]
    {
        bench.await_in_log(line);
    }
}

#[test]
fn what_is_no_finite_number_is_an_error_and_none_is_undecided() {
    let bench = Bench::new("def score(completion):\n    return eval(completion)\n", "");
    let judge = bench.judge();
    for (value, said) in [
        ("float('nan')", "nan"),
        ("float('inf')", "inf"),
        ("-float('inf')", "-inf"),
        ("'1.0'", "'1.0', which is no number"),
        ("[1.0]", "no number"),
        ("1j", "no number"),
        ("{'points': 1}", "without a `score`"),
        ("2.0", "from 0 to 1"),
        ("10**400", "OverflowError"),
    ] {
        let reason = error(ask(&judge, value));
        assert!(reason.contains(said), "{value}: {reason}");
    }
    assert!(matches!(ask(&judge, "None"), Outcome::Undecided { .. }));
    for (value, score) in
        [("True", 1.0), ("1", 1.0), ("0.1 + 0.2", 0.1 + 0.2), ("{'score': 0.5}", 0.5)]
    {
        assert_eq!(ask(&judge, value), scored(score), "{value}");
    }
}

#[test]
fn a_list_of_rewards_must_be_one_and_of_the_right_length() {
    let bench = Bench::new(
        "def score(completions):\n    return eval(completions[0][0]['content'])\n",
        ", batch_size = 1",
    );
    let judge = bench.judge();
    for (value, said) in [
        ("[]", "0 rewards for 1 completions"),
        ("[1.0, 1.0]", "2 rewards for 1"),
        ("1.0", "not iterable"),
        ("None", "not a list of rewards"),
        ("'1'", "not a list of rewards"),
        ("['1']", "no number"),
        ("[float('nan')]", "nan"),
    ] {
        let reason = error(ask(&judge, value));
        assert!(reason.contains(said), "{value}: {reason}");
    }
    assert!(
        matches!(ask(&judge, "[None]"), Outcome::Undecided { .. }),
        "not applicable, as in TRL"
    );
    assert_eq!(ask(&judge, "(0.5,)"), scored(0.5));
}

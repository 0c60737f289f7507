//! What a reward in Python costs: `cargo bench -p scalerl-task --bench python_reward [-- SECONDS]`.
//!
//! 768 completions, as one step of the H200 benchmark has them (48 groups of 16; the step takes 2.2 s,
//! or as many seconds as are given), judged by a function that is busy for 1 ms with each and by one
//! that does nothing. Three questions:
//!
//! - `all at once`: how long the pool takes when everything waits already;
//! - `one by one`: what a verdict takes, asked alone;
//! - `as they come`: groups arrive evenly over the step, as they do in a run. What a step waits for is
//!   what is left to judge after the last group has arrived. That is to be less than 2 % of the step.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a table for whoever measures")]

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use scalerl_recipe::{Recipe, Source};
use scalerl_task::{Answer, Message, Outcome, Problem, Resources, VerifierPool, verifier};

const GROUPS: usize = 48;
const GROUP: usize = 16;
const STEP_SECONDS: f64 = 2.2;

const TRL: &str = "def score(completions, answer, **kwargs):\n    \
                   return [work(c, a) for c, a in zip(completions, answer)]\n";
const VERL: &str =
    "def score(solution_str, ground_truth):\n    return work(solution_str, ground_truth)\n";

/// The forms that a function may have, and the most completions of a call.
const FORMS: [(&str, &str, u32); 3] =
    [("verl", VERL, 1), ("TRL", TRL, 64), ("TRL, batch_size 2", TRL, 2)];

/// What each does for one completion.
const WORK: [(&str, &str); 2] = [
    (
        "1 ms",
        "import time\ndef work(c, a):\n    end = time.perf_counter() + 0.001\n    \
             while time.perf_counter() < end: pass\n    return 1.0\n",
    ),
    ("nothing", "def work(c, a):\n    return 1.0\n"),
];

fn judge(file: &Path, workers: usize, batch_size: u32) -> VerifierPool {
    let text = format!(
        "task.verifier = {{ type = \"python\", file = \"{}\", workers = {workers}, \
         batch_size = {batch_size} }}\n",
        file.display()
    );
    let recipe = Recipe::load(&[Source::Text { name: "bench".into(), text }], &[]).unwrap();
    let (choice, deadline) = (&recipe.task.verifier, Duration::from_mins(1));
    let resources = Resources::of_one(choice, deadline).unwrap();
    VerifierPool::new(verifier::build(choice, &resources).unwrap(), 1, deadline)
}

/// A problem with a few columns, and a completion of about 256 tokens.
fn question() -> (Arc<Problem>, Answer) {
    let mut problem = Problem::plain("", "72");
    problem.messages = vec![Message::new("user", "How many clips did Natalia sell? ".repeat(6))];
    for column in ["question", "answer", "solution"] {
        problem.fields.insert(column.into(), "Natalia sold 48/2 = 24 clips. ".repeat(4).into());
    }
    (Arc::new(problem), Answer::whole("She sold 24 + 48 = 72 clips, so ".repeat(30)))
}

fn verdict(judge: &VerifierPool, (problem, answer): &(Arc<Problem>, Answer)) -> Duration {
    let asked = Instant::now();
    let outcome = judge.verify(Arc::clone(problem), answer.clone());
    assert!(matches!(outcome, Outcome::Scored { .. }), "{outcome:?}");
    asked.elapsed()
}

fn all_at_once(judge: &VerifierPool) -> Duration {
    let (question, begun) = (question(), Instant::now());
    thread::scope(|scope| {
        for _ in 0..GROUPS * GROUP {
            scope.spawn(|| verdict(judge, &question));
        }
    });
    begun.elapsed()
}

fn one_by_one(judge: &VerifierPool) -> Vec<Duration> {
    let question = question();
    let mut times: Vec<Duration> = (0..500).map(|_| verdict(judge, &question)).collect();
    times.sort();
    times
}

/// What is left after the last arrival, and how long groups wait for their verdicts.
fn as_they_come(judge: &VerifierPool, step: Duration) -> (Duration, Vec<Duration>) {
    let (question, begun) = (&question(), Instant::now());
    let judged = move || {
        let arrived = Instant::now();
        thread::scope(|scope| {
            for _ in 0..GROUP {
                scope.spawn(|| verdict(judge, question));
            }
        });
        arrived.elapsed()
    };
    thread::scope(|scope| {
        let mut groups = Vec::new();
        for group in 1..=GROUPS {
            let arrival = begun + step * group as u32 / GROUPS as u32;
            thread::sleep(arrival.saturating_duration_since(Instant::now()));
            groups.push(scope.spawn(judged));
        }
        let last = Instant::now();
        let mut waits: Vec<Duration> = groups.into_iter().map(|one| one.join().unwrap()).collect();
        let left = last.elapsed();
        waits.sort();
        (left, waits)
    })
}

/// Steps that are tried; other work on the machine shows in the worst of them.
const STEPS: usize = 5;

fn measure(judge: &VerifierPool, step: Duration) -> String {
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    // Every process has started after this.
    all_at_once(judge);
    let (all, single) = (all_at_once(judge), one_by_one(judge));
    let (mut lefts, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        let (left, groups) = as_they_come(judge, step);
        lefts.push(left);
        waits.extend(groups);
    }
    lefts.sort();
    waits.sort();
    let each_second = (GROUPS * GROUP) as f64 / all.as_secs_f64();
    let share = 100.0 * lefts[STEPS / 2].as_secs_f64() / step.as_secs_f64();
    let (median, rare) = (ms(single[single.len() / 2]), ms(single[single.len() * 99 / 100]));
    let (wait, longest) = (ms(waits[waits.len() / 2]), ms(waits[waits.len() - 1]));
    let (all, left, worst) = (ms(all), ms(lefts[STEPS / 2]), ms(lefts[STEPS - 1]));
    format!(
        "{all} | {each_second:.0} | {median} | {rare} | {wait} | {longest} | {left} | {worst} | {share:.1} %"
    )
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // cargo itself adds a word.
    let seconds = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let step = Duration::from_secs_f64(seconds.unwrap_or(STEP_SECONDS));
    println!("{cores} cores; 768 completions; a step of {} s\n", step.as_secs_f64());
    println!(
        "| form | work | workers | all at once | per second | one by one: median | 99 % | \
         as they come: a group waits, median | longest | left after the last, median of 5 | worst | \
         median of the step |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (form, function, batch_size) in FORMS {
        for (name, work) in WORK {
            for workers in [2, 4, 8] {
                let file = folder.path().join("reward.py");
                std::fs::write(&file, format!("{work}{function}")).unwrap();
                let measured = measure(&judge(&file, workers, batch_size), step);
                println!("| {form} | {name} | {workers} | {measured} |");
            }
        }
    }
}

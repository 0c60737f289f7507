//! Rewards of reasoning-gym, TRL and verl, the packages as they are: `make test-rewards`.
//!
//! SCALERL_REWARDS_PYTHON names the Python that has them; without it nothing is tested here. Each score
//! is held against the same function called by hand in that Python.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of any test")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_recipe::{Format, Recipe, Source};
use scalerl_rollout::{Completion, FinishReason, PolicyVersion};
use scalerl_task::{
    Answer, Message, Outcome, Problem, Problems, Resources, VerifierPool, verifier,
};
use serde_json::{Value, json};

fn python() -> Option<String> {
    let python = std::env::var("SCALERL_REWARDS_PYTHON").ok();
    if python.is_none() {
        println!("SKIPPED: SCALERL_REWARDS_PYTHON is not set");
    }
    python
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a program prints, as JSON or JSON lines.
fn printed(python: &str, arguments: &[&str]) -> String {
    let output = Command::new(python).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn judge(verifier: &str) -> VerifierPool {
    let text = format!("task.verifier_timeout_s = 60.0\ntask.verifier = {verifier}\n");
    let recipe = Recipe::load(&[Source::Text { name: "test".into(), text }], &[]).unwrap();
    let (choice, deadline) = (&recipe.task.verifier, Duration::from_mins(1));
    let resources = Resources::of_one(choice, deadline).unwrap();
    let built = verifier::build(choice, &resources).unwrap_or_else(|error| panic!("{error}"));
    VerifierPool::new(built, 1, deadline)
}

/// A score, or nothing where the function has none to give.
fn score(outcome: Outcome) -> Option<f64> {
    match outcome {
        Outcome::Scored { score, .. } => Some(score),
        Outcome::Undecided { .. } => None,
        other => panic!("{other:?}"),
    }
}

/// As a policy would have written it, a token for each byte.
fn written(text: &str) -> Answer {
    let token_ids: Vec<u32> = text.bytes().map(u32::from).collect();
    let count = token_ids.len();
    let completion = Completion {
        token_ids,
        logprobs: vec![-1.0; count],
        versions: vec![PolicyVersion(0); count],
        is_injected: vec![false; count],
        text: text.to_owned(),
        thinking_tokens: 0,
        finish: FinishReason::Stop,
    };
    Answer::of(&Format::default(), &completion)
}

/// Asks all at once, so that they come in calls of several.
fn scores(judge: &VerifierPool, rows: &[(Problem, &str)]) -> Vec<Option<f64>> {
    std::thread::scope(|scope| {
        let ask = |(problem, said): &(Problem, &str)| {
            score(judge.verify(Arc::new(problem.clone()), written(said)))
        };
        let asked: Vec<_> = rows.iter().map(|row| scope.spawn(move || ask(row))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn reasoning_gym_scores_its_own_problems() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("gym.jsonl");
    let examples = repository().join("examples/rewards");
    let (write, file) =
        (examples.join("write_reasoning_gym.py"), examples.join("score_reasoning_gym.py"));
    let tasks = ["leg_counting", "gcd", "countdown", "word_sorting", "sudoku"];
    let arguments =
        [&[write.to_str().unwrap()], &tasks[..], &["--size", "20", "--seed", "7"]].concat();
    std::fs::write(&data, printed(&python, &arguments)).unwrap();
    let text = format!(
        "[task]\nheld_out = 20\nverifier = {{ type = \"python\", file = \"{}\", python = \"{python}\" }}\n\
         [[task.datasets]]\nname = \"gym\"\nsource = {{ type = \"files\", path = \"{}\", \
         prompt_column = \"question\" }}\n",
        file.display(),
        data.display(),
    );
    let recipe = Recipe::load(&[Source::Text { name: "test".into(), text }], &[]).unwrap();
    let problems = Problems::load(&recipe, &folder.path().join("held_out.json"), 2).unwrap();
    let pool = &problems.verifiers["gym"];
    let (mut right, mut wrong, mut count) = (0.0, 0.0, 0);
    let begun = Instant::now();
    for problem in problems.pool.problems() {
        let verdict = |text: &str| {
            score(pool.verify(Arc::new(problem.clone()), Answer::whole(text))).unwrap()
        };
        let gold = verdict(&problem.answer);
        assert!((gold - 1.0).abs() < 1e-12, "{}: {gold}", problem.id.0);
        right += gold;
        wrong += verdict("an elephant");
        count += 1;
    }
    let each = begun.elapsed().as_secs_f64() / f64::from(2 * count);
    assert!(wrong < 0.05 * f64::from(count), "{wrong}");
    println!(
        "reasoning-gym: {count} problems of {}: gold answers {:.3}, \"an elephant\" {:.3} in the mean; {:.2} ms a verdict",
        tasks.join(", "),
        right / f64::from(count),
        wrong / f64::from(count),
        each * 1e3,
    );
}

const SAID: [&str; 5] = [
    "<think>\na third\n</think>\nso \\boxed{\\frac{1}{3}}",
    "<think>\na half\n</think>\nso \\boxed{\\frac{1}{2}}",
    "\\boxed{\\frac{2}{6}}",
    "I do not know",
    "<think>\nhm</think> $\\boxed{0.5}$",
];

/// Their user writes this file; two of them are made by functions.
const FROM_TRL: &str = "
from trl.rewards import accuracy_reward, reasoning_accuracy_reward, think_format_reward
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment
repetition = get_repetition_penalty_reward(3, -1.0)
overlong = get_soft_overlong_punishment(60, 40)
";

#[test]
fn reward_functions_of_trl_are_taken_as_they_are() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("from_trl.py");
    std::fs::write(&file, FROM_TRL).unwrap();
    let solutions = ["$\\frac{1}{3}$", "$\\frac{1}{2}$", "$\\frac{1}{3}$", "$\\frac{1}{3}$", ""];
    let by_hand = format!(
        "import json, sys; sys.path.insert(0, {:?}); import from_trl\n\
         name, said, solutions = sys.argv[1], *map(json.loads, sys.argv[2:])\n\
         completions = [[{{'role': 'assistant', 'content': one}}] for one in said]\n\
         ids = [list(one.encode()) for one in said]\n\
         print(json.dumps(getattr(from_trl, name)(completions=completions, solution=solutions, \
         completion_ids=ids)))",
        folder.path(),
    );
    let names = [
        "accuracy_reward",
        "reasoning_accuracy_reward",
        "think_format_reward",
        "repetition",
        "overlong",
    ];
    for name in names {
        let (said, golds) = (json!(SAID).to_string(), json!(solutions).to_string());
        let expected = printed(&python, &["-c", &by_hand, name, &said, &golds]);
        let expected: Vec<Option<f64>> = serde_json::from_str(&expected).unwrap();
        let judge = judge(&format!(
            "{{ type = \"python\", file = \"{}\", function = \"{name}\", python = \"{python}\", \
             workers = 1, min_score = -1.0 }}",
            file.display(),
        ));
        let rows = SAID.iter().zip(solutions);
        let rows: Vec<(Problem, &str)> =
            rows.map(|(said, gold)| (asked(json!({"solution": gold})), *said)).collect();
        let found = scores(&judge, &rows);
        println!("trl.rewards {name}: {found:?}");
        assert_eq!(found, expected, "{name}");
    }
}

fn asked(fields: Value) -> Problem {
    let Value::Object(fields) = fields else { panic!("a row") };
    let messages = vec![Message::new("user", "What?")];
    let answer = fields.get("answer").and_then(Value::as_str).unwrap_or_default().to_owned();
    Problem { messages, fields, ..Problem::plain("", answer) }
}

#[test]
fn compute_score_of_verl_is_taken_as_it_is() {
    let Some(python) = python() else { return };
    // `import verl` wants torch and Ray; the file of the reward itself wants nothing.
    let find = "import importlib.metadata as m; print(m.distribution('verl').locate_file(\
                'verl/utils/reward_score/gsm8k.py'))";
    let file = printed(&python, &["-c", find]).trim().to_owned();
    let said = ["6 * 12 = 72\n#### 72", "#### 71", "72", "so #### 1,072", "#### 72\n#### 73"];
    let truths = ["72", "72", "72", "1072", "72"];
    let by_hand = format!(
        "import json, sys; sys.path.insert(0, {:?}); from gsm8k import compute_score\n\
         print(json.dumps([compute_score(s, t) for s, t in zip(*map(json.loads, sys.argv[1:]))]))",
        Path::new(&file).parent().unwrap(),
    );
    let arguments = [json!(said).to_string(), json!(truths).to_string()];
    let expected = printed(&python, &["-c", &by_hand, &arguments[0], &arguments[1]]);
    let expected: Vec<Option<f64>> = serde_json::from_str(&expected).unwrap();
    let judge = judge(&format!(
        "{{ type = \"python\", file = \"{file}\", function = \"compute_score\", python = \"{python}\" }}"
    ));
    // A row as verl's own files have it, and one as ours do.
    let of_verl = |truth: &str| {
        asked(json!({"data_source": "openai/gsm8k", "extra_info": {"index": 0},
            "reward_model": {"style": "rule", "ground_truth": truth}}))
    };
    let of_ours = |truth: &str| asked(json!({"answer": truth}));
    for row in [&of_verl as &dyn Fn(&str) -> Problem, &of_ours] {
        let rows: Vec<(Problem, &str)> =
            truths.iter().zip(said).map(|(truth, said)| (row(truth), said)).collect();
        let found = scores(&judge, &rows);
        println!("verl gsm8k compute_score: {found:?}");
        assert_eq!(found, expected);
        assert_eq!(found[0], Some(1.0));
    }
}

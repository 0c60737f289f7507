//! What a function is called with, by its parameters.

use std::sync::Arc;
use std::thread;

use scalerl_recipe::{Format, Recipe, Source};
use scalerl_rollout::{Completion, FinishReason, PolicyVersion};
use scalerl_task::{Answer, Outcome, Problem};
use serde_json::json;

use crate::bench::{Bench, ask, row, scored};

#[test]
fn a_reward_function_of_trl_gets_messages_columns_and_state() {
    let bench = Bench::new(
        "def score(prompts, completions, solution, completion_ids, trainer_state, **kwargs):\n    \
             assert prompts == [[{'role': 'system', 'content': 'Be brief.'},\n        \
                 {'role': 'user', 'content': '1 + 1?'}]], prompts\n    \
             assert completions == [[{'role': 'assistant', 'content': 'hm</think>2'}]], completions\n    \
             assert solution == ['two'] and kwargs['level'] == [{'n': 3}], kwargs\n    \
             assert completion_ids == [[5, 6]] and trainer_state.global_step == 41\n    \
             assert sorted(kwargs) == ['answer', 'level', 'log_extra', 'log_metric'], kwargs\n    \
             kwargs['log_metric']('a', 1.0)\n    \
             return [0.75]\n",
        "",
    );
    let problem =
        row(&json!({"answer": "2", "solution": "two", "level": {"n": 3}, "prompt": "1 + 1?"}));
    let written = Completion {
        token_ids: vec![5, 6],
        logprobs: vec![-0.5, -0.5],
        versions: vec![PolicyVersion(41), PolicyVersion(40)],
        is_injected: vec![false, false],
        text: "hm</think>2".into(),
        thinking_tokens: 1,
        finish: FinishReason::Stop,
    };
    let answer = Answer::of(&Format::default(), &written);
    assert_eq!(bench.judge().verify(Arc::new(problem), answer), scored(0.75));
}

#[test]
fn plain_prompts_and_their_completions_are_texts() {
    let bench = Bench::new(
        "def score(completions, prompts):\n    \
             return [float(c == 'yes' and p == '1 + 1?') for c, p in zip(completions, prompts)]\n",
        "",
    );
    let judge = bench.judge();
    let ask =
        |text: &str| judge.verify(Arc::new(Problem::plain("1 + 1?", "2")), Answer::whole(text));
    assert_eq!((ask("yes"), ask("no")), (scored(1.0), scored(0.0)));
}

#[test]
fn what_waits_goes_in_one_call() {
    let bench = Bench::new(
        "def score(completions, **kwargs):\n    return [len(completions) / 16] * len(completions)\n",
        ", workers = 1",
    );
    let judge = bench.judge();
    assert!(judge.at_once() >= 16, "{}", judge.at_once());
    let verdicts: Vec<Outcome> = thread::scope(|scope| {
        let asked: Vec<_> = (0..16).map(|_| scope.spawn(|| ask(&judge, "x"))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let sizes = verdicts.iter().map(|verdict| match verdict {
        Outcome::Scored { score, .. } => *score * 16.0,
        other => panic!("{other:?}"),
    });
    // 16 calls of one would be 16 ones. How many wait together is up to the machine.
    assert!(sizes.sum::<f64>() > 16.0, "{verdicts:?}");
}

#[test]
fn compute_score_of_verl_gets_its_row() {
    let bench = Bench::new(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    \
             if data_source == 'sums':\n        \
                 assert (ground_truth, extra_info) == ('2', {}), (ground_truth, extra_info)\n        \
                 return solution_str == ground_truth\n    \
             assert (ground_truth, extra_info) == ({'target': 9}, {'index': 4})\n    \
             return {'score': 0.25, 'acc': 1}\n",
        ", function = \"compute_score\"",
    );
    let judge = bench.judge();
    assert_eq!((ask(&judge, "2"), ask(&judge, "3")), (scored(1.0), scored(0.0)));
    let verls = row(&json!({"data_source": "countdown", "extra_info": {"index": 4},
        "reward_model": {"style": "rule", "ground_truth": {"target": 9}}}));
    assert_eq!(judge.verify(Arc::new(verls), Answer::whole("9")), scored(0.25));
}

/// The one that verl ships for GSM8K has no data source and keys of its own.
#[test]
fn parameters_with_defaults_keep_them() {
    let bench = Bench::new(
        "def compute_score(solution_str, ground_truth, method='strict', score=0.75):\n    \
             return score if method == 'strict' and solution_str == ground_truth else 0\n",
        ", function = \"compute_score\"",
    );
    assert_eq!(ask(&bench.judge(), "2"), scored(0.75));
}

#[test]
fn a_plain_function_is_told_what_a_program_is_told() {
    let bench = Bench::new(
        "class Judge:\n    \
             def __call__(self, prompt, completion, full_completion, answer, row):\n        \
                 assert prompt == 'Be brief.\\n1 + 1?' and row == {'answer': '2'}, (prompt, row)\n        \
                 if completion is None:\n            \
                     return 0.125 if full_completion == '2' else 0.25\n        \
                 assert full_completion == 'hm</think>' + completion\n        \
                 return completion == answer\n\
         score = Judge()\n",
        "",
    );
    let judge = bench.judge();
    let ask = |completion: &str| {
        let answer = Answer::cut(&Format::default(), completion);
        judge.verify(Arc::new(row(&json!({"answer": "2"}))), answer)
    };
    assert_eq!(ask("hm</think>2"), scored(1.0));
    assert_eq!(ask("hm</think>3"), scored(0.0));
    assert_eq!(ask("2"), scored(0.125), "a completion without an answer is shown too");
}

#[test]
fn coroutines_are_awaited_in_every_form() {
    for form in [
        "async def score(completions, answer, **kwargs):\n    \
             await asyncio.sleep(0)\n    \
             return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]\n",
        "async def score(solution_str, ground_truth):\n    \
             await asyncio.sleep(0)\n    return float(solution_str == ground_truth)\n",
        "async def score(completion, answer):\n    \
             await asyncio.sleep(0)\n    return float(completion == answer)\n",
    ] {
        let judge = Bench::new(&format!("import asyncio\n{form}"), ", workers = 1").judge();
        let all: Vec<Outcome> = thread::scope(|scope| {
            let asked: Vec<_> = ["2", "3", "2"].map(|t| scope.spawn(|| ask(&judge, t))).into();
            asked.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(all, [scored(1.0), scored(0.0), scored(1.0)], "{form}");
    }
}

#[test]
fn the_recipe_says_what_scores_there_are_and_which_are_right() {
    let keys = ", min_score = -2.0, max_score = 3.0, pass_score = 2.0";
    let judge = Bench::new("def score(completion):\n    return float(completion)\n", keys).judge();
    for (text, is_correct) in [("-2", false), ("1.5", false), ("2", true), ("3", true)] {
        let score = text.parse().unwrap();
        assert_eq!(ask(&judge, text), Outcome::Scored { score, is_correct });
    }
    assert!(matches!(ask(&judge, "3.1"), Outcome::Error { .. }));
    let source = Source::Text {
        name: "test".into(),
        text: "task.verifier = { type = \"python\", file = \"r.py\", pass_score = 0.0 }".into(),
    };
    let error = Recipe::load(&[source], &[]).unwrap_err().to_string();
    assert!(error.contains("pass_score"), "{error}");
}

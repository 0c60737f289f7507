//! A run whose reward is a Python function, with everything that can go wrong in one going wrong now and then.

use scalerl_journal::What;

use crate::bench::{audit, events, folder, groups, reading, resume, said, succeed, train};

/// Of TRL's form. Some completions make it raise, and a few end its process.
const REWARD: &str = r#"
import os, zlib

def reward(prompts, completions, answer, trainer_state, **kwargs):
    print("step", trainer_state.global_step, "calls for", len(completions))
    rewards = []
    for text, gold in zip(completions, answer):
        fate = zlib.crc32(text.encode()) % 50
        if fate == 7:
            raise ValueError(f"cannot judge {text!r}")
        if fate == 8:
            os._exit(3)
        rewards.append(1.0 if text.split("</think>")[-1].strip() == gold else 0.25)
    return rewards
"#;

#[test]
fn a_run_is_rewarded_by_a_python_function_whose_text_it_keeps() {
    let (run, file) = ("python-reward", folder().join("reward.py"));
    std::fs::write(&file, REWARD).unwrap();
    let judge = "task.datasets=[{name=\"chain\",source={type=\"chain\",min_steps=1,max_steps=3,\
                 count=1216},verifier={type=\"python\",file=\"reward.py\",function=\"reward\"}}]";
    let said_live = succeed(train("scalerl", run, &[judge, "budget.steps=5"]));
    assert!(said_live.err.contains("raised ValueError"), "{}", said_live.err);
    let first = reading(run);
    audit(&first, 8);
    let failures: Vec<&String> = events(&first)
        .filter_map(|what| match what {
            What::VerifierFailed { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    let begin = |words: &str| failures.iter().filter(|reason| reason.starts_with(words)).count();
    let raised = begin("reward in reward.py, line 10 raised ValueError\nTraceback");
    let ended = begin("reward.py has ended (exit status: 3)");
    assert!(raised > 0 && ended > 0 && raised + ended == failures.len(), "{failures:?}");
    let (judged, failed): (u32, u32) = groups(&first)
        .map(|group| (group.judged, group.failed))
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(
        judged > 10 * failed && groups(&first).any(|group| group.passed > 0),
        "{judged}, {failed}"
    );
    let log = std::fs::read_to_string(folder().join(run).join("verifier.log")).unwrap();
    assert!(log.contains("calls for") && log.contains("cannot judge"), "{log}");

    std::fs::write(&file, REWARD.replace("0.25", "0.0")).unwrap();
    let refused = said(resume(run, &["budget.steps=7"]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for words in ["reward.py is not what the run was started with: line 13", "verifier_files.json"]
    {
        assert!(refused.err.contains(words), "`{words}` is missing in: {}", refused.err);
    }
    std::fs::write(&file, REWARD).unwrap();
    succeed(resume(run, &["budget.steps=7"]));
    audit(&reading(run), 8);
}

#[test]
fn a_function_that_always_raises_ends_the_run_with_its_traceback() {
    let text = "def score(completion):\n    raise KeyError('no such judge')\n";
    std::fs::write(folder().join("raises.py"), text).unwrap();
    let judge = "task.datasets=[{name=\"chain\",source={type=\"chain\",min_steps=1,max_steps=3,\
                 count=1216},verifier={type=\"python\",file=\"raises.py\",workers=1}}]";
    let set = [judge, "evaluation.at_start=false", "pipeline.groups_per_step=4"];
    let said = said(train("scalerl", "always-raises", &set));
    assert_eq!(said.code, Some(1), "{said:?}");
    for words in ["score in raises.py, line 2 raised KeyError", "Traceback", "'no such judge'"] {
        assert!(said.err.contains(words), "`{words}` is missing in: {}", said.err);
    }
}

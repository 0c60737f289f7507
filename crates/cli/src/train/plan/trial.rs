//! The verifier, tried before anything is spent: gold answers in the recipe's format must be judged
//! right, other answers wrong.
//!
//! A gold answer that its own verifier refuses is a prompt that can teach nothing; a wrong one that it
//! accepts is what a policy will find.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use scalerl_recipe::{Format, Recipe, Thinking};
use scalerl_task::{Answer, Outcome, Problem, Problems, VerifierPool};

/// Rows of each data set.
const ROWS: usize = 5;
/// Where a row has no gold answer, as for programs and expressions, only this can be tried.
const NONSENSE: &str = "no answer";

/// Tries the judge of each data set and says what came out.
pub(super) fn print(recipe: &Recipe, problems: &Problems, out: &mut dyn Write) -> Result<()> {
    for (name, verifier) in &problems.verifiers {
        let measured = problems.evaluation.iter().flat_map(|(_, problems)| problems);
        let rows: Vec<&Problem> =
            problems.pool.problems().chain(measured).filter(|row| row.dataset == *name).collect();
        let trial = Trial::of(&recipe.format, &rows, verifier);
        writeln!(out, "verifier  {name}: {}", trial.line())?;
        for surprise in &trial.surprises {
            writeln!(out, "          note: {surprise}")?;
        }
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq)]
struct Trial {
    /// Gold answers judged right, of so many.
    right: (usize, usize),
    /// Other answers judged wrong, of so many.
    wrong: (usize, usize),
    surprises: Vec<String>,
}

impl Trial {
    fn of(format: &Format, rows: &[&Problem], verifier: &VerifierPool) -> Self {
        let mut trial = Self::default();
        let step = rows.len().div_ceil(ROWS).max(1);
        for problem in rows.iter().step_by(step) {
            let judge = |answer: &str| {
                let answer = Answer::cut(format, completion(format, answer));
                verifier.verify(Arc::new((*problem).clone()), answer)
            };
            let gold = problem.answer.as_str();
            if !gold.is_empty() {
                trial.right.1 += 1;
                let outcome = judge(gold);
                trial.right.0 += usize::from(outcome.word() == "equal");
                trial.note(problem, "the gold answer", gold, &outcome, "equal");
            }
            let others = rows.iter().map(|row| row.answer.as_str());
            let other = others.filter(|other| !other.is_empty()).find(|other| *other != gold);
            let other = other.unwrap_or(NONSENSE);
            trial.wrong.1 += 1;
            let outcome = judge(other);
            trial.wrong.0 += usize::from(outcome.word() == "different");
            trial.note(problem, "the answer of another row,", other, &outcome, "different");
        }
        trial
    }

    fn note(
        &mut self,
        problem: &Problem,
        what: &str,
        answer: &str,
        outcome: &Outcome,
        wanted: &str,
    ) {
        if outcome.word() == wanted {
            return;
        }
        let said = match outcome {
            Outcome::Undecided { reason } | Outcome::Error { reason } => {
                format!("has no verdict: {reason}")
            }
            outcome => {
                format!("is judged {}", if outcome.word() == "equal" { "right" } else { "wrong" })
            }
        };
        let short: String = answer.chars().take(60).collect();
        self.surprises.push(format!("{}: {what} `{short}` {said}", problem.id.0));
    }

    fn line(&self) -> String {
        let ((right, golds), (wrong, others)) = (self.right, self.wrong);
        let wrong = format!("{wrong} of {others} wrong ones judged wrong");
        if golds == 0 {
            return format!("{wrong} (the rows have no gold answers to try)");
        }
        format!("{right} of {golds} gold answers judged right, {wrong}")
    }
}

/// What a model would write to give this answer at once.
fn completion(format: &Format, answer: &str) -> String {
    let close = match &format.thinking {
        Thinking::Tags { close, .. } => close.as_str(),
        Thinking::BeforeAnswer | Thinking::None => "",
    };
    format!(
        "{close}{}{answer}{}",
        format.answer.opening(),
        format.answer.closing().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use scalerl_recipe::{AnswerForm, Source};
    use scalerl_task::verifier::{Resources, build};

    fn trial(recipe: &str, golds: &[&str]) -> Trial {
        let source = Source::Text { name: "test".into(), text: recipe.into() };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        let choice = &recipe.task.verifier;
        let resources = Resources::of_one(choice, Duration::from_secs(5)).unwrap();
        let judge = build(choice, &resources).unwrap();
        let pool = VerifierPool::new(judge, 1, Duration::from_secs(5));
        let rows: Vec<Problem> = golds
            .iter()
            .enumerate()
            .map(|(row, gold)| Problem::with_answer(*gold).named("d", row))
            .collect();
        Trial::of(&recipe.format, &rows.iter().collect::<Vec<_>>(), &pool)
    }

    #[test]
    fn gold_answers_are_right_and_others_wrong_in_every_format() {
        for format in [
            "",
            "[format]\nanswer = \"boxed\"",
            "[format]\nthinking = \"before-answer\"\nanswer = \"gsm8k\"",
        ] {
            let trial = trial(format, &["72", "5", "10"]);
            assert_eq!((trial.right, trial.wrong), ((3, 3), (3, 3)), "{format}: {trial:?}");
        }
        assert_eq!(AnswerForm::default(), AnswerForm::Plain, "the first format above");
    }

    #[test]
    fn gold_that_its_verifier_refuses_is_told() {
        // The pattern finds numbers, and the gold answers are words.
        let trial =
            trial("[task]\nverifier = { type = \"regex\", pattern = \"([0-9]+)\" }", &["two", "3"]);
        assert_eq!(trial.right, (1, 2));
        assert_eq!(trial.surprises, ["d/0: the gold answer `two` is judged wrong"]);
    }
}

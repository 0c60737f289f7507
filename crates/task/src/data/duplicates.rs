//! Prompts that are in training and measured at once.
//!
//! Two prompts are the same when their words, numbers and signs are, whatever the case, the blanks
//! and the punctuation at the end. Measuring on what was trained on makes every forecast too good, so
//! the copies leave the training set.

use std::collections::HashSet;

use crate::problem::Problem;

/// Lower case, single blanks, none beside a sign, no punctuation at the end.
fn normal(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut blank = false;
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_whitespace() {
            blank = true;
            continue;
        }
        // A blank between two words or numbers keeps them apart; beside a sign it says nothing.
        if blank && c.is_alphanumeric() && normal.ends_with(char::is_alphanumeric) {
            normal.push(' ');
        }
        blank = false;
        normal.push(c);
    }
    normal.trim_end_matches(['.', '?', '!', ':']).to_owned()
}

/// What two problems that are the same have in common.
pub(crate) fn essence(problem: &Problem) -> (String, &str) {
    (normal(&problem.text()), &problem.hidden)
}

/// The training problems that are not measured, in order.
pub(crate) fn without_measured(training: Vec<Problem>, measured: &[&Problem]) -> Vec<Problem> {
    let known: HashSet<(String, &str)> = measured.iter().map(|problem| essence(problem)).collect();
    training.into_iter().filter(|problem| !known.contains(&essence(problem))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_blanks_and_closing_punctuation_make_no_other_prompt() {
        let training = ["What is 1 + 1?", "What is 1 - 1?", "What is 11?"];
        let training = training.map(|text| Problem::plain(text, "")).to_vec();
        let measured = [Problem::plain("what is  1+1", ""), Problem::plain("What is 1 1?", "")];
        let kept = without_measured(training, &measured.iter().collect::<Vec<_>>());
        let kept: Vec<String> = kept.iter().map(Problem::text).collect();
        assert_eq!(kept, ["What is 1 - 1?", "What is 11?"]);
    }

    #[test]
    fn what_only_the_environment_knows_makes_another_problem() {
        let seeded =
            |seed: &str| Problem { hidden: seed.to_owned(), ..Problem::plain("Play.", "") };
        let kept = without_measured(vec![seeded("1"), seeded("2")], &[&seeded("2")]);
        assert_eq!(kept, [seeded("1")]);
    }
}

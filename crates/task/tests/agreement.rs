//! Agreement of the native grader with the verdicts of Math-Verify's own tests, and with the
//! training answers of GSM8K in ten spellings. Needs the shared data folder; says so when it is
//! not there.

use std::fs;
use std::path::PathBuf;

use scalerl_task::verify::math::{MathOptions, MathVerifier};
use scalerl_task::{Outcome, verify::math::MatchType};

fn shared(path: &str) -> Option<String> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(path);
    let text = fs::read_to_string(&full).ok();
    if text.is_none() {
        println!("SKIPPED: {} is not here", full.display());
    }
    text
}

#[derive(serde::Deserialize)]
struct Row {
    gold: String,
    pred: String,
    expected: u8,
    kwargs: Kwargs,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Kwargs {
    match_types: Vec<MatchType>,
    #[serde(default = "six")]
    precision: u32,
    #[serde(default = "yes")]
    strict: bool,
    #[serde(default)]
    allow_set_relation_comp: bool,
}

fn six() -> u32 {
    6
}

fn yes() -> bool {
    true
}

#[test]
fn the_native_grader_agrees_with_math_verify_on_its_tests() {
    let Some(text) = shared("grading/math_verify_tests_half.jsonl") else { return };
    let (mut agreed, mut total, mut wrongly_equal) = (0, 0, 0);
    for (number, line) in text.lines().enumerate() {
        let row: Row = serde_json::from_str(line).unwrap();
        let options = MathOptions {
            match_types: row.kwargs.match_types,
            precision: row.kwargs.precision,
            strict: row.kwargs.strict,
            allow_set_relation_comp: row.kwargs.allow_set_relation_comp,
            ..MathOptions::default()
        };
        let outcome = MathVerifier::new(options).compare(&row.gold, &row.pred);
        let wanted = if row.expected == 1 { Outcome::Correct } else { Outcome::Incorrect };
        total += 1;
        agreed += usize::from(outcome == wanted);
        wrongly_equal += usize::from(row.expected == 0 && outcome == Outcome::Correct);
        if outcome != wanted {
            println!(
                "row {number}: {outcome:?}, wanted {wanted:?}\n  gold {}\n  pred {}",
                short(&row.gold),
                short(&row.pred)
            );
        }
    }
    println!("{agreed} of {total} agree, {wrongly_equal} wrongly equal");
    assert_eq!(wrongly_equal, 0);
    assert!(agreed * 100 >= total * 95, "{agreed} of {total}");
}

fn short(text: &str) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(300)).collect()
}

//! Agreement of the native grader with the verdicts of Math-Verify's own tests, and with the
//! training answers of GSM8K in ten spellings. Needs the shared data folder; says so when it is
//! not there.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, outside of any test"
)]

use std::fs;
use std::path::Path;

use scalerl_grader::{Grader, MatchType, Options, Verdict};

fn shared(path: &str) -> Option<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = |folder: &Path| fs::read_to_string(folder.join("shared/data").join(path)).ok();
    let text = here.ancestors().find_map(beside);
    if text.is_none() {
        println!("SKIPPED: shared/data/{path} is in no folder above {}", here.display());
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
    match_types: Vec<String>,
    #[serde(default = "six")]
    precision: u32,
    #[serde(default = "yes")]
    strict: bool,
    #[serde(default)]
    allow_set_relation_comp: bool,
}

fn match_type(name: &str) -> MatchType {
    match name {
        "latex" => MatchType::Latex,
        "expr" => MatchType::Expr,
        "string" => MatchType::String,
        other => panic!("unknown match type {other}"),
    }
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
        let mut options = Options::default();
        options.match_types = row.kwargs.match_types.iter().map(|name| match_type(name)).collect();
        options.precision = row.kwargs.precision;
        options.strict = row.kwargs.strict;
        options.allow_set_relation_comp = row.kwargs.allow_set_relation_comp;
        let outcome = Grader::try_new(options).unwrap().grade(&row.gold, &row.pred);
        let wanted = if row.expected == 1 { Verdict::Equal } else { Verdict::Different };
        total += 1;
        agreed += usize::from(outcome == wanted);
        wrongly_equal += usize::from(row.expected == 0 && outcome == Verdict::Equal);
        if outcome != wanted {
            println!(
                "row {number}: {outcome:?}, wanted {wanted:?}\n  gold {}\n  pred {}",
                short(&row.gold),
                short(&row.pred)
            );
        }
    }
    println!("{agreed} of {total} agree, {wrongly_equal} wrongly equal");
    assert_eq!((agreed, wrongly_equal), (total, 0), "of {total}");
}

fn short(text: &str) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(300)).collect()
}

/// Ten ways in which models write a number.
fn spellings(answer: &str) -> [String; 10] {
    let plain = answer.replace(',', "");
    let digits = plain.trim_start_matches('-');
    let sign = if plain.starts_with('-') { "-" } else { "" };
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let grouped = group_thousands(whole);
    let with_fraction = |whole: &str| match fraction {
        Some(fraction) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{whole}"),
    };
    let decimal = if fraction.is_some() { format!("{plain}0") } else { format!("{plain}.00") };
    [
        format!("#### {answer}"),
        format!("Step 1: 3 + 4 = 7.\nSo the answer is \\boxed{{{plain}}}."),
        format!("$\\boxed{{{}}}$", with_fraction(&grouped.replace(',', "{,}"))),
        format!("The final answer is ${}$. I hope it is correct.", with_fraction(&grouped)),
        with_fraction(&grouped),
        decimal,
        format!("Of the 12 baskets, \\({plain}\\) are full."),
        format!("<think>Maybe 999999.</think>Answer: {plain}"),
        format!("**Final Answer:** The final answer is {}", with_fraction(&grouped)),
        format!("We get \\[ x = \\frac{{{}}}{{2}} \\]", doubled(&plain)),
    ]
}

fn group_thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Twice a decimal numeral, exactly.
fn doubled(plain: &str) -> String {
    let places = plain.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let integer: i64 = plain.replace('.', "").parse().unwrap();
    let text = format!("{:0width$}", (2 * integer).abs(), width = places + 1);
    let (whole, fraction) = text.split_at(text.len() - places);
    let sign = if integer < 0 { "-" } else { "" };
    if places == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[test]
fn every_gsm8k_answer_equals_itself_in_ten_spellings() {
    let Some(text) = shared("math/gsm8k_train.jsonl") else { return };
    let grader = Grader::default();
    let (mut rows, mut failures) = (0, Vec::new());
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let solution = row["answer"].as_str().unwrap();
        let answer = solution.rsplit("####").next().unwrap().trim();
        rows += 1;
        assert_eq!(grader.grade(answer, solution), Verdict::Equal, "{solution}");
        for spelling in spellings(answer) {
            let outcome = grader.grade(answer, &spelling);
            if outcome != Verdict::Equal {
                failures.push(format!("{answer}: {spelling:?} is {outcome:?}"));
            }
        }
        let other = format!("\\boxed{{{}1}}", answer.replace(',', ""));
        assert_eq!(grader.grade(answer, &other), Verdict::Different);
    }
    println!("{rows} answers in ten spellings, {} not equal", failures.len());
    assert!(rows == 7_473 && failures.is_empty(), "{:#?}", &failures[..failures.len().min(20)]);
}

#[test]
fn every_math500_answer_equals_itself_and_differs_from_its_neighbour() {
    let Some(text) = shared("math/math500.jsonl") else { return };
    let grader = Grader::default();
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = |row: &serde_json::Value| row["answer"].as_str().unwrap().to_owned();
    let (mut unequal, mut undecided, mut same) = (Vec::new(), Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let gold = answer(row);
        if grader.grade(&gold, row["solution"].as_str().unwrap()) != Verdict::Equal {
            unequal.push(gold.clone());
        }
        let other = answer(&rows[(index + 1) % rows.len()]);
        match grader.grade(&gold, &format!("So it is $\\boxed{{{other}}}$.")) {
            Verdict::Equal => same.push(format!("{gold} | {other}")),
            Verdict::Different => {}
            _ => undecided.push(format!("{gold} | {other}")),
        }
    }
    println!(
        "not equal to themselves: {unequal:#?}\nneighbours undecided: {undecided:#?}\nneighbours equal: {same:#?}"
    );
    assert!(unequal.is_empty());
    assert!(undecided.len() <= 25, "{}", undecided.len());
}

//! Hostile answers return within their deadline, whatever they are.

use std::time::{Duration, Instant};

use scalerl_grader::{Grader, Verdict};

/// Twice the deadline of a comparison, for slow machines and unoptimised builds.
const PATIENCE: Duration = Duration::from_secs(4);

fn compare(gold: &str, pred: &str) -> Verdict {
    let grader = Grader::default();
    let start = Instant::now();
    let outcome = grader.grade(gold, pred);
    let took = start.elapsed();
    let shown: String = pred.chars().take(40).collect();
    assert!(took < PATIENCE, "{shown}… took {took:?}");
    outcome
}

#[test]
fn deep_nesting_neither_overflows_nor_hangs() {
    for (open, close) in [
        ("(", ")"),
        ("{", "}"),
        ("\\frac{1}{", "}"),
        ("\\sqrt{", "}"),
        ("[", "]"),
        ("\\left(", "\\right)"),
        ("|", "|"),
        ("\\{", "\\}"),
        ("\\boxed{", "}"),
        ("\\sin(", ")"),
        ("x^{", "}"),
        ("f(", ")"),
        ("\\lfloor ", "\\rfloor "),
        ("\\text{", "}"),
    ] {
        for depth in [10, 70, 1_000, 50_000] {
            let inner = format!("{}5{}", open.repeat(depth), close.repeat(depth));
            compare("7", &format!("$\\boxed{{{inner}}}$"));
            compare(&inner, &inner);
        }
    }
}

#[test]
fn a_million_characters_are_read_in_time() {
    let million = 1_000_000;
    for piece in [
        "a",
        "1",
        "9,",
        "$",
        "$x$ ",
        "\\[",
        "\\(",
        "answer ",
        "answer: ",
        "\\boxed{",
        "}",
        "{",
        "-",
        "+1",
        "final answer is ",
        "1/",
        "^9",
        "= ",
        "\\frac{1}{2}",
        "!",
        "%",
        "(1,2),",
        "\\text{a}",
        "and ",
        "####",
        " [x] ",
        "x_1",
        "√",
        "𝟙",
        "\\\\",
        "=1",
        "****",
        "9 999",
        "\\pm 1",
    ] {
        let text = piece.repeat(million / piece.len());
        assert_ne!(compare("7", &text), Verdict::Equal, "{piece}");
        compare(&text, &text);
        assert_eq!(compare("7", &format!("{text}\n#### 7")), Verdict::Equal, "{piece}");
    }
}

#[test]
fn numbers_that_do_not_fit_anywhere_are_not_computed() {
    for huge in [
        "9^{9^9}",
        "9^{9^{9^9}}",
        "2^{10^{18}}",
        "(10^{9})!",
        "1000!!!",
        "\\binom{10^9}{10^8}",
        "(1/3)^{99999999}",
        "((((10^{99})^{99})^{99})^{99})^{99}",
        "0^{-1}",
        "1/0",
        "0^0",
        "\\log_1 5",
        "\\ln 0",
        "\\sqrt[0]{5}",
        "\\sqrt{-1}",
        "\\tan(\\pi/2)",
        "1e999999999",
        "\\lfloor 10^{400} \\rfloor",
        "x^{1000000000000}",
        "\\gcd(0,0)",
        "(-8)^{1/3}",
    ] {
        let outcome = compare("7", &format!("$\\boxed{{{huge}}}$"));
        assert_ne!(outcome, Verdict::Equal, "{huge}");
        compare(&format!("${huge}$"), &format!("$1 + {huge}$"));
    }
}

#[test]
fn a_long_sum_or_product_is_bounded_by_its_budget() {
    let sum = (1..4_000).map(|i| format!("+\\sqrt{{{i}}}")).collect::<Vec<_>>().concat();
    compare(&format!("$0{sum}$"), &format!("$1{sum}$"));
    let product = (1..3_000).map(|i| format!("(x+{i})")).collect::<Vec<_>>().concat();
    compare(&format!("${product}$"), &format!("${product}x$"));
    let set = (1..3_000).map(|i| format!("{i},")).collect::<Vec<_>>().concat();
    compare(&format!("$\\{{{set}0\\}}$"), &format!("$\\{{0,{set}0.5\\}}$"));
    let matrix = "1&".repeat(60) + "1\\\\";
    let matrix = format!("\\begin{{pmatrix}}{}\\end{{pmatrix}}", matrix.repeat(60));
    compare(&format!("${matrix}$"), &format!("${}$", matrix.repeat(3)));
}

#[test]
fn garbage_never_panics() {
    for text in [
        "",
        " ",
        "\\",
        "$",
        "$$",
        "$$$",
        "\\boxed",
        "\\boxed{",
        "\\boxed{}",
        "\\frac",
        "\\frac{",
        "\\frac1",
        "\\sqrt",
        "\\sqrt[",
        "x_",
        "x^",
        "x_{",
        "(",
        "[1,",
        "\\{",
        "\\begin{pmatrix}",
        "\\begin{",
        "\\text{",
        "\u{0}",
        "\u{202e}7",
        "７",
        "½",
        "7\u{301}",
        "🦀",
        "\\left",
        "\\right)",
        "1,,2",
        ";;",
        "=",
        "<",
        "!=",
        "a=b=",
        "|",
        "||",
        "|x",
        "\\%",
        "%",
        "1%%%%",
        "°",
        "--",
        "±",
        "\\pm",
        ":",
        "1:",
        "\\overline{",
        "0.\\overline{x}",
        "1_{2",
        "\\mathbb",
        "\\mathbb{",
        "f(",
        "f^{-1}",
        "\\log_",
        "####",
    ] {
        for wrapped in [
            text.to_owned(),
            format!("${text}$"),
            format!("\\boxed{{{text}}}"),
            format!("answer: {text}"),
        ] {
            compare("7", &wrapped);
            compare(&wrapped, "7");
            compare(&wrapped, &wrapped);
        }
    }
}

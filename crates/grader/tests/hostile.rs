//! Hostile answers return within their deadline, whatever they are.

use std::time::{Duration, Instant};

use scalerl_grader::{Grader, Options, Verdict};

/// Far beyond the deadline of a comparison on any machine: only a hang takes so long.
const HANG: Duration = Duration::from_secs(30);

fn grader(evaluated: bool) -> Grader {
    let mut options = Options::default();
    options.evaluated = evaluated;
    Grader::try_new(options).expect("these options can be meant")
}

fn grade(evaluated: bool, gold: &str, pred: &str) -> Verdict {
    let start = Instant::now();
    let verdict = grader(evaluated).grade_answer_to(gold, gold, pred);
    let took = start.elapsed();
    let shown: String = pred.chars().take(60).collect();
    assert!(took < HANG, "{shown}… took {took:?}");
    verdict
}

/// The verdict without evaluated answers asked for; asking for them never makes an answer right.
fn compare(gold: &str, pred: &str) -> Verdict {
    let free = grade(false, gold, pred);
    let asked = grade(true, gold, pred);
    let shown: String = pred.chars().take(60).collect();
    assert!((free, asked) != (Verdict::Different, Verdict::Equal), "{shown}");
    free
}

/// What answers are made of, and what pulls them apart.
const PIECES: &[&str] = &[
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
    "1 or ",
    "2 to ",
    "1 2 ",
    "1e9",
    "9th ",
    "cm ",
    "5 cm ",
    " million",
    "5\\text{ m}/",
    "\\text{or 3}",
    "\\phantom{1}",
    "\\color{red}",
    "\\ldots",
    "...",
    ", ...",
    "x<1\\lor ",
    "x<1,",
    "x>1\\land ",
    "[1,2]\\cup",
    "\\{1\\}\\setminus",
    "1:",
    "1_2",
    "|x|",
    "x'",
    "'",
    "5 and a half ",
    "0.6 or 60% ",
    "2^",
    "2^{",
    "\\sqrt",
    "\\sqrt{",
    "(1+",
    "x!=",
    "\\approx",
    "\\begin{pmatrix}1",
    "&",
    "３",
    "\u{200b}",
    "\u{301}",
    "£",
    "\\$5",
    "1\\%",
    "°",
    "e",
    "\\log_2",
    "\\binom",
    "1 1/2 ",
    "1\\frac12",
    "p.m.",
    "per ",
    "/h",
    "^2",
    "²",
];

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
        ("(1,x=1\\cup 1:1+2\\cdot3^", ")"),
        ("(1 or x<", ")"),
    ] {
        for depth in [10, 60, 70, 1_000, 50_000] {
            let inner = format!("{}5{}", open.repeat(depth), close.repeat(depth));
            compare("7", &format!("$\\boxed{{{inner}}}$"));
            compare(&inner, &inner);
        }
    }
}

/// Half of what a thread has by default.
const STACK: usize = 1 << 20;

/// A chain of endings makes a tree as deep as brackets do, and each pair of brackets may have one.
#[test]
fn chains_at_every_level_do_not_overflow_the_stack() {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(grade_chains).unwrap();
    thread.join().unwrap();
}

fn grade_chains() {
    for link in ["!", "%", "^2", "^\\circ", "\\cup 1", "\\pm 1", "**2", "\\text{ m}"] {
        for length in [1, 8, 60, 9_000] {
            let chain = link.repeat(length);
            compare("7", &format!("\\boxed{{5{chain}}}"));
            let mut nested = "5".to_owned();
            for level in 0..60 {
                nested = format!("({nested}){}", link.repeat(length.min(level + 1)));
            }
            compare("7", &format!("\\boxed{{{nested}}}"));
            compare(&nested, &format!("\\boxed{{{nested}+1}}"));
        }
    }
}

#[test]
fn a_million_characters_are_read_in_time() {
    let million = 1_000_000;
    for piece in PIECES {
        let text = piece.repeat(million / piece.len());
        assert_ne!(compare("7", &text), Verdict::Equal, "{piece}");
        compare(&text, &text);
        assert_eq!(compare("7", &format!("{text}\n#### 7")), Verdict::Equal, "{piece}");
    }
}

/// Just below the length at which an answer is not read at all.
#[test]
fn the_longest_answers_are_judged_within_their_budget() {
    for piece in PIECES {
        let text = piece.repeat(19_000 / piece.len());
        for gold in ["7", "[0,1]\\cup[2,3]", "x<1\\text{ or }x>2", "\\text{yes}"] {
            compare(gold, &format!("\\boxed{{{text}}}"));
            compare(gold, &format!("\\boxed{{{text}1}}"));
        }
        compare(&format!("${text}$"), &format!("\\boxed{{{text}1}}"));
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
    let powers = format!("5\\text{{ m{}}}", " squared".repeat(99));
    let words = format!("5\\text{{{}}}", " million".repeat(99));
    for text in [
        powers.as_str(),
        words.as_str(),
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

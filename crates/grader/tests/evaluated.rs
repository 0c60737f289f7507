//! Laws of `evaluated`, for any numbers: what is a number, what is arithmetic, what is a guess.
//!
//! Arithmetic is drawn as a tree, worked out here by plain integers, and written in LaTeX; the
//! grader sees only the writing.

use proptest::prelude::*;
use scalerl_grader::{Grader, Options, Verdict};

fn grader(evaluated: bool) -> Grader {
    let mut options = Options::default();
    options.evaluated = evaluated;
    Grader::try_new(options).expect("these options can be meant")
}

fn free(gold: &str, pred: &str) -> Verdict {
    grader(false).grade(gold, pred)
}

fn asked(gold: &str, pred: &str) -> Verdict {
    grader(true).grade(gold, pred)
}

/// Arithmetic with an integer value.
#[derive(Debug, Clone)]
enum Tree {
    Leaf(i64),
    Sum(Box<Tree>, Box<Tree>),
    Difference(Box<Tree>, Box<Tree>),
    Product(Box<Tree>, Box<Tree>),
    /// The product of both, divided by the second: always an integer.
    Quotient(Box<Tree>, i64),
    Square(Box<Tree>),
    Root(Box<Tree>),
    Absolute(Box<Tree>),
    Negative(Box<Tree>),
}

impl Tree {
    fn value(&self) -> i64 {
        match self {
            Self::Leaf(value) => *value,
            Self::Sum(a, b) => a.value() + b.value(),
            Self::Difference(a, b) => a.value() - b.value(),
            Self::Product(a, b) => a.value() * b.value(),
            Self::Quotient(a, _) => a.value(),
            Self::Square(a) => a.value().pow(2),
            Self::Root(a) | Self::Absolute(a) => a.value().abs(),
            Self::Negative(a) => -a.value(),
        }
    }

    fn latex(&self) -> String {
        match self {
            Self::Leaf(value) if *value < 0 => format!("({value})"),
            Self::Leaf(value) => value.to_string(),
            Self::Sum(a, b) => format!("({}+{})", a.latex(), b.latex()),
            Self::Difference(a, b) => format!("({}-{})", a.latex(), b.latex()),
            Self::Product(a, b) => format!("{}\\cdot {}", a.latex(), b.latex()),
            Self::Quotient(a, b) => format!("\\frac{{{}}}{{{b}}}", a.value() * b),
            Self::Square(a) => format!("\\left({}\\right)^{{2}}", a.latex()),
            Self::Root(a) => format!("\\sqrt{{{}}}", a.value().pow(2)),
            Self::Absolute(a) => format!("|{}|", a.latex()),
            Self::Negative(a) => format!("(-({}))", a.latex()),
        }
    }

    /// Whether something is left to carry out. The minus of a positive number is its sign, and a
    /// power of ten is a way to write it.
    fn is_arithmetic(&self) -> bool {
        match self {
            Self::Leaf(_) => false,
            Self::Negative(a) => a.is_arithmetic() || a.value() < 0,
            Self::Square(a) => !matches!(**a, Self::Leaf(10)),
            Self::Product(a, b) => match (&**a, &**b) {
                (Self::Leaf(_), Self::Square(b)) => !matches!(**b, Self::Leaf(10)),
                _ => true,
            },
            _ => true,
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = (-99_i64..100).prop_map(Tree::Leaf);
    leaf.prop_recursive(3, 12, 2, |inner| {
        let pair = (inner.clone(), inner.clone()).prop_map(|(a, b)| (Box::new(a), Box::new(b)));
        let single = inner.prop_map(Box::new);
        prop_oneof![
            pair.clone().prop_map(|(a, b)| Tree::Sum(a, b)),
            pair.clone().prop_map(|(a, b)| Tree::Difference(a, b)),
            pair.prop_map(|(a, b)| Tree::Product(a, b)),
            (single.clone(), 1_i64..50).prop_map(|(a, b)| Tree::Quotient(a, b)),
            single.clone().prop_map(Tree::Square),
            single.clone().prop_map(Tree::Root),
            single.clone().prop_map(Tree::Absolute),
            single.prop_map(Tree::Negative),
        ]
    })
    .prop_filter("too large for a machine word", |tree| tree.latex().len() < 200 && bounded(tree))
}

/// Whether no value on the way overflows when it is multiplied or squared once more.
fn bounded(tree: &Tree) -> bool {
    let children: Vec<&Tree> = match tree {
        Tree::Leaf(_) => Vec::new(),
        Tree::Sum(a, b) | Tree::Difference(a, b) | Tree::Product(a, b) => vec![a, b],
        Tree::Quotient(a, _)
        | Tree::Square(a)
        | Tree::Root(a)
        | Tree::Absolute(a)
        | Tree::Negative(a) => vec![a],
    };
    children.into_iter().all(bounded) && tree.value().abs() < 30_000
}

/// Ways to write a decimal number, the value being `digits / 10^places`.
fn spellings(digits: i64, places: u32) -> Vec<String> {
    let scale = 10_i64.pow(places);
    let sign = if digits < 0 { "-" } else { "" };
    let (whole, part) = (digits.abs() / scale, digits.abs() % scale);
    let plain = if places == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{part:0width$}", width = places as usize)
    };
    let mut all = vec![
        plain.clone(),
        format!("\\boxed{{{plain}}}"),
        format!("The answer is {plain}."),
        format!("#### {plain}"),
        format!("x = {plain}"),
        format!("{sign}\\text{{{}}}", plain.trim_start_matches('-')),
        format!("{digits}e-{places}"),
        format!("{digits}\\times10^{{-{places}}}"),
        format!("{}\\%", spelled_percent(digits, places)),
        format!("{plain}\\text{{ cm}}"),
        format!("\\${plain}"),
        format!("3 + 4 = 7 = {plain}"),
    ];
    if part != 0 {
        all.push(format!("{sign}\\frac{{{}}}{{{scale}}}", digits.abs()));
        all.push(format!("{}/{}", 3 * digits, 3 * scale));
    }
    if part != 0 && whole != 0 {
        all.push(format!("{sign}{whole}\\frac{{{part}}}{{{scale}}}"));
    }
    // `2 100/1000` would be 2100 thousandths.
    if part != 0 && whole != 0 && part < 100 {
        all.push(format!("{sign}{whole} {part}/{scale}"));
    }
    all
}

/// A hundred times as much.
fn spelled_percent(digits: i64, places: u32) -> String {
    if places >= 2 {
        let scale = 10_i64.pow(places - 2);
        let sign = if digits < 0 { "-" } else { "" };
        let part = digits.abs() % scale;
        if scale == 1 {
            return digits.to_string();
        }
        return format!(
            "{sign}{}.{part:0width$}",
            digits.abs() / scale,
            width = places as usize - 2
        );
    }
    (digits * 10_i64.pow(2 - places)).to_string()
}

proptest! {
    #[test]
    fn arithmetic_is_equal_to_its_value_and_no_answer_where_a_number_is_asked_for(tree in tree()) {
        let (gold, pred) = (tree.value().to_string(), format!("$\\boxed{{{}}}$", tree.latex()));
        prop_assert_eq!(free(&gold, &pred), Verdict::Equal);
        prop_assert_eq!(free(&(tree.value() + 1).to_string(), &pred), Verdict::Different);
        let wanted = if tree.is_arithmetic() { Verdict::Different } else { Verdict::Equal };
        prop_assert_eq!(asked(&gold, &pred), wanted);
    }

    #[test]
    fn a_number_is_a_number_however_it_is_written(digits in -99_999_i64..100_000, places in 0_u32..5) {
        let right = spellings(digits, places);
        let gold = &right[0];
        for pred in &right {
            prop_assert_eq!(asked(gold, pred), Verdict::Equal, "{} | {}", gold, pred);
        }
        for pred in spellings(digits + 1, places) {
            prop_assert_eq!(asked(gold, &pred), Verdict::Different, "{} | {}", gold, pred);
        }
    }

    #[test]
    fn a_list_that_holds_the_answer_is_not_the_answer(
        right in -500_i64..500, others in prop::collection::vec(-500_i64..500, 1..6), at in 0_usize..6,
    ) {
        prop_assume!(others.iter().any(|other| *other != right));
        let mut numbers: Vec<String> = others.iter().map(i64::to_string).collect();
        numbers.insert(at.min(numbers.len()), right.to_string());
        let gold = right.to_string();
        let mut preds = vec![
            format!("\\boxed{{{}}}", numbers.join(", ")),
            format!("\\boxed{{{}}}", numbers.join(" \\text{ or } ")),
            format!("\\boxed{{\\{{{}\\}}}}", numbers.join(", ")),
            format!("\\boxed{{{}}}", numbers.join("}\\boxed{")),
            format!("${}$", numbers.join("$ or $")),
            format!("The answer is {}.", numbers.join(" or ")),
            format!("Answer: {}", numbers.join(", ")),
            format!("#### {}", numbers.join(" or ")),
            format!("I think it is {}", numbers.join(" or ")),
            format!("\\boxed{{{}}}", numbers.join("; ")),
        ];
        // A minus after a blank would be a difference.
        if !numbers.concat().contains('-') {
            preds.push(format!("\\boxed{{{}}}", numbers.join(" \\quad ")));
        }
        for pred in preds {
            prop_assert_eq!(free(&gold, &pred), Verdict::Different, "{}", &pred);
            prop_assert_eq!(asked(&gold, &pred), Verdict::Different, "{}", &pred);
        }
    }

    /// A policy must not be able to dodge a verdict by writing what cannot be read.
    #[test]
    fn nothing_is_undecided_where_the_answer_is_a_number(
        gold in -1_000_i64..1_000,
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "\\frac", "{", "}", "(", ")", "[", "]", "\\{", "\\}", "1", "7", "x", "^", "_", "+", "-", "=",
                "<", ",", ";", "|", "\\sqrt", "\\sin", "\\pm", "\\cup", "\\text{a}", "\\boxed{", "$", "%", "!",
                "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "\\infty", ":", "f", "\\in", ".", "'",
                "\\sum", "\\int", "\\unknown", "\\to", "\\land", " or ", "10:00", "1e9999", "\\ldots", "π", "é", "\n",
            ]),
            0..30,
        ),
    ) {
        let text = pieces.concat();
        for pred in [text.clone(), format!("\\boxed{{{text}}}"), format!("${text}$"), format!("Answer: {text}")] {
            let verdict = asked(&gold.to_string(), &pred);
            prop_assert!(!matches!(verdict, Verdict::Undecided(_)), "{}", &pred);
            prop_assert!(free(&gold.to_string(), &pred) != Verdict::Different || verdict == Verdict::Different);
        }
    }
}

//! Words the reader knows: function names, Greek letters, Unicode symbols.
//!
//! Tables only. A word that is not here is a product of letters or a text, never an error. Units are
//! in `unit.rs`.

use super::token::Token;
use crate::expr::Function;

/// The command a bare word stands for: `sqrt(2)`, `pi`, `infinity`, `and`.
pub(crate) fn word_command(word: &str) -> Option<&'static str> {
    Some(match word {
        "sqrt" => "surd",
        "pi" => "pi",
        "infinity" | "Infinity" | "inf" | "oo" => "infty",
        "sin" => "sin",
        "cos" => "cos",
        "tan" => "tan",
        "cot" => "cot",
        "sec" => "sec",
        "csc" => "csc",
        "arcsin" | "asin" => "arcsin",
        "arccos" | "acos" => "arccos",
        "arctan" | "atan" => "arctan",
        "sinh" => "sinh",
        "cosh" => "cosh",
        "tanh" => "tanh",
        "ln" => "ln",
        "log" => "log",
        "lg" => "lg",
        "exp" => "exp",
        "gcd" => "gcd",
        "lcm" => "lcm",
        "max" => "max",
        "min" => "min",
        "det" => "det",
        "Re" => "Re",
        "Im" => "Im",
        "and" | "And" => "and",
        "or" | "Or" => "or",
        "percent" | "percentage" | "pct" | "Percent" => "percent",
        "degrees" | "degree" => "degree",
        _ => return None,
    })
}

pub(crate) fn function(command: &str) -> Option<Function> {
    Some(match command {
        "sin" => Function::Sin,
        "cos" => Function::Cos,
        "tan" | "tg" => Function::Tan,
        "cot" | "ctg" => Function::Cot,
        "sec" => Function::Sec,
        "csc" => Function::Csc,
        "arcsin" => Function::Arcsin,
        "arccos" => Function::Arccos,
        "arctan" | "arctg" => Function::Arctan,
        "sinh" => Function::Sinh,
        "cosh" => Function::Cosh,
        "tanh" => Function::Tanh,
        "ln" => Function::Ln,
        "log" | "lg" => Function::Log,
        "exp" => Function::Exp,
        "gcd" => Function::Gcd,
        "lcm" => Function::Lcm,
        "max" => Function::Max,
        "min" => Function::Min,
        "det" => Function::Determinant,
        "Re" => Function::Real,
        "Im" => Function::ImaginaryPart,
        _ => return None,
    })
}

const GREEK: &[&str] = &[
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "varepsilon",
    "zeta",
    "eta",
    "theta",
    "vartheta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "rho",
    "sigma",
    "tau",
    "upsilon",
    "phi",
    "varphi",
    "chi",
    "psi",
    "omega",
    "Gamma",
    "Delta",
    "Theta",
    "Lambda",
    "Xi",
    "Sigma",
    "Phi",
    "Psi",
    "Omega",
    "ell",
    "hbar",
    "triangle",
    "angle",
    "square",
];

/// The symbol a Greek-letter command names.
pub(crate) fn greek(command: &str) -> Option<&'static str> {
    GREEK.iter().find(|name| **name == command).copied()
}

/// Unicode mathematics as the tokens of its LaTeX form.
pub(crate) fn unicode_command(c: char) -> Option<Vec<Token>> {
    let command = |name: &str| Some(vec![Token::Command(name.to_owned())]);
    let power = |digit: char| Some(vec![Token::Symbol('^'), Token::Number(digit.to_string())]);
    let half = |a: &str, b: &str| {
        Some(vec![
            Token::Command("frac".to_owned()),
            Token::Number(a.to_owned()),
            Token::Number(b.to_owned()),
        ])
    };
    match c {
        '×' | '·' | '⋅' | '∗' | '•' => command("times"),
        '÷' => command("div"),
        '−' | '–' | '—' | '‐' | '‑' => Some(vec![Token::Symbol('-')]),
        '＋' => Some(vec![Token::Symbol('+')]),
        '±' => command("pm"),
        '∓' => command("mp"),
        '≤' | '⩽' => command("le"),
        '≥' | '⩾' => command("ge"),
        '≠' => command("ne"),
        '≈' => command("approx"),
        'π' | 'Π' => command("pi"),
        '∞' => command("infty"),
        '√' => command("surd"),
        '∛' => command("surd3"),
        '∜' => command("surd4"),
        '∧' => command("land"),
        '∨' => command("lor"),
        '…' | '⋯' => Some(vec![Token::Dots]),
        '°' | 'º' => command("degree"),
        '∪' => command("cup"),
        '∩' => command("cap"),
        '∈' => command("in"),
        '∅' => command("emptyset"),
        'ℝ' => Some(vec![Token::Command("R".to_owned())]),
        '²' => power('2'),
        '³' => power('3'),
        '⁴' => power('4'),
        '½' => half("1", "2"),
        '⅓' => half("1", "3"),
        '⅔' => half("2", "3"),
        '¼' => half("1", "4"),
        '¾' => half("3", "4"),
        '′' | '’' | '‘' => Some(vec![Token::Symbol('\'')]),
        '，' => Some(vec![Token::Symbol(',')]),
        '；' => Some(vec![Token::Symbol(';')]),
        '：' => Some(vec![Token::Symbol(':')]),
        '（' => Some(vec![Token::Symbol('(')]),
        '）' => Some(vec![Token::Symbol(')')]),
        '％' => Some(vec![Token::Symbol('%')]),
        'α' => command("alpha"),
        'β' => command("beta"),
        'γ' => command("gamma"),
        'δ' => command("delta"),
        'θ' => command("theta"),
        'λ' => command("lambda"),
        'μ' => command("mu"),
        'φ' => command("phi"),
        'ω' => command("omega"),
        _ => None,
    }
}

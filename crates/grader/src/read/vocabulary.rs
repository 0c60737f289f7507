//! Words the reader knows: function names, Unicode symbols, units.
//!
//! Tables only. A word that is not here is a product of letters or a text, never an error.

use super::token::Token;
use crate::expr::Function;

/// The command a bare word stands for: `sqrt(2)`, `pi`, `infinity`, `and`.
pub(crate) fn word_command(word: &str) -> Option<&'static str> {
    Some(match word {
        "sqrt" => "sqrt",
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
        "and" | "or" | "And" | "Or" => "and",
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
        '√' => command("sqrt"),
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

/// Units that may follow a number. Single letters only after a blank, because `2h` is a product.
const UNITS: &[&str] = &[
    "mm", "cm", "dm", "km", "ft", "inch", "inches", "in", "feet", "foot", "yard", "yards", "yd",
    "mile", "miles", "mi", "meter", "meters", "metre", "metres", "kg", "mg", "gram", "grams", "lb",
    "lbs", "pound", "pounds", "oz", "ton", "tons", "liter", "liters", "litre", "litres", "ml",
    "gal", "gallon", "gallons", "sec", "second", "seconds", "min", "minute", "minutes", "hr",
    "hrs", "hour", "hours", "day", "days", "week", "weeks", "month", "months", "year", "years",
    "mph", "kmh", "kmph", "dollar", "dollars", "cent", "cents", "euro", "euros", "usd", "rupee",
    "rupees", "rs", "unit", "units", "square", "cubic", "sq", "cu", "degree", "degrees", "deg",
    "rad", "radian", "radians", "way", "ways", "point", "points", "people", "student", "students",
    "apple", "apples", "piece", "pieces", "time", "times", "am", "pm", "per", "digit", "digits",
    "number", "numbers", "m", "g", "s", "h", "l", "L", "N", "J", "W", "V", "A", "C", "F", "K",
    "cc", "ohm", "ohms", "acre", "acres", "hectare", "hectares",
];

/// Cuts unit words off the end of an answer: `35 cm` → `35`, `12 square units` → `12`.
///
/// What remains must end like a value; otherwise the words were no units and all stays.
pub(crate) fn without_unit(text: &str) -> &str {
    let whole = text.trim_end();
    let mut rest = whole;
    for _ in 0..3 {
        let Some(shorter) = without_last_unit(rest) else { break };
        rest = shorter;
    }
    if rest.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '}' | ')')) {
        rest
    } else {
        whole
    }
}

fn without_last_unit(text: &str) -> Option<&str> {
    let cut = text.trim_end_matches(|c: char| c == '.' || c.is_whitespace());
    let cut = cut.strip_suffix("^2").or_else(|| cut.strip_suffix("^3")).unwrap_or(cut);
    let cut = cut.strip_suffix(['²', '³']).unwrap_or(cut);
    let word_start = cut
        .char_indices()
        .rev()
        .take_while(|(_, c)| c.is_ascii_alphabetic())
        .last()
        .map_or(cut.len(), |(at, _)| at);
    let (before, word) = cut.split_at(word_start);
    let has_blank = before.ends_with(char::is_whitespace);
    let touches = has_blank || before.ends_with(|c: char| c.is_ascii_digit() || c == '}');
    // `2h` is a product, `2 h` is a time.
    let is_unit = UNITS.iter().any(|unit| unit.eq_ignore_ascii_case(word));
    (is_unit && touches && (word.len() > 1 || has_blank)).then(|| before.trim_end())
}

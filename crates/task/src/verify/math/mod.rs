//! Whether a mathematical answer is right: native, exact where it can be, bounded on any input.
//!
//! ```text
//! completion ─ extract ─▶ candidate ─ token, parse ─▶ tree ─┐
//! gold answer ────────────────────────────────────▶ tree ─┴─ equal ─▶ Correct | Incorrect | Undecided
//! ```
//!
//! Safe by construction: the length of an answer, its nesting, the size of its numbers and the
//! steps of a comparison are bounded; patterns run on a linear engine; a deadline closes what is
//! left. What the grader cannot decide it calls [`Outcome::Undecided`], and a second opinion
//! (`second_opinion.rs`) may then be asked. See `docs/grading.md`.

mod boxed;
mod budget;
mod collection;
mod environment;
mod equal;
mod exact;
mod expr;
mod extract;
mod fingerprint;
mod float;
mod matrix;
mod parse;
mod parse_atom;
mod parse_function;
mod plain;
mod real_set;
mod relation;
mod scalar;
mod token;
mod vocabulary;

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use equal::{Rules, Same};
use expr::Expr;
use extract::{Extracted, Sources, extract, read_latex};

/// Steps a comparison may take; a hard real answer needs a few hundred.
const STEPS: u64 = 2_000_000;
/// Longest gold answer that is taken whole.
const LONGEST_GOLD: usize = 2_000;

/// Where an answer may be found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchType {
    /// LaTeX environments and `\boxed{}`.
    Latex,
    /// Numbers and sums in prose.
    Expr,
    /// The letters A to D of a multiple choice.
    String,
}

/// Options of the mathematical grader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MathOptions {
    /// Where answers are looked for. Empty: everywhere, and a short gold answer is taken whole.
    pub match_types: Vec<MatchType>,
    /// Decimal places that must agree when one side is written as a decimal.
    pub precision: u32,
    /// Whether the names of variables matter: f(x) is not f(y).
    pub strict: bool,
    /// Whether an inequality may answer where the gold answer is an interval.
    pub allow_set_relation_comp: bool,
    /// Only what follows the last occurrence of this mark is searched. Empty: the whole text.
    pub answer_after: String,
    /// Time for one comparison, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for MathOptions {
    fn default() -> Self {
        Self {
            match_types: Vec::new(),
            precision: 6,
            strict: true,
            allow_set_relation_comp: true,
            answer_after: "</think>".to_owned(),
            timeout_ms: 1_000,
        }
    }
}

/// The native grader.
#[derive(Debug, Clone, Default)]
pub struct MathVerifier {
    options: MathOptions,
}

impl MathVerifier {
    /// A grader with these options.
    pub fn new(options: MathOptions) -> Self {
        Self { options }
    }

    /// Whether `pred` gives the answer `gold`.
    pub fn compare(&self, gold: &str, pred: &str) -> Outcome {
        let pred = self.answer_part(pred);
        if self.reads_plain()
            && let (Some(a), Some(b)) = (plain::whole_number(gold), plain::whole_number(pred))
        {
            return self.numbers(&a, &b);
        }
        let gold = self.extract_gold(gold);
        let pred = self.extract_pred(pred);
        self.judge(&gold, &pred)
    }

    fn numbers(&self, a: &plain::Plain, b: &plain::Plain) -> Outcome {
        let read = |plain: &plain::Plain| {
            let value = parse::parse(&plain.text).ok()?;
            Some(if plain.is_percent { Expr::Percent(Box::new(value)) } else { value })
        };
        match (read(a), read(b)) {
            (Some(a), Some(b)) => self.outcome(&a, &b),
            _ => Outcome::undecided("a number is too long to be read"),
        }
    }

    fn reads_plain(&self) -> bool {
        self.options.match_types.is_empty() || self.options.match_types.contains(&MatchType::Expr)
    }

    fn answer_part<'a>(&self, text: &'a str) -> &'a str {
        let mark = &self.options.answer_after;
        if mark.is_empty() {
            return text;
        }
        match text.rfind(mark.as_str()) {
            Some(at) if !text[at + mark.len()..].trim().is_empty() => &text[at + mark.len()..],
            _ => text,
        }
    }

    fn sources(&self) -> Sources {
        let types = &self.options.match_types;
        let has = |wanted: MatchType| types.is_empty() || types.contains(&wanted);
        Sources {
            latex: has(MatchType::Latex),
            plain: has(MatchType::Expr),
            marked: types.is_empty(),
            choice: types.contains(&MatchType::String),
        }
    }

    /// A gold answer without any mark of prose is the answer itself.
    fn extract_gold(&self, gold: &str) -> Extracted {
        if self.options.match_types.is_empty() && is_bare(gold) {
            let text = gold.trim().to_owned();
            return Extracted { value: read_latex(&text), text: Some(text), found: true };
        }
        extract(gold, self.sources())
    }

    fn extract_pred(&self, pred: &str) -> Extracted {
        let is_whole = self.options.match_types.is_empty() && is_bare(pred) && !has_words(pred);
        if is_whole && let Some(value) = read_latex(pred.trim()) {
            return Extracted {
                value: Some(value),
                text: Some(pred.trim().to_owned()),
                found: true,
            };
        }
        let found = extract(pred, self.sources());
        if found.found || !self.options.match_types.is_empty() || pred.len() > LONGEST_GOLD {
            return found;
        }
        // Words alone: `Tuesday`.
        let text = pred.trim().trim_end_matches('.').to_owned();
        let is_empty = text.is_empty();
        Extracted { value: Some(Expr::Text(text.clone())), text: Some(text), found: !is_empty }
    }

    fn judge(&self, gold: &Extracted, pred: &Extracted) -> Outcome {
        if let (Some(a), Some(b)) = (&gold.text, &pred.text)
            && same_text(a, b)
        {
            return Outcome::Correct;
        }
        match (&gold.value, &pred.value) {
            (Some(a), Some(b)) if pred.found => self.outcome(a, b),
            _ if !gold.found => Outcome::undecided("the gold answer has nothing to compare with"),
            _ if !pred.found || pred.text.is_none() => Outcome::Incorrect,
            // Words on both sides that are not the same words.
            (None, None) => words_differ(gold, pred),
            (Some(_), _) => Outcome::undecided("the prediction cannot be read as mathematics"),
            (None, Some(_)) => Outcome::undecided("the gold answer cannot be read as mathematics"),
        }
    }

    fn outcome(&self, gold: &Expr, pred: &Expr) -> Outcome {
        let rules = Rules {
            decimals: self.options.precision,
            strict_names: self.options.strict,
            relation_for_set: self.options.allow_set_relation_comp,
        };
        let time = Duration::from_millis(self.options.timeout_ms);
        match equal::compare(gold, pred, rules, STEPS, time) {
            Same::Yes => Outcome::Correct,
            Same::No => Outcome::Incorrect,
            Same::Unknown => Outcome::undecided("equality could be neither proven nor refuted"),
        }
    }
}

/// The content of the last `\boxed{}` of a text, with those that belong to it.
pub fn last_boxed(text: &str) -> Option<String> {
    boxed::last_cluster(&boxed::boxes(text), text)
}

fn words_differ(gold: &Extracted, pred: &Extracted) -> Outcome {
    let is_prose = |found: &Extracted| {
        found.text.as_deref().is_some_and(|text| !text.contains(['\\', '=', '<', '>', '^']))
    };
    if is_prose(gold) && is_prose(pred) {
        Outcome::Incorrect
    } else {
        Outcome::undecided("neither answer can be read as mathematics")
    }
}

/// Whether a text has no sign of an answer inside a longer text.
fn is_bare(text: &str) -> bool {
    if text.len() > LONGEST_GOLD {
        return false;
    }
    // A price has a dollar sign without being in an environment.
    let text = &text.replace("\\$", "");
    let lower_answer = |text: &str| text.to_ascii_lowercase().contains("answer");
    !["$", "\\boxed", "\\(", "\\[", "####", "\\fbox"].iter().any(|mark| text.contains(mark))
        && !lower_answer(text)
}

/// Names of environments and words in text commands, which are no prose.
static COMMAND_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\\(?:begin|end|text\w*|math\w*|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
        .unwrap_or_else(|error| panic!("a pattern of this file is wrong: {error}"))
});

/// Prose: a run of four letters that is neither a command nor a known word.
fn has_words(text: &str) -> bool {
    COMMAND_WORDS
        .replace_all(text, " ")
        .split(|c: char| !c.is_ascii_alphabetic())
        .any(|word| word.len() >= 4 && vocabulary::word_command(word).is_none())
}

/// The same characters, blanks and layout aside.
fn same_text(a: &str, b: &str) -> bool {
    let plain = |text: &str| {
        let text: String = text
            .replace("\\left", "")
            .replace("\\right", "")
            .replace("\\!", "")
            .replace("\\,", "")
            .chars()
            .filter(|c| !c.is_whitespace() && !matches!(c, '$' | '"'))
            .collect();
        text.trim_end_matches('.').to_owned()
    };
    let (a, b) = (plain(a), plain(b));
    !a.is_empty() && a == b
}

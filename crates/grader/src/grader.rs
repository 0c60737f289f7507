//! The grader: from two texts to a verdict.
//!
//! Not here: where an answer stands in a text (`find.rs`), how it is read (`read.rs`) and when two
//! answers mean the same (`compare.rs`).

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use crate::compare::{self, Rules, Same, Spent};
use crate::expr::Expr;
use crate::find::{
    Extracted, Sources, announced_words, boxed, extract, plain, plain_value, read_latex,
};
use crate::options::{MatchType, Options, OptionsError};
use crate::read::vocabulary;
use crate::verdict::{Reason, Verdict};

/// Steps a comparison may take; a hard real answer needs a few hundred.
const STEPS: u64 = 2_000_000;
/// Longest gold answer that is taken whole.
const LONGEST_GOLD: usize = 2_000;

/// Compares predictions with gold answers. Cheap to make and to clone; holds no state.
#[derive(Debug, Clone, Default)]
pub struct Grader {
    options: Options,
}

impl Grader {
    /// A grader with these options.
    ///
    /// # Errors
    /// Names the first option that cannot be meant.
    pub fn try_new(options: Options) -> Result<Self, OptionsError> {
        options.check()?;
        Ok(Self { options })
    }

    /// The options it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether `pred`, an answer or a whole completion, gives the answer `gold`.
    pub fn grade(&self, gold: &str, pred: &str) -> Verdict {
        self.grade_answer_to("", gold, pred)
    }

    /// The same, knowing what was asked: with [`Options::evaluated`] a formula that stands in the
    /// question is no answer, unless the gold answer stands there too.
    ///
    /// ```
    /// use scalerl_grader::{Grader, Options, Verdict};
    ///
    /// let mut options = Options::default();
    /// options.evaluated = true;
    /// let grader = Grader::try_new(options)?;
    /// let question = "Expand $(x+1)(x-1)$.";
    /// let repeated = "\\boxed{(x+1)(x-1)}";
    /// assert_eq!(grader.grade_answer_to(question, "x^2-1", repeated), Verdict::Different);
    /// assert_eq!(grader.grade_answer_to(question, "x^2-1", "\\boxed{-1+x^2}"), Verdict::Equal);
    /// # Ok::<(), scalerl_grader::OptionsError>(())
    /// ```
    pub fn grade_answer_to(&self, question: &str, gold: &str, pred: &str) -> Verdict {
        let pred = self.answer_part(pred);
        if self.reads_plain()
            && let (Some(a), Some(b)) = (plain::whole_number(gold), plain::whole_number(pred))
        {
            return self.numbers(&a, &b);
        }
        let gold = self.extract_gold(gold);
        let words = self.asks_for_words(&gold).then(|| announced_words(pred)).flatten();
        let pred = words.map_or_else(|| self.extract_pred(pred), Extracted::words);
        let verdict = self.judge(&gold, &pred);
        if verdict == Verdict::Equal && self.options.evaluated && repeats(question, &gold, &pred) {
            return Verdict::Different;
        }
        verdict
    }

    fn numbers(&self, a: &plain::Plain, b: &plain::Plain) -> Verdict {
        match (plain_value(a, ""), plain_value(b, "")) {
            (Some(a), Some(b)) => self.outcome(&a, &b),
            (Some(a), None) => self.unreadable(&a),
            (None, _) => Verdict::Undecided(Reason::UnreadableGold),
        }
    }

    /// A prediction that cannot be read: no number, where a number is asked for.
    fn unreadable(&self, gold: &Expr) -> Verdict {
        if self.options.evaluated && compare::is_number(gold) {
            Verdict::Different
        } else {
            Verdict::Undecided(Reason::UnreadablePrediction)
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
            return Extracted::whole(text, read_latex);
        }
        extract(gold, self.sources())
    }

    fn extract_pred(&self, pred: &str) -> Extracted {
        let is_whole = self.options.match_types.is_empty() && is_bare(pred) && !has_words(pred);
        if is_whole {
            let whole = Extracted::whole(pred.trim().to_owned(), read_latex);
            // The 1 of a formula that nobody can read is not the answer.
            if whole.value.is_some() || pred.contains('\\') {
                return whole;
            }
        }
        let found = extract(pred, self.sources());
        if found.found || !self.options.match_types.is_empty() || pred.len() > LONGEST_GOLD {
            return found;
        }
        // Words alone: `Tuesday`.
        Extracted::words(pred.trim().trim_end_matches('.'))
    }

    fn asks_for_words(&self, gold: &Extracted) -> bool {
        self.options.match_types.is_empty() && gold.value.as_ref().is_some_and(compare::is_words)
    }

    fn judge(&self, gold: &Extracted, pred: &Extracted) -> Verdict {
        if let (Some(a), Some(b)) = (&gold.text, &pred.text)
            && same_text(a, b)
        {
            return Verdict::Equal;
        }
        match (&gold.value, &pred.value) {
            (Some(a), Some(b)) if pred.found => self.outcome(a, b),
            _ if !gold.found => Verdict::Undecided(Reason::NoGold),
            _ if !pred.found || pred.text.is_none() => Verdict::Different,
            // Words on both sides that are not the same words.
            (None, None) => words_differ(gold, pred),
            (Some(gold), _) => self.unreadable(gold),
            (None, Some(_)) => Verdict::Undecided(Reason::UnreadableGold),
        }
    }

    fn outcome(&self, gold: &Expr, pred: &Expr) -> Verdict {
        let rules = Rules {
            decimals: self.options.precision,
            strict: self.options.strict,
            relation_for_set: self.options.allow_set_relation_comp,
            evaluated: self.options.evaluated,
        };
        let time = Duration::from_millis(self.options.timeout_ms);
        match compare::compare(gold, pred, rules, STEPS, time) {
            Ok(Same::Yes) => Verdict::Equal,
            Ok(Same::No) => Verdict::Different,
            // A number would have been compared.
            _ if self.options.evaluated && compare::is_number(gold) => Verdict::Different,
            Ok(Same::Unknown) => Verdict::Undecided(Reason::Unproven),
            Err(Spent) => Verdict::Undecided(Reason::OutOfBudget),
        }
    }
}

/// The content of the last `\boxed{}` of a text, with those that belong to it.
pub fn last_boxed(text: &str) -> Option<String> {
    boxed::last_cluster(&boxed::boxes(text), text)
}

/// Shortest formula that counts as repeated; shorter ones stand in every text.
const SHORTEST_REPEATED: usize = 5;

/// Whether the prediction is a formula of the question that the gold answer is not.
fn repeats(question: &str, gold: &Extracted, pred: &Extracted) -> bool {
    let (Some(value), Some(text)) = (&pred.value, &pred.read_from) else { return false };
    let is_formula = text.len() >= SHORTEST_REPEATED
        && text.contains(['+', '-', '*', '/', '^', '=', '<', '>', '(', '\\'])
        && !matches!(value, Expr::Text(_))
        && value.has_names();
    if question.is_empty() || !is_formula {
        return false;
    }
    let (question, text) = (without_layout(question), without_layout(text));
    let gold = gold.text.as_deref().map(without_layout).unwrap_or_default();
    gold != text && question.contains(&text) && !question.contains(&gold)
}

fn words_differ(gold: &Extracted, pred: &Extracted) -> Verdict {
    let is_prose = |found: &Extracted| {
        found.text.as_deref().is_some_and(|text| !text.contains(['\\', '=', '<', '>', '^']))
    };
    if is_prose(gold) && is_prose(pred) {
        Verdict::Different
    } else {
        Verdict::Undecided(Reason::UnreadableBoth)
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

/// Short words that no answer consists of.
const PROSE: &[&str] = &["it", "is", "the", "so", "we", "are", "get", "has", "was", "of", "to"];

/// Prose: a run of four letters that is neither a command nor a known word, or a word of [`PROSE`].
fn has_words(text: &str) -> bool {
    let is_prose = |word: &str| PROSE.iter().any(|prose| prose.eq_ignore_ascii_case(word));
    COMMAND_WORDS
        .replace_all(text, " ")
        .split(|c: char| !c.is_ascii_alphabetic())
        .any(|word| (word.len() >= 4 && vocabulary::word_command(word).is_none()) || is_prose(word))
}

/// The same characters, blanks and layout aside; a blank between two digits counts.
fn same_text(a: &str, b: &str) -> bool {
    let mut first = characters(a).peekable();
    first.peek().is_some() && first.eq(characters(b))
}

/// The characters of an answer that are seen and mean something.
fn characters(text: &str) -> impl Iterator<Item = char> {
    const LAYOUT: [&str; 3] = ["\\left", "\\right", "\\!"];
    let is_silent = |c: char| c.is_whitespace() || matches!(c, '$' | '"');
    let mut rest = text.trim_end_matches(|c| is_silent(c) || c == '.');
    let (mut last, mut has_blank) = (None, false);
    std::iter::from_fn(move || {
        loop {
            if let Some(shorter) = LAYOUT.iter().find_map(|layout| rest.strip_prefix(layout)) {
                rest = shorter;
            } else if let Some(shorter) = rest.strip_prefix("\\,") {
                (rest, has_blank) = (shorter, true);
            } else {
                let c = rest.chars().next()?;
                if is_silent(c) {
                    has_blank = true;
                } else if std::mem::take(&mut has_blank)
                    && c.is_ascii_digit()
                    && last.is_some_and(|last: char| last.is_ascii_digit())
                {
                    last = Some(' ');
                    return last;
                } else {
                    last = Some(c);
                    rest = &rest[c.len_utf8()..];
                    return last;
                }
                rest = &rest[c.len_utf8()..];
            }
        }
    })
}

fn without_layout(text: &str) -> String {
    characters(text).collect()
}

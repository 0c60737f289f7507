//! Units, currencies and number words after a value: `35 cm`, `3 million dollars`, `6 p.m.`
//!
//! A unit may be left out but not be another one: `5 m` is answered by 5 and not by `5 m^2`. Units
//! are never converted, because a question that asks for minutes is not answered by hours. Words
//! that measure nothing (`apples`, `ways`) are dropped. Number words count: `3 million` is not 3.
//!
//! Not here: the words themselves (`unit/names.rs`), and where they stand (`atom.rs` for `\text{}`,
//! `find/candidate.rs` for prose).

mod names;

use self::names::{ANY, Word, known};

/// What a value is measured in: names in one spelling, each with its power, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit(Vec<(&'static str, i32)>);

impl Unit {
    /// Whether two values with these units cannot be the same value.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let is_any = |unit: &Self| matches!(unit.0.as_slice(), [(ANY, _)]);
        let power = |unit: &Self| unit.0.iter().map(|(_, power)| i64::from(*power)).sum::<i64>();
        if is_any(self) || is_any(other) { power(self) != power(other) } else { self != other }
    }

    /// Both together: `\$5 per hour`; a unit said twice counts once, `\$5 dollars`.
    pub(crate) fn with(mut self, other: Self) -> Self {
        for part in other.0 {
            if !self.0.contains(&part) {
                self.0.push(part);
            }
        }
        self.0.sort_unstable();
        self
    }

    pub(crate) fn degree() -> Self {
        Self(vec![("degree", 1)])
    }

    /// The currency of a sign.
    pub(crate) fn currency(sign: char) -> Option<Self> {
        let name = match sign {
            '$' => "dollar",
            '€' => "euro",
            '£' => "pound",
            '¥' => "yen",
            '₹' => "rupee",
            '¢' => "cent",
            _ => return None,
        };
        Some(Self(vec![(name, 1)]))
    }

    /// The unit that a single letter glued to a number may be: the `m` of `439m`.
    pub(crate) fn of_letter(letter: &str) -> Option<Self> {
        match known(letter).filter(|_| letter.len() == 1) {
            Some(Word::Unit(name)) => Some(Self(vec![(name, 1)])),
            _ => None,
        }
    }
}

/// What words after a value say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measure {
    /// What number words multiply the value by.
    pub(crate) scale: u64,
    pub(crate) unit: Option<Unit>,
}

impl Measure {
    pub(crate) const NONE: Self = Self { scale: 1, unit: None };
}

/// Words, signs and powers: `km/h^2` → `km`, `/`, `h`, `^2`.
fn pieces(words: &str) -> Vec<String> {
    let plain = words.replace("^{2}", "^2").replace("^{3}", "^3");
    let mut pieces: Vec<String> = Vec::new();
    let mut is_open = false;
    for c in plain.chars() {
        // `p.m.` is one word.
        if c == '.' {
            continue;
        }
        let last = pieces
            .last_mut()
            .filter(|last| is_open && (c.is_alphabetic() || (c.is_ascii_digit() && *last == "^")));
        match last {
            Some(last) => last.push(c),
            None if c.is_alphabetic() || matches!(c, '^' | '/' | '²' | '³') => {
                pieces.push(c.to_string());
            }
            None => {}
        }
        is_open = c.is_alphabetic() || c == '^';
    }
    pieces
}

/// Words that change the value before them, or take it back.
const CHANGING: &[&str] = &[
    "or",
    "and",
    "nor",
    "not",
    "either",
    "maybe",
    "perhaps",
    "possibly",
    "but",
    "except",
    "unless",
    "plus",
    "minus",
    "half",
    "third",
    "quarter",
    "squared",
    "cubed",
    "factorial",
    "to",
];

/// Whether words after a value can be its unit or what it counts, and nothing more.
pub(crate) fn may_follow(words: &str) -> bool {
    let is_power = |before: char| before.is_alphabetic() || before == '^';
    let has_number = words.char_indices().any(|(at, c)| {
        c.is_ascii_digit() && !words[..at].chars().next_back().is_some_and(is_power)
    });
    let is_changing =
        |word: &str| CHANGING.iter().any(|changing| changing.eq_ignore_ascii_case(word));
    let mut each = words.split(|c: char| !c.is_alphabetic());
    // `meters squared` is a unit; `squared` alone is not.
    let first = each.next().unwrap_or_default();
    !has_number
        && !is_changing(first)
        && !each.any(|word| is_changing(word) && !is_power_after(word))
}

fn is_power_after(piece: &str) -> bool {
    matches!(known(piece), Some(Word::PowerAfter(_)))
}

/// What words after a value say; words that are unknown say nothing.
pub(crate) fn measure(words: &str) -> Measure {
    let pieces = pieces(words);
    let mut measure = Measure::NONE;
    let mut parts: Vec<(&'static str, i32)> = Vec::new();
    let (mut sign, mut power) = (1, 1);
    for (index, piece) in pieces.iter().enumerate() {
        match known(piece) {
            Some(Word::Scale(factor)) if parts.is_empty() => {
                measure.scale = measure.scale.saturating_mul(factor);
            }
            Some(Word::PowerAfter(after)) => {
                if let Some(last) = parts.last_mut() {
                    last.1 = last.1.saturating_mul(after);
                }
            }
            Some(Word::PowerBefore(before)) => power = before,
            Some(Word::Per) => sign = -1,
            None if piece == "/" => sign = -1,
            word => {
                match word {
                    Some(Word::Unit(name)) if counts_as_unit(&pieces, index) => {
                        parts.push((name, sign * power));
                    }
                    Some(Word::Compound(whole)) => parts.extend(whole),
                    _ => {}
                }
                (sign, power) = (1, 1);
            }
        }
    }
    parts.sort_unstable();
    measure.unit = (!parts.is_empty()).then_some(Unit(parts));
    measure
}

/// `5 in total`, `5 A grades`: letters and `in` are units only at the end.
fn counts_as_unit(pieces: &[String], index: usize) -> bool {
    let rest = &pieces[index + 1..];
    let is_word = pieces[index].len() > 1 && pieces[index] != "in";
    is_word
        || rest.first().is_some_and(|next| next == "/")
        || rest.iter().all(|piece| is_power_after(piece) || piece == "/")
}

/// Whether a word is a unit by itself: the `pm` of `6pm`.
pub(crate) fn is_unit(word: &str) -> bool {
    matches!(known(word), Some(Word::Unit(_) | Word::Compound(_)))
}

/// Whether a word, perhaps with points in it, may follow a number as part of its measure.
fn is_known(word: &str) -> bool {
    !word.is_empty()
        && if word.contains('.') {
            known(&word.replace('.', "")).is_some()
        } else {
            known(word).is_some()
        }
}

/// The words behind a number in prose that may belong to it.
pub(crate) fn words_in_prose(behind: &str) -> &str {
    const MOST_WORDS: usize = 6;
    let mut rest = behind;
    for _ in 0..MOST_WORDS {
        let from = rest.trim_start_matches([' ', '\u{a0}']);
        let end = from.find(|c: char| !c.is_ascii_alphabetic() && c != '.').unwrap_or(from.len());
        let word = from[..end].trim_end_matches('.');
        if !is_known(word) {
            break;
        }
        rest = &from[word.len()..];
        let power = ["^2", "^3", "²", "³"].iter().find_map(|power| rest.strip_prefix(power));
        rest = power.unwrap_or(rest);
        rest = rest.strip_prefix('/').unwrap_or(rest);
    }
    &behind[..behind.len() - rest.len()]
}

/// What the words that follow a number in prose say. A number word counts wherever it stands; a
/// unit only where the clause ends with it: `5 m.`, not `5 in total`.
pub(crate) fn measure_in_prose(behind: &str) -> Measure {
    let words = words_in_prose(behind);
    let mut measure = measure(words);
    let rest = &behind[words.len()..];
    let ends_clause = ['.', ',', ';', ':', '!', '?', ')', '\n', '*', '$'];
    let is_over = rest.is_empty() || rest.starts_with(ends_clause);
    measure.unit = measure.unit.filter(|_| is_over);
    measure
}

/// Cuts unit words off the end of an answer: `35 cm` → `35`, `12 square units` → `12`.
///
/// What remains must end like a value; otherwise the words were no units and all stays.
pub(crate) fn split_measure(text: &str) -> (&str, Measure) {
    const MOST_WORDS: usize = 5;
    let whole = text.trim_end();
    let mut rest = whole;
    for _ in 0..MOST_WORDS {
        let Some(shorter) = without_last_word(rest) else { break };
        rest = shorter;
    }
    if rest.len() < whole.len()
        && rest.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '}' | ')'))
    {
        (rest, measure(&whole[rest.len()..]))
    } else {
        (whole, Measure::NONE)
    }
}

fn without_last_word(text: &str) -> Option<&str> {
    let cut = text.trim_end_matches(|c: char| c == '.' || c.is_whitespace());
    let cut = ["^2", "^3", "^{2}", "^{3}", "²", "³"]
        .iter()
        .find_map(|power| cut.strip_suffix(power))
        .unwrap_or(cut);
    let word_start = cut
        .char_indices()
        .rev()
        .take_while(|(at, c)| c.is_ascii_alphabetic() || is_inner_point(cut, *at))
        .last()
        .map_or(cut.len(), |(at, _)| at);
    let (before, word) = cut.split_at(word_start);
    let before_sign = before.strip_suffix('/').unwrap_or(before);
    let is_separate = before.ends_with(char::is_whitespace) || before_sign.len() < before.len();
    let touches = is_separate || before.ends_with(|c: char| c.is_ascii_digit() || c == '}');
    // `2h` is a product, `2 h` is a time.
    (touches && (word.len() > 1 || is_separate) && is_known(word)).then(|| before_sign.trim_end())
}

/// The point inside `p.m`.
fn is_inner_point(text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    bytes[at] == b'.' && at > 0 && is_letter(at - 1) && is_letter(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(words: &str) -> Option<Unit> {
        measure(words).unit
    }

    #[test]
    fn spellings_of_a_unit_are_one_unit() {
        for (a, b) in [
            ("cm", "centimeters"),
            ("square cm", "cm^2"),
            ("sq. ft", "feet²"),
            ("km/h", "kilometers per hour"),
            ("mph", "miles per hour"),
            ("m/s^2", "meters per second squared"),
            ("PM", "p.m."),
            ("dollars", "USD"),
            ("cc", "cubic centimeters"),
        ] {
            assert!(unit(a).is_some(), "{a}");
            assert_eq!(unit(a), unit(b), "{a} and {b}");
        }
    }

    #[test]
    fn other_units_contradict_and_nouns_do_not_measure() {
        for (a, b) in [("m", "m^2"), ("m", "cm"), ("am", "pm"), ("dollars", "cents"), ("m/s", "m")]
        {
            let (a, b) = (unit(a).unwrap(), unit(b).unwrap());
            assert!(a.contradicts(&b) && b.contradicts(&a), "{a:?} and {b:?}");
        }
        assert!(!unit("cm^2").unwrap().contradicts(&unit("square units").unwrap()));
        assert!(unit("cm").unwrap().contradicts(&unit("square units").unwrap()));
        for noun in ["apples", "ways", "in total", "A grades", "", "of the pie"] {
            assert_eq!(measure(noun), Measure::NONE, "{noun}");
        }
    }

    #[test]
    fn number_words_multiply() {
        assert_eq!(measure(" million").scale, 1_000_000);
        assert_eq!(measure("hundred thousand dollars").scale, 100_000);
        assert_eq!(measure("million dollars").unit, unit("dollars"));
        assert_eq!(measure("dozen eggs").scale, 12);
    }

    #[test]
    fn words_at_the_end_are_cut_off_a_value_only() {
        for (text, value) in [
            ("35 cm", "35"),
            ("35cm", "35"),
            ("60 miles per hour", "60"),
            ("60 km/h", "60"),
            ("12 square units", "12"),
            ("6 p.m.", "6"),
            ("\\frac{1}{2} inch", "\\frac{1}{2}"),
            ("3 million dollars", "3"),
            // A product, and names.
            ("2h", "2h"),
            ("x cm", "x cm"),
            ("m", "m"),
            ("m^2", "m^2"),
        ] {
            assert_eq!(split_measure(text).0, value, "{text}");
        }
    }
}

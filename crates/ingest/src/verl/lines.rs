//! The lines of a verl console log that matter, freed of colours and Ray's prefixes.
//!
//! Ray prints the output of many processes into one stream: each line carries
//! `(TaskRunner pid=678203)` in colour, lines of different processes alternate, and progress bars
//! end in a carriage return instead of a newline. A dictionary printed by `pprint` is spread over
//! several lines as adjacent Python strings; only lines with the same prefix are put together.

use crate::table::number;

/// Keys and values of a line, in its order.
pub(super) type Pairs = Vec<(String, f64)>;

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// Metrics of a step; `is_last` when the file ends inside this line, without a newline.
    Step { line: usize, number: u64, pairs: Pairs, is_last: bool },
    /// Validation before training.
    Initial { line: usize, pairs: Pairs },
    /// Validation after training.
    Final { pairs: Pairs },
    /// `n_gpus_per_node` of the trainer.
    GpusPerNode(f64),
    /// `nnodes` of the trainer.
    Nodes(f64),
}

/// A dictionary of validation metrics is at most this many printed lines.
const LONGEST_DICTIONARY: usize = 400;

/// Whether one of the lines is a step line.
pub(crate) fn looks_like(text: &str) -> bool {
    text.split(['\n', '\r']).any(|line| {
        // Cheap test first: detection sees every text file.
        line.contains("step:") && step(&without_colours(line)).is_some()
    })
}

/// Walks over the lines that matter.
pub(super) struct Lines<'a> {
    raw: std::iter::Peekable<std::iter::Enumerate<std::str::Lines<'a>>>,
    waiting: std::collections::VecDeque<Line>,
    ends_with_newline: bool,
    is_in_trainer: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            raw: text.lines().enumerate().peekable(),
            waiting: std::collections::VecDeque::new(),
            ends_with_newline: text.ends_with(['\n', '\r']),
            is_in_trainer: false,
        }
    }

    fn take_line(&mut self, index: usize, raw: &str) {
        let is_last = self.raw.peek().is_none() && !self.ends_with_newline;
        let clean = without_colours(raw);
        for part in clean.split('\r') {
            if let Some((number, pairs)) = step(part) {
                self.waiting.push_back(Line::Step { line: index + 1, number, pairs, is_last });
            }
        }
        if let Some(at) = clean.find("Initial validation metrics:") {
            let pairs = self.dictionary(&clean, at);
            if !pairs.is_empty() {
                self.waiting.push_back(Line::Initial { line: index + 1, pairs });
            }
        } else if let Some(at) = clean.find("Final validation metrics:") {
            let pairs = self.dictionary(&clean, at);
            if !pairs.is_empty() {
                self.waiting.push_back(Line::Final { pairs });
            }
        }
        self.configuration(&clean);
    }

    /// Only the trainer's numbers count: reward models and rollout servers have their own.
    fn configuration(&mut self, line: &str) {
        self.is_in_trainer |= line.contains("'trainer': {");
        for (key, is_nodes) in [("n_gpus_per_node", false), ("nnodes", true)] {
            let on_command_line = value_after(line, &format!("trainer.{key}="));
            let printed = value_after(line, &format!("'{key}': ")).filter(|_| self.is_in_trainer);
            if let Some(count) = on_command_line.or(printed).filter(|count| *count >= 1.0) {
                self.waiting.push_back(if is_nodes {
                    Line::Nodes(count)
                } else {
                    Line::GpusPerNode(count)
                });
            }
        }
    }

    /// The `{'key': value, …}` that begins on this line and may go on over the next.
    fn dictionary(&mut self, line: &str, at: usize) -> Pairs {
        let owner = prefix(line).to_owned();
        let mut text = opened_before(line, at).to_owned();
        let mut looked_at = 0;
        while !text.contains('}') && looked_at < LONGEST_DICTIONARY {
            // A step line is never inside a dictionary: it must not be eaten.
            let Some((_, raw)) = self.raw.next_if(|(_, raw)| !raw.contains("step:")) else {
                break;
            };
            looked_at += 1;
            let clean = without_colours(raw);
            if prefix(&clean) == owner {
                text.push_str(unquoted(clean[owner.len()..].trim_start()));
            }
        }
        let inside = text.split_once('{').map_or("", |(_, rest)| rest);
        let inside = inside.split('}').next().unwrap_or_default();
        entries(inside)
            .filter_map(|(key, value)| Some((validation_key(key), number(value)?)))
            .collect()
    }
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while self.waiting.is_empty() {
            let (index, raw) = self.raw.next()?;
            self.take_line(index, raw);
        }
        self.waiting.pop_front()
    }
}

/// `'key': value` pairs; keys may hold commas and colons, so the quotes are followed.
fn entries(inside: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = inside;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once('\'')?;
        let (key, after) = after.split_once('\'')?;
        let after = after.strip_prefix(':')?;
        let end = after.find(", '").unwrap_or(after.len());
        rest = &after[end..];
        Some((key, after[..end].trim().trim_end_matches(',')))
    })
}

/// The oldest versions print the initial metrics without the `val/` that step lines have.
fn validation_key(key: &str) -> String {
    if key.starts_with("val") { key.to_owned() } else { format!("val/{key}") }
}

/// A Python string literal without its quotes and the parentheses around several of them.
fn unquoted(text: &str) -> &str {
    let text = text.trim().trim_start_matches('(').trim_end_matches(')');
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.strip_suffix(quote).unwrap_or(inner);
        }
    }
    text
}

/// The rest of a Python string literal whose quote, if any, stands just before `at`.
fn opened_before(line: &str, at: usize) -> &str {
    let rest = line[at..].trim_end().trim_end_matches(')');
    let quote = line[..at].chars().next_back().filter(|c| matches!(c, '"' | '\''));
    quote.and_then(|quote| rest.strip_suffix(quote)).unwrap_or(rest)
}

/// Ray's `(name pid=123)` or `(name pid=123, ip=…)` at the start of a line.
fn prefix(line: &str) -> &str {
    let end = line.find(')').map_or(0, |end| end + 1);
    if line.starts_with('(') && line[..end].contains("pid=") { &line[..end] } else { "" }
}

/// Number and metrics of a step line.
fn step(line: &str) -> Option<(u64, Pairs)> {
    for (at, marker) in line.match_indices("step:") {
        let is_word = line[..at].chars().next_back().is_none_or(char::is_whitespace);
        let rest = &line[at + marker.len()..];
        let Some((digits, metrics)) = rest.split_once(" - ") else { continue };
        if let (true, Ok(number)) = (is_word, digits.parse()) {
            let pairs: Pairs = metrics.split(" - ").filter_map(pair).collect();
            return (!pairs.is_empty()).then_some((number, pairs));
        }
    }
    None
}

/// A value that other output has run into is not a number, and is left out.
fn pair(text: &str) -> Option<(String, f64)> {
    let (key, value) = text.trim().rsplit_once(':')?;
    let is_key = !key.is_empty() && !key.contains(char::is_whitespace);
    if is_key { Some((key.to_owned(), number(value)?)) } else { None }
}

fn value_after(line: &str, key: &str) -> Option<f64> {
    let (_, rest) = line.split_once(key)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Takes out ANSI escape sequences.
fn without_colours(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        clean.push_str(before);
        let Some(sequence) = after.strip_prefix('[') else {
            rest = after;
            continue;
        };
        let end = sequence.find(|c: char| ('@'..='~').contains(&c));
        rest = end.map_or("", |end| &sequence[end + 1..]);
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_prefixes_and_numpy_are_seen_through() {
        let line = "\u{1b}[36m(TaskRunner pid=6, ip=10.0.0.2)\u{1b}[0m step:3 - \
                    val-core/a/acc/mean@1:np.float64(0.5) - actor/lr(1e-4):0.1 - x:-2";
        let (number, pairs) = step(&without_colours(line)).unwrap();
        assert_eq!(number, 3);
        assert_eq!(pairs[0], ("val-core/a/acc/mean@1".to_owned(), 0.5));
        assert_eq!(pairs[1], ("actor/lr(1e-4)".to_owned(), 0.1));
        assert_eq!(pairs[2], ("x".to_owned(), -2.0));
    }

    #[test]
    fn other_steps_in_a_line_are_not_step_lines() {
        assert_eq!(step("training/global_step:1.000 - a:1"), None);
        assert_eq!(step("step: 4 - a:1"), None);
        assert_eq!(step("time per step:12 seconds - fine"), None);
    }

    #[test]
    fn a_printed_dictionary_is_put_together_past_the_lines_of_others() {
        let text = "(T pid=1) (\"Initial validation metrics: {'val-core/a/b/mean@1': \"\n\
                    (W pid=2) something else {'c': 4}\n\
                    (T pid=1)  '0.25, '\n\
                    (T pid=1)  \"'val-core/c/b/mean@1': \"\n\
                    (T pid=1)  'np.float64(0.5)}')\n";
        let line = Lines::new(text).next().unwrap();
        let Line::Initial { pairs, .. } = line else { panic!("{line:?}") };
        assert_eq!(pairs[0], ("val-core/a/b/mean@1".to_owned(), 0.25));
        assert_eq!(pairs[1], ("val-core/c/b/mean@1".to_owned(), 0.5));
    }

    #[test]
    fn a_dictionary_may_follow_any_character() {
        let text = "\u{feff}Initial validation metrics: {'test_score/a': 0.5}\n";
        let line = Lines::new(text).next();
        let pairs = vec![("val/test_score/a".to_owned(), 0.5)];
        assert_eq!(line, Some(Line::Initial { line: 1, pairs }));
    }

    #[test]
    fn only_the_trainers_gpus_count() {
        let text = "'reward_model': {'n_gpus_per_node': 4,\n'trainer': {'n_gpus_per_node': 8,\n\
                    'nnodes': 2,\n";
        let lines: Vec<_> = Lines::new(text).collect();
        assert_eq!(lines, [Line::GpusPerNode(8.0), Line::Nodes(2.0)]);
    }
}

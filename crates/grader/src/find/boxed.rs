//! `\boxed{…}`: where it opens, where it closes, and which of several belong together.
//!
//! One pass over the text with a stack of braces; a box that never closes runs to the end.

/// One box: byte range of its content and of the whole command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoxedPart {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) content: String,
}

/// Every outermost box of the text, in order.
pub(crate) fn boxes(text: &str) -> Vec<BoxedPart> {
    let mut found: Vec<BoxedPart> = Vec::new();
    let mut from = 0;
    while let Some((start, after)) = next_command(text, from) {
        let rest = text[after..].trim_start();
        let open = text.len() - rest.len();
        if !rest.starts_with('{') {
            // `\boxed 5`: the next word.
            let end =
                open + rest.find(|c: char| c.is_whitespace() || c == '$').unwrap_or(rest.len());
            if end > open {
                found.push(BoxedPart { start, end, content: text[open..end].to_owned() });
            }
            from = end.max(after);
            continue;
        }
        let end = closing_brace(text, open).unwrap_or(text.len());
        let content = text[open + 1..end.max(open + 1)].trim().to_owned();
        from = (end + 1).min(text.len()).max(after);
        found.push(BoxedPart { start, end: from, content: unboxed(&content) });
    }
    found
}

fn next_command(text: &str, from: usize) -> Option<(usize, usize)> {
    let at = |name: &str| text[from..].find(name).map(|at| (from + at, from + at + name.len()));
    match (at("\\boxed"), at("\\fbox")) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn closing_brace(text: &str, open: usize) -> Option<usize> {
    let mut level = 0_usize;
    for (at, c) in text[open..].char_indices() {
        match c {
            '{' => level += 1,
            '}' => {
                level -= 1;
                if level == 0 {
                    return Some(open + at);
                }
            }
            _ => {}
        }
    }
    None
}

/// A box inside a box: its content is the answer.
fn unboxed(content: &str) -> String {
    let mut inner = content;
    for _ in 0..4 {
        let Some((_, after)) = next_command(inner, 0) else { break };
        let rest = inner[after..].trim_start();
        let open = inner.len() - rest.len();
        let Some(close) = closing_brace(inner, open).filter(|_| rest.starts_with('{')) else {
            break;
        };
        inner = &inner[open + 1..close];
    }
    inner.to_owned()
}

/// Longest text between two boxes of one answer when no word joins them.
const NEAR: usize = 10;
/// … and when `and`, `or`, a comma or a semicolon does.
const JOINED: usize = 70;

/// The last box with those before it that belong to the same answer, joined by commas with a blank: `1` and
/// `234` are not 1,234.
pub(crate) fn last_cluster(parts: &[BoxedPart], text: &str) -> Option<String> {
    let last = parts.last()?;
    let mut cluster = vec![last.content.clone()];
    let mut next = last;
    for part in parts[..parts.len() - 1].iter().rev() {
        let between = &text[part.end.min(next.start)..next.start];
        // A new sentence is a new answer.
        let is_joined = !between.contains(". ")
            && (between.contains([',', ';'])
                || between
                    .split(|c: char| !c.is_ascii_alphabetic())
                    .any(|w| w == "and" || w == "or"));
        let belongs = between.len() < NEAR
            || (between.len() < JOINED && is_joined && part.content != next.content);
        if !belongs {
            break;
        }
        if part.content != next.content {
            cluster.push(part.content.clone());
        }
        next = part;
    }
    cluster.reverse();
    Some(cluster.join(", "))
}

/// The content of all boxes joined by commas, or the text itself when it has none.
pub(crate) fn content_or_text(text: &str) -> String {
    let parts = boxes(text);
    if parts.is_empty() {
        return text.to_owned();
    }
    let mut contents: Vec<String> = parts.into_iter().map(|part| part.content).collect();
    contents.dedup();
    contents.join(", ")
}

//! How wide a text is, and how it is cut to a width.
//!
//! Widths are those of the embedded font (DejaVu Sans), which is wider than the fonts that
//! browsers put in its place, so what fits here fits there.

use crate::font::{self, Weight};

/// Width of one line in the unit of `size`.
pub(crate) fn width(text: &str, size: f64, weight: Weight) -> f64 {
    // Chinese, Japanese and other scripts that the font lacks: as wide as high.
    text.chars().map(|letter| font::advance(letter, weight).unwrap_or(1.0)).sum::<f64>() * size
}

/// Breaks a text into lines of at most `room`, between words; a longer word is cut.
pub(crate) fn wrap(text: &str, room: f64, size: f64, weight: Weight) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match longer {
            Some(longer) if width(&longer, size, weight) <= room => {
                if let Some(last) = lines.last_mut() {
                    *last = longer;
                }
            }
            _ => lines.push(cut(word, room, size, weight)),
        }
    }
    lines
}

/// The text, or as much of it as fits with an ellipsis.
pub(crate) fn cut(text: &str, room: f64, size: f64, weight: Weight) -> String {
    if width(text, size, weight) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width(&kept, size, weight) + width("…", size, weight) > room {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// Text for XML and HTML, safe between tags and in quoted attributes. Characters that XML forbids
/// (control characters from a log, say) become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_lines_fit_and_keep_every_word() {
        let text = "Pass rate against compute for the ScaleRL recipe on eight billion parameters";
        let lines = wrap(text, 200.0, 16.0, Weight::Bold);
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| width(line, 16.0, Weight::Bold) <= 200.0));
        assert_eq!(lines.join(" "), text);
    }

    #[test]
    fn a_word_that_is_too_long_ends_in_an_ellipsis() {
        let short = cut("a-very-long-run-name-from-a-sweep", 80.0, 12.0, Weight::Normal);
        assert!(short.ends_with('…') && width(&short, 12.0, Weight::Normal) <= 80.0);
    }

    #[test]
    fn markup_and_control_characters_are_made_harmless() {
        assert_eq!(escape("a<b & \"c\" \u{1b}'"), "a&lt;b &amp; &quot;c&quot; \u{fffd}&#39;");
    }
}

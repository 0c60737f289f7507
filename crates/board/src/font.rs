//! The font that comes with the program: how wide its letters are, and their outlines.
//!
//! A subset of DejaVu Sans (Latin, Greek, Cyrillic, the symbols of axes; `fonts/`), normal and
//! bold, without kerning: a text is as wide as the sum of its letters. A letter that is missing is
//! an empty box.

use std::fmt::Write as _;
use std::sync::OnceLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

use crate::marker::round;

/// Normal or bold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Normal,
    Bold,
}

/// Width of a letter in parts of the font size; `None` for one that the font does not have.
pub(crate) fn advance(letter: char, weight: Weight) -> Option<f64> {
    let face = face(weight)?;
    Some(em(face, face.glyph_index(letter)?))
}

/// The letters as one SVG path that begins at the origin and stands on the line y = 0, and its
/// width.
pub(crate) fn outline(text: &str, size: f64, weight: Weight) -> (String, f64) {
    let mut pen = Pen { path: String::new(), scale: 1.0, x: 0.0 };
    let Some(face) = face(weight) else { return (pen.path, 0.0) };
    pen.scale = size / f64::from(face.units_per_em());
    for letter in text.chars() {
        let glyph = face.glyph_index(letter).unwrap_or(GlyphId(0));
        face.outline_glyph(glyph, &mut pen);
        pen.x += em(face, glyph) * size;
    }
    (pen.path, pen.x)
}

fn em(face: &Face<'_>, glyph: GlyphId) -> f64 {
    f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) / f64::from(face.units_per_em())
}

/// `None` never happens: a test reads both fonts.
fn face(weight: Weight) -> Option<&'static Face<'static>> {
    static NORMAL: OnceLock<Option<Face<'static>>> = OnceLock::new();
    static BOLD: OnceLock<Option<Face<'static>>> = OnceLock::new();
    let (slot, bytes): (_, &'static [u8]) = match weight {
        Weight::Normal => (&NORMAL, include_bytes!("../fonts/DejaVuSans.subset.ttf")),
        Weight::Bold => (&BOLD, include_bytes!("../fonts/DejaVuSans-Bold.subset.ttf")),
    };
    slot.get_or_init(|| Face::parse(bytes, 0).ok()).as_ref()
}

/// Draws glyphs one behind the other. A font's y points up, a picture's down.
struct Pen {
    path: String,
    scale: f64,
    x: f64,
}

impl Pen {
    fn add(&mut self, command: char, places: &[(f32, f32)]) {
        self.path.push(command);
        for (x, y) in places {
            let (x, y) = (self.x + f64::from(*x) * self.scale, -f64::from(*y) * self.scale);
            // Writing to a string cannot fail.
            let _ = write!(self.path, "{} {} ", round(x), round(y));
        }
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.add('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.add('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.add('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.add('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.path.push('Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fonts_have_the_letters_of_figures() {
        for weight in [Weight::Normal, Weight::Bold] {
            for letter in ('!'..='~').chain("×−–±²⁻αλρ→≤…Žя".chars()) {
                assert!(advance(letter, weight).is_some_and(|width| width > 0.2), "{letter}");
                assert!(outline(&letter.to_string(), 12.0, weight).0.ends_with('Z'), "{letter}");
            }
        }
        assert_eq!(advance('漢', Weight::Normal), None);
    }

    #[test]
    fn letters_stand_side_by_side_and_bold_ones_are_wider() {
        let (one, width) = outline("H", 10.0, Weight::Normal);
        let (two, both) = outline("HH", 10.0, Weight::Normal);
        assert!(two.starts_with(&one) && (both - 2.0 * width).abs() < 1e-9);
        assert!(outline("H", 10.0, Weight::Bold).1 > width);
        assert!(!outline("漢", 10.0, Weight::Normal).0.is_empty(), "a box");
    }
}

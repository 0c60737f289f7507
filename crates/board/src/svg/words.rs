//! Words in a figure: as text, which the viewer's fonts draw, or as outlines, which need none.

use std::fmt::{Display, Write as _};

use super::Canvas;
use crate::font::{self, Weight};
use crate::layout::TEXT_SIZE;
use crate::marker::round;
use crate::text::escape;
use crate::theme::Theme;

/// Which part of a text stands at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How one text is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) anchor: Anchor,
    /// What it is, for scripts and tests; may be empty.
    pub(super) class: &'a str,
    pub(super) color: &'a str,
    pub(super) size: f64,
    pub(super) weight: Weight,
    /// From bottom to top.
    pub(super) is_upright: bool,
    /// With a rim in the colour of the ground, to be read over lines.
    pub(super) has_rim: bool,
}

impl<'a> Words<'a> {
    pub(super) fn new(x: f64, y: f64, color: &'a str) -> Self {
        Self {
            x,
            y,
            anchor: Anchor::Start,
            class: "",
            color,
            size: TEXT_SIZE,
            weight: Weight::Normal,
            is_upright: false,
            has_rim: false,
        }
    }
}

impl Canvas<'_> {
    pub(super) fn write(&mut self, words: &Words, text: impl Display) {
        match self.theme {
            Theme::Picture => self.write_outlines(words, &text.to_string()),
            Theme::Print | Theme::Page => self.write_text(words, &text.to_string()),
        }
    }

    fn write_text(&mut self, words: &Words, text: &str) {
        let (x, y, color) = (round(words.x), round(words.y), words.color);
        add!(self, "<text");
        if !words.class.is_empty() {
            add!(self, " class=\"{}\"", words.class);
        }
        if words.is_upright {
            add!(self, " transform=\"translate({x},{y}) rotate(-90)\"");
        } else {
            add!(self, " x=\"{x}\" y=\"{y}\"");
        }
        match words.anchor {
            Anchor::Start => {}
            Anchor::Middle => self.out.push_str(" text-anchor=\"middle\""),
            Anchor::End => self.out.push_str(" text-anchor=\"end\""),
        }
        if (words.size - TEXT_SIZE).abs() > f64::EPSILON {
            add!(self, " font-size=\"{}\"", words.size);
        }
        if words.weight == Weight::Bold {
            self.out.push_str(" font-weight=\"bold\"");
        }
        self.rim(words);
        add!(self, " fill=\"{color}\">{}</text>\n", escape(text));
    }

    fn write_outlines(&mut self, words: &Words, text: &str) {
        let (path, width) = font::outline(text, words.size, words.weight);
        if path.is_empty() {
            return;
        }
        let before = match words.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let (x, y) = (round(words.x), round(words.y));
        let turn = if words.is_upright { " rotate(-90)" } else { "" };
        let back = round(-before);
        add!(self, "<path transform=\"translate({x},{y}){turn} translate({back},0)\"");
        self.rim(words);
        add!(self, " fill=\"{}\" d=\"{path}\"/>\n", words.color);
    }

    fn rim(&mut self, words: &Words) {
        if words.has_rim {
            let paper = self.theme.part("paper");
            add!(
                self,
                " stroke=\"{paper}\" stroke-width=\"3\" stroke-linejoin=\"round\" \
                 paint-order=\"stroke\""
            );
        }
    }
}

//! A figure as text: a chart in the terminal, read the same way as the picture.
//!
//! Curves are drawn in Braille dots (2 × 4 to a character), points and forecasts as characters on
//! top, rules as thin lines below. The legend under the chart explains every character. In ASCII
//! the same chart has one dot to a character. No line is wider than asked.
//!
//! Not here: whether the output is a terminal and wants colour; the caller knows.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::chart::{Figure, Layer, Role, Tone};
use crate::legend::{self, Swatch};
use crate::number::Notation;
use crate::span::Span;
use crate::theme;
use crate::ticks::{self, Tick};

/// In the order of the digits they raise, then the minus sign.
const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻";

mod grid;

use grid::{Grid, Kind};

/// Characters a terminal chart may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Glyphs {
    /// Braille and box drawing.
    #[default]
    Unicode,
    /// Nothing beyond ASCII, for old terminals and log files.
    Ascii,
}

/// How a figure is drawn in a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Characters in the longest line; at least 30.
    pub width: usize,
    /// Lines of the plot itself, without title, ticks and legend; at least 5.
    pub height: usize,
    /// Whether runs have colours (ANSI escapes).
    pub color: bool,
    /// Which characters are used.
    pub glyphs: Glyphs,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self { width: 80, height: 16, color: false, glyphs: Glyphs::Unicode }
    }
}

/// Draws a figure as lines of text, each ended by a line break.
pub fn terminal(figure: &Figure, options: TerminalOptions) -> String {
    let options =
        TerminalOptions { width: options.width.max(30), height: options.height.max(5), ..options };
    let chart = Chart::new(figure, options);
    let mut lines = Vec::new();
    for heading in [&figure.title, &figure.subtitle] {
        lines.extend(wrap(&readable(heading, options.glyphs), options.width));
    }
    lines.extend(chart.plot(figure));
    lines.extend(chart.x_axis(figure));
    lines.extend(chart.legend(figure));
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

struct Chart {
    options: TerminalOptions,
    x: Span,
    y: Span,
    y_ticks: Vec<Tick>,
    /// Characters left of the axis.
    gutter: usize,
}

impl Chart {
    fn new(figure: &Figure, options: TerminalOptions) -> Self {
        let (x, y) = (Span::of_x(figure), Span::of_y(figure));
        let notation = notation(options.glyphs);
        let height = options.height;
        let rows = |ticks: &[Tick]| -> Vec<usize> {
            ticks.iter().filter_map(|tick| row_of(&y, tick.value, height)).collect()
        };
        let y_ticks = ticks::ticks(&y, notation, (height / 3).clamp(2, 7), |ticks| {
            rows(ticks).windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 2)
        });
        let widest = y_ticks.iter().map(|tick| tick.label.width()).max().unwrap_or(0);
        Self { options, x, y, y_ticks, gutter: widest.min(options.width / 3) + 1 }
    }

    /// Columns of the plot, right of the axis line.
    fn columns(&self) -> usize {
        self.options.width - self.gutter - 1
    }

    fn plot(&self, figure: &Figure) -> Vec<String> {
        let grid = self.filled(figure);
        let mut labels = vec![None; self.options.height];
        for tick in &self.y_ticks {
            if let Some(row) = row_of(&self.y, tick.value, self.options.height) {
                labels[row] = Some(fitted(&tick.label, self.gutter - 1));
            }
        }
        let ascii = self.options.glyphs == Glyphs::Ascii;
        let lines = grid.lines(self.options).into_iter().zip(labels);
        lines
            .map(|(line, label)| {
                let axis = match (&label, ascii) {
                    (Some(_), true) => '+',
                    (None, true) => '|',
                    (Some(_), false) => '┤',
                    (None, false) => '│',
                };
                let label = label.unwrap_or_default();
                let padding = " ".repeat(self.gutter - 1 - label.width());
                format!("{padding}{label} {axis}{line}").trim_end().to_owned()
            })
            .collect()
    }

    /// Layers from back to front: rules, curves, points, forecasts.
    fn filled(&self, figure: &Figure) -> Grid {
        let mut grid = Grid::new(self.columns(), self.options.height, self.options.glyphs);
        for layer in &figure.layers {
            match layer {
                Layer::Rule(rule) => {
                    if let Some(x) = self.x.point_fraction(rule.x) {
                        grid.rule(x, rule.tone);
                    }
                }
                Layer::Level(level) => {
                    let value = level.value.or(level.interval.map(|ends| ends.0));
                    if let Some(y) = value.and_then(|value| self.y.point_fraction(value)) {
                        grid.level(y, level.tone);
                    }
                }
                _ => {}
            }
        }
        for layer in &figure.layers {
            match layer {
                Layer::Line(line) => {
                    for pair in line.points.windows(2) {
                        let from = self.x.fraction(pair[0].0).zip(self.y.fraction(pair[0].1));
                        let to = self.x.fraction(pair[1].0).zip(self.y.fraction(pair[1].1));
                        if let Some((from, to)) = from.zip(to) {
                            grid.segment(from, to, line.tone, line.stroke);
                        }
                    }
                }
                Layer::Band(band) if self.draws_bands(figure) => {
                    for point in &band.points {
                        for end in [point.1, point.2] {
                            let place = self.x.fraction(point.0).zip(self.y.fraction(end));
                            if let Some(place) = place {
                                grid.dot(place, band.tone);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        self.add_points(figure, &mut grid);
        grid
    }

    /// The edges of one band can be told from its curve; those of many cannot, nor can any in
    /// ASCII, where every dot is the same.
    fn draws_bands(&self, figure: &Figure) -> bool {
        let bands = figure.layers.iter().filter(|layer| matches!(layer, Layer::Band(_)));
        self.options.glyphs == Glyphs::Unicode && bands.count() == 1
    }

    fn add_points(&self, figure: &Figure, grid: &mut Grid) {
        let place = |x: f64, y: f64| self.x.point_fraction(x).zip(self.y.point_fraction(y));
        for layer in &figure.layers {
            match layer {
                Layer::Points(points) if points.role != Role::Probe => {
                    for dot in &points.dots {
                        if let Some(place) = place(dot.x, dot.y) {
                            grid.mark(place, points.tone, Kind::Point(points.role));
                        }
                    }
                }
                Layer::Marks(marks) => {
                    for mark in &marks.marks {
                        let ends = mark.bar().and_then(|(low, high)| {
                            self.y.fraction(low).zip(self.y.fraction(high))
                        });
                        if let (Some(x), Some((low, high))) = (self.x.point_fraction(mark.x), ends)
                        {
                            grid.bar(x, (low, high), marks.tone);
                        }
                        if let Some(place) = place(mark.x, mark.y) {
                            grid.mark(place, marks.tone, Kind::Forecast);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn x_axis(&self, figure: &Figure) -> Vec<String> {
        let columns = self.columns();
        let glyphs = self.options.glyphs;
        let column = |value: f64| {
            let share = self.x.point_fraction(value)?;
            Some(((share * columns as f64) as usize).min(columns - 1))
        };
        // Labels are centred under their tick, and kept inside the line.
        let extent = |tick: &Tick| {
            let width = tick.label.width();
            let middle = column(tick.value).unwrap_or(0) + self.gutter + 1;
            let left = middle.saturating_sub(width / 2).min(self.options.width - width);
            (left, left + width)
        };
        let most = (columns / 8).clamp(2, 10);
        let mut ticks = ticks::ticks(&self.x, notation(glyphs), most, |ticks| {
            ticks.windows(2).all(|pair| extent(&pair[1]).0 >= extent(&pair[0]).1 + 2)
        });
        if self.x.zero {
            let zero = Tick { value: 0.0, label: "0".into() };
            ticks.retain(|tick| extent(tick).0 > extent(&zero).1 + 1);
            ticks.insert(0, zero);
        }
        let (line, tick_mark, corner) = match glyphs {
            Glyphs::Unicode => ('─', '┬', '└'),
            Glyphs::Ascii => ('-', '+', '+'),
        };
        let mut axis = vec![line; columns];
        let mut numbers = String::new();
        for tick in &ticks {
            if let Some(column) = column(tick.value) {
                axis[column] = tick_mark;
            }
            let padding = extent(tick).0.saturating_sub(numbers.width());
            numbers += &" ".repeat(padding);
            numbers += &tick.label;
        }
        if let Some(share) = self.x.zero_break() {
            axis[(share * columns as f64) as usize] =
                if glyphs == Glyphs::Ascii { '/' } else { '╱' };
        }
        let axis: String = axis.into_iter().collect();
        let mut lines = vec![format!("{}{corner}{axis}", " ".repeat(self.gutter)), numbers];
        let label = readable(&figure.x.label, glyphs);
        if !label.is_empty() {
            let label = fitted(&label, columns);
            let padding = self.gutter + 1 + (columns - label.width()) / 2;
            lines.push(format!("{}{label}", " ".repeat(padding)));
        }
        lines
    }

    fn legend(&self, figure: &Figure) -> Vec<String> {
        let glyphs = self.options.glyphs;
        let mut entries: Vec<(String, String)> = Vec::new();
        if !figure.y.label.is_empty() {
            let arrow = if glyphs == Glyphs::Ascii { "y" } else { "↑" };
            entries.push((arrow.into(), figure.y.label.clone()));
        }
        for entry in legend::entries(figure, true) {
            let drawn =
                |swatch: &&Swatch| !matches!(swatch, Swatch::Band(_)) || self.draws_bands(figure);
            let swatches = entry.swatches.iter().filter(drawn);
            let signs: String = swatches
                .map(|swatch| self.painted(swatch_sign(*swatch, glyphs), tone(*swatch)))
                .collect();
            // An entry of a band alone, and bands are not drawn: nothing to explain.
            if !signs.is_empty() || entry.swatches.is_empty() {
                entries.push((signs, entry.text));
            }
        }
        for layer in &figure.layers {
            if let Layer::Rule(rule) = layer
                && !rule.label.is_empty()
                && self.x.point_fraction(rule.x).is_some()
            {
                let sign = Grid::rule_sign(glyphs);
                entries.push((self.painted(sign, rule.tone), rule.label.clone()));
            }
        }
        self.flowed(&entries)
    }

    /// Entries in rows, none wider than the chart.
    fn flowed(&self, entries: &[(String, String)]) -> Vec<String> {
        let mut lines: Vec<(String, usize)> = Vec::new();
        for (signs, text) in entries {
            let signs_width = visible_width(signs);
            let room = self.options.width.saturating_sub(signs_width + 3);
            let text = fitted(&readable(text, self.options.glyphs), room);
            let width = signs_width + 1 + text.width();
            match lines.last_mut() {
                Some((line, used)) if *used + 3 + width <= self.options.width => {
                    line.extend(["   ", signs, " ", &text]);
                    *used += 3 + width;
                }
                _ => lines.push((format!("  {signs} {text}"), 2 + width)),
            }
        }
        lines.into_iter().map(|(line, _)| line).collect()
    }

    fn painted(&self, sign: char, tone: Tone) -> String {
        match theme::terminal_rgb(tone) {
            Some(color) if self.options.color => {
                format!("{}{sign}{}", grid::escape_for(color), grid::RESET)
            }
            _ => sign.to_string(),
        }
    }
}

fn swatch_sign(swatch: Swatch, glyphs: Glyphs) -> char {
    match swatch {
        Swatch::Band(_) => Grid::band_sign(glyphs),
        Swatch::Level(_) | Swatch::OpenLevel(_) => Grid::level_sign(glyphs),
        Swatch::Line(_, stroke) => Grid::line_sign(stroke, glyphs),
        Swatch::Point(tone, role) => Grid::mark_sign(Kind::Point(role), tone, glyphs),
        Swatch::Mark(tone) => Grid::mark_sign(Kind::Forecast, tone, glyphs),
    }
}

fn tone(swatch: Swatch) -> Tone {
    match swatch {
        Swatch::Band(tone)
        | Swatch::Level(tone)
        | Swatch::OpenLevel(tone)
        | Swatch::Line(tone, _)
        | Swatch::Point(tone, _)
        | Swatch::Mark(tone) => tone,
    }
}

fn notation(glyphs: Glyphs) -> Notation {
    match glyphs {
        Glyphs::Unicode => Notation::Unicode,
        Glyphs::Ascii => Notation::Ascii,
    }
}

/// The line of the plot a value lies on, from the top.
fn row_of(span: &Span, value: f64, height: usize) -> Option<usize> {
    let share = span.point_fraction(value)?;
    Some((((1.0 - share) * height as f64) as usize).min(height - 1))
}

/// Control characters would break the terminal; ASCII charts also lose other characters.
fn readable(text: &str, glyphs: Glyphs) -> String {
    let mut safe = String::new();
    let mut raised = false;
    for letter in text.chars() {
        let digit = SUPERSCRIPTS.chars().position(|superscript| superscript == letter);
        match (letter, digit) {
            ('\n' | '\t', _) => safe.push(' '),
            _ if letter.is_control() => {}
            _ if glyphs == Glyphs::Unicode || letter.is_ascii() => safe.push(letter),
            (_, Some(digit)) => {
                safe.push_str(if raised { "" } else { "^" });
                safe.extend("0123456789-".chars().nth(digit));
            }
            ('×', _) => safe.push('x'),
            ('–' | '—' | '−', _) => safe.push('-'),
            ('…', _) => safe.push_str("..."),
            ('≥', _) => safe.push_str(">="),
            ('≤', _) => safe.push_str("<="),
            ('→', _) => safe.push_str("->"),
            ('±', _) => safe.push_str("+-"),
            _ => safe.push('?'),
        }
        raised = digit.is_some();
    }
    safe
}

fn fitted(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for letter in text.chars() {
        let width = letter.width().unwrap_or(0);
        if used + width > room {
            break;
        }
        kept.push(letter);
        used += width;
    }
    kept
}

fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, room)),
        }
    }
    lines
}

/// Columns that a text with colour escapes takes.
fn visible_width(text: &str) -> usize {
    let mut width = 0;
    let mut escape = false;
    for letter in text.chars() {
        match letter {
            '\u{1b}' => escape = true,
            'm' if escape => escape = false,
            _ if escape => {}
            letter => width += letter.width().unwrap_or(0),
        }
    }
    width
}

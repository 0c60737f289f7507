//! The cells of a terminal chart.
//!
//! Each cell holds Braille dots and at most one sign; a sign hides the dots, a later sign hides an
//! earlier one, and signs of data hide those of rules. Coordinates are shares of the plot, x from
//! the left and y from the bottom.

use super::{Glyphs, TerminalOptions};
use crate::chart::{Role, Stroke, Tone};
use crate::theme;

/// What a sign stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Point(Role),
    Forecast,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    dots: u8,
    sign: Option<char>,
    /// Whether the sign belongs to a rule, which curves may hide.
    is_rule: bool,
    tone: Tone,
}

pub(super) struct Grid {
    columns: usize,
    rows: usize,
    glyphs: Glyphs,
    cells: Vec<Cell>,
}

/// Ends a colour.
pub(super) const RESET: &str = "\u{1b}[0m";

/// Begins a colour.
pub(super) fn escape_for((r, g, b): (u8, u8, u8)) -> String {
    format!("\u{1b}[38;2;{r};{g};{b}m")
}

/// Bit of each dot in a Braille character, by row and column.
const BRAILLE: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl Grid {
    pub(super) fn new(columns: usize, rows: usize, glyphs: Glyphs) -> Self {
        Self { columns, rows, glyphs, cells: vec![Cell::default(); columns * rows] }
    }

    fn cell(&mut self, x: f64, y: f64) -> Option<&mut Cell> {
        let inside = (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y);
        let column = ((x * self.columns as f64) as usize).min(self.columns - 1);
        let row = (((1.0 - y) * self.rows as f64) as usize).min(self.rows - 1);
        inside.then(|| &mut self.cells[row * self.columns + column])
    }

    /// One dot, the finest there is.
    pub(super) fn dot(&mut self, (x, y): (f64, f64), tone: Tone) {
        let (columns, rows) = (self.columns, self.rows);
        let Some(cell) = self.cell(x, y) else { return };
        let across = ((x * columns as f64 * 2.0) as usize).min(columns * 2 - 1) % 2;
        let down = (((1.0 - y) * rows as f64 * 4.0) as usize).min(rows * 4 - 1) % 4;
        cell.dots |= BRAILLE[down][across];
        cell.tone = tone;
        if cell.is_rule {
            cell.sign = None;
            cell.is_rule = false;
        }
    }

    /// A straight piece of a line, in dots; dashed and dotted ones leave some out.
    pub(super) fn segment(&mut self, from: (f64, f64), to: (f64, f64), tone: Tone, stroke: Stroke) {
        let across = (to.0 - from.0).abs() * self.columns as f64 * 2.0;
        let down = (to.1 - from.1).abs() * self.rows as f64 * 4.0;
        // A steep piece far outside the plot must not take for ever.
        let steps = (across.max(down).ceil() as usize).clamp(1, 10_000);
        for step in 0..=steps {
            let share = step as f64 / steps as f64;
            let x = from.0 + (to.0 - from.0) * share;
            let y = from.1 + (to.1 - from.1) * share;
            let column = (x * self.columns as f64 * 2.0) as i64;
            let drawn = match stroke {
                Stroke::Solid => true,
                Stroke::Dashed => column.rem_euclid(6) < 3,
                Stroke::Dotted => column.rem_euclid(4) == 0,
            };
            if drawn {
                self.dot((x, y), tone);
            }
        }
    }

    pub(super) fn rule(&mut self, x: f64, tone: Tone) {
        let sign = Self::rule_sign(self.glyphs);
        for row in 0..self.rows {
            let y = 1.0 - (row as f64 + 0.5) / self.rows as f64;
            self.rule_cell(x, y, sign, tone);
        }
    }

    pub(super) fn level(&mut self, y: f64, tone: Tone) {
        let sign = Self::level_sign(self.glyphs);
        for column in 0..self.columns {
            let x = (column as f64 + 0.5) / self.columns as f64;
            self.rule_cell(x, y, sign, tone);
        }
    }

    fn rule_cell(&mut self, x: f64, y: f64, sign: char, tone: Tone) {
        if let Some(cell) = self.cell(x, y) {
            *cell = Cell { dots: 0, sign: Some(sign), is_rule: true, tone };
        }
    }

    /// An error bar.
    pub(super) fn bar(&mut self, x: f64, (low, high): (f64, f64), tone: Tone) {
        let sign = if self.glyphs == Glyphs::Ascii { '|' } else { '┃' };
        let steps = ((high - low).abs() * self.rows as f64 * 2.0).ceil().clamp(1.0, 1000.0);
        for step in 0..=(steps as usize) {
            let y = low + (high - low) * step as f64 / steps;
            if let Some(cell) = self.cell(x, y) {
                *cell = Cell { dots: 0, sign: Some(sign), is_rule: false, tone };
            }
        }
    }

    pub(super) fn mark(&mut self, (x, y): (f64, f64), tone: Tone, kind: Kind) {
        let sign = Self::mark_sign(kind, tone, self.glyphs);
        if let Some(cell) = self.cell(x, y) {
            *cell = Cell { dots: 0, sign: Some(sign), is_rule: false, tone };
        }
    }

    pub(super) fn mark_sign(kind: Kind, tone: Tone, glyphs: Glyphs) -> char {
        const FILLED: [char; 6] = ['●', '■', '▲', '◆', '▼', '✚'];
        const HOLLOW: [char; 6] = ['○', '□', '△', '◇', '▽', '✛'];
        const LETTERS: [char; 6] = ['o', 'a', 'b', 'c', 'd', 'e'];
        const CAPITALS: [char; 6] = ['O', 'A', 'B', 'C', 'D', 'E'];
        let run = if let Tone::Run(index) = tone { index % FILLED.len() } else { 0 };
        match (kind, glyphs) {
            (Kind::Forecast, Glyphs::Unicode) => '★',
            (Kind::Forecast, Glyphs::Ascii) => '*',
            (Kind::Point(Role::Used), Glyphs::Unicode) => FILLED[run],
            (Kind::Point(Role::Used), Glyphs::Ascii) => LETTERS[run],
            (Kind::Point(Role::LeftOut), Glyphs::Unicode) => '×',
            (Kind::Point(Role::LeftOut), Glyphs::Ascii) => 'x',
            (Kind::Point(_), Glyphs::Unicode) => HOLLOW[run],
            (Kind::Point(_), Glyphs::Ascii) => CAPITALS[run],
        }
    }

    pub(super) fn rule_sign(glyphs: Glyphs) -> char {
        if glyphs == Glyphs::Ascii { ':' } else { '┊' }
    }

    pub(super) fn level_sign(glyphs: Glyphs) -> char {
        if glyphs == Glyphs::Ascii { '-' } else { '╌' }
    }

    pub(super) fn band_sign(glyphs: Glyphs) -> char {
        if glyphs == Glyphs::Ascii { '.' } else { '⠒' }
    }

    pub(super) fn line_sign(stroke: Stroke, glyphs: Glyphs) -> char {
        match (glyphs, stroke) {
            (Glyphs::Ascii, _) => '.',
            (_, Stroke::Solid) => '⠤',
            (_, Stroke::Dashed) => '⠄',
            (_, Stroke::Dotted) => '⠂',
        }
    }

    /// The rows as text, with colour escapes where asked.
    pub(super) fn lines(&self, options: TerminalOptions) -> Vec<String> {
        self.cells.chunks(self.columns).map(|row| self.line(row, options)).collect()
    }

    fn line(&self, row: &[Cell], options: TerminalOptions) -> String {
        let mut line = String::new();
        let mut current = None;
        for cell in row {
            let sign = self.sign(*cell);
            let color = if sign == ' ' { None } else { theme::terminal_rgb(cell.tone) };
            if options.color && color != current {
                match color {
                    Some(color) => line += &escape_for(color),
                    None => line += RESET,
                }
                current = color;
            }
            line.push(sign);
        }
        if options.color && current.is_some() {
            line += RESET;
        }
        line
    }

    fn sign(&self, cell: Cell) -> char {
        match (cell.sign, cell.dots, self.glyphs) {
            (Some(sign), ..) => sign,
            (None, 0, _) => ' ',
            (None, _, Glyphs::Ascii) => '.',
            (None, dots, Glyphs::Unicode) => {
                char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ')
            }
        }
    }
}

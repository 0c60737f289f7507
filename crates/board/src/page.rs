//! A report: words, tables and figures in one HTML file that works offline.
//!
//! A [`Page`] is plain data, so fits, runs and studies all use this one builder. The file has its
//! style and script inside and asks for nothing outside. Each figure is drawn twice, for wide and
//! for narrow screens, because a picture scaled down to a phone cannot be read; the style shows one.
//! All text is escaped: run names and completions come from anywhere.
//!
//! The script only adds to what is there: without it the page reads the same, and browsers show
//! the hover texts by themselves. With it, the nearest value follows the pointer or a tap, and the
//! arrow keys walk through the values of a focused chart.

use std::fmt::Write as _;

use crate::chart::Figure;
use crate::layout::Size;
use crate::svg;
use crate::text::escape;
use crate::theme::{self, Theme};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// Cells with more characters may be broken anywhere: values of a recipe, not words.
const LONG_CELL: usize = 60;

/// The style of every page: both colour schemes, then the rules.
pub fn stylesheet() -> String {
    let (light, dark) = theme::variables();
    format!(
        ":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{{light}}}}}\n{STYLE}"
    )
}

/// The script of every page. It attends to the charts that are there, and leaves `attendChart` for
/// those that come later.
pub fn script() -> &'static str {
    SCRIPT
}

/// Blocks as a piece of a page, for pages that change while they are open.
pub fn fragment(blocks: &[Block]) -> String {
    let mut out = String::new();
    for block in blocks {
        block.write(&mut out);
    }
    out
}

/// A whole report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// Heading, and the name of the browser tab.
    pub title: String,
    /// One line below it; may be empty.
    pub subtitle: String,
    /// The parts, in order; each with a heading is in the list of contents.
    pub sections: Vec<Section>,
}

/// A part of a report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// Heading; empty for none.
    pub heading: String,
    /// What it holds, in order.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Sentences to be read first, set apart.
    Headlines(Vec<String>),
    /// Running text; an empty line starts a paragraph.
    Prose(String),
    /// Rows and columns.
    Table(Table),
    /// A chart with a text below it; the text may be empty.
    Figure(Box<Figure>, String),
    /// Many small charts, side by side where there is room.
    Gallery(Vec<Figure>),
    /// Names and values.
    KeyValues(Vec<(String, String)>),
    /// Text with its line breaks kept: commands, completions.
    Code(String),
    /// Text with its line breaks kept, wrapped, parts of it marked: completions.
    Passage(Vec<Piece>),
    /// Blocks behind a line that opens them: long lists, samples.
    Fold(String, Vec<Block>),
}

impl Block {
    /// A chart without a text below it.
    pub fn figure(figure: Figure) -> Self {
        Self::Figure(Box::new(figure), String::new())
    }
}

/// A part of a passage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// Why it is marked, shown when pointed at; `None` for plain text.
    pub mark: Option<String>,
}

/// A table. Columns whose cells are all numbers are aligned to the right.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Text above it; may be empty.
    pub caption: String,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows; a short row is filled with empty cells.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// The report as the text of one HTML file.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let style = stylesheet();
        let mut out = String::new();
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>\n{style}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n"
        );
        if !self.subtitle.is_empty() {
            let _ = writeln!(out, "<p class=\"subtitle\">{}</p>", escape(&self.subtitle));
        }
        out.push_str("</header>\n");
        self.contents(&mut out);
        for (index, section) in self.sections.iter().enumerate() {
            section.write(index, &mut out);
        }
        let _ = write!(out, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        out
    }

    /// Links to the sections, where there are enough to get lost in.
    fn contents(&self, out: &mut String) {
        let headed = self.sections.iter().enumerate().filter(|(_, part)| !part.heading.is_empty());
        let headed: Vec<_> = headed.collect();
        if headed.len() < 4 {
            return;
        }
        out.push_str("<nav aria-label=\"contents\">");
        for (index, section) in headed {
            let heading = escape(&section.heading);
            let _ = write!(out, "<a href=\"#part-{index}\">{heading}</a> ");
        }
        out.push_str("</nav>\n");
    }
}

impl Section {
    fn write(&self, index: usize, out: &mut String) {
        let _ = writeln!(out, "<section id=\"part-{index}\">");
        if !self.heading.is_empty() {
            let _ = writeln!(out, "<h2>{}</h2>", escape(&self.heading));
        }
        for block in &self.blocks {
            block.write(out);
        }
        out.push_str("</section>\n");
    }
}

impl Block {
    fn write(&self, out: &mut String) {
        match self {
            Self::Headlines(sentences) => {
                out.push_str("<div class=\"headlines\">\n");
                for sentence in sentences {
                    let _ = writeln!(out, "<p>{}</p>", escape(sentence));
                }
                out.push_str("</div>\n");
            }
            Self::Prose(text) => {
                for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) {
                    let _ = writeln!(out, "<p>{}</p>", escape(paragraph.trim()));
                }
            }
            Self::Table(table) => table.write(out),
            Self::Figure(figure, caption) => write_figure(figure, caption, out),
            Self::Gallery(figures) => {
                out.push_str("<div class=\"gallery\">\n");
                for figure in figures {
                    let drawn = svg::draw(figure, Size::SMALL, Theme::Page);
                    let _ = writeln!(
                        out,
                        "<figure class=\"chart\" tabindex=\"0\">\n<div>\n{drawn}</div>\n</figure>"
                    );
                }
                out.push_str("</div>\n");
            }
            Self::KeyValues(pairs) => {
                out.push_str("<dl>\n");
                for (key, value) in pairs {
                    let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(key), escape(value));
                }
                out.push_str("</dl>\n");
            }
            Self::Code(text) => {
                // A browser drops the first line break inside <pre>; one more keeps the text's own.
                let _ = writeln!(out, "<pre tabindex=\"0\">\n{}</pre>", escape(text));
            }
            Self::Passage(pieces) => {
                out.push_str("<pre class=\"passage\" tabindex=\"0\">\n");
                for piece in pieces {
                    let text = escape(&piece.text);
                    let _ = match &piece.mark {
                        Some(why) => write!(out, "<mark title=\"{}\">{text}</mark>", escape(why)),
                        None => write!(out, "{text}"),
                    };
                }
                out.push_str("</pre>\n");
            }
            Self::Fold(summary, blocks) => {
                let _ = writeln!(out, "<details><summary>{}</summary>", escape(summary));
                for block in blocks {
                    block.write(out);
                }
                out.push_str("</details>\n");
            }
        }
    }
}

impl Table {
    fn write(&self, out: &mut String) {
        let class = |column: usize| if self.is_numeric(column) { " class=\"number\"" } else { "" };
        // Outside of what scrolls: a caption is read whole, however narrow the screen.
        if !self.caption.is_empty() {
            let _ = writeln!(out, "<p class=\"caption\">{}</p>", escape(&self.caption));
        }
        // Scrolls by itself, so that a wide table does not widen the page on a phone.
        let name = if self.caption.is_empty() { "table" } else { &self.caption };
        let name = escape(name);
        let _ = writeln!(
            out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table>"
        );
        out.push_str("<thead><tr>");
        for (index, column) in self.columns.iter().enumerate() {
            let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(index), escape(column));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        let width = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(self.columns.len());
        for row in &self.rows {
            out.push_str("<tr>");
            for index in 0..width {
                let cell = row.get(index).map_or("", String::as_str);
                let is_long = cell.chars().count() > LONG_CELL;
                let class = if is_long { " class=\"long\"" } else { class(index) };
                let _ = write!(out, "<td{class}>{}</td>", escape(&unbroken(cell)));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }

    fn is_numeric(&self, column: usize) -> bool {
        let cells = || self.rows.iter().filter_map(|row| row.get(column));
        let digit = |cell: &String| cell.contains(|letter: char| letter.is_ascii_digit());
        // One letter is a suffix (10.2k, 3e20); a run named "8B dense" has more.
        let letters = |cell: &String| cell.chars().filter(|letter| letter.is_alphabetic()).count();
        let missing = |cell: &String| ["", "–", "n/a"].contains(&cell.as_str());
        cells().any(digit) && cells().all(|cell| missing(cell) || digit(cell) && letters(cell) < 2)
    }
}

/// The same cell with its numbers in one piece: a line may break before an interval's bracket, not
/// inside it, and not at a ±.
fn unbroken(cell: &str) -> String {
    let mut is_inside = false;
    let keep = |letter: char| {
        is_inside = match letter {
            '[' => true,
            ']' => false,
            _ => is_inside,
        };
        if letter == ' ' && is_inside { '\u{a0}' } else { letter }
    };
    cell.replace(" ± ", "\u{a0}±\u{a0}").chars().map(keep).collect()
}

fn write_figure(figure: &Figure, caption: &str, out: &mut String) {
    let wide = svg::draw(figure, Size::WIDE, Theme::Page);
    let narrow = svg::draw(figure, Size::NARROW, Theme::Page);
    let _ = write!(
        out,
        "<figure class=\"chart\" tabindex=\"0\">\n<div class=\"wide\">\n{wide}</div>\n\
         <div class=\"narrow\">\n{narrow}</div>\n"
    );
    if !caption.is_empty() {
        let _ = writeln!(out, "<figcaption>{}</figcaption>", escape(caption));
    }
    out.push_str("</figure>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_digits_are_words_and_suffixed_numbers_are_numbers() {
        let rows = [["8B dense", "10.2k", "≥ 0.520"], ["0.5B on GSM8K", "9×10²⁰", "–"]];
        let rows = rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        let table = Table { rows, ..Table::default() };
        assert!(!table.is_numeric(0) && table.is_numeric(1) && table.is_numeric(2));
        assert!(!table.is_numeric(3), "a column that is not there");
    }

    #[test]
    fn a_caption_does_not_scroll_with_its_table_and_intervals_are_not_broken() {
        let rows = vec![vec!["0.788 [0.769, 0.814]".to_owned()]];
        let table =
            Table { caption: "90 % intervals".into(), columns: vec!["ceiling".into()], rows };
        let mut out = String::new();
        table.write(&mut out);
        let caption = out.find("<p class=\"caption\">90 % intervals</p>").unwrap();
        assert!(caption < out.find("class=\"scroll\"").unwrap(), "{out}");
        assert!(out.contains(">0.788 [0.769,\u{a0}0.814]</td>"), "{out}");
        assert_eq!(unbroken("0.783 ± 0.002"), "0.783\u{a0}±\u{a0}0.002");
    }

    #[test]
    fn a_short_row_is_filled_up() {
        let row = vec!["a".to_owned()];
        let columns = vec!["x".to_owned(), "y".to_owned()];
        let mut out = String::new();
        Table { columns, rows: vec![row], ..Table::default() }.write(&mut out);
        assert_eq!(out.matches("<td").count(), 2);
    }
}

//! Text to tokens: LaTeX commands, plain symbols, numbers with all their separators.
//!
//! Layout (`\left`, `\,`, `\displaystyle`, `\!`, `$`) and what a page does not show (`\phantom{5}`)
//! disappear here, Unicode becomes the command it stands for, and numbers are read whole: `1{,}000`,
//! `1,000`, `1 000`, `10\,000`, `.5`, `0,5`, `3.8e5`, `9th`. A comma between groups of three digits
//! joins them only outside brackets: `(1,234)` is a pair.
//!
//! Bounded: at most [`LONGEST`] characters; every character is looked at a fixed number of times.
//! Numerals are in `numeral.rs`.

use super::unit::{self, Unit};
use super::vocabulary::{unicode_command, word_command};

/// Longest single answer that is read, in characters. Real answers are below a few hundred.
pub(crate) const LONGEST: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Digits with at most one point, separators removed.
    Number(String),
    /// A command without its backslash.
    Command(String),
    Letter(char),
    /// The words inside `\text{}` and its relatives.
    Text(String),
    Symbol(char),
    /// `\{`, `\}` and `\|` as opposed to the bare characters.
    Escaped(char),
    /// `\\`, a new row.
    Row,
    /// `\ldots`, `...`: something is left out.
    Dots,
    /// A blank between two tokens that touch digits: `2 1/2`.
    Space,
}

/// Why a text is not read as mathematics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    TooLong,
    TooDeep,
    /// Two numbers side by side, `1 2`: neither 12 nor a product.
    Juxtaposed,
    NotMathematics,
}

/// A text as tokens, and the first currency sign in it.
pub(crate) fn tokenize(text: &str) -> Result<(Vec<Token>, Option<Unit>), ReadError> {
    if text.len() > LONGEST {
        return Err(ReadError::TooLong);
    }
    let chars: Vec<char> = text.chars().map(ascii_form).collect();
    let has_rows = text.contains("matrix") || text.contains("array") || text.contains("cases");
    let mut reader =
        Reader { chars, at: 0, depth: 0, has_rows, tokens: Vec::new(), currency: None };
    while reader.at < reader.chars.len() {
        reader.step()?;
    }
    Ok((reader.tokens, reader.currency))
}

/// The plain form of a full-width character or a digit of mathematical typography.
fn ascii_form(c: char) -> char {
    let code = u32::from(c);
    let plain = match code {
        0xff01..=0xff5e => code - 0xfee0,
        0x1d7ce..=0x1d7ff => u32::from('0') + (code - 0x1d7ce) % 10,
        _ => return c,
    };
    char::from_u32(plain).unwrap_or(c)
}

pub(super) struct Reader {
    chars: Vec<char>,
    pub(super) at: usize,
    /// Open brackets around the current place.
    pub(super) depth: usize,
    /// `\\` starts a row only where there is a matrix; elsewhere it is a doubled backslash.
    has_rows: bool,
    pub(super) tokens: Vec<Token>,
    currency: Option<Unit>,
}

impl Reader {
    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn starts_with(&self, from: usize, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.chars.get(from + i) == Some(&c))
    }

    fn step(&mut self) -> Result<(), ReadError> {
        let c = self.chars[self.at];
        match c {
            '\\' => self.command()?,
            '0'..='9' => self.number()?,
            '.' if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => self.number()?,
            '.' if self.starts_with(self.at, "...") => {
                self.at += 3;
                self.tokens.push(Token::Dots);
            }
            'a'..='z' | 'A'..='Z' => self.word(),
            c if c.is_whitespace() || c == '~' => {
                self.at += 1;
                self.separate();
            }
            '$' | '\u{200b}' | '\u{feff}' | '"' | '`' => self.at += 1,
            '€' | '£' | '¥' | '₹' | '¢' => self.currency(c),
            _ => self.symbol(c)?,
        }
        Ok(())
    }

    /// Something blank; it matters only after a number.
    fn separate(&mut self) {
        if matches!(self.tokens.last(), Some(Token::Number(_))) {
            self.tokens.push(Token::Space);
        }
    }

    /// A currency sign, before its number or after it.
    fn currency(&mut self, sign: char) {
        self.at += 1;
        if self.currency.is_none() {
            self.currency = Unit::currency(sign);
        }
    }

    fn symbol(&mut self, c: char) -> Result<(), ReadError> {
        self.at += 1;
        match c {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if c.is_ascii() {
            self.tokens.push(Token::Symbol(c));
            return Ok(());
        }
        let replacement = unicode_command(c).ok_or(ReadError::NotMathematics)?;
        self.tokens.extend(replacement);
        Ok(())
    }

    /// A run of letters: a known word is its command, anything else is one letter at a time.
    fn word(&mut self) {
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphabetic()) {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        if let Some(command) = word_command(&word) {
            self.tokens.push(Token::Command(command.to_owned()));
        } else {
            self.tokens.extend(word.chars().map(Token::Letter));
        }
    }

    fn command(&mut self) -> Result<(), ReadError> {
        let Some(next) = self.peek(1) else {
            self.at += 1;
            return Ok(());
        };
        if next == '\\' {
            return self.double_backslash();
        }
        if next == '$' {
            self.at += 1;
            self.currency('$');
            return Ok(());
        }
        if !next.is_ascii_alphabetic() {
            self.at += 2;
            match next {
                '{' => self.open_escaped('{'),
                '}' => self.close_escaped('}'),
                '|' => self.tokens.push(Token::Escaped('|')),
                '%' => self.tokens.push(Token::Symbol('%')),
                ',' | ';' | ':' | '!' | ' ' | '\n' | '\t' | '>' | '[' | ']' | '(' | ')' | '"'
                | '\'' | '#' | '&' | '_' => {
                    if matches!(next, ',' | ';' | ':' | ' ') {
                        self.separate();
                    }
                }
                _ => return Err(ReadError::NotMathematics),
            }
            return Ok(());
        }
        let start = self.at + 1;
        let mut end = start;
        while self.chars.get(end).is_some_and(char::is_ascii_alphabetic) {
            end += 1;
        }
        let name: String = self.chars[start..end].iter().collect();
        self.at = end;
        self.named_command(&name);
        Ok(())
    }

    fn open_escaped(&mut self, c: char) {
        self.depth += 1;
        self.tokens.push(Token::Escaped(c));
    }

    fn close_escaped(&mut self, c: char) {
        self.depth = self.depth.saturating_sub(1);
        self.tokens.push(Token::Escaped(c));
    }

    fn double_backslash(&mut self) -> Result<(), ReadError> {
        if self.has_rows {
            self.at += 2;
            self.tokens.push(Token::Row);
            return Ok(());
        }
        // `\\frac` comes out of doubly escaped JSON: the first backslash is dropped.
        if self.peek(2).is_some_and(|c| c.is_ascii_alphabetic() || "{}%$,!".contains(c)) {
            self.at += 1;
            return self.command();
        }
        self.at += 2;
        Ok(())
    }

    fn named_command(&mut self, name: &str) {
        match name {
            "left" | "right" | "mleft" | "mright" | "big" | "Big" | "bigg" | "Bigg" | "bigl"
            | "bigr" | "Bigl" | "Bigr" | "biggl" | "biggr" | "Biggl" | "Biggr" => {
                // `\left.` is an invisible bracket.
                if self.peek(0) == Some('.') {
                    self.at += 1;
                }
            }
            "displaystyle" | "textstyle" | "scriptstyle" | "limits" | "nolimits" | "quad"
            | "qquad" | "thinspace" | "medspace" | "enspace" | "hfill" | "rm" | "bf" | "it"
            | "boldsymbol" | "bm" | "vec" | "mathbf" | "mathcal" | "mathscr" | "mathfrak"
            | "displaylimits" | "nonumber" | "notag" | "boxed" | "fbox" | "unicode" => {
                self.separate();
            }
            "ldots" | "dots" | "cdots" | "dotsc" | "dotsb" | "vdots" | "ddots" => {
                self.tokens.push(Token::Dots);
            }
            // Nothing of their argument is seen, or only its colour.
            "hspace" | "vspace" | "phantom" | "hphantom" | "vphantom" | "tag" | "label"
            | "color" | "textcolor" | "colorbox" => self.skip_argument(),
            "text" | "textbf" | "textit" | "textrm" | "textnormal" | "textsf" | "texttt"
            | "mbox" | "hbox" | "mathrm" | "mathit" | "mathsf" | "mathtt" | "operatorname"
            | "emph" => self.text_argument(name),
            _ => {
                // `\quadx` is `\quad x` without its blank.
                for layout in ["qquad", "quad"] {
                    if let Some(rest) = name.strip_prefix(layout) {
                        self.tokens.extend(rest.chars().map(Token::Letter));
                        return;
                    }
                }
                match name {
                    "lbrace" => self.open_escaped('{'),
                    "rbrace" => self.close_escaped('}'),
                    _ => self.tokens.push(Token::Command(name.to_owned())),
                }
            }
        }
    }

    /// The place of the brace that closes the argument that opens here; `None` without one.
    fn argument_end(&mut self) -> Option<usize> {
        while self.peek(0).is_some_and(|c| c.is_whitespace() || c == '*') {
            self.at += 1;
        }
        if self.peek(0) != Some('{') {
            return None;
        }
        let mut level = 0_usize;
        let mut end = self.at;
        while let Some(c) = self.chars.get(end) {
            match c {
                '{' => level += 1,
                '}' => level -= 1,
                _ => {}
            }
            if level == 0 {
                break;
            }
            end += 1;
        }
        Some(end.min(self.chars.len()))
    }

    fn skip_argument(&mut self) {
        if let Some(end) = self.argument_end() {
            self.at = (end + 1).min(self.chars.len());
        }
        self.separate();
    }

    /// `\text{ cm}`; without a brace the command is ignored.
    fn text_argument(&mut self, name: &str) {
        let Some(end) = self.argument_end() else { return };
        let content: String = self.chars[self.at + 1..end].iter().collect();
        self.at = (end + 1).min(self.chars.len());
        let content = content.replace(['$', '{', '}', '\\', '~'], " ");
        let mut word = content.trim();
        // `\text{12 cm}`: a number is a number whatever it is set in.
        if let Some(length) = leading_number(word) {
            self.tokens.push(Token::Number(word[..length].to_owned()));
            word = word[length..].trim_start();
        }
        let is_after_number = matches!(self.tokens.last(), Some(Token::Number(_) | Token::Space));
        let is_unit = is_after_number && unit::measure(word) != unit::Measure::NONE;
        let is_name = matches!(name, "operatorname" | "mathrm" | "mathit" | "mathsf" | "text");
        let command = word_command(word).filter(|command| {
            is_name && (!is_unit || *command == "degree" || *command == "percent")
        });
        if let Some(command) = command {
            self.tokens.push(Token::Command(command.to_owned()));
        } else if !word.is_empty() {
            self.tokens.push(Token::Text(word.to_owned()));
        }
    }
}

/// Length of the numeral that text begins with, when a word or nothing follows it.
fn leading_number(text: &str) -> Option<usize> {
    let length = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..length].trim_end_matches('.');
    let rest = &text[number.len()..];
    let is_number = !number.is_empty() && number.matches('.').count() < 2;
    let is_separate = rest.is_empty() || rest.starts_with([' ', '.', ',']);
    (is_number && is_separate && !rest.contains(|c: char| c.is_ascii_digit()))
        .then_some(number.len())
}

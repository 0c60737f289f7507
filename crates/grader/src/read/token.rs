//! Text to tokens: LaTeX commands, plain symbols, numbers with all their separators.
//!
//! Layout (`\left`, `\,`, `\displaystyle`, `\!`, `$`) disappears here, Unicode becomes the command
//! it stands for, and numbers are read whole: `1{,}000`, `1,000`, `1 000`, `10\,000`, `.5`, `0,5`.
//! A comma between groups of three digits joins them only outside brackets: `(1,234)` is a pair.
//!
//! Bounded: at most [`LONGEST`] characters; every character is looked at a fixed number of times.

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
    /// A blank between two tokens that touch digits: `2 1/2`.
    Space,
}

/// Why a text is not read as mathematics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    TooLong,
    TooDeep,
    NotMathematics,
}

pub(crate) fn tokenize(text: &str) -> Result<Vec<Token>, ReadError> {
    if text.len() > LONGEST {
        return Err(ReadError::TooLong);
    }
    let chars: Vec<char> = text.chars().collect();
    let has_rows = text.contains("matrix") || text.contains("array") || text.contains("cases");
    let mut reader = Reader { chars, at: 0, depth: 0, has_rows, tokens: Vec::new() };
    while reader.at < reader.chars.len() {
        reader.step()?;
    }
    Ok(reader.tokens)
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    /// Open brackets around the current place.
    depth: usize,
    /// `\\` starts a row only where there is a matrix; elsewhere it is a doubled backslash.
    has_rows: bool,
    tokens: Vec<Token>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn starts_with(&self, from: usize, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.chars.get(from + i) == Some(&c))
    }

    fn step(&mut self) -> Result<(), ReadError> {
        let c = self.chars[self.at];
        match c {
            '\\' => self.command()?,
            '0'..='9' => self.number(),
            '.' if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => self.number(),
            'a'..='z' | 'A'..='Z' => self.word(),
            c if c.is_whitespace() || c == '~' => {
                self.at += 1;
                if matches!(self.tokens.last(), Some(Token::Number(_))) {
                    self.tokens.push(Token::Space);
                }
            }
            '$' | '\u{200b}' | '\u{feff}' | '"' | '€' | '£' | '¥' | '₹' | '`' => self.at += 1,
            _ => self.symbol(c)?,
        }
        Ok(())
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
        if !next.is_ascii_alphabetic() {
            self.at += 2;
            match next {
                '{' => self.open_escaped('{'),
                '}' => self.close_escaped('}'),
                '|' => self.tokens.push(Token::Escaped('|')),
                '%' => self.tokens.push(Token::Symbol('%')),
                '$' | ',' | ';' | ':' | '!' | ' ' | '\n' | '\t' | '>' | '[' | ']' | '(' | ')'
                | '"' | '\'' | '#' | '&' | '_' => {
                    if matches!(next, ',' | ';' | ':' | ' ')
                        && matches!(self.tokens.last(), Some(Token::Number(_)))
                    {
                        self.tokens.push(Token::Space);
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
            | "qquad" | "thinspace" | "medspace" | "enspace" | "hfill" | "ldots" | "dots"
            | "cdots" | "dotsc" | "rm" | "bf" | "it" | "boldsymbol" | "hspace" | "phantom"
            | "bm" | "vec" | "mathbf" | "mathcal" | "mathscr" | "mathfrak" | "displaylimits"
            | "nonumber" | "tag" | "label" | "notag" | "boxed" | "fbox" | "unicode" => {}
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

    /// `\text{ cm}`; without a brace the command is ignored.
    fn text_argument(&mut self, name: &str) {
        let mut open = self.at;
        while self.chars.get(open).is_some_and(|c| c.is_whitespace() || *c == '*') {
            open += 1;
        }
        if self.chars.get(open) != Some(&'{') {
            return;
        }
        let mut level = 0_usize;
        let mut end = open;
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
        let content: String = self.chars[open + 1..end.min(self.chars.len())].iter().collect();
        self.at = (end + 1).min(self.chars.len());
        let content = content.replace(['$', '{', '}', '\\'], " ");
        let word = content.trim();
        let is_name = matches!(name, "operatorname" | "mathrm" | "mathit" | "mathsf" | "text");
        if let Some(command) = word_command(word).filter(|_| is_name) {
            self.tokens.push(Token::Command(command.to_owned()));
        } else if !word.is_empty() {
            self.tokens.push(Token::Text(word.to_owned()));
        }
    }

    fn digits(&mut self, into: &mut String) {
        while let Some(c) = self.peek(0).filter(char::is_ascii_digit) {
            into.push(c);
            self.at += 1;
        }
    }

    fn number(&mut self) {
        let mut text = String::new();
        self.digits(&mut text);
        let leading = text.len();
        if (1..=3).contains(&leading) && !text.starts_with('0') {
            while let Some(length) = self.group_separator() {
                self.at += length;
                self.digits(&mut text);
            }
        }
        let is_decimal_comma = self.depth == 0
            && text == "0"
            && self.peek(0) == Some(',')
            && self.peek(1).is_some_and(|c| c.is_ascii_digit());
        let is_point =
            self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit());
        if is_point || is_decimal_comma {
            self.at += 1;
            text.push('.');
            self.digits(&mut text);
        } else if self.peek(0) == Some('.') && self.starts_with(self.at, ".\\overline") {
            self.at += 1;
            text.push('.');
        }
        self.tokens.push(Token::Number(text));
    }

    /// Length of a separator that is followed by exactly three digits, if one stands here.
    fn group_separator(&self) -> Option<usize> {
        let digits_at = |ahead: usize| {
            let digit = |i: usize| self.peek(ahead + i).is_some_and(|c| c.is_ascii_digit());
            digit(0) && digit(1) && digit(2) && !digit(3)
        };
        for separator in ["{,}", ",\\!", ",\\! ", "\\,", "\\ ", "\\;", "{ }", " ", "\u{a0}"] {
            let length = separator.chars().count();
            if self.starts_with(self.at, separator) && digits_at(length) {
                return Some(length);
            }
        }
        (self.depth == 0 && self.peek(0) == Some(',') && digits_at(1)).then_some(1)
    }
}

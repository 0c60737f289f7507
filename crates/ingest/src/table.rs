//! What every reader makes: a table of named columns, most of whose cells may be missing.
//!
//! Columns are stored sparsely, as (row, cell) pairs: evaluation logs have hundreds of columns
//! that are filled every hundredth row, and a hostile JSONL with a new key on every line would
//! otherwise need the square of its size.

use std::collections::HashMap;

/// One filled cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A number, NaN included.
    Number(f64),
    /// Anything else that is written there.
    Text(String),
}

impl Cell {
    fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// The cell that a piece of text stands for; `None` where it says that nothing is there.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if matches!(text, "" | "null" | "None" | "NA" | "N/A" | "<NA>" | "-") {
            return None;
        }
        Some(number(text).map_or_else(|| Self::Text(text.to_owned()), Self::Number))
    }
}

/// Reads a number, also as numpy and torch print it (`np.float64(0.5)`, `tensor(0.5)`), and a
/// percentage (`20.1 %` is 0.201).
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Some(value);
    }
    if let Some(percentage) = text.strip_suffix('%') {
        return percentage.trim_end().parse::<f64>().ok().map(|value| value / 100.0);
    }
    let (wrapper, inner) = text.strip_suffix(')')?.split_once('(')?;
    let known = wrapper == "tensor" || wrapper.starts_with("np.") || wrapper.starts_with("numpy.");
    if known { inner.split(',').next()?.trim().parse().ok() } else { None }
}

/// A named column; cells are in the order of their rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) cells: Vec<(u32, Cell)>,
    /// How many of the cells are text, counted on the way: it is asked for every run.
    texts: usize,
}

impl Column {
    /// The numbers of the column with their rows, NaN included.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, f64)> {
        self.cells.iter().filter_map(|(row, cell)| match cell {
            Cell::Number(value) => Some((*row, *value)),
            Cell::Text(_) => None,
        })
    }

    /// The cell in `row`.
    pub(crate) fn get(&self, row: u32) -> Option<&Cell> {
        // A column that is filled in every row up to here needs no search.
        if let Some((_, cell)) = self.cells.get(row as usize).filter(|(at, _)| *at == row) {
            return Some(cell);
        }
        let place = self.cells.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        Some(&self.cells[place].1)
    }

    /// The number in `row`.
    pub(crate) fn number(&self, row: u32) -> Option<f64> {
        match self.get(row)? {
            Cell::Number(value) => Some(*value),
            Cell::Text(_) => None,
        }
    }

    /// Whether the column has numbers and nothing else.
    pub(crate) fn is_numeric(&self) -> bool {
        !self.cells.is_empty() && self.texts == 0
    }

    /// Whether the column has text.
    pub(crate) fn is_text(&self) -> bool {
        self.texts > 0
    }
}

/// Rows in the order of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    places: HashMap<String, usize>,
    /// The line (or record) of the file that each row came from, counted from 1.
    lines: Vec<u32>,
}

impl Table {
    /// Begins a row; cells are set into the last one.
    pub(crate) fn push_row(&mut self, line: usize) {
        self.lines.push(u32::try_from(line).unwrap_or(u32::MAX));
    }

    /// Adds a column without cells, so that a header is listed even when it is empty.
    pub(crate) fn declare(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.columns.len();
        self.columns.push(Column { name: name.to_owned(), cells: Vec::new(), texts: 0 });
        self.places.insert(name.to_owned(), place);
        place
    }

    /// Sets a cell of the last row; a second value for the same cell wins.
    pub(crate) fn set(&mut self, name: &str, cell: Cell) {
        let place = self.declare(name);
        self.set_at(place, cell);
    }

    /// As [`Table::set`], by the place that [`Table::declare`] gave.
    pub(crate) fn set_at(&mut self, place: usize, cell: Cell) {
        let row = self.lines.len().saturating_sub(1) as u32;
        let column = &mut self.columns[place];
        column.texts += usize::from(cell.is_text());
        match column.cells.last_mut() {
            Some(last) if last.0 == row => {
                column.texts -= usize::from(last.1.is_text());
                last.1 = cell;
            }
            _ => column.cells.push((row, cell)),
        }
    }

    /// Gives a column all its cells at once, in the order of their rows.
    pub(crate) fn fill(&mut self, name: &str, cells: Vec<(u32, Cell)>) {
        let place = self.declare(name);
        self.columns[place].texts = cells.iter().filter(|(_, cell)| cell.is_text()).count();
        self.columns[place].cells = cells;
    }

    /// The column of exactly this name.
    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.places.get(name).map(|place| &self.columns[*place])
    }

    /// All columns, in the order of the file.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Number of rows.
    pub(crate) fn row_count(&self) -> u32 {
        self.lines.len() as u32
    }

    /// The line of the file that a row came from.
    pub(crate) fn line(&self, row: u32) -> u32 {
        self.lines[row as usize]
    }

    /// The names of all columns.
    pub(crate) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }
}

/// A table with its origin and what its reader learned on the way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    /// The run's name where the table does not give one.
    pub(crate) name: String,
    /// The name is the run's whatever the table says: a run folder's.
    pub(crate) is_named: bool,
    /// The path, for messages.
    pub(crate) file: String,
    pub(crate) table: Table,
    /// The number of GPUs that the log itself states, and where.
    pub(crate) gpus: Option<(f64, String)>,
    /// What the reader mended, derived or left out.
    pub(crate) notes: Vec<String>,
    /// Set by readers of logs whose only honest axis is time: no silent fall-back to steps.
    pub(crate) is_timed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_python_prints_them() {
        for (text, value) in [
            ("0.5", 0.5),
            (" -1e-3 ", -1e-3),
            ("np.float64(0.25)", 0.25),
            ("np.int64(7)", 7.0),
            ("tensor(0.5, device='cuda:0')", 0.5),
            ("25 %", 0.25),
            ("12.5%", 0.125),
        ] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        assert!(number("nan").unwrap().is_nan());
        assert_eq!(number("0.5(WorkerDict"), None);
        assert_eq!(number("f(1)"), None);
    }

    #[test]
    fn a_cell_set_twice_keeps_the_later_value() {
        let mut table = Table::default();
        table.push_row(2);
        table.set("a", Cell::Number(1.0));
        table.set("a", Cell::Number(2.0));
        assert_eq!(table.column("a").unwrap().number(0), Some(2.0));
        assert_eq!(table.column("a").unwrap().cells.len(), 1);
        assert_eq!(table.line(0), 2);
    }
}

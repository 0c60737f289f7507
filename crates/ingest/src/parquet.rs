//! Parquet tables, as pandas, pyarrow, polars and DuckDB write them.
//!
//! Read: flat and nested columns of numbers, booleans and strings; data pages of both versions;
//! plain, dictionary, run-length, delta and byte-stream-split encodings; no compression, Snappy,
//! gzip, Zstandard. Lists and maps are passed over, they are no metrics. Refused by name:
//! encryption, LZ4, Brotli, LZO.
//!
//! Written here because the reference crate takes 70 s of CPU to build, more than all the rest of
//! the forecasting half, and because lengths inside a file must never decide what is allocated:
//! a table may have at most [`ROWS_PER_BYTE`] rows per byte of its file, and its cells at most
//! [`MOST_BYTES`] in memory: a text that a dictionary holds once may stand in every row.
//!
//! Layout of the parts: `thrift` (footer and page headers), `schema` (footer to columns),
//! `pages` (a column chunk), `encoding` (values), `packing` (decompression).

mod encoding;
mod packing;
mod pages;
mod schema;
mod thrift;

use crate::error::IngestError;
use crate::format::Format;
use crate::table::{Cell, Table};
use schema::Footer;

/// One row needs some bits in one column at least, also with run-length encoding.
const ROWS_PER_BYTE: usize = 8;

/// Of all cells in memory. A log of a million rows and a hundred columns has five times less.
const MOST_BYTES: usize = 2 << 30;

/// How many bytes of cells may still be made.
#[derive(Debug)]
struct Room(usize);

impl Room {
    /// Takes room for cells with so many bytes of text, before they are made.
    fn take(&mut self, cells: usize, texts: usize) -> Result<(), String> {
        let bytes = cells.saturating_mul(size_of::<(u32, Cell)>()).saturating_add(texts);
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or("with this column the cells need more memory than is read")?;
        Ok(())
    }
}

/// What a Parquet file breaks its own rules with; `place` is a column or a part of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Broken {
    place: String,
    problem: String,
}

impl Broken {
    fn new(place: &str, problem: impl Into<String>) -> Self {
        Self { place: place.to_owned(), problem: problem.into() }
    }
}

/// Reads all columns that can hold a metric, a name or an axis.
pub(crate) fn read(file: &str, bytes: &[u8]) -> Result<(Table, Vec<String>), IngestError> {
    table(bytes, Room(MOST_BYTES)).map_err(|broken| IngestError::Malformed {
        file: file.to_owned(),
        format: Format::Parquet,
        place: broken.place,
        problem: broken.problem,
    })
}

fn table(bytes: &[u8], mut room: Room) -> Result<(Table, Vec<String>), Broken> {
    let footer = Footer::read(bytes)?;
    let limit = bytes.len().saturating_mul(ROWS_PER_BYTE);
    let rows: usize = footer.groups.iter().fold(0, |sum, group| sum.saturating_add(group.rows));
    if rows > limit {
        return Err(Broken::new("footer", format!("{rows} rows in {} bytes", bytes.len())));
    }
    let mut columns: Vec<Vec<(u32, Cell)>> = vec![Vec::new(); footer.leaves.len()];
    let mut notes = Vec::new();
    let mut start = 0;
    for group in &footer.groups {
        for (leaf, chunk) in footer.leaves.iter().zip(&group.chunks) {
            let Some(leaf) = leaf else { continue };
            let cells = pages::read(bytes, leaf, chunk, group.rows, &mut room)?;
            let place = |(row, cell): (usize, Cell)| ((start + row) as u32, cell);
            columns[leaf.index].extend(cells.into_iter().map(place));
        }
        start += group.rows;
    }
    let skipped = footer.leaves.iter().filter(|leaf| leaf.is_none()).count();
    if skipped > 0 {
        notes.push(format!("{skipped} columns of lists or binary data were passed over."));
    }
    let mut table = Table::default();
    (0..rows).for_each(|row| table.push_row(row + 1));
    for (leaf, cells) in footer.leaves.iter().zip(columns) {
        if let Some(leaf) = leaf {
            table.fill(&leaf.name, cells);
        }
    }
    Ok((table, notes))
}

#[cfg(test)]
mod tests;

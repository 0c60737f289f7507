//! One column chunk: an optional dictionary page, then data pages of either version.

use super::encoding::{self, Values};
use super::schema::{Chunk, Kind, Leaf};
use super::thrift::{self, Value};
use super::{Broken, Room, packing};
use crate::table::Cell;

/// The cells of a chunk with their rows inside the row group.
pub(super) fn read(
    bytes: &[u8],
    leaf: &Leaf,
    chunk: &Chunk,
    rows: usize,
    room: &mut Room,
) -> Result<Vec<(usize, Cell)>, Broken> {
    let broken = |problem: String| Broken::new(&format!("column `{}`", leaf.name), problem);
    let end = chunk.start.checked_add(chunk.length).filter(|end| *end <= bytes.len());
    let end = end.ok_or_else(|| broken("its pages lie outside the file".to_owned()))?;
    let mut rest = &bytes[chunk.start..end];
    let mut reading = Reading { leaf, rows, room, dictionary: None, row: 0, cells: Vec::new() };
    // Ends with the rows: some writers count padding into the chunk's length.
    while reading.row < rows {
        let (header, length) = thrift::structure(rest)
            .ok_or_else(|| broken("a page header cannot be decoded".to_owned()))?;
        let packed = header.size(3).and_then(|size| rest[length..].get(..size));
        let packed = packed.ok_or_else(|| broken("a page is cut off".to_owned()))?;
        reading.page(&header, packed, chunk.codec).map_err(broken)?;
        rest = &rest[length + packed.len()..];
    }
    Ok(reading.cells)
}

struct Reading<'a> {
    leaf: &'a Leaf,
    rows: usize,
    room: &'a mut Room,
    dictionary: Option<Values>,
    row: usize,
    cells: Vec<(usize, Cell)>,
}

impl Reading<'_> {
    fn page(&mut self, header: &Value<'_>, packed: &[u8], codec: i64) -> Result<(), String> {
        let size = header.size(2).ok_or("a page without a size")?;
        match header.int(1) {
            Some(0) => {
                let details = header.get(5).ok_or("a data page without its header")?;
                let data = packing::unpack(codec, packed, size)?;
                let (levels, values) = split_levels(&data, self.leaf.depth)?;
                self.data(details.size(1), details.int(2), levels, values)
            }
            Some(2) => {
                let details = header.get(7).ok_or("a dictionary page without its header")?;
                let data = packing::unpack(codec, packed, size)?;
                let count = details.size(1).ok_or("a dictionary without a count")?;
                self.dictionary = Some(encoding::plain(self.leaf.kind, &data, count)?);
                Ok(())
            }
            Some(3) => {
                let details = header.get(8).ok_or("a data page without its header")?;
                self.second_version(details, packed, codec, size)
            }
            // Index pages hold no values.
            Some(1) => Ok(()),
            other => Err(format!("a page of unknown type {other:?}")),
        }
    }

    /// Levels stand before the values, never compressed.
    fn second_version(
        &mut self,
        details: &Value<'_>,
        packed: &[u8],
        codec: i64,
        size: usize,
    ) -> Result<(), String> {
        let definitions = details.size(5).unwrap_or(0);
        let repetitions = details.size(6).unwrap_or(0);
        let levels = repetitions.checked_add(definitions).ok_or("levels longer than the page")?;
        let (before, packed) = packed.split_at_checked(levels).ok_or("levels beyond the page")?;
        let size = size.checked_sub(levels).ok_or("levels longer than the page")?;
        let is_packed = details.get(7) != Some(&Value::Bool(false));
        let data = packing::unpack(if is_packed { codec } else { 0 }, packed, size)?;
        self.data(details.size(1), details.int(4), &before[repetitions..], &data)
    }

    fn data(
        &mut self,
        count: Option<usize>,
        encoding: Option<i64>,
        levels: &[u8],
        values: &[u8],
    ) -> Result<(), String> {
        let count = count.filter(|count| *count > 0 && *count <= self.rows - self.row);
        let count = count.ok_or("a page with no rows, or more than its row group has")?;
        let depth = self.leaf.depth;
        let is_present: Vec<bool> = if depth == 0 {
            vec![true; count]
        } else {
            let width = u32::BITS - depth.leading_zeros();
            let levels = encoding::run_lengths(levels, width, count)?;
            levels.into_iter().map(|level| level == depth).collect()
        };
        let present = is_present.iter().filter(|is_present| **is_present).count();
        let encoding = encoding.ok_or("a page without an encoding")?;
        self.room.take(count, 0)?;
        let dictionary = self.dictionary.as_ref();
        let values =
            encoding::decode(encoding, self.leaf.kind, values, present, dictionary, self.room)?;
        if values.len() != present {
            return Err(format!("{} values where {present} are announced", values.len()));
        }
        let scale = self.leaf.scale;
        let rows = is_present.iter().enumerate().filter(|(_, is_present)| **is_present);
        for (value, (row, _)) in rows.enumerate() {
            if let Some(cell) = values.cell(value, scale) {
                self.cells.push((self.row + row, cell));
            }
        }
        self.row += count;
        Ok(())
    }
}

/// In version one the definition levels come first, after their length.
fn split_levels(data: &[u8], depth: u32) -> Result<(&[u8], &[u8]), String> {
    if depth == 0 {
        return Ok((&[], data));
    }
    let (length, rest) = data.split_first_chunk::<4>().ok_or("a page without levels")?;
    let length = u32::from_le_bytes(*length) as usize;
    rest.split_at_checked(length).ok_or_else(|| "levels longer than the page".to_owned())
}

impl Kind {
    /// Bytes of one value, where they are fixed.
    pub(super) fn width(self) -> Option<usize> {
        match self {
            Self::Int32 | Self::Float => Some(4),
            Self::Int64 | Self::Double => Some(8),
            Self::Boolean | Self::Text => None,
        }
    }
}

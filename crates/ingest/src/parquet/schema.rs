//! The footer: which columns there are, of which type, and where their chunks lie.

use super::Broken;
use super::thrift::{self, Value};

/// The physical type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean,
    Int32,
    Int64,
    Float,
    Double,
    Text,
}

/// A column that is read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaf {
    /// Place among the leaves of the schema.
    pub(super) index: usize,
    /// The path, joined with `/`.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Definition level of a present value; zero where nothing may be missing.
    pub(super) depth: u32,
    /// Factor to the value meant: decimals, and timestamps to seconds.
    pub(super) scale: f64,
}

/// Where one column's pages of one row group lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) codec: i64,
}

/// Some rows, column by column.
#[derive(Debug)]
pub(super) struct RowGroup {
    pub(super) rows: usize,
    pub(super) chunks: Vec<Chunk>,
}

/// What the end of a file says about the rest.
#[derive(Debug)]
pub(super) struct Footer {
    /// `None` for columns that are passed over.
    pub(super) leaves: Vec<Option<Leaf>>,
    pub(super) groups: Vec<RowGroup>,
}

impl Footer {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Broken> {
        let broken = |problem: &str| Broken::new("footer", problem);
        let (rest, magic) = bytes.split_last_chunk::<4>().ok_or_else(|| broken("too short"))?;
        if magic == b"PARE" {
            return Err(broken("encrypted files cannot be read"));
        }
        if magic != b"PAR1" || !bytes.starts_with(b"PAR1") {
            return Err(broken("the magic bytes PAR1 are missing at the start or the end"));
        }
        let (rest, length) = rest.split_last_chunk::<4>().ok_or_else(|| broken("too short"))?;
        let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize);
        let start = start.ok_or_else(|| broken("longer than the file"))?;
        let (metadata, _) =
            thrift::structure(&rest[start..]).ok_or_else(|| broken("cannot be decoded"))?;
        let leaves = leaves(metadata.list(2)).ok_or_else(|| broken("the schema is broken"))?;
        let groups = metadata.list(4).iter().map(|group| row_group(group, leaves.len()));
        let groups = groups.collect::<Option<Vec<_>>>();
        Ok(Self { leaves, groups: groups.ok_or_else(|| broken("a row group is broken"))? })
    }
}

fn row_group(group: &Value<'_>, count: usize) -> Option<RowGroup> {
    let chunks = group.list(1).iter().map(chunk).collect::<Option<Vec<_>>>()?;
    (chunks.len() == count).then_some(())?;
    Some(RowGroup { rows: group.size(3)?, chunks })
}

fn chunk(chunk: &Value<'_>) -> Option<Chunk> {
    let metadata = chunk.get(3)?;
    let data = metadata.size(9)?;
    // Some writers set an offset of zero where there is no dictionary.
    let dictionary = metadata.size(11).filter(|start| *start > 0);
    let start = dictionary.map_or(data, |dictionary| dictionary.min(data));
    Some(Chunk { start, length: metadata.size(7)?, codec: metadata.int(4)? })
}

/// Walks the schema, which is a tree written depth first.
fn leaves(elements: &[Value<'_>]) -> Option<Vec<Option<Leaf>>> {
    /// An open group: children still to come, its path, its level, whether inside a list.
    struct Open {
        left: usize,
        path: String,
        depth: u32,
        is_repeated: bool,
    }
    let (root, rest) = elements.split_first()?;
    let mut open =
        vec![Open { left: root.size(5)?, path: String::new(), depth: 0, is_repeated: false }];
    let mut leaves = Vec::new();
    for element in rest {
        while open.last().is_some_and(|group| group.left == 0) {
            open.pop();
        }
        let group = open.last_mut()?;
        group.left -= 1;
        let name = element.text(4)?;
        let path = if group.path.is_empty() { name } else { format!("{}/{name}", group.path) };
        let repetition = element.int(3).unwrap_or(0);
        let depth = group.depth + u32::from(repetition != 0);
        let is_repeated = group.is_repeated || repetition == 2;
        match element.size(5).filter(|children| *children > 0) {
            // Deeper than any writer nests; the path would grow with the square of the depth.
            Some(_) if open.len() > 32 => return None,
            Some(left) => open.push(Open { left, path, depth, is_repeated }),
            None if is_repeated => leaves.push(None),
            None => leaves.push(leaf(element, leaves.len(), path, depth)),
        }
    }
    Some(leaves)
}

fn leaf(element: &Value<'_>, index: usize, name: String, depth: u32) -> Option<Leaf> {
    let kind = match element.int(1)? {
        0 => Kind::Boolean,
        1 => Kind::Int32,
        2 => Kind::Int64,
        4 => Kind::Float,
        5 => Kind::Double,
        6 if element.int(6) != Some(5) => Kind::Text,
        // 96-bit times, decimals in bytes, fixed-length binary.
        _ => return None,
    };
    Some(Leaf { index, name, kind, depth, scale: scale(element) })
}

fn scale(element: &Value<'_>) -> f64 {
    let unit = element.get(10).and_then(|logical| logical.get(8)).and_then(|time| time.get(2));
    if let Some(unit) = unit {
        let digits = [(1, 1e-3), (2, 1e-6), (3, 1e-9)];
        return digits.iter().find(|(id, _)| unit.get(*id).is_some()).map_or(1.0, |(_, s)| *s);
    }
    match element.int(6) {
        Some(5) => 10_f64.powi(-(element.int(7).unwrap_or(0).clamp(0, 38) as i32)),
        Some(9) => 1e-3,
        Some(10) => 1e-6,
        _ => 1.0,
    }
}

//! Files written by pyarrow and polars; `scripts/golden/logs.py` names the versions.

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/", $name))
    };
}

/// Every fixture holds this table.
fn assert_is_the_table(name: &str, bytes: &[u8]) {
    let (table, _) = read(name, bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(table.row_count(), 40, "{name}");
    let run = table.column("run").unwrap();
    assert_eq!(run.get(0), Some(&Cell::Text("grpo".into())), "{name}");
    assert_eq!(run.get(39), Some(&Cell::Text("dapo".into())), "{name}");
    let steps: Vec<f64> = table.column("step").unwrap().numbers().map(|(_, v)| v).collect();
    let expected: Vec<f64> = (0..40).map(|i| f64::from(i % 20) * 5.0).collect();
    assert_eq!(steps, expected, "{name}");
    let rates: Vec<(u32, f64)> = table.column("pass_rate").unwrap().numbers().collect();
    assert_eq!(rates.len(), 20, "{name}: every second evaluation is missing");
    for (row, rate) in rates {
        let expected = 0.2 + 0.01 * f64::from(row);
        assert!((rate - expected).abs() < 1e-12, "{name}: row {row} has {rate}");
    }
    let nested = table.column("nested/gpu_hours").unwrap();
    assert_eq!(nested.number(21), Some(0.5), "{name}");
    let started = table.column("started").unwrap().number(1).unwrap();
    assert!((started - 1_700_000_060.0).abs() < 1e-3, "{name}: {started}");
    assert_eq!(table.column("is_final").unwrap().number(39), Some(1.0), "{name}");
    assert!(table.column("tags").is_none(), "{name}: lists are passed over");
}

#[test]
fn every_compression_and_encoding_gives_the_same_table() {
    assert_is_the_table("plain", fixture!("plain.parquet"));
    assert_is_the_table("snappy", fixture!("snappy.parquet"));
    assert_is_the_table("zstd", fixture!("zstd_v2.parquet"));
    assert_is_the_table("gzip", fixture!("gzip.parquet"));
    assert_is_the_table("delta", fixture!("delta.parquet"));
    assert_is_the_table("polars", fixture!("polars.parquet"));
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let error = read("lz4.parquet", fixture!("lz4.parquet")).unwrap_err().to_string();
    assert!(error.contains("LZ4"), "{error}");
    assert!(error.contains("column `"), "{error}");
}

#[test]
fn a_cut_file_is_refused() {
    let bytes: &[u8] = fixture!("plain.parquet");
    let error = read("cut.parquet", &bytes[..bytes.len() / 2]).unwrap_err().to_string();
    assert!(error.contains("PAR1"), "{error}");
}

/// Just enough of Thrift's compact protocol to write a footer and page headers.
mod thrift {
    pub(super) fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn field(id: u8, kind: u8, value: Vec<u8>) -> Vec<u8> {
        // The long form of a header: the type, then the field's number, doubled as in zigzag.
        [vec![kind, 2 * id], value].concat()
    }

    pub(super) fn int(id: u8, value: i64) -> Vec<u8> {
        field(id, 6, varint(2 * value.unsigned_abs()))
    }

    pub(super) fn text(id: u8, value: &str) -> Vec<u8> {
        field(id, 8, [varint(value.len() as u64), value.into()].concat())
    }

    pub(super) fn record(fields: &[Vec<u8>]) -> Vec<u8> {
        [fields.concat(), vec![0]].concat()
    }

    pub(super) fn inner(id: u8, fields: &[Vec<u8>]) -> Vec<u8> {
        field(id, 12, record(fields))
    }

    pub(super) fn list(id: u8, records: &[Vec<u8>]) -> Vec<u8> {
        let head = [vec![0xfc], varint(records.len() as u64)].concat();
        field(id, 9, [head, records.concat()].concat())
    }
}

/// A file whose columns all share one chunk: a dictionary of one text, and one run of it.
fn one_text_in_every_cell(length: usize, rows: usize, columns: usize) -> Vec<u8> {
    use thrift::{inner, int, list, record, text, varint};
    let dictionary = [&(length as u32).to_le_bytes()[..], &vec![b'x'; length]].concat();
    // Indices of one bit, then a run of `rows` zeros.
    let indices = [vec![1], varint(2 * rows as u64), vec![0]].concat();
    let page = |kind, size: usize, details| {
        record(&[int(1, kind), int(2, size as i64), int(3, size as i64), details])
    };
    let counts = |id, count: usize, encoding| inner(id, &[int(1, count as i64), int(2, encoding)]);
    let chunk = [
        page(2, dictionary.len(), counts(7, 1, 0)),
        dictionary,
        page(0, indices.len(), counts(5, rows, 8)),
        indices,
    ]
    .concat();
    let place = inner(3, &[int(4, 0), int(7, chunk.len() as i64), int(9, 4), int(11, 4)]);
    let leaf = |name: String| record(&[int(1, 6), int(3, 0), text(4, &name)]);
    let root = record(&[text(4, "root"), int(5, columns as i64)]);
    let schema = std::iter::once(root).chain((0..columns).map(|index| leaf(format!("c{index}"))));
    let group = record(&[list(1, &vec![record(&[place]); columns]), int(3, rows as i64)]);
    let footer = record(&[list(2, &schema.collect::<Vec<_>>()), list(4, &[group])]);
    let length = (footer.len() as u32).to_le_bytes();
    [b"PAR1", &chunk[..], &footer, &length, b"PAR1"].concat()
}

#[test]
fn a_text_may_stand_in_every_row_but_not_for_terabytes() {
    let small = read("small", &one_text_in_every_cell(5, 40, 3)).unwrap().0;
    assert_eq!(small.column("c2").unwrap().get(39), Some(&Cell::Text("xxxxx".into())));
    for (length, rows, columns) in [
        (1 << 20, 1 << 20, 1),  // a terabyte of one text
        (1 << 20, 1 << 10, 50), // the same, spread over columns
        (1, 1 << 15, 1_000),    // small cells, thirty million of them
    ] {
        let bytes = one_text_in_every_cell(length, rows, columns);
        let error = table(&bytes, Room(16 << 20)).unwrap_err();
        assert!(error.problem.contains("need more memory"), "{error:?}");
    }
}

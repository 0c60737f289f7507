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

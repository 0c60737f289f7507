//! CSV and TSV: a header line, then rows.
//!
//! `#` lines and blank lines above the header are skipped. The separator is the one of tab,
//! semicolon and comma that the header has most of. Short rows are padded with nothing; a row
//! with more fields than the header is refused, because its cells cannot be placed.

use crate::error::IngestError;
use crate::format::Format;
use crate::table::{Cell, Table};

/// Reads separated values; `separator` overrides what the header suggests.
pub(crate) fn read(
    file: &str,
    bytes: &[u8],
    separator: Option<u8>,
    format: Format,
) -> Result<Table, IngestError> {
    let text = String::from_utf8_lossy(bytes);
    let (skipped, body) = skip_comments(text.trim_start_matches('\u{feff}'));
    let malformed = |place: String, problem: String| IngestError::Malformed {
        file: file.to_owned(),
        format,
        place,
        problem,
    };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator.unwrap_or_else(|| sniff(body)))
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(body.as_bytes());
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => return Err(malformed(format!("line {}", skipped + 1), error.to_string())),
    };
    let mut table = Table::default();
    let places: Vec<usize> = unique(&header).iter().map(|name| table.declare(name)).collect();
    let mut record = csv::StringRecord::new();
    loop {
        let line = |record: &csv::StringRecord| {
            skipped + record.position().map_or(0, |position| position.line() as usize)
        };
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(table),
            Err(error) => {
                return Err(malformed(format!("line {}", line(&record)), error.to_string()));
            }
        }
        if record.len() > places.len() {
            let problem =
                format!("{} fields under a header of {} columns", record.len(), places.len());
            return Err(malformed(format!("line {}", line(&record)), problem));
        }
        table.push_row(line(&record));
        for (field, place) in record.iter().zip(&places) {
            if let Some(cell) = Cell::parse(field) {
                table.set_at(*place, cell);
            }
        }
    }
}

/// The column names, if the text begins like a table of at least two columns and one row.
pub(crate) fn header(text: &str) -> Option<Vec<String>> {
    let (_, body) = skip_comments(text);
    let (first, rest) = body.split_once('\n')?;
    let separator = sniff(body);
    let count = |line: &str| line.bytes().filter(|byte| *byte == separator).count();
    // Prose has commas too, but not the same number of them in the next line.
    let second = rest.lines().find(|line| !line.trim().is_empty())?;
    let alike = first.contains('"') || second.contains('"') || count(first) == count(second);
    if count(first) == 0 || !alike {
        return None;
    }
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .trim(csv::Trim::All)
        .from_reader(first.as_bytes());
    Some(reader.headers().ok()?.iter().map(str::to_owned).collect())
}

/// Lines above the header, counted, and the text from the header on.
fn skip_comments(text: &str) -> (usize, &str) {
    let mut body = text;
    let mut skipped = 0;
    while let Some((line, rest)) = body.split_once('\n') {
        if !(line.trim().is_empty() || line.starts_with('#')) {
            break;
        }
        body = rest;
        skipped += 1;
    }
    (skipped, body)
}

fn sniff(body: &str) -> u8 {
    let first = body.lines().next().unwrap_or_default();
    let count = |separator: u8| first.bytes().filter(|byte| *byte == separator).count();
    // `max_by_key` keeps the last of equals: comma wins a tie.
    [b'\t', b';', b','].into_iter().max_by_key(|separator| count(*separator)).unwrap_or(b',')
}

/// Names for all columns: empty ones (pandas writes its index so) and repeated ones get a number.
fn unique(header: &csv::StringRecord) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let mut names = Vec::with_capacity(header.len());
    for (index, field) in header.iter().enumerate() {
        let mut name =
            if field.is_empty() { format!("column {}", index + 1) } else { field.to_owned() };
        if !seen.insert(name.clone()) {
            name = format!("{name} (column {})", index + 1);
            seen.insert(name.clone());
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_csv(text: &str) -> Result<Table, IngestError> {
        read("t.csv", text.as_bytes(), None, Format::Csv)
    }

    #[test]
    fn comments_above_the_header_are_skipped_and_lines_still_count() {
        let table = read_csv("# from figure 1\n#\nstep,acc\n1,0.5\n2,\n3,nan\n").unwrap();
        assert_eq!(table.names(), ["step", "acc"]);
        assert_eq!(table.line(0), 4);
        let acc: Vec<_> = table.column("acc").unwrap().numbers().collect();
        assert_eq!(acc[0], (0, 0.5));
        assert_eq!(acc[1].0, 2);
        assert!(acc[1].1.is_nan());
    }

    #[test]
    fn tabs_and_semicolons_are_found_by_looking() {
        for text in ["a\tb\n1\t2\n", "a;b\n1;2\n", "a,b\n1,2\n", "\u{feff}a,b\r\n1,2\r\n"] {
            let table = read_csv(text).unwrap();
            assert_eq!(table.column("b").unwrap().number(0), Some(2.0), "{text:?}");
        }
    }

    #[test]
    fn a_row_with_too_many_fields_is_refused_by_line() {
        let error = read_csv("a,b\n1,2\n1,2,3\n").unwrap_err();
        assert!(error.to_string().contains("line 3: 3 fields"), "{error}");
    }

    #[test]
    fn repeated_and_empty_names_stay_apart() {
        let table = read_csv(",a,a\n0,1,2\n").unwrap();
        assert_eq!(table.names(), ["column 1", "a", "a (column 3)"]);
    }

    #[test]
    fn prose_is_not_a_table() {
        assert_eq!(header("Dear all, hello\nthis is, as they say, prose\n"), None);
        assert_eq!(header("a,b\n1,2\n").unwrap(), ["a", "b"]);
    }
}

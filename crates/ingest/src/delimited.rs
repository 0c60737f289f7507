//! CSV and TSV: a header line, then rows.
//!
//! `#` lines and blank lines above the header are skipped. The separator is the one of tab,
//! semicolon and comma that the header has most of. Short rows are padded with nothing; a row
//! with more fields than the header is refused, because its cells cannot be placed.
//!
//! Where commas do not separate, they may be decimal: `0,25`, and then points group thousands
//! (`1.234,5`). Percentages (`20.1 %`) are read as shares. Both are said in the notes.

use std::borrow::Cow;

use crate::error::IngestError;
use crate::format::Format;
use crate::table::{Cell, Table};

/// Reads separated values; `separator` overrides what the header suggests. The notes say what was
/// read in another way than it is written.
pub(crate) fn read(
    file: &str,
    bytes: &[u8],
    separator: Option<u8>,
    format: Format,
) -> Result<(Table, Vec<String>), IngestError> {
    let text = String::from_utf8_lossy(bytes);
    let (skipped, body) = skip_comments(text.trim_start_matches('\u{feff}'));
    let malformed = |place: String, problem: String| IngestError::Malformed {
        file: file.to_owned(),
        format,
        place,
        problem,
    };
    let separator = separator.unwrap_or_else(|| sniff(body));
    let has_decimal_commas = separator != b',' && has_decimal_commas(body, separator);
    let mut percentages = 0_usize;
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .flexible(true)
        .trim(csv::Trim::Headers)
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
            Ok(false) => return Ok((table, notes(has_decimal_commas, percentages))),
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
        for (field, place) in record.iter().map(str::trim).zip(&places) {
            percentages += usize::from(field.ends_with('%'));
            let cell = if has_decimal_commas {
                Cell::parse(&with_decimal_point(field))
            } else {
                Cell::parse(field)
            };
            if let Some(cell) = cell {
                table.set_at(*place, cell);
            }
        }
    }
}

fn notes(has_decimal_commas: bool, percentages: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if has_decimal_commas {
        notes.push("Commas in numbers were read as decimal points.".to_owned());
    }
    if percentages > 0 {
        notes.push(format!("{percentages} percentages were read as shares: 20.1 % is 0.201."));
    }
    notes
}

/// Rows that are looked at for decimal commas.
const LOOKED_AT: usize = 200;

/// Whether some field is a number with a comma in it.
fn has_decimal_commas(body: &str, separator: u8) -> bool {
    let rows = body.lines().skip(1).take(LOOKED_AT);
    rows.flat_map(|row| row.split(char::from(separator))).any(|field| {
        let field = field.trim().trim_matches('"').trim_end_matches('%').trim_end();
        field.matches(',').count() == 1
            && crate::table::number(&with_decimal_point(field)).is_some()
    })
}

/// `1.234,5` as `1234.5`; other text as it is.
fn with_decimal_point(field: &str) -> Cow<'_, str> {
    let (whole, decimals) = match field.split_once(',') {
        Some((whole, decimals)) => (whole, Some(decimals)),
        None => (field, None),
    };
    let digits = whole.trim_start_matches(['+', '-']);
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match decimals {
        Some(decimals) if is_plain || is_grouped(digits) => {
            format!("{}.{decimals}", whole.replace('.', "")).into()
        }
        None if is_grouped(digits) => whole.replace('.', "").into(),
        _ => field.into(),
    }
}

/// Digits in groups of three with points between: 1.234.567.
fn is_grouped(digits: &str) -> bool {
    let mut groups = digits.split('.');
    let first = groups.next().unwrap_or_default();
    let is_number = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && is_number(first)
        && digits.contains('.')
        && groups.all(|group| group.len() == 3 && is_number(group))
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
        read("t.csv", text.as_bytes(), None, Format::Csv).map(|(table, _)| table)
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
    fn commas_are_decimal_where_they_do_not_separate() {
        let text = "tokens;acc;note\n1.000;0,25;a, b\n12.500,5;20,1 %;c\n";
        let (table, notes) = read("t.csv", text.as_bytes(), None, Format::Csv).unwrap();
        let numbers = |name: &str| -> Vec<f64> {
            table.column(name).unwrap().numbers().map(|(_, value)| value).collect()
        };
        assert_eq!(numbers("tokens"), [1000.0, 12500.5]);
        assert_eq!(numbers("acc"), [0.25, 0.201]);
        assert!(table.column("note").unwrap().is_text());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("decimal") && notes[1].contains("1 percentages"), "{notes:?}");
    }

    #[test]
    fn points_stay_decimal_in_files_without_decimal_commas() {
        let (table, notes) = read("t.csv", b"a;b\n1.234;0.500\n", None, Format::Csv).unwrap();
        assert_eq!(table.column("a").unwrap().number(0), Some(1.234));
        assert_eq!((table.column("b").unwrap().number(0), notes.len()), (Some(0.5), 0));
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

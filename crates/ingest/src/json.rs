//! JSON lines: one object per line, nested objects flattened with `/`.
//!
//! prime-rl's `metrics.jsonl` is the same with fixed names: `step` (null for samples taken by the
//! clock), `time` in Unix seconds, metrics flat beside them.
//!
//! Python writes `NaN` and `Infinity`, which are not JSON; they are read as numbers. A last line
//! that was cut off is left out with a note, a broken line elsewhere is an error.

use serde_json::{Map, Value};

use crate::error::IngestError;
use crate::format::Format;
use crate::table::{Cell, Table};

/// Nested deeper than this is data, not a metric.
const DEEPEST: usize = 8;

/// Whether the text is JSON objects, one per line or in an array.
pub(crate) fn looks_like(text: &str) -> bool {
    if text.starts_with('[') {
        return matches!(parse(text), Ok(Value::Array(rows)) if rows.iter().any(Value::is_object));
    }
    let first = text.lines().next().unwrap_or_default();
    matches!(parse(first), Ok(Value::Object(_))) || matches!(parse(text), Ok(Value::Object(_)))
}

/// Whether the first line has prime-rl's two fixed keys.
pub(crate) fn is_prime_rl(text: &str) -> bool {
    let first = parse(text.lines().next().unwrap_or_default());
    matches!(&first, Ok(Value::Object(row)) if row.contains_key("step")
        && row.get("time").is_some_and(Value::is_number))
}

/// Reads objects into rows; the notes say what was left out.
pub(crate) fn read(
    file: &str,
    bytes: &[u8],
    format: Format,
) -> Result<(Table, Vec<String>), IngestError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}');
    let mut table = Table::default();
    let mut notes = Vec::new();
    if let Some(Ok(whole)) = is_one_value(text).then(|| parse(text)) {
        let rows = if let Value::Array(rows) = whole { rows } else { vec![whole] };
        for (index, row) in rows.iter().enumerate() {
            if let Value::Object(row) = row {
                push(&mut table, index + 1, row);
            }
        }
        return Ok((table, notes));
    }
    let lines: Vec<(usize, &str)> =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    for (order, (index, line)) in lines.iter().enumerate() {
        let problem = match parse(line) {
            Ok(Value::Object(row)) => {
                push(&mut table, index + 1, &row);
                continue;
            }
            Ok(_) => "not a JSON object".to_owned(),
            Err(error) => error,
        };
        if order + 1 == lines.len() && order > 0 && !text.ends_with('\n') {
            notes.push(format!("The last line ({}) is cut off and was left out.", index + 1));
            continue;
        }
        let place = format!("line {}", index + 1);
        return Err(IngestError::Malformed { file: file.to_owned(), format, place, problem });
    }
    Ok((table, notes))
}

/// An array, or one object spread over several lines.
fn is_one_value(text: &str) -> bool {
    let text = text.trim();
    let first = text.lines().next().unwrap_or_default();
    text.starts_with('[') || (text.starts_with('{') && parse(first).is_err())
}

/// Adds an object as a row.
pub(crate) fn push(table: &mut Table, line: usize, row: &Map<String, Value>) {
    table.push_row(line);
    flatten(table, "", row, DEEPEST);
}

fn flatten(table: &mut Table, prefix: &str, object: &Map<String, Value>, deeper: usize) {
    for (key, value) in object {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}/{key}") };
        let cell = match value {
            Value::Number(number) => number.as_f64().map(Cell::Number),
            Value::String(text) => Cell::parse(text),
            Value::Bool(truth) => Some(Cell::Number(f64::from(u8::from(*truth)))),
            Value::Object(inner) if deeper > 0 => {
                flatten(table, &name, inner, deeper - 1);
                None
            }
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        if let Some(cell) = cell {
            table.set(&name, cell);
        }
    }
}

/// Parses JSON as Python writes it.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) if text.contains("NaN") || text.contains("Infinity") => {
            serde_json::from_str(&quote_non_finite(text)).map_err(|_| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Puts quotes around bare `NaN`, `Infinity` and `-Infinity`.
fn quote_non_finite(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut in_string = false;
    while let Some(first) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word));
        if let (false, Some(word)) = (in_string, word) {
            quoted.push('"');
            quoted.push_str(word);
            quoted.push('"');
            rest = &rest[word.len()..];
            continue;
        }
        // An escaped character inside a string is copied with its backslash.
        let escaped = if in_string && first == '\\' { rest.chars().nth(1) } else { None };
        in_string ^= first == '"';
        let length = first.len_utf8() + escaped.map_or(0, char::len_utf8);
        quoted.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_lines(text: &str) -> Result<(Table, Vec<String>), IngestError> {
        read("m.jsonl", text.as_bytes(), Format::Jsonl)
    }

    #[test]
    fn nested_objects_become_paths_and_lists_are_left_out() {
        let (table, _) = read_lines(
            "{\"step\":1,\"eval\":{\"gsm8k\":{\"acc\":0.5}},\"tags\":[1,2],\"ok\":true}\n\
             {\"step\":2,\"text\":\"a\",\"score\":\"0.25\"}\n",
        )
        .unwrap();
        assert_eq!(table.column("eval/gsm8k/acc").unwrap().number(0), Some(0.5));
        assert_eq!(table.column("score").unwrap().number(1), Some(0.25));
        assert_eq!(table.column("ok").unwrap().number(0), Some(1.0));
        assert!(table.column("tags").is_none());
    }

    #[test]
    fn not_a_number_as_python_writes_it_is_a_number_cell() {
        let (table, _) =
            read_lines("{\"a\":NaN,\"b\":\"say \\\"NaN\\\"\",\"c\":-Infinity}\n").unwrap();
        assert!(table.column("a").unwrap().number(0).unwrap().is_nan());
        assert_eq!(table.column("c").unwrap().number(0), Some(f64::NEG_INFINITY));
        assert_eq!(table.column("b").unwrap().get(0), Some(&Cell::Text("say \"NaN\"".into())));
    }

    #[test]
    fn a_cut_last_line_is_noted_and_a_broken_line_before_it_is_an_error() {
        let (table, notes) = read_lines("{\"a\":1}\n{\"a\":2}\n{\"a\":").unwrap();
        assert_eq!(table.row_count(), 2);
        assert!(notes[0].contains("cut off"));
        let error = read_lines("{\"a\":1}\n{\"a\":\n{\"a\":3}\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn an_array_of_objects_is_a_table_too() {
        let (table, _) = read_lines("[\n {\"a\": 1},\n {\"a\": 2}\n]\n").unwrap();
        assert_eq!(table.column("a").unwrap().number(1), Some(2.0));
    }
}

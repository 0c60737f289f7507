//! `trainer_state.json` of Hugging Face's Trainer, as TRL writes it too.
//!
//! The rows are `log_history`; evaluations are the rows with `eval_…` keys. Two axes are derived:
//! the Trainer keeps `total_flos` only as one final number, so operations are spread evenly over
//! the steps; TRL's `step_time` (mean seconds per step since the last log) is left to
//! `compute.rs`, which sums it.

use serde_json::Value;

use crate::error::IngestError;
use crate::format::Format;
use crate::json;
use crate::table::{Cell, Table};

/// The column of derived operations.
const FLOPS: &str = "total_flops";

/// Whether the text is one object with a `log_history`.
pub(crate) fn looks_like(text: &str) -> bool {
    text.contains("\"log_history\"") && matches!(json::parse(text), Ok(Value::Object(_)))
}

/// Reads the log history into rows.
pub(crate) fn read(file: &str, bytes: &[u8]) -> Result<(Table, Vec<String>), IngestError> {
    let malformed = |place: &str, problem: &str| IngestError::Malformed {
        file: file.to_owned(),
        format: Format::TrainerState,
        place: place.to_owned(),
        problem: problem.to_owned(),
    };
    let text = String::from_utf8_lossy(bytes);
    let state = json::parse(text.trim_start_matches('\u{feff}'))
        .map_err(|error| malformed("JSON", &error))?;
    let history = state
        .get("log_history")
        .and_then(Value::as_array)
        .ok_or_else(|| malformed("log_history", "missing or not a list"))?;
    let flops_per_step = flops_per_step(&state);
    let mut table = Table::default();
    for (index, row) in history.iter().enumerate() {
        let Value::Object(row) = row else {
            return Err(malformed(&format!("log_history[{index}]"), "not an object"));
        };
        let mut row = row.clone();
        // Only the closing summary has it, where it would make an axis of one point.
        row.remove("total_flos");
        json::push(&mut table, index + 1, &row);
        if let (Some(rate), Some(step)) = (flops_per_step, row.get("step").and_then(Value::as_f64))
        {
            table.set(FLOPS, Cell::Number(rate * step));
        }
    }
    let mut notes = Vec::new();
    if flops_per_step.is_some() {
        notes.push(format!(
            "`{FLOPS}` is derived: the file's final total_flos, spread evenly over the steps."
        ));
    }
    Ok((table, notes))
}

fn flops_per_step(state: &Value) -> Option<f64> {
    let number = |key: &str| state.get(key).and_then(Value::as_f64).filter(|value| *value > 0.0);
    // RL trainers of TRL leave total_flos at zero; then there is nothing to spread.
    Some(number("total_flos")? / number("global_step")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_are_spread_over_the_steps() {
        let text = r#"{"global_step": 10, "total_flos": 1e15, "log_history": [
            {"step": 5, "loss": NaN}, {"step": 5, "eval_accuracy": 0.4},
            {"step": 10, "total_flos": 1e15, "train_runtime": 60.0}]}"#;
        let (table, notes) = read("s.json", text.as_bytes()).unwrap();
        assert_eq!(table.column(FLOPS).unwrap().number(1), Some(5e14));
        assert!(table.column("total_flos").is_none());
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn a_file_without_history_is_refused() {
        let error = read("s.json", br#"{"log_history": 3}"#).unwrap_err();
        assert!(error.to_string().contains("log_history"), "{error}");
    }
}

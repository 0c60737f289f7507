//! Sample completions as a table: the columns, in one order for every tracker.

use scalerl_journal::Sample;
use serde_json::{Value, json};

/// Names of the columns.
pub(crate) const COLUMNS: [&str; 9] =
    ["step", "set", "prompt", "question", "answer", "completion", "reward", "tokens", "finish"];

/// One line of the table.
pub(crate) fn cells(step: u64, sample: &Sample) -> [Value; 9] {
    let reward = sample.reward.map_or(Value::Null, |reward| json!(reward.value));
    let finish = serde_json::to_value(sample.finish).unwrap_or_default();
    [
        json!(step),
        json!(sample.set),
        json!(sample.prompt.0),
        json!(sample.prompt_text),
        json!(sample.answer),
        json!(sample.completion),
        reward,
        json!(sample.tokens),
        finish,
    ]
}

/// Columns and lines, as W&B and MLflow keep tables in files.
pub(crate) fn table(step: u64, samples: &[Sample]) -> Value {
    let data: Vec<_> = samples.iter().map(|sample| cells(step, sample)).collect();
    json!({ "columns": COLUMNS, "data": data })
}

//! Axes chosen and summed on tables as the frameworks write them.

use super::*;
use crate::table::Cell;

fn log(columns: &[(&str, &[f64])]) -> Log {
    let mut table = Table::default();
    for row in 0..columns[0].1.len() {
        table.push_row(row + 1);
        for (name, values) in columns {
            // NaN stands for a missing cell here.
            if !values[row].is_nan() {
                table.set(name, Cell::Number(values[row]));
            }
        }
    }
    Log { name: "log".into(), file: "log".into(), table, ..Log::default() }
}

fn values(log: &Log, request: &Request) -> (ComputeAxis, Vec<Option<f64>>) {
    let rows: Vec<u32> = (0..log.table.row_count()).collect();
    let compute = ComputeAxis::choose(log, &rows, request).unwrap();
    let values = compute.values(&log.table, &rows);
    let at = rows.iter().map(|row| values.at(*row)).collect();
    (compute, at)
}

const NONE: f64 = f64::NAN;

#[test]
fn validation_and_checkpoint_time_are_taken_out_of_the_step() {
    let log = log(&[
        ("step", &[0.0, 1.0, 2.0]),
        ("timing_s/step", &[NONE, 3600.0, 7200.0]),
        ("timing_s/testing", &[NONE, NONE, 1800.0]),
        ("timing_s/save_checkpoint", &[NONE, NONE, 1800.0]),
    ]);
    let (compute, at) = values(&log, &Request { gpus: Some(8.0), ..Request::default() });
    assert_eq!(compute.axis, Axis::GpuHours);
    assert_eq!(at, [Some(0.0), Some(8.0), Some(16.0)]);
    assert!(compute.notes[0].contains("taken out"), "{:?}", compute.notes);
}

#[test]
fn validation_that_lies_outside_the_step_is_not_taken_out() {
    // Newer verl: checkpoints inside the step, validation after it.
    let log = log(&[
        ("step", &[1.0, 2.0, 3.0, 4.0]),
        ("timing_s/gen", &[1800.0, 1700.0, 1900.0, 1800.0]),
        ("timing_s/update_actor", &[1800.0; 4]),
        ("timing_s/testing", &[NONE, 900.0, NONE, 900.0]),
        ("timing_s/save_checkpoint", &[NONE, NONE, NONE, 600.0]),
        ("timing_s/step", &[3600.0, 3500.0, 3700.0, 4200.0]),
    ]);
    let (compute, at) = values(&log, &Request { gpus: Some(1.0), ..Request::default() });
    assert_eq!(at[3], Some(4.0));
    assert!(compute.notes[0].contains("(timing_s/save_checkpoint) taken out"));
    assert!(compute.notes[0].contains("timing_s/testing lies outside"), "{:?}", compute.notes);
}

#[test]
fn without_a_whole_the_parts_are_summed_and_testing_is_not_one() {
    let log = log(&[
        ("step", &[1.0, 2.0]),
        ("timing/gen", &[1800.0, 1800.0]),
        ("timing/update_actor", &[1800.0, 1800.0]),
        ("timing/testing", &[NONE, 9999.0]),
    ]);
    let (_, at) = values(&log, &Request { gpus: Some(1.0), ..Request::default() });
    assert_eq!(at, [Some(1.0), Some(2.0)]);
}

#[test]
fn a_sampled_history_counts_the_steps_between_its_rows() {
    let log = log(&[("_step", &[1.0, 5.0, 9.0]), ("perf/total_num_tokens", &[100.0, 100.0, 50.0])]);
    let (compute, at) = values(&log, &Request { x: Some("tokens".into()), ..Request::default() });
    assert_eq!(compute.axis, Axis::Tokens);
    assert_eq!(at, [Some(100.0), Some(500.0), Some(700.0)]);
}

#[test]
fn the_clock_gives_gpu_hours_only_when_the_gpus_are_known() {
    let log = log(&[("step", &[1.0, 2.0]), ("wall_time", &[1.7e9, 1.7e9 + 7200.0])]);
    let (steps, _) = values(&log, &Request::default());
    assert_eq!(steps.axis, Axis::Steps);
    let (hours, at) = values(&log, &Request { gpus: Some(2.0), ..Request::default() });
    assert_eq!(hours.axis, Axis::GpuHours);
    assert_eq!(at, [Some(0.0), Some(4.0)]);
    let asked = Request { x: Some("gpu_hours".into()), ..Request::default() };
    let error = ComputeAxis::choose(&log, &[0, 1], &asked).unwrap_err();
    assert!(matches!(error, IngestError::NeedsGpus { .. }), "{error}");
}

#[test]
fn amounts_per_step_are_not_mistaken_for_a_running_total() {
    let log = log(&[("step", &[1.0, 2.0, 3.0]), ("tokens", &[90.0, 100.0, 80.0])]);
    let (compute, _) = values(&log, &Request::default());
    assert_eq!(compute.axis, Axis::Steps);
    let (chosen, _) = values(&log, &Request { x: Some("Tokens".into()), ..Request::default() });
    assert_eq!(chosen.name, "tokens", "an explicit choice is trusted");
}

#[test]
fn an_unknown_column_is_answered_with_what_is_there() {
    let log = log(&[("gpu_hours", &[1.0]), ("acc", &[0.5])]);
    let asked = Request { x: Some("gpu_huors".into()), ..Request::default() };
    let error = ComputeAxis::choose(&log, &[0], &asked).unwrap_err().to_string();
    assert!(error.contains("did you mean `gpu_hours`"), "{error}");
    assert!(error.contains("columns: gpu_hours, acc"), "{error}");
}

//! Restarts, cuts and joins of verl logs, on small logs in the two spellings.

use super::*;

fn logs(texts: &[&str]) -> Vec<Log> {
    let parsed = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            VerlLog::parse(&format!("log{index}"), "log", text.as_bytes()).unwrap()
        })
        .collect();
    join(parsed)
}

fn column(log: &Log, name: &str) -> Vec<f64> {
    log.table.column(name).unwrap().numbers().map(|(_, value)| value).collect()
}

const NEW: &str = "step:0 - val-core/a/acc/mean@1:0.1\n\
    step:1 - loss:1 - timing_s/step:10 - perf/throughput:5\n\
    step:2 - loss:1 - val-core/a/acc/mean@1:0.2 - timing_s/step:30 - perf/throughput:5\n";

#[test]
fn a_restart_keeps_the_later_steps() {
    let text = format!(
        "{NEW}step:3 - loss:1 - timing_s/step:10 - perf/throughput:5\n\
         step:2 - loss:2 - val-core/a/acc/mean@1:0.3 - timing_s/step:40 - perf/throughput:5\n"
    );
    let log = &logs(&[&text])[0];
    assert_eq!(column(log, "step"), [0.0, 1.0, 2.0]);
    assert_eq!(column(log, "val-core/a/acc/mean@1"), [0.1, 0.3]);
    assert!(log.notes.iter().any(|note| note.contains("2 steps were repeated")), "{:?}", log.notes);
}

#[test]
fn a_validation_before_a_resumed_training_keeps_the_step_it_belongs_to() {
    let text = format!(
        "{NEW}step:2 - val-core/a/acc/mean@1:0.25\n\
         step:3 - loss:1 - timing_s/step:10 - perf/throughput:5\n"
    );
    let log = &logs(&[&text])[0];
    assert_eq!(column(log, "timing_s/step"), [10.0, 30.0, 10.0]);
    assert_eq!(column(log, "val-core/a/acc/mean@1"), [0.1, 0.25]);
    assert_eq!(log.notes, Vec::<String>::new());
}

#[test]
fn a_log_that_begins_later_continues_the_one_before_it() {
    let later = "step:3 - loss:1 - timing_s/step:10 - perf/throughput:5\n";
    let joined = logs(&[NEW, later]);
    assert_eq!(joined.len(), 1);
    assert_eq!(joined[0].name, "log0");
    assert_eq!(column(&joined[0], "step"), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(logs(&[NEW, NEW]).len(), 2, "a fresh run stays a run of its own");
    let alone = logs(&[later]);
    assert!(alone[0].notes[0].contains("begins at step 3"), "{:?}", alone[0].notes);
}

#[test]
fn a_line_cut_at_the_end_of_the_file_is_left_out() {
    let text = format!("{NEW}step:3 - loss:1 - val-core/a/acc/mean@1:0.4 - timing_s/st");
    let log = &logs(&[&text])[0];
    assert_eq!(column(log, "step"), [0.0, 1.0, 2.0]);
    assert!(log.notes[0].contains("Step 3 is cut off"), "{:?}", log.notes);
    let whole = logs(&[NEW.trim_end()]);
    assert_eq!(column(&whole[0], "step"), [0.0, 1.0, 2.0], "a missing newline alone is no cut");
}

#[test]
fn steps_counted_from_zero_become_updates_done() {
    let text = "\"Initial validation metrics: {'test_score/a': 0.05}\"\n\
        step:0 - timing/gen:1 - x:0\nstep:1 - timing/gen:1 - val/test_score/a:0.1 - x:0\n\
        step:2 - timing/gen:1 - x:0\n\"Final validation metrics: {'test_score/a': 0.2}\"\n";
    let log = &logs(&[text])[0];
    assert_eq!(column(log, "step"), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(column(log, "val/test_score/a"), [0.05, 0.1]);
    assert!(log.notes.iter().any(|note| note.contains("test_score/a 0.2000")), "{:?}", log.notes);
}

#[test]
fn a_file_without_step_lines_is_refused() {
    let error = VerlLog::parse("x", "x.log", b"nothing here\n").unwrap_err();
    assert!(error.to_string().contains("step:N"), "{error}");
}

//! Laws that hold for every table: what is written is read back, wherever it is cut.

use proptest::collection::vec;
use proptest::prelude::*;
use scalerl_ingest::{Axis, Format, Request, Run, read, read_bytes};

/// Evaluations of one run: compute (rising is not required) and pass rate, sometimes missing.
fn evaluations() -> impl Strategy<Value = Vec<(f64, Option<f64>)>> {
    let value = prop_oneof![4 => (0.0..1.0).prop_map(Some), 1 => Just(None)];
    vec((0.0..1e6, value), 1..40)
        .prop_filter("at least one value", |rows| rows.iter().any(|row| row.1.is_some()))
}

fn points_of(rows: &[(f64, Option<f64>)]) -> Vec<(u64, u64)> {
    let present = rows.iter().filter_map(|(compute, value)| Some((*compute, (*value)?)));
    present.map(|(compute, value)| (compute.to_bits(), value.to_bits())).collect()
}

fn points(run: &Run) -> Vec<(u64, u64)> {
    run.points.iter().map(|point| (point.compute.0.to_bits(), point.value.to_bits())).collect()
}

fn separated(rows: &[(f64, Option<f64>)], name: &str, separator: u8) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().delimiter(separator).from_writer(Vec::new());
    writer.write_record(["run", "gpu_hours", "pass_rate"]).expect("memory takes it");
    for (compute, value) in rows {
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        writer.write_record([name, &compute.to_string(), &value]).expect("memory takes it");
    }
    writer.into_inner().expect("memory takes it")
}

/// A verl log as the newer versions write it: seconds of training, of validation, and values.
fn verl_lines(steps: &[(f64, f64, f64)]) -> Vec<String> {
    steps
        .iter()
        .enumerate()
        .map(|(index, (training, testing, value))| {
            format!(
                "(T pid=1) step:{} - actor/loss:0.1 - val-core/set/acc/mean@1:{value} - \
                 timing_s/testing:{testing} - timing_s/step:{} - perf/throughput:1\n",
                index + 1,
                training + testing
            )
        })
        .collect()
}

proptest! {
    #[test]
    fn a_separated_table_is_read_back_exactly(
        rows in evaluations(),
        name in "[a-z][a-z0-9 ,;\"'-]{0,12}[a-z]",
        separator in prop_oneof![Just(b','), Just(b';'), Just(b'\t')],
    ) {
        let bytes = separated(&rows, &name, separator);
        let runs = read_bytes("table", &bytes, &Request::default()).unwrap();
        prop_assert_eq!(runs.len(), 1);
        prop_assert_eq!(&runs[0].name, &name);
        prop_assert_eq!(points(&runs[0]), points_of(&rows));
    }

    #[test]
    fn json_lines_are_read_back_exactly(rows in evaluations()) {
        let text: String = rows
            .iter()
            .map(|(compute, value)| {
                serde_json::json!({"gpu_hours": compute, "eval": {"set": {"accuracy": value}}})
                    .to_string() + "\n"
            })
            .collect();
        let runs = read_bytes("lines", text.as_bytes(), &Request::default()).unwrap();
        prop_assert_eq!(&runs[0].metric, "eval/set/accuracy");
        prop_assert_eq!(points(&runs[0]), points_of(&rows));
    }

    #[test]
    fn a_table_cut_into_two_files_is_one_run(rows in evaluations(), cut in 0.0..1.0) {
        let cut = (cut * rows.len() as f64) as usize;
        prop_assume!(rows[..cut].iter().any(|row| row.1.is_some()));
        prop_assume!(rows[cut..].iter().any(|row| row.1.is_some()));
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.csv"), folder.path().join("b.csv")];
        std::fs::write(&paths[0], separated(&rows[..cut], "x", b',')).unwrap();
        std::fs::write(&paths[1], separated(&rows[cut..], "x", b',')).unwrap();
        let runs = read(&paths, &Request::default()).unwrap();
        prop_assert_eq!(runs.len(), 1);
        prop_assert_eq!(points(&runs[0]), points_of(&rows));
    }

    #[test]
    fn gpu_hours_of_verl_are_the_training_seconds_wherever_the_log_is_cut(
        steps in vec((1.0..500.0, 0.0..200.0, 0.0..1.0), 2..30),
        cut in 0.0..1.0,
        repeated in 0_usize..3,
    ) {
        let gpus = 8.0;
        let lines = verl_lines(&steps);
        let cut = 1 + (cut * (lines.len() - 1) as f64) as usize;
        // The second file repeats some steps, as after a restart from a checkpoint.
        let again = cut.saturating_sub(repeated).max(1);
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.log"), folder.path().join("b.log")];
        std::fs::write(&paths[0], lines[..cut].concat()).unwrap();
        std::fs::write(&paths[1], lines[again..].concat()).unwrap();
        let request = Request { gpus: Some(gpus), ..Request::default() };
        let runs = if again < lines.len() { read(&paths, &request) } else { read(&paths[..1], &request) };
        let runs = runs.unwrap();
        prop_assert_eq!(runs.len(), 1);
        prop_assert_eq!(runs[0].axis, Axis::GpuHours);
        prop_assert_eq!(runs[0].points.len(), steps.len());
        let mut seconds = 0.0;
        for (point, (training, _, value)) in runs[0].points.iter().zip(&steps) {
            seconds += training;
            prop_assert!((point.compute.0 - seconds * gpus / 3600.0).abs() < 1e-9 * seconds);
            prop_assert_eq!(point.value.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in vec(any::<u8>(), 0..400)) {
        for format in Format::all() {
            let request = Request { format: Some(*format), gpus: Some(1.0), ..Request::default() };
            // Random bytes are no log; whatever is said about them, it must be said.
            let _ = read_bytes("bytes", &bytes, &request);
        }
        let _ = read_bytes("bytes", &bytes, &Request::default());
    }
}

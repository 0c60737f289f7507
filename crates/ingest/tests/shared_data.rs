//! The real logs and curves, where the folder with them lies beside the project.
//!
//! They are not part of the repository; without them these tests say so and pass.

use std::path::{Path, PathBuf};

use scalerl_ingest::{Axis, Request, Run, read};

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {name} is not there");
    None
}

fn runs(name: &str, request: &Request) -> Option<Vec<Run>> {
    shared(name).map(|path| read(&[path], request).expect(name))
}

#[test]
fn the_old_verl_log_has_44_validations_and_8_gpu_hours() {
    let request = Request { gpus: Some(1.0), ..Request::default() };
    let Some(runs) = runs("logs/verl_ppo_qwen2.5-0.5b_gsm8k.log", &request) else { return };
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(run.axis, Axis::GpuHours);
    assert_eq!(run.points.len(), 44);
    assert_eq!(run.points[0].compute.0.to_bits(), 0.0_f64.to_bits());
    assert!((run.points[1].compute.0 - 0.185_685).abs() < 1e-6, "{:?}", run.points[1]);
    let last = run.points[43];
    assert!((last.compute.0 - 7.916_870_6).abs() < 1e-6, "{last:?}");
    assert!((last.value - 0.543).abs() < 1e-9, "{last:?}");
}

#[test]
fn the_new_verl_log_has_two_sets_and_knows_its_gpus() {
    let Some(runs) = runs("logs/verl_gpg_qwen2-7b_gsm8k_math.log", &Request::default()) else {
        return;
    };
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let stem = "verl_gpg_qwen2-7b_gsm8k_math";
    assert_eq!(
        names,
        [format!("{stem}:openai/gsm8k"), format!("{stem}:DigitalLearningGmbH/MATH-lighteval")]
    );
    for run in &runs {
        assert_eq!(run.points.len(), 43);
        // Sum of timing_s/step - testing - save_checkpoint over the 210 lines × 8 / 3600, by a
        // few lines of Python. One checkpoint took six hours: with it 173 GPU-hours or more.
        let last = run.points[42].compute.0;
        assert!((last - 124.009_82).abs() < 1e-6, "{last}");
    }
}

#[test]
fn the_curves_are_read_without_being_told_anything() {
    let Some(paper) = runs("curves/scalerl_fig1_8b.csv", &Request::default()) else { return };
    assert_eq!(paper[0].axis, Axis::GpuHours);
    assert_eq!(paper.iter().map(|run| run.points.len()).sum::<usize>(), 34);
    let Some(qwen) = runs("curves/qwen3_gsm8k_grpo.csv", &Request::default()) else { return };
    assert_eq!((qwen.len(), qwen[0].axis), (2, Axis::Steps));
    let Some(gpg) = runs("curves/gpg_qwen2-7b_megatron.csv", &Request::default()) else { return };
    assert_eq!((gpg.len(), gpg[0].points.len(), gpg[0].axis), (1, 22, Axis::GpuHours));
}

#[test]
fn a_real_parquet_table_without_a_metric_is_answered_with_its_columns() {
    let Some(path) = shared("math/math_train.parquet") else { return };
    let error = read(&[path], &Request::default()).unwrap_err().to_string();
    assert!(error.contains("no column looks like a validation pass rate"), "{error}");
    assert!(error.contains("reward_model/ground_truth"), "{error}");
}

//! Each format read as a user would: by its file, recognised by content.

use std::path::{Path, PathBuf};

use scalerl_ingest::{Axis, Format, IngestError, Request, Run, read, read_bytes};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn runs(name: &str, request: &Request) -> Vec<Run> {
    read(&[testdata(name)], request).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn xy(run: &Run) -> Vec<(f64, f64)> {
    run.points.iter().map(|point| (point.compute.0, point.value)).collect()
}

fn assert_close(found: &[(f64, f64)], expected: &[(f64, f64)]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        assert!(near(found.0, expected.0) && near(found.1, expected.1), "{found:?} {expected:?}");
    }
}

fn on(axis: &str) -> Request {
    Request { x: Some(axis.to_owned()), ..Request::default() }
}

fn with_gpus(gpus: f64) -> Request {
    Request { gpus: Some(gpus), ..Request::default() }
}

#[test]
fn a_semicolon_table_splits_by_its_run_column_and_counts_samples() {
    let runs = runs("runs.csv", &Request::default());
    assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["small", "large"]);
    assert_eq!((runs[0].axis, runs[0].metric.as_str()), (Axis::GpuHours, "pass_rate"));
    assert_close(&xy(&runs[0]), &[(0.0, 0.20), (10.0, 0.31)]);
    assert_close(&xy(&runs[1]), &[(0.0, 0.30), (80.0, 0.52)]);
    assert_eq!(runs[0].points[0].samples, Some(16_000.0));
    assert!(runs[1].notes.iter().any(|note| note.starts_with("1 evaluations without a finite")));
}

#[test]
fn by_splits_by_any_column_and_a_wrong_name_lists_what_is_there() {
    let by = |name: &str| Request { by: Some(name.to_owned()), ..Request::default() };
    let runs = runs("runs.csv", &by("split"));
    assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["fit", "extended"]);
    let error = read(&[testdata("runs.csv")], &by("splt")).unwrap_err();
    assert!(error.to_string().contains("did you mean `split`?"), "{error}");
    assert!(error.to_string().contains("run, split, gpu_hours"), "{error}");
    let y = Request { y: Some("pas_rate".into()), ..Request::default() };
    let error = read(&[testdata("runs.csv")], &y).unwrap_err();
    assert!(error.to_string().contains("did you mean `pass_rate`?"), "{error}");
}

#[test]
fn a_wandb_chart_has_one_run_per_column() {
    let runs = runs("chart.csv", &Request::default());
    assert_eq!(
        runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["qwen3-1.7b", "qwen3-4b"]
    );
    assert_eq!(runs[0].axis, Axis::Steps);
    assert_close(&xy(&runs[1]), &[(0.0, 0.560_273), (4.0, 0.774_829)]);
}

#[test]
fn a_wandb_history_has_one_run_per_validation_set_and_hours_by_its_clock() {
    let runs = runs("history.csv", &with_gpus(8.0));
    assert_eq!(
        runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["history:math500", "history:gsm8k"]
    );
    assert_eq!(runs[0].axis, Axis::GpuHours);
    let hours = |seconds: f64| seconds * 8.0 / 3600.0;
    assert_close(&xy(&runs[1]), &[(hours(12.5), 0.52), (hours(732.5), 0.61)]);
    assert_eq!(runs[0].points[0].samples, Some(500.0));
    assert!(runs[0].notes.iter().any(|note| note.contains("clock time (`_runtime`")));
}

#[test]
fn nested_json_lines_carry_the_last_compute_to_the_evaluation() {
    let runs = runs("nested.jsonl", &Request::default());
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].metric, "eval/aime/pass@1");
    assert_eq!((runs[0].axis, runs[0].x.as_str()), (Axis::Tokens, "total_tokens"));
    // The first evaluation comes before any token count and has no compute.
    assert_close(&xy(&runs[0]), &[(1e6, 0.15), (2e6, 0.19)]);
    assert!(runs[0].notes.iter().any(|note| note.starts_with("1 evaluations without a compute")));
    assert_eq!(xy(&self::runs("nested.jsonl", &on("steps"))[0]).len(), 3);
}

#[test]
fn prime_rl_sums_its_step_times_without_checkpoints() {
    let runs = runs("metrics.jsonl", &with_gpus(16.0));
    assert_eq!(runs[0].metric, "eval/aime2024/avg@16");
    assert_eq!((runs[0].name.as_str(), runs[0].axis), ("metrics", Axis::GpuHours));
    let hours = |seconds: f64| seconds * 16.0 / 3600.0;
    assert_close(&xy(&runs[0]), &[(0.0, 0.081), (hours(660.0), 0.104), (hours(1020.0), 0.115)]);
    let tokens = &self::runs("metrics.jsonl", &on("tokens"))[0];
    assert_eq!(tokens.x, "progress/total_tokens");
}

#[test]
fn trainer_state_has_flops_tokens_steps_and_hours() {
    let flops = &runs("trainer_state.json", &Request::default())[0];
    assert_eq!(flops.metric, "eval_rewards/accuracy_reward/mean");
    assert_eq!(flops.axis, Axis::Flops);
    assert_close(&xy(flops)[..2], &[(1e17, 0.35), (2e17, 0.40)]);
    let tokens = &runs("trainer_state.json", &on("tokens"))[0];
    assert_close(&xy(tokens)[..1], &[(409_600.0, 0.35)]);
    let hours = &runs("trainer_state.json", &with_gpus(4.0))[0];
    assert_eq!(hours.axis, Axis::GpuHours);
    // 20 steps of 36 s on 4 GPUs; the first row speaks for the ten steps before it.
    assert_close(&xy(hours)[..1], &[(20.0 * 36.0 * 4.0 / 3600.0, 0.35)]);
}

#[test]
fn event_files_of_both_forms_are_read_and_a_folder_is_one_run() {
    let simple = &runs("tensorboard/simple", &with_gpus(10.0))[0];
    assert_eq!((simple.name.as_str(), simple.metric.as_str()), ("simple", "eval/gsm8k/accuracy"));
    assert_eq!(simple.points.len(), 10);
    assert_close(&xy(simple)[4..7], &[(4.0, 0.5), (5.0, 1.0625), (6.0, 0.625)]);
    assert!(simple.notes.iter().any(|note| note.contains("written twice")), "{:?}", simple.notes);
    let both = runs("tensorboard", &on("steps"));
    assert_eq!(
        both.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["tensorboard/simple", "tensorboard/tensor"]
    );
    assert_close(&xy(&both[1])[..2], &[(0.0, 0.25), (1.0, 0.3125)]);
}

#[test]
fn a_run_folder_is_one_run_on_any_axis_and_a_folder_of_them_is_several() {
    let folder = tempfile::tempdir().unwrap();
    let point = |step: u32, rate: f64| {
        format!(
            "{{\"run\":\"old-name\",\"step\":{step},\"gpu_hours\":{},\"tokens\":{},\"flops\":{},\
             \"pass_rate\":{rate},\"samples\":96}}\n",
            f64::from(step) / 4.0,
            step * 1000,
            f64::from(step) * 1e15
        )
    };
    let make = |path: &str, points: &[String]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("recipe.toml"), "").unwrap();
        std::fs::write(path.join("events.jsonl"), "").unwrap();
        if !points.is_empty() {
            std::fs::write(path.join("points.jsonl"), points.concat()).unwrap();
        }
        path
    };
    let first = make("a/run", &[point(0, 0.2), point(4, 0.4)]);
    let second = make("b/run", &[point(0, 0.2), point(8, 0.5)]);
    let empty = make("c", &[]);
    let run = &read(std::slice::from_ref(&first), &Request::default()).unwrap()[0];
    assert_eq!((run.name.as_str(), run.axis), ("run", Axis::GpuHours));
    assert_close(&xy(run), &[(0.0, 0.2), (1.0, 0.4)]);
    assert_eq!(run.points[1].samples, Some(96.0));
    for (axis, last) in [("tokens", 4000.0), ("flops", 4e15), ("steps", 4.0)] {
        let run = &read(std::slice::from_ref(&first), &on(axis)).unwrap()[0];
        assert_close(&xy(run)[1..], &[(last, 0.4)]);
    }
    let both = read(&[first, second], &Request::default()).unwrap();
    assert_eq!(both.len(), 2, "two folders of one name are two runs");
    let all = read(&[folder.path().to_owned()], &Request::default()).unwrap();
    let ends = |end: &str| all.iter().filter(|run| run.name.ends_with(end)).count();
    assert_eq!((all.len(), ends("a/run"), ends("b/run")), (2, 1, 1));
    let error = read(&[empty], &Request::default()).unwrap_err();
    assert!(matches!(error, IngestError::NoEvaluations { .. }), "{error}");
}

#[test]
fn parquet_is_a_table_like_any_other() {
    let runs = runs("snappy.parquet", &Request::default());
    assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["grpo", "dapo"]);
    assert_eq!((runs[0].axis, runs[0].x.as_str()), (Axis::GpuHours, "nested/gpu_hours"));
    assert_close(&xy(&runs[1])[..2], &[(0.0, 0.4), (1.0, 0.42)]);
}

#[test]
fn a_new_verl_log_has_one_run_per_set_and_takes_validation_out() {
    let runs = runs("verl_new.log", &Request::default());
    assert_eq!(
        runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["verl_new:openai/gsm8k", "verl_new:math"]
    );
    // 225 s of training per step on 16 GPUs is one GPU-hour.
    assert_close(&xy(&runs[0]), &[(0.0, 0.21), (2.0, 0.3), (4.0, 0.4), (6.0, 0.5)]);
    assert!(runs[0].notes.iter().any(|note| note.starts_with("16 GPUs, as the log's")));
    let tokens = &self::runs("verl_new.log", &on("tokens"))[0];
    assert_close(&xy(tokens)[..2], &[(0.0, 0.21), (4e6, 0.3)]);
}

#[test]
fn an_old_verl_log_sums_its_parts_and_counts_updates() {
    let error = read(&[testdata("verl_old.log")], &Request::default()).unwrap_err();
    assert!(matches!(error, IngestError::NeedsGpus { .. }), "{error}");
    assert!(error.hint().contains("--gpus"));
    let run = &runs("verl_old.log", &with_gpus(4.0))[0];
    // 90 s of training per step on 4 GPUs is a tenth of a GPU-hour.
    assert_close(&xy(run), &[(0.0, 0.0125), (0.2, 0.2), (0.4, 0.4), (0.6, 0.6)]);
    let steps = &runs("verl_old.log", &on("steps"))[0];
    assert_close(&xy(steps)[..2], &[(0.0, 0.0125), (2.0, 0.2)]);
}

#[test]
fn files_with_runs_of_one_name_are_joined_and_others_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let first = write("a.csv", "run,step,acc\nx,1,0.1\n");
    let second = write("b.csv", "run,step,acc\nx,2,0.2\ny,1,0.3\n");
    let runs = read(&[first, second], &Request::default()).unwrap();
    assert_eq!(runs.len(), 2);
    assert_close(&xy(&runs[0]), &[(1.0, 0.1), (2.0, 0.2)]);
    let unnamed = [write("c.csv", "step,acc\n1,0.1\n"), write("d.csv", "step,acc\n1,0.1\n")];
    let runs = read(&unnamed, &Request::default()).unwrap();
    assert_eq!(runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["c", "d"]);
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let error = |path: &Path| read(&[path.to_owned()], &Request::default()).unwrap_err();
    assert!(matches!(error(&empty), IngestError::Empty { .. }));
    assert!(matches!(error(folder.path()), IngestError::NoEvents { .. }));
    let missing = error(&folder.path().join("missing.csv"));
    assert!(matches!(missing, IngestError::Unreadable { .. }));
    assert!(missing.hint().contains("path"));
    assert!(matches!(read(&[], &Request::default()), Err(IngestError::NoFiles)));
    let gpus = read(&[empty], &with_gpus(-1.0)).unwrap_err();
    assert!(gpus.to_string().contains("--gpus is -1"), "{gpus}");
}

#[test]
fn text_in_a_chosen_column_is_refused_by_line() {
    let request = Request { y: Some("acc".into()), ..Request::default() };
    let error = read_bytes("t.csv", b"step,acc\n1,0.5\n2,high\n", &request).unwrap_err();
    assert!(error.to_string().contains("line 3: `high` in column `acc`"), "{error}");
}

#[test]
fn a_format_given_by_name_is_used_and_its_failure_says_so() {
    let request = Request { format: Some(Format::Jsonl), ..Request::default() };
    let error = read_bytes("t.csv", b"step,acc\n1,0.5\n", &request).unwrap_err();
    assert!(error.to_string().contains("(read as jsonl)"), "{error}");
    assert!(error.hint().contains("--format"));
}

#[test]
fn a_clock_that_starts_again_in_the_next_file_is_counted_on() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.csv", "b.csv"].map(|name| folder.path().join(name));
    std::fs::write(&paths[0], "run,_runtime,acc\nx,1800,0.1\nx,3600,0.2\n").unwrap();
    std::fs::write(&paths[1], "run,_runtime,acc\nx,3600,0.3\n").unwrap();
    let runs = read(&paths, &with_gpus(1.0)).unwrap();
    assert_close(&xy(&runs[0]), &[(0.5, 0.1), (1.0, 0.2), (2.0, 0.3)]);
    assert!(runs[0].notes.iter().any(|note| note.contains("counted on from 1.0000")));
}

#[test]
fn runs_of_one_name_with_other_metrics_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a.csv", "b.csv"].map(|name| folder.path().join(name));
    std::fs::write(&paths[0], "run,step,acc\nx,1,0.1\n").unwrap();
    std::fs::write(&paths[1], "run,step,pass_rate\nx,1,0.2\n").unwrap();
    let runs = read(&paths, &Request::default()).unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["x:acc", "x:pass_rate"]);
}

#[test]
fn gpus_that_contradict_the_log_are_used_and_noted() {
    let run = &runs("verl_new.log", &with_gpus(8.0))[0];
    assert_close(&xy(run)[1..2], &[(1.0, 0.3)]);
    assert!(run.notes.iter().any(|note| note.contains("configuration says 16")));
}

#[test]
fn packed_logs_are_read_as_what_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = b"gpu_hours,pass_rate\n1,0.2\n2,0.4\n";
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packer, text).unwrap();
    let packed = packer.finish().unwrap();
    let path = folder.path().join("run.csv.gz");
    std::fs::write(&path, &packed).unwrap();
    let runs = read(std::slice::from_ref(&path), &Request::default()).unwrap();
    assert_eq!((runs[0].name.as_str(), xy(&runs[0])), ("run", vec![(1.0, 0.2), (2.0, 0.4)]));
    std::fs::write(&path, &packed[..packed.len() - 9]).unwrap();
    let error = read(&[path], &Request::default()).unwrap_err();
    assert!(error.to_string().contains("cannot be unpacked as gzip"), "{error}");
}

#[test]
fn dates_and_unix_times_mean_the_time_since_the_first() {
    let gpus = Request { gpus: Some(8.0), ..Request::default() };
    let asked = |x: &str| Request { x: Some(x.into()), ..gpus.clone() };
    let wanted = vec![(0.0, 0.2), (4.0, 0.3), (8.0, 0.4)];
    for (name, text, request) in [
        ("unix", "ts,acc\n1763215200,0.2\n1763217000,0.3\n1763218800,0.4\n", asked("ts")),
        ("milli", "ts,acc\n1763215200000,0.2\n1763217000000,0.3\n1763218800000,0.4\n", asked("ts")),
        (
            "iso",
            "when,acc\n2025-11-15T14:00:00Z,0.2\n2025-11-15T14:30:00Z,0.3\n2025-11-15T15:00:00Z,0.4\n",
            asked("when"),
        ),
        (
            "by itself",
            "time,acc\n2025-11-15 14:00:00,0.2\n2025-11-15 14:30:00,0.3\n2025-11-15 15:00:00,0.4\n",
            gpus.clone(),
        ),
    ] {
        let runs = read_bytes(name, text.as_bytes(), &request).unwrap();
        assert_eq!((runs[0].axis, xy(&runs[0])), (Axis::GpuHours, wanted.clone()), "{name}");
        assert!(runs[0].notes.iter().any(|note| note.contains("clock time (`")));
    }
    let alone = Request { x: Some("ts".into()), ..Request::default() };
    let error = read_bytes("a", b"ts,acc\n1763215200,0.2\n1763217000,0.3\n", &alone).unwrap_err();
    assert!(error.hint().contains("--gpus"), "{error}");
}

#[test]
fn entropy_is_kept_where_the_log_has_it() {
    let text = b"step,acc,actor/entropy_loss\n1,0.2,0.9\n2,,0.8\n3,0.4,0.7\n";
    let runs = read_bytes("a", text, &Request::default()).unwrap();
    let entropy: Vec<(f64, f64)> = runs[0].entropy.iter().map(|(c, e)| (c.0, *e)).collect();
    assert_eq!(entropy, [(1.0, 0.9), (2.0, 0.8), (3.0, 0.7)]);
}

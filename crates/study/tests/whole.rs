//! From a study file to verdicts and a ledger, over simulated runs.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{fs, path::Path};

use scalerl_curve::{Compute, Provenance, Separation};
use scalerl_journal::{Status, StopReason};
use scalerl_study::{
    Plan, StudyError, StudyFile,
    analysis::Analysis,
    export,
    fake::{self, Next},
    history, ledger,
    record::{self, RunRecord},
    state,
};

const STUDY: &str = r#"
base = "scalerl"
seeds = [1, 2, 3]
budget = { steps = 120 }
evaluation = { every_steps = 4, generations = 16 }

[[variants]]
name = "bf16-head"
change = "leave-one-out/bf16-head"

[[variants]]
name = "ppo-off-policy"
change = "leave-one-out/ppo-off-policy"

[[variants]]
name = "sample-average"
change = "leave-one-out/sample-average"
"#;

fn plan(text: &str) -> Plan {
    Plan::of(&StudyFile::parse("study.toml", text).unwrap()).unwrap()
}

/// Runs everything to its end, as the CLI would.
fn make(plan: &Plan, folder: &Path) -> Vec<RunRecord> {
    let mut records = Vec::new();
    for variant in &plan.variants {
        for job in variant.runs(None).unwrap() {
            let path = folder.join(&job.name);
            fake::run(&path, Some(&job.recipe), || Next::GoOn).unwrap();
            let mut record = RunRecord::load(&path).unwrap();
            record.meta.study.clone_from(&plan.name);
            record.meta.variant.clone_from(&job.variant);
            records.push(record);
        }
    }
    records
}

fn names(plan: &Plan) -> Vec<String> {
    plan.variants.iter().map(|variant| variant.name.clone()).collect()
}

#[test]
fn verdicts_find_the_differences_that_were_put_in_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let analysis = Analysis::of(&make(&plan, folder.path()), &names(&plan), plan.budget);
    let verdict = |name: &str| {
        let variant = analysis.variants.iter().find(|variant| variant.name == name).unwrap();
        variant.comparison.unwrap()
    };
    assert_eq!(verdict("bf16-head").verdict, Separation::Ceiling);
    assert_eq!(verdict("ppo-off-policy").verdict, Separation::Efficiency);
    assert_eq!(verdict("sample-average").verdict, Separation::Indistinguishable);
    let lost = verdict("bf16-head").end_difference.unwrap();
    assert!(lost.high < 0.0 && lost.contains(-0.085), "{lost:?}");
    assert!(verdict("sample-average").end_difference.unwrap().contains(0.0));
    // Seeds were given a deviation of 0.004 in the ceiling, and evaluations have noise.
    let spread = analysis.margins.end.unwrap();
    assert_eq!(spread.freedom, 8);
    assert!(spread.deviation > 0.001 && spread.deviation < 0.012, "{spread:?}");
    assert!(analysis.margins.ceiling.is_some() && analysis.margins.steepness.is_some());
    assert!(analysis.runs.iter().all(|run| run.ending.is_some() && run.prediction.is_some()));
}

#[test]
fn a_difference_within_the_margin_between_seeds_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let text = STUDY.replace("seeds = [1, 2, 3]", "seeds = [1, 2]");
    let plan = plan(&text);
    let mut records = make(&plan, folder.path());
    let verdict = |records: Vec<RunRecord>| {
        let analysis = Analysis::of(&records, &names(&plan), plan.budget);
        let head = analysis.variants.iter().find(|variant| variant.name == "bf16-head").unwrap();
        head.comparison.unwrap()
    };
    assert_eq!(verdict(records.clone()).verdict, Separation::Ceiling);
    // The seeds of the base now lie as far from each other as the variant from their mean, which
    // stays where it was: the curves still differ, and prove nothing.
    let (one, two) = records.split_at_mut(1);
    for (point, other) in one[0].points.iter_mut().zip(&mut two[0].points) {
        let apart = 0.12 * (point.step as f64 / 120.0);
        (point.pass_rate, other.pass_rate) = (point.pass_rate + apart, other.pass_rate - apart);
    }
    let judged = verdict(records);
    assert_eq!(judged.pair.verdict, Separation::Ceiling);
    assert_ne!(judged.verdict, Separation::Ceiling);
}

#[test]
fn a_run_that_was_stopped_and_resumed_has_the_same_points() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let job = &plan.base().runs(None).unwrap()[0];
    let (whole, stopped) = (folder.path().join("whole"), folder.path().join("stopped"));
    fake::run(&whole, Some(&job.recipe), || Next::GoOn).unwrap();
    let mut left = 5;
    fake::run(&stopped, Some(&job.recipe), || {
        left -= 1;
        if left == 0 { Next::Stop } else { Next::GoOn }
    })
    .unwrap();
    let glance = state::glance(&stopped, plan.budget).unwrap();
    let asked = Some(Status::Stopped { reason: StopReason::Asked });
    assert_eq!((glance.status, glance.step, glance.points), (asked, 12, 4));
    assert!((glance.share - 0.1).abs() < 1e-9 && glance.is_under_way);
    assert_eq!(state::glance(&folder.path().join("none"), plan.budget).unwrap().status, None);
    state::check_recipe(&stopped, job).unwrap();
    fake::run(&stopped, None, || Next::GoOn).unwrap();
    assert!(state::glance(&stopped, plan.budget).unwrap().is_finished());
    let values = |path: &Path| -> Vec<(u64, f64)> {
        let points = RunRecord::load(path).unwrap().points;
        points.iter().map(|point| (point.step, point.pass_rate)).collect()
    };
    assert_eq!(values(&whole), values(&stopped));
}

#[test]
fn a_run_killed_after_its_last_evaluation_has_an_end_and_one_killed_before_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed");
    let job = &plan(STUDY).base().runs(None).unwrap()[0];
    fake::run(&path, Some(&job.recipe), || Next::GoOn).unwrap();
    let whole = RunRecord::load(&path).unwrap();
    let events = fs::read_to_string(path.join("events.jsonl")).unwrap();
    let cut_at = |what: &str| {
        let end = events.rfind(what).and_then(|at| events[..at].rfind('\n')).unwrap();
        fs::write(path.join("events.jsonl"), &events[..=end]).unwrap();
        RunRecord::load(&path).unwrap()
    };
    let unsaved = cut_at(r#""type":"stopped""#);
    assert_eq!((unsaved.meta.is_finished, unsaved.meta.status.as_str()), (true, "steps"));
    assert_eq!(unsaved.points, whole.points);
    let rows = |record: RunRecord| ledger::rows(&[record]);
    assert_eq!(rows(unsaved), rows(whole));
    let unmeasured = cut_at(r#""type":"evaluation""#);
    assert!(!unmeasured.meta.is_finished);
    assert!(rows(unmeasured).1[0].reason.contains("no end"));
}

#[test]
fn a_folder_of_another_recipe_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base-s1");
    let job = &plan(STUDY).base().runs(None).unwrap()[0];
    fake::run(&path, Some(&job.recipe), || Next::Stop).unwrap();
    let changed = plan(&STUDY.replace("every_steps = 4", "every_steps = 5"));
    let error = state::check_recipe(&path, &changed.base().runs(None).unwrap()[0]).unwrap_err();
    assert!(matches!(error, StudyError::Changed { .. }));
    assert!(error.to_string().contains("`evaluation.every_steps` was 4, the study now has 5"));
}

#[test]
fn the_small_files_say_what_the_folders_say() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let records = make(&plan, &folder.path().join("runs"));
    export::write(folder.path(), &records).unwrap();
    assert_eq!(export::read(folder.path()).unwrap(), records);
    // The study's folder stands for its runs once, not twice.
    assert_eq!(record::find(folder.path()).unwrap().len(), records.len());
    assert_eq!(
        record::find(folder.path().parent().unwrap().join(folder.path()).as_path()).unwrap(),
        records
    );
    fs::remove_file(folder.path().join("points.csv")).unwrap();
    let lone = record::find(folder.path()).unwrap();
    assert_eq!(lone.len(), records.len());
    assert_eq!(lone[0].points.len(), records[0].points.len());
}

#[test]
fn the_ledger_holds_each_run_once_however_often_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let mut records = make(&plan, &folder.path().join("runs"));
    let path = folder.path().join("predictions.csv");
    let (first, left_out) = ledger::rows(&records[..3]);
    // From a quarter, half and three quarters of each.
    assert_eq!((first.len(), left_out.len()), (9, 0));
    ledger::write(&path, &ledger::merge(ledger::read(&path).unwrap(), first)).unwrap();
    records[11].meta.is_finished = false;
    let (all, left_out) = ledger::rows(&records);
    assert_eq!((all.len(), left_out.len()), (33, 1));
    ledger::write(&path, &ledger::merge(ledger::read(&path).unwrap(), all.clone())).unwrap();
    let kept = ledger::read(&path).unwrap();
    assert_eq!(kept.len(), 33);
    assert_eq!(kept, ledger::merge(kept.clone(), all.clone()), "what is written is what is read");
    // A second run of the same study is another prediction.
    records[0].meta.started_at += 7200.0 * 24.0;
    let (again, _) = ledger::rows(&records[..1]);
    assert_eq!(ledger::merge(kept, again).len(), 36);
    let half: Vec<_> = all.iter().filter(|row| row.is_from_half()).collect();
    assert_eq!(half.len(), 11);
    for row in &half {
        assert!(row.error.abs() < 0.05, "{row:?}");
        assert!(row.points >= 14 && row.fitted_until <= 60.0, "{row:?}");
        assert!(row.paper.is_some() && row.power_law.is_some() && row.recorded.is_some());
        assert!(row.marginal.is_some() && row.offset_power_law.is_some());
        assert!(row.forecast_from.as_str() > row.started.as_str());
        assert_eq!((row.history_runs, row.twin), (0, None), "nothing is known of their model");
    }
    assert!(half.iter().filter(|row| row.inside).count() >= 10, "{half:#?}");
    assert!(half.iter().filter(|row| row.is_good()).count() >= 6, "{half:#?}");
}

#[test]
fn a_forecast_learns_from_comparable_runs_that_had_finished_by_then_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = make(&plan(STUDY), folder.path());
    records.truncate(3);
    // One after the other; the three seeds of the base.
    for (record, start) in records.iter_mut().zip([0.0, 1e6, 2e6]) {
        for point in &mut record.points {
            point.at = point.at.map(|at| at + start);
        }
        record.meta.provenance =
            Provenance { model: Some("m".into()), evaluation: Some("e".into()) };
    }
    let history = |records: &[RunRecord]| -> Vec<(usize, bool)> {
        let (rows, _) = ledger::rows(records);
        let half = rows.iter().filter(|row| row.is_from_half());
        half.map(|row| (row.history_runs, row.twin.is_some())).collect()
    };
    assert_eq!(history(&records), [(0, false), (1, true), (2, true)]);
    let (rows, _) = ledger::rows(&records);
    let taught = rows.iter().rfind(|row| row.is_from_half()).unwrap();
    assert!(taught.history_weight > 0.5 && taught.alone != Some(taught.forecast), "{taught:?}");
    records[1].meta.provenance.evaluation = Some("another".into());
    assert_eq!(history(&records), [(0, false), (0, false), (1, true)]);
    records[2].meta.provenance.model = None;
    assert_eq!(history(&records)[2], (0, false), "what is not known is no history");
}

#[test]
fn a_forecast_made_on_the_way_looks_at_the_end_of_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let job = &plan.base().runs(None).unwrap()[0];
    let path = folder.path().join(&job.name);
    let mut left = 20;
    fake::run(&path, Some(&job.recipe), || {
        left -= 1;
        if left == 0 { Next::Stop } else { Next::GoOn }
    })
    .unwrap();
    let mut record = RunRecord::load(&path).unwrap();
    record.meta.variant = "base".into();
    let analysis = Analysis::of(&[record], &names(&plan), plan.budget);
    let run = &analysis.runs[0];
    assert_eq!(run.ending, None, "it has not ended");
    let prediction = run.prediction.unwrap();
    assert!((prediction.at.0 - 120.0).abs() < 1e-9, "{prediction:?}");
    assert!(prediction.fitted_until <= Compute(60.0));
}

#[test]
fn the_shared_ceiling_is_shared_by_those_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let analysis = Analysis::of(&make(&plan, folder.path()), &names(&plan), plan.budget);
    let of = |name: &str| analysis.variants.iter().find(|one| one.name == name).unwrap();
    assert!(of("bf16-head").shared.is_none());
    let steepness = of("ppo-off-policy").shared.as_ref().unwrap().steepness;
    assert!(steepness.low < 2.0 && steepness.high > 1.6, "1.8 was put in: {steepness:?}");
    let sharing = ["base", "ppo-off-policy", "sample-average"];
    let mean = sharing.iter().map(|name| of(name).fit.ceiling.value).sum::<f64>() / 3.0;
    assert!((analysis.shared_ceiling.unwrap() - mean).abs() < 1e-12);
}

/// Writes into a run's folder what it started from and was measured on.
fn state(run: &Path, model: &str, evaluation: &str) {
    let path = run.join("environment.json");
    let mut all: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    (all["model"], all["evaluation"]) = (model.into(), evaluation.into());
    fs::write(&path, all.to_string()).unwrap();
}

#[test]
fn only_finished_runs_that_are_known_to_be_comparable_are_history() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = plan(&STUDY.replace("[1, 2, 3]", "[1, 2, 3, 4, 5]"));
    let jobs = jobs.base().runs(None).unwrap();
    let made = |index: usize, name: &str| {
        let path = folder.path().join(name);
        fake::run(&path, Some(&jobs[index].recipe), || Next::GoOn).unwrap();
        path
    };
    state(&made(1, "later"), "weights", "prompts");
    state(&made(0, "sooner"), "weights", "prompts");
    state(&made(2, "other-model"), "other", "prompts");
    state(&made(3, "other-evaluation"), "weights", "other");
    made(4, "unknown");
    let stopped = folder.path().join("stopped");
    fake::run(&stopped, Some(&jobs[2].recipe), || Next::Stop).unwrap();
    state(&stopped, "weights", "prompts");
    fs::create_dir(folder.path().join("no-run")).unwrap();
    fs::write(made(4, "broken").join("environment.json"), "{").unwrap();

    let own = Provenance { model: Some("weights".into()), evaluation: Some("prompts".into()) };
    let found = history::in_folder(folder.path(), &own);
    let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["sooner", "later"], "the latest last");
    assert!(history::in_folder(folder.path(), &Provenance::default()).is_empty());
    assert!(history::in_folder(&folder.path().join("none"), &own).is_empty());
}

#[test]
fn forecasts_of_a_study_learn_from_its_finished_runs_and_its_comparisons_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(STUDY);
    let mut records = make(&plan, folder.path());
    let weights = |records: &[RunRecord]| -> Vec<f64> {
        let analysis = Analysis::of(records, &names(&plan), plan.budget);
        assert!(analysis.runs.iter().all(|run| run.whole.as_ref().unwrap().history.is_empty()));
        assert!(analysis.variants.iter().all(|variant| variant.fit.history.is_empty()));
        analysis.runs.iter().map(|run| run.prediction.unwrap().history_weight).collect()
    };
    assert!(weights(&records).iter().all(|weight| *weight == 0.0), "not known to be comparable");
    for record in &mut records {
        record.meta.provenance =
            Provenance { model: Some("m".into()), evaluation: Some("e".into()) };
    }
    // Simulated runs of a seed start together, an hour after those of the seed before.
    for (weight, record) in weights(&records).iter().zip(&records) {
        assert_eq!(*weight > 0.3, record.meta.seed > 1, "{}: {weight}", record.name());
    }
}

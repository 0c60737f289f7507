//! Forecasts of a run learn from the finished runs beside it, and from no others.

use scalerl_journal::{ForecastReport, Reading, RunFolder};

use crate::bench::{finish, folder, reading, resume, said, scalerl, succeed, train_with_history};

/// Ten evaluations: enough to be history.
const SHORT: [&str; 2] = ["budget.steps=36", "evaluation.every_steps=4"];

fn last_forecast(reading: &Reading) -> ForecastReport {
    reading.forecasts().last().unwrap().clone()
}

#[test]
fn a_run_learns_from_finished_runs_of_the_same_weights_and_evaluation() {
    let start = |run: &str, set: &[&str]| {
        let set = [&SHORT, set].concat();
        train_with_history("scalerl", &format!("memory/{run}"), &set)
    };
    let first = finish("memory/first", start("first", &["seed=1"]));
    assert_eq!(last_forecast(&first).history, None);

    let told = succeed(start("second", &["seed=2", "optimizer.lr=3e-4"])).err;
    assert!(told.contains("forecasts learn from finished runs"), "{told}");
    assert!(told.contains("rests on 1 finished run"), "{told}");
    let second = reading("memory/second");
    let (one, two) = (&first.environment.provenance, &second.environment.provenance);
    assert!(one.model.is_some() && one.evaluation.is_some() && one == two, "{one:?} {two:?}");
    let history = last_forecast(&second).history.unwrap();
    assert_eq!((history.runs, history.heaviest[0].name.as_str()), (1, "first"));
    let kept = RunFolder::open(&folder().join("memory/second")).unwrap().history().unwrap();
    assert_eq!(kept[0].provenance, *one);

    // A resumed run goes on with what it began with, though another has ended since.
    succeed(resume("memory/first", &["budget.steps=40"]));
    assert_eq!(last_forecast(&reading("memory/first")).history, None);

    let other = finish("memory/other", start("other", &["evaluation.temperature=0.5"]));
    assert_eq!(last_forecast(&other).history, None, "another evaluation is another scale");
    assert_eq!(other.environment.provenance.model, one.model);

    // The library outlives the folders; a damaged one is refused before anything is spent.
    succeed(scalerl(&["history", "add", "memory/second"]));
    let away = train_with_history("scalerl", "far/away", &[&SHORT[..], &["seed=3"]].concat());
    let away = finish("far/away", away);
    assert_eq!(last_forecast(&away).history.unwrap().heaviest[0].name, "second");
    let library = folder().join("data/scalerl/history.jsonl");
    std::fs::write(&library, "{\"name\": \"torn").unwrap();
    let refused = said(train_with_history("scalerl", "far/refused", &SHORT));
    std::fs::remove_file(&library).unwrap();
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("history.jsonl: line 1"), "{}", refused.err);
    assert!(!folder().join("far/refused").exists());
}

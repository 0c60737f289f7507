//! `scalerl report` on run folders as the journal writes them: whole, running, killed, resumed,
//! hardly begun, hostile. Pages are parsed, and their numbers held against the journal.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod run_folder;

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use roxmltree::{Document, Node};
use run_folder::{End, HOSTILE, PHRASE, Spec};
use scalerl_journal::{Reading, RunFolder, What};
use serde_json::Value;

struct Outcome {
    code: i32,
    out: String,
    err: String,
}

fn scalerl(arguments: &[&str]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_scalerl")).args(arguments).output().unwrap();
    Outcome {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The numbers and the page of a run.
fn report(run: &Path) -> (Value, String) {
    let page = run.with_extension("html");
    let arguments = ["report", run.to_str().unwrap(), "--json", "--out", page.to_str().unwrap()];
    let outcome = scalerl(&arguments);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    (serde_json::from_str(&outcome.out).unwrap(), std::fs::read_to_string(page).unwrap())
}

/// The body as strict XML: every tag closed, every attribute quoted, nothing let through.
fn body(page: &str) -> String {
    assert_eq!(page.matches("<script").count(), 1, "the page's own script and no other");
    let from = page.find("<main>").unwrap();
    let until = page.find("</main>").unwrap() + "</main>".len();
    page[from..until].to_owned()
}

fn text(node: Node) -> String {
    node.descendants()
        .filter_map(|inner| if inner.is_text() { inner.text() } else { None })
        .collect()
}

fn cells(row: Node) -> Vec<String> {
    row.children().filter(|cell| cell.has_tag_name("td")).map(text).collect()
}

/// The row of a table that begins with a name.
fn row(document: &Document, name: &str) -> Vec<String> {
    let mut rows = document.descendants().filter(|node| node.has_tag_name("tr")).map(cells);
    rows.find(|cells| cells.first().is_some_and(|cell| cell == name)).unwrap_or_else(|| {
        panic!("no row {name}");
    })
}

fn specs() -> impl Strategy<Value = Spec> {
    let end = prop_oneof![Just(End::Stopped), Just(End::Failed), Just(End::Open)];
    (0..40u64, 1..8u64, 1..5u64, proptest::option::of(1..20u64), end, 0..3u64, any::<bool>())
        .prop_map(|(steps, every, groups, resume_at, end, others, at_start)| Spec {
            steps,
            evaluate_every: every,
            groups,
            resume_at: resume_at.filter(|at| *at < steps),
            end,
            other_sets: others,
            evaluates_at_start: at_start,
            samples: 3,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_run_folder_gives_a_sound_page_with_the_journals_numbers(spec in specs()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        run_folder::make(&path, &spec);
        let (json, page) = report(&path);
        let body = body(&page);
        let document = Document::parse(&body).unwrap_or_else(|error| panic!("{error}"));
        let reading = Reading::load(&path).unwrap();
        let summary = reading.summary();

        prop_assert_eq!(&json["steps"], summary.version.0);
        prop_assert_eq!(&json["verifier_failures"], summary.verifier_failures);
        prop_assert_eq!(&json["last_pass_rate"], &serde_json::json!(summary.pass_rate));
        prop_assert_eq!(&json["ledger"], &serde_json::to_value(summary.ledger).unwrap());
        prop_assert_eq!(&json["lost"], &serde_json::to_value(summary.lost).unwrap());
        let lag = (spec.steps > 0).then_some(summary.largest_lag);
        prop_assert_eq!(&json["largest_lag"], &serde_json::json!(lag));
        // Every group of a step of these folders has the step's lag.
        let lags: Vec<f64> = reading.history.events.iter().filter_map(|event| match event.what {
            What::Step { lag, .. } => Some(lag as f64),
            _ => None,
        }).collect();
        if !lags.is_empty() {
            let mean = lags.iter().sum::<f64>() / lags.len() as f64;
            prop_assert!((json["mean_lag"].as_f64().unwrap() - mean).abs() < 1e-9);
            let share = json["zero_variance_share"].as_f64().unwrap();
            prop_assert!((share - 1.0 / spec.groups as f64).abs() < 1e-9);
        }
        prop_assert_eq!(json["forecasts"].as_array().unwrap().len(), reading.forecasts().count());

        let seconds = summary.ledger.device_seconds;
        if seconds.total() > 0.0 {
            for (name, part) in [
                ("train", seconds.train),
                ("generate", seconds.generate),
                ("evaluate", seconds.evaluate),
                ("idle", seconds.idle),
                ("sum", seconds.total()),
            ] {
                prop_assert_eq!(&row(&document, name)[1], &format!("{part:.1}"));
            }
            let held = row(&document, "held: 2 devices by the clock");
            prop_assert_eq!(&held[1], &format!("{:.1}", seconds.total()));
        }
        for (set, points) in reading.history.points_by_set("run") {
            let name = set.as_deref().unwrap_or("held-out");
            let cells = row(&document, name);
            prop_assert_eq!(&cells[1], &format!("{:.3}", points[0].pass_rate));
            prop_assert_eq!(&cells[3], &format!("{:.3}", points[points.len() - 1].pass_rate));
        }
        let all = text(document.root_element());
        prop_assert!(!all.contains("NaN") && !all.contains("inf"), "a number that is none");
        let resumes = spec.resume_at.is_some();
        prop_assert_eq!(all.contains("resumed at"), resumes);
    }
}

#[test]
fn the_half_time_forecast_is_held_against_the_last_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run_folder::make(&path, &Spec { steps: 60, evaluate_every: 2, ..Spec::default() });
    let (json, page) = report(&path);
    let test = &json["half_time"];
    let last = Reading::load(&path).unwrap().points().pop().unwrap();
    assert_eq!(test["measured"], last.pass_rate);
    assert_eq!(test["at"], last.gpu_hours);
    let sigmoid = &test["guesses"][0];
    let error = sigmoid["predicted"].as_f64().unwrap() - last.pass_rate;
    assert!((sigmoid["error"].as_f64().unwrap() - error).abs() < 1e-12);
    let names: Vec<&str> =
        test["guesses"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sigmoid", "power law", "last value stays"]);

    let body = body(&page);
    let document = Document::parse(&body).unwrap();
    let cells = row(&document, "sigmoid");
    assert!(cells[1].starts_with(&format!("{:.3} [", sigmoid["predicted"].as_f64().unwrap())));
    assert_eq!(cells[2], format!("{:.3}", last.pass_rate));
    assert_eq!(cells[4], if sigmoid["is_inside"] == true { "yes" } else { "no" });

    let on = |axis: &str| {
        let outcome = scalerl(&["report", path.to_str().unwrap(), "--json", "--x", axis]);
        let json: Value = serde_json::from_str(&outcome.out).unwrap();
        json["half_time"]["at"].as_f64().unwrap()
    };
    assert!((on("tokens") - last.tokens as f64).abs() < 0.5);
    assert!((on("flops") / last.flops - 1.0).abs() < 1e-9);
    assert!((on("steps") - last.step as f64).abs() < 1e-9);
}

#[test]
fn completions_cannot_reach_out_of_their_place_and_what_was_put_in_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run_folder::make(&path, &Spec::default());
    let (_, page) = report(&path);
    assert!(!page.contains(HOSTILE), "it stands in every text of this folder");
    let body = body(&page);
    let document = Document::parse(&body).unwrap();
    let passages: Vec<Node> =
        document.descendants().filter(|node| node.attribute("class") == Some("passage")).collect();
    assert!(passages.iter().any(|passage| text(*passage).contains(HOSTILE)), "shown as text");
    let marks: Vec<String> =
        document.descendants().filter(|node| node.has_tag_name("mark")).map(text).collect();
    // An interruption's phrase, and what an environment said.
    let said = format!("result: 4 {HOSTILE}");
    assert!(marks.contains(&PHRASE.to_owned()) && marks.contains(&said), "{marks:?}");
    assert!(marks.iter().all(|mark| mark == PHRASE || *mark == said), "{marks:?}");
    let known = ["class", "tabindex", "title", "id", "href", "scope", "role", "aria-label"];
    let outside = document.descendants().filter(|node| {
        node.is_element() && !node.ancestors().any(|above| above.has_tag_name("svg"))
    });
    for node in outside {
        for attribute in node.attributes() {
            assert!(known.contains(&attribute.name()), "{}", attribute.name());
        }
    }
}

#[test]
fn a_long_run_makes_no_longer_page_than_a_screen_can_show() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run_folder::make(&path, &Spec { steps: 4000, evaluate_every: 40, ..Spec::default() });
    let (json, page) = report(&path);
    assert_eq!(json["steps"], 4000);
    let body = body(&page);
    let document = Document::parse(&body).unwrap();
    for figure in document.descendants().filter(|node| node.has_tag_name("figure")) {
        let tips = figure.descendants().filter(|node| node.has_tag_name("title")).count();
        assert!(tips <= 2000, "{tips} values in one figure");
    }
    for path in document.descendants().filter(|node| node.has_tag_name("path")) {
        let places = path.attribute("d").unwrap().matches('L').count();
        assert!(places <= 2000, "{places} places on one line");
    }
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
fn a_run_is_alive_while_its_writer_lives_and_killed_when_it_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run_folder::make(&path, &Spec { end: End::Open, ..Spec::default() });
    let (json, page) = report(&path);
    assert_eq!(json["state"], "killed");
    assert!(page.contains(&format!("--resume {}", path.display())));
    let writer = RunFolder::claim(&path).unwrap();
    let (json, page) = report(&path);
    assert_eq!(json["state"], "running");
    assert!(!page.contains("--resume"));
    drop(writer);
}

#[test]
fn the_terminal_has_the_same_headline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run_folder::make(&path, &Spec { steps: 60, evaluate_every: 2, ..Spec::default() });
    let outcome = scalerl(&["report", path.to_str().unwrap()]);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(path.join("report.html").is_file(), "beside the run by default");
    insta::assert_snapshot!(outcome.out, @r"
    run: 60 steps, 0.667 device-hours, ended: its steps are done

      pass rate              0.200 → 0.660 on held-out, 31 evaluations
      half-time forecast     0.655 [0.596, 0.729]: 0.005 too low, measured inside
      half-time, power law   0.677 [0.525, 0.804]: 0.017 too high, measured inside
      half-time, last value  0.590: 0.070 too low
      measured at the end    0.660 ± 0.047 at 0.613 device-hours
      device-hours           0.667 = train 43.8 % + generate 32.5 % + evaluate 8.1 % + idle 15.6 %
      idle                   generator 30.0 %, trainer 12.5 %
      lag                    largest 2, mean 1.9 steps
      tokens/s               200 generated for training, 600T FLOPs in all
      completions            5.0 % truncated, 25.0 % interrupted; 25.0 % of the groups without variance
      attention              stability warnings: 1, verifier errors: 12

      From the first half of the compute (16 evaluations) the curve forecast 0.655 [0.596, 0.729] for
      the end. Measured: 0.660 ± 0.047. The forecast was 0.005 too low, and the measurement lies
      inside its 90 % interval.
      Beside it: power law 0.677 (0.017 too high); last value stays 0.590 (0.070 too low). No rival
      came nearer.
    ");
}

#[test]
fn what_a_run_has_not_got_yet_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run_folder::make(
        &path,
        &Spec { steps: 0, evaluates_at_start: false, end: End::Open, ..Spec::default() },
    );
    let (json, page) = report(&path);
    assert_eq!(json["half_time"], Value::Null);
    for sentence in [
        "Nothing was evaluated yet.",
        "No forecast was recorded",
        "No optimizer step was taken yet.",
        "No completions were kept",
        "Nothing was booked yet.",
    ] {
        assert!(page.contains(sentence), "{sentence}");
    }
}

#[test]
fn what_is_no_run_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let run = folder.path().join("run");
    run_folder::make(&run, &Spec::default());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = run.to_str().unwrap();
    for (arguments, message) in [
        (vec!["report", empty], "is not a run folder: it has no recipe.toml"),
        (vec!["report", &at("nowhere")], "no such folder"),
        (vec!["report", run, "--out", &at("page.pdf")], "a report is an HTML page"),
        (vec!["report", run, "--out", &at("no/page.html")], "no such folder"),
    ] {
        let outcome = scalerl(&arguments);
        assert_eq!(outcome.code, 2, "{arguments:?}");
        assert!(outcome.err.contains(message), "{arguments:?}: {}", outcome.err);
        assert!(outcome.err.contains("hint: "), "{arguments:?}: {}", outcome.err);
    }
    std::fs::write(
        Path::new(run).join("events.jsonl"),
        "not json\n{\"v\":1,\"at\":1.0,\"type\":\"adopted\",\"version\":0}\n",
    )
    .unwrap();
    let outcome = scalerl(&["report", run]);
    assert_eq!(outcome.code, 2);
    assert!(outcome.err.contains("events.jsonl: line 1"), "{}", outcome.err);
}

#[test]
fn fit_and_compare_read_run_folders_on_every_axis() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a/run"), folder.path().join("b/run"));
    run_folder::make(&a, &Spec { steps: 40, evaluate_every: 2, ..Spec::default() });
    run_folder::make(&b, &Spec { steps: 30, evaluate_every: 3, ..Spec::default() });
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let last = Reading::load(Path::new(a)).unwrap().points().pop().unwrap();
    for (axis, at) in [
        ("device-hours", last.gpu_hours),
        ("tokens", last.tokens as f64),
        ("flops", last.flops),
        ("steps", last.step as f64),
    ] {
        let plot = folder.path().join(format!("{axis}.png"));
        let plot = plot.to_str().unwrap();
        let page = folder.path().join(format!("{axis}.html"));
        let page = page.to_str().unwrap();
        let outcome = scalerl(&["compare", a, b, "--x", axis, "--plot", plot, "--report", page]);
        assert_eq!(outcome.code, 0, "{axis}: {}", outcome.err);
        assert!(outcome.out.contains(b), "two runs of one name are told apart: {}", outcome.out);
        let outcome = scalerl(&["fit", a, "--x", axis, "--json"]);
        let json: Value = serde_json::from_str(&outcome.out).unwrap();
        let found = json["runs"][0]["last_compute"].as_f64().unwrap();
        assert!((found / at - 1.0).abs() < 1e-9, "{axis}: {found} is not {at}");
    }
}

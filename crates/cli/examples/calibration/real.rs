//! Other people's curves: forecasts from a part of them, beside their rivals.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rayon::prelude::*;
use scalerl_board::plots::{Captions, Outcome, agreement};
use scalerl_curve::{Backtest, Compute, FitOptions, Method, Rival, Series, Verdict, backtest};
use scalerl_ingest::{Request, read};
use scalerl_study::ledger::Paired;

use crate::{mean, percent};

const FRACTIONS: [f64; 3] = [0.25, 0.5, 0.75];

/// One evaluation series.
pub(crate) struct Real {
    pub(crate) name: String,
    pub(crate) series: Series,
    entropy: Vec<(Compute, f64)>,
}

/// One forecast of it, ours and its rivals'.
struct Case<'r> {
    run: &'r Real,
    test: Backtest,
    marginal: Option<Backtest>,
    /// Absolute errors, in the order of [`Rival::ALL`].
    rivals: Vec<Option<f64>>,
}

pub(crate) fn read_all(sources: &[String]) -> Result<Vec<Real>> {
    let mut all = Vec::new();
    for source in sources {
        let mut parts = source.splitn(3, ':');
        let file = PathBuf::from(parts.next().context("a file")?);
        let gpus = parts.next().filter(|text| !text.is_empty()).map(str::parse).transpose()?;
        let y = parts.next().map(str::to_owned);
        let suffix = y.as_ref().map(|y| format!(" ({y})")).unwrap_or_default();
        for run in read(&[file], &Request { gpus, y, ..Request::default() })? {
            let series = Series::try_new(run.points)?;
            all.push(Real { name: format!("{}{suffix}", run.name), series, entropy: run.entropy });
        }
    }
    Ok(all)
}

pub(crate) fn write(page: &mut String, folder: &Path, runs: &[Real]) -> Result<()> {
    let asked: Vec<(&Real, f64)> =
        runs.iter().flat_map(|run| FRACTIONS.map(|fraction| (run, fraction))).collect();
    let cases: Vec<Case<'_>> =
        asked.par_iter().filter_map(|(run, fraction)| case(run, *fraction)).collect();
    page.push_str(
        "\n## Real curves\n\n\
         Every evaluation series at hand, fitted on 25, 50 and 75 % of its compute and asked for \
         the measurement nearest to twice that compute (or its last one); no history. The data are \
         not part of this repository; they are the digitised 8B run of Figure 1 of arXiv 2510.13786 \
         and public logs of verl, GPG and Qwen3 runs.\n\n",
    );
    table(page, &cases);
    summary(page, &cases);
    let path = folder.join("calibration.png");
    scalerl_board::save(&figure(&cases), scalerl_board::Size::WIDE, &path)?;
    page.push_str("\n![forecast against measured](calibration.png)\n");
    Ok(())
}

fn case(run: &Real, fraction: f64) -> Option<Case<'_>> {
    let options = FitOptions::default();
    let test = backtest(&run.series, &options, fraction, 2.0).ok()?;
    let marginal = FitOptions { method: Method::Marginal, ..options };
    let error = |rival: &Rival| {
        let found = rival.forecast(&run.series, test.fitted_until, test.at, &run.entropy)?;
        Some((found - test.actual).abs())
    };
    Some(Case {
        run,
        test,
        marginal: backtest(&run.series, &marginal, fraction, 2.0).ok(),
        rivals: Rival::ALL.iter().map(error).collect(),
    })
}

fn table(page: &mut String, cases: &[Case<'_>]) {
    page.push_str(
        "| run | fitted | forecast | measured | inside | verdict | error | marginal |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for case in cases {
        let test = &case.test;
        let inside = if test.covered { "yes" } else { "no" };
        let marginal = case.marginal.map_or("–".into(), |one| format!("{:.3}", one.error.abs()));
        let _ = writeln!(
            page,
            "| {} | {} | {:.3} [{:.3}, {:.3}] | {:.3} | {inside} | {} | {:.3} | {marginal} |",
            case.run.name,
            percent(test.fraction),
            test.predicted,
            test.low,
            test.high,
            test.actual,
            test.verdict,
            test.error.abs(),
        );
    }
}

fn summary(page: &mut String, cases: &[Case<'_>]) {
    let rivals: Vec<String> = Rival::ALL.iter().map(ToString::to_string).collect();
    let _ = write!(
        page,
        "\nMean absolute errors, and coverage of ours and of `marginal`. A rival's mean is over the \
         cases that it could forecast; entropy needs a log that has it. Beside `marginal` how much \
         more ours errs on the same cases, with its standard error.\n\n\
         | cases | n | ours | inside | width | marginal | inside | ours − marginal | {} |\n|{}\n",
        rivals.join(" | "),
        "---|".repeat(8 + rivals.len())
    );
    for fraction in FRACTIONS {
        let of = |case: &&Case<'_>| (case.test.fraction - fraction).abs() < 1e-9;
        let name = format!("fitted on {}", percent(fraction));
        line(page, &name, &cases.iter().filter(of).collect::<Vec<_>>());
    }
    line(page, "all", &cases.iter().collect::<Vec<_>>());
    let bounded = cases.iter().filter(|case| case.test.verdict == Verdict::Bounded);
    line(page, "verdict bounded", &bounded.collect::<Vec<_>>());
}

fn line(page: &mut String, name: &str, cases: &[&Case<'_>]) {
    if cases.is_empty() {
        return;
    }
    let covered = |test: &Backtest| f64::from(u8::from(test.covered));
    let marginal: Vec<Backtest> = cases.iter().filter_map(|case| case.marginal).collect();
    let more = |case: &&Case<'_>| Some(case.test.error.abs() - case.marginal?.error.abs());
    let difference = Paired::of(&cases.iter().filter_map(more).collect::<Vec<f64>>());
    let _ = write!(
        page,
        "| {name} | {} | {:.4} | {} | {:.3} | {:.4} | {} | {} |",
        cases.len(),
        mean(cases, |case| case.test.error.abs()),
        percent(mean(cases, |case| covered(&case.test))),
        mean(cases, |case| case.test.high - case.test.low),
        mean(&marginal, |test| test.error.abs()),
        percent(mean(&marginal, covered)),
        difference.map_or("–".into(), |paired| paired.to_string()),
    );
    for rival in 0..Rival::ALL.len() {
        let errors: Vec<f64> = cases.iter().filter_map(|case| case.rivals[rival]).collect();
        let text = match errors.len() {
            0 => "–".to_owned(),
            count if count == cases.len() => format!("{:.4}", mean(&errors, |e| *e)),
            count => format!("{:.4} ({count})", mean(&errors, |e| *e)),
        };
        let _ = write!(page, " {text} |");
    }
    page.push('\n');
}

fn figure(cases: &[Case<'_>]) -> scalerl_board::Figure {
    let group = |fraction: f64| {
        let of = cases.iter().filter(|case| (case.test.fraction - fraction).abs() < 1e-9);
        let outcomes = of.map(|case| Outcome {
            name: case.run.name.clone(),
            predicted: case.test.predicted,
            low: case.test.low,
            high: case.test.high,
            actual: case.test.actual,
        });
        (format!("fitted on {} %", fraction * 100.0), outcomes.collect())
    };
    agreement(
        &FRACTIONS.map(group),
        &Captions {
            title: "Forecasts at 2× on real curves".to_owned(),
            value: "pass rate".to_owned(),
            interval: "90 %".to_owned(),
            ..Captions::default()
        },
    )
}

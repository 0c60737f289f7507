//! `study.csv`: everything the tables say, as numbers for other programs.

use std::path::Path;

use scalerl_curve::{Ceiling, Estimate, Fit};
use serde::Serialize;

use crate::{
    StudyError,
    analysis::{Analysis, RunAnalysis, VariantAnalysis},
    export::replace,
};

/// One line: a variant with all its runs, or one run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Line {
    level: &'static str,
    name: String,
    variant: String,
    seed: Option<u64>,
    runs: usize,
    points: usize,
    status: String,
    tuned: Option<String>,
    fit: String,
    ceiling: Option<f64>,
    ceiling_low: Option<f64>,
    ceiling_high: Option<f64>,
    bounded: Option<bool>,
    steepness: Option<f64>,
    steepness_low: Option<f64>,
    steepness_high: Option<f64>,
    midpoint: Option<f64>,
    midpoint_low: Option<f64>,
    midpoint_high: Option<f64>,
    shared_ceiling: Option<f64>,
    shared_steepness: Option<f64>,
    shared_steepness_low: Option<f64>,
    shared_steepness_high: Option<f64>,
    shared_midpoint: Option<f64>,
    shared_midpoint_low: Option<f64>,
    shared_midpoint_high: Option<f64>,
    fitted_until: Option<f64>,
    predicted_at: Option<f64>,
    predicted: Option<f64>,
    predicted_low: Option<f64>,
    predicted_high: Option<f64>,
    measured: Option<f64>,
    measured_error: Option<f64>,
    end_difference: Option<f64>,
    end_difference_low: Option<f64>,
    end_difference_high: Option<f64>,
    verdict: Option<String>,
}

/// All lines: variants first.
pub fn lines(analysis: &Analysis) -> Vec<Line> {
    let variants = analysis.variants.iter().map(|one| variant_line(one, analysis.shared_ceiling));
    variants.chain(analysis.runs.iter().map(run_line)).collect()
}

/// Writes the file.
pub fn write(path: &Path, analysis: &Analysis) -> Result<(), StudyError> {
    let bad = |error: csv::Error| StudyError::BadFile {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines(analysis) {
        writer.serialize(line).map_err(bad)?;
    }
    let text = writer.into_inner().map_err(|error| bad(error.into_error().into()))?;
    replace(path, &text)
}

fn variant_line(variant: &VariantAnalysis, shared_ceiling: Option<f64>) -> Line {
    let shared = variant.shared.as_ref();
    let [steepness, steepness_low, steepness_high] = three(shared.map(|fit| fit.steepness));
    let [midpoint, midpoint_low, midpoint_high] =
        three(shared.map(|fit| fit.midpoint.map(|compute| compute.0)));
    let comparison = variant.comparison.as_ref();
    let [end, end_low, end_high] = three(comparison.and_then(|one| one.end_difference));
    Line {
        level: "variant",
        name: variant.name.clone(),
        variant: variant.name.clone(),
        runs: variant.runs,
        points: variant.series.points().len(),
        shared_ceiling,
        shared_steepness: steepness,
        shared_steepness_low: steepness_low,
        shared_steepness_high: steepness_high,
        shared_midpoint: midpoint,
        shared_midpoint_low: midpoint_low,
        shared_midpoint_high: midpoint_high,
        measured: variant.end.map(|end| end.value),
        measured_error: variant.end.map(|end| end.error),
        end_difference: end,
        end_difference_low: end_low,
        end_difference_high: end_high,
        verdict: comparison.map(|one| one.verdict.to_string()),
        ..fitted(&variant.fit)
    }
}

fn run_line(run: &RunAnalysis) -> Line {
    let prediction = run.prediction.as_ref();
    Line {
        level: "run",
        name: run.name.clone(),
        variant: run.variant.clone(),
        seed: Some(run.record.meta.seed),
        runs: 1,
        points: run.record.points.len(),
        status: run.record.meta.status.clone(),
        tuned: run.record.meta.tuned.clone(),
        fitted_until: prediction.map(|one| one.fitted_until.0),
        predicted_at: prediction.map(|one| one.at.0),
        predicted: prediction.map(|one| one.value),
        predicted_low: prediction.map(|one| one.low),
        predicted_high: prediction.map(|one| one.high),
        measured: run.ending.as_ref().map(|ending| ending.value),
        measured_error: run.ending.as_ref().and_then(|ending| ending.error),
        ..run.whole.as_ref().map(fitted).unwrap_or_default()
    }
}

fn fitted(fit: &Fit) -> Line {
    let Ceiling { value, low, high, bounded, .. } = fit.ceiling;
    let [steepness, steepness_low, steepness_high] = three(Some(fit.steepness));
    let [midpoint, midpoint_low, midpoint_high] =
        three(Some(fit.midpoint.map(|compute| compute.0)));
    Line {
        fit: fit.verdict.to_string(),
        ceiling: Some(value),
        ceiling_low: Some(low),
        ceiling_high: high,
        bounded: Some(bounded),
        steepness,
        steepness_low,
        steepness_high,
        midpoint,
        midpoint_low,
        midpoint_high,
        ..Line::default()
    }
}

fn three(estimate: Option<Estimate>) -> [Option<f64>; 3] {
    [estimate.map(|e| e.value), estimate.map(|e| e.low), estimate.map(|e| e.high)]
}

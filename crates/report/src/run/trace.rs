//! Long series as short ones that still show their extremes.
//!
//! A run of 100,000 steps has more numbers than a screen has columns. A series is cut into at most
//! [`MOST_BINS`] pieces of equal length; each becomes its mean, with its least and greatest value
//! as a band. A series that is short enough stays as it is. Values that are not finite are left
//! out.

use scalerl_board::Figure;
use scalerl_board::chart::{Axis, Band, Dot, Layer, Level, Line, Points, Role, Rule, Stroke, Tone};
use scalerl_board::number::short;

pub(crate) use crate::figures::spread;

use super::story::Story;

/// Pieces of a drawn series at most.
pub(crate) const MOST_BINS: usize = 300;
/// Bins whose value can be pointed at; more would make a heavy page.
const MOST_PROBES: usize = 100;
/// Fewer bins than this are drawn as markers too.
const FEW_BINS: usize = 25;
/// Resumes that are drawn; a run with more has them in its table.
const MOST_RULES: usize = 12;

/// One piece of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bin {
    pub(crate) x: f64,
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Cuts a series into at most `most` pieces.
pub(crate) fn thin(series: &[(f64, f64)], most: usize) -> Vec<Bin> {
    let series: Vec<(f64, f64)> =
        series.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let pieces = series.len().min(most.max(1));
    (0..pieces)
        .map(|piece| {
            let part = &series[piece * series.len() / pieces..(piece + 1) * series.len() / pieces];
            let count = part.len() as f64;
            Bin {
                x: part.iter().map(|point| point.0).sum::<f64>() / count,
                mean: part.iter().map(|point| point.1).sum::<f64>() / count,
                low: part.iter().map(|point| point.1).fold(f64::INFINITY, f64::min),
                high: part.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max),
            }
        })
        .collect()
}

/// One curve of a chart.
pub(crate) struct Curve<'a> {
    pub(crate) legend: &'a str,
    pub(crate) values: Vec<(f64, f64)>,
}

/// A chart over optimizer steps.
pub(crate) fn over_steps(
    story: &Story,
    (title, subtitle): (&str, &str),
    y: Axis,
    curves: &[Curve<'_>],
) -> Figure {
    let mut layers = resumes(story);
    let longest = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
    for (index, curve) in curves.iter().enumerate() {
        let legend = if curves.len() > 1 { curve.legend } else { "" };
        layers.extend(drawn(Tone::Run(index), legend, curve.legend, &curve.values));
    }
    let mut subtitle = subtitle.to_owned();
    if longest > MOST_BINS {
        let each = longest.div_ceil(MOST_BINS);
        let space = if subtitle.is_empty() { "" } else { " " };
        let thinned = format!("{space}Line: mean of about {each} steps; band: least to greatest.");
        subtitle.push_str(&thinned);
    }
    let x = Axis::linear("optimizer steps");
    Figure { title: title.into(), subtitle, x, y, layers }
}

fn drawn(tone: Tone, legend: &str, name: &str, values: &[(f64, f64)]) -> Vec<Layer> {
    let bins = thin(values, MOST_BINS);
    let mut layers = Vec::new();
    if values.len() > MOST_BINS {
        let points = bins.iter().map(|bin| (bin.x, bin.low, bin.high)).collect();
        layers.push(Layer::Band(Band { tone, legend: legend.into(), points }));
    }
    let points = bins.iter().map(|bin| (bin.x, bin.mean)).collect();
    layers.push(Layer::Line(Line { tone, stroke: Stroke::Solid, legend: legend.into(), points }));
    let role = if bins.len() < FEW_BINS { Role::Used } else { Role::Probe };
    let dots = spread(&bins, MOST_PROBES).into_iter().map(|bin| Dot {
        x: bin.x,
        y: bin.mean,
        hover: format!("{name}\nstep {}: {}", short(bin.x.round()), short(bin.mean)),
    });
    let dots = dots.collect();
    layers.push(Layer::Points(Points { tone, role, legend: legend.into(), dots }));
    layers
}

/// A vertical rule where each session went on; only the first is named.
fn resumes(story: &Story) -> Vec<Layer> {
    let at: Vec<u64> = story.sessions.iter().filter_map(|session| session.resumed_from).collect();
    if at.len() > MOST_RULES {
        return Vec::new();
    }
    let rule = |(index, step): (usize, &u64)| {
        let label = if index == 0 { "resumed" } else { "" };
        Layer::Rule(Rule { tone: Tone::Neutral, x: *step as f64, label: label.into() })
    };
    at.iter().enumerate().map(rule).collect()
}

/// A horizontal line that must not be crossed.
pub(crate) fn limit(value: f64, label: &str) -> Layer {
    Layer::Level(Level {
        tone: Tone::Neutral,
        value: Some(value),
        label: label.into(),
        ..Level::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_series_stays_as_it_is() {
        let series: Vec<(f64, f64)> = (0..7).map(|i| (f64::from(i), f64::from(i * i))).collect();
        let bins = thin(&series, 300);
        let found: Vec<(f64, f64)> = bins.iter().map(|bin| (bin.x, bin.mean)).collect();
        assert_eq!(found, series);
    }

    #[test]
    fn a_long_series_keeps_its_mean_and_its_extremes() {
        let mut series: Vec<(f64, f64)> =
            (0..100_000).map(|i| (f64::from(i), f64::from(i % 10))).collect();
        series[54_321].1 = 1e6;
        series[12_345].1 = f64::NAN;
        let bins = thin(&series, 300);
        assert_eq!(bins.len(), 300);
        assert!(bins.windows(2).all(|pair| pair[0].x < pair[1].x));
        assert!(bins.iter().any(|bin| (bin.high - 1e6).abs() < 1e-9), "a spike is kept");
        assert!((bins[0].mean - 4.5).abs() < 0.1);
        assert!(thin(&[], 300).is_empty());
    }
}

//! The shapes of points, as SVG paths around the origin.

use std::f64::consts::TAU;
use std::fmt::Write as _;

use crate::chart::Tone;

/// Number of shapes; coprime with the number of run colours, so that both repeat late.
pub(crate) const SHAPES: usize = 8;

/// The path of a run's marker with about the area of a circle of radius `r`.
pub(crate) fn path(tone: Tone, r: f64) -> String {
    let shape = match tone {
        Tone::Run(index) => index % SHAPES,
        Tone::Neutral => 0,
    };
    match shape {
        0 => circle(r),
        1 => polygon(4, r * 1.25, 0.125),
        2 => polygon(3, r * 1.4, 0.0),
        3 => polygon(4, r * 1.3, 0.0),
        4 => polygon(3, r * 1.4, 0.5),
        5 => polygon(5, r * 1.2, 0.0),
        6 => plus(r * 1.25, 0.0),
        _ => plus(r * 1.25, 0.125),
    }
}

/// A star: forecasts, whatever the run.
pub(crate) fn star(r: f64) -> String {
    outline((0..10).map(|corner| {
        let radius = if corner % 2 == 0 { r } else { r * 0.45 };
        (radius, f64::from(corner) / 10.0)
    }))
}

fn circle(r: f64) -> String {
    let (left, diameter) = (round(-r), round(2.0 * r));
    let r = round(r);
    format!("M{left},0a{r},{r} 0 1,0 {diameter},0a{r},{r} 0 1,0 -{diameter},0Z")
}

/// Corners at equal angles; `turn` is a share of a full turn, 0 has a corner at the top.
fn polygon(corners: u32, r: f64, turn: f64) -> String {
    outline((0..corners).map(|corner| (r, f64::from(corner) / f64::from(corners) + turn)))
}

/// A thick plus sign.
fn plus(r: f64, turn: f64) -> String {
    let width = 0.36;
    let reach = f64::hypot(1.0, width);
    let spread = width.atan2(1.0) / TAU;
    outline((0..4).flat_map(|arm| {
        let middle = f64::from(arm) / 4.0 + turn;
        [
            (r * reach, middle - spread),
            (r * reach, middle + spread),
            (r * width * 2f64.sqrt(), middle + 0.125),
        ]
    }))
}

/// A closed path through polar coordinates: radius and share of a turn, clockwise from the top.
fn outline(corners: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (radius, turn) in corners {
        let (sine, cosine) = (turn * TAU).sin_cos();
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{},{}", round(radius * sine), round(-radius * cosine));
    }
    path.push('Z');
    path
}

/// Two decimals: a hundredth of a pixel is finer than anything shows.
pub(crate) fn round(value: f64) -> f64 {
    // Adding zero turns -0 into 0.
    (value * 100.0).round() / 100.0 + 0.0
}

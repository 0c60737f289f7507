//! From values to places: the range of an axis and where a value lies on it, 0 to 1.
//!
//! The range comes from the caller or from the layers. Layers do not all have the same say: what
//! was measured, forecast or drawn as a curve always fits in; bands and the intervals of levels,
//! which may be very wide when little is known, may add at most half of that range on either
//! side; vertical rules add nothing.

use crate::chart::{Axis, Figure, Layer, Role, Scale};

/// Share of the axis kept for a value of zero on a log axis, and where in it zero lies.
const ZERO_SLOT: f64 = 0.07;
const ZERO_AT: f64 = 0.02;
/// Empty space at each end of a range taken from the layers.
const PADDING: f64 = 0.04;
/// How far wide intervals may stretch a range, as a share of it.
const INTERVAL_STRETCH: f64 = 0.5;
/// A range narrower than this, relative to its values, cannot be labelled with distinct numbers.
const NARROWEST: f64 = 1e-9;

/// The range of one axis. Holds: low < high, both finite, both positive on a log axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    pub(crate) scale: Scale,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Whether the left end of a log axis has a slot for zero.
    pub(crate) zero: bool,
}

impl Span {
    /// Horizontal range of a figure.
    pub(crate) fn of_x(figure: &Figure) -> Self {
        let values = Values::horizontal(figure);
        let zero = figure.x.scale == Scale::Log && values.has_zero;
        Self { zero, ..Self::from_values(&figure.x, &values) }
    }

    /// Vertical range of a figure.
    pub(crate) fn of_y(figure: &Figure) -> Self {
        Self::from_values(&figure.y, &Values::vertical(figure))
    }

    fn from_values(axis: &Axis, values: &Values) -> Self {
        let scale = axis.scale;
        let fixed = axis.range.map(|(a, b)| (a.min(b), a.max(b)));
        let fixed = fixed.filter(|(low, high)| on_scale(scale, *low) && on_scale(scale, *high));
        let (low, high) = match fixed {
            Some((low, high)) => (to_line(scale, low), to_line(scale, high)),
            None => padded(scale, values),
        };
        let (low, high) = apart(scale, low, high);
        Self { scale, low: from_line(scale, low), high: from_line(scale, high), zero: false }
    }

    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Where a value lies, 0 at the low end; outside [0, 1] when beyond. `None` when it has no
    /// place at all.
    pub(crate) fn fraction(&self, value: f64) -> Option<f64> {
        if !on_scale(self.scale, value) {
            return None;
        }
        let (low, high) = (to_line(self.scale, self.low), to_line(self.scale, self.high));
        let share = (to_line(self.scale, value) - low) / (high - low);
        Some(if self.zero { ZERO_SLOT + (1.0 - ZERO_SLOT) * share } else { share })
    }

    /// As [`Span::fraction`], but only for what is drawn as a point: inside the range, or zero
    /// where zero has its slot.
    pub(crate) fn point_fraction(&self, value: f64) -> Option<f64> {
        if self.zero && value == 0.0 {
            return Some(ZERO_AT);
        }
        self.contains(value).then(|| self.fraction(value)).flatten()
    }

    /// Where the slot for zero ends.
    pub(crate) fn zero_break(&self) -> Option<f64> {
        self.zero.then_some(f64::midpoint(ZERO_AT, ZERO_SLOT))
    }
}

/// What the layers put on one axis.
#[derive(Default)]
struct Values {
    /// Always inside the range.
    must: Vec<f64>,
    /// Inside the range where that does not stretch it too far.
    may: Vec<f64>,
    has_zero: bool,
}

impl Values {
    fn horizontal(figure: &Figure) -> Self {
        let mut values = Self::default();
        for layer in &figure.layers {
            match layer {
                Layer::Points(points) => {
                    values.must.extend(points.dots.iter().map(|dot| dot.x));
                    let drawn = points.role != Role::Probe;
                    values.has_zero |= drawn && points.dots.iter().any(|dot| dot.x == 0.0);
                }
                Layer::Line(line) => values.must.extend(line.points.iter().map(|point| point.0)),
                Layer::Band(band) => values.must.extend(band.points.iter().map(|point| point.0)),
                Layer::Marks(marks) => values.must.extend(marks.marks.iter().map(|mark| mark.x)),
                Layer::Level(_) | Layer::Rule(_) => {}
            }
        }
        values
    }

    fn vertical(figure: &Figure) -> Self {
        let mut values = Self::default();
        for layer in &figure.layers {
            match layer {
                Layer::Points(points) => values.must.extend(points.dots.iter().map(|dot| dot.y)),
                Layer::Line(line) => values.must.extend(line.points.iter().map(|point| point.1)),
                Layer::Band(band) => {
                    values.may.extend(band.points.iter().flat_map(|point| [point.1, point.2]));
                }
                Layer::Level(level) => {
                    values.must.extend(level.value);
                    values.may.extend(level.interval.iter().flat_map(|(low, high)| [*low, *high]));
                }
                Layer::Marks(marks) => {
                    let ends = marks.marks.iter().flat_map(|mark| [mark.y, mark.low, mark.high]);
                    values.must.extend(ends);
                }
                Layer::Rule(_) => {}
            }
        }
        values
    }
}

fn padded(scale: Scale, values: &Values) -> (f64, f64) {
    let usable = |list: &[f64]| {
        let line = list.iter().filter(|value| on_scale(scale, **value));
        let ends = line.map(|value| to_line(scale, *value));
        ends.fold(None, |ends: Option<(f64, f64)>, value| match ends {
            Some((low, high)) => Some((low.min(value), high.max(value))),
            None => Some((value, value)),
        })
    };
    let Some((low, high)) = usable(&values.must).or_else(|| usable(&values.may)) else {
        return (0.0, 1.0);
    };
    let stretch = (high - low) * INTERVAL_STRETCH;
    let (wide_low, wide_high) = usable(&values.may).unwrap_or((low, high));
    let (low, high) =
        (low.min(wide_low.max(low - stretch)), high.max(wide_high.min(high + stretch)));
    let padding = (high - low) * PADDING;
    let padded_low = low - padding;
    // Pass rates and counts do not go below zero, so neither does their axis.
    let keeps_zero = scale == Scale::Linear && low >= 0.0;
    (if keeps_zero { padded_low.max(0.0) } else { padded_low }, high + padding)
}

/// Opens a range that has no width.
fn apart(scale: Scale, low: f64, high: f64) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    let narrowest = if scale == Scale::Log { NARROWEST } else { NARROWEST * size };
    if high - low > narrowest.max(f64::MIN_POSITIVE) {
        return (low, high);
    }
    let half = match scale {
        Scale::Log => 0.5,
        Scale::Linear if size == 0.0 => 0.5,
        Scale::Linear => size * 0.1,
    };
    (low - half, high + half)
}

fn on_scale(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

fn to_line(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => value.log10(),
    }
}

fn from_line(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => 10f64.powf(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Dot, Level, Points};

    fn figure(values: &[(f64, f64)]) -> Figure {
        let dots = values.iter().map(|(x, y)| Dot { x: *x, y: *y, hover: String::new() }).collect();
        Figure {
            x: Axis::log("x"),
            y: Axis::linear("y"),
            layers: vec![Layer::Points(Points { dots, ..Points::default() })],
            ..Figure::default()
        }
    }

    #[test]
    fn one_point_no_points_and_constant_values_still_have_a_range() {
        for values in [&[][..], &[(10.0, 0.5)], &[(1.0, 0.0), (2.0, 0.0)], &[(f64::NAN, 1.0)]] {
            let figure = figure(values);
            for span in [Span::of_x(&figure), Span::of_y(&figure)] {
                assert!(span.low < span.high, "{values:?}: {span:?}");
            }
        }
    }

    #[test]
    fn zero_compute_has_a_slot_left_of_every_other_point() {
        let span = Span::of_x(&figure(&[(0.0, 0.1), (1.0, 0.2), (100.0, 0.3)]));
        let places: Vec<_> =
            [0.0, 1.0, 100.0].iter().filter_map(|x| span.point_fraction(*x)).collect();
        assert_eq!(places.len(), 3);
        assert!(places[0] < span.zero_break().unwrap() && span.zero_break().unwrap() < places[1]);
        assert_eq!(span.point_fraction(-1.0), None);
    }

    #[test]
    fn a_wide_interval_stretches_the_axis_only_so_far() {
        let mut figure = figure(&[(1.0, 0.4), (2.0, 0.6)]);
        let interval = Some((0.55, 5.0));
        figure.layers.push(Layer::Level(Level { interval, ..Level::default() }));
        let span = Span::of_y(&figure);
        assert!(span.high < 0.75 && span.high > 0.65, "{span:?}");
    }
}

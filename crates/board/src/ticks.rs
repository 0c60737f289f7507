//! Where an axis has numbers: round values, as many as have room.
//!
//! Candidates are tried from dense to sparse and the first whose labels fit wins; what "fit" means
//! (pixels, character cells) is the renderer's to say. A log axis is labelled at 1, 2, 5 of every
//! decade, then 1 and 3, then decades, then every n-th decade; below one decade it is labelled at
//! round values of equal distance, because powers of ten alone would leave it bare.

use crate::chart::Scale;
use crate::number::{self, Notation};
use crate::span::Span;

/// A labelled place on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// The densest round ticks of at most `most` that `fits` accepts.
pub(crate) fn ticks(
    span: &Span,
    notation: Notation,
    most: usize,
    fits: impl Fn(&[Tick]) -> bool,
) -> Vec<Tick> {
    let mut sparse = Vec::new();
    for candidate in candidates(span, notation) {
        if candidate.len() <= most && fits(&candidate) {
            return candidate;
        }
        sparse = candidate;
    }
    // Nothing fits (a very narrow axis, or one value): one number is better than none.
    let middle = sparse.len() / 2;
    sparse.into_iter().nth(middle).into_iter().collect()
}

fn candidates(span: &Span, notation: Notation) -> Vec<Vec<Tick>> {
    match span.scale {
        Scale::Linear => linear_candidates(span, notation),
        Scale::Log if span.high / span.low < 10.0 => linear_candidates(span, notation),
        Scale::Log => log_candidates(span, notation),
    }
}

fn linear_candidates(span: &Span, notation: Notation) -> Vec<Vec<Tick>> {
    let (low, high) = (span.low, span.high);
    let largest = low.abs().max(high.abs());
    let coarsest = (high - low) * 1.01;
    let mut found = Vec::new();
    let mut decade = ((high - low) / 20.0).log10().floor() as i32;
    while 10f64.powi(decade) <= coarsest {
        for factor in [1.0, 2.0, 2.5, 5.0] {
            let step = factor * 10f64.powi(decade);
            let first = (low / step - 1e-9).ceil();
            let last = (high / step + 1e-9).floor();
            if step > coarsest || last - first > 40.0 || last < first {
                continue;
            }
            let count = (last - first) as usize + 1;
            let values = (0..count).map(|index| (first + index as f64) * step);
            found.push(
                values
                    .map(|value| Tick {
                        value: value.clamp(low, high),
                        label: number::linear_label(value, step, largest, notation),
                    })
                    .collect(),
            );
        }
        decade += 1;
    }
    found
}

fn log_candidates(span: &Span, notation: Notation) -> Vec<Vec<Tick>> {
    let decades = decades(span);
    let powers = number::needs_powers(span.low) || number::needs_powers(span.high);
    let make = |multiples: &[f64], every: i32| -> Vec<Tick> {
        decades
            .clone()
            .filter(|decade| decade % every == 0)
            .flat_map(|decade| multiples.iter().map(move |multiple| power(*multiple, decade)))
            .filter(|value| span.contains(*value))
            .map(|value| Tick { value, label: number::log_label(value, powers, notation) })
            .collect()
    };
    let dense = [make(&[1.0, 2.0, 5.0], 1), make(&[1.0, 3.0], 1)];
    let sparse = (1..).take(decades.clone().count().max(1)).map(|every| make(&[1.0], every));
    dense.into_iter().chain(sparse).filter(|ticks| !ticks.is_empty()).collect()
}

/// Unlabelled places between the ticks of a log axis, where they do not crowd it.
pub(crate) fn minor(span: &Span) -> Vec<f64> {
    if span.scale == Scale::Linear || decades(span).count() > 8 || span.high / span.low < 10.0 {
        return Vec::new();
    }
    decades(span)
        .flat_map(|decade| (2..10).map(move |multiple| power(f64::from(multiple), decade)))
        .filter(|value| span.contains(*value))
        .collect()
}

fn decades(span: &Span) -> std::ops::RangeInclusive<i32> {
    (span.low.log10().floor() as i32)..=(span.high.log10().ceil() as i32)
}

/// Exactly the number that its digits say: 2 × 10⁻³ computed as a product is not 0.002.
fn power(multiple: f64, decade: i32) -> f64 {
    format!("{multiple}e{decade}").parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(scale: Scale, low: f64, high: f64, most: usize) -> Vec<String> {
        let span = Span { scale, low, high, zero: false };
        let ticks = ticks(&span, Notation::Unicode, most, |_| true);
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn log_axes_are_labelled_at_round_numbers() {
        assert_eq!(labels(Scale::Log, 0.5, 1e6, 8), ["1", "10", "100", "1k", "10k", "100k", "1M"]);
        assert_eq!(labels(Scale::Log, 1e18, 1e22, 6), ["10¹⁸", "10¹⁹", "10²⁰", "10²¹", "10²²"]);
        assert_eq!(labels(Scale::Log, 1500.0, 12_000.0, 8), ["2k", "4k", "6k", "8k", "10k", "12k"]);
        assert_eq!(labels(Scale::Log, 900.0, 12_000.0, 8), ["1k", "2k", "5k", "10k"]);
    }

    #[test]
    fn an_axis_with_no_room_keeps_one_number() {
        let span = Span { scale: Scale::Log, low: 1.0, high: 1e6, zero: false };
        assert_eq!(ticks(&span, Notation::Unicode, 8, |ticks| ticks.len() < 2).len(), 1);
    }

    proptest! {
        #[test]
        fn ticks_rise_stay_inside_and_differ_in_label(
            low_exponent in -8.0..20.0f64, decades in 0.001..9.0f64, log: bool, most in 2usize..12,
        ) {
            let low = 10f64.powf(low_exponent);
            let scale = if log { Scale::Log } else { Scale::Linear };
            let span = Span { scale, low, high: low * 10f64.powf(decades), zero: false };
            let ticks = ticks(&span, Notation::Unicode, most, |_| true);
            prop_assert!(!ticks.is_empty() && ticks.len() <= most);
            prop_assert!(ticks.iter().all(|tick| span.contains(tick.value)));
            for pair in ticks.windows(2) {
                prop_assert!(pair[0].value < pair[1].value);
                prop_assert_ne!(&pair[0].label, &pair[1].label);
            }
        }
    }
}

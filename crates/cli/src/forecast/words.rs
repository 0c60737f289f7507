//! Fits in sentences and table cells.

use scalerl_board::number::short;
use scalerl_curve::{Ceiling, Estimate, Outlook, Pair, Separation, Target};

/// 0.612 [0.598, 0.634].
pub(crate) fn interval(value: f64, low: f64, high: f64) -> String {
    format!("{value:.3} [{}, {}]", end(low), end(high))
}

/// Three digits without a minus before a rounded zero.
fn end(value: f64) -> String {
    let text = format!("{value:.3}");
    if text == "-0.000" { "0.000".to_owned() } else { text }
}

/// A compute with its interval in short numbers.
pub(crate) fn computes(estimate: &Estimate) -> String {
    format!("{} [{}, {}]", short(estimate.value), short(estimate.low), short(estimate.high))
}

/// Never a number alone where the data do not bound it.
pub(crate) fn ceiling(ceiling: &Ceiling) -> String {
    match ceiling.high {
        Some(high) => interval(ceiling.value, ceiling.low, high),
        None => format!("not bounded, at least {:.3}", ceiling.low),
    }
}

/// The stop-or-scale line.
pub(crate) fn gain(factor: f64, gain: &Estimate) -> String {
    let doubt = if gain.contains(0.0) { ", which may be nothing" } else { "" };
    format!(
        "{factor}× more compute buys {:+.3} [{}, {}]{doubt}.",
        gain.value,
        end(gain.low),
        end(gain.high)
    )
}

/// How far a target is.
pub(crate) fn target(target: &Target, unit: &str) -> String {
    let bound = |end: Option<f64>| end.map_or("never?".to_owned(), short);
    let range = format!("[{}, {}]", bound(target.low), bound(target.high));
    let value = target.target;
    match (target.outlook, target.compute) {
        (Outlook::Reached, Some(compute)) => {
            format!("{value:.3} was reached at {} {unit}", short(compute))
        }
        (_, Some(compute)) => format!("{value:.3} needs {} {unit} {range}", short(compute)),
        (Outlook::Possible, None) => {
            format!(
                "{value:.3} lies above the forecast, at best from {} {unit} on",
                bound(target.low)
            )
        }
        _ => format!("{value:.3} lies above the ceiling"),
    }
}

/// The comparison of two runs.
pub(crate) fn pair(a: &str, b: &str, pair: &Pair) -> String {
    let signed = |e: &Estimate| format!("{:+.3} [{}, {}]", e.value, end(e.low), end(e.high));
    let ceiling = signed(&pair.ceiling_difference);
    let steepness = signed(&pair.steepness_difference);
    let Estimate { value, low, high } = pair.midpoint_ratio;
    match pair.verdict {
        Separation::Ceiling => format!("{a} and {b} differ in their ceiling: {ceiling}."),
        Separation::Efficiency => format!(
            "{a} and {b} differ in efficiency at a shared ceiling of {:.3}: steepness {steepness}, \
             {a} needs {} times the compute for half of the gain. Their own ceilings, {ceiling}, \
             cannot be told apart.",
            pair.shared_ceiling,
            interval(value, low, high),
        ),
        Separation::Indistinguishable => {
            format!("{a} and {b} cannot be told apart: ceiling {ceiling}, steepness {steepness}.")
        }
    }
}

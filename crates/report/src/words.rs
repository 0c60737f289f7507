//! Fits in sentences and table cells.

use scalerl_board::number::short;
use scalerl_curve::{
    Ceiling, Compute, Estimate, Lead, MoreCompute, Outlook, Pair, Promise, Resolution, Separation,
    Target, Twin, Wait,
};

/// 0.612 [0.598, 0.634].
pub fn interval(value: f64, low: f64, high: f64) -> String {
    format!("{value:.3} [{}, {}]", end(low), end(high))
}

/// Three digits without a minus before a rounded zero.
fn end(value: f64) -> String {
    let text = format!("{value:.3}");
    if text == "-0.000" { "0.000".to_owned() } else { text }
}

/// +0.012 [-0.003, 0.027].
fn signed(estimate: &Estimate) -> String {
    format!("{:+.3} [{}, {}]", estimate.value, end(estimate.low), end(estimate.high))
}

/// A compute with its interval in short numbers.
pub fn computes(estimate: &Estimate<Compute>) -> String {
    let text = |compute: Compute| short(compute.0);
    format!("{} [{}, {}]", text(estimate.value), text(estimate.low), text(estimate.high))
}

/// Never a number alone where the data do not bound it.
pub fn ceiling(ceiling: &Ceiling) -> String {
    match ceiling.high {
        Some(high) => interval(ceiling.value, ceiling.low, high),
        None => format!("not bounded, at least {:.3}", ceiling.low),
    }
}

/// The stop-or-scale line.
pub fn gain(factor: f64, gain: &Estimate) -> String {
    let doubt = if gain.contains(0.0) { ", which may be nothing" } else { "" };
    format!("{factor}× more compute buys {}{doubt}.", signed(gain))
}

/// Whether more compute buys more than what was asked.
pub fn more_compute(gains: &[MoreCompute]) -> Option<String> {
    let first = gains.first()?;
    let part = |gain: &MoreCompute| {
        let promise = match gain.promise {
            Promise::Will => "will",
            Promise::May => "may",
            Promise::WillNot => "will not",
        };
        format!("{}× the compute {promise} ({:.0} %)", gain.factor, 100.0 * gain.chance)
    };
    let parts: Vec<String> = gains.iter().map(part).collect();
    Some(format!("Buying more than {}: {}.", first.more_than, parts.join(", ")))
}

/// How long until the ceiling is bounded.
pub fn wait(wait: &Wait, last: Compute, unit: &str) -> String {
    let times =
        |compute: Compute| format!("{} {unit} ({}×)", short(compute.0), short(compute / last));
    match (wait.likely, wait.earliest) {
        (Some(likely), Some(earliest)) if earliest < likely => format!(
            "If the run goes on as now, its ceiling will be bounded from about {} on, at the \
             earliest from {}.",
            times(likely),
            times(earliest)
        ),
        (Some(likely), _) => format!(
            "If the run goes on as now, its ceiling will be bounded from about {} on.",
            times(likely)
        ),
        (None, Some(earliest)) => format!(
            "If the run goes on as now, 16× the compute will probably not bound its ceiling; at \
             the earliest it is bounded from {} on.",
            times(earliest)
        ),
        (None, None) => {
            "If the run goes on as now, 16× the compute will not bound its ceiling.".to_owned()
        }
    }
}

/// How far a target is.
pub fn target(target: &Target, ceiling: &Ceiling, unit: &str) -> String {
    let short = |compute: Compute| short(compute.0);
    let bound = |end: Option<Compute>| end.map_or("never?".to_owned(), short);
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
        _ if ceiling.bounded => format!("{value:.3} lies above the ceiling"),
        _ => format!("{value:.3} is unlikely (under 5 %) up to 1,000 times the compute"),
    }
}

/// Notes of several runs: each once, with the run or the number of runs that have it.
pub fn run_notes<'a>(runs: impl Iterator<Item = (&'a str, &'a [String])>) -> Vec<String> {
    let mut counted: Vec<(&str, &str, usize)> = Vec::new();
    for (name, notes) in runs {
        for note in notes {
            match counted.iter_mut().find(|(_, known, _)| known == note) {
                Some((_, _, count)) => *count += 1,
                None => counted.push((name, note, 1)),
            }
        }
    }
    let told = |(name, note, count): (&str, &str, usize)| match count {
        1 => format!("{name}: {note}"),
        count => format!("{count} runs: {note}"),
    };
    counted.into_iter().map(told).collect()
}

/// A rival forecast from another seed.
pub fn twin(twin: &Twin) -> String {
    format!(
        "Its twin {} (same recipe, another seed) had {:.3} at {}.",
        twin.name,
        twin.value,
        short(twin.at.0)
    )
}

/// What one evaluation can show.
pub fn resolution(resolution: &Resolution) -> String {
    format!(
        "One evaluation of {} samples is known to ±{:.3} (90 %) by counting, ±{:.3} on fixed \
         prompts; two of them tell {:.3} apart.",
        short(resolution.samples),
        1.645 * resolution.binomial,
        1.645 * resolution.expected,
        resolution.difference
    )
}

/// Who leads at one compute.
fn lead(a: &str, b: &str, lead: &Lead) -> String {
    let Estimate { value, low, high } = lead.difference;
    let (first, second, by, chance) = if value >= 0.0 {
        (a, b, interval(value, low, high), lead.chance)
    } else {
        (b, a, interval(-value, -high, -low), 1.0 - lead.chance)
    };
    let (at, chance) = (short(lead.at.0), 100.0 * chance);
    format!("at {at} {first} leads {second} by {by} (ahead with {chance:.0} %)")
}

/// The comparison of two runs: the lead first, then its cause where the data tell.
pub fn pair(a: &str, b: &str, pair: &Pair) -> String {
    let leads = format!("Now, {}; {}.", lead(a, b, &pair.now), lead(a, b, &pair.ahead));
    format!("{leads} {}", cause(a, b, pair))
}

fn cause(a: &str, b: &str, pair: &Pair) -> String {
    let ceiling = signed(&pair.ceiling_difference);
    let steepness = signed(&pair.steepness_difference);
    let Estimate { value, low, high } = pair.midpoint_ratio;
    match pair.verdict {
        Separation::Ceiling => format!("{a} and {b} differ in their ceiling: {ceiling}."),
        Separation::Efficiency => format!(
            "{a} and {b} differ in efficiency at a shared ceiling of {:.3}: steepness {steepness}, {a} \
             needs {} times the compute for half of the gain. Their own ceilings, {ceiling}, \
             cannot be told apart.",
            pair.shared_ceiling,
            interval(value, low, high),
        ),
        Separation::Undecided => format!(
            "Whether by its ceiling ({ceiling}) or on the way there these points do not tell."
        ),
        _ => format!("{a} and {b} cannot be told apart: ceiling {ceiling}, steepness {steepness}."),
    }
}

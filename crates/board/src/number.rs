//! Numbers as people read them on axes, in tables and in hover texts.
//!
//! 1200 is "1.2k", 2.5e9 is "2.5B" (tokens), 1e21 is "10²¹" (FLOPs). Suffixes end at 10¹⁵; beyond,
//! and below 10⁻⁴, powers of ten are clearer.

/// Which characters may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// "2×10¹⁸".
    Unicode,
    /// "2e18".
    Ascii,
}

const SUFFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
const SUFFIXES_END: f64 = 1e15;
const POWERS_BELOW: f64 = 1e-4;

/// A number with about three significant digits: "0.643", "12.3k", "1.5M", "3.2×10²⁰".
///
/// ```
/// use scalerl_board::number;
/// assert_eq!(number::short(10_176.0), "10.2k");
/// assert_eq!(number::short(3.2e20), "3.2×10²⁰");
/// assert_eq!(number::short(0.0), "0");
/// ```
pub fn short(value: f64) -> String {
    short_in(value, Notation::Unicode)
}

pub(crate) fn short_in(value: f64, notation: Notation) -> String {
    if !value.is_finite() {
        return match (value.is_nan(), value > 0.0, notation) {
            (true, ..) => "n/a".into(),
            (_, true, Notation::Unicode) => "∞".into(),
            (_, false, Notation::Unicode) => "−∞".into(),
            (_, true, Notation::Ascii) => "inf".into(),
            (_, false, Notation::Ascii) => "-inf".into(),
        };
    }
    if value == 0.0 {
        return "0".into();
    }
    // Rounding first: 999.96 becomes 1000 and must take the suffix of 1000.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    if needs_powers(rounded) {
        return power(rounded, 2, notation);
    }
    let (scaled, suffix) = scaled(rounded);
    let digits = 2 - exponent(scaled);
    format!("{}{suffix}", trimmed(scaled, digits.max(0) as usize))
}

/// Whether suffixes and plain decimals are the wrong form for this size of number.
pub(crate) fn needs_powers(value: f64) -> bool {
    let size = value.abs();
    size >= SUFFIXES_END || (size > 0.0 && size < POWERS_BELOW)
}

/// Labels of a log axis: each a small multiple of a power of ten, written exactly.
pub(crate) fn log_label(value: f64, powers: bool, notation: Notation) -> String {
    if powers { power(value, 2, notation) } else { short_in(value, notation) }
}

/// Labels of a linear axis: all with the decimals that `step` needs.
pub(crate) fn linear_label(value: f64, step: f64, largest: f64, notation: Notation) -> String {
    if value.abs() < step * 1e-6 {
        return "0".into();
    }
    if needs_powers(largest) {
        let common = exponent(largest);
        let unit = 10f64.powi(common);
        let mantissa = format!("{:.*}", decimals(step / unit), value / unit);
        return with_power(&mantissa, common, notation);
    }
    let (unit, suffix) = if largest >= 1e4 { unit_of(largest) } else { (1.0, "") };
    format!("{:.*}{suffix}", decimals(step / unit), value / unit)
}

/// Digits after the point that tell multiples of `step` apart.
fn decimals(step: f64) -> usize {
    let mut digits = 0;
    let mut scaled = step;
    while digits < 15 && (scaled - scaled.round()).abs() > 1e-6 * scaled {
        digits += 1;
        scaled = step * 10f64.powi(digits);
    }
    digits as usize
}

fn unit_of(value: f64) -> (f64, &'static str) {
    let size = value.abs();
    SUFFIXES.into_iter().find(|(unit, _)| size >= *unit).unwrap_or((1.0, ""))
}

fn scaled(value: f64) -> (f64, &'static str) {
    let (unit, suffix) = unit_of(value);
    (value / unit, suffix)
}

fn exponent(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn power(value: f64, digits: usize, notation: Notation) -> String {
    // The formatter finds mantissa and exponent together, so that 9.999e17 is never "10×10¹⁷".
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    with_power(mantissa, exponent.parse().unwrap_or(0), notation)
}

fn with_power(mantissa: &str, exponent: i32, notation: Notation) -> String {
    match notation {
        Notation::Ascii => format!("{mantissa}e{exponent}"),
        Notation::Unicode if mantissa == "1" => format!("10{}", superscript(exponent)),
        Notation::Unicode => format!("{mantissa}×10{}", superscript(exponent)),
    }
}

fn superscript(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    exponent
        .to_string()
        .chars()
        .map(|digit| digit.to_digit(10).map_or('⁻', |value| DIGITS[value as usize]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_at_every_size() {
        let cases = [
            (0.5, "0.5"),
            (0.6402, "0.64"),
            (999.96, "1k"),
            (1234.0, "1.23k"),
            (89_367.0, "89.4k"),
            (1e6, "1M"),
            (2.5e9, "2.5B"),
            (1e18, "10¹⁸"),
            (-3e-7, "-3×10⁻⁷"),
            (f64::NAN, "n/a"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(short_in(2e18, Notation::Ascii), "2e18");
    }

    #[test]
    fn linear_labels_have_the_decimals_of_their_step() {
        let label = |value, step, largest| linear_label(value, step, largest, Notation::Unicode);
        assert_eq!(label(0.65, 0.05, 0.7), "0.65");
        assert_eq!(label(0.6, 0.05, 0.7), "0.60");
        assert_eq!(label(12_500.0, 2500.0, 20_000.0), "12.5k");
        assert_eq!(label(1.5e20, 5e19, 4e20), "1.5×10²⁰");
        assert_eq!(label(0.0, 5e19, 4e20), "0");
    }
}

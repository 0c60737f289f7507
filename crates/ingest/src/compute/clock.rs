//! Times as seconds: what a clock column holds, numbers or dates.
//!
//! Unix times come in seconds, milliseconds or microseconds, dates as `2025-11-15T14:05:33Z` and
//! its usual spellings. Both are counted from the run's first row; small numbers are seconds since
//! the start already.

use crate::table::{Cell, Column};

/// Unix seconds between 1989 and 2103; a run's own clock and other counters lie below.
const UNIX_SECONDS: (f64, f64) = (6e8, 4.2e9);
/// Dates lie close together beside their distance from 1970; counters that big have grown to it.
const CLOSE_TOGETHER: f64 = 1.2;
const DAY: i64 = 86_400;

/// Seconds by row; `None` where the column holds anything but times.
pub(crate) fn seconds(column: &Column, rows: &[u32]) -> Option<Vec<(u32, f64)>> {
    let mut ticks = Vec::with_capacity(rows.len());
    for row in rows {
        match column.get(*row) {
            Some(Cell::Number(value)) if value.is_finite() => ticks.push((*row, *value)),
            Some(Cell::Text(text)) => ticks.push((*row, date(text)?)),
            _ => {}
        }
    }
    if column.is_text() || ticks.is_empty() {
        return (!ticks.is_empty()).then_some(ticks);
    }
    let unit = unix_unit(&ticks).unwrap_or(1.0);
    Some(ticks.into_iter().map(|(row, value)| (row, value / unit)).collect())
}

/// Does the column hold dates, or numbers that can only be Unix times?
pub(crate) fn is_date(column: &Column, rows: &[u32]) -> bool {
    let Some(ticks) = seconds(column, rows) else { return false };
    column.is_text() || unix_unit(&ticks).is_some()
}

/// Ticks to a second of Unix times; `None` for other numbers.
fn unix_unit(ticks: &[(u32, f64)]) -> Option<f64> {
    let low = ticks.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let high = ticks.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    let fits = |unit: f64| low / unit >= UNIX_SECONDS.0 && high / unit <= UNIX_SECONDS.1;
    let found = [1.0, 1e3, 1e6, 1e9].into_iter().find(|unit| fits(*unit));
    found.filter(|_| high / low < CLOSE_TOGETHER)
}

/// Unix seconds of a date and time; a time zone that is not stated is UTC.
fn date(text: &str) -> Option<f64> {
    let text = text.trim();
    let (day, rest) = text.split_at_checked(10)?;
    let mut parts = day.split(['-', '/']).map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_day = (1..=12).contains(&month) && (1..=31).contains(&day) && year >= 1970;
    let days = days_since_1970(year, month, day);
    let start = (is_day && parts.next().is_none()).then_some((days * DAY) as f64)?;
    if rest.is_empty() {
        return Some(start);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, offset) = zone(rest.trim())?;
    let mut total = start - offset;
    let mut count = 0;
    for (part, unit) in clock.split(':').zip([3600.0, 60.0, 1.0]) {
        let value: f64 = part.trim().parse().ok().filter(|v: &f64| *v >= 0.0 && *v < 61.0)?;
        total += value * unit;
        count += 1;
    }
    (count >= 2 && clock.matches(':').count() < 3).then_some(total)
}

/// A time of day without its zone, and the zone in seconds.
fn zone(text: &str) -> Option<(&str, f64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']).or(text.strip_suffix(" UTC")) {
        return Some((clock, 0.0));
    }
    let Some(place) = text.rfind(['+', '-']) else { return Some((text, 0.0)) };
    let (clock, zone) = text.split_at(place);
    let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
    let hours: f64 = digits.get(..2)?.parse().ok()?;
    let minutes: f64 = digits.get(2..4).map_or(Some(0.0), |text| text.parse().ok())?;
    let sign = if zone.starts_with('-') { -1.0 } else { 1.0 };
    Some((clock.trim(), sign * (hours * 3600.0 + minutes * 60.0)))
}

/// Days of the proleptic Gregorian calendar: March first, so that leap days come last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    /// `date -u -d '…' +%s` (GNU coreutils 9).
    #[test]
    fn dates_are_unix_seconds_whatever_their_spelling() {
        for (text, wanted) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("2000-02-29 12:34", 951_827_640.0),
            ("2025-11-15T14:00:00.5+00:00", 1_763_215_200.5),
            ("2025-11-15T15:00:00+01:00", 1_763_215_200.0),
            ("2025-11-15 09:00:00 -0500", 1_763_215_200.0),
            ("2025/11/15 14:00:00 UTC", 1_763_215_200.0),
            ("2025-11-15", 1_763_164_800.0),
        ] {
            let found = date(text).unwrap_or_else(|| panic!("{text}"));
            assert!((found - wanted).abs() < 1e-6, "{text}: {found}");
        }
        for text in ["", "soon", "2025-13-01", "12:30:00", "2025-11-15T", "1e9", "2025-11-15 25h"] {
            assert_eq!(date(text), None, "{text}");
        }
    }

    fn column(cells: &[Cell]) -> Column {
        let mut table = Table::default();
        for (line, cell) in cells.iter().enumerate() {
            table.push_row(line + 1);
            table.set("x", cell.clone());
        }
        table.column("x").unwrap().clone()
    }

    #[test]
    fn unix_times_are_told_from_counters_that_are_as_large() {
        let numbers = |values: &[f64]| -> Vec<Cell> {
            values.iter().map(|value| Cell::Number(*value)).collect()
        };
        let is_date = |values: &[f64]| is_date(&column(&numbers(values)), &[0, 1]);
        assert!(is_date(&[1.7632e9, 1.7633e9]));
        assert!(is_date(&[1.7632e12, 1.7633e12]), "milliseconds");
        assert!(!is_date(&[0.0, 3600.0]));
        assert!(!is_date(&[7e8, 1.7e9]), "tokens");
        let milli = seconds(&column(&numbers(&[1.7632e12, 1.7632e12 + 5e3])), &[0, 1]).unwrap();
        assert!((milli[1].1 - milli[0].1 - 5.0).abs() < 1e-3);
    }
}

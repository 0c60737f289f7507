//! `strftime_now` for chat templates: today's date in UTC, in the few spellings templates use.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

pub(crate) fn now(format: &str) -> Result<String, Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    spelled(format, since.as_secs() as i64)
}

fn spelled(format: &str, seconds: i64) -> Result<String, Error> {
    let (days, within) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[days.rem_euclid(7) as usize]);
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let written = match letters.next() {
            Some('Y') => write!(out, "{year}"),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", &day_name[..3]),
            Some('H') => write!(out, "{:02}", within / 3600),
            Some('M') => write!(out, "{:02}", within / 60 % 60),
            Some('S') => write!(out, "{:02}", within % 60),
            Some('%') => write!(out, "%"),
            other => {
                let code = other.map(String::from).unwrap_or_default();
                let text = format!("strftime_now: %{code} is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
        };
        written.map_err(|_| Error::new(ErrorKind::WriteFailure, "writing to a string failed"))?;
    }
    Ok(out)
}

/// Days since 1970 to year, month, day (Howard Hinnant's civil_from_days).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_spelled_as_python_does() {
        // datetime.fromtimestamp(1709210096, UTC) is Thursday, 2024-02-29 12:34:56.
        let text = spelled("%d %b %Y | %A %B %m %H:%M:%S", 1_709_210_096).unwrap();
        assert_eq!(text, "29 Feb 2024 | Thursday February 02 12:34:56");
        assert!(spelled("%Q", 0).is_err());
    }
}

//! Unix seconds as dates (UTC), for tables that people read.

const SECONDS_PER_DAY: i64 = 86_400;

/// 2025-11-15 14:05.
pub fn minute(unix_seconds: f64) -> String {
    let seconds = unix_seconds as i64;
    let (days, rest) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3600, rest / 60 % 60)
}

/// Year, month and day of a day counted from 1970-01-01: Hinnant's algorithm, in which the year
/// begins in March so that leap days come last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `date -u -d @N '+%Y-%m-%d %H:%M'` (GNU coreutils 9).
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0.0, "1970-01-01 00:00"),
            (951_827_696.0, "2000-02-29 12:34"),
            (1_763_215_200.9, "2025-11-15 14:00"),
            (4_107_542_399.0, "2100-02-28 23:59"),
        ] {
            assert_eq!(minute(seconds), text);
        }
    }
}

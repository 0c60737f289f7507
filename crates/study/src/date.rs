//! Unix seconds as dates (UTC), for tables that people read.

use time::OffsetDateTime;

/// 2025-11-15 14:05; a dash for a moment outside the calendar.
pub fn minute(unix_seconds: f64) -> String {
    let Ok(moment) = OffsetDateTime::from_unix_timestamp(unix_seconds as i64) else {
        return "–".to_owned();
    };
    format!("{} {:02}:{:02}", moment.date(), moment.hour(), moment.minute())
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
        assert_eq!(minute(f64::INFINITY), "–");
    }
}

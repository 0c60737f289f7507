//! `strftime_now` for chat templates: the time of day in UTC, spelled as the template asks.

use minijinja::{Error, ErrorKind};
use time::OffsetDateTime;
use time::format_description::parse_strftime_borrowed;

pub(crate) fn now(format: &str) -> Result<String, Error> {
    spelled(format, OffsetDateTime::now_utc())
}

fn spelled(format: &str, moment: OffsetDateTime) -> Result<String, Error> {
    let refused = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now of {format:?}: {error}"))
    };
    let items = parse_strftime_borrowed(format).map_err(|error| refused(&error))?;
    moment.format(&items).map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_spelled_as_python_does() {
        // datetime.fromtimestamp(1709210096, UTC) is Thursday, 2024-02-29 12:34:56.
        let moment = OffsetDateTime::from_unix_timestamp(1_709_210_096).unwrap();
        let text = spelled("%d %b %Y | %A %B %m %H:%M:%S", moment).unwrap();
        assert_eq!(text, "29 Feb 2024 | Thursday February 02 12:34:56");
        assert!(spelled("%Q", moment).unwrap_err().to_string().contains("%Q"));
    }
}

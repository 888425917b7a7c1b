//! Instants and durations, as people read and write them.

use nasd_types::Timestamp;
use std::time::Duration;

const SECONDS_OF_A_DAY: u64 = 86_400;

/// An instant in UTC, as RFC 3339 writes it; `never` for the last one there is.
pub fn utc(time: Timestamp) -> String {
    if time == Timestamp::MAX {
        return "never".to_owned();
    }
    let (days, second) = (time.seconds() / SECONDS_OF_A_DAY, time.seconds() % SECONDS_OF_A_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let nanoseconds = time.subsecond_ns();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// A duration from `250ms`, `30s`, `10m`, `12h` or `7d`.
///
/// # Errors
/// What it should look like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration: write 30s, 10m, 12h or 7d");
    let unit = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => SECONDS_OF_A_DAY * 1000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)
}

/// How often something is done: a duration above zero, or `None` from `never`.
///
/// # Errors
/// What it should look like.
pub fn parse_interval(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "never" => Ok(None),
        _ => match parse_duration(text).map_err(|error| format!("{error}, or `never`"))? {
            Duration::ZERO => Err(format!("`{text}` is no interval: write 12h, 7d or `never`")),
            interval => Ok(Some(interval)),
        },
    }
}

/// A number of seconds in the largest units that fit: `3 d 4 h`, `25 s`.
pub fn spoken(seconds: u64) -> String {
    let (days, hours) = (seconds / SECONDS_OF_A_DAY, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, 0) => format!("{hours} h"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ if hours == 0 => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year; 400 years are an era.
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_AN_ERA: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / DAYS_OF_AN_ERA, days % DAYS_OF_AN_ERA);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // March is 0. Months from March on have 153 days in five.
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let second = Duration::from_secs(1);
        for (text, duration) in [
            ("250ms", second / 4),
            ("30s", 30 * second),
            ("2h", 7200 * second),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
        }
        for bad in ["", "1", "s", "-1s", "1.5h", "1 h", "1w", "99999999999999999d", "1hh"] {
            assert!(parse_duration(bad).unwrap_err().contains(bad), "{bad}");
        }
        assert_eq!(parse_interval("never"), Ok(None));
        assert_eq!(parse_interval("1d"), Ok(Some(86_400 * second)));
        assert!(parse_interval("0s").is_err() && parse_interval("often").is_err());
        assert_eq!((spoken(59), spoken(90_000)), ("59 s".to_owned(), "1 d 1 h".to_owned()));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_700_000_000, "2023-11-14T22:13:20"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let time = Timestamp::from_parts(seconds, 5);
            assert_eq!(utc(time), format!("{text}.000000005Z"));
        }
        assert_eq!(utc(Timestamp::MAX), "never");
        assert!(utc(Timestamp(u64::MAX - 1)).starts_with("2554-"));
    }
}

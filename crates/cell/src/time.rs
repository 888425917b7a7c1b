//! Instants and durations, as people read and write them.

use nasd_types::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_OF_A_DAY: u64 = 86_400;

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u64 = 719_468;

/// This machine's time of day.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since.as_secs(), since.subsec_nanos())
}

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

/// The longest time that a certificate or a token may be good: ten years, as the authority is.
const LONGEST_VALIDITY: Duration = Duration::from_secs(3652 * SECONDS_OF_A_DAY);

/// How long something is good: a duration of a second to ten years.
///
/// # Errors
/// What it should look like.
pub fn parse_validity(text: &str) -> Result<Duration, String> {
    let validity = parse_duration(text)?;
    match (Duration::from_secs(1)..=LONGEST_VALIDITY).contains(&validity) {
        true => Ok(validity),
        false => Err(format!("`{text}` is too long or too short: write 1s to 3652d")),
    }
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

/// An instant as RFC 3339 writes it in UTC, with seconds or without a time of the day; or how long ago
/// it was, as in `90s`, `15m`, `2h`, `7d`.
///
/// # Errors
/// What is neither, in words.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    parse_at(text, since_1970.as_secs())
        .map(|seconds| Timestamp::from_parts(seconds, 0))
        .ok_or_else(|| {
            format!("`{text}` is no time: write 2026-11-22T10:00:00Z, 2026-11-22, or 15m for 15 minutes ago")
        })
}

/// The same in seconds since 1970, if it is `now`.
fn parse_at(text: &str, now: u64) -> Option<u64> {
    if let Ok(ago) = parse_duration(text) {
        return Some(now.saturating_sub(ago.as_secs()));
    }
    let (day, time) = match text.split_once('T') {
        Some((day, time)) => (day, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let mut parts = day.splitn(3, '-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.splitn(3, ':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if year > 9999 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_to(year, month, day)?;
    // The 31st of a month that has none would be of another.
    let exists = date(days) == (year, month, day);
    exists.then_some(days * SECONDS_OF_A_DAY + hour * 3600 + minute * 60 + second)
}

/// Digits alone: no sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The number of days from 1970-01-01 to a day, the reverse of [`date`]; `None` before that.
fn days_to(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year.checked_sub(u64::from(month <= 2))?;
    let shifted = (month + 9) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * shifted + 2) / 5 + day - 1;
    days.checked_sub(DAYS_TO_1970)
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that the leap day is the last of its year; 400 years are an era.
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
    fn nothing_is_good_for_longer_than_the_authority() {
        assert_eq!(parse_validity("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_validity("3652d"), Ok(LONGEST_VALIDITY));
        for bad in ["0s", "999ms", "3653d", "213503982334601d", "soon"] {
            assert!(parse_validity(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

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
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 951_782_399, 951_782_400, 951_868_800, 1_700_000_000, 4_107_542_400] {
            let text = utc(Timestamp::from_parts(seconds, 0)).replace(".000000000", "");
            assert_eq!(parse_at(&text, 0), Some(seconds), "{text}");
        }
        for day in 0..60_000 {
            let (year, month, date) = date(day);
            let text = format!("{year:04}-{month:02}-{date:02}");
            assert_eq!(parse_at(&text, 0), Some(day * SECONDS_OF_A_DAY), "{text}");
        }
        assert_eq!(parse_at("15m", 1000), Some(100));
        assert_eq!(parse_at("2h", 1000), Some(0));
        for bad in [
            "",
            "m",
            "-1m",
            "+1s",
            "now",
            "2026",
            "2026-11",
            "2026-02-29",
            "2026-04-31",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "2026-11-22T10:00:00",
            "2026-11-22T24:00:00Z",
            "2026-11-22T10:00Z",
            "99999999999999999999d",
            "9999999999-01-01",
            "\u{e9}m",
        ] {
            assert_eq!(parse_at(bad, 1000), None, "{bad}");
        }
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

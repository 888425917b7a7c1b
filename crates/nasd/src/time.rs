//! Instants, for people to read.

use nasd_types::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_OF_A_DAY: u64 = 86_400;

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

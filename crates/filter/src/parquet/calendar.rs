//! Dates and times as the texts that stand for them in other formats, whose order is theirs.

use std::fmt::Write;

const DAY_SECONDS: i64 = 86_400;

/// The parts of a second that a time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    const fn per_second(self) -> i64 {
        match self {
            Unit::Millis => 1_000,
            Unit::Micros => 1_000_000,
            Unit::Nanos => 1_000_000_000,
        }
    }

    const fn digits(self) -> usize {
        match self {
            Unit::Millis => 3,
            Unit::Micros => 6,
            Unit::Nanos => 9,
        }
    }
}

/// `2024-02-29`, of the days since 1970; `None` before the year 0 and behind 9999.
pub(super) fn put_date(days: i64, text: &mut String) -> Option<()> {
    let (year, month, day) = civil(days)?;
    write!(text, "{year:04}-{month:02}-{day:02}").ok()
}

/// `2024-02-29 12:30:00`, with a fraction if there is one, of what has passed since 1970.
pub(super) fn put_timestamp(since: i64, unit: Unit, text: &mut String) -> Option<()> {
    let day = DAY_SECONDS * unit.per_second();
    put_date(since.div_euclid(day), text)?;
    text.push(' ');
    put_time(since.rem_euclid(day), unit, text)
}

/// `12:30:00`, with a fraction if there is one; `None` of what is no time of a day.
pub(super) fn put_time(since: i64, unit: Unit, text: &mut String) -> Option<()> {
    let (seconds, part) =
        (since.div_euclid(unit.per_second()), since.rem_euclid(unit.per_second()));
    if !(0..DAY_SECONDS).contains(&seconds) {
        return None;
    }
    write!(text, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60).ok()?;
    if part > 0 {
        write!(text, ".{part:0digits$}", digits = unit.digits()).ok()?;
        text.truncate(text.trim_end_matches('0').len());
    }
    Some(())
}

/// The year, month and day of a day since 1970, by the calendar of today: 400 years have as many days each time.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    // From the 1st of March of the year 0, so that a leap day is the last of its year.
    let days = days.checked_add(719_468)?;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    (0..=9999).contains(&year).then_some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(days: i64) -> Option<String> {
        let mut text = String::new();
        put_date(days, &mut text).map(|()| text)
    }

    fn stamp(since: i64, unit: Unit) -> Option<String> {
        let mut text = String::new();
        put_timestamp(since, unit, &mut text).map(|()| text)
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (-719_528, "0000-01-01"),
            (2_932_896, "9999-12-31"),
        ] {
            assert_eq!(date(days).as_deref(), Some(expected));
        }
        for days in [-719_529, 2_932_897, i64::MIN, i64::MAX] {
            assert_eq!(date(days), None);
        }
    }

    #[test]
    fn times_have_a_fraction_if_there_is_one() {
        assert_eq!(stamp(0, Unit::Millis).as_deref(), Some("1970-01-01 00:00:00"));
        assert_eq!(stamp(-1, Unit::Micros).as_deref(), Some("1969-12-31 23:59:59.999999"));
        assert_eq!(stamp(1_500_000_000, Unit::Nanos).as_deref(), Some("1970-01-01 00:00:01.5"));
        assert_eq!(stamp(i64::MAX, Unit::Millis), None);
        assert_eq!(put_time(86_400_000, Unit::Millis, &mut String::new()), None);
        assert_eq!(put_time(-1, Unit::Millis, &mut String::new()), None);
    }
}

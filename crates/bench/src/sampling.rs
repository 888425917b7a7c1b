//! Value and limit by turns: a machine that is slower for a while is so for both.

use crate::{BenchError, Row};

/// What a row measures: its number, and that of its limit.
pub(crate) struct Compared<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: &'static str,
    pub(crate) limit_name: String,
    /// How often each is measured.
    pub(crate) rounds: usize,
}

impl Compared<'_> {
    /// Measures both by turns; the row has the medians. A limit whose program is missing is left
    /// out, and the row says so.
    ///
    /// # Errors
    ///
    /// Those of either, but for a missing program.
    pub(crate) fn by_turns(
        self,
        mut limit: impl FnMut() -> Result<f64, BenchError>,
        mut value: impl FnMut() -> Result<f64, BenchError>,
    ) -> Result<Row, BenchError> {
        let Compared { name, unit, limit_name, rounds } = self;
        let (mut limits, mut values) = (Vec::new(), Vec::new());
        let mut missing = None;
        for _ in 0..rounds.max(1) {
            if missing.is_none() {
                match limit() {
                    Ok(sample) => limits.push(sample),
                    Err(error @ BenchError::MissingProgram { .. }) => missing = Some(error),
                    Err(error) => return Err(error),
                }
            }
            values.push(value()?);
        }
        let value = median(&mut values);
        Ok(match missing {
            None => Row::new(name, value, unit, median(&mut limits), limit_name),
            Some(error) => Row::without_limit(name, value, unit, &error),
        })
    }
}

/// The middle one of the samples, or the mean of the two in the middle; 0 of none.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples {
        [] => 0.0,
        _ if samples.len() % 2 == 1 => samples[middle],
        _ => (samples[middle - 1] + samples[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
    }

    #[test]
    fn a_missing_program_leaves_the_value() {
        let compared =
            || Compared { name: "row", unit: "1/s", limit_name: "limit".to_owned(), rounds: 3 };
        let missing = || Err(BenchError::MissingProgram { program: "nothing" });
        let row = compared().by_turns(missing, || Ok(7.0)).unwrap();
        assert_eq!((row.value, row.limit, row.ratio), (7.0, None, None));
        assert!(row.limit_name.contains("`nothing`"), "{}", row.limit_name);
        let mut count = 0.0;
        let mut next = || {
            count += 1.0;
            Ok(count)
        };
        let row = compared().by_turns(&mut next, || Ok(8.0)).unwrap();
        assert_eq!((row.limit, row.ratio), (Some(2.0), Some(4.0)));
    }
}

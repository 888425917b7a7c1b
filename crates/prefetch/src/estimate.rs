//! What is known of speeds: averages of what was seen, of which the newer counts more.

const SECOND: f64 = 1e9;

/// Over so long a rate is averaged, in nanoseconds.
const RATE_SPAN: f64 = 0.2 * SECOND;

/// Events are counted together for so long before they are looked at.
const RATE_STEP: u64 = 5_000_000;

/// One in so many is what a new latency or outcome counts.
const WEIGHT: f64 = 16.0;

/// How many events a second there are.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    average: Option<f64>,
    /// From where on events are counted: the first of them.
    since: Option<u64>,
    counted: u64,
    last: u64,
}

impl Rate {
    pub(crate) fn new(now: u64) -> Rate {
        Rate { average: None, since: None, counted: 0, last: now }
    }

    pub(crate) fn note(&mut self, events: u64, now: u64) {
        self.last = now;
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.counted += events;
        let span = now.saturating_sub(since);
        if span < RATE_STEP {
            return;
        }
        let seen = self.counted as f64 * SECOND / span as f64;
        // A pause does not wipe out what was seen before it.
        let newer = 1.0 - (-(span as f64 / RATE_SPAN).min(1.0)).exp();
        self.average = Some(self.average.map_or(seen, |old| old + (seen - old) * newer));
        (self.since, self.counted) = (Some(now), 0);
    }

    /// Events a second, `assumed` as long as too little is known; fewer the longer there was none than there should have
    /// been.
    pub(crate) fn per_second(&self, assumed: f64, now: u64) -> f64 {
        let average = self.average.unwrap_or(assumed);
        let silent = now.saturating_sub(self.last) as f64;
        let expected = (4.0 * SECOND / average.max(1e-9)).max(RATE_SPAN);
        average * (expected / silent.max(expected))
    }

    /// Whether there is anything to make a rate of.
    pub(crate) fn is_known(&self) -> bool {
        self.average.is_some()
    }
}

/// A mean of which the newest part counts most.
#[derive(Clone, Debug)]
pub(crate) struct Mean(Option<f64>);

impl Mean {
    pub(crate) const fn unknown() -> Mean {
        Mean(None)
    }

    pub(crate) const fn starting_at(value: f64) -> Mean {
        Mean(Some(value))
    }

    pub(crate) fn note(&mut self, value: f64) {
        self.0 = Some(self.0.map_or(value, |old| old + (value - old) / WEIGHT));
    }

    pub(crate) fn get(&self) -> Option<f64> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_what_happens_and_falls_in_silence() {
        let mut rate = Rate::new(0);
        assert!(!rate.is_known());
        assert_eq!(rate.per_second(7.0, 0), 7.0);
        assert!(rate.per_second(7.0, 100_000_000_000) < 0.1);
        let mut now = 0;
        for _ in 0..1000 {
            now += 1_000_000;
            rate.note(2, now);
        }
        let at_work = rate.per_second(7.0, now);
        assert!((1990.0..2010.0).contains(&at_work), "{at_work}");
        // Nothing is made of a pause that is no longer than others.
        assert!(rate.per_second(7.0, now + 100_000_000) > 1990.0);
        let silent = rate.per_second(7.0, now + 20_000_000_000);
        assert!((15.0..25.0).contains(&silent), "{silent}");
    }

    #[test]
    fn a_mean_forgets() {
        let mut mean = Mean::unknown();
        assert_eq!(mean.get(), None);
        mean.note(100.0);
        assert_eq!(mean.get(), Some(100.0));
        (0..200).for_each(|_| mean.note(5.0));
        assert!((4.9..5.1).contains(&mean.get().unwrap()));
    }
}

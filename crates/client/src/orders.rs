//! Orders for writes of copies: each later than the one before, however well the drives' clocks are known.

use std::sync::atomic::{AtomicU64, Ordering};

use nasd_types::{Timestamp, WriteOrder};

/// How far orders may get ahead of the drives' clocks as they are known. Those that are ten minutes ahead are
/// refused, whatever was done before.
const MOST_AHEAD_NS: u64 = 300 * Timestamp::SECOND_NS;

/// By how much an order is later than one that was refused for the first time; and how often that is doubled.
const FIRST_LEAP_NS: u64 = 1_000_000;
const MOST_DOUBLINGS: u32 = 14;

/// Where one writer has his orders from.
#[derive(Debug, Default)]
pub struct OrderSource {
    /// Time of the latest order, in nanoseconds.
    latest: AtomicU64,
    /// The latest time that is known of the drives' clocks.
    known: AtomicU64,
}

impl OrderSource {
    /// A source without memory.
    pub fn new() -> OrderSource {
        OrderSource::default()
    }

    /// An order for a write to drives of whose clocks the latest is known to show that time. `unique` tells
    /// the writer from others that draw an order at the same time.
    pub fn draw(&self, known: Timestamp, unique: u64) -> WriteOrder {
        self.known.fetch_max(known.0, Ordering::AcqRel);
        let before = self.latest.fetch_max(known.0, Ordering::AcqRel);
        let time = match before >= known.0 {
            true => Timestamp(self.latest.fetch_add(1, Ordering::AcqRel) + 1),
            false => known,
        };
        WriteOrder { time, unique }
    }

    /// The time of the latest order.
    pub fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::Acquire))
    }

    /// A drive knows of something later than an order that was drawn after `refused` was the latest, or was started
    /// anew with its clock ahead: those that are drawn from now on are later than `refused`, by the more the more
    /// often that has happened to one write. Many that are refused at once leap no farther than one.
    pub fn leap(&self, refused: Timestamp, attempt: u32) {
        let leap = FIRST_LEAP_NS << attempt.min(MOST_DOUBLINGS);
        let most = self.known.load(Ordering::Acquire).saturating_add(MOST_AHEAD_NS);
        self.latest.fetch_max(refused.0.saturating_add(leap).min(most), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000 * Timestamp::SECOND_NS);

    #[test]
    fn each_order_is_later_than_the_one_before() {
        let source = OrderSource::new();
        let known = [5, 5, 3, 9, 8].map(|later| NOW.plus_ns(later));
        let drawn = known.map(|known| source.draw(known, 7));
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "{drawn:?}");
        assert_eq!((drawn[0].time, drawn[3].time), (NOW.plus_ns(5), NOW.plus_ns(9)));
    }

    #[test]
    fn who_is_refused_gets_past_what_was_done() {
        let source = OrderSource::new();
        let done = NOW.plus_ns(60 * Timestamp::SECOND_NS);
        let tries = (0..64).take_while(|attempt| {
            let refused = source.latest();
            let is_refused = source.draw(NOW, 1).time < done;
            source.leap(refused, *attempt);
            is_refused
        });
        assert!(tries.count() < 20);
    }

    #[test]
    fn however_many_are_refused_orders_stay_near_the_clocks() {
        let source = OrderSource::new();
        for _ in 0..100 {
            // Sixteen writers at once, for a drive that nothing is good enough for.
            for attempt in 0..64 {
                let refused = source.latest();
                (0..16).for_each(|writer| assert!(source.draw(NOW, writer).time >= NOW));
                (0..16).for_each(|_| source.leap(refused, attempt));
            }
        }
        let ahead = source.draw(NOW, 1).time.distance_ns(NOW);
        assert!(ahead <= MOST_AHEAD_NS + 1_000_000, "{ahead}");
    }

    #[test]
    fn writers_that_are_refused_together_leap_as_far_as_one() {
        let (alone, together) = (OrderSource::new(), OrderSource::new());
        for attempt in 0..10 {
            let refused = alone.latest().max(NOW);
            alone.leap(refused, attempt);
            let refused = together.latest().max(NOW);
            (0..16).for_each(|_| together.leap(refused, attempt));
        }
        assert_eq!(alone.latest(), together.latest());
    }
}

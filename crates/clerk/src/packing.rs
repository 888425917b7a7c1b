//! Whether answers of drives should come packed: where it is the network that is waited for, and not the drives.

use std::collections::BTreeMap;
use std::time::Duration;

use nasd_protocol::packing::{Took, Wish, unpack};

use crate::ClerkError;
use crate::extending::ExtendedPart;
use crate::wire::ExtensionOutcome;

/// Bytes a second of one call, of some at a time, above which packing and unpacking take as long as it saves.
const FAST: f64 = 150e6;

/// Bytes of answers that something can be told from.
const LEAST_BYTES: f64 = 1e6;

/// What is known of the answers of a job so far, the later ones more than the earlier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    /// Bytes of them, and of those that came.
    plain: f64,
    sent: f64,
    /// Seconds that these were on their way, that drives took without packing, and that were counted in.
    network: f64,
    drives: f64,
}

/// What came of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Arrived {
    plain: u64,
    pub(crate) sent: u64,
    network: Duration,
    drives: Duration,
}

impl Answers {
    pub(crate) fn count(&mut self, arrived: &Arrived) {
        // The last four megabytes or so count.
        let keep = if self.plain > 4.0 * LEAST_BYTES { 0.5 } else { 1.0 };
        self.plain = self.plain * keep + arrived.plain as f64;
        self.sent = self.sent * keep + arrived.sent as f64;
        self.network = self.network * keep + arrived.network.as_secs_f64();
        self.drives = self.drives * keep + arrived.drives.as_secs_f64();
    }

    /// What the next ones should be: packed if the network is slow, and unpacked ones would be longer on their way than the drives take for
    /// them.
    pub(crate) fn wish(&self) -> Wish {
        let is_waited_for = self.plain / self.rate().max(1.0) > self.drives;
        match self.are_slow() && is_waited_for {
            true => Wish::Packed,
            false => Wish::Plain,
        }
    }

    /// Whether they travel more slowly than they could be packed, as far as is known.
    pub(crate) fn are_slow(&self) -> bool {
        self.plain >= LEAST_BYTES && self.rate() < FAST
    }

    /// Whether packing them would only take longer, as far as is known.
    pub(crate) fn are_quick(&self) -> bool {
        self.plain >= LEAST_BYTES && self.rate() >= FAST
    }

    /// Bytes a second of one call.
    fn rate(&self) -> f64 {
        self.sent / self.network.max(1e-9)
    }
}

/// Unpacks what drives told in one call, all of which took `elapsed`; each answer may have `most` bytes.
pub(crate) fn unpack_all(
    told: &mut [ExtendedPart],
    most: usize,
    elapsed: Duration,
) -> Result<Arrived, ClerkError> {
    let mut arrived = Arrived::default();
    // Of each drive: how long its answers took, one after the other.
    let mut took: BTreeMap<_, Took> = BTreeMap::new();
    for part in told {
        arrived.sent += part.data.len() as u64;
        if part.outcome != ExtensionOutcome::Done {
            continue;
        }
        let answer = unpack(std::mem::take(&mut part.data), most)
            .map_err(|error| ClerkError::Protocol(format!("drive {}: {error}", part.drive)))?;
        part.data = answer.data;
        arrived.plain += part.data.len() as u64;
        let took = took.entry(part.drive).or_default();
        took.all += answer.took.all;
        took.packing += answer.took.packing;
    }
    // Drives work at the same time.
    let longest = took.values().map(|took| took.all).max().unwrap_or_default();
    arrived.network = elapsed.saturating_sub(longest);
    let work = took.values().map(|took| took.all.saturating_sub(took.packing));
    arrived.drives = work.max().unwrap_or_default();
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use nasd_types::DriveId;

    use super::*;

    fn arrived(plain: u64, sent: u64, network: u64, drives: u64) -> Arrived {
        let (network, drives) = (Duration::from_millis(network), Duration::from_millis(drives));
        Arrived { plain, sent, network, drives }
    }

    fn wish(all: &[Arrived]) -> Wish {
        let mut answers = Answers::default();
        all.iter().for_each(|arrived| answers.count(arrived));
        answers.wish()
    }

    #[test]
    fn packed_is_what_a_slow_network_is_waited_for() {
        assert_eq!(wish(&[]), Wish::Plain);
        // 4 MB in 100 ms, of drives that took 20.
        let slow = arrived(4_000_000, 4_000_000, 100, 20);
        assert_eq!(wish(&[slow]), Wish::Packed);
        // What comes packed is no reason to have it otherwise.
        assert_eq!(wish(&[slow, arrived(4_000_000, 500_000, 13, 20), slow]), Wish::Packed);
        let packed = [arrived(4_000_000, 500_000, 13, 20); 8];
        assert_eq!(wish(&packed), Wish::Packed);
        // Drives take longer than the network; that is fast; there is little.
        assert_eq!(wish(&[arrived(4_000_000, 4_000_000, 100, 200)]), Wish::Plain);
        assert_eq!(wish(&[arrived(4_000_000, 4_000_000, 10, 2)]), Wish::Plain);
        assert_eq!(wish(&[arrived(40_000, 40_000, 100, 2)]), Wish::Plain);
        // What was so once need not be so for ever.
        let fast = [arrived(4_000_000, 4_000_000, 5, 20); 20];
        assert_eq!(wish(&[&[slow; 3], &fast[..]].concat()), Wish::Plain);
    }

    #[test]
    fn a_network_is_slow_or_quick_once_enough_has_come() {
        let mut answers = Answers::default();
        answers.count(&arrived(900_000, 900_000, 1, 20));
        assert!(!answers.are_slow() && !answers.are_quick());
        answers.count(&arrived(900_000, 900_000, 1, 20));
        assert!(!answers.are_slow() && answers.are_quick());
        answers.count(&arrived(4_000_000, 4_000_000, 100, 20));
        assert!(answers.are_slow() && !answers.are_quick());
    }

    #[test]
    fn a_drive_that_packs_nothing_right_is_told() {
        let part = |data: Vec<u8>| ExtendedPart {
            drive: DriveId(1),
            pieces: Vec::new(),
            outcome: ExtensionOutcome::Done,
            position: 1,
            data,
        };
        let trailer = [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 4];
        let mut told = [part([b"data", &trailer[..]].concat()), part(trailer.to_vec())];
        let arrived = unpack_all(&mut told, 10, Duration::from_micros(30)).unwrap();
        assert_eq!(told[0].data, b"data");
        assert_eq!((arrived.plain, arrived.sent), (4, 28));
        assert_eq!(arrived.network, Duration::from_micros(12));
        assert_eq!(arrived.drives, Duration::from_micros(10));
        assert!(unpack_all(&mut [part(Vec::new())], 10, Duration::ZERO).is_err());
    }
}

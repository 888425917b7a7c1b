//! Who looks at the next chunk of a file: the drives that have its bytes, or this clerk, which reads them for that.
//!
//! Drives do, where that can be. Reading is no slower where nearly all would be told anyway; and where the network is quick it may be
//! quicker from a half on, as chunks that are read are looked at while the processor's caches have them. That depends on the drives, the
//! machines and what is between them, so it is tried, with some chunks in a row, and how quickly chunks are done is compared.

/// Chunks that are done here after a drive has not answered, at first and at most, before drives are asked again.
const RESTS: (u64, u64) = (4, 64);

/// From this part of a chunk's bytes on, what drives tell of it is as long on its way as all of them.
const NEARLY_ALL: f64 = 0.95;

/// Of less than this part reading is not tried.
const MUCH: f64 = 0.5;

/// So many times as quick as drives reading must be, since it takes more of the network.
const QUICKER: f64 = 1.1;

/// Chunks with which the other way is tried, in a row.
const TRIAL: u32 = 8;

/// After so many bytes it is tried first, and again.
const TRIED_AFTER: (u64, u64) = (24 << 20, 256 << 20);

/// Chunks that are begun all at once: they are done all at once, too.
const AT_ONCE: u32 = super::THREADS as u32;

/// Of so many bytes, how quickly they were done counts twice as much as that of as many before.
const HALF: f64 = 16e6;

/// What drives had to do with a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing.
    No,
    Told,
    /// They can't do it, and could not the next time.
    CanNot,
    /// They did not answer.
    Away,
}

/// What a chunk has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) asked: Asked,
    /// Bytes that it has.
    pub(super) bytes: u64,
    /// Bytes that drives told of it, or would have; `None` if the next ones may become shorter by packing.
    pub(super) told: Option<u64>,
    /// When it was done, in seconds since any moment that stays the same.
    pub(super) at: f64,
    /// Answers travel as quickly as they could be packed.
    pub(super) is_quick_network: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Drives can't, or are not to.
    here: bool,
    /// Drives have not answered: they may later.
    rest: Rest,
    /// Which part of the last chunk's bytes drives told, or would have.
    part: f64,
    is_quick_network: bool,
    /// By drives.
    asking: Pace,
    /// By this clerk.
    reading: Pace,
    /// When a chunk was done last.
    last: f64,
    /// How many of those that are begun all at once are still to be done.
    first: u32,
    trial: Option<Trial>,
    /// Bytes until the other way is tried.
    until_trial: u64,
}

/// How quickly chunks are done, the later ones more than the earlier.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    bytes: f64,
    seconds: f64,
}

/// Some chunks that are done the other way.
#[derive(Clone, Copy, Debug)]
struct Trial {
    here: bool,
    left: u32,
}

/// For how many chunks drives are left alone.
#[derive(Clone, Copy, Debug)]
struct Rest {
    chunks: u64,
    /// How many the next time.
    next: u64,
}

impl Choice {
    /// Drives, unless all is to be done `here`.
    pub(super) fn new(here: bool) -> Choice {
        Choice {
            here,
            rest: Rest { chunks: 0, next: RESTS.0 },
            part: 0.0,
            is_quick_network: false,
            asking: Pace::default(),
            reading: Pace::default(),
            last: 0.0,
            first: AT_ONCE,
            trial: None,
            until_trial: TRIED_AFTER.0,
        }
    }

    /// Whether a chunk that is begun now is done here.
    pub(super) fn take(&mut self) -> bool {
        self.here || self.part >= NEARLY_ALL || self.rest.take() || self.is_quicker_here()
    }

    /// Whether drives have nothing to do with the next chunks.
    pub(super) fn is_without_drives(&self) -> bool {
        self.here || self.rest.chunks > 0
    }

    pub(super) fn learn(&mut self, shown: &Shown) {
        let Shown { asked, bytes, told, at, is_quick_network } = *shown;
        // What was left to this clerk once will be so again, mostly.
        self.here |= asked == Asked::CanNot;
        self.rest.learn(asked);
        self.part = told.map_or(0.0, |told| told as f64 / bytes.max(1) as f64);
        self.is_quick_network |= is_quick_network;
        self.until_trial = self.until_trial.saturating_sub(bytes);
        // Several are done side by side: what was done since the last one is all there is.
        let seconds = (at - std::mem::replace(&mut self.last, at)).max(0.0); eprintln!("{at:.5} {asked:?} {bytes} part {:.2} quick {} ask {:.0} read {:.0} trial {:?} until {}", self.part, self.is_quick_network, self.asking.rate()/1e6, self.reading.rate()/1e6, self.trial, self.until_trial);
        match asked {
            _ if self.first > 0 => self.first -= 1,
            Asked::Told => self.asking.count(bytes, seconds),
            Asked::No => self.reading.count(bytes, seconds),
            Asked::CanNot | Asked::Away => {}
        }
    }

    /// Whether the next one is done here for that reason, or to find out.
    fn is_quicker_here(&mut self) -> bool {
        if self.part < MUCH || !self.is_quick_network {
            self.trial = None;
            return false;
        }
        let is_quicker =
            self.asking.bytes > 0.0 && self.reading.rate() > QUICKER * self.asking.rate();
        if self.until_trial == 0 {
            self.until_trial = TRIED_AFTER.1;
            self.trial = Some(Trial { here: !is_quicker, left: TRIAL });
            // What was so may be so no more.
            *if is_quicker { &mut self.asking } else { &mut self.reading } = Pace::default();
        }
        match &mut self.trial {
            Some(trial) if trial.left > 0 => {
                trial.left -= 1;
                trial.here
            }
            _ => is_quicker,
        }
    }
}

impl Pace {
    fn count(&mut self, bytes: u64, seconds: f64) {
        let keep = 0.5_f64.powf(bytes as f64 / HALF);
        self.bytes = self.bytes * keep + bytes as f64;
        self.seconds = self.seconds * keep + seconds;
    }

    /// Bytes a second; none if nothing is known.
    fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }
}

impl Rest {
    /// Whether a chunk that is begun now is done here.
    fn take(&mut self) -> bool {
        let is_here = self.chunks > 0;
        self.chunks = self.chunks.saturating_sub(1);
        is_here
    }

    /// A chunk has shown something about drives. What several have shown at the same time is one thing.
    fn learn(&mut self, asked: Asked) {
        match asked {
            Asked::Told => self.next = RESTS.0,
            Asked::Away if self.chunks == 0 => {
                self.chunks = self.next;
                self.next = (2 * self.next).min(RESTS.1);
            }
            Asked::Away | Asked::No | Asked::CanNot => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a chunk.
    const CHUNK: u64 = 4 << 20;

    /// A clerk that does chunks one after the other.
    struct Clerk {
        choice: Choice,
        now: f64,
    }

    fn shown(asked: Asked, part: f64, at: f64) -> Shown {
        let told = Some((part * CHUNK as f64) as u64);
        Shown { asked, bytes: CHUNK, told, at, is_quick_network: true }
    }

    impl Clerk {
        fn new() -> Clerk {
            Clerk { choice: Choice::new(false), now: 0.0 }
        }

        /// How many of so many chunks are done here, of which drives tell a part, each of them done in so many seconds.
        fn done_here(&mut self, chunks: u32, part: f64, (asking, reading): (f64, f64)) -> u32 {
            let one = |_| {
                let here = self.choice.take();
                let (asked, seconds) =
                    if here { (Asked::No, reading) } else { (Asked::Told, asking) };
                self.now += seconds;
                self.choice.learn(&shown(asked, part, self.now));
                u32::from(here)
            };
            (0..chunks).map(one).sum()
        }
    }

    #[test]
    fn drives_that_do_not_answer_are_asked_again_later_and_less_often() {
        let mut choice = Choice::new(false);
        for chunks in [4, 8, 16, 32, 64, 64] {
            assert!(!choice.take(), "they are asked");
            // Several chunks were under way.
            (0..3).for_each(|_| choice.learn(&shown(Asked::Away, 0.0, 1.0)));
            assert!(choice.is_without_drives());
            assert_eq!((0..chunks).filter(|_| choice.take()).count(), chunks);
        }
        assert!(!choice.take());
        choice.learn(&shown(Asked::Told, 0.0, 1.0));
        choice.learn(&shown(Asked::Away, 0.0, 1.0));
        assert_eq!(choice.rest.chunks, RESTS.0);
    }

    #[test]
    fn what_drives_would_tell_nearly_whole_is_read() {
        let mut clerk = Clerk::new();
        assert_eq!(clerk.done_here(10, 0.96, (1.0, 1.0)), 9);
        // Less is told later on.
        assert_eq!(clerk.done_here(10, 0.2, (1.0, 1.0)), 1);
    }

    #[test]
    fn what_is_read_quicker_is_read_once_that_was_tried() {
        let mut clerk = Clerk::new();
        assert_eq!(clerk.done_here(50, 0.7, (1.0, 0.5)), 44);
        // It is so no more.
        assert!(clerk.done_here(50, 0.7, (1.0, 2.0)) < 10);
        assert_eq!(clerk.done_here(320, 0.7, (1.0, 2.0)), 5 * TRIAL);
        // And the other way round.
        assert!(clerk.done_here(320, 0.7, (4.0, 1.0)) >= 320 - 6 * TRIAL);
        assert!(clerk.done_here(10, 0.4, (4.0, 1.0)) <= 1, "too little is told");
    }

    #[test]
    fn a_little_quicker_is_not_worth_the_bytes() {
        assert_eq!(Clerk::new().done_here(32, 0.7, (1.0, 0.95)), TRIAL);
    }

    #[test]
    fn a_slow_network_is_spared() {
        let mut choice = Choice::new(false);
        for at in 0..100 {
            assert!(!choice.take());
            let slow = shown(Asked::Told, 0.7, f64::from(at));
            choice.learn(&Shown { is_quick_network: false, ..slow });
        }
    }

    #[test]
    fn whoever_can_not_is_asked_no_more() {
        let mut choice = Choice::new(false);
        assert!(!choice.take());
        choice.learn(&shown(Asked::CanNot, 0.0, 1.0));
        assert!(choice.take() && choice.is_without_drives());
        assert!(Choice::new(true).take());
    }
}

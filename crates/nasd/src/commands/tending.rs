//! What a striping manager does by itself: looking at its component drives, and after objects that nobody writes.

use super::arranging::Following;
use nasd_stripe::{Components, RemoteComponents, VirtualDrive};
use nasd_types::{DriveId, Timestamp};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often it is looked whose writes have ended.
const TEND_EVERY: Duration = Duration::from_millis(500);

/// How often each component drive is asked how it is.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// How long after one small durable write to each of them the next one comes.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// How often it is decided what follows from that.
const WATCH_EVERY: Duration = Duration::from_millis(200);

/// How often it is tried to remove what drives have kept of what is elsewhere now.
const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// Threads that give drives what they lack.
const REBUILDERS: usize = 3;

/// What they need.
#[derive(Clone, Copy)]
pub struct Tending<'a> {
    pub virtual_drive: &'a VirtualDrive,
    pub components: &'a RemoteComponents,
    pub now: &'a (dyn Fn() -> Timestamp + Sync),
}

impl<'a> Tending<'a> {
    /// Begins all of it, until `stopping` is set.
    pub fn begin<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        stopping: &'scope AtomicBool,
        mut following: Following<'a>,
    ) where
        'a: 'scope,
    {
        let is_going_on = || !stopping.load(Ordering::Acquire);
        scope.spawn(move || {
            while is_going_on() {
                self.virtual_drive.tend((self.now)());
                std::thread::park_timeout(TEND_EVERY);
            }
        });
        scope.spawn(move || {
            while is_going_on() {
                self.virtual_drive.watch((self.now)());
                self.virtual_drive.arrange((self.now)());
                std::thread::park_timeout(WATCH_EVERY);
            }
        });
        scope.spawn(move || {
            let mut looked_at = BTreeSet::new();
            while is_going_on() {
                let present: BTreeSet<DriveId> = self.components.drives().into_iter().collect();
                for drive in &present - &looked_at {
                    scope.spawn(move || self.look_at(drive, stopping));
                    scope.spawn(move || self.probe(drive, stopping));
                }
                looked_at = present;
                following.follow();
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        scope.spawn(move || {
            while is_going_on() {
                let mended = self.virtual_drive.mend_suspects();
                if !self.virtual_drive.sweep() && !mended {
                    std::thread::park_timeout(SWEEP_EVERY);
                }
            }
        });
        for _ in 0..REBUILDERS {
            scope.spawn(move || {
                while is_going_on() {
                    if self.virtual_drive.rebuild().is_none() {
                        std::thread::park_timeout(TEND_EVERY);
                    }
                }
            });
        }
    }

    /// Has a drive make something durable now and then, as long as it is one of the component drives.
    fn probe(self, drive: DriveId, stopping: &AtomicBool) {
        while !stopping.load(Ordering::Acquire) && self.components.drives().contains(&drive) {
            let heard = |probe| self.virtual_drive.probed(drive, probe, (self.now)());
            self.components.probe(drive, heard);
            std::thread::park_timeout(PROBE_EVERY);
        }
    }

    /// Asks a drive how it is, as long as it is one of the component drives.
    fn look_at(self, drive: DriveId, stopping: &AtomicBool) {
        while !stopping.load(Ordering::Acquire) && self.components.drives().contains(&drive) {
            let begun = Instant::now();
            self.virtual_drive.heard(drive, self.components.look(drive), (self.now)());
            std::thread::park_timeout(LOOK_EVERY.saturating_sub(begun.elapsed()));
        }
    }
}

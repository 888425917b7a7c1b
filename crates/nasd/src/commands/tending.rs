//! What a striping manager does by itself: looking at its component drives, and after objects that nobody writes.

use nasd_stripe::{Components, RemoteComponents, VirtualDrive};
use nasd_types::Timestamp;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often it is looked whose writes have ended.
const TEND_EVERY: Duration = Duration::from_millis(500);

/// How often each component drive is asked how it is.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// How often it is decided what follows from that.
const WATCH_EVERY: Duration = Duration::from_millis(200);

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
    pub fn begin<'scope>(self, scope: &'scope Scope<'scope, '_>, stopping: &'scope AtomicBool)
    where
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
                std::thread::park_timeout(WATCH_EVERY);
            }
        });
        for drive in self.components.drives() {
            scope.spawn(move || {
                while is_going_on() {
                    let begun = Instant::now();
                    self.virtual_drive.heard(drive, self.components.look(drive), (self.now)());
                    std::thread::park_timeout(LOOK_EVERY.saturating_sub(begun.elapsed()));
                }
            });
        }
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
}

//! What a striping manager does by itself: looking at its component drives, and after objects that nobody writes.

use super::arranging::Following;
use nasd_drive::Stopping;
use nasd_protocol::drive::{ComponentRole, MemberState};
use nasd_stripe::own::{Candidate, OwnState};
use nasd_stripe::{Components, RemoteComponents, Role, VirtualDrive};
use nasd_types::{DriveId, Timestamp};
use std::collections::BTreeSet;
use std::thread::{Scope, Thread};
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

/// How often it is looked whether as many drives as should have the striping manager's own state.
const OWN_EVERY: Duration = Duration::from_millis(500);

/// Threads that give drives what they lack: some of them wait for copies to be read while others have theirs written.
const REBUILDERS: usize = 8;

/// What they need.
#[derive(Clone, Copy)]
pub struct Tending<'a> {
    pub virtual_drive: &'a VirtualDrive,
    pub components: &'a RemoteComponents,
    pub own: &'a OwnState,
    pub now: &'a (dyn Fn() -> Timestamp + Sync),
}

impl<'a> Tending<'a> {
    /// Begins all of it, until `stopping` is set.
    pub fn begin<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        stopping: &'scope Stopping,
        mut following: Following<'a>,
    ) where
        'a: 'scope,
    {
        let is_going_on = || !stopping.is_now();
        scope.spawn(move || {
            while is_going_on() {
                if !self.virtual_drive.tend((self.now)()).has_more {
                    stopping.wait(TEND_EVERY);
                }
            }
        });
        let rebuild = move || {
            while is_going_on() {
                if self.virtual_drive.rebuild().is_none() {
                    std::thread::park_timeout(TEND_EVERY);
                }
            }
        };
        let rebuilders: Vec<Thread> =
            (0..REBUILDERS).map(|_| scope.spawn(rebuild).thread().clone()).collect();
        scope.spawn(move || {
            while is_going_on() {
                self.virtual_drive.watch((self.now)());
                if self.virtual_drive.arrange((self.now)()) {
                    rebuilders.iter().for_each(Thread::unpark);
                }
                stopping.wait(WATCH_EVERY);
            }
            rebuilders.iter().for_each(Thread::unpark);
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
                stopping.wait(LOOK_EVERY);
            }
        });
        scope.spawn(move || {
            while is_going_on() {
                let mended = self.virtual_drive.mend_suspects();
                if !self.virtual_drive.sweep() && !mended {
                    stopping.wait(SWEEP_EVERY);
                }
            }
        });
        scope.spawn(move || {
            while is_going_on() {
                if let Err(error) = self.own.tend(&self.candidates()) {
                    tracing::error!(%error, "nothing can be kept any more: this ends");
                    let this = rustix::process::getpid();
                    let _ = rustix::process::kill_process(this, rustix::process::Signal::TERM);
                    return;
                }
                stopping.wait(OWN_EVERY);
            }
        });
    }

    /// The drives that may have copies of the striping manager's own state.
    fn candidates(self) -> Vec<Candidate> {
        let statuses = self.virtual_drive.component_status().into_iter();
        let candidate = statuses.map(|status| Candidate {
            drive: status.drive,
            role: match status.role {
                ComponentRole::Member => Role::Member,
                ComponentRole::Spare => Role::Spare,
                ComponentRole::Leaving => Role::Leaving,
            },
            // One that is out is not called.
            is_reachable: status.reachable && status.state != MemberState::Out,
        });
        candidate.collect()
    }

    /// Has a drive make something durable now and then, as long as it is one of the component drives.
    fn probe(self, drive: DriveId, stopping: &Stopping) {
        while !stopping.is_now() && self.components.drives().contains(&drive) {
            let heard = |probe| self.virtual_drive.probed(drive, probe, (self.now)());
            self.components.probe(drive, heard);
            stopping.wait(PROBE_EVERY);
        }
    }

    /// Asks a drive how it is, as long as it is one of the component drives.
    fn look_at(self, drive: DriveId, stopping: &Stopping) {
        while !stopping.is_now() && self.components.drives().contains(&drive) {
            let begun = Instant::now();
            self.virtual_drive.heard(drive, self.components.look(drive), (self.now)());
            stopping.wait(LOOK_EVERY.saturating_sub(begun.elapsed()));
        }
    }
}

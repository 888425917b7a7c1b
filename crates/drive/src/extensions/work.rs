//! What extensions do now, job by job, for whoever may ask the drive.

use std::collections::BTreeMap;

use nasd_protocol::drive::{ExtensionJob, ExtensionWork};
use nasd_protocol::limits::MAX_EXTENSION_JOBS;
use nasd_types::DriveId;

use super::jobs::{JobName, Jobs};
use super::queue::Need;
use super::workers::{State, Workers};

impl Workers {
    /// What runs and waits at this drive, those that run first.
    pub(crate) fn work(&self, drive: DriveId) -> ExtensionWork {
        let now = self.shared.now();
        let state = self.shared.lock();
        let granted = self.memory_bytes().saturating_sub(state.queue.free_bytes());
        let mut jobs = jobs_of(&state, drive, now);
        drop(state);
        jobs.sort_by_key(|job| (job.running == 0, u64::MAX - job.age));
        jobs.truncate(MAX_EXTENSION_JOBS);
        ExtensionWork {
            memory_bytes: self.memory_bytes() as u64,
            granted_bytes: granted as u64,
            jobs,
        }
    }
}

fn jobs_of(state: &State, drive: DriveId, now: f64) -> Vec<ExtensionJob> {
    let mut jobs: BTreeMap<JobName, ExtensionJob> = BTreeMap::new();
    let known = state.queue.jobs();
    for need in state.queue.waiting() {
        let job = entry(&mut jobs, need, (known, drive, now));
        job.waiting += 1;
    }
    for running in state.running.values() {
        let job = entry(&mut jobs, &running.need, (known, drive, now));
        job.running += 1;
        job.bytes_done = job.bytes_done.saturating_add(running.signals.looked_at());
        job.memory_bytes = job.memory_bytes.saturating_add(running.need.memory_bytes as u64);
    }
    // Of all its calls the first one in the file has most left, and others may have looked at some of that.
    let left = |job: ExtensionJob| job.object_bytes.saturating_sub(job.bytes_done);
    jobs.into_values()
        .map(|job| ExtensionJob { bytes_left: job.bytes_left.min(left(job)), ..job })
        .collect()
}

fn entry<'a>(
    jobs: &'a mut BTreeMap<JobName, ExtensionJob>,
    need: &Need,
    (known, drive, now): (&Jobs, DriveId, f64),
) -> &'a mut ExtensionJob {
    let JobName { extension, number, object, .. } = need.job;
    let before = known.get(&need.job);
    let job = jobs.entry(need.job).or_insert_with(|| ExtensionJob {
        drive,
        extension,
        partition: object.partition,
        object: object.object,
        object_bytes: need.object_bytes,
        job: number,
        running: 0,
        waiting: 0,
        age: before.map_or(0, |job| ((now - job.since).max(0.0) * 1e9) as u64),
        bytes_done: before.map_or(0, |job| job.bytes),
        bytes_left: 0,
        bytes_per_second: known.speed(&need.job).unwrap_or(0.0) as u64,
        memory_bytes: 0,
    });
    job.bytes_left = job.bytes_left.max(known.left(&need.job, need.bytes_left, 0));
    job
}

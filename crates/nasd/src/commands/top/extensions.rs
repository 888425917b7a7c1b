//! What extensions of drives do: scans and the like, job by job.

use super::sample::Sample;
use nasd_protocol::drive::{DriveControl, ExtensionJob};
use nasd_protocol::manager::DriveStatus;
use nasd_types::DriveId;
use serde::Serialize;

/// Of one drive, or of all components of a virtual one.
#[derive(Debug, Default, Serialize)]
pub struct Extensions {
    /// Memory for them, and how much of it was granted.
    pub memory_bytes: u64,
    pub granted_bytes: u64,
    /// Those that run first.
    pub jobs: Vec<Job>,
}

/// A job of which calls run or wait.
#[derive(Debug, Serialize)]
pub struct Job {
    /// Where it runs.
    pub drive: u32,
    pub drive_id: String,
    pub extension: String,
    pub partition: u32,
    pub object: String,
    pub object_bytes: u64,
    /// `running` or `waiting`, and how many of its calls do.
    pub state: &'static str,
    pub running: u32,
    pub waiting: u32,
    pub elapsed_s: f64,
    pub bytes_done: u64,
    pub bytes_left: u64,
    /// In this interval, or since it has begun.
    pub bytes_per_second: f64,
    /// Of work for one thread of the drive, by the speed that was measured of it or its extension; nothing where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<f64>,
    pub memory_bytes: u64,
}

impl Extensions {
    /// What a drive tells now, and of `before`, so many seconds ago.
    pub fn between(
        before: Option<&DriveStatus>,
        told: &DriveStatus,
        now: &Sample,
        seconds: f64,
    ) -> Extensions {
        let Some(control) = &told.control else { return Extensions::default() };
        let work = &control.extension_work;
        let earlier = before.and_then(|drive| drive.control.as_ref());
        let job = |job: &ExtensionJob| {
            let index = now.indices.get(&job.drive).copied().unwrap_or_default();
            Job::between(earlier, job, (name(control, job.extension), index), seconds)
        };
        Extensions {
            memory_bytes: work.memory_bytes,
            granted_bytes: work.granted_bytes,
            jobs: work.jobs.iter().map(job).collect(),
        }
    }
}

impl Job {
    fn between(
        earlier: Option<&DriveControl>,
        job: &ExtensionJob,
        (extension, drive): (String, u32),
        seconds: f64,
    ) -> Job {
        let elapsed_s = job.age as f64 / 1e9;
        let is_it = |other: &&ExtensionJob| key(other) == key(job);
        let before = earlier.and_then(|control| control.extension_work.jobs.iter().find(is_it));
        let (done, took) = match before {
            Some(before) => (job.bytes_done.saturating_sub(before.bytes_done), seconds),
            None => (job.bytes_done, elapsed_s),
        };
        let measured = job.bytes_per_second;
        Job {
            drive,
            drive_id: format!("{:016x}", job.drive.0),
            extension,
            partition: job.partition.0,
            object: format!("{:x}", job.object.0),
            object_bytes: job.object_bytes,
            state: if job.running > 0 { "running" } else { "waiting" },
            running: job.running,
            waiting: job.waiting,
            elapsed_s,
            bytes_done: job.bytes_done,
            bytes_left: job.bytes_left,
            bytes_per_second: done as f64 / took.max(1e-3),
            seconds_left: (measured > 0).then(|| job.bytes_left as f64 / measured as f64),
            memory_bytes: job.memory_bytes,
        }
    }
}

fn key(job: &ExtensionJob) -> (DriveId, u32, u32, u64, u64) {
    (job.drive, job.extension, job.partition.0, job.object.0, job.job)
}

fn name(control: &DriveControl, number: u32) -> String {
    let known = control.extensions.iter().find(|extension| extension.number == number);
    known.map_or_else(|| format!("extension {number}"), |extension| extension.name.clone())
}

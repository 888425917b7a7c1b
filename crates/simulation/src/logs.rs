//! What applications that append were promised: each append is there once, whole, where it was said to be, behind all
//! that had been acknowledged before it began; it knows nothing of drives, copies or stripes.
//!
//! A log is an object to which is only appended. Appends are told apart by the bytes that they append, none of which
//! is zero: what is begun and comes to nothing may leave zeros.

use std::ops::Range;

use crate::checker::{REACH, Violation};

/// Which log.
pub type Log = usize;

/// An append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendId(usize);

/// Least bytes of an append: as many tell it from others.
pub const LEAST: u64 = 16;

#[derive(Clone, Debug)]
struct Append {
    log: Log,
    length: u64,
    /// Behind what it has to be: the end of what had been acknowledged when it began.
    behind: u64,
    /// Where it was said to be.
    at: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Logs {
    logs: usize,
    appends: Vec<Append>,
}

/// The bytes of an append.
pub fn appended_bytes(append: AppendId, length: u64) -> Vec<u8> {
    let byte = |at: u64| {
        let mixed = ((append.0 as u64 + 1) << 32 ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as u8 | 1
    };
    (0..length).map(byte).collect()
}

impl Append {
    fn place(&self) -> Option<Range<u64>> {
        self.at.map(|at| at..at + self.length)
    }
}

impl Logs {
    /// A new one, which is empty.
    pub fn create(&mut self) -> Log {
        self.logs += 1;
        self.logs - 1
    }

    /// Where what was acknowledged ends.
    fn end(&self, log: Log) -> u64 {
        let places = self.appends.iter().filter(|it| it.log == log).filter_map(Append::place);
        places.map(|place| place.end).max().unwrap_or(0)
    }

    /// Somebody appends so many of the bytes of [`appended_bytes`]; none if the log may become too long.
    pub fn begin(&mut self, log: Log, length: u64) -> Option<AppendId> {
        let all: u64 = self.appends.iter().filter(|it| it.log == log).map(|it| it.length).sum();
        if all + length > REACH {
            return None;
        }
        let behind = self.end(log);
        self.appends.push(Append { log, length, behind, at: None });
        Some(AppendId(self.appends.len() - 1))
    }

    /// It was acknowledged, and is at this place.
    pub fn acknowledge(&mut self, id: AppendId, at: u64) -> Result<(), Violation> {
        let own = Append { at: Some(at), ..self.appends[id.0].clone() };
        let (place, behind) = (at..at + own.length, own.behind);
        if at < behind {
            return Err(format!("an append is at {place:?}, before {behind}, where the log ended"));
        }
        let meets = |other: &&Append| {
            let there = other.place().filter(|_| other.log == own.log);
            there.is_some_and(|there| there.start < place.end && place.start < there.end)
        };
        if let Some(other) = self.appends.iter().find(meets) {
            return Err(format!("an append is at {place:?}, where another is: {other:?}"));
        }
        self.appends[id.0] = own;
        Ok(())
    }

    /// Somebody reads a log from its beginning: what is to be there at least.
    pub fn begin_read(&self, log: Log) -> Vec<AppendId> {
        let is_there = |append: &Append| append.log == log && append.at.is_some();
        let all = self.appends.iter().enumerate().filter(|(_, append)| is_there(append));
        all.map(|(number, _)| AppendId(number)).collect()
    }

    /// This was read.
    pub fn end_read(&self, log: Log, there: &[AppendId], data: &[u8]) -> Result<(), Violation> {
        for id in there {
            let append = &self.appends[id.0];
            let Some(place) = append.place() else { continue };
            let bytes = appended_bytes(*id, append.length);
            let found = data.get(place.start as usize..place.end as usize);
            if found != Some(&bytes[..]) {
                let length = data.len();
                return Err(format!(
                    "an append at {place:?} of log {log} is not there, of {length} bytes: {append:?}"
                ));
            }
        }
        for (number, append) in self.appends.iter().enumerate().filter(|(_, it)| it.log == log) {
            let beginning = appended_bytes(AppendId(number), LEAST);
            let times = data.windows(LEAST as usize).filter(|bytes| *bytes == beginning).count();
            if times > 1 {
                return Err(format!("an append to log {log} is there {times} times: {append:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(logs: &mut Logs, log: Log, at: u64) -> AppendId {
        let id = logs.begin(log, 20).unwrap();
        logs.acknowledge(id, at).unwrap();
        id
    }

    fn read(logs: &Logs, log: Log, parts: &[Vec<u8>]) -> Result<(), Violation> {
        logs.end_read(log, &logs.begin_read(log), &parts.concat())
    }

    #[test]
    fn what_was_acknowledged_is_there_once_and_whole() {
        let mut logs = Logs::default();
        let log = logs.create();
        let (first, second) = (appended(&mut logs, log, 0), appended(&mut logs, log, 20));
        let [first, second] = [first, second].map(|id| appended_bytes(id, 20));
        read(&logs, log, &[first.clone(), second.clone()]).unwrap();
        assert!(read(&logs, log, std::slice::from_ref(&first)).is_err(), "the second is lost");
        assert!(read(&logs, log, &[first.clone(), vec![0; 20]]).is_err());
        assert!(read(&logs, log, &[first.clone(), second[..19].to_vec(), vec![0]]).is_err());
        assert!(read(&logs, log, &[second.clone(), first.clone()]).is_err(), "they are elsewhere");
        assert!(read(&logs, log, &[first.clone(), second, first]).is_err(), "one is there twice");
    }

    #[test]
    fn what_came_to_nothing_may_be_there_once_or_leave_zeros() {
        let mut logs = Logs::default();
        let log = logs.create();
        let failed = appended_bytes(logs.begin(log, 20).unwrap(), 20);
        let first = appended(&mut logs, log, 20);
        let first = appended_bytes(first, 20);
        read(&logs, log, &[failed.clone(), first.clone()]).unwrap();
        read(&logs, log, &[vec![0; 20], first.clone()]).unwrap();
        assert!(read(&logs, log, &[failed.clone(), first, failed]).is_err(), "it is there twice");
    }

    #[test]
    fn appends_are_in_their_order_and_none_overlaps_another() {
        let mut logs = Logs::default();
        let (log, other) = (logs.create(), logs.create());
        let early = logs.begin(log, 20).unwrap();
        appended(&mut logs, log, 20);
        let late = logs.begin(log, 20).unwrap();
        assert!(logs.acknowledge(late, 0).is_err(), "it began when the other was there");
        assert!(logs.acknowledge(late, 39).is_err());
        assert!(logs.acknowledge(early, 1).is_err(), "there is the other one");
        logs.acknowledge(early, 0).unwrap();
        logs.acknowledge(late, 60).unwrap();
        appended(&mut logs, other, 0);
    }

    #[test]
    fn a_log_does_not_become_too_long() {
        let mut logs = Logs::default();
        let log = logs.create();
        assert!(logs.begin(log, REACH - 30).is_some());
        assert!(logs.begin(log, 31).is_none());
        assert!(logs.begin(log, 30).is_some());
    }
}

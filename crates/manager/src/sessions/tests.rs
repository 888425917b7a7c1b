//! Sessions over time: reclaiming, expiry, orphans.

use nasd_protocol::manager::{LockKind, LockMode};
use nasd_types::{DriveId, ObjectId, PartitionId};

use super::*;

const MEMBER: &str = "host:one";
const LEASE: Duration = Duration::from_secs(6);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn file(object: u64) -> FileHandle {
    FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) }
}

fn locked(object: u64) -> LockedFile {
    (file(object), LockKind::Posix)
}

fn lock(client: u64) -> RangeLock {
    let owner = LockOwner { client, owner: 1 };
    RangeLock { owner, range: LockRange::ALL, mode: LockMode::Exclusive, process: 7 }
}

fn sessions(clients: &[u64]) -> Sessions {
    let mut sessions = Sessions::new(SessionTimes { lease: LEASE }, HashSet::new(), at(0));
    for client in clients {
        sessions.attach(*client, MEMBER, &Claims::default(), at(0)).unwrap();
    }
    sessions
}

fn claim_of(client: u64) -> Claims {
    Claims { locks: vec![(locked(1), lock(client))], open: vec![file(9)] }
}

#[test]
fn a_session_belongs_to_its_member() {
    let mut sessions = sessions(&[1]);
    let nothing = Claims::default();
    assert_eq!(sessions.attach(0, MEMBER, &nothing, at(0)), Err(SessionError::NotYours));
    assert_eq!(sessions.attach(1, "host:two", &nothing, at(0)), Err(SessionError::NotYours));
    assert_eq!(sessions.detach(1, "host:two"), Err(SessionError::NotYours));
    let asked = sessions.lock("host:two", locked(1), lock(1), false, at(1));
    assert_eq!(asked, Err(SessionError::NotYours));
    assert_eq!(sessions.detach(1, MEMBER), Ok(()));
    assert_eq!(sessions.detach(1, MEMBER), Err(SessionError::Gone));
}

#[test]
fn locks_of_a_silent_client_are_free_after_its_lease() {
    let mut sessions = sessions(&[1, 2]);
    let ask = |sessions: &mut Sessions, client, now| {
        sessions.lock(MEMBER, locked(1), lock(client), true, now)
    };
    assert_eq!(ask(&mut sessions, 1, at(1)), Ok(LockAnswer::Granted));
    assert_eq!(ask(&mut sessions, 2, at(1)), Ok(LockAnswer::Queued(lock(1))));
    sessions.acknowledge(2, MEMBER, 0, &[], at(5)).unwrap();
    assert_eq!(sessions.expire(at(5)), []);
    assert_eq!(sessions.expire(at(6)), [1]);
    let (first, events) = sessions.next_events(2, MEMBER).unwrap();
    assert_eq!((first, events), (1, vec![Event::LockFree(file(1), LockKind::Posix)]));
    assert_eq!(ask(&mut sessions, 2, at(6)), Ok(LockAnswer::Granted));
    assert_eq!(ask(&mut sessions, 1, at(6)), Err(SessionError::Gone));
}

#[test]
fn what_was_held_under_the_manager_before_is_claimed_within_the_grace() {
    let earlier = HashSet::from([1, 2, 3]);
    let mut sessions = Sessions::new(SessionTimes { lease: LEASE }, earlier, at(0));
    sessions.removed(file(9), 0, false);
    assert_eq!(sessions.attach(1, MEMBER, &claim_of(1), at(1)), Ok(Attached::default()));
    // A newcomer may attach, but not lock, nor change what others may believe.
    assert_eq!(sessions.attach(4, MEMBER, &claim_of(4), at(1)), Ok(Attached { lost: vec![0] }));
    assert_eq!(sessions.lock(MEMBER, locked(2), lock(4), false, at(1)), Err(SessionError::Grace));
    let changed = sessions.begin_change(4, [file(5)].into_iter(), at(1));
    assert_eq!(changed, Err(SessionError::Grace));
    assert_eq!(sessions.lease(4, MEMBER, file(5), at(1)), Err(SessionError::Grace));
    assert_eq!(sessions.attach(2, MEMBER, &Claims::default(), at(2)), Ok(Attached::default()));
    assert!(sessions.is_grace(at(2)));
    // The third is dead.
    assert!(!sessions.is_grace(at(6)));
    assert_eq!(sessions.lock(MEMBER, locked(2), lock(4), false, at(6)), Ok(LockAnswer::Granted));
    assert_eq!(
        sessions.lock(MEMBER, locked(1), lock(4), false, at(6)),
        Ok(LockAnswer::Denied(lock(1)))
    );
    sessions.acknowledge(1, MEMBER, 0, &[], at(6)).unwrap();
    sessions.expire(at(6));
    assert_eq!(sessions.take_free_orphans(), [], "the first has it open");
    sessions.close(1, MEMBER, &[file(9)]).unwrap();
    assert_eq!(sessions.take_free_orphans(), [], "the newcomer may have it from the first");
    sessions.close(4, MEMBER, &[file(9)]).unwrap();
    assert_eq!(sessions.take_free_orphans(), [file(9)]);
    // Who comes too late has lost it.
    assert_eq!(sessions.attach(3, MEMBER, &claim_of(3), at(7)), Ok(Attached { lost: vec![0] }));
}

#[test]
fn the_grace_ends_when_all_are_back() {
    let mut sessions = Sessions::new(SessionTimes { lease: LEASE }, HashSet::from([1]), at(0));
    assert!(sessions.is_grace(at(0)));
    sessions.attach(1, MEMBER, &claim_of(1), at(0)).unwrap();
    assert!(!sessions.is_grace(at(0)));
    assert_eq!(sessions.test_lock(locked(1), &lock(2), at(0)), Ok(Some(lock(1))));
}

#[test]
fn a_removed_file_stays_while_who_removed_it_has_it_open() {
    let mut sessions = sessions(&[1, 2]);
    sessions.removed(file(5), 1, true);
    assert_eq!(sessions.next_events(1, MEMBER).unwrap(), (1, vec![]), "it knows");
    sessions.acknowledge(2, MEMBER, 1, &[], at(1)).unwrap();
    assert_eq!(sessions.take_free_orphans(), []);
    sessions.close(1, MEMBER, &[file(5)]).unwrap();
    assert_eq!(sessions.take_free_orphans(), [file(5)]);
    // Closed before it was said to be open; and by a client that is gone.
    sessions.removed(file(6), 0, false);
    sessions.close(1, MEMBER, &[file(6)]).unwrap();
    sessions.acknowledge(2, MEMBER, 2, &[], at(1)).unwrap();
    assert_eq!(sessions.take_free_orphans(), [file(6)]);
    sessions.removed(file(7), 9, true);
    for client in [1, 2] {
        sessions.acknowledge(client, MEMBER, 3, &[], at(1)).unwrap();
    }
    assert_eq!(sessions.take_free_orphans(), [file(7)]);
}

#[test]
fn a_client_takes_files_over_from_another_one() {
    let mut sessions = sessions(&[1, 2]);
    sessions.removed(file(5), 1, true);
    sessions.acknowledge(2, MEMBER, 1, &[], at(1)).unwrap();
    // Later it has the file open, and the first leaves.
    sessions.acknowledge(2, MEMBER, 0, &[file(5), file(6)], at(1)).unwrap();
    sessions.detach(1, MEMBER).unwrap();
    assert_eq!(sessions.take_free_orphans(), []);
    sessions.detach(2, MEMBER).unwrap();
    assert_eq!(sessions.take_free_orphans(), [file(5)]);
}

#[test]
fn a_removed_file_stays_while_somebody_has_it_open() {
    let mut sessions = sessions(&[1, 2, 3]);
    sessions.removed(file(5), 1, false);
    assert_eq!(sessions.take_free_orphans(), []);
    for client in [2, 3] {
        let told = sessions.next_events(client, MEMBER).unwrap();
        assert_eq!(told, (1, vec![Event::Removed(file(5))]));
    }
    assert_eq!(sessions.next_events(1, MEMBER).unwrap(), (1, vec![]), "it knows");
    sessions.acknowledge(2, MEMBER, 1, &[file(5), file(6)], at(1)).unwrap();
    sessions.acknowledge(3, MEMBER, 1, &[], at(1)).unwrap();
    assert_eq!((sessions.take_free_orphans(), sessions.counts().orphans), (vec![], 1));
    sessions.detach(2, MEMBER).unwrap();
    assert_eq!(sessions.take_free_orphans(), [file(5)]);
    sessions.removed(file(6), 0, false);
    sessions.expire(at(100));
    assert_eq!(sessions.take_free_orphans(), [file(6)], "all are dead");
    sessions.removed(file(7), 0, false);
    assert_eq!(sessions.take_free_orphans(), [file(7)], "nobody is there");
}

#[test]
fn a_client_that_attaches_anew_holds_nothing() {
    let mut sessions = sessions(&[1, 2]);
    assert_eq!(sessions.lease(1, MEMBER, file(3), at(1)), Ok(true));
    assert_eq!(sessions.lease(5, MEMBER, file(3), at(1)), Err(SessionError::Gone));
    sessions.lock(MEMBER, locked(1), lock(1), false, at(1)).unwrap();
    let attached = sessions.attach(1, MEMBER, &claim_of(1), at(1)).unwrap();
    assert_eq!(attached.lost, [0]);
    assert_eq!(sessions.counts(), SessionCounts { sessions: 2, ..SessionCounts::default() });
    let changed = sessions.begin_change(2, [file(3)].into_iter(), at(1));
    assert_eq!(changed, Ok(Recall::default()));
}

#[test]
fn a_client_that_falls_too_far_behind_is_refused_and_waited_for_as_long_as_its_lease() {
    let mut sessions = sessions(&[1, 2]);
    sessions.acknowledge(1, MEMBER, 0, &[], at(1)).unwrap();
    for object in 0..=events::MAX_BEHIND as u64 + 1 {
        sessions.removed(file(object), 2, false);
    }
    assert_eq!(sessions.acknowledge(1, MEMBER, 9, &[], at(5)), Err(SessionError::Gone));
    assert_eq!(sessions.next_events(1, MEMBER), Err(SessionError::Gone));
    assert_eq!(sessions.lease(1, MEMBER, file(1), at(5)), Err(SessionError::Gone));
    sessions.acknowledge(2, MEMBER, 0, &[], at(5)).unwrap();
    assert_eq!(sessions.expire(at(6)), []);
    assert_eq!((sessions.take_free_orphans(), sessions.clients().count()), (vec![], 2));
    assert_eq!(sessions.expire(at(7)), [1]);
    assert_eq!(sessions.take_free_orphans().len(), events::MAX_BEHIND + 2);
    assert_eq!(sessions.take_ended(), [1]);
}

/// Asks every second, and says only up to the first event that it has dealt with what it was told: when it is refused.
fn refused_at(sessions: &mut Sessions, from: u64) -> u64 {
    (from..from + 60)
        .find(|now| {
            sessions.acknowledge(2, MEMBER, 0, &[], at(*now)).unwrap();
            sessions.expire(at(*now));
            sessions.acknowledge(1, MEMBER, 1, &[], at(*now)) == Err(SessionError::Gone)
        })
        .unwrap()
}

#[test]
fn a_client_that_lives_and_deals_with_nothing_is_waited_for_no_longer_than_three_leases() {
    let mut sessions = sessions(&[1, 2]);
    assert_eq!(sessions.lease(1, MEMBER, file(3), at(0)), Ok(true));
    sessions.removed(file(9), 2, false);
    let mut recall = sessions.begin_change(2, [file(3)].into_iter(), at(0)).unwrap();
    assert_eq!(refused_at(&mut sessions, 0), 12);
    assert_eq!(sessions.next_events(1, MEMBER), Err(SessionError::Gone));
    // Its last call that was not refused was at 11: it may believe for a lease from then on.
    sessions.acknowledge(2, MEMBER, 0, &[], at(16)).unwrap();
    assert_eq!((sessions.expire(at(16)), sessions.is_recalled(&mut recall)), (vec![], false));
    assert_eq!(sessions.expire(at(17)), [1]);
    assert!(sessions.is_recalled(&mut recall));
    // Who attaches anew believes nothing, and is not waited for.
    sessions.attach(1, MEMBER, &Claims::default(), at(17)).unwrap();
    sessions.removed(file(8), 2, false);
    sessions.removed(file(7), 2, false);
    let mut recall = sessions.begin_change(2, [file(3)].into_iter(), at(17)).unwrap();
    assert!(sessions.is_recalled(&mut recall), "it has no lease");
    refused_at(&mut sessions, 17);
    sessions.attach(1, MEMBER, &Claims::default(), at(30)).unwrap();
    assert_eq!(sessions.next_events(1, MEMBER), Ok((1, vec![])));
    // One that is over may say that it leaves.
    sessions.removed(file(6), 2, false);
    sessions.removed(file(5), 2, false);
    refused_at(&mut sessions, 30);
    assert_eq!((sessions.detach(1, MEMBER), sessions.clients().count()), (Ok(()), 1));
}

#[test]
fn a_client_that_is_as_slow_as_its_lease_allows_is_not_given_up() {
    let mut sessions = sessions(&[1, 2]);
    let mut seen = 0;
    for now in 0..120 {
        sessions.acknowledge(2, MEMBER, u64::MAX, &[], at(now)).unwrap();
        sessions.removed(file(now), 2, false);
        // It takes all its time to deal with what the call before has told.
        if now % 5 == 4 {
            assert_eq!(sessions.acknowledge(1, MEMBER, seen, &[], at(now)), Ok(()), "at {now}");
            let (first, events) = sessions.next_events(1, MEMBER).unwrap();
            seen = first + events.len() as u64 - 1;
        }
        assert_eq!(sessions.expire(at(now)), []);
    }
}

//! Callbacks of sessions: what clients are told, whom a store and a change wait for, and what ends by itself.

use std::ops::{Deref, DerefMut};

use nasd_afs::callbacks::Limits;
use nasd_types::{DriveId, ObjectId, PartitionId};

use super::callbacks::STORE_TIME;
use super::*;

const MEMBER: &str = "host:one";
/// Longer than a store may take.
const LEASE: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::from_secs(1);
const FILE: FileHandle =
    FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(5) };

/// All sessions, and the version that the drive has.
struct Manager {
    sessions: Sessions,
    drive: Version,
}

impl Deref for Manager {
    type Target = Sessions;

    fn deref(&self) -> &Sessions {
        &self.sessions
    }
}

impl DerefMut for Manager {
    fn deref_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }
}

impl Manager {
    /// After an earlier one that had these clients.
    fn after(earlier: &[u64]) -> Manager {
        let (times, earlier) = (SessionTimes { lease: LEASE }, earlier.iter().copied().collect());
        Manager { sessions: Sessions::new(times, earlier, Duration::ZERO), drive: 2 }
    }

    fn attach(&mut self, client: u64) {
        self.sessions.attach(client, MEMBER, &Claims::default(), NOW).unwrap();
    }

    /// The drive does at once what it is told.
    fn perform(&mut self, work: DriveWork) {
        match work {
            DriveWork::Ask(file) => self.sessions.found(file, Some(self.drive)),
            DriveWork::Advance { file, to, .. } => {
                self.drive = to;
                self.sessions.advanced(file, to, NOW);
            }
        }
    }
}

fn sessions(clients: &[u64]) -> Manager {
    let mut all = Manager::after(&[]);
    clients.iter().for_each(|client| all.attach(*client));
    all
}

/// Asks until there is an answer, or somebody else has to do something first.
fn turn<T>(
    all: &mut Manager,
    mut ask: impl FnMut(&mut Sessions) -> Result<Turn<T>, SessionError>,
) -> Result<Turn<T>, SessionError> {
    loop {
        match ask(&mut all.sessions)? {
            Turn::Work(work) => all.perform(work),
            turn => return Ok(turn),
        }
    }
}

fn read(all: &mut Manager, client: u64) -> Result<Turn<Reading>, SessionError> {
    turn(all, |all| all.may_read(client, MEMBER, FILE, NOW))
}

fn write(all: &mut Manager, client: u64) -> Result<Turn<Version>, SessionError> {
    turn(all, |all| all.may_write(client, MEMBER, FILE, NOW))
}

fn store_own(all: &mut Manager) -> Result<Turn<Version>, SessionError> {
    turn(all, |all| all.may_store(FILE, NOW))
}

/// A call that returns a store, and goes on waiting for what comes of it.
struct Returning {
    client: u64,
    version: Version,
    is_noted: bool,
}

impl Returning {
    fn of(client: u64, version: Version) -> Returning {
        Returning { client, version, is_noted: false }
    }

    fn ask(&mut self, all: &mut Manager) -> Result<Turn<bool>, SessionError> {
        let Returning { client, version, is_noted } = self;
        turn(all, |all| all.returned((*client, MEMBER), FILE, *version, is_noted, NOW))
    }

    fn end(self, all: &mut Manager) {
        assert!(self.is_noted);
        all.end_return(self.client, FILE, self.version);
        assert!(all.callbacks.is_nothing_returned());
    }
}

fn events(all: &mut Manager, client: u64) -> Vec<Event> {
    all.next_events(client, MEMBER).unwrap().1
}

fn deal_with(all: &mut Manager, client: u64, seen: u64) {
    all.acknowledge(client, MEMBER, seen, &[], NOW).unwrap();
}

/// The store under version 3, which was not returned, is to be ended at the drive, and is.
fn end_abandoned(all: &mut Manager) {
    let work = all.take_work().unwrap();
    assert_eq!(work, DriveWork::Advance { file: FILE, to: 4, length: None, durable: true });
    all.perform(work);
}

const PROMISED: Result<Turn<Reading>, SessionError> = Ok(Turn::Done(Reading::Promised(2)));

#[test]
fn a_store_is_done_when_all_who_hold_a_callback_have_dealt_with_it() {
    let mut all = sessions(&[1, 2, 3]);
    for client in [1, 2, 3] {
        assert_eq!(read(&mut all, client), PROMISED);
    }
    assert_eq!(all.counts().callbacks, 3);
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(3)));
    assert_eq!(events(&mut all, 2), [], "until it is returned");
    let mut returning = Returning::of(1, 3);
    assert_eq!(returning.ask(&mut all), Ok(Turn::Wait));
    assert_eq!(events(&mut all, 1), [], "its own store");
    for client in [2, 3] {
        assert_eq!(events(&mut all, client), [Event::Broken(FILE, 3)]);
        assert_eq!(returning.ask(&mut all), Ok(Turn::Wait));
        assert_eq!(read(&mut all, client), Ok(Turn::Wait));
        let news = all.news();
        deal_with(&mut all, client, 1);
        assert!(all.news() > news, "who waits looks again");
    }
    assert_eq!(returning.ask(&mut all), Ok(Turn::Done(true)));
    returning.end(&mut all);
    assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4))));
    assert_eq!(all.counts().callbacks, 2);
}

#[test]
fn a_change_is_told_to_all_others_and_promises_nothing_to_anybody_until_it_ends() {
    let mut all = sessions(&[1, 2, 3]);
    assert_eq!((read(&mut all, 1), read(&mut all, 2)), (PROMISED, PROMISED));
    let mut recall = all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    assert_eq!(events(&mut all, 1), [], "its own change");
    assert_eq!(events(&mut all, 2), [Event::Changed(FILE)]);
    assert!(!all.is_recalled(&mut recall));
    for client in [1, 2, 3] {
        assert_eq!(read(&mut all, client), Ok(Turn::Done(Reading::Unpromised(2))));
    }
    let news = all.news();
    deal_with(&mut all, 2, 1);
    assert!(all.is_recalled(&mut recall) && all.news() > news);
    assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Unpromised(2))), "it is not made yet");
    all.end_change(1, [FILE].into_iter());
    assert_eq!(read(&mut all, 2), PROMISED);
    assert_eq!(all.counts().callbacks, 2, "who made it keeps its own");
}

#[test]
fn who_has_not_said_that_it_knows_of_a_change_is_waited_for_by_another_one_and_by_stores() {
    let mut all = sessions(&[1, 2, 3]);
    assert_eq!(read(&mut all, 2), PROMISED);
    let mut first = all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    let mut second = all.begin_change(3, [FILE].into_iter(), NOW).unwrap();
    assert_eq!(events(&mut all, 2), [Event::Changed(FILE); 2]);
    assert_eq!(write(&mut all, 3), Ok(Turn::Done(3)));
    let mut returning = Returning::of(3, 3);
    assert_eq!(returning.ask(&mut all), Ok(Turn::Wait), "it holds nothing, and may believe it yet");
    assert_eq!(events(&mut all, 2)[2..], [Event::Broken(FILE, 3)]);
    deal_with(&mut all, 2, 1);
    assert!(all.is_recalled(&mut first) && !all.is_recalled(&mut second));
    deal_with(&mut all, 2, 2);
    assert!(all.is_recalled(&mut second));
    assert_eq!(returning.ask(&mut all), Ok(Turn::Wait));
    deal_with(&mut all, 2, 3);
    assert_eq!(returning.ask(&mut all), Ok(Turn::Done(false)), "the first is not made yet");
    returning.end(&mut all);
    // Who knows of a change before the store ends is not told of that.
    all.end_change(1, [FILE].into_iter());
    all.end_change(3, [FILE].into_iter());
    assert!(matches!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4)))));
    all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    deal_with(&mut all, 2, 4);
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(5)));
    assert_eq!(Returning::of(1, 5).ask(&mut all), Ok(Turn::Done(true)));
    assert_eq!(events(&mut all, 2), []);
}

#[test]
fn who_stores_is_promised_nothing_while_another_one_s_change_is_made() {
    let mut all = sessions(&[1, 2]);
    assert_eq!(write(&mut all, 2), Ok(Turn::Done(3)));
    let mut recall = all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    // It shows what it was told when its store began.
    assert!(!all.is_recalled(&mut recall));
    assert_eq!(events(&mut all, 2), [Event::Changed(FILE)]);
    deal_with(&mut all, 2, 1);
    assert!(all.is_recalled(&mut recall));
    let mut returning = Returning::of(2, 3);
    assert_eq!(returning.ask(&mut all), Ok(Turn::Done(false)), "it may look before that is made");
    returning.end(&mut all);
    assert_eq!(all.counts().callbacks, 0);
    all.end_change(1, [FILE].into_iter());
    assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4))));
    // Its own is no reason.
    let mut all = sessions(&[1]);
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(3)));
    all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    assert_eq!(Returning::of(1, 3).ask(&mut all), Ok(Turn::Done(true)));
}

#[test]
fn a_change_waits_for_those_who_are_being_told_of_a_store() {
    let mut all = sessions(&[1, 2, 3]);
    assert_eq!((read(&mut all, 2), read(&mut all, 3)), (PROMISED, PROMISED));
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(3)));
    assert_eq!(Returning::of(1, 3).ask(&mut all), Ok(Turn::Wait));
    deal_with(&mut all, 3, 1);
    let mut recall = all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    assert_eq!(events(&mut all, 2), [Event::Broken(FILE, 3), Event::Changed(FILE)]);
    assert_eq!(events(&mut all, 3), [], "it knows already");
    assert!(!all.is_recalled(&mut recall));
    deal_with(&mut all, 2, 2);
    assert!(all.is_recalled(&mut recall));
}

#[test]
fn a_session_that_ends_is_not_waited_for() {
    let ends: [fn(&mut Manager); 3] = [
        |all| all.detach(2, MEMBER).unwrap(),
        |all| all.attach(2),
        |all| {
            all.acknowledge(1, MEMBER, 0, &[], NOW + LEASE).unwrap();
            assert_eq!(all.expire(NOW + LEASE), [2]);
        },
    ];
    for end in ends {
        let mut all = sessions(&[1, 2]);
        assert_eq!((read(&mut all, 2), write(&mut all, 1)), (PROMISED, Ok(Turn::Done(3))));
        let mut returning = Returning::of(1, 3);
        assert_eq!(returning.ask(&mut all), Ok(Turn::Wait));
        let news = all.news();
        end(&mut all);
        assert!(all.news() > news);
        assert_eq!(returning.ask(&mut all), Ok(Turn::Done(true)));
        // The same of a change.
        let mut all = sessions(&[1, 2]);
        assert_eq!(read(&mut all, 2), PROMISED);
        let mut recall = all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
        assert!(!all.is_recalled(&mut recall));
        end(&mut all);
        assert!(all.is_recalled(&mut recall));
        assert_eq!(all.counts().callbacks, 0);
    }
}

#[test]
fn a_store_of_a_session_that_ends_is_ended_durably() {
    let mut all = sessions(&[1, 2]);
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(3)));
    all.detach(1, MEMBER).unwrap();
    end_abandoned(&mut all);
    assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4))));
    // It comes back and returns it: all was written, and nobody has stored since.
    all.attach(1);
    let mut returning = Returning::of(1, 3);
    assert_eq!(returning.ask(&mut all), Ok(Turn::Done(true)));
    returning.end(&mut all);
    // One that is returned is durable already.
    assert_eq!(write(&mut all, 2), Ok(Turn::Done(5)));
    let mut is_noted = false;
    let turn = all.returned((2, MEMBER), FILE, 5, &mut is_noted, NOW);
    assert_eq!(
        turn,
        Ok(Turn::Work(DriveWork::Advance { file: FILE, to: 6, length: None, durable: false }))
    );
}

#[test]
fn nothing_is_given_before_the_clients_of_the_manager_before_are_back() {
    let mut all = Manager::after(&[1, 2]);
    all.attach(1);
    assert_eq!(read(&mut all, 1), Err(SessionError::Grace));
    assert_eq!(write(&mut all, 1), Err(SessionError::Grace));
    assert_eq!(Returning::of(1, 3).ask(&mut all), Err(SessionError::Grace));
    assert_eq!(store_own(&mut all), Err(SessionError::Grace));
    assert!(all.begin_change(1, [FILE].into_iter(), NOW).is_err());
    all.attach(2);
    assert_eq!(read(&mut all, 1), PROMISED);
    assert_eq!(read(&mut all, 3), Err(SessionError::Gone));
    let others = all.may_read(1, "host:two", FILE, NOW);
    assert_eq!(others, Err(SessionError::NotYours));
}

#[test]
fn a_store_that_the_manager_before_allowed_is_ended_first() {
    let mut all = sessions(&[1]);
    assert_eq!(all.may_read(1, MEMBER, FILE, NOW), Ok(Turn::Work(DriveWork::Ask(FILE))));
    assert_eq!(all.may_read(1, MEMBER, FILE, NOW), Ok(Turn::Wait), "it is asked already");
    all.drive = 7;
    all.perform(DriveWork::Ask(FILE));
    let advance = DriveWork::Advance { file: FILE, to: 8, length: None, durable: true };
    assert_eq!(all.may_read(1, MEMBER, FILE, NOW), Ok(Turn::Work(advance)));
    assert_eq!(all.may_read(1, MEMBER, FILE, NOW), Ok(Turn::Wait), "somebody does it");
    all.not_done(advance);
    assert_eq!(read(&mut all, 1), Ok(Turn::Done(Reading::Promised(8))));
    // A drive that does not tell is asked again.
    let mut all = sessions(&[1]);
    assert_eq!(all.may_read(1, MEMBER, FILE, NOW), Ok(Turn::Work(DriveWork::Ask(FILE))));
    all.found(FILE, None);
    assert_eq!(read(&mut all, 1), PROMISED);
}

#[test]
fn who_believes_something_of_a_file_that_is_forgotten_is_told() {
    let mut all = sessions(&[1, 2, 3]);
    assert_eq!((read(&mut all, 2), write(&mut all, 1)), (PROMISED, Ok(Turn::Done(3))));
    let (mut returning, mut again) = (Returning::of(1, 3), Returning::of(1, 3));
    assert_eq!(returning.ask(&mut all), Ok(Turn::Wait));
    assert_eq!(again.ask(&mut all), Ok(Turn::Wait), "a call that is made twice");
    let news = all.news();
    all.forget_file(FILE);
    assert!(all.news() > news && all.version_of(FILE).is_none());
    assert!(matches!(all.settled(FILE, 3), Turn::Done(())));
    assert_eq!(returning.ask(&mut all), Ok(Turn::Done(false)));
    all.end_return(1, FILE, 3);
    assert_eq!(again.ask(&mut all), Ok(Turn::Done(false)));
    again.end(&mut all);
    // Told twice is told: of the store, and that nothing is known of it.
    assert_eq!(events(&mut all, 2), [Event::Broken(FILE, 3), Event::Broken(FILE, 5)]);
    assert_eq!((events(&mut all, 3), all.take_work()), (vec![], None));
    deal_with(&mut all, 2, 2);
    assert_eq!(all.may_read(3, MEMBER, FILE, NOW), Ok(Turn::Work(DriveWork::Ask(FILE))));
}

#[test]
fn no_store_ends_before_those_know_who_believe_what_somebody_else_has_made_old() {
    let mut all = sessions(&[1, 2, 3]);
    assert_eq!((read(&mut all, 2), read(&mut all, 3)), (PROMISED, PROMISED));
    all.drive = 5;
    all.version_raised(FILE);
    assert_eq!(events(&mut all, 2), [Event::Changed(FILE)]);
    deal_with(&mut all, 3, 1);
    // The store that somebody else has begun is ended, and nothing else begins before that is told.
    let mut late = Returning::of(1, 3);
    assert_eq!((late.ask(&mut all), write(&mut all, 1)), (Ok(Turn::Wait), Ok(Turn::Wait)));
    assert_eq!(events(&mut all, 2), [Event::Changed(FILE), Event::Broken(FILE, 5)]);
    deal_with(&mut all, 2, 1);
    assert_eq!(write(&mut all, 1), Ok(Turn::Wait));
    deal_with(&mut all, 2, 2);
    assert_eq!(late.ask(&mut all), Ok(Turn::Done(false)));
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(7)));
}

#[test]
fn what_nobody_can_have_been_given_is_not_returned() {
    let mut all = sessions(&[1, 2]);
    for version in [0, 2, 3] {
        assert_eq!(Returning::of(1, version).ask(&mut all), Err(SessionError::NeverGiven));
    }
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(3)));
    assert_eq!(Returning::of(2, 3).ask(&mut all), Err(SessionError::NeverGiven), "another's");
    assert_eq!(Returning::of(1, 5).ask(&mut all), Err(SessionError::NeverGiven));
    assert!(all.callbacks.is_nothing_returned());
    // One of before was given, to whomever: it is stored, and nothing is promised for it.
    assert_eq!(Returning::of(2, 1).ask(&mut all), Ok(Turn::Done(false)));
}

#[test]
fn who_returns_what_is_nobodys_does_not_keep_another_one_from_returning_it() {
    let ends: [fn(&mut Manager); 2] = [
        |all| deal_with(all, 3, 1),
        // The one who was believed first is gone before: nobody is promised anything.
        |all| {
            all.detach(2, MEMBER).unwrap();
            deal_with(all, 3, 1);
        },
    ];
    for end in ends {
        let mut all = sessions(&[1, 2, 3]);
        assert_eq!((read(&mut all, 3), write(&mut all, 1)), (PROMISED, Ok(Turn::Done(3))));
        assert_eq!(Returning::of(2, 3).ask(&mut all), Err(SessionError::NeverGiven), "another's");
        assert!(all.is_stored_by(1, FILE) && !all.is_stored_by(2, FILE));
        // Its session is over while it stores.
        all.attach(1);
        let (mut lie, mut returning) = (Returning::of(2, 3), Returning::of(1, 3));
        assert_eq!(lie.ask(&mut all), Ok(Turn::Wait));
        assert_eq!(returning.ask(&mut all), Ok(Turn::Wait));
        end(&mut all);
        assert_eq!(returning.ask(&mut all), Ok(Turn::Done(false)), "it is stored");
        all.end_return(1, FILE, 3);
        all.end_return(2, FILE, 3);
        assert!(all.callbacks.is_nothing_returned());
        // Nothing of that is left when all are gone.
        [1, 3].into_iter().for_each(|client| all.detach(client, MEMBER).unwrap());
        assert!(all.detach(2, MEMBER).is_err() || all.version_of(FILE).is_none());
        assert_eq!((all.version_of(FILE), all.counts().callbacks), (None, 0));
    }
}

#[test]
fn the_manager_stores_one_at_a_time_and_takes_its_time() {
    let mut all = sessions(&[1, 2]);
    assert_eq!(read(&mut all, 1), PROMISED);
    assert_eq!(store_own(&mut all), Ok(Turn::Done(3)));
    assert_eq!(store_own(&mut all), Ok(Turn::Wait));
    assert_eq!((read(&mut all, 2), write(&mut all, 2)), (Ok(Turn::Wait), Ok(Turn::Wait)));
    all.expire(NOW + STORE_TIME);
    assert_eq!(all.take_work(), None, "its time is not over");
    assert!(matches!(all.settled(FILE, 3), Turn::Wait));
    all.end_store(FILE, 3);
    let settled = turn(&mut all, |all| Ok(all.settled(FILE, 3)));
    assert_eq!(settled, Ok(Turn::Wait), "those who hold callbacks do not know");
    assert_eq!(events(&mut all, 1), [Event::Broken(FILE, 3)]);
    deal_with(&mut all, 1, 1);
    assert_eq!(turn(&mut all, |all| Ok(all.settled(FILE, 3))), Ok(Turn::Done(())));
    assert_eq!(write(&mut all, 2), Ok(Turn::Done(5)));
    assert_eq!(store_own(&mut all), Ok(Turn::Wait), "nor beside a client's");
}

#[test]
fn a_store_ends_with_its_time_and_goes_on_if_it_is_asked_for_before() {
    let ask = |all: &mut Manager, client, now| all.may_write(client, MEMBER, FILE, now);
    let mut all = sessions(&[1, 2]);
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(3)));
    let later = NOW + STORE_TIME / 2;
    assert_eq!(ask(&mut all, 1, later), Ok(Turn::Done(3)));
    all.expire(NOW + STORE_TIME);
    assert_eq!(all.take_work(), None, "it was asked for again");
    assert_eq!(read(&mut all, 2), Ok(Turn::Wait));
    assert_eq!(ask(&mut all, 1, later + STORE_TIME / 2), Ok(Turn::Wait), "somebody waits for it");
    all.expire(later + STORE_TIME);
    end_abandoned(&mut all);
    assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4))));
    assert_eq!(all.expire(later + STORE_TIME), []);
    assert_eq!(all.take_work(), None);
}

#[test]
fn a_store_whose_asker_went_away_before_it_was_told_ends_with_its_time() {
    let asks: [fn(&mut Manager) -> Turn<Version>; 2] = [
        |all| all.may_write(1, MEMBER, FILE, NOW).unwrap(),
        |all| all.may_store(FILE, NOW).unwrap(),
    ];
    for ask in asks {
        let mut all = sessions(&[1, 2]);
        assert_eq!(ask(&mut all), Turn::Work(DriveWork::Ask(FILE)));
        all.found(FILE, Some(2));
        let opening = DriveWork::Advance { file: FILE, to: 3, length: None, durable: false };
        assert_eq!(ask(&mut all), Turn::Work(opening));
        all.perform(opening);
        // Who asked has given up, and another one waits.
        assert_eq!(read(&mut all, 2), Ok(Turn::Wait));
        all.expire(NOW + STORE_TIME);
        end_abandoned(&mut all);
        assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4))));
    }
    // One whose session is over meanwhile is not waited for at all.
    let mut all = sessions(&[1, 2]);
    assert_eq!(read(&mut all, 2), PROMISED);
    let opening = DriveWork::Advance { file: FILE, to: 3, length: None, durable: false };
    assert_eq!(all.may_write(1, MEMBER, FILE, NOW), Ok(Turn::Work(opening)));
    all.detach(1, MEMBER).unwrap();
    all.perform(opening);
    end_abandoned(&mut all);
}

#[test]
fn the_file_manager_that_stores_a_file_itself_is_not_told_of_what_others_change() {
    let mut all = sessions(&[1, 2]);
    assert_eq!(store_own(&mut all), Ok(Turn::Done(3)));
    let mut recall = all.begin_change(1, [FILE].into_iter(), NOW).unwrap();
    assert!(all.is_recalled(&mut recall));
    all.end_store(FILE, 3);
    assert_eq!(turn(&mut all, |all| Ok(all.settled(FILE, 3))), Ok(Turn::Done(())));
    all.end_change(1, [FILE].into_iter());
    assert_eq!(read(&mut all, 2), Ok(Turn::Done(Reading::Promised(4))));
    // Nor that somebody else has raised the version.
    assert_eq!(store_own(&mut all), Ok(Turn::Done(5)));
    all.version_raised(FILE);
    deal_with(&mut all, 2, 1);
    all.drive = 6;
    assert_eq!(write(&mut all, 1), Ok(Turn::Done(7)));
    assert_eq!(Returning::of(1, 7).ask(&mut all), Ok(Turn::Done(true)));
}

#[test]
fn who_holds_too_many_callbacks_is_told_that_some_end() {
    let most = Limits::default().of_client as u64;
    let mut all = sessions(&[1]);
    for object in 0..=most {
        let file = FileHandle { object: ObjectId(object), ..FILE };
        assert_eq!(all.may_read(1, MEMBER, file, NOW), Ok(Turn::Work(DriveWork::Ask(file))));
        all.found(file, Some(2));
        assert_eq!(all.may_read(1, MEMBER, file, NOW), PROMISED);
    }
    let told = events(&mut all, 1);
    assert!(told.iter().all(|event| matches!(event, Event::Changed(_))), "{told:?}");
    assert_eq!((told.len(), all.counts().callbacks), (MAX_EVENTS, most as usize + 1 - MAX_EVENTS));
    // Until it knows it is waited for.
    let Event::Changed(ended) = told[0] else { return };
    let mut recall = all.begin_change(0, [ended].into_iter(), NOW).unwrap();
    assert!(!all.is_recalled(&mut recall));
    deal_with(&mut all, 1, MAX_EVENTS as u64 + 1);
    assert!(all.is_recalled(&mut recall));
}

#[test]
fn a_drive_may_have_the_version_that_it_is_being_told() {
    let mut all = sessions(&[1, 2]);
    assert_eq!(all.highest_version(FILE), None);
    let turn = all.may_write(1, MEMBER, FILE, NOW).unwrap();
    let Turn::Work(ask @ DriveWork::Ask(_)) = turn else { panic!("{turn:?}") };
    all.perform(ask);
    let turn = all.may_write(1, MEMBER, FILE, NOW).unwrap();
    let Turn::Work(advance @ DriveWork::Advance { to: 3, .. }) = turn else { panic!("{turn:?}") };
    assert_eq!((all.version_of(FILE), all.highest_version(FILE)), (Some(2), Some(3)));
    all.perform(advance);
    assert_eq!((all.version_of(FILE), all.highest_version(FILE)), (Some(3), Some(3)));
    let mut is_noted = false;
    let turn = all.returned((1, MEMBER), FILE, 3, &mut is_noted, NOW).unwrap();
    let Turn::Work(DriveWork::Advance { to: 4, .. }) = turn else { panic!("{turn:?}") };
    assert_eq!((all.version_of(FILE), all.highest_version(FILE)), (Some(3), Some(4)));
}

#[test]
fn who_makes_a_file_stores_it_from_then_on() {
    let ask = |all: &mut Manager, client| all.may_write(client, MEMBER, FILE, NOW);
    let begun = || {
        let mut all = sessions(&[1, 2]);
        all.drive = 1;
        assert!(all.may_begin(1, FILE, 1, NOW));
        assert_eq!((all.store_alone(1, FILE), all.store_alone(2, FILE)), (Some(1), None));
        assert_eq!(read(&mut all, 2), Ok(Turn::Wait));
        all
    };
    // What is returned, used or not, ends as all stores do.
    let mut all = begun();
    let mut returning = Returning::of(1, 1);
    assert_eq!(returning.ask(&mut all), Ok(Turn::Done(true)));
    returning.end(&mut all);
    assert_eq!(read(&mut all, 2), PROMISED);
    // Who was not answered is told so when it asks, though another one waits.
    let mut all = begun();
    assert_eq!((ask(&mut all, 1), ask(&mut all, 1)), (Ok(Turn::Done(1)), Ok(Turn::Wait)));
    // Its time ends, and so does its session.
    for end in [
        |all: &mut Manager| assert_eq!(all.expire(NOW + STORE_TIME), []),
        |all: &mut Manager| assert!(all.detach(1, MEMBER).is_ok()),
    ] {
        let mut all = begun();
        end(&mut all);
        let closing = DriveWork::Advance { file: FILE, to: 2, length: None, durable: true };
        assert_eq!(all.take_work(), Some(closing));
        all.perform(closing);
        assert_eq!(all.store_alone(1, FILE), None);
        assert_eq!(read(&mut all, 2), PROMISED);
    }
    // If the file is not made after all nothing is known of it.
    let mut all = begun();
    all.has_not_begun(FILE);
    assert_eq!((all.version_of(FILE), all.store_alone(1, FILE)), (None, None));
    assert!(all.may_begin(2, FILE, 1, NOW));
}

#[test]
fn no_store_begins_with_a_file_where_none_may_begin_now() {
    let parts = || vec![(FILE.drive, FILE.partition)];
    let mut all = sessions(&[1]);
    assert!(!all.may_begin(0, FILE, 1, NOW) && !all.may_begin(2, FILE, 1, NOW), "no session");
    assert!(!all.may_begin(1, FILE, 2, NOW), "nobody writes under that");
    all.hold(7, parts(), NOW + STORE_TIME);
    assert!(!all.may_begin(1, FILE, 1, NOW), "the volume is held");
    all.release(7, NOW);
    assert!(all.may_begin(1, FILE, 1, NOW));
    // It is waited for by who holds the volume after that.
    all.hold(8, parts(), NOW + STORE_TIME);
    assert_eq!(all.quiet(8), Turn::Wait);
    let mut known = sessions(&[1]);
    assert_eq!(read(&mut known, 1), PROMISED);
    assert!(!known.may_begin(1, FILE, 1, NOW), "it is known");
    let mut asked = sessions(&[1, 2]);
    assert_eq!(asked.may_read(2, MEMBER, FILE, NOW), Ok(Turn::Work(DriveWork::Ask(FILE))));
    assert!(!asked.may_begin(1, FILE, 1, NOW), "its drive is being asked");
    let mut late = Manager::after(&[1, 2]);
    late.attach(1);
    assert!(!late.may_begin(1, FILE, 1, NOW), "others may believe something of before");
}

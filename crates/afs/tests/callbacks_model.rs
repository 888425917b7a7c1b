//! Every order of events of a file, its drive, its file managers and a few clients, as far as the budgets go: nobody reads
//! what is older than what somebody has read or stored, nothing torn is read but of a store that was abandoned, and
//! nobody waits for ever.

use std::time::Instant;

use nasd_afs::callbacks::{CachedCopy, Client, Era, FileRules, Reading, Step, Version, is_store};
use stateright::{Checker, Model, Property};

type Half = Version;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// Client to manager; `era` is the session.
    Make {
        client: usize,
        era: u8,
        call: u8,
    },
    MayRead {
        client: usize,
        era: u8,
        call: u8,
    },
    MayWrite {
        client: usize,
        era: u8,
        call: u8,
    },
    Return {
        client: usize,
        era: u8,
        call: u8,
        version: Version,
    },
    Told {
        client: usize,
        era: u8,
        version: Version,
    },
    /// Manager to client.
    Made {
        client: usize,
        call: u8,
        /// That of the store that has begun with the file.
        version: Option<Version>,
    },
    Granted {
        client: usize,
        call: u8,
        version: Version,
    },
    WriteGranted {
        client: usize,
        call: u8,
        version: Version,
        is_alone: bool,
    },
    Stored {
        client: usize,
        call: u8,
        version: Version,
        is_promised: bool,
    },
    Break {
        client: usize,
        era: u8,
        version: Version,
    },
    /// Manager to drive and back.
    Ask {
        manager: u8,
    },
    Found {
        manager: u8,
        version: Version,
    },
    Advance {
        manager: u8,
        to: Version,
    },
    Advanced {
        manager: u8,
        to: Version,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    Making,
    /// It has made the file, and may store it.
    Given {
        version: Version,
    },
    AskingRead {
        floor: [Half; 2],
    },
    Reading {
        version: Version,
        floor: [Half; 2],
        first: Option<Half>,
    },
    AskingWrite,
    Writing {
        version: Version,
        halves: u8,
        is_alone: bool,
    },
    Returning {
        version: Version,
        is_used: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClientState {
    era: u8,
    /// The manager that it knows.
    manager: u8,
    call: u8,
    /// The copy's when that was made.
    asked: Era,
    operations: u8,
    doing: Doing,
    copy: CachedCopy,
    /// What the copy has.
    halves: [Half; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Manager {
    number: u8,
    rules: Option<FileRules>,
    is_asking: bool,
    /// Session of each client; none where it has not come back yet.
    sessions: Vec<Option<u8>>,
    /// Clients that have neither come back nor lapsed.
    grace: Vec<bool>,
    /// Calls that wait, by client.
    waiting: Vec<Option<Message>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    drive: Version,
    halves: [Half; 2],
    manager: Manager,
    clients: Vec<ClientState>,
    network: Vec<Message>,
    floor: [Half; 2],
    /// Versions whose stores may be half done, in order.
    abandoned: Vec<Version>,
    expiries: u8,
    lapses: u8,
    restarts: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Deliver(usize),
    Read(usize),
    Write(usize),
    GiveBack(usize),
    Go(usize),
    Expire,
    Lapse(usize),
    Attach(usize),
    Restart,
}

struct Cell {
    clients: usize,
    /// Of each.
    operations: [u8; 3],
    expiries: u8,
    lapses: u8,
    restarts: u8,
    /// The first client makes the file.
    is_made: bool,
}

impl Message {
    /// Client, session and number of a call.
    const fn call(&self) -> Option<(usize, u8, u8)> {
        match self {
            Message::Make { client, era, call }
            | Message::MayRead { client, era, call }
            | Message::MayWrite { client, era, call }
            | Message::Return { client, era, call, .. } => Some((*client, *era, *call)),
            _ => None,
        }
    }
}

impl State {
    fn send(&mut self, message: Message) {
        let place = self.network.binary_search(&message).unwrap_or_else(|place| place);
        self.network.insert(place, message);
    }

    fn fail(&mut self, what: &'static str) {
        self.wrong.get_or_insert(what);
    }

    /// The store under this version, if it is one, may never be whole.
    fn abandon(&mut self, version: Version) {
        if is_store(version) && !self.abandoned.contains(&version) {
            self.abandoned.push(version);
            self.abandoned.sort_unstable();
        }
    }

    /// A program has read.
    fn is_read(&mut self, halves: [Half; 2], floor: [Half; 2]) {
        if halves[0] < floor[0] || halves[1] < floor[1] {
            self.fail("stale");
        }
        // The other half is of a store before, or of one half done before.
        if halves[0] != halves[1] && !self.abandoned.contains(&halves[0].max(halves[1])) {
            self.fail("torn");
        }
        self.floor = [self.floor[0].max(halves[0]), self.floor[1].max(halves[1])];
    }

    fn act(&mut self, steps: Vec<Step>) {
        for step in steps {
            let manager = self.manager.number;
            match step {
                Step::Advance { to } => self.send(Message::Advance { manager, to }),
                Step::MayWrite { client, version } => {
                    let client = client as usize;
                    if let Some(Message::MayWrite { call, era, .. }) = self.manager.waiting[client]
                        && self.manager.sessions[client] == Some(era)
                    {
                        self.manager.waiting[client] = None;
                        let rules = self.manager.rules.as_ref();
                        let is_alone = rules.is_some_and(|rules| rules.is_alone(client as Client));
                        self.send(Message::WriteGranted { client, call, version, is_alone });
                    }
                }
                Step::Break { client, version } => {
                    let client = client as usize;
                    if let Some(era) = self.manager.sessions[client] {
                        self.send(Message::Break { client, era, version });
                    } else {
                        self.fail("a holder without a session");
                    }
                }
                Step::Stored { client, version, is_promised } => {
                    let client = client as usize;
                    // Where the call was given up, the callback is held nevertheless, and broken like any other.
                    if let Some(Message::Return { call, era, .. }) = self.manager.waiting[client]
                        && self.manager.sessions[client] == Some(era)
                    {
                        self.manager.waiting[client] = None;
                        self.send(Message::Stored { client, call, version, is_promised });
                    }
                }
                Step::Settled => self.ask_again(),
            }
        }
    }

    fn ask_again(&mut self) {
        for client in 0..self.clients.len() {
            if let Some(message) = self.manager.waiting[client].take() {
                self.serve(message);
            }
        }
    }

    fn serve(&mut self, message: Message) {
        let Some((client, era, call)) = message.call() else {
            return;
        };
        // A client has one call; one that it gave up is not to be in the way of the next.
        let waiting = self.manager.waiting[client].as_ref().and_then(Message::call);
        if waiting.is_some_and(|(_, _, other)| other > call) {
            return;
        }
        match self.manager.sessions[client] {
            Some(attached) if era < attached => return,
            Some(attached) if era == attached => {}
            _ => {
                self.manager.waiting[client] = Some(message);
                return;
            }
        }
        if self.manager.grace.contains(&true) {
            self.manager.waiting[client] = Some(message);
            return;
        }
        if let Message::Make { .. } = message {
            return self.make(client, call);
        }
        let Some(rules) = &mut self.manager.rules else {
            self.manager.waiting[client] = Some(message);
            if !self.manager.is_asking {
                self.manager.is_asking = true;
                let manager = self.manager.number;
                self.send(Message::Ask { manager });
            }
            return;
        };
        match message {
            Message::MayRead { call, .. } => match rules.may_read(client as Client) {
                Reading::Promised(version) => self.send(Message::Granted { client, call, version }),
                Reading::Wait => self.manager.waiting[client] = Some(message),
                Reading::Unpromised(_) => unreachable!("nobody changes names here"),
            },
            Message::MayWrite { .. } => {
                let steps = rules.may_write(client as Client);
                self.manager.waiting[client] = Some(message);
                self.act(steps);
            }
            Message::Return { version, .. } => {
                let Ok(steps) = rules.returned(client as Client, version) else {
                    return self.fail("what was given is not known");
                };
                self.manager.waiting[client] = Some(message);
                self.act(steps);
            }
            _ => {}
        }
    }

    /// The file is made, or was when that was asked for before: the client that may store it still is told so again.
    fn make(&mut self, client: usize, call: u8) {
        let rules = self.manager.rules.as_ref();
        let given = rules.filter(|rules| rules.is_alone(client as Client));
        let version = given.map(FileRules::version);
        self.send(Message::Made { client, call, version });
    }

    /// The file is made, and the client that has made it may store it, or not.
    fn made(&mut self, client: usize, call: u8, version: Option<Version>) {
        let state = &mut self.clients[client];
        if state.call == call && state.doing == Doing::Making {
            state.doing = match version {
                Some(version) => Doing::Given { version },
                None => Doing::Nothing,
            };
        }
    }

    /// A store is done.
    fn stored(&mut self, client: usize, call: u8, (version, is_promised): (Version, bool)) {
        let state = &mut self.clients[client];
        if state.call != call {
            return;
        }
        let is_used = matches!(state.doing, Doing::Returning { is_used: true, .. });
        state.doing = Doing::Nothing;
        let era = state.asked;
        state.copy.stored(era, version, is_promised);
        if !is_used {
            // Where that is promised nobody has stored: the file is as it was made.
            state.halves = [0; 2];
            return;
        }
        state.halves = [version; 2];
        self.floor = [self.floor[0].max(version), self.floor[1].max(version)];
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Make { .. }
            | Message::MayRead { .. }
            | Message::MayWrite { .. }
            | Message::Return { .. } => {
                self.serve(message);
            }
            Message::Told { client, era, version } => {
                if self.manager.sessions[client] == Some(era)
                    && let Some(rules) = &mut self.manager.rules
                {
                    let steps = rules.told(client as Client, version);
                    self.act(steps);
                }
            }
            Message::Ask { manager } => {
                if manager == self.manager.number {
                    let version = self.drive;
                    self.send(Message::Found { manager, version });
                }
            }
            Message::Found { manager, version } => {
                if manager == self.manager.number {
                    let (rules, steps) = FileRules::found(version);
                    self.abandon(version);
                    self.manager.rules = Some(rules);
                    self.act(steps);
                    self.ask_again();
                }
            }
            Message::Advance { manager, to } => {
                if manager == self.manager.number {
                    if to != self.drive + 1 {
                        self.fail("a version that does not follow");
                    }
                    self.drive = to;
                    self.send(Message::Advanced { manager, to });
                }
            }
            Message::Advanced { manager, to } => {
                if manager == self.manager.number
                    && let Some(rules) = &mut self.manager.rules
                {
                    let steps = rules.advanced(to);
                    self.act(steps);
                }
            }
            Message::Break { client, era, version } => {
                self.clients[client].copy.broken(version);
                self.send(Message::Told { client, era, version });
            }
            Message::Made { client, call, version } => self.made(client, call, version),
            Message::Granted { client, call, version } => self.granted(client, call, version),
            Message::WriteGranted { client, call, version, is_alone } => {
                let state = &mut self.clients[client];
                if state.call == call {
                    state.copy.answered_to_write();
                    state.doing = Doing::Writing { version, halves: 0, is_alone };
                }
            }
            Message::Stored { client, call, version, is_promised } => {
                self.stored(client, call, (version, is_promised));
            }
        }
    }

    fn granted(&mut self, client: usize, call: u8, version: Version) {
        let state = &mut self.clients[client];
        let Doing::AskingRead { floor } = state.doing else { return };
        if state.call != call {
            return;
        }
        let era = state.asked;
        state.copy.granted(era, version);
        if state.copy.may_read() {
            state.doing = Doing::Nothing;
            let halves = state.halves;
            self.is_read(halves, floor);
            return;
        }
        state.doing = Doing::Reading { version, floor, first: None };
    }

    fn call(&mut self, client: usize) -> (u8, u8) {
        let state = &mut self.clients[client];
        state.call += 1;
        state.asked = state.copy.era();
        (state.era, state.call)
    }

    fn ask_make(&mut self, client: usize) {
        self.clients[client].doing = Doing::Making;
        let (era, call) = self.call(client);
        self.send(Message::Make { client, era, call });
    }

    /// A client that was given the capability to store with the file stores.
    fn write_at_once(&mut self, client: usize, version: Version) {
        let state = &mut self.clients[client];
        state.copy.writes();
        state.copy.answered_to_write();
        state.doing = Doing::Writing { version, halves: 0, is_alone: true };
    }

    fn ask_read(&mut self, client: usize, floor: [Half; 2]) {
        self.clients[client].doing = Doing::AskingRead { floor };
        let (era, call) = self.call(client);
        self.send(Message::MayRead { client, era, call });
    }

    fn ask_write(&mut self, client: usize) {
        self.clients[client].doing = Doing::AskingWrite;
        self.clients[client].copy.writes();
        let (era, call) = self.call(client);
        self.send(Message::MayWrite { client, era, call });
    }

    fn ask_return(&mut self, client: usize, version: Version, is_used: bool) {
        self.clients[client].doing = Doing::Returning { version, is_used };
        let (era, call) = self.call(client);
        self.send(Message::Return { client, era, call, version });
    }

    /// A client's next transfer at the drive.
    fn go(&mut self, client: usize) {
        match self.clients[client].doing.clone() {
            Doing::Reading { version, floor, first } => {
                if version != self.drive {
                    self.ask_read(client, floor);
                } else if first.is_none() {
                    let first = Some(self.halves[0]);
                    self.clients[client].doing = Doing::Reading { version, floor, first };
                } else {
                    let state = &mut self.clients[client];
                    let halves = [first.unwrap_or_default(), self.halves[1]];
                    state.copy.fetched(version);
                    state.halves = halves;
                    state.doing = Doing::Nothing;
                    self.is_read(halves, floor);
                }
            }
            Doing::Writing { version, halves, is_alone } => {
                if version != self.drive {
                    self.ask_write(client);
                } else {
                    self.halves[halves as usize] = version;
                    let halves = halves + 1;
                    self.clients[client].doing = Doing::Writing { version, halves, is_alone };
                    if halves == 2 {
                        if is_alone {
                            // The program goes on: its store is done.
                            self.floor = self.floor.map(|half| half.max(version));
                        }
                        self.ask_return(client, version, true);
                    }
                }
            }
            _ => {}
        }
    }

    /// The client's lease is over, or it has seen that another manager serves.
    fn lapse(&mut self, client: usize) {
        let manager = self.manager.number;
        let state = &mut self.clients[client];
        state.era += 1;
        state.manager = manager;
        state.copy.lapsed();
        match state.doing.clone() {
            Doing::AskingRead { floor } => self.ask_read(client, floor),
            Doing::AskingWrite => self.ask_write(client),
            Doing::Returning { version, is_used } => self.ask_return(client, version, is_used),
            Doing::Making => self.ask_make(client),
            // A fetch that goes on under a callback of before is worth nothing to the copy.
            Doing::Nothing
            | Doing::Given { .. }
            | Doing::Reading { .. }
            | Doing::Writing { .. } => {}
        }
    }

    fn attach(&mut self, client: usize) {
        let era = self.clients[client].era;
        let before = self.manager.sessions[client].replace(era);
        self.manager.grace[client] = false;
        // Calls of a session that is over are not answered.
        if let Some(waiting) = self.manager.waiting[client].take() {
            self.send(waiting);
        }
        if before.is_some()
            && let Some(rules) = &mut self.manager.rules
        {
            let is_writer = rules.writer() == Some(client as Client);
            let version = rules.version();
            let steps = rules.gone(client as Client);
            if is_writer {
                self.abandon(version);
            }
            self.act(steps);
        }
        if !self.manager.grace.contains(&true) {
            self.ask_again();
        }
    }
}

impl Model for Cell {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = ClientState {
            era: 1,
            manager: 1,
            call: 0,
            asked: Era::default(),
            operations: 0,
            doing: Doing::Nothing,
            copy: CachedCopy::default(),
            halves: [0; 2],
        };
        let mut clients = vec![client; self.clients];
        clients.iter_mut().zip(self.operations).for_each(|(it, count)| it.operations = count);
        let begun = self.is_made.then(|| FileRules::made(0, 1));
        let mut state = State {
            drive: Version::from(self.is_made),
            halves: [0; 2],
            manager: Manager {
                number: 1,
                rules: begun,
                is_asking: false,
                sessions: vec![Some(1); self.clients],
                grace: vec![false; self.clients],
                waiting: vec![None; self.clients],
            },
            clients,
            network: Vec::new(),
            floor: [0; 2],
            abandoned: Vec::new(),
            expiries: self.expiries,
            lapses: self.lapses,
            restarts: self.restarts,
            wrong: None,
        };
        if self.is_made {
            // Executed, and not answered yet.
            state.ask_make(0);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for place in 0..state.network.len() {
            if place == 0 || state.network[place] != state.network[place - 1] {
                actions.push(Action::Deliver(place));
            }
        }
        for (client, it) in state.clients.iter().enumerate() {
            match it.doing {
                Doing::Nothing if it.operations > 0 => {
                    actions.push(Action::Read(client));
                    actions.push(Action::Write(client));
                }
                // Whatever else it wants of the file, it gives that back before.
                Doing::Given { .. } => {
                    actions.push(Action::GiveBack(client));
                    if it.operations > 0 {
                        actions.push(Action::Write(client));
                    }
                }
                Doing::Reading { .. } | Doing::Writing { .. } => actions.push(Action::Go(client)),
                _ => {}
            }
            if state.lapses > 0 || it.manager != state.manager.number {
                actions.push(Action::Lapse(client));
            }
            if it.manager == state.manager.number && state.manager.sessions[client] != Some(it.era)
            {
                actions.push(Action::Attach(client));
            }
        }
        // A store that nobody ends expires at some time: for nothing if it is the only way on.
        let is_writing = |rules: &FileRules| rules.state() == nasd_afs::callbacks::State::Writing;
        let is_open = state.manager.rules.as_ref().is_some_and(is_writing);
        let is_alone = actions.is_empty();
        if is_open && (state.expiries > 0 || is_alone) {
            actions.push(Action::Expire);
        }
        if state.restarts > 0 {
            actions.push(Action::Restart);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver(place) => {
                let message = state.network.remove(place);
                state.deliver(message);
            }
            Action::Read(client) => {
                state.clients[client].operations -= 1;
                let floor = state.floor;
                if state.clients[client].copy.may_read() {
                    let halves = state.clients[client].halves;
                    state.is_read(halves, floor);
                } else {
                    state.ask_read(client, floor);
                }
            }
            Action::Write(client) => {
                state.clients[client].operations -= 1;
                match state.clients[client].doing {
                    Doing::Given { version } => state.write_at_once(client, version),
                    _ => state.ask_write(client),
                }
            }
            Action::GiveBack(client) => {
                if let Doing::Given { version } = state.clients[client].doing {
                    state.ask_return(client, version, false);
                }
            }
            Action::Go(client) => state.go(client),
            Action::Expire => {
                state.expiries = state.expiries.saturating_sub(1);
                let rules = state.manager.rules.as_mut()?;
                let version = rules.version();
                let steps = rules.expired(version);
                if steps.is_empty() {
                    return None;
                }
                state.abandon(version);
                state.act(steps);
            }
            Action::Lapse(client) => {
                if state.clients[client].manager == state.manager.number {
                    state.lapses -= 1;
                }
                state.lapse(client);
            }
            Action::Attach(client) => state.attach(client),
            Action::Restart => {
                state.restarts -= 1;
                let clients = self.clients;
                state.manager = Manager {
                    number: state.manager.number + 1,
                    rules: None,
                    is_asking: false,
                    sessions: vec![None; clients],
                    grace: vec![true; clients],
                    waiting: vec![None; clients],
                };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing wrong", |_, state: &State| state.wrong.is_none()),
            Property::always("nobody waits for ever", |model: &Cell, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty()
                    || state
                        .clients
                        .iter()
                        .all(|it| it.doing == Doing::Nothing && it.operations == 0)
            }),
            Property::sometimes("a copy is believed", |_, state: &State| {
                state.clients.iter().any(|it| it.copy.may_read())
            }),
            Property::sometimes("a store is done before it is returned", |_, state: &State| {
                let is_done = |it: &ClientState| match it.doing {
                    Doing::Returning { version, is_used: true } => state.floor == [version; 2],
                    _ => false,
                };
                state.clients.iter().any(is_done)
            }),
            Property::sometimes("two hold callbacks", |_, state: &State| {
                state.manager.rules.as_ref().is_some_and(|rules| rules.holders() > 1)
            }),
        ]
    }
}

fn explore(cell: Cell) {
    let begun = Instant::now();
    let checker = cell.checker().threads(2).spawn_bfs().join();
    println!("{} states, {:?}", checker.unique_state_count(), begun.elapsed());
    checker.assert_properties();
}

/// What takes minutes is explored by hand: `NASD_EXPLORE=all cargo test -p nasd-afs`.
fn is_all_explored() -> bool {
    std::env::var("NASD_EXPLORE").is_ok_and(|what| what == "all")
}

const TWO: Cell =
    Cell { clients: 2, operations: [2, 2, 0], expiries: 0, lapses: 0, restarts: 0, is_made: false };
const THREE: Cell = Cell { clients: 3, operations: [1; 3], ..TWO };
const MADE: Cell = Cell { is_made: true, ..TWO };

#[test]
fn all_is_well_where_nobody_fails() {
    explore(TWO);
    explore(THREE);
}

#[test]
fn a_client_is_too_slow() {
    explore(Cell { expiries: 1, ..TWO });
    explore(Cell { expiries: 1, ..THREE });
    if is_all_explored() {
        explore(Cell { expiries: 2, operations: [3; 3], ..TWO });
    }
}

#[test]
fn a_client_lapses_and_comes_back() {
    explore(Cell { lapses: 1, ..TWO });
    explore(Cell { lapses: 1, operations: [1, 3, 0], ..TWO });
    if is_all_explored() {
        explore(Cell { lapses: 1, expiries: 1, ..TWO });
        explore(Cell { lapses: 1, ..THREE });
    }
}

#[test]
fn the_manager_is_started_anew() {
    explore(Cell { restarts: 1, ..TWO });
    if is_all_explored() {
        explore(Cell { operations: [1; 3], restarts: 2, expiries: 1, ..TWO });
    }
}

#[test]
fn everything_goes_wrong() {
    explore(Cell { operations: [1; 3], restarts: 1, lapses: 1, ..TWO });
    if is_all_explored() {
        explore(Cell { operations: [1; 3], restarts: 1, lapses: 1, expiries: 1, ..TWO });
    }
}

#[test]
fn who_makes_a_file_may_store_it_at_once() {
    explore(MADE);
    explore(Cell { is_made: true, ..THREE });
    explore(Cell { expiries: 1, ..MADE });
    explore(Cell { lapses: 1, ..MADE });
    explore(Cell { restarts: 1, operations: [1, 2, 0], ..MADE });
    if is_all_explored() {
        explore(Cell { restarts: 1, ..MADE });
        explore(Cell { operations: [1; 3], restarts: 1, lapses: 1, expiries: 1, ..MADE });
    }
}

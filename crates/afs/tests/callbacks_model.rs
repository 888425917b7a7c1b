//! Every order of events of a file, its drive, its file managers and a few clients, as far as the budgets go: nobody reads
//! what is older than what somebody has read or stored, nothing torn is read but of a store that was abandoned, nothing
//! that was stored or read is lost with the drive's power, what is believed is what the drive has, and nobody waits for ever.

use std::time::Instant;

use nasd_afs::callbacks::{CachedCopy, Client, Era, FileRules, Reading, Step, Version, is_store};
use stateright::{Checker, Model, Property};

type Half = Version;

/// What a file has with which a store begins.
const BEGUN: Version = 1;

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
        /// The drive has refused what was given before.
        is_refused: bool,
    },
    MayWrite {
        client: usize,
        era: u8,
        call: u8,
        is_refused: bool,
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
        given: Option<Capability>,
    },
    Granted {
        client: usize,
        call: u8,
        given: Capability,
    },
    WriteGranted {
        client: usize,
        call: u8,
        given: Capability,
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
        durable: bool,
    },
    Advanced {
        manager: u8,
        to: Version,
    },
    /// It has done that, and is to make it durable.
    Flush {
        manager: u8,
        to: Version,
    },
    /// The drive had this version, and may have lost it. Then the client is answered.
    SetAgain {
        manager: u8,
        to: Version,
        client: usize,
    },
    IsSetAgain {
        manager: u8,
        client: usize,
    },
}

/// A version, and the manager whose working key it is made with: drives are given another one before the next manager asks them anything.
type Capability = (Version, u8);

/// A file's version and contents at its drive.
type Medium = (Version, [Half; 2]);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    Making,
    /// It has made the file, and may store it.
    Given {
        by: Capability,
    },
    AskingRead {
        floor: [Half; 2],
    },
    Reading {
        by: Capability,
        floor: [Half; 2],
        first: Option<Half>,
    },
    AskingWrite,
    Writing {
        by: Capability,
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
    /// Whose working key it has.
    key: u8,
    /// What the drive may have instead after a power cut, in order; nothing as long as it may lose no power any more.
    survivors: Vec<Medium>,
    manager: Manager,
    clients: Vec<ClientState>,
    network: Vec<Message>,
    floor: [Half; 2],
    /// Versions whose stores may be half done, in order.
    abandoned: Vec<Version>,
    expiries: u8,
    lapses: u8,
    restarts: u8,
    cuts: u8,
    has_been_cut: bool,
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
    /// The drive loses power, and has again what it had then.
    PowerCut(Medium),
}

struct Cell {
    clients: usize,
    /// Of each.
    operations: [u8; 3],
    expiries: u8,
    lapses: u8,
    restarts: u8,
    /// How often the drive loses power.
    cuts: u8,
    /// Clients may fail to write, and return what they may store.
    gives_back: bool,
    /// The first client makes the file.
    is_made: bool,
}

impl Message {
    /// Client, session and number of a call.
    const fn call(&self) -> Option<(usize, u8, u8)> {
        match self {
            Message::Make { client, era, call }
            | Message::MayRead { client, era, call, .. }
            | Message::MayWrite { client, era, call, .. }
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

    /// Whether the store that ends with this version was returned: its client has made it durable.
    fn is_returned(&self, end: Version) -> bool {
        let writer = self.manager.rules.as_ref().and_then(FileRules::writer);
        let returned = writer.and_then(|client| self.manager.waiting[client as usize].as_ref());
        matches!(returned, Some(Message::Return { version, .. }) if version + 1 == end)
    }

    /// The drive has something else now. Whoever makes that durable makes all durable that came before.
    fn change_drive(&mut self, (version, halves): Medium, durable: bool) {
        if durable {
            self.survivors.clear();
        } else if self.cuts > 0 {
            self.survivors.push((self.drive, self.halves));
        }
        (self.drive, self.halves) = (version, halves);
    }

    /// The drive has lost power, and what was not durable, from some moment on.
    fn power_cut(&mut self, medium: Medium) {
        self.cuts -= 1;
        self.has_been_cut = true;
        (self.drive, self.halves) = medium;
        self.survivors.clear();
        for client in &mut self.clients {
            // It is told of another instance when it writes again, and writes again what it does not know to be durable.
            if let Doing::Writing { halves, .. } = &mut client.doing {
                *halves = 0;
            }
        }
    }

    /// Nothing is lost that somebody has been told to be stored, or has read; and who believes a copy has what the drive has, unless somebody
    /// stores, whose end he is told.
    fn is_kept(&self) -> bool {
        let is_right = |it: &ClientState| {
            let Some(promised) = it.copy.promised().filter(|_| it.copy.may_read()) else {
                return true;
            };
            let is_stored_since = self.drive > promised;
            is_stored_since || (self.drive + 1 >= promised && it.halves == self.halves)
        };
        let has_all = self.halves.iter().zip(self.floor).all(|(half, floor)| *half >= floor);
        has_all && self.clients.iter().all(is_right)
    }

    fn act(&mut self, steps: Vec<Step>) {
        for step in steps {
            let manager = self.manager.number;
            match step {
                Step::Advance { to } => {
                    let durable = !is_store(to) && !self.is_returned(to);
                    self.send(Message::Advance { manager, to, durable });
                }
                Step::MayWrite { client, version } => {
                    let client = client as usize;
                    if let Some(Message::MayWrite { call, era, .. }) = self.manager.waiting[client]
                        && self.manager.sessions[client] == Some(era)
                    {
                        self.manager.waiting[client] = None;
                        let rules = self.manager.rules.as_ref();
                        let is_alone = rules.is_some_and(|rules| rules.is_alone(client as Client));
                        let given = (version, manager);
                        self.send(Message::WriteGranted { client, call, given, is_alone });
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
        let version = rules.version();
        match message {
            Message::MayRead { is_refused: true, .. }
            | Message::MayWrite { is_refused: true, .. } => {
                self.set_again(client, message, version);
            }
            Message::MayRead { call, .. } => match rules.may_read(client as Client) {
                Reading::Promised(version) => {
                    let given = (version, self.manager.number);
                    self.send(Message::Granted { client, call, given });
                }
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

    /// A client's capability was refused: the drive is told the version again, and then the client is answered.
    fn set_again(&mut self, client: usize, message: Message, to: Version) {
        let is_refused = false;
        self.manager.waiting[client] = Some(match message {
            Message::MayRead { client, era, call, .. } => {
                Message::MayRead { client, era, call, is_refused }
            }
            Message::MayWrite { client, era, call, .. } => {
                Message::MayWrite { client, era, call, is_refused }
            }
            other => other,
        });
        let manager = self.manager.number;
        self.send(Message::SetAgain { manager, to, client });
    }

    /// The file is made, or was when that was asked for before: the client that may store it still is told so again.
    fn make(&mut self, client: usize, call: u8) {
        let rules = self.manager.rules.as_ref();
        let given = rules.filter(|rules| rules.is_alone(client as Client));
        let given = given.map(|rules| (rules.version(), self.manager.number));
        self.send(Message::Made { client, call, given });
    }

    /// The file is made, and the client that has made it may store it, or not.
    fn made(&mut self, client: usize, call: u8, given: Option<Capability>) {
        let state = &mut self.clients[client];
        if state.call == call && state.doing == Doing::Making {
            state.doing = match given {
                Some(by) => Doing::Given { by },
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
        let is_made = is_used || version == BEGUN;
        state.doing = Doing::Nothing;
        let era = state.asked;
        // What it has not stored, nor made, it does not know.
        state.copy.stored(era, version, is_promised && is_made);
        if !is_used {
            // Where that is promised nobody has stored: the file is as it was made.
            state.halves = [0; 2];
            return;
        }
        state.halves = [version; 2];
        self.floor = [self.floor[0].max(version), self.floor[1].max(version)];
    }

    /// The manager that there is asks the drive.
    fn deliver_to_drive(&mut self, message: Message) {
        let manager = self.manager.number;
        match message {
            Message::Ask { .. } => {
                // All that there is is made durable before a manager believes it.
                self.key = manager;
                let version = self.drive;
                self.change_drive((version, self.halves), true);
                self.send(Message::Found { manager, version });
            }
            Message::Advance { to, durable, .. } => {
                if to <= self.drive || (to > self.drive + 1 && !self.has_been_cut) {
                    self.fail("a version that does not follow");
                }
                self.change_drive((to, self.halves), false);
                // As long as it may lose power it does one after the other.
                self.send(match durable && self.cuts > 0 {
                    true => Message::Flush { manager, to },
                    false => Message::Advanced { manager, to },
                });
            }
            Message::Flush { to, .. } => {
                // Where it has lost power since it is told the version again.
                self.change_drive((to, self.halves), true);
                self.send(Message::Advanced { manager, to });
            }
            Message::SetAgain { to, client, .. } => {
                // It refuses to have a lower one.
                if to > self.drive {
                    self.change_drive((to, self.halves), true);
                }
                self.send(Message::IsSetAgain { manager, client });
            }
            _ => {}
        }
    }

    /// The drive answers the manager that there is.
    fn deliver_from_drive(&mut self, message: Message) {
        match message {
            Message::Found { version, .. } => {
                let (rules, steps) = FileRules::found(version);
                self.abandon(version);
                self.manager.rules = Some(rules);
                self.act(steps);
                self.ask_again();
            }
            Message::Advanced { to, .. } => {
                if let Some(rules) = &mut self.manager.rules {
                    let steps = rules.advanced(to);
                    self.act(steps);
                }
            }
            Message::IsSetAgain { client, .. } => {
                if let Some(waiting) = self.manager.waiting[client].take() {
                    self.serve(waiting);
                }
            }
            _ => {}
        }
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
            Message::Ask { manager }
            | Message::Advance { manager, .. }
            | Message::Flush { manager, .. }
            | Message::SetAgain { manager, .. } => {
                if manager == self.manager.number {
                    self.deliver_to_drive(message);
                }
            }
            Message::Found { manager, .. }
            | Message::Advanced { manager, .. }
            | Message::IsSetAgain { manager, .. } => {
                if manager == self.manager.number {
                    self.deliver_from_drive(message);
                }
            }
            Message::Break { client, era, version } => {
                self.clients[client].copy.broken(version);
                self.send(Message::Told { client, era, version });
            }
            Message::Made { client, call, given } => self.made(client, call, given),
            Message::Granted { client, call, given } => self.granted(client, call, given),
            Message::WriteGranted { client, call, given, is_alone } => {
                let state = &mut self.clients[client];
                if state.call == call {
                    state.copy.answered_to_write();
                    state.doing = Doing::Writing { by: given, halves: 0, is_alone };
                }
            }
            Message::Stored { client, call, version, is_promised } => {
                self.stored(client, call, (version, is_promised));
            }
        }
    }

    fn granted(&mut self, client: usize, call: u8, by: Capability) {
        let state = &mut self.clients[client];
        let Doing::AskingRead { floor } = state.doing else { return };
        if state.call != call {
            return;
        }
        let era = state.asked;
        state.copy.granted(era, by.0);
        if state.copy.may_read() {
            state.doing = Doing::Nothing;
            let halves = state.halves;
            self.is_read(halves, floor);
            return;
        }
        state.doing = Doing::Reading { by, floor, first: None };
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
    fn write_at_once(&mut self, client: usize, by: Capability) {
        let state = &mut self.clients[client];
        state.copy.writes();
        state.copy.answered_to_write();
        state.doing = Doing::Writing { by, halves: 0, is_alone: true };
    }

    fn ask_read(&mut self, client: usize, floor: [Half; 2], is_refused: bool) {
        self.clients[client].doing = Doing::AskingRead { floor };
        let (era, call) = self.call(client);
        self.send(Message::MayRead { client, era, call, is_refused });
    }

    fn ask_write(&mut self, client: usize, is_refused: bool) {
        self.clients[client].doing = Doing::AskingWrite;
        self.clients[client].copy.writes();
        let (era, call) = self.call(client);
        self.send(Message::MayWrite { client, era, call, is_refused });
    }

    fn ask_return(&mut self, client: usize, version: Version, is_used: bool) {
        self.clients[client].doing = Doing::Returning { version, is_used };
        let (era, call) = self.call(client);
        self.send(Message::Return { client, era, call, version });
    }

    /// A client returns what it may store, and has not, or only a part of it.
    fn give_back(&mut self, client: usize) {
        match self.clients[client].doing {
            // The file was made durably with that version.
            Doing::Given { by } => self.ask_return(client, by.0, false),
            // The drive makes the version durable before: else it could come back with the one before it.
            Doing::Writing { by, halves: 0, .. }
                if by == (self.drive, self.key) && !self.halves.contains(&by.0) =>
            {
                self.change_drive((self.drive, self.halves), true);
                self.ask_return(client, by.0, false);
            }
            // Whoever returns it says that it is durable: it ends with its time.
            Doing::Writing { .. } => self.clients[client].doing = Doing::Nothing,
            _ => {}
        }
    }

    /// A client's next transfer at the drive.
    fn go(&mut self, client: usize) {
        match self.clients[client].doing.clone() {
            Doing::Reading { by, floor, first } => {
                let (version, _) = by;
                if by != (self.drive, self.key) {
                    let is_behind = self.drive < version;
                    self.ask_read(client, floor, is_behind);
                } else if first.is_none() {
                    let first = Some(self.halves[0]);
                    self.clients[client].doing = Doing::Reading { by, floor, first };
                } else {
                    let state = &mut self.clients[client];
                    let halves = [first.unwrap_or_default(), self.halves[1]];
                    state.copy.fetched(version);
                    state.halves = halves;
                    state.doing = Doing::Nothing;
                    self.is_read(halves, floor);
                }
            }
            Doing::Writing { by, halves, is_alone } => {
                let (version, _) = by;
                if by != (self.drive, self.key) {
                    let is_behind = self.drive < version;
                    self.ask_write(client, is_behind);
                } else {
                    let mut written = self.halves;
                    written[halves as usize] = version;
                    let halves = halves + 1;
                    // The last write makes durable what the same instance has got before.
                    self.change_drive((version, written), halves == 2);
                    self.clients[client].doing = Doing::Writing { by, halves, is_alone };
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
            Doing::AskingRead { floor } => self.ask_read(client, floor, false),
            Doing::AskingWrite => self.ask_write(client, false),
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
        let begun = self.is_made.then(|| FileRules::made(0, BEGUN));
        let mut state = State {
            drive: if self.is_made { BEGUN } else { 0 },
            halves: [0; 2],
            key: 1,
            survivors: Vec::new(),
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
            cuts: self.cuts,
            has_been_cut: false,
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
                Doing::Reading { .. } => actions.push(Action::Go(client)),
                Doing::Writing { .. } => {
                    actions.push(Action::Go(client));
                    if self.gives_back {
                        actions.push(Action::GiveBack(client));
                    }
                }
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
        if state.cuts > 0 {
            let present = (state.drive, state.halves);
            let mut left: Vec<Medium> = state.survivors.iter().copied().chain([present]).collect();
            left.dedup();
            actions.extend(left.into_iter().map(Action::PowerCut));
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
                    state.ask_read(client, floor, false);
                }
            }
            Action::Write(client) => {
                state.clients[client].operations -= 1;
                match state.clients[client].doing {
                    Doing::Given { by } => state.write_at_once(client, by),
                    _ => state.ask_write(client, false),
                }
            }
            Action::GiveBack(client) => state.give_back(client),
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
            Action::PowerCut(medium) => state.power_cut(medium),
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
            Property::always("nothing is lost, and what is believed is so", |_, state: &State| {
                state.is_kept()
            }),
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

const TWO: Cell = Cell {
    clients: 2,
    operations: [2, 2, 0],
    expiries: 0,
    lapses: 0,
    restarts: 0,
    cuts: 0,
    gives_back: false,
    is_made: false,
};
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
    explore(Cell { lapses: 1, ..THREE });
    if is_all_explored() {
        explore(Cell { lapses: 1, expiries: 1, ..TWO });
        explore(Cell { lapses: 1, operations: [2, 1, 1], ..THREE });
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

#[test]
fn the_drive_loses_power() {
    explore(Cell { cuts: 1, ..TWO });
    explore(Cell { cuts: 1, expiries: 1, operations: [1, 2, 0], ..TWO });
    explore(Cell { cuts: 1, restarts: 1, operations: [1, 1, 0], ..TWO });
    explore(Cell { cuts: 1, restarts: 1, expiries: 1, operations: [1, 1, 0], ..TWO });
    explore(Cell { cuts: 1, ..MADE });
    explore(Cell { cuts: 1, gives_back: true, ..TWO });
    explore(Cell { cuts: 1, restarts: 1, gives_back: true, operations: [1, 1, 0], ..TWO });
    explore(Cell { cuts: 1, ..THREE });
    if is_all_explored() {
        explore(Cell { cuts: 1, expiries: 1, gives_back: true, ..TWO });
        explore(Cell { cuts: 1, restarts: 1, gives_back: true, operations: [1, 2, 0], ..TWO });
        explore(Cell { cuts: 2, lapses: 1, operations: [1; 3], ..TWO });
    }
}

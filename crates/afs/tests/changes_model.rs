//! Every order of events of a file whose attributes the file manager changes on behalf of clients, while others store it, ask for it and lapse, as
//! far as the budgets go: nobody believes attributes of before a change of another client that was made, or of its own that was answered; a
//! store ends when all know; and nobody waits for ever.

use std::hash::{Hash, Hasher};
use std::time::Instant;

use nasd_afs::callbacks::{
    CachedCopy, Callbacks, Client, Era, FileRules, Reading, State as Stage, Step, Unknown, Version,
};
use stateright::{Checker, Model, Property};

/// The attributes, each change of which makes them one more.
type Value = u8;

/// There is one file.
const FILE: () = ();

/// What a client knew when it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Asking {
    client: usize,
    era: Era,
    changes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    /// Client to manager; `session` is the client's.
    Read {
        asking: Asking,
        session: u8,
    },
    Write {
        client: usize,
        session: u8,
    },
    Return {
        asking: Asking,
        session: u8,
        version: Version,
    },
    Change {
        client: usize,
    },
    /// It has dealt with what it was told.
    KnowsBreak {
        client: usize,
        session: u8,
        version: Version,
    },
    KnowsChange {
        client: usize,
        session: u8,
        number: u8,
    },
    /// The manager is about to look what the attributes are, after it has promised something or not.
    LookToRead {
        asking: Asking,
        session: u8,
        version: Version,
        is_promised: bool,
    },
    LookStored {
        asking: Asking,
        version: Version,
        is_promised: bool,
    },
    /// It is about to make a change: all know. On behalf of a session, or of none.
    Make {
        client: usize,
        by: Client,
    },
    /// The drive is about to have this version.
    Advance {
        to: Version,
    },
    /// Manager to client.
    Granted {
        asking: Asking,
        version: Version,
        is_promised: bool,
        value: Value,
    },
    WriteGranted {
        client: usize,
        session: u8,
        version: Version,
    },
    Stored {
        asking: Asking,
        session: u8,
        version: Version,
        is_promised: bool,
        value: Value,
    },
    Made {
        client: usize,
        value: Value,
    },
    Break {
        client: usize,
        session: u8,
        version: Version,
    },
    Changed {
        client: usize,
        session: u8,
        number: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Storing {
    No,
    Asking,
    Writing(Version),
    Returning,
}

/// A client, with what it believes as the clerk does (`crates/clerk/src/callbacks/promises.rs`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClientState {
    session: u8,
    copy: CachedCopy,
    value: Option<Value>,
    /// The newest that was told, believed or not.
    newest: Value,
    /// Own changes that were answered.
    changes: u8,
    storing: Storing,
    left: Budget,
    /// What it believes is not to be older.
    floor: Value,
}

/// What a client may do yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    reads: u8,
    stores: u8,
    changes: u8,
}

/// A change that waits until those know who were told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Pending {
    client: usize,
    by: Client,
    /// Clients, and the events' numbers.
    untold: Vec<(usize, u8)>,
}

/// The rules; of one file they are what can be asked.
#[derive(Clone, Debug, Default)]
struct Table(Callbacks<()>);

impl Table {
    fn parts(&self) -> (Option<&FileRules>, Vec<Client>, Vec<Client>) {
        (self.0.file(FILE), self.0.changers(FILE), self.0.believers(FILE))
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.parts() == other.parts()
    }
}

impl Hash for Table {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.parts().hash(hasher);
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct State {
    drive: Version,
    value: Value,
    table: Table,
    /// None: it is over, and the client has not come back.
    sessions: Vec<Option<u8>>,
    waiting: Vec<Message>,
    pending: Vec<Pending>,
    told: u8,
    clients: Vec<ClientState>,
    network: Vec<Message>,
    lapses: u8,
    expiries: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Deliver(usize),
    Read(usize),
    Store(usize),
    Finish(usize),
    Change(usize),
    Lapse(usize),
    Gone(usize),
    Attach(usize),
    Expire,
}

struct Cell {
    budgets: &'static [Budget],
    lapses: u8,
    expiries: u8,
}

/// As sessions are numbered: 0 is none.
const fn id(client: usize) -> Client {
    client as Client + 1
}

const fn place(client: Client) -> usize {
    client as usize - 1
}

impl ClientState {
    fn granted(&mut self, asking: Asking, version: Version, is_promised: bool, value: Value) {
        self.newest = self.newest.max(value);
        if !is_promised {
            return;
        }
        if self.copy.granted(asking.era, version) {
            self.value = (self.changes == asking.changes).then_some(value);
        }
    }

    fn stored(&mut self, asking: Asking, version: Version, is_promised: bool, value: Value) {
        self.newest = self.newest.max(value);
        if self.copy.stored(asking.era, version, is_promised) {
            self.value = (self.changes == asking.changes).then_some(value);
        }
    }

    fn made(&mut self, value: Value) {
        self.changes += 1;
        self.value = None;
        // It may have been overtaken by the answer to a later one, or to a question after that.
        if self.copy.promised().is_some() && value >= self.newest {
            self.value = Some(value);
        }
        self.newest = self.newest.max(value);
        self.floor = self.floor.max(value);
    }

    fn end_if_broken(&mut self) {
        if self.copy.promised().is_none() {
            self.value = None;
        }
    }

    fn lapsed(&mut self) {
        self.copy.lapsed();
        self.end_if_broken();
    }

    fn believed(&self) -> Option<Value> {
        self.copy.promised().and(self.value)
    }
}

impl State {
    fn send(&mut self, message: Message) {
        let place = self.network.binary_search(&message).unwrap_or_else(|place| place);
        self.network.insert(place, message);
    }

    fn wait(&mut self, message: Message) {
        let place = self.waiting.binary_search(&message).unwrap_or_else(|place| place);
        self.waiting.insert(place, message);
    }

    fn fail(&mut self, what: &'static str) {
        self.wrong.get_or_insert(what);
    }

    /// Takes what waits and is so, if anything does.
    fn take_waiting(&mut self, is_it: impl Fn(&Message) -> bool) -> Option<Message> {
        let place = self.waiting.iter().position(is_it)?;
        Some(self.waiting.remove(place))
    }

    fn act(&mut self, steps: Vec<((), Step)>) {
        for ((), step) in steps {
            match step {
                Step::Advance { to } => self.send(Message::Advance { to }),
                Step::MayWrite { client, version } => {
                    let client = place(client);
                    let is_its = |it: &Message| matches!(it, Message::Write { client: c, .. } if *c == client);
                    if let Some(Message::Write { session, .. }) = self.take_waiting(is_its) {
                        self.send(Message::WriteGranted { client, session, version });
                    }
                }
                Step::Break { client, version } => match self.sessions[place(client)] {
                    Some(session) => {
                        self.send(Message::Break { client: place(client), session, version });
                    }
                    None => self.fail("a holder without a session"),
                },
                Step::Stored { client, version, is_promised } => {
                    let client = place(client);
                    let is_its = |it: &Message| {
                        matches!(it, Message::Return { asking, version: v, .. }
                            if asking.client == client && *v == version)
                    };
                    if let Some(Message::Return { asking, .. }) = self.take_waiting(is_its) {
                        self.send(Message::LookStored { asking, version, is_promised });
                    }
                }
                Step::Settled => self.settled(),
            }
        }
    }

    /// Who waits asks again. Everybody knows of the store.
    fn settled(&mut self) {
        let is_asking = |it: &Message| !matches!(it, Message::Return { .. });
        while let Some(message) = self.take_waiting(is_asking) {
            self.send(message);
        }
    }

    /// The manager knows the file: it has asked the drive where it did not.
    fn known<T>(
        &mut self,
        mut ask: impl FnMut(&mut Callbacks<()>) -> Result<T, Unknown>,
    ) -> Option<T> {
        if let Ok(answer) = ask(&mut self.table.0) {
            return Some(answer);
        }
        let steps = self.table.0.found(FILE, self.drive);
        self.act(steps);
        let answer = ask(&mut self.table.0);
        if answer.is_err() {
            self.fail("what was found is not known");
        }
        answer.ok()
    }

    fn serve(&mut self, message: Message) {
        match message {
            Message::Read { asking, session } => {
                match self.known(|table| table.may_read(id(asking.client), FILE)) {
                    Some(Reading::Promised(version)) => {
                        let is_promised = true;
                        self.send(Message::LookToRead { asking, session, version, is_promised });
                    }
                    Some(Reading::Unpromised(version)) => {
                        let is_promised = false;
                        self.send(Message::LookToRead { asking, session, version, is_promised });
                    }
                    Some(Reading::Wait) | None => self.wait(message),
                }
            }
            Message::Write { client, .. } => {
                self.wait(message);
                let steps = self.known(|table| table.may_write(id(client), FILE));
                self.act(steps.unwrap_or_default());
            }
            Message::Return { asking, version, .. } => {
                self.wait(message);
                match self.known(|table| table.returned(id(asking.client), FILE, version)) {
                    Some(Ok(steps)) => self.act(steps),
                    _ => self.fail("what was given is not known"),
                }
            }
            _ => {}
        }
    }

    /// To the manager, or within it.
    fn deliver(&mut self, message: Message) {
        match message {
            Message::Read { asking: Asking { client, .. }, session }
            | Message::Write { client, session }
            | Message::Return { asking: Asking { client, .. }, session, .. } => {
                // A session that is over is answered so, and its client has seen that already. Who has not come back yet asks again.
                match self.sessions[client] == Some(session) {
                    true => self.serve(message),
                    false if self.clients[client].session == session => self.wait(message),
                    false => {}
                }
            }
            Message::Change { client } => self.begin_change(client),
            Message::KnowsBreak { client, session, version } => {
                if self.sessions[client] == Some(session) {
                    let steps = self.table.0.told(id(client), FILE, version);
                    self.act(steps);
                }
            }
            Message::KnowsChange { client, session, number } => {
                if self.sessions[client] == Some(session) {
                    self.table.0.told_change(id(client), FILE);
                    self.forget_untold(|other| other == (client, number));
                }
            }
            Message::LookToRead { asking, session, version, is_promised } => {
                let value = self.value;
                match version == self.drive {
                    true => self.send(Message::Granted { asking, version, is_promised, value }),
                    false => self.send(Message::Read { asking, session }),
                }
            }
            Message::LookStored { asking, version, is_promised } => {
                let is_promised = is_promised && version + 1 == self.drive;
                let (value, session) = (self.value, self.clients[asking.client].session);
                self.send(Message::Stored { asking, session, version, is_promised, value });
            }
            Message::Make { client, by } => self.make(client, by),
            Message::Advance { to } => {
                self.drive = to;
                let steps = self.table.0.advanced(FILE, to);
                self.act(steps);
            }
            _ => self.deliver_to_client(message),
        }
    }

    fn begin_change(&mut self, client: usize) {
        let by = self.sessions[client].map_or(0, |_| id(client));
        let mut untold = Vec::new();
        for other in self.table.0.begin_change(by, FILE) {
            let Some(session) = self.sessions[place(other)] else {
                self.fail("a believer without a session");
                continue;
            };
            let (other, number) = (place(other), self.told);
            self.told += 1;
            self.send(Message::Changed { client: other, session, number });
            untold.push((other, number));
        }
        self.pending.push(Pending { client, by, untold });
        self.forget_untold(|_| false);
    }

    /// Those changes are made next that wait for nobody.
    fn forget_untold(&mut self, is_known: impl Fn((usize, u8)) -> bool) {
        for mut pending in std::mem::take(&mut self.pending) {
            pending.untold.retain(|other| !is_known(*other));
            match pending.untold.is_empty() {
                true => self.send(Message::Make { client: pending.client, by: pending.by }),
                false => self.pending.push(pending),
            }
        }
        self.pending.sort_unstable();
    }

    fn make(&mut self, client: usize, by: Client) {
        self.value += 1;
        let value = self.value;
        let others = self.clients.iter_mut().enumerate().filter(|(other, _)| *other != client);
        others.for_each(|(_, it)| it.floor = value);
        self.table.0.end_change(by, FILE);
        self.send(Message::Made { client, value });
    }

    fn deliver_to_client(&mut self, message: Message) {
        match message {
            Message::Granted { asking, version, is_promised, value } => {
                self.clients[asking.client].granted(asking, version, is_promised, value);
            }
            Message::WriteGranted { client, session, version } => {
                let it = &mut self.clients[client];
                if it.session == session && it.storing == Storing::Asking {
                    it.copy.answered_to_write();
                    it.end_if_broken();
                    it.storing = Storing::Writing(version);
                }
            }
            Message::Stored { asking, session, version, is_promised, value } => {
                let it = &mut self.clients[asking.client];
                it.stored(asking, version, is_promised, value);
                if it.session == session && it.storing == Storing::Returning {
                    it.storing = Storing::No;
                }
            }
            Message::Made { client, value } => self.clients[client].made(value),
            Message::Break { client, session, version } => {
                let it = &mut self.clients[client];
                it.copy.broken(version);
                it.end_if_broken();
                self.send(Message::KnowsBreak { client, session, version });
            }
            Message::Changed { client, session, number } => {
                self.clients[client].lapsed();
                self.send(Message::KnowsChange { client, session, number });
            }
            _ => self.fail("nobody takes that"),
        }
    }

    fn asking(&self, client: usize) -> (Asking, u8) {
        let it = &self.clients[client];
        (Asking { client, era: it.copy.era(), changes: it.changes }, it.session)
    }

    /// The manager gives the client's session up, which is over there already.
    fn gone(&mut self, client: usize) {
        let over = self.sessions[client].take().unwrap_or_default();
        let is_its = |it: &Message| match it {
            Message::Read { asking: Asking { client: other, .. }, session }
            | Message::Return { asking: Asking { client: other, .. }, session, .. }
            | Message::Write { client: other, session } => (*other, *session) == (client, over),
            _ => false,
        };
        while self.take_waiting(is_its).is_some() {}
        let steps = self.table.0.gone(id(client));
        self.act(steps);
        self.forget_untold(|(other, _)| other == client);
    }

    /// Nobody believes what a store has ended, once it is done.
    fn is_coherent(&self) -> bool {
        let stage = self.table.0.file(FILE).map(FileRules::state);
        let is_settled = matches!(stage, None | Some(Stage::Settled));
        let is_so = |it: &ClientState| it.copy.promised().is_none_or(|it| it == self.drive);
        !is_settled || self.clients.iter().all(is_so)
    }
}

impl Model for Cell {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = |left: &Budget| ClientState {
            session: 1,
            copy: CachedCopy::default(),
            value: None,
            newest: 0,
            changes: 0,
            storing: Storing::No,
            left: *left,
            floor: 0,
        };
        vec![State {
            drive: 0,
            value: 0,
            table: Table::default(),
            sessions: vec![Some(1); self.budgets.len()],
            waiting: Vec::new(),
            pending: Vec::new(),
            told: 0,
            clients: self.budgets.iter().map(client).collect(),
            network: Vec::new(),
            lapses: self.lapses,
            expiries: self.expiries,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for place in 0..state.network.len() {
            if place == 0 || state.network[place] != state.network[place - 1] {
                actions.push(Action::Deliver(place));
            }
        }
        for (client, it) in state.clients.iter().enumerate() {
            if it.left.reads > 0 {
                actions.push(Action::Read(client));
            }
            if it.left.changes > 0 {
                actions.push(Action::Change(client));
            }
            match it.storing {
                Storing::No if it.left.stores > 0 => actions.push(Action::Store(client)),
                Storing::Writing(_) => actions.push(Action::Finish(client)),
                _ => {}
            }
            match state.sessions[client] {
                Some(session) if session == it.session && state.lapses > 0 => {
                    actions.push(Action::Lapse(client));
                }
                Some(session) if session != it.session => actions.push(Action::Gone(client)),
                Some(_) => {}
                None => actions.push(Action::Attach(client)),
            }
        }
        let is_writing = |rules: &FileRules| rules.state() == Stage::Writing;
        if state.expiries > 0 && state.table.0.file(FILE).is_some_and(is_writing) {
            actions.push(Action::Expire);
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
                let (asking, session) = state.asking(client);
                state.clients[client].left.reads -= 1;
                state.send(Message::Read { asking, session });
            }
            Action::Store(client) => {
                let it = &mut state.clients[client];
                it.left.stores -= 1;
                it.copy.writes();
                (it.value, it.storing) = (None, Storing::Asking);
                let session = it.session;
                state.send(Message::Write { client, session });
            }
            Action::Finish(client) => {
                let Storing::Writing(version) = state.clients[client].storing else { return None };
                state.clients[client].storing = Storing::Returning;
                let (asking, session) = state.asking(client);
                state.send(Message::Return { asking, session, version });
            }
            Action::Change(client) => {
                state.clients[client].left.changes -= 1;
                state.send(Message::Change { client });
            }
            Action::Lapse(client) => {
                state.lapses -= 1;
                let it = &mut state.clients[client];
                it.session += 1;
                it.lapsed();
                // What it has asked to store it asks again.
                match it.storing {
                    Storing::Asking => {
                        let session = it.session;
                        state.send(Message::Write { client, session });
                    }
                    _ => it.storing = Storing::No,
                }
            }
            Action::Gone(client) => state.gone(client),
            Action::Attach(client) => {
                state.sessions[client] = Some(state.clients[client].session);
                state.settled();
            }
            Action::Expire => {
                state.expiries -= 1;
                let version = state.table.0.file(FILE)?.version();
                let steps = state.table.0.expired(FILE, version);
                state.act(steps);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing wrong", |_, state: &State| state.wrong.is_none()),
            Property::always("nobody believes attributes of before", |_, state: &State| {
                let is_so = |it: &ClientState| it.believed().is_none_or(|value| value >= it.floor);
                state.clients.iter().all(is_so)
            }),
            Property::always("a store ends when all know", |_, state: &State| state.is_coherent()),
            Property::always("nobody waits for ever", |model: &Cell, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let is_done = |it: &ClientState| it.storing == Storing::No;
                !actions.is_empty()
                    || (state.waiting.is_empty()
                        && state.pending.is_empty()
                        && state.table.0.changers(FILE).is_empty()
                        && state.clients.iter().all(is_done))
            }),
            Property::sometimes("its own change is believed", |model: &Cell, state: &State| {
                let is_own = |it: &ClientState| it.changes > 0 && it.believed() == Some(it.floor);
                let can_be = |budget: &Budget| budget.changes > 0 && budget.reads > 0;
                state.clients.iter().any(is_own) || !model.budgets.iter().any(can_be)
            }),
            Property::sometimes("another's change is believed", |_, state: &State| {
                let is_others =
                    |it: &ClientState| it.changes == 0 && it.floor > 0 && it.believed().is_some();
                state.clients.iter().any(is_others)
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

const fn budget(reads: u8, stores: u8, changes: u8) -> Budget {
    Budget { reads, stores, changes }
}

#[test]
fn one_changes_and_one_reads() {
    let budgets = const { &[budget(1, 0, 1), budget(2, 0, 0)] };
    explore(Cell { budgets, lapses: 1, expiries: 0 });
}

#[test]
fn both_change_and_read() {
    let budgets = const { &[budget(2, 0, 1), budget(2, 0, 1)] };
    explore(Cell { budgets, lapses: 0, expiries: 0 });
    let budgets = const { &[budget(2, 0, 2), budget(0, 0, 1)] };
    explore(Cell { budgets, lapses: 0, expiries: 0 });
}

#[test]
fn one_changes_while_the_other_stores() {
    let budgets = const { &[budget(0, 0, 1), budget(1, 1, 0)] };
    explore(Cell { budgets, lapses: 1, expiries: 1 });
    let budgets = const { &[budget(1, 0, 1), budget(1, 1, 0)] };
    explore(Cell { budgets, lapses: 0, expiries: 1 });
    if is_all_explored() {
        explore(Cell { budgets, lapses: 1, expiries: 1 });
        let budgets = const { &[budget(1, 1, 1), budget(1, 1, 0)] };
        explore(Cell { budgets, lapses: 0, expiries: 0 });
    }
}

#[test]
fn there_are_three() {
    let budgets = const { &[budget(1, 0, 1), budget(0, 1, 0), budget(2, 0, 0)] };
    explore(Cell { budgets, lapses: 0, expiries: 0 });
    let budgets = const { &[budget(1, 0, 1), budget(0, 0, 1), budget(1, 0, 0)] };
    explore(Cell { budgets, lapses: 0, expiries: 0 });
    if is_all_explored() {
        let budgets = const { &[budget(1, 1, 1), budget(1, 0, 1), budget(1, 0, 0)] };
        explore(Cell { budgets, lapses: 1, expiries: 0 });
    }
}

//! The file manager's side of one file: who holds a callback on it, and the store that is under way.

use std::mem;

use super::clients::Clients;

/// A client's session.
pub type Client = u64;

/// An object's `access_control_version`: odd while somebody may write, even while nobody may.
pub type Version = u64;

/// Whether somebody may write at this version.
pub const fn is_store(version: Version) -> bool {
    !version.is_multiple_of(2)
}

/// What the file manager is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Set the object's version at its drive, and say so by [`FileRules::advanced`]. No capability of an earlier version is good from then
    /// on. An even one is durable then, with all that was written before, unless the client has seen to that and returned the store; an odd one
    /// need not be.
    Advance {
        /// The new version.
        to: Version,
    },
    /// The client may write under capabilities of this version.
    MayWrite {
        /// Who.
        client: Client,
        /// An odd one.
        version: Version,
    },
    /// Tell the client that nothing it was promised up to this version is so any more, and say by
    /// [`FileRules::told`] when it knows, or by [`FileRules::gone`] when its lease is over.
    Break {
        /// Whom.
        client: Client,
        /// An odd one: that of the store.
        version: Version,
    },
    /// Answer the client that its store is done.
    Stored {
        /// Who stored.
        client: Client,
        /// Under which version.
        version: Version,
        /// Whether the client now holds a callback, with the version that follows: what it stored is what the file is.
        is_promised: bool,
    },
    /// No store is under way any more: who waits may ask again.
    Settled,
}

/// The answer to who wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// It may, under capabilities of this version, and holds a callback.
    Promised(Version),
    /// It may, under capabilities of this version, but is not told of changes: somebody is changing attributes or names.
    Unpromised(Version),
    /// A store is under way: ask again when it is settled.
    Wait,
}

/// No client can store under such a version, or it is another one's: who says so is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NeverGiven;

/// What is going on with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No store is under way.
    Settled,
    /// A client is about to store: the drive is being told the odd version.
    Opening,
    /// It has its capability.
    Writing,
    /// The drive is being told the even version: no write comes after that.
    Closing,
    /// Those who held callbacks are being told.
    Breaking,
}

/// One file, as a file manager knows it that has asked its drive. Forgotten when nobody holds a callback and nothing
/// is under way ([`FileRules::is_idle`]): all that must last is at the drive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileRules {
    version: Version,
    holders: Clients,
    /// Boxed, as most files have none.
    store: Option<Box<Store>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Store {
    /// None: it is nobody's, one that an earlier manager allowed, or of a client that is gone.
    writer: Option<Client>,
    /// It was nobody's at some time: whoever says that he has stored it may be right.
    was_nobodys: bool,
    /// Who says so besides the writer: one of them errs, or lies.
    claimants: Clients,
    /// Somebody else waits for its end.
    is_waited_for: bool,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The drive is being told of the odd version.
    Opening,
    /// The writer has its capability.
    Writing,
    /// The drive is being told of the even version: no write comes after that.
    Closing { is_returned: bool },
    /// Holders of callbacks are being told.
    Breaking { untold: Clients, is_returned: bool },
}

impl Store {
    /// Whether a client stores, or says that it has.
    fn is_by(&self, client: Client) -> bool {
        self.writer == Some(client) || self.claimants.has(client)
    }
}

impl FileRules {
    /// A file whose drive tells this version. An odd one is of a store that an earlier manager allowed: it is ended.
    /// Nobody may hold a callback that an earlier manager gave.
    pub fn found(version: Version) -> (FileRules, Vec<Step>) {
        let mut rules = FileRules { version, holders: Clients::default(), store: None };
        let mut steps = Vec::new();
        if is_store(version) {
            rules.begin(None, Stage::Closing { is_returned: false });
            steps.push(Step::Advance { to: version.saturating_add(1) });
        }
        (rules, steps)
    }

    /// A file that a client has just made, whose object had an odd version before anybody could know of it: the client may write under that
    /// from the beginning, and nobody else holds a callback.
    pub fn made(client: Client, version: Version) -> FileRules {
        let mut rules = FileRules { version, holders: Clients::default(), store: None };
        if is_store(version) {
            rules.begin(Some(client), Stage::Writing);
        }
        rules
    }

    /// The version that the drive was last known to have.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// What is going on.
    pub fn state(&self) -> State {
        match self.store.as_deref().map(|store| &store.stage) {
            None => State::Settled,
            Some(Stage::Opening) => State::Opening,
            Some(Stage::Writing) => State::Writing,
            Some(Stage::Closing { .. }) => State::Closing,
            Some(Stage::Breaking { .. }) => State::Breaking,
        }
    }

    /// Whether there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.store.is_none()
    }

    /// How many hold a callback.
    pub fn holders(&self) -> usize {
        self.holders.len()
    }

    /// Whether a client holds a callback, has not been told yet that it is broken, or stores or says that it has stored.
    pub fn concerns(&self, client: Client) -> bool {
        let is_untold = |store: &Store| match &store.stage {
            Stage::Breaking { untold, .. } => untold.has(client),
            Stage::Opening | Stage::Writing | Stage::Closing { .. } => false,
        };
        let store = self.store.as_deref();
        self.holders.has(client)
            || store.is_some_and(|store| store.is_by(client) || is_untold(store))
    }

    /// All of those.
    pub fn concerned(&self) -> Vec<Client> {
        let store = self.store.as_deref();
        let untold = store.and_then(|store| match &store.stage {
            Stage::Breaking { untold, .. } => Some(untold),
            Stage::Opening | Stage::Writing | Stage::Closing { .. } => None,
        });
        let others = untold.into_iter().flat_map(Clients::iter);
        self.holders.iter().chain(others).chain(self.storing()).collect()
    }

    /// Who stores, and who says that he has.
    pub(crate) fn storing(&self) -> impl Iterator<Item = Client> {
        let store = self.store.as_deref();
        let claimants = store.into_iter().flat_map(|store| store.claimants.iter());
        store.and_then(|store| store.writer).into_iter().chain(claimants)
    }

    /// Who stores.
    pub fn writer(&self) -> Option<Client> {
        self.store.as_deref()?.writer
    }

    /// Whether a client may write, and nobody need be told when it has: its store is done as soon as all that it has written is durable,
    /// and its return has others wait no longer. That is so until the store is closed.
    pub fn is_alone(&self, client: Client) -> bool {
        let writes = |store: &Store| store.writer == Some(client) && store.stage == Stage::Writing;
        self.store.as_deref().is_some_and(writes) && self.holders.is_empty()
    }

    /// A client wants to read, and to know of changes.
    pub fn may_read(&mut self, client: Client) -> Reading {
        let reading = self.may_look();
        let Reading::Unpromised(version) = reading else {
            return reading;
        };
        self.holders.add(client);
        Reading::Promised(version)
    }

    /// Somebody wants to read what is there now.
    pub(crate) fn may_look(&mut self) -> Reading {
        match self.store.as_deref_mut() {
            Some(store) => {
                store.is_waited_for = true;
                Reading::Wait
            }
            None => Reading::Unpromised(self.version),
        }
    }

    /// Attributes or names are about to be changed on a client's behalf: what all others were promised ends. Those who have not said yet
    /// that they know of a store are among them.
    pub(crate) fn changes(&mut self, client: Client) -> Clients {
        let is_kept = self.holders.remove(client);
        let mut kept = Clients::default();
        if is_kept {
            kept.add(client);
        }
        let mut ended = mem::replace(&mut self.holders, kept);
        let store = self.store.as_deref();
        if let Some(Stage::Breaking { untold, .. }) = store.map(|store| &store.stage) {
            for other in untold.iter() {
                ended.add(other);
            }
        }
        // It has what it was told when its store began, or is about to be told.
        if let Some(writer) = store.and_then(|store| store.writer) {
            ended.add(writer);
        }
        ended.remove(client);
        ended
    }

    /// A client does not hold a callback any more. Whether it has.
    pub(crate) fn unpromise(&mut self, client: Client) -> bool {
        self.holders.remove(client)
    }

    /// A client wants to write: who may already is told so again, so that it may go on, unless somebody waits for its end. Where
    /// there is nothing to do it waits for [`Step::Settled`]. Its own callback has ended.
    pub fn may_write(&mut self, client: Client) -> Vec<Step> {
        let Some(store) = self.store.as_deref_mut() else {
            self.holders.remove(client);
            self.begin(Some(client), Stage::Opening);
            return vec![Step::Advance { to: self.version.saturating_add(1) }];
        };
        let is_own = store.writer == Some(client);
        store.is_waited_for |= !is_own;
        match store.stage {
            Stage::Writing if is_own && !store.is_waited_for => {
                vec![Step::MayWrite { client, version: self.version }]
            }
            _ => Vec::new(),
        }
    }

    /// Somebody waits for the end of the store that is under way, though not for the file: it does not go on for ever.
    pub fn wait_for(&mut self) {
        if let Some(store) = self.store.as_deref_mut() {
            store.is_waited_for = true;
        }
    }

    /// The drive has this version now.
    pub fn advanced(&mut self, to: Version) -> Vec<Step> {
        self.advanced_telling(to, &Clients::default())
    }

    /// The same, where these may believe yet what they were promised before.
    pub(crate) fn advanced_telling(&mut self, to: Version, believers: &Clients) -> Vec<Step> {
        if to != self.version.saturating_add(1) {
            return Vec::new();
        }
        let Some(store) = &mut self.store else {
            return Vec::new();
        };
        match store.stage {
            Stage::Opening => {
                self.version = to;
                match store.writer {
                    Some(client) => {
                        store.stage = Stage::Writing;
                        vec![Step::MayWrite { client, version: to }]
                    }
                    None => self.close(false),
                }
            }
            Stage::Closing { is_returned } => {
                let version = mem::replace(&mut self.version, to);
                let mut untold = mem::take(&mut self.holders);
                for client in believers.iter() {
                    untold.add(client);
                }
                let breaks = untold.iter().map(|client| Step::Break { client, version });
                let mut steps: Vec<Step> = breaks.collect();
                store.stage = Stage::Breaking { untold, is_returned };
                steps.extend(self.settle());
                steps
            }
            Stage::Writing | Stage::Breaking { .. } => Vec::new(),
        }
    }

    /// A client has written all that it wanted to, under this version, and the drive has said so of each write.
    ///
    /// # Errors
    ///
    /// [`NeverGiven`].
    pub fn returned(&mut self, client: Client, version: Version) -> Result<Vec<Step>, NeverGiven> {
        if !is_store(version) || version > self.version {
            return Err(NeverGiven);
        }
        let is_current = self.store_version() == Some(version);
        if let Some(store) = self.store.as_deref_mut()
            && is_current
        {
            match store.writer {
                Some(writer) if writer != client && store.was_nobodys => {
                    store.claimants.add(client);
                    return Ok(Vec::new());
                }
                Some(writer) if writer != client => return Err(NeverGiven),
                // None: it has another session since, or another manager.
                _ => store.writer = Some(client),
            }
            match &mut store.stage {
                Stage::Writing => return Ok(self.close(true)),
                Stage::Closing { is_returned } | Stage::Breaking { is_returned, .. } => {
                    *is_returned = true;
                    return Ok(Vec::new());
                }
                Stage::Opening => {}
            }
        }
        // Its store was ended, and all were told of it.
        let is_promised = self.store.is_none() && version.checked_add(1) == Some(self.version);
        if is_promised {
            self.holders.add(client);
        }
        Ok(vec![Step::Stored { client, version, is_promised }])
    }

    /// The time of the writer's capability is over.
    pub fn expired(&mut self, version: Version) -> Vec<Step> {
        let is_writing = matches!(self.store.as_deref(), Some(Store { stage: Stage::Writing, .. }));
        if is_writing && version == self.version { self.close(false) } else { Vec::new() }
    }

    /// A client knows that what it was promised up to the version is so no more.
    pub fn told(&mut self, client: Client, version: Version) -> Vec<Step> {
        if self.store_version() != Some(version) {
            return Vec::new();
        }
        self.is_told(client)
    }

    /// A client's lease is over: it believes nothing.
    pub fn gone(&mut self, client: Client) -> Vec<Step> {
        self.holders.remove(client);
        let Some(store) = &mut self.store else {
            return Vec::new();
        };
        store.claimants.remove(client);
        if store.writer == Some(client) {
            (store.writer, store.was_nobodys) = (None, true);
            match &mut store.stage {
                Stage::Writing => return self.close(false),
                Stage::Closing { is_returned } | Stage::Breaking { is_returned, .. } => {
                    *is_returned = false;
                }
                Stage::Opening => {}
            }
        }
        self.is_told(client)
    }

    /// The odd version of the store under way, once the drive knows of it.
    pub(crate) fn store_version(&self) -> Option<Version> {
        match self.store.as_ref()?.stage {
            Stage::Opening => None,
            Stage::Writing | Stage::Closing { .. } => Some(self.version),
            Stage::Breaking { .. } => Some(self.version - 1),
        }
    }

    fn begin(&mut self, writer: Option<Client>, stage: Stage) {
        let (was_nobodys, claimants) = (writer.is_none(), Clients::default());
        let store = Store { writer, was_nobodys, claimants, is_waited_for: false, stage };
        self.store = Some(Box::new(store));
    }

    fn close(&mut self, is_returned: bool) -> Vec<Step> {
        if let Some(store) = &mut self.store {
            store.stage = Stage::Closing { is_returned };
        }
        vec![Step::Advance { to: self.version.saturating_add(1) }]
    }

    fn is_told(&mut self, client: Client) -> Vec<Step> {
        let Some(Store { stage: Stage::Breaking { untold, .. }, .. }) = self.store.as_deref_mut()
        else {
            return Vec::new();
        };
        if untold.remove(client) { self.settle() } else { Vec::new() }
    }

    /// Ends the store if everybody was told.
    fn settle(&mut self) -> Vec<Step> {
        let Some(Store {
            writer, claimants, stage: Stage::Breaking { untold, is_returned }, ..
        }) = self.store.as_deref_mut()
        else {
            return Vec::new();
        };
        if !untold.is_empty() {
            return Vec::new();
        }
        let (writer, is_returned) = (*writer, *is_returned);
        let (claimants, version) = (mem::take(claimants), self.version - 1);
        self.store = None;
        let mut steps = Vec::new();
        if let Some(client) = writer.filter(|_| is_returned) {
            self.holders.add(client);
            steps.push(Step::Stored { client, version, is_promised: true });
        }
        for client in claimants.iter() {
            steps.push(Step::Stored { client, version, is_promised: false });
        }
        steps.push(Step::Settled);
        steps
    }
}

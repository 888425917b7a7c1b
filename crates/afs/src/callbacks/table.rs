//! The file manager's side of all files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::clients::Clients;
use super::files::Files;
use super::rules::{Client, FileRules, NeverGiven, Reading, Step, Version, is_store};

/// The manager does not know the file's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Ask the drive, and say what it tells by [`Callbacks::found`], or that it does not by [`Callbacks::not_found`]; then
    /// whoever waits may ask again.
    Ask,
    /// Somebody asks the drive already, or others are to say yet that they know of something: wait for that.
    Wait,
}

/// How many callbacks there may be: a file manager remembers them all, and clients forget what they were promised without saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// That one client holds.
    pub of_client: usize,
    /// That all hold.
    pub in_all: usize,
}

/// So many end at a time at most, so that a client can deal with them soon.
const MOST_ENDED: usize = 1024;

impl Default for Limits {
    /// 262,144 of a client, which are twice as many as ours remembers, and 4,194,304 in all, in less than 200 bytes each.
    fn default() -> Self {
        Limits { of_client: 1 << 18, in_all: 1 << 22 }
    }
}

/// What is to be done, and of which file.
pub type FileStep<F> = (F, Step);

/// The callbacks and stores of all files of a manager, `F` being what names a file.
#[derive(Clone, Debug)]
pub struct Callbacks<F> {
    /// None: the drive is being asked. Only one answer of a drive can be on its way: one that comes later could tell a version of
    /// before.
    files: HashMap<F, Option<FileRules>>,
    /// The files that each client has to do with.
    by_client: HashMap<Client, Files<F>>,
    /// Files whose attributes or names are being changed, and on whose behalf: nobody else is promised anything.
    changing: HashMap<F, Vec<Client>>,
    /// Who may believe yet what such a change has ended.
    believers: HashMap<F, Clients>,
    limits: Limits,
    /// Of how many files each client is among those: they are among its files, too.
    believing: HashMap<Client, usize>,
    /// Files of all clients, and of how many of those they are among the believers.
    counts: Counts,
}

/// Sums over all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    files: usize,
    believed: usize,
}

impl<F> Default for Callbacks<F> {
    fn default() -> Self {
        Callbacks::with_limits(Limits::default())
    }
}

impl<F> Callbacks<F> {
    /// None yet, and never more than that for long.
    pub fn with_limits(limits: Limits) -> Callbacks<F> {
        Callbacks {
            files: HashMap::new(),
            by_client: HashMap::new(),
            changing: HashMap::new(),
            believers: HashMap::new(),
            limits,
            believing: HashMap::new(),
            counts: Counts::default(),
        }
    }
}

impl<F: Copy + Eq + Hash> Callbacks<F> {
    /// A file's drive tells its version, as was asked for ([`Unknown::Ask`]). Who was to ask then says again what he wants: a file of
    /// which nobody wants anything is kept for nothing.
    pub fn found(&mut self, file: F, version: Version) -> Vec<FileStep<F>> {
        let Some(entry @ None) = self.files.get_mut(&file) else {
            return Vec::new();
        };
        let (rules, steps) = FileRules::found(version);
        *entry = Some(rules);
        of_file(file, steps)
    }

    /// The drive does not tell a file's version, and an answer that comes later will not be told: it does not answer, or the file is
    /// gone.
    pub fn not_found(&mut self, file: F) {
        if let Some(None) = self.files.get(&file) {
            self.files.remove(&file);
        }
    }

    /// The file is gone, and every capability for it with it: callbacks on it mean nothing, and whoever waits may ask again, and hear
    /// that.
    pub fn removed(&mut self, file: F) -> Vec<FileStep<F>> {
        let known = self.files.get(&file).and_then(Option::as_ref);
        if let Some(concerned) = known.map(FileRules::concerned) {
            self.files.remove(&file);
            concerned.into_iter().for_each(|client| self.note(client, file));
        }
        vec![(file, Step::Settled)]
    }

    /// Somebody else has raised the file's version: nothing is known of it any more. Whom to tell, who is then to say so by
    /// [`Callbacks::told_change`]: until then they may believe what they were promised, and no store ends.
    pub fn raised(&mut self, file: F) -> Vec<Client> {
        let Some(Some(rules)) = self.files.get(&file) else {
            return Vec::new();
        };
        let concerned = rules.concerned();
        self.files.remove(&file);
        concerned.iter().for_each(|client| self.believes(*client, file));
        concerned.iter().for_each(|client| self.note(*client, file));
        concerned
    }

    /// A client is about to make a file of an object that has an odd version, and that nobody knows of: it may write under that from the
    /// beginning ([`FileRules::made`]). Whether it may; not where something is known of the file.
    pub fn made(&mut self, client: Client, file: F, version: Version) -> bool {
        let Entry::Vacant(unknown) = self.files.entry(file) else {
            return false;
        };
        if !is_store(version) || self.changing.contains_key(&file) {
            return false;
        }
        unknown.insert(Some(FileRules::made(client, version)));
        self.note(client, file);
        true
    }

    /// A client wants to read, and to know of changes ([`FileRules::may_read`]).
    ///
    /// # Errors
    ///
    /// [`Unknown`].
    pub fn may_read(&mut self, client: Client, file: F) -> Result<Reading, Unknown> {
        // Also on its own behalf: where it does not get the answer to that, nobody tells it what has changed.
        let is_changed = self.changing.contains_key(&file);
        let rules = self.known(file)?;
        let reading = if is_changed { rules.may_look() } else { rules.may_read(client) };
        self.note(client, file);
        Ok(reading)
    }

    /// The file manager is about to change attributes of a file, or names in it, on behalf of a client (0: of none): whom to
    /// tell before it does, and to say so by [`Callbacks::told_change`]. Until [`Callbacks::end_change`] nobody is promised anything.
    pub fn begin_change(&mut self, client: Client, file: F) -> Vec<Client> {
        self.changing.entry(file).or_default().push(client);
        if let Some(Some(rules)) = self.files.get_mut(&file) {
            let ended = rules.changes(client);
            ended.iter().for_each(|other| self.believes(other, file));
        }
        self.forget(file);
        let believers = self.believers.get(&file).map(|all| all.iter().collect::<Vec<_>>());
        believers.into_iter().flatten().filter(|other| *other != client).collect()
    }

    /// The change is made, or not.
    pub fn end_change(&mut self, client: Client, file: F) {
        let Entry::Occupied(mut changers) = self.changing.entry(file) else {
            return;
        };
        if let Some(place) = changers.get().iter().position(|other| *other == client) {
            changers.get_mut().swap_remove(place);
        }
        if changers.get().is_empty() {
            changers.remove();
        }
    }

    /// A client believes nothing any more of what such changes have ended.
    pub fn told_change(&mut self, client: Client, file: F) {
        if let Entry::Occupied(mut believers) = self.believers.entry(file) {
            let has_believed = believers.get_mut().remove(client);
            if believers.get().is_empty() {
                believers.remove();
            }
            if has_believed {
                self.believes_no_more(client);
            }
        }
        self.note(client, file);
    }

    fn believes(&mut self, client: Client, file: F) {
        if self.believers.entry(file).or_default().add(client) {
            *self.believing.entry(client).or_default() += 1;
            self.counts.believed += 1;
        }
    }

    fn believes_no_more(&mut self, client: Client) {
        self.counts.believed -= 1;
        if let Entry::Occupied(mut believing) = self.believing.entry(client) {
            *believing.get_mut() -= 1;
            if *believing.get() == 0 {
                believing.remove();
            }
        }
    }

    /// Files that a client has to do with, without those of which it is to say that it believes nothing any more.
    fn held_by(&self, client: Client) -> usize {
        let believing = self.believing.get(&client).copied().unwrap_or_default();
        self.by_client.get(&client).map_or(0, Files::len).saturating_sub(believing)
    }

    /// A client was promised something. Where it holds more callbacks than one may, or all do together, some of those that were given
    /// first end: whose, and of which files. They are to be told, and to say so by [`Callbacks::told_change`].
    pub fn end_some(&mut self, client: Client) -> Vec<(Client, F)> {
        let Limits { of_client, in_all } = self.limits;
        let mut ended = Vec::new();
        if self.held_by(client) > of_client {
            self.end_some_of(client, of_client, &mut ended);
        }
        if self.counts.files - self.counts.believed > in_all {
            // Of whoever has most: not often, as they are many that end then.
            let most = self.by_client.keys().copied().max_by_key(|client| self.held_by(*client));
            most.into_iter().for_each(|client| self.end_some_of(client, in_all, &mut ended));
        }
        ended
    }

    fn end_some_of(&mut self, client: Client, limit: usize, ended: &mut Vec<(Client, F)>) {
        let Some(files) = self.by_client.get_mut(&client) else {
            return;
        };
        for file in files.oldest((limit / 16).clamp(1, MOST_ENDED)) {
            if let Some(Some(rules)) = self.files.get_mut(&file)
                && rules.unpromise(client)
            {
                self.believes(client, file);
                ended.push((client, file));
                self.forget(file);
            }
        }
    }

    /// On whose behalf attributes or names are being changed, in order; each as often as it is.
    pub fn changers(&self, file: F) -> Vec<Client> {
        let mut changers = self.changing.get(&file).cloned().unwrap_or_default();
        changers.sort_unstable();
        changers
    }

    /// Who may believe yet what such changes have ended, in order.
    pub fn believers(&self, file: F) -> Vec<Client> {
        self.believers.get(&file).into_iter().flat_map(Clients::iter).collect()
    }

    /// What is going on with a file, if anything is known of it.
    pub fn file(&self, file: F) -> Option<&FileRules> {
        self.files.get(&file)?.as_ref()
    }

    /// A client wants to write ([`FileRules::may_write`]).
    ///
    /// # Errors
    ///
    /// [`Unknown`].
    pub fn may_write(&mut self, client: Client, file: F) -> Result<Vec<FileStep<F>>, Unknown> {
        let steps = self.known(file)?.may_write(client);
        self.note(client, file);
        Ok(of_file(file, steps))
    }

    /// Whether a client may write, and nobody need be told when it has ([`FileRules::is_alone`]).
    pub fn is_alone(&self, client: Client, file: F) -> bool {
        let is_other = |all: &Clients| all.iter().any(|other| other != client);
        let is_believed = self.believers.get(&file).is_some_and(is_other);
        !is_believed && self.file(file).is_some_and(|rules| rules.is_alone(client))
    }

    /// Somebody waits for the end of a file's store ([`FileRules::wait_for`]).
    pub fn wait_for(&mut self, file: F) {
        if let Some(Some(rules)) = self.files.get_mut(&file) {
            rules.wait_for();
        }
    }

    /// A client has written all that it wanted to ([`FileRules::returned`]).
    ///
    /// # Errors
    ///
    /// [`Unknown`]; inside, [`NeverGiven`].
    pub fn returned(
        &mut self,
        client: Client,
        file: F,
        version: Version,
    ) -> Result<Result<Vec<FileStep<F>>, NeverGiven>, Unknown> {
        // A store that ended while nothing was known of the file has told nobody.
        let is_believed = |all: &Clients| all.iter().any(|other| other != client);
        if self.known(file)?.store_version() != Some(version)
            && self.believers.get(&file).is_some_and(is_believed)
        {
            return Err(Unknown::Wait);
        }
        let steps = self.known(file)?.returned(client, version);
        let steps = steps.map(|steps| self.promising(file, steps));
        self.note(client, file);
        Ok(steps.map(|steps| of_file(file, steps)))
    }

    /// The drive has this version of the file now.
    pub fn advanced(&mut self, file: F, to: Version) -> Vec<FileStep<F>> {
        let believers = self.believers.get(&file).cloned().unwrap_or_default();
        self.with(file, |rules| rules.advanced_telling(to, &believers))
    }

    /// The time of the writer's capability is over.
    pub fn expired(&mut self, file: F, version: Version) -> Vec<FileStep<F>> {
        self.with(file, |rules| rules.expired(version))
    }

    /// A client knows that what it was promised up to the version is so no more.
    pub fn told(&mut self, client: Client, file: F, version: Version) -> Vec<FileStep<F>> {
        let steps = self.with(file, |rules| rules.told(client, version));
        self.note(client, file);
        steps
    }

    /// A client's lease is over: it believes nothing.
    pub fn gone(&mut self, client: Client) -> Vec<FileStep<F>> {
        let files = self.by_client.remove(&client).unwrap_or_default();
        self.counts.files -= files.len();
        let mut steps = Vec::new();
        for file in files.to_vec() {
            steps.extend(self.with(file, |rules| rules.gone(client)));
            self.told_change(client, file);
        }
        steps
    }

    /// How many callbacks are held.
    pub fn held(&self) -> usize {
        self.files.values().flatten().map(FileRules::holders).sum()
    }

    /// How many files are known, or asked for.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    fn known(&mut self, file: F) -> Result<&mut FileRules, Unknown> {
        match self.files.entry(file) {
            Entry::Vacant(vacant) => {
                vacant.insert(None);
                Err(Unknown::Ask)
            }
            Entry::Occupied(entry) => entry.into_mut().as_mut().ok_or(Unknown::Wait),
        }
    }

    /// Does something with a file that is known, and forgets it where there is nothing to remember.
    fn with(
        &mut self,
        file: F,
        change: impl FnOnce(&mut FileRules) -> Vec<Step>,
    ) -> Vec<FileStep<F>> {
        let Some(Some(rules)) = self.files.get_mut(&file) else {
            return Vec::new();
        };
        let storing: Vec<Client> = rules.storing().collect();
        let steps = change(rules);
        let steps = self.promising(file, steps);
        storing.into_iter().for_each(|client| self.note(client, file));
        self.forget(file);
        of_file(file, steps)
    }

    /// Who has stored is promised nothing either while attributes or names are changed on behalf of another one.
    fn promising(&mut self, file: F, mut steps: Vec<Step>) -> Vec<Step> {
        let (Some(changers), Some(Some(rules))) =
            (self.changing.get(&file), self.files.get_mut(&file))
        else {
            return steps;
        };
        for step in &mut steps {
            if let Step::Stored { client, is_promised, .. } = step
                && changers.iter().any(|other| other != client)
            {
                rules.unpromise(*client);
                *is_promised = false;
            }
        }
        steps
    }

    /// Notes whether a client has to do with a file, which may be forgotten then.
    fn note(&mut self, client: Client, file: F) {
        let concerns = |rules: &FileRules| rules.concerns(client);
        let believes = self.believers.get(&file).is_some_and(|all| all.has(client));
        if believes || self.files.get(&file).and_then(Option::as_ref).is_some_and(concerns) {
            let is_new = self.by_client.entry(client).or_default().add(file);
            self.counts.files += usize::from(is_new);
        } else if let Entry::Occupied(mut files) = self.by_client.entry(client) {
            self.counts.files -= usize::from(files.get_mut().remove(file));
            if files.get().is_empty() {
                files.remove();
            }
        }
        self.forget(file);
    }

    fn forget(&mut self, file: F) {
        if let Some(Some(rules)) = self.files.get(&file)
            && rules.is_idle()
        {
            self.files.remove(&file);
        }
    }
}

fn of_file<F: Copy>(file: F, steps: Vec<Step>) -> Vec<FileStep<F>> {
    steps.into_iter().map(|step| (file, step)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::rules::State;
    use super::*;

    /// A small generator of numbers, for tests alone.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    #[test]
    fn who_asks_while_he_changes_something_is_promised_nothing() {
        let (mut all, client, file) = (Callbacks::default(), 1, 7);
        let read = |all: &mut Callbacks<u64>| {
            assert_eq!(all.may_read(client, file), Err(Unknown::Ask));
            all.found(file, 2);
            all.may_read(client, file)
        };
        assert!(all.begin_change(client, file).is_empty());
        assert_eq!(read(&mut all), Ok(Reading::Unpromised(2)));
        all.end_change(client, file);
        assert_eq!(read(&mut all), Ok(Reading::Promised(2)));
        // What it holds already it keeps: the answer tells it what has changed.
        assert!(all.begin_change(client, file).is_empty());
        all.end_change(client, file);
        assert_eq!(all.file(file).unwrap().holders(), 1);
    }

    #[test]
    fn who_stores_is_told_of_changes_whatever_the_stage() {
        let (mut rules, _) = FileRules::found(2);
        let told = |rules: &FileRules, by| rules.clone().changes(by).iter().collect::<Vec<_>>();
        rules.may_read(9);
        rules.may_write(1);
        assert_eq!((rules.state(), told(&rules, 2)), (State::Opening, vec![1, 9]));
        rules.advanced(3);
        assert_eq!((rules.state(), told(&rules, 2)), (State::Writing, vec![1, 9]));
        rules.returned(1, 3).unwrap();
        assert_eq!((rules.state(), told(&rules, 2)), (State::Closing, vec![1, 9]));
        rules.advanced(4);
        assert_eq!((rules.state(), told(&rules, 2)), (State::Breaking, vec![1, 9]));
        assert_eq!((told(&rules, 1), told(&rules, 9)), (vec![9], vec![1]));
    }

    /// What the index ought to be.
    fn concerned(callbacks: &Callbacks<u64>, clients: u64) -> HashMap<Client, HashSet<u64>> {
        let mut by_client: HashMap<Client, HashSet<u64>> = HashMap::new();
        for (file, rules) in &callbacks.files {
            for client in 0..clients {
                if rules.as_ref().is_some_and(|rules| rules.concerns(client)) {
                    by_client.entry(client).or_default().insert(*file);
                }
            }
        }
        for (file, believers) in &callbacks.believers {
            for client in believers.iter() {
                by_client.entry(client).or_default().insert(*file);
            }
        }
        by_client
    }

    /// What it is.
    fn index(callbacks: &Callbacks<u64>) -> HashMap<Client, HashSet<u64>> {
        let all = callbacks.by_client.iter();
        all.map(|(client, files)| (*client, files.to_vec().into_iter().collect())).collect()
    }

    /// Drives that do as they are told, at some time.
    #[derive(Default)]
    struct Drives {
        versions: HashMap<u64, Version>,
        advances: Vec<(u64, Version)>,
        asks: Vec<u64>,
        breaks: Vec<(Client, u64, Version)>,
    }

    impl Drives {
        fn forget(&mut self, file: u64) {
            self.versions.remove(&file);
            self.advances.retain(|(other, _)| *other != file);
            self.breaks.retain(|(_, other, _)| *other != file);
        }

        fn raise(&mut self, file: u64) {
            *self.versions.entry(file).or_default() += 1;
            self.advances.retain(|(other, _)| *other != file);
        }

        fn take(&mut self, steps: Vec<FileStep<u64>>) {
            for (file, step) in steps {
                match step {
                    Step::Advance { to } => self.advances.push((file, to)),
                    Step::Break { client, version } => self.breaks.push((client, file, version)),
                    Step::MayWrite { .. } | Step::Stored { .. } | Step::Settled => {}
                }
            }
        }
    }

    /// A change of attributes that some of those are told of who believe them.
    fn change(callbacks: &mut Callbacks<u64>, client: Client, file: u64, numbers: &mut Numbers) {
        for other in callbacks.begin_change(client, file) {
            assert!(other != client);
            if numbers.below(3) > 0 {
                callbacks.told_change(other, file);
            }
        }
        callbacks.end_change(client, file);
    }

    /// Somebody else has a key of the drive; some of those who are told say that they know.
    fn raise(
        callbacks: &mut Callbacks<u64>,
        drives: &mut Drives,
        file: u64,
        numbers: &mut Numbers,
    ) {
        drives.raise(file);
        for client in callbacks.raised(file) {
            if numbers.below(3) > 0 {
                callbacks.told_change(client, file);
            }
        }
    }

    /// Somebody makes a file that nobody has asked for.
    fn makes(
        callbacks: &mut Callbacks<u64>,
        drives: &mut Drives,
        client: Client,
        file: u64,
    ) -> Result<Vec<FileStep<u64>>, Unknown> {
        if callbacks.made(client, file, 1) {
            drives.versions.insert(file, 1);
            let believers = callbacks.believers(file);
            let is_believed = believers.iter().any(|other| *other != client);
            assert!(is_believed || callbacks.is_alone(client, file));
            assert!(!callbacks.made(client + 1, file, 1), "it is known now");
        }
        Ok(Vec::new())
    }

    /// Somebody wants to read, and some of those whose callbacks end for that say that they know.
    fn reads(
        callbacks: &mut Callbacks<u64>,
        (client, file): (Client, u64),
        ended: &mut usize,
        numbers: &mut Numbers,
    ) -> Result<Vec<FileStep<u64>>, Unknown> {
        let read = callbacks.may_read(client, file).map(|_| Vec::new());
        for (other, file) in callbacks.end_some(client) {
            *ended += 1;
            if numbers.below(3) > 0 {
                callbacks.told_change(other, file);
            }
        }
        read
    }

    /// A drive that was asked answers, or does not.
    fn answers(
        callbacks: &mut Callbacks<u64>,
        drives: &mut Drives,
        (client, file): (Client, u64),
        is_told: bool,
    ) -> Result<Vec<FileStep<u64>>, Unknown> {
        if !is_told {
            callbacks.not_found(file);
            return Ok(Vec::new());
        }
        let version = drives.versions.get(&file).copied().unwrap_or_default();
        drives.take(callbacks.found(file, version));
        // As who has asked does.
        callbacks.may_read(client, file).map(|_| Vec::new())
    }

    /// A return, which waits for others where a change or somebody else has made old what they believe.
    fn returns(
        callbacks: &mut Callbacks<u64>,
        client: Client,
        file: u64,
        version: Version,
    ) -> Result<Vec<FileStep<u64>>, Unknown> {
        match callbacks.returned(client, file, version) {
            Err(Unknown::Wait) if callbacks.file(file).is_some() => {
                assert!(callbacks.believers(file).iter().any(|other| *other != client));
                Ok(Vec::new())
            }
            asked => asked.map(Result::unwrap_or_default),
        }
    }

    /// What always is so.
    fn check(callbacks: &Callbacks<u64>, drives: &Drives, clients: u64) {
        let files = callbacks.by_client.values().map(Files::len).sum();
        let believed = callbacks.believers.values().map(Clients::len).sum();
        assert_eq!(callbacks.counts, Counts { files, believed });
        for client in 0..clients {
            let believes = callbacks.believers.values().filter(|all| all.has(client)).count();
            assert_eq!(callbacks.believing.get(&client).copied().unwrap_or_default(), believes);
        }
        assert_eq!(index(callbacks), concerned(callbacks, clients));
        let is_idle = |rules: &Option<FileRules>| rules.as_ref().is_some_and(FileRules::is_idle);
        assert!(!callbacks.files.values().any(is_idle));
        let known = |file: &u64| callbacks.files[file].is_none();
        assert!(drives.asks.iter().all(known), "who is asked is waited for");
    }

    /// Whose stores nobody need be told of, and of which version.
    type Alone = HashMap<u64, (Client, Version)>;

    /// Who stores alone does so until its store is closed.
    fn check_alone(callbacks: &Callbacks<u64>, alone: &mut Alone) {
        alone.retain(|file, (client, version)| {
            let is_under_way = callbacks.file(*file).is_some_and(|rules| {
                let writes = rules.state() == State::Writing && rules.writer() == Some(*client);
                writes && rules.version() == *version
            });
            assert!(!is_under_way || callbacks.is_alone(*client, *file));
            is_under_way
        });
        for (file, rules) in &callbacks.files {
            let writer = rules.as_ref().and_then(FileRules::writer);
            if let (Some(rules), Some(writer)) = (rules, writer)
                && callbacks.is_alone(writer, *file)
            {
                alone.insert(*file, (writer, rules.version()));
            }
        }
    }

    #[test]
    fn clients_files_are_those_that_they_have_to_do_with_and_what_is_idle_is_forgotten() {
        const CLIENTS: u64 = 4;
        let mut numbers = Numbers(7);
        let limits = Limits { of_client: 3, in_all: 8 };
        let (mut callbacks, mut drives) = (Callbacks::with_limits(limits), Drives::default());
        let mut ended = 0;
        let mut alone = Alone::default();
        for _ in 0..200_000 {
            let (client, file) = (numbers.below(CLIENTS), numbers.below(6));
            let version = drives.versions.get(&file).copied().unwrap_or_default();
            let asked = match numbers.below(10) {
                0 => reads(&mut callbacks, (client, file), &mut ended, &mut numbers),
                1 => callbacks.may_write(client, file),
                2 => {
                    let version = version.saturating_sub(numbers.below(3));
                    returns(&mut callbacks, client, file, version)
                }
                3 => Ok(callbacks.expired(file, version)),
                9 => {
                    change(&mut callbacks, client, file, &mut numbers);
                    Ok(Vec::new())
                }
                4 if numbers.below(8) == 0 => Ok(callbacks.gone(client)),
                4 if numbers.below(40) == 0 => {
                    // Another object has the next number, and none of its drive's answers.
                    drives.forget(file);
                    Ok(callbacks.removed(file))
                }
                4 if !drives.versions.contains_key(&file) => {
                    makes(&mut callbacks, &mut drives, client, file)
                }
                4 if numbers.below(40) == 0 => {
                    raise(&mut callbacks, &mut drives, file, &mut numbers);
                    Ok(Vec::new())
                }
                5 | 6 if !drives.breaks.is_empty() => {
                    let place = numbers.below(drives.breaks.len() as u64) as usize;
                    let (client, file, version) = drives.breaks.swap_remove(place);
                    Ok(callbacks.told(client, file, version))
                }
                7 if !drives.asks.is_empty() => {
                    let place = numbers.below(drives.asks.len() as u64) as usize;
                    let file = drives.asks.swap_remove(place);
                    let is_told = numbers.below(4) > 0;
                    answers(&mut callbacks, &mut drives, (client, file), is_told)
                }
                _ if !drives.advances.is_empty() => {
                    let place = numbers.below(drives.advances.len() as u64) as usize;
                    let (file, to) = drives.advances.swap_remove(place);
                    let at = drives.versions.entry(file).or_default();
                    assert_eq!(to, *at + 1, "versions rise by one");
                    *at = to;
                    Ok(callbacks.advanced(file, to))
                }
                _ => Ok(Vec::new()),
            };
            match asked {
                Ok(steps) => drives.take(steps),
                Err(Unknown::Ask) => drives.asks.push(file),
                Err(Unknown::Wait) => assert!(drives.asks.contains(&file)),
            }
            check(&callbacks, &drives, CLIENTS);
            check_alone(&callbacks, &mut alone);
        }
        assert!(ended > 500, "{ended}");
    }

    fn read(callbacks: &mut Callbacks<u64>, client: Client, file: u64) -> Vec<(Client, u64)> {
        if callbacks.may_read(client, file) == Err(Unknown::Ask) {
            callbacks.found(file, 2);
            assert_eq!(callbacks.may_read(client, file), Ok(Reading::Promised(2)));
        }
        callbacks.end_some(client)
    }

    #[test]
    fn there_are_so_many_callbacks_and_those_that_were_given_first_end() {
        let mut callbacks = Callbacks::with_limits(Limits { of_client: 1000, in_all: 1500 });
        let mut untold = Vec::new();
        for file in 0..1900 {
            untold.extend(read(&mut callbacks, 1, file));
            assert!(callbacks.held() <= 1000);
        }
        assert!(untold.len() >= 900 && untold.iter().all(|(_, file)| *file <= 1000));
        assert_eq!(callbacks.counts.believed, untold.len());
        // Until they know they are waited for.
        let (_, file) = untold[0];
        assert_eq!(callbacks.begin_change(2, file), [1]);
        callbacks.end_change(2, file);
        untold.drain(..).for_each(|(client, file)| callbacks.told_change(client, file));
        assert_eq!((callbacks.believing.len(), callbacks.believers.len()), (0, 0));
        assert!(
            callbacks.begin_change(2, file).is_empty() && callbacks.files() == callbacks.held()
        );
        callbacks.end_change(2, file);
        // Where all together have too many, those of whoever has most end.
        for file in 0..900 {
            let ended = read(&mut callbacks, 3, file);
            assert!(ended.iter().all(|(client, _)| *client == 1 || file > 700), "{ended:?}");
            assert!(callbacks.held() <= 1500);
            untold.extend(ended);
        }
        assert!(callbacks.held_by(1) > 600 && callbacks.held_by(3) > 600);
        callbacks.gone(1);
        callbacks.gone(3);
        assert_eq!((callbacks.counts, callbacks.files()), (Counts::default(), 0));
        assert!(callbacks.believers.is_empty() && callbacks.believing.is_empty());
    }
}

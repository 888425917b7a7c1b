//! All volumes of one mount: the one that was mounted, and those that are seen at mount points in it.
//!
//! Each place where a volume is seen has a tree of its own, with a clerk, a session and threads of its own: made when
//! somebody walks over the mount point first, and kept as long as the kernel knows anything in it. So the kernel can
//! have the same volume at several places, each with the directories above it that it has there; and what a volume that is away holds
//! up is what is seen in it. Numbers of files begin with the tag of their place (`inodes.rs`).
//!
//! What is seen at a mount point depends on the name that it has, and on nothing that was seen there before: a volume that was removed
//! and made anew is found by who walks over it next.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::{Clerk, ClerkError, FileHandle, Name};
use nasd_fuse::{Errno, Notifier};

use crate::MountOptions;
use crate::accessed::Teller;
use crate::attributes::errno;
use crate::callers::Who;
use crate::dispatch::{Dispatcher, Lane};
use crate::inodes::{Numbers, TAGS, tag};
use crate::names::{Forgetting, Told};
use crate::state::{KnownVolume, MountState};
use crate::tree::{MountPoint, Shown, Tree};

/// How long whoever walks over a mount point waits for the volume at most; he has the directory above locked meanwhile. While one that
/// has taken longer does not answer, nobody else waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Mount points above each other on one path: volumes may be seen in each other.
const MAX_DEPTH: usize = 16;

/// Clerks that a process makes side by side when it takes a mount over.
const MADE_AT_ONCE: usize = 16;

/// Makes clerks for the volumes that are seen at mount points.
pub trait OtherVolumes: Send + Sync + 'static {
    /// A clerk for the volume of that name; `None` if the cell has none.
    ///
    /// # Errors
    ///
    /// Why it can't be reached.
    fn connect(&self, volume: &Name) -> Result<Option<Arc<Clerk>>, Box<dyn Error + Send + Sync>>;
}

/// One place where a volume is seen.
pub(crate) struct Branch {
    pub(crate) tree: Arc<Tree>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    teller: Mutex<Option<Teller>>,
    is_started: AtomicBool,
    /// The mount point, unless it is the mounted volume.
    place: Weak<Place>,
    /// How many mount points are above it.
    depth: usize,
    /// How many are about to tell the kernel of its root.
    entering: AtomicUsize,
    /// Nobody is to walk into it any more.
    is_over: AtomicBool,
}

/// Where a mount point is: the tag of the volume that has it, and its handle. (The mounted volume has 0, which is nobody's tag.)
type PlaceKey = (u16, FileHandle);

/// A mount point that somebody has walked over.
struct Place {
    key: PlaceKey,
    volume: OnceLock<Name>,
    /// What is seen there, once it is.
    branch: Mutex<Option<Arc<Branch>>>,
    waiting: Mutex<Waiting>,
}

/// Those who wait for what is seen at a mount point.
struct Waiting {
    count: usize,
    /// When one of them was answered last, or the first came.
    since: Instant,
}

/// Held from when a branch is found until the kernel was told of its root.
pub(crate) struct Entering(pub(crate) Arc<Branch>);

impl Drop for Entering {
    fn drop(&mut self) {
        self.0.entering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Somebody who waits for that.
struct Visit(Arc<Place>);

impl Visit {
    /// `None` where others have waited in vain.
    fn begin(place: Arc<Place>, patience: Duration) -> Option<Visit> {
        place.may_wait(patience).then(|| Visit(place))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Default)]
struct Places {
    by_key: HashMap<PlaceKey, Arc<Place>>,
    /// What volumes' numbers begin with when programs are shown them, by their roots.
    tags: HashMap<FileHandle, u16>,
    last_tag: u16,
}

/// The volumes of a mount.
pub(crate) struct Forest {
    mounted: Arc<Branch>,
    /// Those that are seen at mount points, by their tags.
    branches: RwLock<HashMap<u16, Arc<Branch>>>,
    places: Mutex<Places>,
    options: MountOptions,
    /// How long whoever walks over a mount point waits.
    patience: Duration,
    volumes: Option<Arc<dyn OtherVolumes>>,
    notifier: OnceLock<Notifier>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Branch {
    fn new(
        tree: Arc<Tree>,
        dispatcher: Dispatcher,
        (place, depth): (Weak<Place>, usize),
    ) -> Branch {
        Branch {
            tree,
            dispatcher: Arc::new(dispatcher),
            teller: Mutex::default(),
            is_started: AtomicBool::new(false),
            place,
            depth,
            entering: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Its threads begin, unless they have.
    fn start(&self) -> std::io::Result<()> {
        if self.is_started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        Forgetting::start(&self.tree)?;
        *lock(&self.teller) = Some(Teller::start(&self.tree)?);
        Ok(())
    }

    /// Waits for operations that have begun, and ends what tells access times.
    fn settle(&self, deadline: Instant) {
        self.dispatcher.close(deadline);
        if let Some(mut teller) = lock(&self.teller).take() {
            teller.end();
        }
    }

    /// Whether the kernel knows nothing in it, and is not about to.
    fn is_unused(&self) -> bool {
        let Tree { inodes, files, directories, .. } = &*self.tree;
        self.entering.load(Ordering::Acquire) == 0
            && inodes.is_unknown()
            && files.len() + directories.len() == 0
    }
}

impl Place {
    fn new(key: PlaceKey) -> Place {
        let waiting = Waiting { count: 0, since: Instant::now() };
        let (volume, branch, waiting) = (OnceLock::new(), Mutex::default(), Mutex::new(waiting));
        Place { key, volume, branch, waiting }
    }

    /// Somebody wants to wait; false where others have waited in vain.
    fn may_wait(&self, patience: Duration) -> bool {
        let mut waiting = lock(&self.waiting);
        match waiting.count {
            0 => waiting.since = Instant::now(),
            _ if waiting.since.elapsed() >= patience => return false,
            _ => {}
        }
        waiting.count += 1;
        true
    }

    fn end(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.count = waiting.count.saturating_sub(1);
        waiting.since = Instant::now();
    }

    /// A branch of it that nobody is to walk into any more.
    fn leave(&self, branch: &Arc<Branch>) {
        branch.is_over.store(true, Ordering::Release);
        let mut present = lock(&self.branch);
        if present.as_ref().is_some_and(|present| Arc::ptr_eq(present, branch)) {
            *present = None;
        }
    }
}

impl Forest {
    /// Of a mounted volume. `volumes` makes clerks for others; without, nothing is seen at mount points.
    pub(crate) fn new(
        tree: Tree,
        dispatcher: Dispatcher,
        options: &MountOptions,
        volumes: Option<Arc<dyn OtherVolumes>>,
    ) -> Forest {
        Forest {
            mounted: Arc::new(Branch::new(Arc::new(tree), dispatcher, (Weak::new(), 0))),
            branches: RwLock::default(),
            places: Mutex::default(),
            options: options.clone(),
            patience: options.deadline().min(PATIENCE),
            volumes,
            notifier: OnceLock::new(),
        }
    }

    /// The mounted volume.
    pub(crate) fn mounted(&self) -> &Arc<Branch> {
        &self.mounted
    }

    /// The place that a file's number is of.
    pub(crate) fn branch(&self, node: u64) -> Result<Arc<Branch>, Errno> {
        let Some(tag) = tag(node) else {
            return Ok(Arc::clone(&self.mounted));
        };
        let branches = self.branches.read().unwrap_or_else(PoisonError::into_inner);
        branches.get(&tag).cloned().ok_or(Errno::ESTALE)
    }

    /// The mounted volume, and those that are seen in it.
    pub(crate) fn all(&self) -> Vec<Arc<Branch>> {
        let branches = self.branches.read().unwrap_or_else(PoisonError::into_inner);
        let inner = branches.values().cloned();
        std::iter::once(Arc::clone(&self.mounted)).chain(inner).collect()
    }

    /// The kernel can be told things from now on.
    pub(crate) fn start(&self, notifier: Option<Notifier>) -> std::io::Result<()> {
        if let Some(notifier) = notifier {
            // Requests come already: a tree that is made now gets it by whoever makes it, or here.
            let _ = self.notifier.set(notifier.clone());
            // Where another process has served the mount before: nobody could tell of what has changed since. Old kernels believe names for a moment only.
            let _ = notifier.increment_epoch();
            for branch in self.all() {
                let _ = branch.tree.notifier.set(notifier.clone());
            }
        }
        self.all().iter().try_for_each(|branch| branch.start())
    }

    /// Walks over a mount point in the directory `dir`: waits until it is known what is seen there, and not for long.
    pub(crate) fn walk_over(
        self: &Arc<Self>,
        from: &Arc<Branch>,
        who: Who,
        (dir, point): (u64, &MountPoint),
    ) -> Result<(Entering, Told), Errno> {
        if from.depth >= MAX_DEPTH {
            return Err(Errno::ELOOP);
        }
        let key = (tag(dir).unwrap_or(0), point.handle);
        let place = Arc::clone(
            lock(&self.places).by_key.entry(key).or_insert_with(|| Arc::new(Place::new(key))),
        );
        let visit = Visit::begin(place, self.patience).ok_or(Errno::EIO)?;
        let (tell, told) = mpsc::channel();
        let (forest, outer, shown) = (Arc::clone(self), Arc::clone(from), from.tree.shown(dir));
        let enter = move || {
            let entered = forest.enter(&visit.0, &outer, who, shown);
            if entered.is_err() {
                forest.forget_place(&visit.0);
            }
            drop(visit);
            // Whoever waited may have given up.
            let _ = tell.send(entered);
        };
        from.dispatcher.submit(Lane::MountPoints, Box::new(enter));
        told.recv_timeout(self.patience).unwrap_or_else(|_| {
            tracing::warn!("a volume that is seen at a mount point does not answer");
            Err(Errno::EIO)
        })
    }

    /// What is seen at a mount point, in a directory that is shown with this number.
    fn enter(
        &self,
        place: &Arc<Place>,
        from: &Arc<Branch>,
        who: Who,
        above: u64,
    ) -> Result<(Entering, Told), Errno> {
        let mut was_stale = false;
        loop {
            let entering = self.find(place, from, who)?;
            let tree = &entering.0.tree;
            tree.set_above(above);
            match tree.with_groups(who, |who| tree.look_at_root(who)) {
                // The volume was removed; there may be another one of that name.
                Err(Errno::ESTALE) if !was_stale => {
                    was_stale = true;
                    place.leave(&entering.0);
                }
                told => return told.map(|told| (entering, told)),
            }
        }
    }

    /// The branch of a mount point, made if there is none.
    fn find(&self, place: &Arc<Place>, from: &Arc<Branch>, who: Who) -> Result<Entering, Errno> {
        let mut present = lock(&place.branch);
        let branch = match &*present {
            Some(branch) => Arc::clone(branch),
            None => {
                let branch = self.grow(place, from, who)?;
                *present = Some(Arc::clone(&branch));
                branch
            }
        };
        branch.entering.fetch_add(1, Ordering::AcqRel);
        Ok(Entering(branch))
    }

    fn grow(&self, place: &Arc<Place>, from: &Arc<Branch>, who: Who) -> Result<Arc<Branch>, Errno> {
        let name = match place.volume.get() {
            Some(name) => name,
            None => {
                let caller = from.tree.callers.get(who);
                let name = from.tree.clerk.mounted_volume(&caller, place.key.1);
                let name = name.map_err(|error| errno(&error))?;
                place.volume.get_or_init(|| name)
            }
        };
        let clerk = self.connect(name)?;
        let tag = self.next_tag()?;
        let branch = self.branch_of(clerk, tag, (place, from.depth + 1));
        self.add(tag, &branch);
        if let Some(notifier) = self.notifier.get() {
            let _ = branch.tree.notifier.set(notifier.clone());
        }
        branch.start().map_err(|error| {
            tracing::error!(%error, volume = %name, "no threads for a volume at a mount point");
            self.remove(tag, &branch);
            Errno::EAGAIN
        })?;
        Ok(branch)
    }

    /// A clerk for another volume; `ENODEV` where there is none of that name, as with AFS.
    fn connect(&self, name: &Name) -> Result<Arc<Clerk>, Errno> {
        let volumes = self.volumes.as_ref().ok_or(Errno::ENODEV)?;
        match volumes.connect(name) {
            Ok(Some(clerk)) => Ok(clerk),
            Ok(None) => Err(Errno::ENODEV),
            Err(error) => {
                tracing::warn!(%error, volume = %name, "a volume at a mount point can't be seen");
                Err(Errno::EIO)
            }
        }
    }

    /// A tag that no place has.
    fn next_tag(&self) -> Result<u16, Errno> {
        let mut places = lock(&self.places);
        let branches = self.branches.read().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TAGS {
            places.last_tag = (places.last_tag + 1) % TAGS;
            let tag = places.last_tag;
            if tag != 0 && !branches.contains_key(&tag) {
                return Ok(tag);
            }
        }
        Err(Errno::ENFILE)
    }

    fn add(&self, tag: u16, branch: &Arc<Branch>) {
        let mut branches = self.branches.write().unwrap_or_else(PoisonError::into_inner);
        branches.insert(tag, Arc::clone(branch));
    }

    fn branch_of(
        &self,
        clerk: Arc<Clerk>,
        tag: u16,
        (place, depth): (&Arc<Place>, usize),
    ) -> Arc<Branch> {
        let root = clerk.root();
        let shown = match root == self.mounted.tree.clerk.root() {
            true => Shown::Mounted(Arc::clone(&self.mounted.tree)),
            false => Shown::Tagged(self.tag_of_volume(root)),
        };
        let kernel_looks = self.mounted.tree.kernel_looks;
        let numbers = Numbers::tagged(tag);
        let tree = Arc::new(Tree::with(clerk, &self.options, kernel_looks, (numbers, shown)));
        let dispatcher = self.mounted.dispatcher.beside();
        Arc::new(Branch::new(tree, dispatcher, (Arc::downgrade(place), depth)))
    }

    /// What a volume's numbers begin with when programs are shown them: its partition's number, which is the same in every mount, or
    /// what is left where that does not fit or is another volume's.
    fn tag_of_volume(&self, root: FileHandle) -> u16 {
        let mut places = lock(&self.places);
        if let Some(tag) = places.tags.get(&root) {
            return *tag;
        }
        let is_free = |tag: &u16| places.tags.values().all(|taken| taken != tag);
        let own = u16::try_from(root.partition.0).ok().filter(|tag| *tag > 0 && *tag < TAGS);
        let tag = own.filter(is_free).or_else(|| (1..TAGS).rev().find(is_free)).unwrap_or(0);
        places.tags.insert(root, tag);
        tag
    }

    /// The kernel has forgotten something of a place, or closed it: if that was all, the place ends.
    pub(crate) fn end_if_unused(self: &Arc<Self>, node: u64) {
        let Some(tag) = tag(node) else {
            return;
        };
        let Ok(branch) = self.branch(node) else {
            return;
        };
        if branch.is_unused() {
            let forest = Arc::clone(self);
            // Its clerk may have to wait for drives.
            let end = move || forest.end(tag, &branch);
            let ended = thread::Builder::new().name("nasd-end".into()).spawn(end);
            if let Err(error) = ended {
                tracing::debug!(%error, "a volume that nobody uses stays");
            }
        }
    }

    fn end(&self, tag: u16, branch: &Arc<Branch>) {
        if let Some(place) = branch.place.upgrade() {
            let mut present = lock(&place.branch);
            let is_present = present.as_ref().is_some_and(|present| Arc::ptr_eq(present, branch));
            if !branch.is_unused() || !self.remove(tag, branch) {
                return;
            }
            if is_present {
                *present = None;
                drop(present);
                self.forget_place(&place);
            }
        } else if !branch.is_unused() || !self.remove(tag, branch) {
            return;
        }
        branch.settle(Instant::now() + PATIENCE);
        if let Err(error) = branch.tree.drain() {
            tracing::error!(%error, "not all that was written below a mount point has reached the drives");
        }
    }

    /// Takes a branch away; false if it is not there any more.
    fn remove(&self, tag: u16, branch: &Arc<Branch>) -> bool {
        let mut branches = self.branches.write().unwrap_or_else(PoisonError::into_inner);
        let is_there = branches.get(&tag).is_some_and(|there| Arc::ptr_eq(there, branch));
        is_there && branches.remove(&tag).is_some()
    }

    /// Nothing is seen at a mount point: what is known of it is looked at anew by who walks over it next.
    fn forget_place(&self, place: &Arc<Place>) {
        let mut places = lock(&self.places);
        // Both the table and this reference, and nobody who waits: so nobody has the second lock who wants the first.
        if Arc::strong_count(place) <= 2 && lock(&place.branch).is_none() {
            places.by_key.remove(&place.key);
        }
    }

    /// Waits for operations that have begun.
    pub(crate) fn settle(&self, deadline: Instant) {
        self.all().iter().for_each(|branch| branch.settle(deadline));
    }

    /// The same, where the process may go on.
    pub(crate) fn pause(&self, deadline: Instant) {
        self.all().iter().for_each(|branch| branch.dispatcher.close(deadline));
    }

    /// Makes what was written durable, of all volumes side by side; the first failure.
    pub(crate) fn sync_all(&self) -> Result<(), ClerkError> {
        self.on_all(|branch| branch.tree.clerk.sync_all())
    }

    /// After the mount is gone: hands everything that was written to the drives.
    pub(crate) fn drain(&self) -> Result<(), ClerkError> {
        self.on_all(|branch| branch.tree.drain())
    }

    /// Another process serves the mount.
    pub(crate) fn leave(&self) -> Result<(), ClerkError> {
        self.on_all(|branch| branch.tree.leave())
    }

    fn on_all(
        &self,
        run: impl Fn(&Branch) -> Result<(), ClerkError> + Sync,
    ) -> Result<(), ClerkError> {
        let all = self.all();
        let run = &run;
        thread::scope(|scope| {
            let inner: Vec<_> =
                all[1..].iter().map(|branch| scope.spawn(move || run(branch))).collect();
            let mut outcome = run(&all[0]);
            for one in inner {
                let failed = Err(ClerkError::Unreachable("a thread failed".to_owned()));
                outcome = outcome.and(one.join().unwrap_or(failed));
            }
            outcome
        })
    }

    /// Whether a program has a lock.
    pub(crate) fn has_locks(&self) -> bool {
        self.all().iter().any(|branch| branch.tree.has_locks())
    }

    /// What the process that takes the mount over has to know.
    pub(crate) fn export(&self) -> MountState {
        let branches = self.branches.read().unwrap_or_else(PoisonError::into_inner);
        let known = |(tag, branch): (&u16, &Arc<Branch>)| {
            let place = branch.place.upgrade()?;
            Some(KnownVolume {
                tag: *tag,
                above: branch.tree.shown_above(branch.tree.inodes.root_number()),
                depth: branch.depth as u32,
                place: place.key,
                name: place.volume.get()?.clone(),
                is_over: branch.is_over.load(Ordering::Acquire),
                state: branch.tree.export(),
            })
        };
        let volumes = branches.iter().filter_map(known).collect();
        MountState { mounted: self.mounted.tree.export(), volumes }
    }

    /// Takes over from the process before, after the mounted volume was. Of a volume that can't be reached nothing is known:
    /// its users get errors.
    pub(crate) fn import(&self, volumes: &[KnownVolume]) {
        for some in volumes.chunks(MADE_AT_ONCE) {
            thread::scope(|scope| {
                for known in some {
                    scope.spawn(|| self.import_one(known));
                }
            });
        }
    }

    fn import_one(&self, known: &KnownVolume) {
        let Ok(clerk) = self.connect(&known.name) else {
            tracing::warn!(volume = %known.name, "what was open at a mount point is not any more");
            return;
        };
        if known.state.root != Some(clerk.root()) {
            tracing::warn!(volume = %known.name, "another volume has that name now");
            return;
        }
        let place = {
            let mut places = lock(&self.places);
            places.last_tag = places.last_tag.max(known.tag);
            let new = || Arc::new(Place::new(known.place));
            Arc::clone(places.by_key.entry(known.place).or_insert_with(new))
        };
        let _ = place.volume.set(known.name.clone());
        let branch = self.branch_of(clerk, known.tag, (&place, known.depth as usize));
        branch.tree.set_above(known.above);
        branch.tree.take_over(&known.state);
        self.add(known.tag, &branch);
        match known.is_over {
            true => branch.is_over.store(true, Ordering::Release),
            false => *lock(&place.branch) = Some(branch),
        }
    }
}

impl Tree {
    /// The root of a volume that is seen at a mount point.
    fn look_at_root(&self, who: Who) -> Result<Told, Errno> {
        let root = self.inodes.root_number();
        let is_new = !self.inodes.is_root_known();
        self.getattr(who, root).map(|root| Told::now(root, Duration::ZERO, None).if_new(is_new))
    }
}

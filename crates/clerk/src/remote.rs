//! The cell over the network: the manager by TLS, the drives by TCP, or through the manager.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use nasd_bulk_service::client::Way;
use nasd_client::{
    ClientError, ConnectOptions, DriveClient, ManagerClient, Network, RetryPolicy, TcpNetwork,
};
use nasd_protocol::Region;
use nasd_protocol::manager::{
    GetcapArguments, GetcapsArguments, GetwcapArguments, ReturncapArguments,
};
use nasd_transport::ClientTls;
use nasd_types::{AppendToken, Attributes, ByteRange, DriveId, Personality, Timestamp};

use crate::ClerkError;
use crate::backend::{Cell, Grant, Names, Objects, Sessions};
use crate::bulk;
use crate::clerk::Clerk;
use crate::extending::{Asked, ExtendedPart, ExtensionCall, extend_all, rows_of, single};
use crate::forwarded::ForwardedDrives;
use crate::open_file::OpenMode;
use crate::pieces::bytes_of;
use crate::settings::{Route, Settings};
use crate::striped::{ComponentDrives, StripedDrive};
use crate::wire::{
    Appended, AttachArguments, Attached, Caller, CellStatus, Changed, ClosedArguments, Copied, Cut,
    Device, DirectoryPage, EventsArguments, EventsPage, File, FileAccess, FileHandle, FilePage,
    FileType, HeldLock, LeaseArguments, LockAnswer, LockArguments, Name, NewMode, RangeToCopy,
    ReadOutcome, Readable, Readables, RenameFlags, Returned, SeekTarget, SetFileAttributes,
    SpaceInformation, UnlockArguments, Volume, Writable, Written, XattrFlags,
};

/// Where a volume is, and who asks for it.
#[derive(Clone, Debug)]
pub struct ClerkOptions {
    /// The file manager, `HOST:PORT`.
    pub manager: String,
    /// This host's or user's certificate, and the cell's authority; without them, whoever is there is believed to be the file manager.
    pub tls: Option<ClientTls>,
    /// The volume's name.
    pub volume: Name,
    /// Who asks for the volume.
    pub caller: Arc<Caller>,
    /// How long to wait for the manager at first. Later, `Settings::deadline` holds.
    pub connect_deadline: Duration,
    /// Connections to each drive; to the manager for data, where they go through it.
    pub connections_per_drive: usize,
    /// The way that data of files go.
    pub route: Route,
    /// Limits and times.
    pub settings: Settings,
    /// By which drives are reached, and a file manager without TLS.
    pub network: Arc<dyn Network>,
}

impl ClerkOptions {
    /// Defaults for all but what nobody can guess.
    pub fn new(
        manager: impl Into<String>,
        tls: ClientTls,
        volume: Name,
        caller: Arc<Caller>,
    ) -> Self {
        ClerkOptions {
            tls: Some(tls),
            ..ClerkOptions::over(TcpNetwork::shared(), manager, volume, caller)
        }
    }

    /// The same without TLS, by some network: for tests and for networks without strangers.
    pub fn over(
        network: Arc<dyn Network>,
        manager: impl Into<String>,
        volume: Name,
        caller: Arc<Caller>,
    ) -> Self {
        ClerkOptions {
            manager: manager.into(),
            tls: None,
            volume,
            caller,
            connect_deadline: Duration::from_secs(15),
            connections_per_drive: 2,
            route: Route::default(),
            settings: Settings::default(),
            network,
        }
    }

    /// The file manager, by connections as `connect` says.
    fn manager(&self, connect: &ConnectOptions) -> ManagerClient {
        match &self.tls {
            Some(tls) => ManagerClient::tls(&self.manager, tls.clone(), connect),
            None => {
                let connector = self.network.connector(&self.manager, &connect.transport);
                ManagerClient::over(connector, self.network.host(), connect)
            }
        }
    }
}

impl Clerk {
    /// A clerk on a volume of a cell over the network.
    ///
    /// # Errors
    ///
    /// `Unreachable` if the manager does not answer within `connect_deadline`; what it says about
    /// the volume.
    pub fn connect(options: &ClerkOptions) -> Result<Clerk, ClerkError> {
        let connect = ConnectOptions {
            connections: options.connections_per_drive,
            retry: RetryPolicy { deadline: options.settings.deadline, ..RetryPolicy::default() },
            network: Arc::clone(&options.network),
            ..ConnectOptions::default()
        };
        let client = options.manager(&connect);
        let first = client.with_retry(RetryPolicy::within(options.connect_deadline));
        let volume = first.volume(&options.caller, options.volume.as_bytes())?;
        if volume.personality == Personality::Afs && options.route == Route::Manager {
            return Err(ClerkError::NotThroughManager);
        }
        let names = RemoteNames::new(client, options.volume.clone());
        let objects: Arc<dyn Objects> = match options.route {
            Route::Direct => Arc::new(RemoteDrives::new(connect, names.client())),
            Route::Manager => {
                // Connections of their own: names don't wait behind data.
                Arc::new(ForwardedDrives::new(options.manager(&connect)))
            }
        };
        let cell = Cell {
            names: Arc::new(names),
            objects,
            sessions: Some(Arc::new(RemoteSessions::new(options))),
        };
        Clerk::new(cell, &options.caller, options.settings.clone())
    }
}

/// Sessions at a file manager, each call tried once: whoever asks tries again.
struct RemoteSessions {
    client: ManagerClient,
    /// For the call that waits for events, over a connection of its own.
    waiting: ManagerClient,
    caller: Arc<Caller>,
}

impl RemoteSessions {
    fn new(options: &ClerkOptions) -> Self {
        let connect = || {
            let retry = RetryPolicy::none();
            let connect = ConnectOptions { connections: 1, retry, ..ConnectOptions::default() };
            options.manager(&connect)
        };
        let caller = Arc::clone(&options.caller);
        RemoteSessions { client: connect(), waiting: connect(), caller }
    }
}

impl Sessions for RemoteSessions {
    fn attach(&self, arguments: &AttachArguments) -> Result<Attached, ClerkError> {
        Ok(self.client.attach(&self.caller, arguments)?)
    }

    fn detach(&self, client: u64) -> Result<(), ClerkError> {
        Ok(self.client.detach(&self.caller, client)?)
    }

    fn events(&self, arguments: &EventsArguments) -> Result<EventsPage, ClerkError> {
        Ok(self.waiting.events(&self.caller, arguments)?)
    }

    fn closed(&self, arguments: &ClosedArguments) -> Result<(), ClerkError> {
        Ok(self.client.closed(&self.caller, arguments)?)
    }

    fn lease(&self, arguments: &LeaseArguments) -> Result<bool, ClerkError> {
        Ok(self.client.lease(&self.caller, arguments)?)
    }

    fn lock(&self, caller: &Caller, arguments: &LockArguments) -> Result<LockAnswer, ClerkError> {
        Ok(self.client.lock(caller, arguments)?)
    }

    fn unlock(&self, arguments: &UnlockArguments) -> Result<(), ClerkError> {
        Ok(self.client.unlock(&self.caller, arguments)?)
    }

    fn test_lock(&self, arguments: &LockArguments) -> Result<Option<HeldLock>, ClerkError> {
        Ok(self.client.test_lock(&self.caller, arguments)?)
    }
}

/// One volume at a file manager.
struct RemoteNames {
    client: ManagerClient,
    volume: Name,
    /// Changes that were answered.
    changes: AtomicU64,
    /// The first so many of them are durable.
    committed: AtomicU64,
}

impl RemoteNames {
    fn new(client: ManagerClient, volume: Name) -> RemoteNames {
        RemoteNames { client, volume, changes: AtomicU64::new(0), committed: AtomicU64::new(0) }
    }

    /// What came of a change.
    fn changed<T>(&self, outcome: Result<T, ClientError>) -> Result<T, ClerkError> {
        if outcome.is_ok() {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(outcome?)
    }
}

impl Names for RemoteNames {
    fn client(&self) -> u64 {
        self.client.number()
    }

    fn volume(&self, caller: &Caller) -> Result<Volume, ClerkError> {
        Ok(self.client.volume(caller, self.volume.as_bytes())?)
    }

    fn lookup(&self, caller: &Caller, dir: FileHandle, name: &Name) -> Result<File, ClerkError> {
        Ok(self.client.lookup(caller, dir, name.as_bytes())?)
    }

    fn getattr(&self, caller: &Caller, file: FileHandle) -> Result<File, ClerkError> {
        Ok(self.client.getattr(caller, file)?)
    }

    fn setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Result<File, ClerkError> {
        self.changed(self.client.setattr(caller, file, changes))
    }

    fn commit(&self, caller: &Caller, file: FileHandle) -> Result<(), ClerkError> {
        let changes = self.changes.load(Ordering::Acquire);
        if self.committed.load(Ordering::Acquire) < changes {
            self.client.commit(caller, file)?;
            self.committed.fetch_max(changes, Ordering::AcqRel);
        }
        Ok(())
    }

    fn create(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: NewMode,
        exclusive: bool,
        stores: bool,
    ) -> Result<Changed<File>, ClerkError> {
        let name = name.as_bytes();
        self.changed(match stores {
            true => self.client.create_to_store(caller, dir, name, mode, exclusive),
            false => self.client.create(caller, dir, name, mode, exclusive),
        })
    }

    fn mkdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError> {
        self.changed(self.client.mkdir(caller, dir, name.as_bytes(), mode))
    }

    fn symlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        target: &[u8],
    ) -> Result<Changed<File>, ClerkError> {
        self.changed(self.client.symlink(caller, dir, name.as_bytes(), target))
    }

    fn mkmount(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        volume: &Name,
    ) -> Result<Changed<File>, ClerkError> {
        self.changed(self.client.mkmount(caller, dir, name.as_bytes(), volume.as_bytes()))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        dir: FileHandle,
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError> {
        self.changed(self.client.tmpfile(caller, dir, mode))
    }

    fn unlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClerkError> {
        self.changed(self.client.unlink(caller, dir, name.as_bytes(), open))
    }

    fn rmdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Changed<()>, ClerkError> {
        self.changed(self.client.rmdir(caller, dir, name.as_bytes()))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &Name),
        to: (FileHandle, &Name),
        flags: RenameFlags,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClerkError> {
        let from = (from.0, from.1.as_bytes());
        self.changed(self.client.rename(caller, from, (to.0, to.1.as_bytes()), flags, open))
    }

    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Changed<File>, ClerkError> {
        self.changed(self.client.link(caller, file, dir, name.as_bytes()))
    }

    fn mknod(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        node: (FileType, Device),
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError> {
        self.changed(self.client.mknod(caller, dir, name.as_bytes(), node, mode))
    }

    fn getxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
    ) -> Result<Vec<u8>, ClerkError> {
        Ok(self.client.getxattr(caller, file, name.as_bytes())?)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<File, ClerkError> {
        self.changed(self.client.setxattr(caller, file, name.as_bytes(), value, flags))
    }

    fn listxattr(&self, caller: &Caller, file: FileHandle) -> Result<Vec<u8>, ClerkError> {
        Ok(self.client.listxattr(caller, file)?)
    }

    fn removexattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
    ) -> Result<File, ClerkError> {
        self.changed(self.client.removexattr(caller, file, name.as_bytes()))
    }

    fn accessed(
        &self,
        caller: &Caller,
        root: FileHandle,
        accessed: &[FileAccess],
    ) -> Result<(), ClerkError> {
        Ok(self.client.accessed(caller, root, accessed)?)
    }

    fn readdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<DirectoryPage, ClerkError> {
        Ok(self.client.readdir(caller, dir, cookie, max_entries)?)
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
    ) -> Result<FilePage, ClerkError> {
        Ok(self.client.readdirplus(caller, dir, cookie, u32::MAX)?)
    }

    fn get_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        contents: bool,
    ) -> Result<Readable, ClerkError> {
        let asked = GetcapArguments { file, client: self.client.number(), contents };
        Ok(self.client.get_capability(caller, &asked)?)
    }

    fn get_capabilities(
        &self,
        caller: &Caller,
        file: FileHandle,
        neighbours: &[FileHandle],
    ) -> Result<Readables, ClerkError> {
        let (client, neighbours) = (self.client.number(), neighbours.to_vec());
        let asked = GetcapsArguments { file, client, neighbours };
        Ok(self.client.get_capabilities(caller, &asked)?)
    }

    fn get_write_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        (least_end, best_end): (u64, u64),
        cut: Option<Cut>,
    ) -> Result<Writable, ClerkError> {
        let client = self.client.number();
        let asked = GetwcapArguments { file, client, least_end, best_end, cut };
        Ok(self.client.get_write_capability(caller, &asked)?)
    }

    fn return_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        version: u64,
    ) -> Result<Returned, ClerkError> {
        let done = ReturncapArguments { file, client: self.client.number(), version };
        Ok(self.client.return_capability(caller, &done)?)
    }

    fn space(&self, caller: &Caller) -> Result<SpaceInformation, ClerkError> {
        Ok(self.client.space(caller, self.volume.as_bytes())?)
    }

    fn status(&self, caller: &Caller) -> Result<CellStatus, ClerkError> {
        Ok(self.client.status(caller)?)
    }
}

/// The drives of a volume. A clerk has its own; alone they serve who has capabilities from elsewhere.
pub struct RemoteDrives {
    connect: ConnectOptions,
    drives: RwLock<HashMap<DriveId, Arc<RemoteDrive>>>,
    components: Arc<ComponentDrives>,
    /// How often drives were found to have started anew by ways that were given up, which counts as well.
    restarts: AtomicU64,
    /// The clerk's number.
    number: u64,
}

/// A drive of the volume.
struct RemoteDrive {
    client: DriveClient,
    /// By which its striping manager knows who writes: another one for each way, as one does not tell of the writes of
    /// another.
    number: u64,
    /// If it is a virtual one, the way to its component drives. Known when it was asked first.
    striped: OnceLock<Option<StripedDrive>>,
}

impl RemoteDrives {
    /// Reaches drives by these options. `number` tells this client from others.
    pub fn new(connect: ConnectOptions, number: u64) -> RemoteDrives {
        let components = Arc::new(ComponentDrives::new(connect.clone()));
        let (drives, restarts) = (RwLock::default(), AtomicU64::new(0));
        RemoteDrives { connect, drives, components, restarts, number }
    }

    /// From now on a drive is at this address.
    pub fn reach(&self, drive: DriveId, address: &str) {
        let mut drives = self.drives.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = None;
        let known = drives.get(&drive);
        if known.is_none_or(|known| known.client.address() != address) {
            let number = known.map_or(self.number, |_| self.components.host.random());
            let client = DriveClient::tcp(address, Some(drive), &self.connect);
            let way = RemoteDrive { client, number, striped: OnceLock::new() };
            before = drives.insert(drive, Arc::new(way));
        }
        if let Some(before) = &before {
            self.restarts.fetch_add(1 + before.client.restarts(), Ordering::Relaxed);
        }
        drop(drives);
        // What was written that way is ended by it, which takes long if nobody answers there any more: nobody waits for it.
        if let Some(before) = before
            && !self.components.host.takes_turns()
        {
            let forget = std::thread::Builder::new().name("nasd-ends".to_owned());
            // Without a thread it is done here: what can't be begun is dropped.
            forget.spawn(move || drop(before)).ok();
        }
    }

    /// Tells striping managers of writes that have ended, on a host on which threads take turns
    /// ([`nasd_client::Host::takes_turns`]); to be called twice a second. Elsewhere a thread does.
    pub fn end_writes(&self) {
        let drives = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = drives.values().cloned().collect();
        drop(drives);
        for striped in known.iter().filter_map(|drive| drive.striped.get()?.as_ref()) {
            striped.end_writes();
        }
    }

    fn drive(&self, grant: &Grant) -> Result<Arc<RemoteDrive>, ClerkError> {
        let drive = grant.drive();
        let drives = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        drives.get(&drive).cloned().ok_or(ClerkError::UnknownDrive(drive))
    }

    fn client(&self, grant: &Grant) -> Result<DriveClient, ClerkError> {
        Ok(self.drive(grant)?.client.clone())
    }

    /// Does something at the component drives of a virtual drive, or at the drive itself.
    fn at<T>(
        &self,
        grant: &Grant,
        striped: impl FnOnce(&StripedDrive) -> Result<T, ClientError>,
        plain: impl FnOnce(&DriveClient) -> Result<T, ClientError>,
    ) -> Result<T, ClerkError> {
        let drive = self.drive(grant)?;
        let way = match drive.striped.get() {
            Some(way) => way,
            None => {
                let told = match drive.client.information() {
                    Some(told) => told.is_virtual,
                    None => drive.client.inquiry()?.is_virtual,
                };
                let way = || {
                    let components = Arc::clone(&self.components);
                    StripedDrive::new(drive.client.clone(), components, drive.number)
                };
                drive.striped.get_or_init(|| told.then(way))
            }
        };
        Ok(match way {
            Some(way) => striped(way)?,
            None => plain(&drive.client)?,
        })
    }
}

impl Objects for RemoteDrives {
    fn read(&self, grant: &Grant, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClerkError> {
        // Only one of the two is called.
        let into = std::cell::RefCell::new(into);
        self.at(
            grant,
            |striped| striped.read(grant, offset, &mut into.borrow_mut()),
            |drive| {
                let name = grant.name();
                drive.read(&grant.authority, name, offset, &mut into.borrow_mut())
            },
        )
    }

    fn read_pieces(
        &self,
        grant: &Grant,
        pieces: &[ByteRange],
    ) -> Result<(ReadOutcome, Vec<u8>), ClerkError> {
        self.at(
            grant,
            |striped| striped.read_pieces(grant, pieces),
            |drive| {
                let (name, into) = (grant.name(), vec![0; bytes_of(pieces)]);
                let rows = rows_of(pieces.iter().map(single));
                let read = drive.begin_read_regions(&grant.authority, name, &rows, into);
                let (outcome, bytes) = read.wait();
                Ok((outcome?, bytes))
            },
        )
    }

    fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError> {
        self.at(
            grant,
            |striped| striped.write(grant, offset, data, durable),
            |drive| drive.write(&grant.authority, grant.name(), offset, data, durable),
        )
    }

    fn append(
        &self,
        grant: &Grant,
        identity: (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClerkError> {
        let client = self.client(grant)?;
        match client.append(&grant.authority, grant.name(), identity, data) {
            Ok(appended) => Ok(appended),
            // That it may have been done is no reason not to ask once more, by what the token is for.
            Err(ClientError::Unsettled(last)) => Err((*last).into()),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&self, grant: &Grant) -> Result<u64, ClerkError> {
        self.at(
            grant,
            |striped| striped.flush(grant),
            |drive| {
                let name = grant.name();
                Ok(drive.flush(&grant.authority, name.partition, &[name.object])?.instance)
            },
        )
    }

    fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError> {
        self.at(
            grant,
            |striped| striped.getattr(grant),
            |drive| drive.getattr(&grant.authority, grant.name()),
        )
    }

    fn punch(&self, grant: &Grant, range: ByteRange) -> Result<(), ClerkError> {
        let region = Region::single(range.offset, range.length);
        let client = self.client(grant)?;
        client.punch(&grant.authority, grant.name(), &[region], true)?;
        Ok(())
    }

    fn copy_range(
        &self,
        target: &Grant,
        source: &Grant,
        copy: &RangeToCopy,
    ) -> Result<Copied, ClerkError> {
        let copy = RangeToCopy { name: target.name(), ..*copy };
        Ok(self.client(target)?.copy_range(&target.authority, &source.authority, &copy)?)
    }

    fn seek(
        &self,
        grant: &Grant,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError> {
        Ok(self.client(grant)?.seek(&grant.authority, grant.name(), offset, target)?)
    }

    fn extend(
        &self,
        grant: &Grant,
        ranges: &[ByteRange],
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError> {
        self.at(
            grant,
            |striped| striped.extend(grant, ranges, call),
            |drive| {
                let asked = Asked {
                    client: drive,
                    authority: &grant.authority,
                    drive: grant.drive(),
                    name: grant.name(),
                    regions: rows_of(ranges.iter().map(single)),
                };
                extend_all(call, vec![asked])
            },
        )
    }

    fn drive_time(&self, grant: &Grant) -> Timestamp {
        // Of a drive that is not known no capability need be renewed.
        self.client(grant).map_or(Timestamp(0), |client| client.drive_time())
    }

    fn bulk_way(
        &self,
        grant: &Grant,
        mode: OpenMode,
        is_anew: bool,
    ) -> Result<Option<Way>, ClerkError> {
        self.at(
            grant,
            |striped| striped.bulk_way(grant, mode, is_anew),
            |drive| Ok(bulk::way_to_one(drive, &grant.authority, mode)),
        )
    }

    fn breadth(&self, drive: DriveId) -> u32 {
        let drives = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        let striped = drives.get(&drive).and_then(|drive| drive.striped.get());
        striped.and_then(Option::as_ref).map_or(1, StripedDrive::breadth)
    }

    fn restarts(&self) -> Option<u64> {
        let drives = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        let now: u64 = drives.values().map(|drive| drive.client.restarts()).sum();
        Some(now + self.restarts.load(Ordering::Relaxed) + self.components.restarts())
    }

    fn set_volume(&self, volume: &Volume) {
        volume.drives.iter().for_each(|at| self.reach(at.drive, &at.address));
    }
}

//! Copies on drives over the network: three objects in a partition of their own.
//!
//! The partition's key is derived from the drive key, which whoever starts a striping manager has: the secret that
//! protects component partitions is part of what is kept here. Its working key is another one for each epoch and
//! process. Writes are made by it, so that nobody writes who was before; reads by the drive key.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nasd_capability::{SecretKey, derive};
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, OrderSource, RetryPolicy};
use nasd_protocol::drive::{Getattr, GetattrArguments, NO_QUOTA, WriteArguments, Written};
use nasd_protocol::{Region, Status};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    DriveId, ObjectName, PartitionId, Protection, SeekTarget, SetAttributes, WriteOrder,
};

use super::holders::{HolderError, Holders, Part, Piece};
use crate::remote::ComponentDrive;

/// The number of the first such partition: far from those that hold components, and from those that people make.
const FIRST_PARTITION: u32 = 1 << 31;

/// One try, which ends soon: a drive that hangs is done without.
const IMPATIENT: RetryPolicy = RetryPolicy {
    deadline: Duration::ZERO,
    busy_deadline: None,
    call_timeout: Duration::from_millis(1000),
    first_backoff: Duration::from_millis(10),
    longest_backoff: Duration::from_millis(100),
};

/// How often a write is made again for which the drive wants a later order: after a start of the drive, mostly.
const MOST_ORDERS: u32 = 20;

/// See the module.
pub struct RemoteHolders {
    drives: RwLock<BTreeMap<DriveId, Arc<Holder>>>,
    partition: PartitionId,
    protection: Protection,
    connect: ConnectOptions,
    /// From which this process's working keys are derived.
    secret: SecretKey,
    orders: OrderSource,
    begun: Instant,
}

struct Holder {
    component: ComponentDrive,
    client: DriveClient,
    by_drive_key: Authority,
    /// The authority of the working key that was used last, and its epoch.
    by_working_key: Mutex<Option<(u32, Arc<Authority>)>>,
}

/// A drive, and the authority by which it is written.
type Writable = (Arc<Holder>, Arc<Authority>);

impl Holder {
    fn new(component: ComponentDrive, protection: Protection, connect: &ConnectOptions) -> Holder {
        Holder {
            client: DriveClient::tcp(&component.address, Some(component.drive), connect),
            by_drive_key: Authority::drive_key(component.drive_key.clone(), protection),
            by_working_key: Mutex::default(),
            component,
        }
    }

    fn is_same(&self, component: &ComponentDrive) -> bool {
        let ComponentDrive { drive, address, drive_key } = &self.component;
        *drive == component.drive
            && *address == component.address
            && *drive_key == component.drive_key
    }
}

impl RemoteHolders {
    /// The copies that belong to the virtual drive with that index in its cell. `secret` is another one in each
    /// process. Nothing is connected to before something is asked.
    pub fn new(
        drives: Vec<ComponentDrive>,
        index: u32,
        secret: SecretKey,
        protection: Protection,
        connect: &ConnectOptions,
    ) -> RemoteHolders {
        let connect = ConnectOptions { retry: IMPATIENT, ..connect.clone() };
        let made = RemoteHolders {
            drives: RwLock::default(),
            partition: PartitionId(FIRST_PARTITION.saturating_add(index)),
            protection,
            connect,
            secret,
            orders: OrderSource::new(),
            begun: Instant::now(),
        };
        made.set_drives(drives);
        made
    }

    /// From now on these are the drives that may have copies.
    pub fn set_drives(&self, drives: Vec<ComponentDrive>) {
        let mut known = self.drives.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, holder| drives.iter().any(|component| holder.is_same(component)));
        for component in drives {
            known.entry(component.drive).or_insert_with(|| {
                Arc::new(Holder::new(component, self.protection, &self.connect))
            });
        }
    }

    fn holder(&self, drive: DriveId) -> Result<Arc<Holder>, HolderError> {
        let known = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        let unknown = || HolderError::Failed("it is no component drive".to_owned());
        let holder = known.get(&drive).ok_or_else(unknown)?;
        match holder.client.is_given_up() {
            true => Err(HolderError::Away("it is not waited for any more".to_owned())),
            false => Ok(Arc::clone(holder)),
        }
    }

    fn name(&self, part: Part) -> ObjectName {
        ObjectName { partition: self.partition, object: part.object() }
    }

    fn salt(&self, drive: DriveId, number: u32) -> Vec<u8> {
        let partition = self.partition.0.to_be_bytes();
        [&drive.0.to_be_bytes()[..], &partition, &number.to_be_bytes()].concat()
    }

    fn working_key(&self, drive: DriveId, number: u32) -> SecretKey {
        let salt = self.salt(drive, number);
        derive(&self.secret, "NASD striping manager 2026 own state working key", &salt)
    }

    fn authority(&self, holder: &Holder, epoch: u32) -> Arc<Authority> {
        let mut known = holder.by_working_key.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, authority)) if *of == epoch => Arc::clone(authority),
            _ => {
                let key = self.working_key(holder.component.drive, number_of(epoch));
                let authority =
                    Arc::new(Authority::working_key(self.partition, key, self.protection));
                *known = Some((epoch, Arc::clone(&authority)));
                authority
            }
        }
    }

    /// How drives are written in that epoch.
    fn writable(&self, drives: &[DriveId], epoch: u32) -> Vec<Result<Writable, HolderError>> {
        let writable = |drive: &DriveId| {
            let holder = self.holder(*drive)?;
            let authority = self.authority(&holder, epoch);
            Ok((holder, authority))
        };
        drives.iter().map(writable).collect()
    }

    fn claim_one(&self, drive: DriveId, epoch: u32, make: bool) -> Result<(), HolderError> {
        let holder = self.holder(drive)?;
        let (client, by_drive_key, partition) =
            (&holder.client, &holder.by_drive_key, self.partition);
        if make {
            match client.create_partition(by_drive_key, partition) {
                Ok(()) | Err(ClientError::Drive(Status::PartitionExists)) => {}
                Err(error) => return Err(failed(error)),
            }
            client.resize_partition(by_drive_key, partition, NO_QUOTA).map_err(failed)?;
        }
        let key = derive(
            &holder.component.drive_key,
            "NASD striping manager 2026 own state partition key",
            &self.salt(drive, 0),
        );
        client.set_partition_key(by_drive_key, partition, &key).map_err(failed)?;
        let by_partition = Authority::partition_key(partition, key, self.protection);
        let number = number_of(epoch);
        // A drive knows the key before too: that becomes one which nobody uses.
        for (number, is_last) in [(number - 1, false), (number, true)] {
            let key = self.working_key(drive, number);
            match client.set_working_key(&by_partition, partition, number, &key) {
                Err(ClientError::Drive(Status::StaleEpoch)) if is_last => {
                    return Err(HolderError::Overtaken);
                }
                Ok(()) | Err(ClientError::Drive(Status::StaleEpoch)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if make { self.make_objects(&holder, epoch) } else { Ok(()) }
    }

    fn make_objects(&self, holder: &Holder, epoch: u32) -> Result<(), HolderError> {
        let authority = self.authority(holder, epoch);
        let make = |part: Part, blocks_allocated: Option<u64>| {
            let initial = SetAttributes { blocks_allocated, ..SetAttributes::default() };
            holder.client.create_named(&authority, self.name(part), &initial, true)
        };
        for part in Part::ALL {
            let made = match make(part, Some(reserved_blocks(part))) {
                // It does with what there is.
                Err(ClientError::Drive(Status::NoSpace)) => make(part, None),
                made => made,
            };
            match made {
                Ok(_) | Err(ClientError::Drive(Status::ObjectExists)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Writes pieces to one drive again, one after the other, those that it wants a later order for.
    fn write_again(
        &self,
        (holder, authority): (&Holder, &Authority),
        piece: &Piece<'_>,
    ) -> Result<Written, ClientError> {
        let slices = [IoSlice::new(piece.data)];
        for attempt in 0..MOST_ORDERS {
            let refused = self.orders.latest();
            self.orders.leap(refused, attempt);
            let arguments = self.arguments(holder, piece);
            match holder.client.begin_write(authority, arguments, &slices).wait() {
                Err(ClientError::Drive(Status::OutOfOrder)) => {}
                written => return written,
            }
        }
        Err(ClientError::Drive(Status::OutOfOrder))
    }

    /// Each write has an order, by which no try of it is done after a later write of the same bytes.
    fn arguments(&self, holder: &Holder, piece: &Piece<'_>) -> WriteArguments {
        let order: WriteOrder = self.orders.draw(holder.client.drive_time(), 0);
        WriteArguments {
            name: self.name(piece.part),
            durable: true,
            order: Some(order),
            regions: vec![Region::single(piece.offset, piece.data.len() as u64)],
            data_length: piece.data.len(),
        }
    }
}

impl Holders for RemoteHolders {
    fn claim(&self, drives: &[DriveId], epoch: u32, make: bool) -> Vec<Result<(), HolderError>> {
        if let [drive] = drives {
            return vec![self.claim_one(*drive, epoch, make)];
        }
        std::thread::scope(|scope| {
            let begun: Vec<_> = drives
                .iter()
                .map(|drive| scope.spawn(move || self.claim_one(*drive, epoch, make)))
                .collect();
            let ended = || Err(HolderError::Failed("claiming it has ended early".to_owned()));
            begun.into_iter().map(|thread| thread.join().unwrap_or_else(|_| ended())).collect()
        })
    }

    fn write(
        &self,
        drives: &[DriveId],
        epoch: u32,
        pieces: &[Piece<'_>],
    ) -> Vec<Result<(), HolderError>> {
        let holders = self.writable(drives, epoch);
        let slices: Vec<[IoSlice<'_>; 1]> =
            pieces.iter().map(|piece| [IoSlice::new(piece.data)]).collect();
        // Each is sent before the first is waited for.
        let begun: Vec<_> = holders
            .iter()
            .map(|found| {
                let (holder, authority) = found.as_ref().map_err(HolderError::clone)?;
                let pending = pieces.iter().zip(&slices).map(|(piece, slices)| {
                    let arguments = self.arguments(holder, piece);
                    holder.client.begin_write(authority, arguments, slices)
                });
                Ok((holder, authority, pending.collect::<Vec<_>>()))
            })
            .collect();
        let waited = begun.into_iter().map(|begun| {
            let (holder, authority, pending) = begun?;
            // One that lacks a piece is not waited for until it has said so of all.
            pieces.iter().zip(pending).try_for_each(|(piece, pending)| {
                let written = match pending.wait() {
                    Err(ClientError::Drive(Status::OutOfOrder)) => {
                        self.write_again((holder, authority), piece)
                    }
                    written => written,
                };
                written.map(drop).map_err(failed)
            })
        });
        waited.collect()
    }

    fn probe(&self, drives: &[DriveId], epoch: u32) -> Vec<Result<(), HolderError>> {
        let holders = self.writable(drives, epoch);
        let begun: Vec<_> = holders
            .iter()
            .map(|found| {
                let (holder, authority) = found.as_ref().map_err(HolderError::clone)?;
                let arguments = GetattrArguments { name: self.name(Part::Device) };
                Ok(holder.client.begin_call::<Getattr>(authority, arguments).send())
            })
            .collect();
        begun.into_iter().map(|begun| begun?.wait().map(|_| ()).map_err(failed)).collect()
    }

    fn read(
        &self,
        drive: DriveId,
        part: Part,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HolderError> {
        let holder = self.holder(drive)?;
        let mut data = vec![0; length];
        let (client, authority) = (&holder.client, &holder.by_drive_key);
        let read = client.read(authority, self.name(part), offset, &mut data).map_err(failed)?;
        data.truncate(read.length);
        Ok(data)
    }

    fn next_data(&self, drive: DriveId, offset: u64) -> Result<Option<u64>, HolderError> {
        let holder = self.holder(drive)?;
        let (client, authority) = (&holder.client, &holder.by_drive_key);
        client.seek(authority, self.name(Part::Device), offset, SeekTarget::Data).map_err(failed)
    }

    fn remove(&self, drive: DriveId) -> Result<(), HolderError> {
        let holder = self.holder(drive)?;
        match holder.client.remove_partition(&holder.by_drive_key, self.partition) {
            Err(ClientError::Drive(Status::NoSuchPartition)) => Ok(()),
            done => done.map_err(failed),
        }
    }

    fn give_up(&self, drive: DriveId) {
        if let Ok(holder) = self.holder(drive) {
            holder.client.give_up();
        }
    }

    fn call_again(&self, drive: DriveId) {
        let known = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = known.get(&drive) {
            holder.client.call_again();
        }
    }

    fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// Room that a part has for itself, so that it can be written on a drive that is full: more than it mostly takes.
fn reserved_blocks(part: Part) -> u64 {
    let bytes: u64 = match part {
        Part::Device => 8 << 20,
        Part::RecordA | Part::RecordB => 1 << 20,
    };
    bytes / BLOCK_BYTES as u64
}

/// The number of an epoch's working key; that before it is of one that nobody uses.
fn number_of(epoch: u32) -> u32 {
    epoch.saturating_mul(2)
}

/// What a failed call says about its drive.
fn failed(error: ClientError) -> HolderError {
    match error {
        ClientError::Drive(Status::NoSuchPartition | Status::NoSuchObject) => HolderError::Missing,
        ClientError::Refused(status) => HolderError::Refused(status.to_string()),
        ClientError::Drive(status) => HolderError::Failed(status.to_string()),
        error @ (ClientError::Unreachable { .. } | ClientError::Unsettled(_)) => {
            HolderError::Away(error.to_string())
        }
        error => HolderError::Failed(error.to_string()),
    }
}

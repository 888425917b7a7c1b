//! A drive in this process, and a client with a capability, for the examples.
#![allow(dead_code)] // Each example uses its own part.

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;

use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_device::BlockDevice;
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::CredentialKey;
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{
    AuditId, ByteRange, CellId, DriveId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};

pub const DRIVE: DriveId = DriveId(1);
pub const PARTITION: PartitionId = PartitionId(1);
const WORKING_KEY: [u8; 32] = [3; 32];

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Formats a device for the drive.
pub fn format(device: Arc<dyn BlockDevice>) -> Outcome<()> {
    let partition = PartitionFormat {
        id: PARTITION,
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new([2; 32]),
        working_key: StoredKey::new(WORKING_KEY),
        key_epoch: 1,
    };
    let format = FormatOptions {
        drive: DRIVE,
        cell: CellId([1; 16]),
        drive_key: StoredKey::new([1; 32]),
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    Ok(Store::format(device, &format)?)
}

/// Serves a formatted device on a free port.
pub fn serve(
    device: Arc<dyn BlockDevice>,
    cache_bytes: usize,
    minimum_protection: Protection,
) -> Outcome<DriveServer> {
    let open = OpenOptions { cache_bytes, ..OpenOptions::default() };
    let store = Store::open(device, &open)?;
    let options = DriveOptions { minimum_protection, ..DriveOptions::default() };
    let drive = Drive::new(store, options, Environment::system())?;
    Ok(DriveServer::start(drive, TcpListener::bind("127.0.0.1:0")?)?)
}

/// A client of the drive at `address`.
pub fn connect(address: &str, connections: usize) -> DriveClient {
    let options = ConnectOptions { connections, ..ConnectOptions::default() };
    DriveClient::tcp(address, Some(DRIVE), &options)
}

/// The file manager's authority.
pub fn manager() -> Authority {
    let secret = SecretKey::new(WORKING_KEY);
    Authority::working_key(PARTITION, secret, Protection::INTEGRITY_ARGS)
}

/// A new object, and a capability for it as the file manager would mint it.
pub fn create(client: &DriveClient, protection: Protection) -> Outcome<(ObjectName, Authority)> {
    let created = client.create(&manager(), PARTITION, &SetAttributes::default(), false)?;
    let name = ObjectName { partition: PARTITION, object: created.object };
    let capability = Capability {
        drive: DRIVE,
        partition: name.partition,
        object: name.object,
        region: ByteRange::ALL,
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        expires: Timestamp::MAX,
        audit_id: AuditId(1),
        minimum_protection: protection & Protection::INTEGRITY_ARGS,
        key_epoch: 1,
    };
    let version = created.attributes.access_control_version;
    let secret = capability_key(&SecretKey::new(WORKING_KEY), &capability, version);
    let authority = Authority::new(CredentialKey::Capability(capability), secret, protection);
    Ok((name, authority))
}

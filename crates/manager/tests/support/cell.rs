//! A whole cell on this host: drives in memory behind sockets, a manager with TLS, clients.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_capability::SecretKey;
use nasd_client::{ClientError, ConnectOptions, DriveClient, ManagerClient, RetryPolicy};
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_manager::{DriveConfig, ManagerConfig, ManagerServer};
use nasd_protocol::manager::{File, Name};
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_transport::{ClientTls, PemFiles, ServerTls};
use nasd_types::{CellId, DriveId, PartitionId, Protection, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::support::working_key;

const CELL: CellId = CellId([0xce; 16]);
const PARTITION: PartitionId = PartitionId(1);
pub const PARTITION_KEY: [u8; 32] = [0xa0; 32];
pub const DRIVE_KEY: [u8; 32] = [0xd0; 32];

/// The cell's authority for certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

struct Files {
    authority: String,
    certificate: String,
    key: String,
}

impl Files {
    fn pem(&self) -> PemFiles<'_> {
        PemFiles {
            authority: self.authority.as_bytes(),
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
        }
    }
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(parameters, key).unwrap())
    }

    fn sign(&self, name: &str) -> Files {
        let mut parameters = CertificateParams::new(["manager".to_owned()]).unwrap();
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        Files { authority: self.0.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Keeps keys in memory, as a keyring does on a disk: they outlive managers.
#[derive(Debug, Default)]
pub struct Keyring(pub Mutex<BTreeMap<DriveId, KeptKeys>>);

impl KeyKeeper for Keyring {
    fn keep(&self, drive: DriveId, keys: &KeptKeys) -> Result<(), KeeperError> {
        self.0.lock().unwrap().insert(drive, keys.clone());
        Ok(())
    }

    fn partition_keys(&self, _: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        Ok(vec![SecretKey::new(PARTITION_KEY)])
    }
}

impl Keyring {
    /// What the manager does at a drive by its working key; as often as that is refused, as it may be changed just now.
    pub fn as_manager<T>(
        &self,
        id: DriveId,
        mut ask: impl FnMut(&nasd_client::Authority) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let begun = std::time::Instant::now();
        loop {
            let kept = self.0.lock().unwrap().get(&id).map(|kept| kept.current.key.clone());
            let key = kept.unwrap_or_else(|| working_key(id));
            match ask(&nasd_client::Authority::working_key(
                PARTITION,
                key,
                Protection::INTEGRITY_ARGS,
            )) {
                Err(ClientError::Refused(_)) if begun.elapsed() < Duration::from_secs(10) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                outcome => return outcome,
            }
        }
    }
}

/// One drive: its medium outlives its server.
pub struct TestDrive {
    pub id: DriveId,
    device: Arc<FaultyDevice>,
    address: SocketAddr,
    server: Option<DriveServer>,
    /// How often it has lost power.
    cuts: u64,
}

impl TestDrive {
    fn new(number: u64) -> TestDrive {
        let id = DriveId(number);
        let format = FormatOptions {
            drive: id,
            cell: CELL,
            master_key: None,
            log_key: 0x6c6f_676b,
            drive_key: StoredKey::new(DRIVE_KEY),
            partitions: vec![PartitionFormat {
                id: PARTITION,
                quota_bytes: u64::MAX,
                partition_key: StoredKey::new(PARTITION_KEY),
                working_key: StoredKey::new(*working_key(id).expose()),
                key_epoch: 1,
            }],
            metadata_bytes: None,
            now: Timestamp(1),
        };
        let device = Arc::new(FaultyDevice::zeroed(256 << 20));
        Store::format(device.clone(), &format).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Some(Self::serve(&device, listener));
        TestDrive { id, device, address, server, cuts: 0 }
    }

    fn serve(device: &Arc<FaultyDevice>, listener: TcpListener) -> DriveServer {
        let options = OpenOptions { cache_bytes: 32 << 20, ..OpenOptions::default() };
        let store = Store::open(device.clone(), &options).unwrap();
        let drive = Drive::new(store, DriveOptions::default(), Environment::system()).unwrap();
        DriveServer::start(drive, listener).unwrap()
    }

    /// Stops as by a power cut: what was not synced is there afterwards or not, sector by sector.
    pub fn stop(&mut self) {
        drop(self.server.take());
        // Calls that were being executed go on for a moment, though nobody gets their answers: nothing of that reaches the medium
        // that the drive starts with again.
        self.device.crash();
        self.cuts += 1;
        let survivor = self.device.survivor(self.cuts);
        self.device = Arc::new(FaultyDevice::over(survivor, FaultPlan::default()));
    }

    /// Starts again at the same address.
    pub fn start(&mut self) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) if std::time::Instant::now() > deadline => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        self.server = Some(Self::serve(&self.device, listener));
    }
}

/// Drives 1 to `count`, and what a manager is told of them.
pub fn drives_and_config(count: u64) -> (Vec<TestDrive>, ManagerConfig) {
    let drives: Vec<TestDrive> = (1..=count).map(TestDrive::new).collect();
    let told = drives.iter().enumerate().map(|(index, drive)| DriveConfig {
        id: drive.id,
        address: drive.address.to_string(),
        index: index as u32,
        partition: PARTITION,
        moved_to: None,
        keys: KeptKeys::new(1, working_key(drive.id)),
    });
    let name = Name::new("home").unwrap();
    let config = ManagerConfig::new(CELL, name, DriveId(1), told.collect());
    (drives, config)
}

/// The cell.
pub struct Cell {
    pub drives: Vec<TestDrive>,
    pub manager: Option<ManagerServer>,
    authority: Authority,
    pub config: ManagerConfig,
    pub manager_address: SocketAddr,
    pub keyring: Arc<Keyring>,
}

impl Drop for Cell {
    /// The manager goes first, or it would wait for drives that have gone.
    fn drop(&mut self) {
        drop(self.manager.take());
    }
}

impl Cell {
    pub fn new(drives: u64) -> Cell {
        Cell::with(drives, |_| {})
    }

    pub fn with(drives: u64, change: impl FnOnce(&mut ManagerConfig)) -> Cell {
        let (drives, mut config) = drives_and_config(drives);
        config.patience = Duration::from_secs(5);
        config.housekeeping_interval = Duration::from_millis(200);
        let keyring = Arc::new(Keyring::default());
        config.keeper = Some(Arc::clone(&keyring) as Arc<dyn KeyKeeper>);
        change(&mut config);
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let manager_address = listener.local_addr().unwrap();
        let mut cell = Cell { drives, manager: None, authority, config, manager_address, keyring };
        cell.serve(listener);
        cell
    }

    fn serve(&mut self, listener: TcpListener) {
        let tls = ServerTls::new(&self.authority.sign("host:manager").pem()).unwrap();
        self.manager = Some(ManagerServer::start(&self.config, listener, Some(tls)).unwrap());
    }

    /// Kills the manager and starts another, at the same address, with the keys that were kept. What the one before was about to do it may
    /// do yet, as far as drives let it.
    pub fn restart_manager(&mut self) {
        drop(self.manager.take());
        for drive in &mut self.config.drives {
            if let Some(kept) = self.keyring.0.lock().unwrap().get(&drive.id) {
                drive.keys = kept.clone();
            }
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let listener = loop {
            match TcpListener::bind(self.manager_address) {
                Ok(listener) => break listener,
                Err(error) if std::time::Instant::now() > deadline => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        self.serve(listener);
    }

    /// A client of one drive.
    pub fn drive(&self, id: DriveId) -> DriveClient {
        let drive = self.drives.iter().find(|drive| drive.id == id).unwrap();
        let options = ConnectOptions {
            retry: RetryPolicy::within(Duration::from_secs(10)),
            ..ConnectOptions::default()
        };
        DriveClient::tcp(drive.address.to_string(), Some(drive.id), &options)
    }

    /// What a client with a certificate of this name needs.
    pub fn client_tls(&self, name: &str) -> ClientTls {
        ClientTls::new(&self.authority.sign(name).pem(), "manager").unwrap()
    }

    /// A client with a certificate of this name.
    pub fn client(&self, name: &str) -> ManagerClient {
        let tls = self.client_tls(name);
        let options = ConnectOptions {
            retry: RetryPolicy::within(Duration::from_secs(20)),
            ..ConnectOptions::default()
        };
        ManagerClient::tls(self.manager_address.to_string(), tls, &options)
    }

    /// A client of the drive that a file is on.
    pub fn drive_of(&self, file: &File) -> DriveClient {
        self.drive(file.handle.drive)
    }

    pub fn protection(&self) -> Protection {
        self.config.protection
    }
}

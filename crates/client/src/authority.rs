//! By what authority a drive is asked.

use std::fmt;
use std::sync::OnceLock;

use nasd_capability::{Capability, DigestKeys, SALT_BYTES, SealedKey, SecretKey, Suite};
use nasd_protocol::manager::IssuedCapability;
use nasd_protocol::{Credential, CredentialKey};
use nasd_types::{PartitionId, Protection};

/// A key, and how requests made with it are protected. Keep one as long as its key is used: it
/// remembers what was derived from the key, which costs more than a digest.
#[derive(Clone)]
pub struct Authority {
    key: CredentialKey,
    secret: SecretKey,
    protection: Protection,
    suite: Option<Suite>,
    prepared: [OnceLock<Prepared>; 2],
}

/// What requests by an authority under one suite have in common.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// The body of the RPC credential.
    pub(crate) credential: Vec<u8>,
    pub(crate) keys: DigestKeys,
}

impl Authority {
    /// The authority of a key. Unless [`Authority::with_suite`] says otherwise, the algorithms are
    /// the best that drive and client both have.
    pub fn new(key: CredentialKey, secret: SecretKey, protection: Protection) -> Self {
        let prepared = [OnceLock::new(), OnceLock::new()];
        Authority { key, secret, protection, suite: None, prepared }
    }

    /// The authority of a capability. Requests are protected as the capability demands, and by these
    /// options besides.
    pub fn capability(issued: &IssuedCapability, protection: Protection) -> Self {
        let protection = protection | issued.capability.minimum_protection;
        Self::new(CredentialKey::Capability(issued.capability), issued.key.clone(), protection)
    }

    /// The authority of the drive's administrator.
    pub fn drive_key(secret: SecretKey, protection: Protection) -> Self {
        Self::new(CredentialKey::Drive, secret, protection)
    }

    /// The authority of a file manager over its partition.
    pub fn working_key(partition: PartitionId, secret: SecretKey, protection: Protection) -> Self {
        Self::new(CredentialKey::WorkingCurrent(partition), secret, protection)
    }

    /// The authority of the drive's owner, who sets the drive key.
    pub fn master_key(secret: SecretKey, protection: Protection) -> Self {
        Self::new(CredentialKey::Master, secret, protection)
    }

    /// The authority that sets a partition's working keys.
    pub fn partition_key(
        partition: PartitionId,
        secret: SecretKey,
        protection: Protection,
    ) -> Self {
        Self::new(CredentialKey::Partition(partition), secret, protection)
    }

    /// Demands a suite. Calls fail with [`crate::ClientError::NoCommonSuite`] where the drive does
    /// not offer it.
    pub fn with_suite(self, suite: Suite) -> Self {
        Authority { suite: Some(suite), ..self }
    }

    /// The capability, if it is one's.
    pub fn as_capability(&self) -> Option<&Capability> {
        self.key.capability()
    }

    /// How requests and replies are protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// A key for the drive, which only this authority's key opens. The salt must be fresh.
    pub(crate) fn seal(&self, key: &SecretKey, salt: [u8; SALT_BYTES]) -> SealedKey {
        SealedKey::seal(key, &self.secret, salt)
    }

    /// What to send to a drive that offers these suites; `None` if none of them will do.
    pub(crate) fn prepare(&self, offered: &[Suite]) -> Option<&Prepared> {
        let suite = match self.suite {
            Some(demanded) => offered
                .contains(&demanded)
                .then_some(demanded)
                .filter(|demanded| demanded.is_available()),
            None => Suite::choose(offered),
        }?;
        let slot = match suite {
            Suite::Blake3 => 0,
            Suite::Aegis => 1,
        };
        Some(self.prepared[slot].get_or_init(|| Prepared {
            credential: Credential::new(self.key, suite, self.protection).to_body(),
            keys: DigestKeys::new(&self.secret, suite),
        }))
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("key", &self.key)
            .field("protection", &self.protection)
            .finish_non_exhaustive()
    }
}

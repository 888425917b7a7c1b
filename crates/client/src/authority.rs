//! By what authority a drive is asked.

use std::fmt;
use std::sync::OnceLock;

use nasd_capability::{
    Capability, Chain, Delegated, DigestKeys, KeyKind, NarrowError, Narrowing, SALT_BYTES,
    SealedKey, SecretKey, Suite, effective, narrowed_key,
};
use nasd_protocol::manager::IssuedCapability;
use nasd_protocol::{Credential, CredentialKey};
use nasd_types::{PartitionId, Protection};

/// A key, and how requests made with it are protected. Keep one as long as its key is used: it
/// remembers what was derived from the key, which costs more than a digest.
#[derive(Clone)]
pub struct Authority {
    key: CredentialKey,
    /// The capability as it was minted, if it is one's.
    root: Option<Capability>,
    secret: SecretKey,
    protection: Protection,
    suite: Option<Suite>,
    prepared: [OnceLock<Prepared>; 2],
}

/// What requests by an authority under one suite have in common.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The body of the RPC credential.
    pub credential: Vec<u8>,
    /// What proves them, and what answers must be proved with.
    pub keys: DigestKeys,
}

impl Authority {
    /// The authority of a key. Unless [`Authority::with_suite`] says otherwise, the algorithms are
    /// the best that drive and client both have.
    pub fn new(key: CredentialKey, secret: SecretKey, protection: Protection) -> Self {
        let prepared = [OnceLock::new(), OnceLock::new()];
        let root = key.capability().copied();
        // A key shows no capability that anybody could read.
        let protection = match key.kind() {
            KeyKind::Capability => protection,
            _ => protection - Protection::PRIVACY_CAPABILITY,
        };
        Authority { key, root, secret, protection, suite: None, prepared }
    }

    /// The authority of a capability. Requests are protected as the capability demands, and by these
    /// options besides.
    pub fn capability(issued: &IssuedCapability, protection: Protection) -> Self {
        Self::delegated(issued, Chain::default(), protection)
    }

    /// The authority of a capability that was narrowed before it was handed on. The key of `issued` is
    /// that of the last narrowing.
    pub fn delegated(issued: &IssuedCapability, chain: Chain, protection: Protection) -> Self {
        let protection = protection | issued.capability.minimum_protection;
        let sealed = issued.sealed.filter(|_| protection.contains(Protection::PRIVACY_CAPABILITY));
        let key = match sealed {
            Some(sealed) => CredentialKey::sealed(sealed, chain),
            None => CredentialKey::narrowed(issued.capability, chain),
        };
        let root = Some(issued.capability);
        Authority { root, ..Self::new(key, issued.key.clone(), protection) }
    }

    /// The authority of the same capability with fewer rights, a smaller region or an earlier
    /// expiry. Nobody is asked; who has it can't take the narrowing back.
    ///
    /// # Errors
    ///
    /// [`NarrowError`] if it would be refused: it allows more, or was narrowed too often.
    pub fn narrowed(&self, by: Narrowing) -> Result<Authority, NarrowError> {
        let root = self.root.as_ref().ok_or(NarrowError::NotACapability)?;
        let before = Chain::new(self.key.narrowings().to_vec())?;
        let chain = before.narrowed(root, by)?;
        let key = match self.key.sealed_capability() {
            Some(sealed) => CredentialKey::sealed(*sealed, chain),
            None => CredentialKey::narrowed(*root, chain),
        };
        let secret = narrowed_key(self.secret.clone(), &[by]);
        let narrowed = Self::new(key, secret, self.protection);
        Ok(Authority { root: self.root, suite: self.suite, ..narrowed })
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

    /// The same for a question whose answer must be proved.
    pub(crate) fn proving(&self) -> Authority {
        let protection = self.protection | Protection::INTEGRITY_ARGS;
        let prepared = [OnceLock::new(), OnceLock::new()];
        Authority { protection, prepared, ..self.clone() }
    }

    /// What the capability allows, narrowed as it is, if it is one's.
    pub fn as_capability(&self) -> Option<Capability> {
        effective(self.root.as_ref()?, self.key.narrowings()).ok()
    }

    /// All that somebody else needs to use the capability, narrowed as it is, if it is one's. It is as secret as its key.
    pub fn to_delegated(&self) -> Option<Delegated> {
        Some(Delegated {
            capability: self.root?,
            sealed: self.key.sealed_capability().copied(),
            chain: Chain::new(self.key.narrowings().to_vec()).ok()?,
            key: self.secret.clone(),
        })
    }

    /// Whether it can be shown as its protection demands: a capability that nobody on the way may
    /// read must have been sealed by who minted it.
    pub fn can_be_shown(&self) -> bool {
        let wants_seal = self.protection.contains(Protection::PRIVACY_CAPABILITY);
        !wants_seal || self.key.sealed_capability().is_some()
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
    pub fn prepare(&self, offered: &[Suite]) -> Option<&Prepared> {
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
            credential: Credential::new(self.key.clone(), suite, self.protection).to_body(),
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

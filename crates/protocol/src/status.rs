//! How a drive's operation fails (`nasd_status`), and by whose fault.

use std::fmt;

use nasd_capability::Refusal;
use nasd_xdr::xdr_enum;

xdr_enum! {
    /// Why a drive did not do what was asked. Success is not among them: see [`crate::result`].
    pub enum Status {
        /// A field's value has no meaning.
        BadArgument = 1,
        /// The drive has no such partition.
        NoSuchPartition = 2,
        /// The partition has no such object. Told only to holders of keys: for a capability a
        /// missing object looks like a wrong digest.
        NoSuchObject = 3,
        /// Never possible on this object, whatever the rights: writing a drive's control object,
        /// for example.
        NotPermitted = 4,
        /// A transfer, an object or a list is above a limit.
        TooLarge = 5,
        /// The drive has that partition already.
        PartitionExists = 6,
        /// The drive does not let anybody set that attribute (`block_size`).
        NotAdjustable = 7,
        /// The epoch of a new working key is not above that of its predecessor.
        StaleEpoch = 8,
        /// A sealed key was not sealed under the key that the request was made with.
        BadKey = 9,
        /// There is an object of the identifier that was chosen for a new one, or there was one lately.
        ObjectExists = 10,
        /// The drive has no such extension, or has it of another revision.
        NoSuchExtension = 11,

        /// The protection is weaker than demanded, or not understood.
        RefusedProtection = 100,
        /// The nonce is outside the window; the reply's verifier has the drive's clock.
        RefusedSkew = 101,
        /// The nonce was seen before, or is from before the drive's start.
        RefusedReplay = 102,
        /// The capability has expired.
        RefusedExpired = 103,
        /// The capability names another drive.
        RefusedDrive = 104,
        /// The capability names another object.
        RefusedObject = 105,
        /// The capability lacks a right.
        RefusedRights = 106,
        /// The capability's region does not hold every byte.
        RefusedRegion = 107,
        /// Forged, altered, revoked, or no such object.
        RefusedDigest = 108,
        /// Unknown key, or key kind not allowed here.
        RefusedKey = 109,
        /// The drive does not offer the algorithm suite.
        RefusedSuite = 110,
        /// The capability's minimum protection is below the drive's or the partition's.
        RefusedMinimum = 111,
        /// The working key that the capability was minted with is gone.
        RefusedEpoch = 112,
        /// The capability names another partition.
        RefusedPartition = 113,
        /// A narrowing of the capability allows more than the one before it.
        RefusedChain = 114,

        /// The partition's quota is used up, or the drive is full.
        NoSpace = 200,
        /// The drive has too much to do.
        Busy = 201,
        /// A bug or an exhausted resource of the drive.
        DriveFault = 202,
        /// The drive stopped writing after a failed write.
        ReadOnly = 203,
        /// Too many appends were made since this one was asked for first for the drive to know
        /// whether it was made then.
        Forgotten = 204,
        /// A later write of some of the bytes was done, or might have been. With a later order it can be done.
        OutOfOrder = 205,

        /// The device failed the transfer.
        MediumError = 300,
        /// A checksum of the medium does not match.
        Corrupt = 301,
    }
}

/// Whose fault a failure is: the hundreds of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The caller's request: the same request will fail again.
    Request,
    /// The caller's authority: the same request may pass with a new capability, or a fresh nonce.
    Authority,
    /// The drive: the same request may pass later.
    Drive,
    /// The medium: what it held may be lost.
    Medium,
}

impl Status {
    /// Whose fault it is.
    pub const fn blame(self) -> Blame {
        match self as u32 {
            0..=99 => Blame::Request,
            100..=199 => Blame::Authority,
            200..=299 => Blame::Drive,
            _ => Blame::Medium,
        }
    }

    /// Whether the caller asked for something wrong, so that asking again is no use.
    pub const fn is_callers_fault(self) -> bool {
        matches!(self.blame(), Blame::Request)
    }

    /// Whether a new capability from the file manager may help: the old one has expired, was
    /// revoked, or does not allow what is asked. It does not help against faults of the caller's
    /// own making: too little protection, an unknown suite, a chain that widens.
    pub const fn needs_new_capability(self) -> bool {
        matches!(self.blame(), Blame::Authority)
            && !self.needs_fresh_nonce()
            && !matches!(
                self,
                Status::RefusedProtection | Status::RefusedSuite | Status::RefusedChain
            )
    }

    /// Whether the same request with a fresh nonce may pass; the clock to take it from is in the
    /// verifier of the refusal.
    pub const fn needs_fresh_nonce(self) -> bool {
        matches!(self, Status::RefusedSkew | Status::RefusedReplay)
    }

    /// Whether the same request may pass later, with nothing changed by the caller.
    pub const fn is_transient(self) -> bool {
        matches!(self, Status::Busy)
    }

    /// The refusal, if the request was not authorized.
    pub fn refusal(self) -> Option<Refusal> {
        Refusal::from_code(self as u32)
    }

    const fn what_failed(self) -> &'static str {
        match self {
            Status::BadArgument => "a field of the request has no meaning",
            Status::NoSuchPartition => "the drive has no such partition",
            Status::NoSuchObject => "the partition has no such object",
            Status::NotPermitted => "this object does not allow the operation",
            Status::TooLarge => "the request is above a limit of the protocol",
            Status::PartitionExists => "the drive has that partition already",
            Status::NotAdjustable => "the drive does not let anybody set that attribute",
            Status::StaleEpoch => "the working key's epoch is not above its predecessor's",
            Status::BadKey => "the new key was not sealed under the key of the request",
            Status::ObjectExists => "the partition has an object of that identifier already",
            Status::NoSuchExtension => "the drive has no such extension",
            Status::RefusedProtection => "the request's protection is too weak",
            Status::RefusedSkew => "the request's clock is too far from the drive's",
            Status::RefusedReplay => "the drive has seen this request before",
            Status::RefusedExpired => "the capability has expired",
            Status::RefusedDrive => "the capability is for another drive",
            Status::RefusedObject => "the capability is for another object",
            Status::RefusedRights => "the capability does not allow the operation",
            Status::RefusedRegion => "the capability does not cover these bytes",
            Status::RefusedDigest => {
                "the request's digest is wrong: altered, revoked, or no such object"
            }
            Status::RefusedKey => "the key is unknown, or not allowed here",
            Status::RefusedSuite => "the drive does not offer these algorithms",
            Status::RefusedMinimum => {
                "the capability allows less protection than the drive or partition demands"
            }
            Status::RefusedEpoch => "the key that the capability was made with was replaced",
            Status::RefusedPartition => "the capability is for another partition",
            Status::RefusedChain => {
                "a narrowing of the capability allows more than the one before it"
            }
            Status::NoSpace => "no space is left in the partition or on the drive",
            Status::Busy => "the drive has too much to do",
            Status::DriveFault => "the drive has an internal fault",
            Status::ReadOnly => "the drive stopped writing after a failed write",
            Status::OutOfOrder => "a later write of these bytes was done, or might have been",
            Status::Forgotten => "the drive does not know any more whether it has done that before",
            Status::MediumError => "the drive's device failed the transfer",
            Status::Corrupt => "the data on the drive's medium is damaged",
        }
    }

    const fn what_to_do(self) -> &'static str {
        match self {
            Status::BadArgument | Status::NotPermitted | Status::NotAdjustable | Status::BadKey => {
                "correct the request"
            }
            Status::PartitionExists | Status::ObjectExists => {
                "choose another number, or remove what has it first"
            }
            Status::StaleEpoch => "choose a higher epoch",
            Status::NoSuchPartition | Status::NoSuchObject => "look the name up again",
            Status::TooLarge => "split the request",
            Status::NoSuchExtension => "choose one that the drive's control object lists",
            Status::RefusedProtection => {
                "use the minimum protection of the capability, the partition and the drive"
            }
            Status::RefusedSkew => "stamp it with the clock in the refusal and send it again",
            Status::RefusedReplay => "send it again with a fresh nonce",
            Status::RefusedExpired
            | Status::RefusedDrive
            | Status::RefusedObject
            | Status::RefusedRights
            | Status::RefusedRegion
            | Status::RefusedDigest
            | Status::RefusedKey
            | Status::RefusedMinimum
            | Status::RefusedEpoch
            | Status::RefusedPartition => "get a new capability from the file manager",
            Status::RefusedSuite => "choose a suite that inquiry lists",
            Status::RefusedChain => "narrow the capability anew, or get a new one",
            Status::NoSpace => "remove something or raise the quota",
            Status::Busy => "try again later",
            Status::DriveFault => "see the drive's log",
            Status::ReadOnly => "see the drive's log, then replace the device",
            Status::OutOfOrder => "draw a later order, and write again everywhere",
            Status::Forgotten => "look what is there, then append what is missing",
            Status::MediumError => "check the device",
            Status::Corrupt => "run nasd check, and restore the object",
        }
    }
}

/// What failed, and what to do about it.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what_failed(), self.what_to_do())
    }
}

impl std::error::Error for Status {}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Protection => Status::RefusedProtection,
            Refusal::Skew => Status::RefusedSkew,
            Refusal::Replay => Status::RefusedReplay,
            Refusal::Expired => Status::RefusedExpired,
            Refusal::Drive => Status::RefusedDrive,
            Refusal::Object => Status::RefusedObject,
            Refusal::Rights => Status::RefusedRights,
            Refusal::Region => Status::RefusedRegion,
            Refusal::Digest => Status::RefusedDigest,
            Refusal::Key => Status::RefusedKey,
            Refusal::Suite => Status::RefusedSuite,
            Refusal::Minimum => Status::RefusedMinimum,
            Refusal::Epoch => Status::RefusedEpoch,
            Refusal::Partition => Status::RefusedPartition,
            Refusal::Chain => Status::RefusedChain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_and_statuses_agree() {
        for refusal in Refusal::ALL {
            let status = Status::from(refusal);
            assert_eq!(u32::from(status), refusal.code());
            assert_eq!(status.refusal(), Some(refusal));
            assert_eq!(status.needs_fresh_nonce(), refusal.needs_only_a_fresh_nonce());
        }
        let refusals = Status::ALL.iter().filter(|status| status.refusal().is_some());
        assert_eq!(refusals.count(), Refusal::ALL.len());
    }

    #[test]
    fn each_status_has_one_remedy() {
        for &status in Status::ALL {
            let remedies = [
                status.is_callers_fault(),
                status.needs_new_capability(),
                status.needs_fresh_nonce(),
                status.is_transient(),
            ];
            assert!(remedies.iter().filter(|&&remedy| remedy).count() <= 1, "{status:?}");
            assert!(status.to_string().contains("; "), "{status:?}");
        }
        assert_eq!(Status::TooLarge.blame(), Blame::Request);
        assert!(Status::RefusedExpired.needs_new_capability());
        assert!(Status::RefusedMinimum.needs_new_capability());
        assert!(Status::RefusedEpoch.needs_new_capability());
        assert!(!Status::RefusedSkew.needs_new_capability());
        assert!(!Status::RefusedProtection.needs_new_capability());
        assert!(!Status::RefusedChain.needs_new_capability());
        assert_eq!(Status::ReadOnly.blame(), Blame::Drive);
        assert_eq!(Status::Corrupt.blame(), Blame::Medium);
    }
}

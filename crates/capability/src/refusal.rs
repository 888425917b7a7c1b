//! Why a drive refuses a request: one variant for each `NASD_REFUSED_*` of `specs/nasd.x`.

/// A request was not authorized. Nothing was done, and nothing about an object is told by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Refusal {
    /// `NASD_REFUSED_PROTECTION`: weaker than the capability's minimum, with a key weaker than the
    /// drive's and the partition's, or options that have no meaning here.
    #[error("the request's protection is weaker than is demanded, or is not understood")]
    Protection = 100,
    /// `NASD_REFUSED_SKEW`: the nonce's timestamp is outside the window around the drive's clock.
    #[error("the nonce is outside the window around the drive's clock")]
    Skew = 101,
    /// `NASD_REFUSED_REPLAY`: the nonce was seen before, or can't be told from one that was.
    #[error("the nonce was seen before, or is too old to tell")]
    Replay = 102,
    /// `NASD_REFUSED_EXPIRED`: the drive's clock has reached the capability's expiry.
    #[error("the capability has expired")]
    Expired = 103,
    /// `NASD_REFUSED_DRIVE`: the capability names another drive.
    #[error("the capability is for another drive")]
    Drive = 104,
    /// `NASD_REFUSED_OBJECT`: the capability names another object.
    #[error("the capability is for another object")]
    Object = 105,
    /// `NASD_REFUSED_RIGHTS`: the capability lacks a right that the operation needs.
    #[error("the capability does not allow the operation")]
    Rights = 106,
    /// `NASD_REFUSED_REGION`: the bytes asked for are not all within the capability's region.
    #[error("the capability does not cover the region")]
    Region = 107,
    /// `NASD_REFUSED_DIGEST`: forged, altered, revoked, or there is no such object.
    #[error("the digest does not match: altered, revoked, or no such object")]
    Digest = 108,
    /// `NASD_REFUSED_KEY`: unknown key, or a kind that is not allowed for the operation.
    #[error("the key is unknown, or not allowed here")]
    Key = 109,
    /// `NASD_REFUSED_SUITE`: the drive does not offer the suite of algorithms.
    #[error("the drive does not offer the request's suite of algorithms")]
    Suite = 110,
    /// `NASD_REFUSED_MINIMUM`: the capability may be used with less protection than the drive or
    /// the partition demands of capabilities.
    #[error("the capability's minimum protection is below the drive's or the partition's")]
    Minimum = 111,
    /// `NASD_REFUSED_EPOCH`: the working key that the capability was minted with is gone.
    #[error("the working key that the capability was minted with is gone")]
    Epoch = 112,
    /// `NASD_REFUSED_PARTITION`: the capability names another partition.
    #[error("the capability is for another partition")]
    Partition = 113,
    /// `NASD_REFUSED_CHAIN`: a narrowing allows what the one before it does not.
    #[error("a narrowing of the capability allows more than the one before it")]
    Chain = 114,
}

impl Refusal {
    /// Every refusal, in the order of the status numbers.
    pub const ALL: [Refusal; 15] = [
        Refusal::Protection,
        Refusal::Skew,
        Refusal::Replay,
        Refusal::Expired,
        Refusal::Drive,
        Refusal::Object,
        Refusal::Rights,
        Refusal::Region,
        Refusal::Digest,
        Refusal::Key,
        Refusal::Suite,
        Refusal::Minimum,
        Refusal::Epoch,
        Refusal::Partition,
        Refusal::Chain,
    ];

    /// The number of the status on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The refusal with that number of status on the wire.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }

    /// Whether the same request with a fresh nonce may pass (the verifier of the refusal has the
    /// time to stamp it with); for the others the caller needs another capability or request.
    pub const fn needs_only_a_fresh_nonce(self) -> bool {
        matches!(self, Refusal::Skew | Refusal::Replay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_wire_and_survive() {
        for (index, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal.code(), 100 + index as u32);
            assert_eq!(Refusal::from_code(refusal.code()), Some(refusal));
        }
        assert_eq!(Refusal::from_code(99), None);
        assert_eq!(Refusal::from_code(115), None);
    }
}

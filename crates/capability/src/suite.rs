//! Algorithm suites: which functions make the digests of a request and its reply.
//!
//! A drive lists its suites in `inquiry`, best first; every drive offers [`Suite::Blake3`].
//! A suite for installations that need certified algorithms (HMAC-SHA-256) would be number 2.

/// Number of a suite on the wire (`nasd_suite`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Suite {
    /// Keyed BLAKE3, everywhere.
    Blake3 = 0,
    /// AEGIS-128L MAC over arguments, AEGIS-128X2 MAC over data; needs a processor with AES.
    Aegis = 1,
}

impl Suite {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The suite with that number on the wire.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Suite::Blake3),
            1 => Some(Suite::Aegis),
            _ => None,
        }
    }

    /// Whether this processor can run the suite.
    pub fn is_available(self) -> bool {
        match self {
            Suite::Blake3 => true,
            Suite::Aegis => processor_has_aes(),
        }
    }

    /// The suites that this processor can run, best first: what `inquiry` answers.
    pub fn available() -> &'static [Suite] {
        if processor_has_aes() { &[Suite::Aegis, Suite::Blake3] } else { &[Suite::Blake3] }
    }

    /// The best suite that this processor can run.
    pub fn preferred() -> Suite {
        Self::available()[0]
    }

    /// The first of `offered`, which is the drive's list, that this processor can run.
    pub fn choose(offered: &[Suite]) -> Option<Suite> {
        offered.iter().copied().find(|suite| suite.is_available())
    }
}

/// The bundled library picks AES-NI code without a fallback, and that code needs AVX as well.
#[cfg(target_arch = "x86_64")]
fn processor_has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("avx")
}

#[cfg(target_arch = "aarch64")]
fn processor_has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn processor_has_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_suite_is_available_and_blake3_always_is() {
        assert!(Suite::preferred().is_available());
        assert!(Suite::available().contains(&Suite::Blake3));
        assert_eq!(Suite::choose(&[Suite::Blake3, Suite::Aegis]), Some(Suite::Blake3));
        assert_eq!(Suite::choose(&[]), None);
    }

    #[test]
    fn codes_survive() {
        for suite in [Suite::Blake3, Suite::Aegis] {
            assert_eq!(Suite::from_code(suite.code()), Some(suite));
        }
        assert_eq!(Suite::from_code(2), None);
    }
}

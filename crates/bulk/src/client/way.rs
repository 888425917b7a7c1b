//! The way to a file's bytes, as text: what a clerk tells whoever moves them himself (`docs/bulk-ways.md`).
//!
//! ```text
//! nasdbulkway1 UNIT
//! HOST:PORT AHEAD PROTECTION nasdcap1.BASE64URL
//! ```
//!
//! The first line says how many bytes a stripe unit has; one line follows for each component, in the order of columns.

use std::fmt::Write;
use std::time::Duration;

use nasd_capability::{Delegated, TextError};
use nasd_client::Authority;
use nasd_protocol::bulk::Options;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::Protection;
use thiserror::Error;
use zeroize::Zeroizing;

use super::{BulkError, Opening, StripedFile};

/// What every text begins with; the digit is the version.
const PREFIX: &str = "nasdbulkway1";

/// Where the bytes of a file of a cell are, and by what authority. Its text *is* the authority: whoever has it can do what it
/// allows, until its capabilities expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Bytes of a stripe unit; it does not matter where there is one component.
    pub unit: u64,
    /// One for each column.
    pub components: Vec<WayComponent>,
}

/// One server that has bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayComponent {
    /// HOST:PORT.
    pub address: String,
    /// How far the server's clock is ahead of this host's, in nanoseconds, as far as is known.
    pub clock_ahead_ns: i64,
    /// How requests are protected, besides what the capability demands.
    pub protection: Protection,
    /// For the component.
    pub delegated: Delegated,
}

/// Why a text is no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WayError {
    /// It does not begin like one.
    #[error("it does not begin with {PREFIX} and the bytes of a stripe unit")]
    Head,
    /// A line has too few words, or one that makes no sense.
    #[error("a component is told by HOST:PORT AHEAD PROTECTION CAPABILITY")]
    Component,
    /// There is none, or a capability is none.
    #[error("a component's capability is of no use: {0}")]
    Capability(#[from] TextError),
}

impl Way {
    /// The text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64 + 512 * self.components.len()));
        // A string takes all that is written to it.
        writeln!(text, "{PREFIX} {}", self.unit).ok();
        for component in &self.components {
            let WayComponent { address, clock_ahead_ns, protection, delegated } = component;
            let capability = delegated.to_text();
            let bits = protection.bits();
            writeln!(text, "{address} {clock_ahead_ns} {bits} {}", capability.as_str()).ok();
        }
        text
    }

    /// From the text.
    ///
    /// # Errors
    ///
    /// [`WayError`].
    pub fn from_text(text: &str) -> Result<Way, WayError> {
        let mut lines = text.lines();
        let unit = lines.next().and_then(|line| line.strip_prefix(PREFIX)?.strip_prefix(' '));
        let unit = unit.and_then(|unit| unit.parse().ok()).ok_or(WayError::Head)?;
        let components = lines.map(WayComponent::from_line).collect::<Result<Vec<_>, _>>()?;
        match components.is_empty() {
            true => Err(WayError::Component),
            false => Ok(Way { unit, components }),
        }
    }

    /// Opens the file. `block` is that of [`Opening`]; it counts where one server has all bytes.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn open(
        &self,
        options: Options,
        patience: Duration,
        block: u64,
    ) -> Result<StripedFile, BulkError> {
        // Of stripes a server has but some, and nothing in front of its first one.
        let block = if self.components.len() == 1 { block } else { 0 };
        let opening = |component: &WayComponent| {
            let opening = component.opening(options, patience);
            Opening { block, ..opening }
        };
        StripedFile::open(self.components.iter().map(opening).collect(), self.unit)
    }
}

impl WayComponent {
    fn from_line(line: &str) -> Result<WayComponent, WayError> {
        let words: Vec<&str> = line.split(' ').collect();
        let [address, ahead, protection, capability] = words[..] else {
            return Err(WayError::Component);
        };
        let clock_ahead_ns = ahead.parse().map_err(|_| WayError::Component)?;
        let bits = protection.parse().map_err(|_| WayError::Component)?;
        Ok(WayComponent {
            address: address.to_owned(),
            clock_ahead_ns,
            protection: Protection::from_bits(bits).ok_or(WayError::Component)?,
            delegated: Delegated::from_text(capability)?,
        })
    }

    fn opening(&self, options: Options, patience: Duration) -> Opening {
        let Delegated { capability, sealed, chain, key } = self.delegated.clone();
        let issued = IssuedCapability { capability, key, sealed };
        Opening {
            address: self.address.clone(),
            authority: Authority::delegated(&issued, chain, self.protection),
            place: Vec::new(),
            options,
            block: 0,
            durable: true,
            patience,
            clock_ahead_ns: i128::from(self.clock_ahead_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_capability::{Capability, Chain, SecretKey};
    use nasd_types::{AuditId, ByteRange, DriveId, ObjectId, PartitionId, Rights, Timestamp};

    use super::*;

    fn component(number: u64) -> WayComponent {
        let capability = Capability {
            drive: DriveId(number),
            partition: PartitionId(3),
            object: ObjectId(number + 1),
            region: ByteRange::ALL,
            rights: Rights::READ,
            expires: Timestamp(77),
            audit_id: AuditId(5),
            minimum_protection: Protection::INTEGRITY_ARGS,
            key_epoch: 2,
        };
        let key = SecretKey::new([number as u8; 32]);
        WayComponent {
            address: format!("[::1]:{number}"),
            clock_ahead_ns: -9 * number.cast_signed(),
            protection: Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA,
            delegated: Delegated { capability, sealed: None, chain: Chain::default(), key },
        }
    }

    #[test]
    fn a_way_survives_as_text_however_wide_it_is() {
        for width in [1, 2, 64] {
            let way = Way { unit: 512 << 10, components: (1..=width).map(component).collect() };
            let text = way.to_text();
            assert_eq!(Way::from_text(&text), Ok(way));
            // The answer to a request for it has room for so much.
            assert!(text.len() < 16_000, "{}", text.len());
        }
    }

    #[test]
    fn what_is_no_way_is_told() {
        let text = Way { unit: 7, components: vec![component(1)] }.to_text();
        assert_eq!(Way::from_text(""), Err(WayError::Head));
        assert_eq!(Way::from_text(&text.replacen('1', "2", 1)), Err(WayError::Head));
        assert_eq!(Way::from_text(&text.replacen(" 7", " x", 1)), Err(WayError::Head));
        assert_eq!(Way::from_text(text.lines().next().unwrap()), Err(WayError::Component));
        assert_eq!(Way::from_text(&text.replacen(" -9", "", 1)), Err(WayError::Component));
        assert_eq!(
            Way::from_text(&text.replacen(" -9 ", " -9 4294967295 ", 1)),
            Err(WayError::Component)
        );
        let cut = &text[..text.len() - 3];
        assert!(matches!(Way::from_text(cut), Err(WayError::Capability(_))));
    }
}

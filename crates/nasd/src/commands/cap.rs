//! `nasd cap`: capabilities as text that can be handed over.

use super::Outcome;
use crate::arguments::{CapCommand, RightsArguments};
use crate::output::{self, note, say};
use crate::shared_file::{Given, is_url_argument, printable};
use nasd_capability::{Capability, CapabilityUrl, Chain, Delegated, Narrowing};
use nasd_cell::CellError;
use nasd_cell::session::{Connected, connect, for_command, manager};
use nasd_cell::time::{now, spoken, utc};
use nasd_cell::{Cell, CellPath};
use nasd_protocol::manager::{FileHandle, MintArguments, Minted};
use nasd_types::{ByteRange, Protection, Rights, Timestamp};
use std::error::Error;
use std::time::Duration;

/// Runs the command.
///
/// # Errors
/// A path or capability that is none, what the caller may not do, or a manager that is away.
pub fn run(
    open: impl FnOnce() -> Result<Cell, CellError>,
    command: CapCommand,
    json: bool,
) -> Outcome {
    match command {
        CapCommand::Mint { path, rights, lifetime, region, private, text } => {
            let region = region.unwrap_or(ByteRange::ALL);
            mint(&open()?, &path, &Wanted { rights, lifetime, region, private, text })
        }
        CapCommand::Show { cap } => show(&Given::from_argument(&cap)?, json),
        CapCommand::Attenuate { cap, rights, region, lifetime } => {
            attenuate(&Given::from_argument(&cap)?, rights, region, lifetime)
        }
        CapCommand::Revoke { target } => revoke(&open()?, &target),
    }
}

/// What a capability is to be.
struct Wanted {
    rights: RightsArguments,
    lifetime: Duration,
    region: ByteRange,
    private: bool,
    text: bool,
}

/// The rights that the options stand for. What can be read or written may be asked for its length, and
/// what can be written, made durable.
fn rights_of(arguments: RightsArguments) -> Result<Rights, String> {
    let mut rights = Rights::empty();
    if arguments.read {
        rights |= Rights::READ | Rights::GETATTR;
    }
    if arguments.write {
        rights |= Rights::WRITE | Rights::FLUSH | Rights::GETATTR;
    }
    if rights.is_empty() {
        Err("say what to allow: --read, --write or both".to_owned())
    } else {
        Ok(rights)
    }
}

fn mint(cell: &Cell, text: &str, wanted: &Wanted) -> Outcome {
    let rights = rights_of(wanted.rights)?;
    let (path, file) = file_of(cell, text)?;
    let asked = MintArguments {
        file,
        rights,
        region_offset: wanted.region.offset,
        region_length: wanted.region.length,
        lifetime: u64::try_from(wanted.lifetime.as_nanos()).unwrap_or(u64::MAX),
        sealed: wanted.private,
    };
    let (manager, caller) = manager(cell)?;
    let Minted { capability: issued, address, longest_lifetime, .. } =
        manager.mint(&caller, &asked).map_err(|error| format!("can't share {text}: {error}"))?;
    if asked.lifetime > longest_lifetime {
        let longest = Duration::from_nanos(longest_lifetime);
        note!(
            "nasd: good until {}, for {} instead of {}: no longer than the cell's working keys \
             are sure to live",
            utc(issued.capability.expires),
            spoken(longest.as_secs()),
            spoken(wanted.lifetime.as_secs())
        );
    }
    let delegated = Delegated {
        capability: issued.capability,
        sealed: issued.sealed,
        chain: Chain::default(),
        key: issued.key,
    };
    let name = path.name().unwrap_or_default().to_vec();
    let given = match wanted.text {
        true => Given::Text(delegated),
        false => Given::Url(CapabilityUrl { address, name, delegated }),
    };
    say!("{}", given.to_text().as_str());
    Ok(())
}

fn attenuate(
    given: &Given,
    rights: RightsArguments,
    region: Option<ByteRange>,
    lifetime: Option<Duration>,
) -> Outcome {
    let delegated = given.delegated();
    let allowed = delegated.allowed()?;
    let mut narrowing = Narrowing::of(&allowed);
    if rights.read || rights.write {
        narrowing.rights = rights_of(rights)?;
        // Making durable is no right of its own to those who ask for less.
        narrowing.rights &= allowed.rights | !(Rights::GETATTR | Rights::FLUSH);
    }
    narrowing.region = region.unwrap_or(narrowing.region);
    if let Some(lifetime) = lifetime {
        let end = now().plus_ns(u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX));
        narrowing.expires = end.min(narrowing.expires);
    }
    let narrowed = delegated.narrowed(narrowing).map_err(|error| {
        format!("can't narrow the capability: {error}. It allows {}", Allowed(&allowed))
    })?;
    say!("{}", given.with(narrowed).to_text().as_str());
    Ok(())
}

fn revoke(cell: &Cell, target: &str) -> Outcome {
    let is_path = !is_url_argument(target) && CellPath::parse(target).is_some();
    let file = match is_path {
        true => file_of(cell, target)?.1,
        false => {
            let Capability { drive, partition, object, .. } =
                Given::from_argument(target)?.delegated().capability;
            FileHandle { drive, partition, object }
        }
    };
    let (manager, caller) = manager(cell)?;
    manager
        .revoke(&caller, file)
        .map_err(|error| format!("can't revoke the capabilities: {error}"))?;
    note!("nasd: no capability that was given out for this file is good any more");
    Ok(())
}

fn show(given: &Given, json: bool) -> Outcome {
    let delegated = given.delegated();
    let allowed = delegated.allowed()?;
    let Capability { drive, partition, object, region, expires, audit_id, .. } = allowed;
    let narrowings = delegated.chain.as_slice().len();
    let place = match given {
        Given::Url(url) => Some((url.address.as_str(), String::from_utf8_lossy(&url.name))),
        Given::Text(_) => None,
    };
    if json {
        return output::json(&serde_json::json!({
            "address": place.as_ref().map(|(address, _)| address),
            "name": place.as_ref().map(|(_, name)| name),
            "drive": format!("{:016x}", drive.0),
            "partition": partition.0,
            "object": object.0,
            "rights": words(allowed.rights),
            "region": { "offset": region.offset, "length": region.length },
            "expires": utc(expires),
            "expired": is_over(expires),
            "audit_id": format!("{:016x}", audit_id.0),
            "key_epoch": allowed.key_epoch,
            "narrowings": narrowings,
            "private": delegated.sealed.is_some(),
            "minimum_protection": protections(allowed.minimum_protection),
        }));
    }
    if let Some((address, name)) = place {
        say!("file       {}, at {}", printable(&name), printable(address));
    }
    say!("object     {} of partition {} on drive {:016x}", object.0, partition.0, drive.0);
    say!("allows     {}", Allowed(&allowed));
    say!("audit id   {:016x} (uid {})", audit_id.0, audit_id.0 >> 32);
    say!("protection {} at least", protections(allowed.minimum_protection).join(", "));
    say!("narrowed   {narrowings} times of {}", nasd_capability::MAX_NARROWINGS);
    if delegated.sealed.is_some() {
        say!("private    nobody on the way reads what it is for");
    }
    Ok(())
}

/// The file of a path, which must be one.
fn file_of(cell: &Cell, text: &str) -> Result<(CellPath, FileHandle), Box<dyn Error>> {
    let path = CellPath::parse(text)
        .ok_or_else(|| format!("`{text}` is no path of the cell: write VOLUME:/path"))?;
    let Connected { clerk, caller } = connect(cell, path.volume(), for_command())?;
    let entry = clerk
        .resolve(&caller, path.as_bytes(), true)
        .map_err(|error| format!("{path}: {error}"))?;
    Ok((path, entry.handle))
}

/// What a capability allows, in words.
struct Allowed<'a>(&'a Capability);

impl std::fmt::Display for Allowed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Capability { rights, region, expires, .. } = self.0;
        write!(f, "{}", words(*rights).join(", "))?;
        match region.end() {
            u64::MAX if region.offset == 0 => write!(f, " of all bytes")?,
            u64::MAX => write!(f, " of the bytes from {} on", region.offset)?,
            end => write!(f, " of the bytes from {} up to {end}", region.offset)?,
        }
        write!(f, ", until {}", utc(*expires))?;
        if is_over(*expires) { write!(f, ", which is over") } else { Ok(()) }
    }
}

/// By this machine's clock, which need not be the drive's.
fn is_over(expires: Timestamp) -> bool {
    expires != Timestamp::MAX && now() >= expires
}

pub(super) fn words(rights: Rights) -> Vec<String> {
    rights.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

fn protections(protection: Protection) -> Vec<String> {
    if protection.is_empty() {
        return vec!["none".to_owned()];
    }
    protection.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect()
}

//! What a principal holds, what it hands on of that, and what it shows of it, rightly or not.

use nasd_capability::{Capability, Chain, MAX_NARROWINGS, NarrowError, Narrowing};
use nasd_capability::{SealedCapability, SecretKey};
use nasd_protocol::{CredentialKey, Status};
use nasd_types::{ByteRange, Rights, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{OBJECTS, PEOPLE};
use crate::common::{SECOND, Signer};

/// What a principal was given, by the manager or by another principal.
#[derive(Clone)]
pub struct Held {
    pub capability: Capability,
    /// What was taken away before it came here.
    pub chain: Vec<Narrowing>,
    /// Of the last link.
    pub secret: SecretKey,
    /// With which of the test's keys it was minted.
    pub key: u8,
    pub version: u64,
    /// As the manager has sealed it, if that was asked for.
    pub sealed: Option<SealedCapability>,
}

/// What one holder leaves of what it has.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    rights: u32,
    skip: u8,
    keep: Option<u8>,
    seconds: Option<u8>,
}

/// What a holder would like the next one to have.
#[derive(Clone, Copy, Debug)]
pub enum Widening {
    Rights,
    Region,
    Life,
}

pub fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    let all = Rights::all().bits();
    // Most take little away: so that something is left at the end of a long chain.
    let rights =
        prop_oneof![8 => Just(all), 1 => (0..7_u32).prop_map(move |bit| all & !(1 << bit))];
    let skips = prop_oneof![5 => Just(0_u8), 1 => 0..6_u8];
    let keeps = prop_oneof![8 => Just(None), 1 => (30..120_u8).prop_map(Some)];
    let lives = prop_oneof![8 => Just(None), 1 => (1..60_u8).prop_map(Some)];
    let cut = (rights, skips, keeps, lives).prop_map(|(rights, skip, keep, seconds)| Cut {
        rights,
        skip,
        keep,
        seconds,
    });
    // Now and then more than there may be.
    prop_oneof![4 => vec(cut.clone(), 1..3), 2 => vec(cut, 7..=MAX_NARROWINGS + 1)]
}

pub fn widenings() -> impl Strategy<Value = Option<Widening>> {
    let wider = prop_oneof![Just(Widening::Rights), Just(Widening::Region), Just(Widening::Life)];
    prop_oneof![10 => Just(None), 1 => wider.prop_map(Some)]
}

/// What a capability allows at the end of a chain, by the words of the documents.
pub fn allowed(root: &Capability, chain: &[Narrowing]) -> Result<Capability, Status> {
    let end = |range: &ByteRange| range.offset.saturating_add(range.length);
    let mut left = *root;
    for link in chain {
        let within = link.rights - left.rights == Rights::empty()
            && link.region.offset >= left.region.offset
            && end(&link.region) <= end(&left.region)
            && link.expires <= left.expires;
        if !within {
            return Err(Status::RefusedChain);
        }
        (left.rights, left.region, left.expires) = (link.rights, link.region, link.expires);
    }
    Ok(left)
}

impl Held {
    /// What somebody else gets of it: a link for each cut, as many as there may be, the last of them
    /// widened. Nobody who has the key is kept from making that; the drive does not take it.
    pub fn handed_on(&self, cuts: &[Cut], widening: Option<Widening>, now: Timestamp) -> Held {
        let mut given = self.clone();
        for (at, cut) in cuts.iter().enumerate() {
            let last = given.chain.last().copied().unwrap_or(Narrowing::of(&given.capability));
            let mut link = cut.of(&last, now);
            match widening.filter(|_| at + 1 == cuts.len()) {
                Some(Widening::Rights) => link.rights = Rights::all(),
                Some(Widening::Region) => link.region = ByteRange::ALL,
                Some(Widening::Life) => link.expires = Timestamp::MAX,
                None => {}
            }
            let chain = Chain::new(given.chain.clone()).unwrap();
            let longer = chain.narrowed(&given.capability, link);
            let with_link = [&given.chain[..], &[link]].concat();
            match allowed(&given.capability, &with_link) {
                Err(_) => assert_eq!(longer, Err(NarrowError::Wider)),
                Ok(_) if given.chain.len() == MAX_NARROWINGS => {
                    assert_eq!(longer, Err(NarrowError::TooMany));
                }
                Ok(_) => assert_eq!(longer.unwrap().as_slice(), with_link),
            }
            if given.chain.len() == MAX_NARROWINGS {
                break;
            }
            given.secret = link.key(&given.secret);
            given.chain.push(link);
        }
        given
    }
}

impl Cut {
    fn of(&self, last: &Narrowing, now: Timestamp) -> Narrowing {
        let skip = u64::from(self.skip).min(last.region.length);
        let rest = last.region.length - skip;
        let length = self.keep.map_or(rest, |keep| rest.min(u64::from(keep)));
        let early = |seconds| now.plus_ns(u64::from(seconds) * SECOND);
        Narrowing {
            rights: last.rights & Rights::from_bits_truncate(self.rights),
            region: ByteRange::new(last.region.offset + skip, length),
            expires: self.seconds.map_or(last.expires, |seconds| last.expires.min(early(seconds))),
        }
    }
}

/// What a principal makes of the public half of what it holds.
#[derive(Clone, Copy, Debug)]
pub enum Lie {
    None,
    AllRights,
    WholeObject,
    Object(usize),
    LongerLife,
    WeakerMinimum,
    NextEpoch,
    AnotherUser,
    /// Shows the first capability of that principal, whose key it does not have.
    OfAnother(usize),
    Link(LinkLie),
}

/// What it makes of the chain.
#[derive(Clone, Copy, Debug)]
pub enum LinkLie {
    Remove(usize),
    Swap(usize, usize),
    Rights(usize),
    Region(usize),
    Life(usize),
    /// Only the first so many are shown.
    CutOff(usize),
    /// The last one once more.
    Repeat,
    /// One more than there may be.
    Ninth,
    /// The chain of the last that that principal was given.
    OfAnother(usize),
}

pub fn lies() -> impl Strategy<Value = Lie> {
    let at = || 0..MAX_NARROWINGS;
    let links = prop_oneof![
        at().prop_map(LinkLie::Remove),
        (at(), at()).prop_map(|(one, other)| LinkLie::Swap(one, other)),
        at().prop_map(LinkLie::Rights),
        at().prop_map(LinkLie::Region),
        at().prop_map(LinkLie::Life),
        at().prop_map(LinkLie::CutOff),
        Just(LinkLie::Repeat),
        Just(LinkLie::Ninth),
        (0..PEOPLE).prop_map(LinkLie::OfAnother),
    ];
    prop_oneof![
        60 => Just(Lie::None),
        1 => Just(Lie::AllRights),
        1 => Just(Lie::WholeObject),
        1 => (0..OBJECTS).prop_map(Lie::Object),
        1 => Just(Lie::LongerLife),
        1 => Just(Lie::WeakerMinimum),
        1 => Just(Lie::NextEpoch),
        1 => Just(Lie::AnotherUser),
        1 => (0..PEOPLE).prop_map(Lie::OfAnother),
        10 => links.prop_map(Lie::Link),
    ]
}

impl LinkLie {
    /// The chain that is shown in place of `chain`; `other` is another principal's.
    pub fn of(self, chain: &[Narrowing], other: &[Narrowing]) -> Vec<Narrowing> {
        let mut shown = chain.to_vec();
        let count = chain.len();
        let at = |index: usize| index % count;
        match self {
            LinkLie::OfAnother(_) => return other.to_vec(),
            _ if count == 0 => {}
            LinkLie::Remove(index) => drop(shown.remove(at(index))),
            LinkLie::Swap(one, two) => shown.swap(at(one), at(two)),
            LinkLie::Rights(index) => shown[at(index)].rights = Rights::all(),
            LinkLie::Region(index) => shown[at(index)].region = ByteRange::ALL,
            LinkLie::Life(index) => shown[at(index)].expires = Timestamp::MAX,
            LinkLie::CutOff(index) => shown.truncate(at(index)),
            LinkLie::Repeat if count < MAX_NARROWINGS => shown.push(shown[count - 1]),
            LinkLie::Repeat | LinkLie::Ninth => {}
        }
        shown
    }
}

/// The public half as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// As it is, or as the drive finds it when it opens what is sealed.
    pub capability: Capability,
    pub chain: Vec<Narrowing>,
    pub sealed: Option<SealedCapability>,
    /// Whether what is sealed was altered.
    pub is_forged: bool,
    /// Whether one narrowing more is behind it than there may be.
    pub has_ninth: bool,
}

impl Shown {
    /// Made into a request with the key of what is held.
    pub fn signer(&self, held: &Held) -> Signer {
        let chain = Chain::new(self.chain.clone()).unwrap();
        let claimed = match self.sealed {
            Some(sealed) => CredentialKey::sealed(sealed, chain),
            None => CredentialKey::narrowed(self.capability, chain),
        };
        Signer { claimed, secret: Some(held.secret.clone()) }
    }
}

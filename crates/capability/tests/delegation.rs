//! Delegation: a chain of narrowings allows what its last one says, and whoever has its key can make
//! nothing of it that allows more.

use nasd_capability::{
    CAPABILITY_BYTES, Capability, Chain, MAX_NARROWINGS, NARROWING_BYTES, NarrowError, Narrowing,
    Refusal, SealingKeys, SecretKey, capability_key, effective, narrowed_key,
};
use nasd_types::{ByteRange, Rights, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

fn working() -> SecretKey {
    SecretKey::new([3; 32])
}

/// A small world, so that what is drawn at random often is narrower, often equal, often wider.
fn narrowings() -> impl Strategy<Value = Narrowing> {
    (0..16_u32, 0..12_u64, 0..12_u64, 0..6_u64).prop_map(|(rights, offset, length, expires)| {
        let region = ByteRange::new(offset, length);
        Narrowing { rights: Rights::from_bits_retain(rights), region, expires: Timestamp(expires) }
    })
}

fn roots() -> impl Strategy<Value = Capability> {
    (any::<[u8; CAPABILITY_BYTES]>(), narrowings()).prop_map(|(bytes, allowed)| {
        let Narrowing { rights, region, expires } = allowed;
        Capability { rights, region, expires, ..Capability::from_bytes(&bytes) }
    })
}

/// A part of what `wider` allows, chosen by `by`.
fn part_of(wider: &Narrowing, by: (u32, u64, u64, u64)) -> Narrowing {
    let ByteRange { offset, length } = wider.region;
    let skipped = by.1 % (length + 1);
    Narrowing {
        rights: wider.rights & Rights::from_bits_retain(by.0),
        region: ByteRange::new(offset + skipped, by.2 % (length - skipped + 1)),
        expires: Timestamp(by.3 % (wider.expires.0 + 1)),
    }
}

/// A root, and a chain that narrows it in each link.
fn chains() -> impl Strategy<Value = (Capability, Vec<Narrowing>)> {
    (roots(), vec(any::<(u32, u64, u64, u64)>(), 1..=MAX_NARROWINGS)).prop_map(|(root, by)| {
        let mut wider = Narrowing::of(&root);
        let narrow = |by: (u32, u64, u64, u64)| {
            wider = part_of(&wider, by);
            wider
        };
        let chain = by.into_iter().map(narrow).collect();
        (root, chain)
    })
}

/// What a drive does: whether the chain stands, and which key it has.
fn keyed(root: &Capability, chain: &[Narrowing]) -> Result<SecretKey, Refusal> {
    effective(root, chain)?;
    Ok(narrowed_key(capability_key(&working(), root, 1), chain))
}

/// Each byte, right and instant that is allowed.
fn allows(allowed: &Narrowing) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
    let rights = (0..32).map(|bit| 1 << bit).filter(|bit| allowed.rights.bits() & bit != 0);
    rights.flat_map(move |right| {
        let bytes = allowed.region.offset..allowed.region.end();
        bytes.flat_map(move |byte| (0..allowed.expires.0).map(move |time| (right, byte, time)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn within_means_that_nothing_is_added(one in narrowings(), other in narrowings()) {
        let wider: std::collections::HashSet<_> = allows(&other).collect();
        if one.is_within(&other) {
            prop_assert!(allows(&one).all(|each| wider.contains(&each)));
        } else {
            // A right without bytes or time, or bytes without rights, are widenings too.
            let has_more = !other.rights.contains(one.rights)
                || one.region.offset < other.region.offset
                || one.region.end() > other.region.end()
                || one.expires > other.expires;
            prop_assert!(has_more);
        }
    }

    #[test]
    fn a_chain_stands_exactly_if_each_link_is_within_the_one_before(
        root in roots(),
        chain in vec(narrowings(), 0..=MAX_NARROWINGS + 1),
    ) {
        let before = std::iter::once(Narrowing::of(&root)).chain(chain.iter().copied());
        let stands = chain.len() <= MAX_NARROWINGS
            && chain.iter().zip(before).all(|(link, before)| link.is_within(&before));
        match effective(&root, &chain) {
            Ok(allowed) => {
                prop_assert!(stands);
                let last = chain.last().copied().unwrap_or(Narrowing::of(&root));
                prop_assert_eq!(Narrowing::of(&allowed), last);
                let Narrowing { rights, region, expires } = Narrowing::of(&root);
                let rest = Capability { rights, region, expires, ..allowed };
                prop_assert_eq!(rest, root, "only rights, region and expiry can be narrowed");
            }
            Err(refusal) => {
                prop_assert!(!stands);
                prop_assert_eq!(refusal, Refusal::Chain);
            }
        }
    }

    #[test]
    fn every_right_chain_is_made_offline_and_stands((root, links) in chains()) {
        let mut chain = Chain::default();
        let mut key = capability_key(&working(), &root, 1);
        for link in &links {
            chain = chain.narrowed(&root, *link).expect("each is within the one before");
            key = link.key(&key);
        }
        prop_assert_eq!(chain.as_slice(), &links[..]);
        prop_assert_eq!(keyed(&root, &links), Ok(key));
    }

    #[test]
    fn widening_is_refused_here_and_at_the_drive(
        (root, links) in chains(),
        wider in narrowings(),
        at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(links.len());
        let before = if at == 0 { Narrowing::of(&root) } else { links[at - 1] };
        prop_assume!(!wider.is_within(&before));
        let mut altered = links.clone();
        altered[at] = wider;
        prop_assert_eq!(keyed(&root, &altered), Err(Refusal::Chain));
        let so_far = Chain::new(links[..at].to_vec()).expect("short enough");
        prop_assert_eq!(so_far.narrowed(&root, wider), Err(NarrowError::Wider));
    }

    /// Whoever has the last key has no other chain's: not one that is cut short, with links
    /// in another order, dropped, doubled or added, even where all of them would stand.
    #[test]
    fn another_chain_has_another_key(
        (root, links) in chains(),
        swap in any::<(prop::sample::Index, prop::sample::Index)>(),
        added in narrowings(),
    ) {
        let key = keyed(&root, &links);
        prop_assert!(key.is_ok());
        let (one, other) = (swap.0.index(links.len()), swap.1.index(links.len()));
        let mut altered = Vec::new();
        altered.extend((0..links.len()).map(|end| links[..end].to_vec()));
        altered.extend((1..links.len()).map(|start| links[start..].to_vec()));
        let mut swapped = links.clone();
        swapped.swap(one, other);
        altered.push(swapped);
        let mut doubled = links.clone();
        doubled.insert(one, links[one]);
        altered.push(doubled);
        let mut dropped = links.clone();
        dropped.remove(other);
        altered.push(dropped);
        for at in 0..=links.len() {
            let mut longer = links.clone();
            longer.insert(at, added);
            altered.push(longer);
        }
        for chain in altered.into_iter().filter(|chain| *chain != links) {
            prop_assert_ne!(&keyed(&root, &chain), &key, "{:?}", chain);
        }
    }

    #[test]
    fn every_bit_of_a_chain_moves_its_key((root, links) in chains(), at in any::<prop::sample::Index>()) {
        let minted = || capability_key(&working(), &root, 1);
        let at = at.index(links.len());
        let key = narrowed_key(minted(), &links);
        for bit in 0..8 * NARROWING_BYTES {
            let mut bytes = links[at].to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut altered = links.clone();
            altered[at] = Narrowing::from_bytes(&bytes);
            prop_assert!(narrowed_key(minted(), &altered) != key, "{}", bit);
        }
    }

    #[test]
    fn narrowings_survive_their_canonical_form(bytes in any::<[u8; NARROWING_BYTES]>()) {
        prop_assert_eq!(Narrowing::from_bytes(&bytes).to_bytes(), bytes);
    }

    #[test]
    fn what_is_sealed_opens_to_the_same_and_shows_nothing(
        bytes in any::<[u8; CAPABILITY_BYTES]>(),
        key in any::<[u8; 32]>(),
        bit in 0..8 * 104_usize,
    ) {
        let keys = SealingKeys::new(&SecretKey::new(key));
        let capability = Capability::from_bytes(&bytes);
        let sealed = keys.seal(&capability);
        prop_assert_eq!(keys.open(&sealed), Some(capability));
        prop_assert_eq!(sealed, keys.seal(&capability), "no state and no chance");
        let other = SealingKeys::new(&SecretKey::new(key.map(|byte| byte ^ 1)));
        prop_assert_eq!(other.open(&sealed), None);
        let mut altered = sealed;
        match bit / 8 {
            at @ 0..4 => altered.partition.0 ^= 1 << (8 * at + bit % 8),
            at @ 4..8 => altered.key_epoch ^= 1 << (8 * (at - 4) + bit % 8),
            at @ 8..24 => altered.nonce[at - 8] ^= 1 << (bit % 8),
            at @ 24..88 => altered.sealed[at - 24] ^= 1 << (bit % 8),
            at => altered.tag[at - 88] ^= 1 << (bit % 8),
        }
        prop_assert_eq!(keys.open(&altered), None, "{}", bit);
    }
}

#[test]
fn the_ninth_narrowing_is_one_too_many() {
    let root = Capability::from_bytes(&[1; CAPABILITY_BYTES]);
    let same = Narrowing::of(&root);
    let mut chain = Chain::default();
    for _ in 0..MAX_NARROWINGS {
        chain = chain.narrowed(&root, same).expect("it takes nothing away");
    }
    assert_eq!(chain.narrowed(&root, same), Err(NarrowError::TooMany));
    assert_eq!(Chain::new(vec![same; 9]), Err(NarrowError::TooMany));
    assert_eq!(effective(&root, &[same; 9]), Err(Refusal::Chain));
}

#[test]
fn ends_do_not_run_over() {
    let narrowing = |offset, length| Narrowing {
        rights: Rights::READ,
        region: ByteRange { offset, length },
        expires: Timestamp(1),
    };
    let small = narrowing(100, 100);
    for wider in [narrowing(150, u64::MAX), narrowing(u64::MAX, u64::MAX), narrowing(u64::MAX, 0)] {
        assert!(!wider.is_within(&small), "{wider:?}");
    }
    assert!(narrowing(200, 0).is_within(&small), "nothing, at the end");
    assert!(!narrowing(201, 0).is_within(&small));
    let never = Narrowing { expires: Timestamp::MAX, ..small };
    assert!(!never.is_within(&small) && small.is_within(&never));
}

/// The layout, so that other implementations can check theirs, and nobody changes it by accident.
#[test]
fn golden_values() {
    let root = Capability::from_bytes(&std::array::from_fn(|index| index as u8));
    let link = Narrowing {
        rights: Rights::READ,
        region: ByteRange::new(0x1000, 0x2000),
        expires: Timestamp(0x1797_9d89_e8f3_7000),
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = link.key(&capability_key(&working(), &root, 5));
    assert_eq!(
        hex(key.expose()),
        "6cd6945677eed68b97aae447559a30f262446c289175c9af7cdb339d5bdf9ee7"
    );
    let sealed = SealingKeys::new(&working()).seal(&root);
    assert_eq!(hex(&sealed.nonce), "006d0e84171af3e8df5ec4c7e00bc872");
    assert_eq!(hex(&sealed.tag), "5cc9bb89caa18d2d2b6b05eb381da170");
}

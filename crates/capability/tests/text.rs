//! Capabilities as text: what is written is read, and what is not a capability is told, whatever it is.

use nasd_capability::{
    CAPABILITY_BYTES, Capability, CapabilityUrl, Chain, Delegated, MAX_NARROWINGS, NarrowError,
    Narrowing, SealingKeys, SecretKey, TEXT_PREFIX, TextError, capability_key,
};
use nasd_types::{ByteRange, Rights, Timestamp};
use proptest::prelude::*;

fn working() -> SecretKey {
    SecretKey::new([9; 32])
}

fn delegated() -> impl Strategy<Value = Delegated> {
    let capability = any::<[u8; CAPABILITY_BYTES]>();
    (capability, any::<bool>(), 0..=MAX_NARROWINGS).prop_map(|(bytes, is_sealed, count)| {
        let capability = Capability::from_bytes(&bytes);
        let sealed = is_sealed.then(|| SealingKeys::new(&working()).seal(&capability));
        let key = capability_key(&working(), &capability, 5);
        let minted = Delegated { capability, sealed, chain: Chain::default(), key };
        let narrowing = Narrowing::of(&capability);
        (0..count).fold(minted, |so_far, _| so_far.narrowed(narrowing).expect("the same"))
    })
}

fn urls() -> impl Strategy<Value = CapabilityUrl> {
    const ADDRESSES: [&str; 4] =
        ["127.0.0.1:7001", "[::1]:1", "drive-3.example:65535", "[fe80::1%eth0]:80"];
    (proptest::sample::select(&ADDRESSES[..]), any::<Vec<u8>>(), delegated()).prop_map(
        |(address, name, delegated)| CapabilityUrl { address: address.to_owned(), name, delegated },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn texts_and_urls_survive(url in urls()) {
        let text = url.delegated.to_text();
        prop_assert_eq!(Delegated::from_text(&text), Ok(url.delegated.clone()));
        prop_assert!(text.len() < 600, "{} characters", text.len());
        let written = url.to_text();
        prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(CapabilityUrl::from_text(&written), Ok(url));
    }

    #[test]
    fn an_altered_or_cut_text_is_told(
        delegated in delegated(),
        at in any::<prop::sample::Index>(),
        character in "[A-Za-z0-9_-]",
    ) {
        let text = delegated.to_text();
        let place = at.index(text.len() - TEXT_PREFIX.len()) + TEXT_PREFIX.len();
        let mut altered = text.to_string();
        altered.replace_range(place..=place, &character);
        if altered != *text {
            let error = Delegated::from_text(&altered).unwrap_err();
            prop_assert!(matches!(error, TextError::Check | TextError::Encoding), "{}", error);
        }
        let error = Delegated::from_text(&text[..place]).unwrap_err();
        prop_assert!(matches!(error, TextError::Check | TextError::Encoding), "{}", error);
        let longer = format!("{}{character}", *text);
        prop_assert!(Delegated::from_text(&longer).is_err());
    }

    #[test]
    fn nothing_that_is_typed_panics(text in "\\PC*", middle in "[ -~]*") {
        let _ = Delegated::from_text(&text);
        let _ = Delegated::from_text(&format!("{TEXT_PREFIX}{middle}"));
        let _ = CapabilityUrl::from_text(&text);
        let _ = CapabilityUrl::from_text(&format!("nasd://{middle}"));
        let _ = CapabilityUrl::from_text(&format!("nasd://host:1/{middle}#{TEXT_PREFIX}{text}"));
    }
}

fn minted() -> Delegated {
    let capability = Capability {
        rights: Rights::READ,
        region: ByteRange::new(0, 100),
        expires: Timestamp(1000),
        ..Capability::from_bytes(&[7; CAPABILITY_BYTES])
    };
    let key = capability_key(&working(), &capability, 5);
    Delegated { capability, sealed: None, chain: Chain::default(), key }
}

#[test]
fn narrowing_is_the_drives() {
    let by = Narrowing { region: ByteRange::new(10, 5), ..Narrowing::of(&minted().capability) };
    let narrowed = minted().narrowed(by).expect("within");
    assert_eq!(narrowed.key, by.key(&minted().key));
    assert_eq!(narrowed.allowed().map(|allowed| allowed.region), Ok(by.region));
    let wider = Narrowing { region: ByteRange::new(9, 6), ..by };
    assert_eq!(narrowed.narrowed(wider), Err(NarrowError::Wider));
}

#[test]
fn a_chain_that_widens_is_told_before_any_drive_is_asked() {
    let widest = Narrowing { region: ByteRange::ALL, ..Narrowing::of(&minted().capability) };
    let chain = Chain::new(vec![widest]).expect("one");
    let widened = Delegated { chain, ..minted() };
    assert_eq!(Delegated::from_text(&widened.to_text()), Err(TextError::Chain));
}

#[test]
fn urls_that_are_none_are_told() {
    let text = minted().to_text().to_string();
    let good = format!("nasd://host:7001/name#{text}");
    assert!(CapabilityUrl::from_text(&good).is_ok());
    for bad in [
        format!("https://host:7001/name#{text}"),
        format!("nasd://host/name#{text}"),
        format!("nasd://host:/name#{text}"),
        format!("nasd://host:0/name#{text}"),
        format!("nasd://host:+1/name#{text}"),
        format!("nasd://host:65536/name#{text}"),
        format!("nasd://:7001/name#{text}"),
        format!("nasd://ho st:7001/name#{text}"),
        format!("nasd://user@host:7001/name#{text}"),
        format!("nasd://host:7001/a/b#{text}"),
        format!("nasd://host:7001/%2#{text}"),
        format!("nasd://host:7001/%gg#{text}"),
        format!("nasd://host:7001#{text}"),
        "nasd://host:7001/name".to_owned(),
    ] {
        assert_eq!(CapabilityUrl::from_text(&bad), Err(TextError::Url), "{bad}");
    }
    let error = CapabilityUrl::from_text("nasd://host:7001/name#nasdcap2.AAAA");
    assert_eq!(error, Err(TextError::Prefix));
}

#[test]
fn only_the_text_shows_the_key() {
    let url =
        CapabilityUrl { address: "host:1".to_owned(), name: b"a b".to_vec(), delegated: minted() };
    let key: String = minted().key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = format!("{:?}", minted().key.expose());
    for shown in [url.to_string(), format!("{url:?}"), format!("{:?}", url.delegated)] {
        assert!(!shown.contains(&key) && !shown.contains(&bytes), "{shown}");
        assert!(!shown.contains(TEXT_PREFIX));
    }
}

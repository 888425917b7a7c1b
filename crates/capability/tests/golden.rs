//! The values of `golden-vectors.md`, which other implementations check themselves by.

use nasd_capability::{
    Capability, DigestKeys, Nonce, SecretKey, Suite, Way, capability_key, derive,
};
use nasd_types::Timestamp;

const DOCUMENT: &str = include_str!("../golden-vectors.md");

/// The bytes on the document's line `name = hexadecimal digits`.
fn golden(name: &str) -> Vec<u8> {
    let line = DOCUMENT
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))
        .unwrap_or_else(|| panic!("no line {name}"));
    let digits = line.as_bytes().chunks(2);
    let byte =
        |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    digits.map(byte).collect()
}

fn golden_nonce(name: &str) -> Nonce {
    let bytes = golden(name);
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("their length"));
    Nonce { timestamp: Timestamp(word(0)), unique: word(8) }
}

fn working_key() -> SecretKey {
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(0..).for_each(|(byte, index)| *byte = index);
    SecretKey::new(bytes)
}

fn golden_key() -> SecretKey {
    let capability =
        Capability::from_bytes(&golden("capability").try_into().expect("their length"));
    assert_eq!(capability.to_bytes().to_vec(), golden("capability"));
    assert_eq!(capability.key_epoch, 9);
    capability_key(&working_key(), &capability, 5)
}

#[test]
fn keys() {
    assert_eq!(golden_key().expose().to_vec(), golden("capability-key"));
    let derived = derive(&working_key(), "nasd golden vector", b"salt");
    assert_eq!(derived.expose().to_vec(), golden("derived"));
}

#[test]
fn digests() {
    let (asked, answered) = (golden_nonce("request-nonce"), golden_nonce("reply-nonce"));
    assert_eq!(asked.to_bytes().to_vec(), golden("request-nonce"));
    let covered: Vec<u8> = (0..170_u32).map(|i| (i % 251) as u8).collect();
    let data: Vec<u8> = (0..5000_u32).map(|i| (i * 7 % 253) as u8).collect();
    for suite in Suite::available() {
        let keys = DigestKeys::new(&golden_key(), *suite);
        let name = match suite {
            Suite::Blake3 => "blake3",
            Suite::Aegis => "aegis",
        };
        let (with_data, without): (&[&[u8]], &[&[u8]]) = (&[&data], &[]);
        let request = |data: Option<&[&[u8]]>| {
            let data = data.map(|data| keys.data(Way::Request, &asked, data));
            keys.request(&asked, &[&covered], data.as_ref()).0.to_vec()
        };
        let reply = |data: Option<&[&[u8]]>| {
            let data = data.map(|data| keys.data(Way::Reply, &answered, data));
            keys.reply(&asked, &answered, &[&covered], data.as_ref()).0.to_vec()
        };
        assert_eq!(request(None), golden(&format!("{name}-request")));
        assert_eq!(request(Some(with_data)), golden(&format!("{name}-request-with-data")));
        assert_eq!(request(Some(without)), golden(&format!("{name}-request-with-empty-data")));
        assert_eq!(reply(None), golden(&format!("{name}-reply")));
        assert_eq!(reply(Some(with_data)), golden(&format!("{name}-reply-with-data")));
    }
}

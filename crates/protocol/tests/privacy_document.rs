//! The hexadecimal examples of `docs/privacy-examples.md` are what the encoders make; and who has
//! nothing but the documents, and the ciphers, can read them.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod document;

use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::Aegis128X2;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use document::*;
use nasd_capability::{Chain, SealedCapability, SealingKeys, Suite, Way, derive};
use nasd_protocol::drive::{Procedure, Sealed, wrap_arguments, wrap_results};
use nasd_protocol::{CredentialKey, Verifier, xdr_pad};
use nasd_types::Protection;
use nasd_xdr::to_bytes;

const DOCUMENT: &str = "docs/privacy-examples.md";

const PRIVATE_DATA: Protection =
    Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA).union(Protection::PRIVACY_DATA);

/// What is encrypted of arguments and results.
const UNIT: usize = 384;
const TAG: usize = 16;

/// The parts of a message, in their order.
type Parts = Vec<(usize, &'static str)>;

fn check(name: &str, bytes: &[u8], parts: &[&[(usize, &str)]]) {
    document::check(DOCUMENT, name, &annotated(bytes, parts));
}

/// The suites by the names of their examples; of each that this processor can run.
fn suites() -> impl Iterator<Item = (Suite, &'static str)> {
    let all = [(Suite::Blake3, "blake3"), (Suite::Aegis, "aegis")];
    all.into_iter().filter(|(suite, _)| suite.is_available())
}

/// The credential of the capability, or of its sealed form, with what is said of it.
fn credential(suite: Suite, protection: &'static str, sealed: bool) -> Parts {
    let suite = match suite {
        Suite::Blake3 => "suite: BLAKE3",
        Suite::Aegis => "suite: AEGIS",
    };
    let said = |(length, meaning): &(usize, &'static str)| match *meaning {
        "suite: BLAKE3" => (*length, suite),
        "protection" => (*length, protection),
        _ => (*length, *meaning),
    };
    let plain: Parts = CAPABILITY.iter().map(said).collect();
    if !sealed {
        return plain;
    }
    let changed = [
        (4, "shown: NASD_SHOWN_SEALED"),
        (4, "sealed capability: partition"),
        (4, "key epoch"),
        (16, "nonce"),
        (64, "sealed"),
        (16, "tag"),
        (4, "narrowings: none"),
    ];
    let mut parts = plain[..6].to_vec();
    parts[1] = (4, "length of its body: 128");
    parts.extend(changed);
    parts
}

const SUB_KEYS: [(&str, &str, &str); 4] = [
    (
        "request private data",
        "nasd v1 blake3 request private data",
        "nasd v1 aegis request private data",
    ),
    ("reply private data", "nasd v1 blake3 reply private data", "nasd v1 aegis reply private data"),
    (
        "request private arguments",
        "nasd v1 blake3 request private arguments",
        "nasd v1 aegis request private arguments",
    ),
    (
        "reply private arguments",
        "nasd v1 blake3 reply private arguments",
        "nasd v1 aegis reply private arguments",
    ),
];

#[test]
fn the_keys_are_those_of_the_document() {
    let of = |context: &'static str| derive(&key(), context, &[]).expose().to_vec();
    for number in 0..2 {
        let contexts = SUB_KEYS.map(|(_, blake3, aegis)| [blake3, aegis][number]);
        let keys: Vec<u8> = contexts.iter().flat_map(|context| of(context)).collect();
        let parts = SUB_KEYS.map(|(name, ..)| (32, name));
        let name = ["example-sub-keys-blake3", "example-sub-keys-aegis"][number];
        check(name, &keys, &[&parts]);
    }
}

fn encrypted_write(suite: Suite) -> Vec<u8> {
    let call = Call::new(5, Procedure::Write, PRIVATE_DATA, suite, &write_arguments());
    Call { data: DATA, ..call }.bytes()
}

#[test]
fn an_encrypted_write_is_that_of_the_document() {
    let data: &[_] =
        &[(DATA.len(), "the data, encrypted"), (xdr_pad(DATA.len()), "padding, not covered")];
    for (suite, name) in suites() {
        let options = "protection: INTEGRITY_ARGS, INTEGRITY_DATA, PRIVACY_DATA";
        let credential = credential(suite, options, false);
        let procedure: &[_] = &[(4, "procedure: WRITE")];
        let parts = [CALL_WORDS, procedure, &credential, DATA_VERIFIER, WRITE_WORDS, data];
        check(&format!("example-encrypted-write-{name}"), &encrypted_write(suite), &parts);
    }
}

/// Zeros to the end of the unit, in words.
fn then_zeros(bytes: &[u8], parts: &[(usize, &'static str)]) -> String {
    let length: usize = parts.iter().map(|(length, _)| length).sum();
    assert!(bytes.len() == UNIT && bytes[length..].iter().all(|byte| *byte == 0));
    format!("{}and {} bytes of zeros\n", annotated(&bytes[..length], &[parts]), UNIT - length)
}

fn private_results() -> Vec<u8> {
    wrap_results(&result_bytes(Ok(read_data())))
}

#[test]
fn what_is_encrypted_is_that_of_the_document() {
    let plain = wrap_arguments(Procedure::Read.into(), &to_bytes(&read_arguments()));
    let words = [(4, "procedure: READ"), (4, "length of the arguments: 44")];
    let expected = then_zeros(&plain, &[&words[..], REGION].concat());
    document::check(DOCUMENT, "example-private-arguments", &expected);
    let results = [
        (4, "length of the results: 24"),
        (4, "status: NASD_OK"),
        (8, "logical size"),
        (8, "fs_data_modify_time"),
        (4, "length of the data"),
    ];
    let expected = then_zeros(&private_results(), &results);
    document::check(DOCUMENT, "example-private-results", &expected);
}

fn private_read(suite: Suite) -> Vec<u8> {
    Call::new(6, Procedure::Read, Protection::SUPPORTED, suite, &read_arguments()).bytes()
}

fn private_reply(suite: Suite) -> Vec<u8> {
    let keys = digest_keys(suite);
    let mut sealed = private_results();
    keys.seal_args(Way::Reply, &REPLY_NONCE, &mut sealed);
    let results = result_bytes(Ok(Sealed { sealed, data_length: DATA.len() }));
    let (data, covered) = protected(&keys, Way::Reply, &REPLY_NONCE, PRIVATE_DATA, DATA);
    let digest = keys.reply(&REQUEST_NONCE, &REPLY_NONCE, &[&results], covered.as_ref());
    let data_tag = covered.map(|data| data.tag);
    reply(6, &Verifier { nonce: REPLY_NONCE, digest, data_tag }, &results, &data)
}

#[test]
fn a_private_read_is_that_of_the_document() {
    let sealed: &[_] = &[
        (4, "length of the sealed arguments"),
        (UNIT, "procedure and arguments, encrypted"),
        (TAG, "tag"),
        (4, "length of the data: none"),
    ];
    let answered: &[_] = &[
        (4, "accept status: success"),
        (4, "status: NASD_OK, of every private call that was decrypted"),
        (4, "length of the sealed results"),
        (UNIT, "results, encrypted"),
        (TAG, "tag"),
        (4, "length of the data"),
        (DATA.len(), "the data, encrypted"),
        (xdr_pad(DATA.len()), "padding, not covered"),
    ];
    for (suite, name) in suites() {
        let options = "protection: all but PRIVACY_CAPABILITY";
        let credential = credential(suite, options, false);
        let procedure: &[_] = &[(4, "procedure: PRIVATE")];
        let parts = [CALL_WORDS, procedure, &credential, DATA_VERIFIER, sealed];
        check(&format!("example-private-call-{name}"), &private_read(suite), &parts);
        let parts = [REPLY_WORDS, DATA_VERIFIER, answered];
        check(&format!("example-private-reply-{name}"), &private_reply(suite), &parts);
    }
}

const SEALING: [(&str, &str); 3] = [
    ("nonce key", "nasd v1 sealed capability nonce"),
    ("pad key", "nasd v1 sealed capability pad"),
    ("tag key", "nasd v1 sealed capability tag"),
];

fn sealed_capability() -> SealedCapability {
    SealingKeys::new(&working_key()).seal(&capability())
}

#[test]
fn a_sealed_capability_is_that_of_the_document() {
    let SealedCapability { nonce, sealed, tag, .. } = sealed_capability();
    let keys = SEALING.map(|(_, context)| *derive(&working_key(), context, &[]).expose());
    let bytes = [
        &working_key().expose()[..],
        &keys.concat(),
        &capability().to_bytes(),
        &nonce,
        &sealed,
        &tag,
    ]
    .concat();
    let mut parts: Parts = vec![(32, "working key")];
    parts.extend(SEALING.map(|(name, _)| (32, name)));
    parts.extend([(64, "capability"), (16, "nonce"), (64, "sealed"), (16, "tag")]);
    check("example-sealed-capability", &bytes, &[&parts]);
}

fn sealed_read(suite: Suite) -> Vec<u8> {
    let protection = Protection::INTEGRITY_ARGS | Protection::PRIVACY_CAPABILITY;
    let call = Call::new(7, Procedure::Read, protection, suite, &read_arguments());
    let key = CredentialKey::sealed(sealed_capability(), Chain::default());
    Call { key, ..call }.bytes()
}

#[test]
fn a_read_with_a_sealed_capability_is_that_of_the_document() {
    for (suite, name) in suites() {
        let options = "protection: INTEGRITY_ARGS, PRIVACY_CAPABILITY";
        let credential = credential(suite, options, true);
        let procedure: &[_] = &[(4, "procedure: READ")];
        let parts = [CALL_WORDS, procedure, &credential, VERIFIER, REGION];
        check(&format!("example-sealed-read-{name}"), &sealed_read(suite), &parts);
    }
}

/// The bytes of an example, as the document has them.
fn written_down(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in block(DOCUMENT, name).lines() {
        let digits: String = line.chars().take(37).filter(|letter| *letter != ' ').collect();
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect(line)));
    }
    assert!(!bytes.is_empty(), "{name} is not there");
    bytes
}

/// Encrypted with a tag behind it, by a sub-key made of nothing but the capability's key.
fn opened(suite: Suite, is_data: bool, context: &str, nonce: &[u8], sealed: &[u8]) -> Vec<u8> {
    let sub_key = blake3::derive_key(context, key().expose());
    let (sealed, tag) = sealed.split_last_chunk::<TAG>().unwrap();
    let half: [u8; 16] = sub_key[..16].try_into().unwrap();
    let nonce: [u8; 16] = nonce.try_into().unwrap();
    match (suite, is_data) {
        (Suite::Aegis, true) => {
            Aegis128X2::<TAG>::new(&half, &nonce).decrypt(sealed, tag, &[]).unwrap()
        }
        (Suite::Aegis, false) => {
            Aegis128L::<TAG>::new(&half, &nonce).decrypt(sealed, tag, &[]).unwrap()
        }
        (Suite::Blake3, _) => {
            let mut long = [0; 24];
            long[..16].copy_from_slice(&nonce);
            let mut plain = sealed.to_vec();
            XChaCha20Poly1305::new((&sub_key).into())
                .decrypt_inout_detached(
                    &XNonce::from(long),
                    &[],
                    plain.as_mut_slice().into(),
                    tag.into(),
                )
                .unwrap();
            plain
        }
    }
}

/// Where the parts of a call lie: behind the words of its head and its credential of 88 bytes.
const CALL_NONCE: usize = 28 + 8 + 88 + 8;
/// And of a reply.
const REPLY_NONCE_AT: usize = 16 + 8;

#[test]
fn who_has_only_the_document_reads_what_is_encrypted() {
    for (suite, name) in suites() {
        let context = |what| format!("nasd v1 {name} {what}");
        // The data of the write: behind nonce, digest, data tag, and 52 bytes of arguments.
        let call = written_down(&format!("example-encrypted-write-{name}"));
        let (nonce, tag) = (&call[CALL_NONCE..][..16], &call[CALL_NONCE + 32..][..16]);
        let data = &call[CALL_NONCE + 48 + 56..][..DATA.len()];
        let sealed = [data, tag].concat();
        assert_eq!(opened(suite, true, &context("request private data"), nonce, &sealed), DATA);

        let plain = |name: &str, zeros: &str| {
            let text = block(DOCUMENT, name);
            let (_, last) = text.trim_end().rsplit_once('\n').unwrap();
            assert_eq!(last, format!("and {zeros} bytes of zeros"));
        };
        plain("example-private-arguments", "328");
        plain("example-private-results", "356");
        let call = written_down(&format!("example-private-call-{name}"));
        let sealed = &call[CALL_NONCE + 48 + 4..][..UNIT + TAG];
        let asked = opened(suite, false, &context("request private arguments"), nonce, sealed);
        let expected = wrap_arguments(Procedure::Read.into(), &to_bytes(&read_arguments()));
        assert_eq!(asked, expected);

        let reply = written_down(&format!("example-private-reply-{name}"));
        let nonce = &reply[REPLY_NONCE_AT..][..16];
        let results = &reply[REPLY_NONCE_AT + 48 + 4 + 4 + 4..];
        let told = &results[..UNIT + TAG];
        let told = opened(suite, false, &context("reply private arguments"), nonce, told);
        assert_eq!(told, private_results());
        let tag = &reply[REPLY_NONCE_AT + 32..][..16];
        let data = [&results[UNIT + TAG + 4..][..DATA.len()], tag].concat();
        assert_eq!(opened(suite, true, &context("reply private data"), nonce, &data), DATA);
    }
}

/// Digests by the hash alone, of what was sent as it was sent.
#[test]
fn who_has_only_the_document_verifies_the_digests_of_suite_0() {
    let digest = |context: &str, nonce: &[u8], message: &[&[u8]]| {
        let sub_key = blake3::derive_key(context, key().expose());
        blake3::keyed_hash(&sub_key, &[&[nonce], message].concat().concat()).as_bytes()[..16]
            .to_vec()
    };
    let length = |bytes: usize| (bytes as u64).to_be_bytes();
    let call = written_down("example-private-call-blake3");
    let (nonce, said) = (&call[CALL_NONCE..][..16], &call[CALL_NONCE + 16..][..16]);
    let tag = &call[CALL_NONCE + 32..][..16];
    // Program, version, procedure; the body of the credential; the arguments, and no data.
    let covered = [&call[16..28], &call[36..36 + 88], &call[CALL_NONCE + 48..]].concat();
    let message = [&length(covered.len())[..], &length(0), &covered, tag];
    assert_eq!(digest("nasd v1 blake3 request arguments", nonce, &message), said);

    let reply = written_down("example-private-reply-blake3");
    let (own, said) = (&reply[REPLY_NONCE_AT..][..16], &reply[REPLY_NONCE_AT + 16..][..16]);
    let tag = &reply[REPLY_NONCE_AT + 32..][..16];
    // Status, sealed results and both length words.
    let covered = &reply[REPLY_NONCE_AT + 48 + 4..][..4 + 4 + UNIT + TAG + 4];
    let message = [&length(covered.len())[..], &length(DATA.len()), nonce, covered, tag];
    assert_eq!(digest("nasd v1 blake3 reply arguments", own, &message), said);
}

/// With the hash alone, as the document says how.
#[test]
fn who_has_only_the_document_opens_and_seals_a_capability() {
    let block = written_down("example-sealed-capability");
    let (working, rest) = block.split_first_chunk::<32>().unwrap();
    let [nonce_key, pad_key, tag_key] =
        SEALING.map(|(_, context)| blake3::derive_key(context, working));
    assert_eq!(rest[..96], [nonce_key, pad_key, tag_key].concat());
    let (capability, rest) = rest[96..].split_at(64);
    let (nonce, rest) = rest.split_at(16);
    let (sealed, tag) = rest.split_at(64);
    assert_eq!(nonce, &blake3::keyed_hash(&nonce_key, capability).as_bytes()[..16]);
    let mut pad = [0; 64];
    blake3::Hasher::new_keyed(&pad_key).update(nonce).finalize_xof().fill(&mut pad);
    let padded: Vec<u8> = capability.iter().zip(pad).map(|(byte, pad)| byte ^ pad).collect();
    assert_eq!(sealed, padded);
    let (partition, epoch) = (3_u32.to_be_bytes(), 9_u32.to_be_bytes());
    let covered = [&partition[..], &epoch, nonce, sealed].concat();
    assert_eq!(tag, &blake3::keyed_hash(&tag_key, &covered).as_bytes()[..16]);
    // It is what the credentials show, behind the words before it.
    for (_, name) in suites() {
        let call = written_down(&format!("example-sealed-read-{name}"));
        let shown = [&covered[..], tag].concat();
        assert_eq!(call[28 + 8 + 20..][..104], shown, "{name}");
    }
}

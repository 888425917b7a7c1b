//! The tables and the hexadecimal examples of `specs/bulk.md` are what the encoder makes; and who has nothing but the
//! documents, a hash and the ciphers can read and prove the examples.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod document;

use std::collections::BTreeSet;

use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::Aegis128X2;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use document::*;
use nasd_capability::{CoveredData, DataTag, Digest, Nonce, Suite, Way};
use nasd_protocol::auth::MAX_CREDENTIAL_BYTES;
use nasd_protocol::bulk::{
    Asked, Fields, Kind, MAGIC, MAX_OPEN_BYTES, MAX_PLACE_BYTES, Open, Options, PACKET_BYTES,
    PROGRAM, Packet, Seal, VERSION, shown,
};
use nasd_protocol::{Credential, CredentialKey, Status};
use nasd_types::{Protection, Timestamp};

const DOCUMENT: &str = "specs/bulk.md";

const COVERED_DATA: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

/// Of the open.
const SESSION: u64 = 0x5a17_3c0f_2be1_9d44;

/// How long reads will be.
const BLOCK: u64 = 65536;

/// Of the file: that of the object.
const IDENTITY: u64 = 0x44;

/// Of a write.
const WRITTEN: [u8; 512] = [0x2a; 512];

/// An example: its name, and its text.
type Example = (String, String);

fn credential(suite: Suite, protection: Protection) -> Vec<u8> {
    Credential::new(CredentialKey::Capability(capability()), suite, protection).to_body()
}

/// How the file is.
fn told() -> Fields {
    let time = read_data().fs_data_modify_time.0;
    Fields { size: read_data().logical_size, instance: written().instance, time, ..zeros() }
}

fn zeros() -> Fields {
    Fields::default()
}

/// Data as they are sent, if a packet has any that are covered.
fn sealed(seal: &Seal<'_>, packet: &Packet, data: &[u8]) -> (Vec<u8>, Option<CoveredData>) {
    let is_covered = packet.kind.carries_data(packet.is_answer)
        && seal.protection.contains(Protection::INTEGRITY_DATA);
    let (way, nonce) = match packet.is_answer {
        false => (Way::Request, REQUEST_NONCE),
        true => (Way::Reply, REPLY_NONCE),
    };
    match is_covered {
        true => protected(seal.keys, way, &nonce, seal.protection, data),
        false => (data.to_vec(), None),
    }
}

/// A packet and its payload, protected.
fn message(mut packet: Packet, payload: &[u8], suite: Suite, protection: Protection) -> Vec<u8> {
    let (credential, keys) = (credential(suite, protection), digest_keys(suite));
    // All answers have one nonce here, so that it is that of the answer to the open.
    let shown = match packet.kind {
        Kind::Open => payload.to_vec(),
        _ => shown(&credential, &REPLY_NONCE),
    };
    let seal = Seal { shown: &shown, protection, keys: &keys };
    packet.payload = payload.len() as u64;
    let (sent, covered) = sealed(&seal, &packet, payload);
    match packet.is_answer {
        false => seal.request(&mut packet, REQUEST_NONCE, covered),
        true => seal.answer(&mut packet, REPLY_NONCE, Asked { nonce: REQUEST_NONCE }, covered),
    }
    [&packet.to_bytes()[..], &sent].concat()
}

fn opening() -> (Packet, Vec<u8>) {
    let credential = credential(Suite::Blake3, Protection::INTEGRITY_ARGS);
    let payload = Open { credential: &credential, place: &[] }.to_bytes();
    let options = (Options::READ | Options::WRITE).bits();
    let fields = Fields { offset: SESSION, length: BLOCK, options, ..zeros() };
    (Packet::request(Kind::Open, 0, 0, &fields), payload)
}

fn reading() -> Packet {
    Packet::request(Kind::Read, 1, 0, &Fields { offset: 4096, length: 65536, ..zeros() })
}

fn read() -> Packet {
    reading().answer(0, &Fields { offset: 4096, length: DATA.len() as u64, ..told() })
}

fn writing() -> Packet {
    let options = Options::DURABLE.bits();
    Packet::request(Kind::Write, 2, 0, &Fields { offset: 4608, length: 512, options, ..zeros() })
}

/// A refusal, which nothing protects.
fn refusal() -> Vec<u8> {
    let status = u64::from(u32::from(Status::RefusedSkew));
    let mut packet = reading().answer(0, &Fields { status, ..zeros() });
    packet.nonce = Nonce { timestamp: REPLY_NONCE.timestamp, unique: 0 };
    packet.to_bytes().to_vec()
}

/// The words of a packet by twos: the first, the fields, the proof.
type Meanings = [&'static str; 4];

fn packet_parts(
    front: [&'static str; 2],
    fields: Meanings,
    proof: Meanings,
) -> Vec<(usize, &'static str)> {
    front.into_iter().chain(fields).chain(proof).map(|meaning| (16, meaning)).collect()
}

const REQUEST_PROOF: Meanings = ["seal", "nonce: timestamp; unique", "digest", "tag"];

const NO_TAG: Meanings = ["seal: none", "nonce: timestamp; unique", "digest", "tag: none"];

const DATA_TAG: Meanings = ["seal: none", "nonce: timestamp; unique", "digest", "tag of the data"];

const NO_DATA_TAG: Meanings =
    ["seal: none", "nonce: timestamp; unique", "digest", "tag: none, as there are no data"];

const ENCRYPTED: Meanings = ["the fields, encrypted", "", "", ""];

fn open_examples() -> Vec<Example> {
    let (packet, payload) = opening();
    let (options, most) = (512, 16 << 20);
    let fields = Fields { offset: SESSION, length: IDENTITY, options, most, ..told() };
    let answer = packet.answer(0, &fields);
    let front = ["magic; kind: OPEN", "number; payload: 104 bytes"];
    let fields = ["status; session", "block; options: READ, WRITE", "size; instance", "time; most"];
    let parts: &[_] = &packet_parts(front, fields, NO_TAG);
    let open: &[_] = &[
        (8, "length of the credential: 88"),
        (88, "credential"),
        (8, "length of the place: it is empty"),
    ];
    let asked = message(packet, &payload, Suite::Blake3, Protection::INTEGRITY_ARGS);
    let answered = message(answer, &[], Suite::Blake3, Protection::INTEGRITY_ARGS);
    let front = ["magic; kind: OPEN, answered", "number; payload: none"];
    let fields =
        ["status: success; session", "identity; alignment", "size; instance", "time; most"];
    let answer_parts: &[_] = &packet_parts(front, fields, NO_TAG);
    vec![
        ("example-bulk-open".into(), annotated(&asked, &[parts, open])),
        ("example-bulk-open-answer".into(), annotated(&answered, &[answer_parts])),
    ]
}

const READING: [&str; 2] = ["magic; kind: READ", "number; payload: none"];
const READ: [&str; 2] = ["magic; kind: READ, answered", "number; payload: 11 bytes"];
const SAID: Meanings = ["status; offset", "length; options", "size; instance", "time; most"];
const TOLD: Meanings = ["status: success; offset", "length; 0", "size; instance", "time; 0"];

fn read_examples() -> Vec<Example> {
    let asked = message(reading(), &[], Suite::Blake3, COVERED_DATA);
    let answered = message(read(), DATA, Suite::Blake3, COVERED_DATA);
    let parts: &[_] = &packet_parts(READING, SAID, NO_DATA_TAG);
    let answer_parts: &[_] = &packet_parts(READ, TOLD, DATA_TAG);
    let data: &[_] = &[(DATA.len(), "the data")];
    vec![
        ("example-bulk-read".into(), annotated(&asked, &[parts])),
        ("example-bulk-read-answer".into(), annotated(&answered, &[answer_parts, data])),
    ]
}

fn private_examples() -> Vec<Example> {
    let proof = ["seal: tag of the fields", REQUEST_PROOF[1], "digest", NO_DATA_TAG[3]];
    let answer_proof = [proof[0], proof[1], proof[2], DATA_TAG[3]];
    let parts: &[_] = &packet_parts(READING, ENCRYPTED, proof);
    let answer_parts: &[_] = &packet_parts(READ, ENCRYPTED, answer_proof);
    let data: &[_] = &[(DATA.len(), "the data, encrypted")];
    let of = |(suite, name): (Suite, &str)| {
        let asked = message(reading(), &[], suite, Protection::SUPPORTED);
        let answered = message(read(), DATA, suite, Protection::SUPPORTED);
        let answered = annotated(&answered, &[answer_parts, data]);
        [
            (format!("example-bulk-private-read-{name}"), annotated(&asked, &[parts])),
            (format!("example-bulk-private-read-answer-{name}"), answered),
        ]
    };
    suites().flat_map(of).collect()
}

fn write_examples() -> Vec<Example> {
    let length = WRITTEN.len() as u64;
    let fields = Fields { offset: 4608, length, size: 4608 + length, ..told() };
    let answer = writing().answer(0, &fields);
    let asked = message(writing(), &WRITTEN, Suite::Blake3, COVERED_DATA);
    let answered = message(answer, &[], Suite::Blake3, COVERED_DATA);
    let said = [SAID[0], "length; options: DURABLE", SAID[2], SAID[3]];
    let front = ["magic; kind: WRITE", "number; payload: 512 bytes"];
    let parts: &[_] = &packet_parts(front, said, DATA_TAG);
    let front = ["magic; kind: WRITE, answered", "number; payload: none"];
    let answer_parts: &[_] = &packet_parts(front, TOLD, NO_DATA_TAG);
    // All of its bytes are one another's like.
    let (packet, data) = asked.split_at(PACKET_BYTES);
    assert_eq!(data, WRITTEN);
    let shown = annotated(packet, &[parts]) + "and the data: 512 bytes of 2a\n";
    vec![
        ("example-bulk-write".into(), shown),
        ("example-bulk-write-answer".into(), annotated(&answered, &[answer_parts])),
    ]
}

/// The suites by the names of their examples; of each that this processor can run.
fn suites() -> impl Iterator<Item = (Suite, &'static str)> {
    let all = [(Suite::Blake3, "blake3"), (Suite::Aegis, "aegis")];
    all.into_iter().filter(|(suite, _)| suite.is_available())
}

fn examples() -> Vec<Example> {
    let constants =
        format!("magic    {}\nprogram  {PROGRAM:#010x}\nversion  {VERSION}\n", hex(&MAGIC));
    let keys = format!(
        "working key             {}\naccess control version  {ACCESS_CONTROL_VERSION}\n\
         capability key          {}\nnonce of requests       {}\nnonce of answers        {}\n",
        hex(working_key().expose()),
        hex(key().expose()),
        hex(&REQUEST_NONCE.to_bytes()),
        hex(&REPLY_NONCE.to_bytes()),
    );
    let front = ["magic; kind: READ, answered", "number; payload: none"];
    let fields = ["status: NASD_REFUSED_SKEW; 0", "", "", ""];
    let proof = ["seal: none", "nonce: the server's clock; 0", "digest: none", "tag: none"];
    let refused = annotated(&refusal(), &[&packet_parts(front, fields, proof)]);
    let alone = [
        ("bulk-constants".into(), constants),
        ("example-bulk-keys".into(), keys),
        ("example-bulk-refusal".into(), refused),
    ];
    let groups = [open_examples(), read_examples(), private_examples(), write_examples()];
    alone.into_iter().chain(groups.into_iter().flatten()).collect()
}

fn text() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_example_of_the_document_is_what_is_sent() {
    let examples = examples();
    let wrong = examples.iter().filter(|(name, expected)| block(DOCUMENT, name) != *expected);
    let wrong: String =
        wrong.map(|(name, expected)| format!("```text {name}\n{expected}```\n")).collect();
    assert!(wrong.is_empty(), "{DOCUMENT} should have:\n{wrong}");
    // Nor is there one that nobody checks.
    let checked: BTreeSet<&str> = examples.iter().map(|(name, _)| &name[..]).collect();
    let text = text();
    for name in text.lines().filter_map(|line| line.strip_prefix("```text ")) {
        let can_run = Suite::Aegis.is_available() || !name.ends_with("aegis");
        assert!(checked.contains(name) || !can_run, "{name}");
    }
}

/// The rows of the table whose first column has this head.
fn rows(head: &str) -> Vec<Vec<String>> {
    let text = text();
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim_start_matches('|').trim_end_matches('|');
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let begin = format!("| {head} |");
    let lines = text.lines().skip_while(|line| !line.starts_with(&begin));
    let rows: Vec<_> = lines.skip(2).take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty(), "no table begins with {begin}");
    rows
}

/// A request of zeros, but for the first two words.
fn plain() -> Packet {
    Packet::request(Kind::Read, 0, 0, &zeros())
}

/// Changes what a row of the table is about.
fn change(packet: &mut Packet, name: &str) {
    let mut fields = packet.fields();
    match name {
        "kind" => packet.kind = Kind::Write,
        "number" => packet.number = !packet.number,
        "payload" => packet.payload = !packet.payload,
        "status" => fields.status = !fields.status,
        "offset" => fields.offset = !fields.offset,
        "length" => fields.length = !fields.length,
        "options" => fields.options = !fields.options,
        "size" => fields.size = !fields.size,
        "instance" => fields.instance = !fields.instance,
        "time" => fields.time = !fields.time,
        "most" => fields.most = !fields.most,
        "seal" => packet.seal = [0xff; 16],
        "nonce: timestamp" => packet.nonce.timestamp = Timestamp(!packet.nonce.timestamp.0),
        "nonce: unique" => packet.nonce.unique = !packet.nonce.unique,
        "digest" => packet.digest = Digest([0xff; 16]),
        "tag" => packet.tag = DataTag([0xff; 16]),
        other => panic!("there is no {other} in a packet"),
    }
    packet.private = fields.to_bytes();
}

#[test]
fn the_table_of_words_is_the_packet() {
    let rows = rows("word");
    let starts: Vec<usize> = rows.iter().map(|row| row[1].parse().unwrap()).collect();
    let ends = starts[1..].iter().copied().chain([PACKET_BYTES]);
    assert_eq!((starts[0], &rows[0][2][..]), (0, "magic"));
    assert_eq!(plain().to_bytes()[..8], MAGIC);
    for ((row, start), end) in rows.iter().zip(&starts).zip(ends).skip(1) {
        assert_eq!(row[0].parse::<usize>().unwrap() * 8, *start, "{row:?}");
        let plain = plain();
        let mut changed = plain.clone();
        change(&mut changed, &row[2]);
        let (plain, changed) = (plain.to_bytes(), changed.to_bytes());
        let differ: Vec<usize> =
            (0..PACKET_BYTES).filter(|at| plain[*at] != changed[*at]).collect();
        // A number of a kind differs in its last byte alone.
        let expected: Vec<usize> =
            if row[2] == "kind" { vec![15] } else { (*start..end).collect() };
        assert_eq!(differ, expected, "{row:?}");
    }
    assert_eq!(rows.len(), 17);
    let answer = plain().answer(0, &zeros());
    assert_eq!(answer.to_bytes()[8..16], (1 << 63 | Kind::Read.code()).to_be_bytes());
}

#[test]
fn the_table_of_kinds_is_that_of_the_code() {
    let expected: Vec<Vec<String>> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_uppercase();
            let procedure = kind.procedure();
            let rights: Vec<&str> = kind.rights().iter_names().map(|(name, _)| name).collect();
            let data = |is_answer| kind.carries_data(is_answer).then(|| "data".to_owned());
            let opening = (kind == Kind::Open).then(|| "authority and place".to_owned());
            vec![
                format!("`{}`", name(&kind)),
                kind.code().to_string(),
                format!("`{}` {}", name(&procedure), u32::from(procedure)),
                rights.join(", "),
                opening.or(data(false)).unwrap_or_default(),
                data(true).unwrap_or_default(),
            ]
        })
        .collect();
    let mut found = rows("kind");
    // What it does is in words.
    found.iter_mut().for_each(|row| drop(row.remove(4)));
    assert_eq!(found, expected);
}

#[test]
fn the_table_of_options_is_that_of_the_code() {
    let all = Options::all();
    let row = |(name, bit): (&str, Options)| vec![format!("`{name}`"), bit.bits().to_string()];
    let expected: Vec<_> = all.iter_names().map(row).collect();
    let found: Vec<_> = rows("option").into_iter().map(|row| row[..2].to_vec()).collect();
    assert_eq!(found, expected);
}

/// `NASD_BAD_ARGUMENT` of `BadArgument`.
fn name_of(status: Status) -> String {
    let mut name = "NASD".to_owned();
    for letter in format!("{status:?}").chars() {
        if letter.is_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[test]
fn statuses_and_limits_are_those_of_the_code() {
    for row in rows("status | name") {
        let status = Status::try_from(row[0].parse::<u32>().unwrap()).unwrap();
        assert_eq!(row[1], format!("`{}`", name_of(status)));
    }
    let limit = |name: &str, bytes: usize| vec![name.to_owned(), bytes.to_string()];
    let expected = [
        limit("packet", PACKET_BYTES),
        limit("credential", MAX_CREDENTIAL_BYTES),
        limit("place", MAX_PLACE_BYTES),
        limit("payload of an `OPEN`", MAX_OPEN_BYTES),
    ];
    assert_eq!(rows("limit"), expected);
    // What a client does is told of every refusal that has a remedy of its own.
    for row in rows("status |").iter().filter(|row| row[0] != "other") {
        for code in row[0].split(", ") {
            let status = Status::try_from(code.parse::<u32>().unwrap()).unwrap();
            assert!(status.refusal().is_some() && !status.needs_new_capability(), "{row:?}");
        }
    }
}

/// The bytes of an example, as the document has them.
fn written_down(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in block(DOCUMENT, name).lines().filter(|line| !line.starts_with("and ")) {
        let digits: String = line.chars().take(37).filter(|letter| *letter != ' ').collect();
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect(line)));
    }
    assert!(bytes.len() >= PACKET_BYTES, "{name} is not there");
    bytes
}

/// Where the proof begins, and its parts.
const SEAL_AT: usize = 96;
const NONCE_AT: usize = 112;
const DIGEST_AT: usize = 128;
const TAG_AT: usize = 144;

/// The MAC of suite 0, of that many data if any are covered.
fn digest(packet: &[u8], context: &str, before: &[u8], data: Option<(&[u8], usize)>) -> Vec<u8> {
    let is_answer = packet[8] & 0x80 != 0;
    let request_nonce: &[u8] = if is_answer { &REQUEST_NONCE.to_bytes() } else { &[] };
    let covered = [before, &packet[..NONCE_AT]].concat();
    let data_length = data.map_or(u64::MAX, |(_, length)| length as u64);
    let message = [
        &packet[NONCE_AT..DIGEST_AT],
        &(covered.len() as u64).to_be_bytes(),
        &data_length.to_be_bytes(),
        request_nonce,
        &covered,
        data.map_or(&[], |(tag, _)| tag),
    ];
    let sub_key = blake3::derive_key(context, key().expose());
    blake3::keyed_hash(&sub_key, &message.concat()).as_bytes()[..16].to_vec()
}

/// Program, version and procedure, and what is shown.
fn before_said(procedure: u8, shown: &[u8]) -> Vec<u8> {
    [b"BULK\0\0\0\x01\0\0\0", &[procedure][..], shown].concat()
}

/// What a request behind the open shows: the credential with that protection, and the nonce of the answer to the open.
fn shown_later(protection: u8) -> Vec<u8> {
    let open = written_down("example-bulk-open");
    let mut credential = open[PACKET_BYTES + 8..][..88].to_vec();
    assert_eq!(credential[8..12], [0, 0, 0, 1]);
    credential[11] = protection;
    let answer = written_down("example-bulk-open-answer");
    [&credential, &answer[NONCE_AT..DIGEST_AT]].concat()
}

#[test]
fn who_has_only_the_documents_verifies_the_digests_of_suite_0() {
    let open = written_down("example-bulk-open");
    let requests = [
        ("example-bulk-open", before_said(4, &open[PACKET_BYTES..]), None),
        ("example-bulk-read", before_said(6, &shown_later(3)), None),
        ("example-bulk-private-read-blake3", before_said(6, &shown_later(15)), None),
        ("example-bulk-write", before_said(7, &shown_later(3)), Some(512)),
    ];
    let answers = [
        ("example-bulk-open-answer", Vec::new(), None),
        ("example-bulk-read-answer", Vec::new(), Some(11)),
        ("example-bulk-private-read-answer-blake3", Vec::new(), Some(11)),
        ("example-bulk-write-answer", Vec::new(), None),
    ];
    let of = |contexts: &'static str, all| std::iter::repeat(contexts).zip(all);
    let requests = of("nasd v1 blake3 request arguments", Vec::from(requests));
    for (context, (name, before, data)) in
        requests.chain(of("nasd v1 blake3 reply arguments", Vec::from(answers)))
    {
        let packet = written_down(name);
        let data = data.map(|length| (&packet[TAG_AT..PACKET_BYTES], length));
        assert_eq!(digest(&packet, context, &before, data), packet[DIGEST_AT..TAG_AT], "{name}");
        let is_covered = packet[TAG_AT..PACKET_BYTES] != [0; 16];
        assert_eq!(is_covered, data.is_some(), "{name}");
    }
    for (name, context, data) in [
        ("example-bulk-read-answer", "nasd v1 blake3 reply data", DATA),
        ("example-bulk-write", "nasd v1 blake3 request data", &WRITTEN),
    ] {
        let packet = written_down(name);
        let sub_key = blake3::derive_key(context, key().expose());
        let covered = [&packet[NONCE_AT..DIGEST_AT], data].concat();
        let tag = blake3::keyed_hash(&sub_key, &covered);
        assert_eq!(tag.as_bytes()[..16], packet[TAG_AT..PACKET_BYTES], "{name}");
    }
}

/// Decrypts by a sub-key made of nothing but the capability's key.
fn opened(suite: Suite, is_data: bool, context: &str, packet: &[u8], sealed: &[u8]) -> Vec<u8> {
    let sub_key = blake3::derive_key(context, key().expose());
    let half: [u8; 16] = sub_key[..16].try_into().unwrap();
    let nonce: [u8; 16] = packet[NONCE_AT..DIGEST_AT].try_into().unwrap();
    let tag = if is_data { &packet[TAG_AT..][..16] } else { &packet[SEAL_AT..][..16] };
    let tag: [u8; 16] = tag.try_into().unwrap();
    match (suite, is_data) {
        (Suite::Aegis, true) => Aegis128X2::new(&half, &nonce).decrypt(sealed, &tag, &[]).unwrap(),
        (Suite::Aegis, false) => Aegis128L::new(&half, &nonce).decrypt(sealed, &tag, &[]).unwrap(),
        (Suite::Blake3, _) => {
            let mut long = [0; 24];
            long[..16].copy_from_slice(&nonce);
            let mut plain = sealed.to_vec();
            let cipher = XChaCha20Poly1305::new((&sub_key).into());
            let (nonce, tag) = (XNonce::from(long), (&tag).into());
            cipher.decrypt_inout_detached(&nonce, &[], plain.as_mut_slice().into(), tag).unwrap();
            plain
        }
    }
}

#[test]
fn who_has_only_the_documents_reads_what_is_encrypted() {
    for (suite, name) in suites() {
        let context = |what| format!("nasd v1 {name} {what}");
        let asked = written_down(&format!("example-bulk-private-read-{name}"));
        let said = &asked[32..SEAL_AT];
        let said = opened(suite, false, &context("request private arguments"), &asked, said);
        assert_eq!(said, written_down("example-bulk-read")[32..SEAL_AT]);

        let answered = written_down(&format!("example-bulk-private-read-answer-{name}"));
        let told = &answered[32..SEAL_AT];
        let told = opened(suite, false, &context("reply private arguments"), &answered, told);
        assert_eq!(told, written_down("example-bulk-read-answer")[32..SEAL_AT]);
        let data = &answered[PACKET_BYTES..];
        let data = opened(suite, true, &context("reply private data"), &answered, data);
        assert_eq!(data, DATA);
    }
}

#[test]
fn the_examples_decode_to_what_was_meant() {
    let packet = |name: &str| {
        let bytes = written_down(name);
        let packet = Packet::from_bytes(bytes.first_chunk().unwrap()).unwrap();
        (packet, bytes[PACKET_BYTES..].to_vec())
    };
    let (open, payload) = packet("example-bulk-open");
    assert_eq!((open.kind, open.payload), (Kind::Open, payload.len() as u64));
    let shown = Open::from_bytes(&payload).unwrap();
    assert_eq!(shown.place, []);
    assert_eq!(shown.credential, credential(Suite::Blake3, Protection::INTEGRITY_ARGS));

    assert_eq!((open.fields().offset, open.fields().length), (SESSION, BLOCK));

    let (answer, data) = packet("example-bulk-open-answer");
    let Fields { offset, length, options, most, .. } = answer.fields();
    assert_eq!((answer.payload, data.len()), (0, 0));
    assert_eq!((offset, length, options, most), (SESSION, IDENTITY, 512, 16 << 20));

    let (answer, data) = packet("example-bulk-read-answer");
    let keys = digest_keys(Suite::Blake3);
    let seal = Seal { shown: &[], protection: COVERED_DATA, keys: &keys };
    let asked = Asked { nonce: REQUEST_NONCE };
    let told = seal.open_answer(&answer, asked).unwrap();
    assert_eq!((told.failure(), told.offset, told.length), (None, 4096, 11));
    let covered = seal.covered_data(&answer).unwrap();
    assert_eq!(keys.data(Way::Reply, &REPLY_NONCE, &[&data]), covered);

    let (refusal, data) = packet("example-bulk-refusal");
    assert_eq!(refusal.fields().failure(), Some(Status::RefusedSkew));
    assert_eq!((refusal.digest, data.len()), (Digest::ZERO, 0));
    assert!(seal.open_answer(&refusal, asked).is_err());
}

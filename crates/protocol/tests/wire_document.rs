//! The hexadecimal examples of `docs/wire-protocol.md` are what the encoders make, and what the
//! decoders take apart. A block that differs is printed as it should be.

mod document;

use document::*;
use nasd_capability::{CoveredData, DigestKeys, SealedKey, SecretKey, Suite, Way, procedure_bytes};
use nasd_protocol::drive::{
    self, PartitionKey, Procedure, SetpartitionkeyArguments, WriteArguments,
};
use nasd_protocol::{Credential, CredentialKey, Status, Verifier, decode_result, xdr_pad};
use nasd_rpc::{CallHead, OpaqueAuth, RecordMark, ReplyHead};
use nasd_types::Protection;
use nasd_xdr::{Decoder, XdrDecode, XdrEncode};

const DOCUMENT: &str = "docs/wire-protocol.md";

fn check(name: &str, expected: &str) {
    document::check(DOCUMENT, name, expected);
}

fn partition_key() -> SecretKey {
    SecretKey::new(std::array::from_fn(|index| 0x20 + index as u8))
}

/// The working key on its way.
fn sealed_key() -> SealedKey {
    SealedKey::seal(
        &working_key(),
        &partition_key(),
        std::array::from_fn(|index| 0xa0 + index as u8),
    )
}

/// A successful reply with a digest that does not cover its data.
fn proved_reply(xid: u32, results: &[u8], data: &[u8]) -> Vec<u8> {
    let digest = digest_keys(Suite::Blake3).reply(&REQUEST_NONCE, &REPLY_NONCE, &[results], None);
    reply(xid, &Verifier::plain(REPLY_NONCE, digest), results, data)
}

fn inquiry_call() -> Vec<u8> {
    let head = CallHead {
        xid: 1,
        program: drive::PROGRAM,
        version: drive::VERSION,
        procedure: drive::Procedure::Inquiry.into(),
        credential: OpaqueAuth::NONE,
        verifier: OpaqueAuth::NONE,
    };
    record(|out| head.encode(out), &[])
}

fn read_call() -> Vec<u8> {
    let protection = Protection::INTEGRITY_ARGS;
    Call::new(2, Procedure::Read, protection, Suite::Blake3, &read_arguments()).bytes()
}

fn write_call() -> Vec<u8> {
    let protection = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    let call = Call::new(3, Procedure::Write, protection, Suite::Blake3, &write_arguments());
    Call { data: DATA, ..call }.bytes()
}

#[test]
fn keys_are_those_of_the_document() {
    let expected = format!(
        "working key             {}\naccess control version  {ACCESS_CONTROL_VERSION}\n\
         capability key          {}\n",
        hex(working_key().expose()),
        hex(key().expose()),
    );
    check("example-keys", &expected);
}

#[test]
fn an_inquiry_is_that_of_the_document() {
    let procedure: &[_] = &[(4, "procedure: INQUIRY")];
    check("example-inquiry-call", &annotated(&inquiry_call(), &[CALL_WORDS, procedure, NO_AUTH]));
}

#[test]
fn a_read_is_that_of_the_document() {
    let parts = [CALL_WORDS, &[(4, "procedure: READ")], CAPABILITY, VERIFIER, REGION];
    check("example-read-call", &annotated(&read_call(), &parts));

    let results = result_bytes(Ok(read_data()));
    let bytes = proved_reply(2, &results, DATA);
    let rest: &[_] = &[
        (4, "accept status: success"),
        (4, "status: NASD_OK"),
        (8, "logical size"),
        (8, "fs_data_modify_time"),
        (4, "length of the data"),
        (DATA.len(), "the data, not covered by the digest"),
        (xdr_pad(DATA.len()), "padding"),
    ];
    check("example-read-reply", &annotated(&bytes, &[REPLY_WORDS, VERIFIER, rest]));
}

#[test]
fn a_write_is_that_of_the_document() {
    let data: &[_] = &[
        (DATA.len(), "the data, covered by the data tag"),
        (xdr_pad(DATA.len()), "padding, not covered"),
    ];
    let procedure: &[_] = &[(4, "procedure: WRITE")];
    let parts = [CALL_WORDS, procedure, CAPABILITY, DATA_VERIFIER, WRITE_WORDS, data];
    check("example-write-call", &annotated(&write_call(), &parts));

    let bytes = proved_reply(3, &result_bytes(Ok(written())), &[]);
    let rest: &[_] = &[
        (4, "accept status: success"),
        (4, "status: NASD_OK"),
        (8, "instance"),
        (8, "bytes written"),
        (8, "logical size"),
        (8, "fs_data_modify_time"),
    ];
    check("example-write-reply", &annotated(&bytes, &[REPLY_WORDS, VERIFIER, rest]));
}

#[test]
fn a_refusal_is_that_of_the_document() {
    let verifier = Verifier { nonce: REPLY_NONCE, ..Verifier::NONE };
    let refused = result_bytes::<()>(Err(Status::RefusedSkew));
    let bytes = reply(2, &verifier, &refused, &[]);
    let rest: &[_] = &[(4, "accept status: success"), (4, "status: NASD_REFUSED_SKEW")];
    check("example-refusal", &annotated(&bytes, &[REPLY_WORDS, VERIFIER, rest]));
}

#[test]
fn a_sealed_key_is_that_of_the_document() {
    let value = sealed_key();
    let expected = format!(
        "partition key           {}\nnew working key         {}\nsalt                    {}\n\
         sealed                  {}\ntag                     {}\n",
        hex(partition_key().expose()),
        hex(working_key().expose()),
        hex(&value.salt),
        hex(&value.sealed),
        hex(&value.tag),
    );
    check("example-sealed-key", &expected);

    let arguments = SetpartitionkeyArguments {
        partition: OBJECT.partition,
        which: PartitionKey::Current,
        epoch: 9,
        value,
    };
    let protection = Protection::INTEGRITY_ARGS;
    let call = Call::new(4, Procedure::Setpartitionkey, protection, Suite::Blake3, &arguments);
    let key = CredentialKey::Partition(OBJECT.partition);
    let keys = DigestKeys::new(&partition_key(), Suite::Blake3);
    let bytes = Call { key, keys, ..call }.bytes();
    let credential: &[_] = &[
        (4, "procedure: SETPARTITIONKEY"),
        (4, "credential: flavor NASD"),
        (4, "length of its body: 20"),
        (4, "key: NASD_KEY_PARTITION"),
        (4, "suite: BLAKE3"),
        (4, "protection"),
        (4, "key partition"),
        (4, "shown: NASD_SHOWN_NOTHING"),
    ];
    let rest: &[_] = &[
        (4, "partition"),
        (4, "which: NASD_PARTITION_CURRENT"),
        (4, "epoch"),
        (16, "value: salt"),
        (32, "sealed"),
        (16, "tag"),
    ];
    let expected = annotated(&bytes, &[CALL_WORDS, credential, VERIFIER, rest]);
    check("example-setpartitionkey-call", &expected);
    assert_eq!(value.open(&partition_key()), Some(working_key()));
}

#[test]
fn the_examples_decode_to_what_was_meant() {
    let bytes = write_call();
    let mark = RecordMark { last: true, length: bytes.len() as u32 - 4 };
    assert_eq!(bytes[..4], mark.to_bytes());
    let mut input = Decoder::new(&bytes[4..]);
    let head = CallHead::decode(&mut input).unwrap();
    let credential = Credential::from_opaque(&head.credential).unwrap();
    assert_eq!(credential.key.capability(), Some(&capability()));
    let verifier = Verifier::from_opaque(&head.verifier).unwrap();
    let start = input.position();
    let arguments = WriteArguments::decode(&mut input).unwrap();
    assert_eq!(arguments, write_arguments());
    // What a drive does: the digest over the very bytes that came.
    let selector = procedure_bytes(head.program, head.version, head.procedure);
    let covered = [&selector[..], head.credential.body, input.since(start)];
    let data = input.opaque_fixed::<11>().unwrap();
    assert_eq!((&data[..], input.remaining()), (DATA, 0));
    // The digest first, and then the data, against what was announced of them.
    let length = arguments.data_length as u64;
    let announced = CoveredData { length, tag: verifier.data_tag.unwrap() };
    let digest = digest_keys(Suite::Blake3).request(&verifier.nonce, &covered, Some(&announced));
    assert_eq!(digest, verifier.digest);
    assert_eq!(digest_keys(Suite::Blake3).data(Way::Request, &verifier.nonce, &[&data]), announced);

    let results = result_bytes(Ok(read_data()));
    let bytes = proved_reply(2, &results, DATA);
    let mut input = Decoder::new(&bytes[4..]);
    let head = ReplyHead::decode(&mut input).unwrap();
    let verifier = Verifier::from_opaque(&head.success().unwrap()).unwrap();
    let start = input.position();
    assert_eq!(decode_result(&mut input), Ok(Ok::<_, Status>(read_data())));
    let digest = digest_keys(Suite::Blake3).reply(
        &REQUEST_NONCE,
        &verifier.nonce,
        &[input.since(start)],
        None,
    );
    assert_eq!(digest, verifier.digest);
}

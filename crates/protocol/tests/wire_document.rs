//! The hexadecimal examples of `docs/wire-protocol.md` are what the encoders make, and what the
//! decoders take apart. A block that differs is printed as it should be.

use nasd_capability::{
    Capability, CoveredData, DigestKeys, Nonce, SealedKey, SecretKey, Suite, Way, capability_key,
    procedure_bytes,
};
use nasd_protocol::drive::{
    self, PartitionKey, ReadArguments, ReadData, SetpartitionkeyArguments, WriteArguments, Written,
};
use nasd_protocol::{
    AUTH_FLAVOR, Credential, CredentialKey, Status, Verifier, decode_result, encode_result, xdr_pad,
};
use nasd_rpc::{
    AcceptStatus, CallHead, OpaqueAuth, RecordMark, ReplyBody, ReplyHead, begin_record, seal_record,
};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights, Timestamp,
};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, to_bytes};

const DOCUMENT: &str = "docs/wire-protocol.md";

const OBJECT: ObjectName = ObjectName { partition: PartitionId(3), object: ObjectId(0x44) };

const ACCESS_CONTROL_VERSION: u64 = 5;

const REQUEST_NONCE: Nonce =
    Nonce { timestamp: Timestamp(0x1797_9cfe_362a_0000), unique: 0xabcd_ef01_2300_002a };

const REPLY_NONCE: Nonce =
    Nonce { timestamp: Timestamp(0x1797_9cfe_362b_86a0), unique: 0x1122_3344_5500_0007 };

const DATA: &[u8] = b"hello, disk";

/// Mark, xid, message type, RPC version, program, version, procedure.
const CALL_WORDS: &[(usize, &str)] = &[
    (4, "record mark: last fragment, and its length"),
    (4, "xid"),
    (4, "message type: call"),
    (4, "RPC version"),
    (4, "program"),
    (4, "version"),
];

const NO_AUTH: &[(usize, &str)] =
    &[(8, "credential: AUTH_NONE, empty"), (8, "verifier: AUTH_NONE, empty")];

const CAPABILITY: &[(usize, &str)] = &[
    (4, "credential: flavor NASD"),
    (4, "length of its body: 88"),
    (4, "key: NASD_KEY_CAPABILITY"),
    (4, "suite: BLAKE3"),
    (4, "protection"),
    (4, "key partition: 0 with a capability"),
    (4, "shown: NASD_SHOWN_CAPABILITY"),
    (8, "capability: drive"),
    (4, "partition"),
    (8, "object"),
    (8, "region offset"),
    (8, "region length"),
    (4, "rights: READ, WRITE, GETATTR"),
    (8, "expires"),
    (8, "audit identifier"),
    (4, "minimum protection: INTEGRITY_ARGS"),
    (4, "key epoch"),
    (4, "narrowings: none"),
];

const VERIFIER: &[(usize, &str)] = &[
    (4, "verifier: flavor NASD"),
    (4, "length of its body: 32"),
    (8, "nonce: timestamp"),
    (8, "unique"),
    (16, "digest"),
];

const DATA_VERIFIER: &[(usize, &str)] = &[
    (4, "verifier: flavor NASD"),
    (4, "length of its body: 48, as the data are covered"),
    (8, "nonce: timestamp"),
    (8, "unique"),
    (16, "digest"),
    (16, "data tag"),
];

const REPLY_WORDS: &[(usize, &str)] = &[
    (4, "record mark: last fragment, and its length"),
    (4, "xid"),
    (4, "message type: reply"),
    (4, "accepted"),
];

const REGION: &[(usize, &str)] = &[
    (4, "partition"),
    (8, "object"),
    (4, "regions: one"),
    (8, "offset"),
    (8, "length"),
    (8, "stride"),
    (4, "count"),
];

fn working_key() -> SecretKey {
    SecretKey::new(std::array::from_fn(|index| index as u8))
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

fn capability() -> Capability {
    Capability {
        drive: DriveId(0x0102_0304_0506_0708),
        partition: OBJECT.partition,
        object: OBJECT.object,
        region: ByteRange { offset: 0, length: 0x10_0000 },
        rights: Rights::READ | Rights::WRITE | Rights::GETATTR,
        expires: REQUEST_NONCE.timestamp.plus_ns(600 * Timestamp::SECOND_NS),
        audit_id: AuditId(0xa0d17),
        minimum_protection: Protection::INTEGRITY_ARGS,
        key_epoch: 9,
    }
}

fn digest_keys() -> DigestKeys {
    let key = capability_key(&working_key(), &capability(), ACCESS_CONTROL_VERSION);
    DigestKeys::new(&key, Suite::Blake3)
}

/// A record of `head`, then `data` and its padding, as a transport sends it.
fn record(head: impl FnOnce(&mut Encoder), data: &[u8]) -> Vec<u8> {
    let mut out = begin_record(256);
    head(&mut out);
    let mut record = out.into_bytes();
    let pad = xdr_pad(data.len());
    seal_record(&mut record, data.len() + pad).expect("examples are short");
    record.extend_from_slice(data);
    record.extend_from_slice(&[0; 3][..pad]);
    record
}

/// A call by the capability, protected as asked.
fn call(
    xid: u32,
    procedure: drive::Procedure,
    protection: Protection,
    arguments: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let key = CredentialKey::Capability(capability());
    call_by(key, &digest_keys(), xid, procedure, protection, arguments, data)
}

/// A call by any key.
fn call_by(
    key: CredentialKey,
    keys: &DigestKeys,
    xid: u32,
    procedure: drive::Procedure,
    protection: Protection,
    arguments: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let credential = Credential::new(key, Suite::Blake3, protection).to_body();
    let selector = procedure_bytes(drive::PROGRAM, drive::VERSION, procedure.into());
    let covered = [&selector[..], &credential, arguments];
    let covers_data = protection.contains(Protection::INTEGRITY_DATA);
    let data_tag = covers_data.then(|| keys.data(Way::Request, &REQUEST_NONCE, &[data]));
    let digest = keys.request(&REQUEST_NONCE, &covered, data_tag.as_ref());
    let data_tag = data_tag.map(|data| data.tag);
    let verifier = Verifier { nonce: REQUEST_NONCE, digest, data_tag }.to_body();
    let head = CallHead {
        xid,
        program: drive::PROGRAM,
        version: drive::VERSION,
        procedure: procedure.into(),
        credential: OpaqueAuth { flavor: AUTH_FLAVOR, body: &credential },
        verifier: OpaqueAuth { flavor: AUTH_FLAVOR, body: &verifier },
    };
    let encode = |out: &mut Encoder| {
        head.encode(out);
        out.opaque_fixed(arguments);
    };
    record(encode, data)
}

fn reply(xid: u32, verifier: &Verifier, results: &[u8], data: &[u8]) -> Vec<u8> {
    let body = verifier.to_body();
    let verifier = OpaqueAuth { flavor: AUTH_FLAVOR, body: &body };
    let status = AcceptStatus::Success;
    let head = ReplyHead { xid, body: ReplyBody::Accepted { verifier, status } };
    let encode = |out: &mut Encoder| {
        head.encode(out);
        out.opaque_fixed(results);
    };
    record(encode, data)
}

/// A successful reply with a digest that does not cover its data.
fn proved_reply(xid: u32, results: &[u8], data: &[u8]) -> Vec<u8> {
    let digest = digest_keys().reply(&REQUEST_NONCE, &REPLY_NONCE, &[results], None);
    reply(xid, &Verifier::plain(REPLY_NONCE, digest), results, data)
}

fn result_bytes<T: XdrEncode>(result: Result<T, Status>) -> Vec<u8> {
    let mut out = Encoder::new();
    encode_result(&result, &mut out);
    out.into_bytes()
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

fn read_arguments() -> ReadArguments {
    ReadArguments::single(OBJECT, 4096, 65536)
}

fn read_call() -> Vec<u8> {
    let arguments = to_bytes(&read_arguments());
    call(2, drive::Procedure::Read, Protection::INTEGRITY_ARGS, &arguments, &[])
}

fn read_data() -> ReadData {
    ReadData {
        logical_size: 4096 + DATA.len() as u64,
        fs_data_modify_time: Timestamp(0x1797_9cfe_0000_0000),
        data_length: DATA.len(),
    }
}

fn write_arguments() -> WriteArguments {
    WriteArguments::single(OBJECT, 4096, DATA.len(), false)
}

fn write_call() -> Vec<u8> {
    let protection = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    let arguments = to_bytes(&write_arguments());
    call(3, drive::Procedure::Write, protection, &arguments, DATA)
}

fn written() -> Written {
    Written {
        instance: 0x77,
        length: DATA.len() as u64,
        logical_size: read_data().logical_size,
        fs_data_modify_time: read_data().fs_data_modify_time,
    }
}

/// `bytes` in lines of at most 16, each with its meaning at the first of its lines.
fn annotated(bytes: &[u8], parts: &[&[(usize, &str)]]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    for (length, meaning) in parts.iter().flat_map(|part| part.iter()) {
        let (field, after) = rest.split_at(*length);
        rest = after;
        for (index, line) in field.chunks(16).enumerate() {
            let words: Vec<String> = line
                .chunks(4)
                .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
                .collect();
            let meaning = if index == 0 { *meaning } else { "" };
            text.push_str(format!("{:<37}{meaning}", words.join(" ")).trim_end());
            text.push('\n');
        }
    }
    assert_eq!(rest, &[] as &[u8], "bytes without a meaning");
    text
}

/// Checks that the document has this block under ```` ```text NAME ````.
fn check(name: &str, expected: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    let document = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let opening = format!("```text {name}\n");
    let block = document
        .split_once(&opening)
        .and_then(|(_, rest)| rest.split_once("```"))
        .map_or("", |(block, _)| block);
    assert_eq!(block, expected, "{DOCUMENT} should have:\n{opening}{expected}```\n");
}

#[test]
fn keys_are_those_of_the_document() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = capability_key(&working_key(), &capability(), ACCESS_CONTROL_VERSION);
    let expected = format!(
        "working key             {}\naccess control version  {ACCESS_CONTROL_VERSION}\n\
         capability key          {}\n",
        hex(working_key().expose()),
        hex(key.expose()),
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
    let arguments: &[_] = &[
        (4, "partition"),
        (8, "object"),
        (4, "durable: no"),
        (4, "regions: one"),
        (8, "offset"),
        (8, "length"),
        (8, "stride"),
        (4, "count"),
        (4, "length of the data"),
        (DATA.len(), "the data, covered by the data tag"),
        (xdr_pad(DATA.len()), "padding, not covered"),
    ];
    let parts = [CALL_WORDS, &[(4, "procedure: WRITE")], CAPABILITY, DATA_VERIFIER, arguments];
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
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
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
    let bytes = call_by(
        CredentialKey::Partition(OBJECT.partition),
        &DigestKeys::new(&partition_key(), Suite::Blake3),
        4,
        drive::Procedure::Setpartitionkey,
        Protection::INTEGRITY_ARGS,
        &to_bytes(&arguments),
        &[],
    );
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
    let digest = digest_keys().request(&verifier.nonce, &covered, Some(&announced));
    assert_eq!(digest, verifier.digest);
    assert_eq!(digest_keys().data(Way::Request, &verifier.nonce, &[&data]), announced);

    let results = result_bytes(Ok(read_data()));
    let bytes = proved_reply(2, &results, DATA);
    let mut input = Decoder::new(&bytes[4..]);
    let head = ReplyHead::decode(&mut input).unwrap();
    let verifier = Verifier::from_opaque(&head.success().unwrap()).unwrap();
    let start = input.position();
    assert_eq!(decode_result(&mut input), Ok(Ok::<_, Status>(read_data())));
    let digest = digest_keys().reply(&REQUEST_NONCE, &verifier.nonce, &[input.since(start)], None);
    assert_eq!(digest, verifier.digest);
}

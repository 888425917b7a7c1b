//! What the examples of the documents are made of, and how they are written there.
#![allow(dead_code, reason = "each test file uses its part")]

use nasd_capability::{
    Capability, CoveredData, DigestKeys, Nonce, SecretKey, Suite, Way, capability_key,
    procedure_bytes,
};
use nasd_protocol::drive::{
    self, Procedure, ReadArguments, ReadData, Sealed, WriteArguments, Written, wrap_arguments,
};
use nasd_protocol::{
    AUTH_FLAVOR, Credential, CredentialKey, Status, Verifier, encode_result, xdr_pad,
};
use nasd_rpc::{
    AcceptStatus, CallHead, OpaqueAuth, ReplyBody, ReplyHead, begin_record, seal_record,
};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights, Timestamp,
};
use nasd_xdr::{Encoder, XdrEncode, to_bytes};

pub const OBJECT: ObjectName = ObjectName { partition: PartitionId(3), object: ObjectId(0x44) };

pub const ACCESS_CONTROL_VERSION: u64 = 5;

pub const REQUEST_NONCE: Nonce =
    Nonce { timestamp: Timestamp(0x1797_9cfe_362a_0000), unique: 0xabcd_ef01_2300_002a };

pub const REPLY_NONCE: Nonce =
    Nonce { timestamp: Timestamp(0x1797_9cfe_362b_86a0), unique: 0x1122_3344_5500_0007 };

pub const DATA: &[u8] = b"hello, disk";

/// Mark, xid, message type, RPC version, program, version, procedure.
pub const CALL_WORDS: &[(usize, &str)] = &[
    (4, "record mark: last fragment, and its length"),
    (4, "xid"),
    (4, "message type: call"),
    (4, "RPC version"),
    (4, "program"),
    (4, "version"),
];

/// Arguments of a write to one region, up to its data.
pub const WRITE_WORDS: &[(usize, &str)] = &[
    (4, "partition"),
    (8, "object"),
    (4, "durable: no"),
    (4, "order: none"),
    (4, "regions: one"),
    (8, "offset"),
    (8, "length"),
    (8, "stride"),
    (4, "count"),
    (4, "length of the data"),
];

pub const NO_AUTH: &[(usize, &str)] =
    &[(8, "credential: AUTH_NONE, empty"), (8, "verifier: AUTH_NONE, empty")];

pub const CAPABILITY: &[(usize, &str)] = &[
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

pub const VERIFIER: &[(usize, &str)] = &[
    (4, "verifier: flavor NASD"),
    (4, "length of its body: 32"),
    (8, "nonce: timestamp"),
    (8, "unique"),
    (16, "digest"),
];

pub const DATA_VERIFIER: &[(usize, &str)] = &[
    (4, "verifier: flavor NASD"),
    (4, "length of its body: 48, as the data are covered"),
    (8, "nonce: timestamp"),
    (8, "unique"),
    (16, "digest"),
    (16, "data tag"),
];

pub const REPLY_WORDS: &[(usize, &str)] = &[
    (4, "record mark: last fragment, and its length"),
    (4, "xid"),
    (4, "message type: reply"),
    (4, "accepted"),
];

pub const REGION: &[(usize, &str)] = &[
    (4, "partition"),
    (8, "object"),
    (4, "order: none"),
    (4, "regions: one"),
    (8, "offset"),
    (8, "length"),
    (8, "stride"),
    (4, "count"),
];

pub fn working_key() -> SecretKey {
    SecretKey::new(std::array::from_fn(|index| index as u8))
}

pub fn capability() -> Capability {
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

pub fn digest_keys(suite: Suite) -> DigestKeys {
    DigestKeys::new(&key(), suite)
}

/// The capability's.
pub fn key() -> SecretKey {
    capability_key(&working_key(), &capability(), ACCESS_CONTROL_VERSION)
}

/// A record of `head`, then `data` and its padding, as a transport sends it.
pub fn record(head: impl FnOnce(&mut Encoder), data: &[u8]) -> Vec<u8> {
    let mut out = begin_record(256);
    head(&mut out);
    let mut record = out.into_bytes();
    let pad = xdr_pad(data.len());
    seal_record(&mut record, data.len() + pad).expect("examples are short");
    record.extend_from_slice(data);
    record.extend_from_slice(&[0; 3][..pad]);
    record
}

/// A call, protected as asked.
pub struct Call<'a> {
    pub key: CredentialKey,
    pub keys: DigestKeys,
    pub suite: Suite,
    pub xid: u32,
    pub procedure: Procedure,
    pub protection: Protection,
    pub arguments: Vec<u8>,
    pub data: &'a [u8],
}

impl<'a> Call<'a> {
    /// By the capability.
    pub fn new(
        xid: u32,
        procedure: Procedure,
        protection: Protection,
        suite: Suite,
        arguments: &impl XdrEncode,
    ) -> Call<'a> {
        let key = CredentialKey::Capability(capability());
        let (keys, arguments) = (digest_keys(suite), to_bytes(arguments));
        Call { key, keys, suite, xid, procedure, protection, arguments, data: &[] }
    }

    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let Call { keys, protection, .. } = self;
        let is_private = protection.contains(Protection::PRIVACY_ARGS);
        let mut arguments = self.arguments.clone();
        let mut procedure = self.procedure;
        if is_private {
            let mut sealed = wrap_arguments(procedure.into(), &arguments);
            keys.seal_args(Way::Request, &REQUEST_NONCE, &mut sealed);
            arguments = to_bytes(&Sealed { sealed, data_length: self.data.len() });
            procedure = Procedure::Private;
        }
        let has_data = is_private || procedure == Procedure::Write;
        let (data, covered) = match has_data && protection.contains(Protection::INTEGRITY_DATA) {
            true => protected(keys, Way::Request, &REQUEST_NONCE, *protection, self.data),
            false => (self.data.to_vec(), None),
        };
        let credential = Credential::new(self.key.clone(), self.suite, *protection).to_body();
        let selector = procedure_bytes(drive::PROGRAM, drive::VERSION, procedure.into());
        let digest = keys.request(
            &REQUEST_NONCE,
            &[&selector[..], &credential, &arguments],
            covered.as_ref(),
        );
        let data_tag = covered.map(|data| data.tag);
        let verifier = Verifier { nonce: REQUEST_NONCE, digest, data_tag }.to_body();
        let head = CallHead {
            xid: self.xid,
            program: drive::PROGRAM,
            version: drive::VERSION,
            procedure: procedure.into(),
            credential: OpaqueAuth { flavor: AUTH_FLAVOR, body: &credential },
            verifier: OpaqueAuth { flavor: AUTH_FLAVOR, body: &verifier },
        };
        let encode = |out: &mut Encoder| {
            head.encode(out);
            out.opaque_fixed(&arguments);
        };
        record(encode, &data)
    }
}

/// Data as they are sent, and what a digest covers of them.
pub fn protected(
    keys: &DigestKeys,
    way: Way,
    nonce: &Nonce,
    protection: Protection,
    data: &[u8],
) -> (Vec<u8>, Option<CoveredData>) {
    if !protection.contains(Protection::PRIVACY_DATA) {
        return (data.to_vec(), Some(keys.data(way, nonce, &[data])));
    }
    let mut sealed = vec![0; data.len()];
    let tag = keys.seal_data(way, nonce, &[data], &mut sealed);
    (sealed, Some(CoveredData { length: data.len() as u64, tag }))
}

pub fn reply(xid: u32, verifier: &Verifier, results: &[u8], data: &[u8]) -> Vec<u8> {
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

pub fn result_bytes<T: XdrEncode>(result: Result<T, Status>) -> Vec<u8> {
    let mut out = Encoder::new();
    encode_result(&result, &mut out);
    out.into_bytes()
}

pub fn read_arguments() -> ReadArguments {
    ReadArguments::single(OBJECT, 4096, 65536)
}

pub fn read_data() -> ReadData {
    ReadData {
        logical_size: 4096 + DATA.len() as u64,
        fs_data_modify_time: Timestamp(0x1797_9cfe_0000_0000),
        data_length: DATA.len(),
    }
}

pub fn write_arguments() -> WriteArguments {
    WriteArguments::single(OBJECT, 4096, DATA.len(), false)
}

pub fn written() -> Written {
    Written {
        instance: 0x77,
        length: DATA.len() as u64,
        logical_size: read_data().logical_size,
        fs_data_modify_time: read_data().fs_data_modify_time,
    }
}

/// `bytes` in lines of at most 16, each with its meaning at the first of its lines.
pub fn annotated(bytes: &[u8], parts: &[&[(usize, &str)]]) -> String {
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

/// The block of a document under ```` ```text NAME ````; empty if there is none.
pub fn block(document: &str, name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let block = text.split_once(&format!("```text {name}\n"));
    let block = block.and_then(|(_, rest)| rest.split_once("```"));
    block.map_or(String::new(), |(block, _)| block.to_owned())
}

/// Checks that a document has this block.
pub fn check(document: &str, name: &str, expected: &str) {
    let found = block(document, name);
    assert_eq!(found, expected, "{document} should have:\n```text {name}\n{expected}```\n");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! One value of every message. Each number is that of its field's name in the specification, so
//! that a walk over the encoding notices two fields in the wrong order.

use nasd_capability::{
    Capability, Chain, DataTag, Digest, KeyKind, Narrowing, Nonce, SealedCapability, SealedKey,
    SecretKey, Suite,
};
use nasd_protocol::bulk_desk::{
    DeskPath, DeskStatus, Entry, FileFacts, IssuedTicket, ListArguments, ModeArguments, Page,
    RenameArguments as DeskRenameArguments, SettimeArguments, TicketArguments, Wanted,
};
use nasd_protocol::drive::{
    AppendArguments, Appended, AttributesReply, AuditArguments, AuditKind, AuditPage, AuditRecord,
    BatchArguments, BatchDone, BatchOperation, Batched, BlocksRequired, BlocksrequiredArguments,
    ChangedRange, ComparepartitionArguments, Comparison, Component, ComponentComplaint,
    ComponentRole, ComponentStatus, Copied, CopypartitionArguments, CopyrangeArguments,
    CreateArguments, Created, CreatepartitionArguments, Difference, DriveControl, DriveInformation,
    EndwritesArguments, ExtendArguments, Extended as ExtendedObject, Extension, ExtensionJob,
    ExtensionOutcome, ExtensionWork, FastcopyArguments, FlushArguments, Flushed,
    FlushpartitionArguments, GetattrArguments, InitializeArguments, MadeAppend, MapArguments,
    Medium, MemberState, ObjectMap, ObjectState, PartitionControl, PartitionKey, PartitionState,
    PartitionSummary, PunchArguments, PutobjectArguments, RangeToCopy, ReadArguments, ReadData,
    RemoveArguments, RemovepartitionArguments, ResizepartitionArguments, Sealed, SeekArguments,
    SetattrArguments, SetdriveArguments, SetdrivekeyArguments, SetpartitionArguments,
    SetpartitionkeyArguments, SetstripingArguments, Sought, WriteArguments, Written,
};
use nasd_protocol::manager::{
    AccessedArguments, AttachArguments, Attached, Begun, CellStatus, Changed, ClientStatistics,
    ClosedArguments, CreateFileArguments, Cut, DetachArguments, Device, DirectoryEntry,
    DirectoryPage, DriveAddress, DriveStatus, EnrollArguments, Enrolled, Event, EventsArguments,
    EventsPage, Extended, File, FileAccess, FileAttributes, FileHandle, FilePage, FileRange,
    FileType, ForwardAppendArguments, ForwardPunchArguments, ForwardReadArguments,
    ForwardSeekArguments, ForwardWriteArguments, GetcapArguments, GetcapsArguments,
    GetwcapArguments, HeldLock, HeldVolume, HoldVolumeArguments, InTheWay, IssuedCapability,
    LeaseArguments, Leased, LinkArguments, ListedFile, LockAnswer, LockArguments, LockKind,
    LockMode, LookupArguments, ManagerStatus, MemberArguments, Membership, MintArguments, Minted,
    MkdirArguments, MkmountArguments, MknodArguments, MovePartArguments, Name, NewMode,
    OperationStatistics, Readable, Readables, ReaddirArguments, ReleaseVolumeArguments,
    ReloadArguments, RenameArguments, RenameFlags, RenewArguments, RepairAction, RepairArguments,
    Request, ReturncapArguments, Returned, RmdirArguments, RotateArguments, Rotation,
    SetFileArguments, SetFileAttributes, SetxattrArguments, SpaceInformation, Statistics,
    SymlinkArguments, TmpfileArguments, ToldDirectory, UnlinkArguments, UnlockArguments, Volume,
    VolumeList, VolumePart, VolumePartList, VolumeSummary, WorkingKeyState, Writable,
    XattrArguments, XattrFlags, XattrNames, XattrValue,
};
use nasd_protocol::{
    Credential, CredentialKey, Failure, Region, Status, Verifier, decode_result, encode_result,
};
use nasd_types::{
    AppendToken, Attributes, AuditId, ByteRange, CellId, Compression, DriveId, ObjectId,
    ObjectName, PartitionId, Personality, Protection, Rights, SeekTarget, SetAttributes, Timestamp,
    WriteOrder,
};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, from_bytes, to_bytes};

use crate::spec::{number_of as n, number32_of as n32};

/// An encoded message.
pub struct Sample {
    /// Its name in the specification.
    pub type_name: &'static str,
    /// The encoding, bulk data included.
    pub bytes: Vec<u8>,
    /// The encoding without the bulk data.
    pub head_bytes: usize,
    /// Decodes bytes as this message and encodes it again.
    pub again: fn(&[u8]) -> Result<Vec<u8>, XdrError>,
}

fn message<T: XdrEncode + XdrDecode>(type_name: &'static str, value: &T) -> Sample {
    let bytes = to_bytes(value);
    let again = |bytes: &[u8]| from_bytes::<T>(bytes).map(|value| to_bytes(&value));
    Sample { type_name, head_bytes: bytes.len(), bytes, again }
}

fn result<T: XdrEncode + XdrDecode, F: Failure>(
    type_name: &'static str,
    value: &Result<T, F>,
) -> Sample {
    fn encoded<T: XdrEncode, F: Failure>(value: &Result<T, F>) -> Vec<u8> {
        let mut out = Encoder::new();
        encode_result(value, &mut out);
        out.into_bytes()
    }
    let bytes = encoded(value);
    let again = |bytes: &[u8]| {
        let mut input = Decoder::new(bytes);
        let value: Result<T, F> = decode_result(&mut input)?;
        input.finish()?;
        Ok(encoded(&value))
    };
    Sample { type_name, head_bytes: bytes.len(), bytes, again }
}

/// Adds the data that transports send behind a head.
fn with_data(mut sample: Sample, data: &[u8]) -> Sample {
    sample.bytes.extend_from_slice(data);
    sample.bytes.resize(nasd_xdr::xdr_padded(sample.bytes.len()), 0);
    sample
}

pub fn all_samples() -> Vec<Sample> {
    [
        security(),
        drive_arguments(),
        striping_arguments(),
        administration(),
        moving(),
        drive_results(),
        manager_arguments(),
        extended_arguments(),
        session_samples(),
        callback_samples(),
        forward_samples(),
        manager_results(),
        desk_arguments(),
        desk_results(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

const DATA: &[u8] = b"abcdefghijk";

fn time(field: &str) -> Timestamp {
    Timestamp(n(field))
}

fn object_name() -> ObjectName {
    ObjectName { partition: PartitionId(n32("partition")), object: ObjectId(n("object")) }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("names here are short")
}

fn capability() -> Capability {
    Capability {
        drive: DriveId(n("drive")),
        partition: PartitionId(n32("partition")),
        object: ObjectId(n("object")),
        region: ByteRange { offset: n("region_offset"), length: n("region_length") },
        rights: Rights::from_bits_retain(n32("rights")),
        expires: time("expires"),
        audit_id: AuditId(n("audit_id")),
        minimum_protection: Protection::from_bits_retain(n32("minimum_protection")),
        key_epoch: n32("key_epoch"),
    }
}

fn narrowing() -> Narrowing {
    Narrowing {
        rights: Rights::from_bits_retain(n32("rights")),
        region: ByteRange { offset: n("region_offset"), length: n("region_length") },
        expires: time("expires"),
    }
}

fn sealed_capability() -> SealedCapability {
    SealedCapability {
        partition: PartitionId(n32("partition")),
        key_epoch: n32("key_epoch"),
        nonce: [4; 16],
        sealed: [5; 64],
        tag: [6; 16],
    }
}

fn credential(key: CredentialKey) -> Credential {
    Credential { key, suite_number: 1, protection: Protection::from_bits_retain(n32("protection")) }
}

fn security() -> Vec<Sample> {
    let partition = PartitionId(n32("key_partition"));
    let with_key = credential(CredentialKey::WorkingPrevious(partition));
    let nonce = Nonce { timestamp: time("timestamp"), unique: n("unique") };
    let plain = Verifier::plain(nonce, Digest([7; 16]));
    let chain = |count| Chain::new(vec![narrowing(); count]).expect("short enough");
    let shown = |key: CredentialKey| {
        // A credential with a capability has 0 for the partition of its key, which the walk does not
        // expect; what it shows is walked over alone.
        let bytes = credential(key).to_body()[16..].to_vec();
        let again = |bytes: &[u8]| {
            let prefix = CAPABILITY_PREFIX.map(u32::to_be_bytes).concat();
            let credential: Credential = from_bytes(&[&prefix, bytes].concat())?;
            Ok(credential.to_body()[16..].to_vec())
        };
        Sample { type_name: "nasd_shown_by_holder", head_bytes: bytes.len(), bytes, again }
    };
    vec![
        message("nasd_credential", &with_key),
        shown(CredentialKey::Capability(capability())),
        shown(CredentialKey::narrowed(capability(), chain(1))),
        shown(CredentialKey::narrowed(capability(), chain(8))),
        shown(CredentialKey::sealed(sealed_capability(), chain(0))),
        shown(CredentialKey::sealed(sealed_capability(), chain(8))),
        message("nasd_verifier", &plain),
        data_verifier(&Verifier { data_tag: Some(DataTag([8; 16])), ..plain }),
    ]
}

/// Only its length tells it from the other verifier, so that a part of it is one or none.
fn data_verifier(verifier: &Verifier) -> Sample {
    let bytes = to_bytes(verifier);
    let again = |bytes: &[u8]| match bytes.len() {
        length @ ..48 => Err(XdrError::Truncated { missing: 48 - length }),
        _ => from_bytes::<Verifier>(bytes).map(|verifier| to_bytes(&verifier)),
    };
    Sample { type_name: "nasd_data_verifier", head_bytes: bytes.len(), bytes, again }
}

/// Key kind, suite, protection and partition; what is shown follows.
const CAPABILITY_PREFIX: [u32; 4] = [6, 0, 1, 0];

fn attributes() -> Attributes {
    Attributes {
        access_control_version: n("access_control_version"),
        nearby_object: ObjectId(n("nearby_object")),
        copied_object: ObjectId(n("copied_object")),
        logical_size: n("logical_size"),
        blocks_allocated: n("blocks_allocated"),
        blocks_used: n("blocks_used"),
        block_size: n32("block_size"),
        create_time: time("create_time"),
        data_modify_time: time("data_modify_time"),
        data_version: n("data_version"),
        attribute_modify_time: time("attribute_modify_time"),
        fs_data_modify_time: time("fs_data_modify_time"),
        fs_attribute_modify_time: time("fs_attribute_modify_time"),
        fs_specific: Box::new([5; 256]),
    }
}

fn set_attributes() -> SetAttributes {
    SetAttributes {
        access_control_version: Some(n("access_control_version")),
        nearby_object: Some(ObjectId(n("nearby_object"))),
        logical_size: Some(n("logical_size")),
        blocks_allocated: Some(n("blocks_allocated")),
        block_size: Some(n32("block_size")),
        fs_data_modify_time: Some(time("fs_data_modify_time")),
        fs_attribute_modify_time: Some(time("fs_attribute_modify_time")),
        fs_specific: Some(Box::new([6; 256])),
    }
}

fn region() -> Region {
    Region { offset: n("offset"), length: n("length"), stride: n("stride"), count: n32("count") }
}

fn drive_arguments() -> Vec<Sample> {
    let partition = PartitionId(n32("partition"));
    let (name, regions) = (object_name(), vec![region(), region()]);
    let create = CreateArguments {
        partition,
        object: Some(ObjectId(n("object"))),
        durable: true,
        initial: set_attributes(),
    };
    let nothing = SetAttributes::default();
    let write = WriteArguments {
        name,
        durable: false,
        order: Some(order()),
        regions: regions.clone(),
        data_length: DATA.len(),
    };
    let objects = vec![ObjectId(n("objects")); 3];
    let token = AppendToken([8; 16]);
    let append = AppendArguments { name, token, age_ns: n("age"), data_length: DATA.len() };
    let copy = RangeToCopy {
        name,
        offset: n("offset"),
        length: n("length"),
        source: ObjectId(n("source")),
        source_offset: n("source_offset"),
    };
    let by = CredentialKey::WorkingPrevious(PartitionId(n32("key_partition")));
    let copyrange = CopyrangeArguments {
        copy,
        source_authority: credential(by),
        source_proof: Digest([9; 16]),
    };
    vec![
        message("nasd_copyrange_arguments", &copyrange),
        message("nasd_create_arguments", &create),
        message("nasd_remove_arguments", &RemoveArguments { name, durable: true }),
        message("nasd_getattr_arguments", &GetattrArguments { name }),
        message(
            "nasd_setattr_arguments",
            &SetattrArguments { name, durable: false, changes: set_attributes() },
        ),
        message(
            "nasd_setattr_arguments",
            &SetattrArguments { name, durable: true, changes: nothing },
        ),
        message(
            "nasd_fastcopy_arguments",
            &FastcopyArguments { name, copy: Some(ObjectId(n("copy"))) },
        ),
        message("nasd_fastcopy_arguments", &FastcopyArguments { name, copy: None }),
        message(
            "nasd_blocksrequired_arguments",
            &BlocksrequiredArguments { name, regions: regions.clone() },
        ),
        message(
            "nasd_punch_arguments",
            &PunchArguments { name, durable: true, regions: regions.clone() },
        ),
        message(
            "nasd_seek_arguments",
            &SeekArguments { name, offset: n("offset"), target: SeekTarget::Hole },
        ),
        message("nasd_read_arguments", &ReadArguments { name, order: None, regions }),
        with_data(message("nasd_write_arguments", &write), DATA),
        with_data(message("nasd_append_arguments", &append), DATA),
        message("nasd_flush_arguments", &FlushArguments { partition, objects }),
        message("nasd_batch_arguments", &batch(partition)),
    ]
}

/// Of the operations of virtual drives.
fn striping_arguments() -> Vec<Sample> {
    let name = object_name();
    vec![
        message("nasd_map_arguments", &map()),
        message("nasd_setstriping_arguments", &striping()),
        message(
            "nasd_endwrites_arguments",
            &EndwritesArguments { name, client: n("client"), turn: n("turn") },
        ),
        message(
            "nasd_extend_arguments",
            &ExtendArguments {
                name,
                regions: vec![region(), region()],
                rights: Rights::from_bits_retain(n32("rights")),
                extension: n32("extension"),
                revision: n32("revision"),
                job: n("job"),
                bytes_left: n("bytes_left"),
                most: n32("most"),
                arguments: DATA.to_vec(),
            },
        ),
    ]
}

fn batch(partition: PartitionId) -> BatchArguments {
    let operations = vec![
        BatchOperation::Create(Some(ObjectId(n("object"))), set_attributes()),
        BatchOperation::Create(None, SetAttributes::default()),
        BatchOperation::Remove(ObjectId(n("removed"))),
        BatchOperation::Setattr(ObjectId(n("object")), set_attributes()),
        BatchOperation::Getattr(ObjectId(n("asked"))),
    ];
    BatchArguments { partition, durable: true, with_attributes: false, operations }
}

fn batched() -> Batched {
    let done = |attributes| Ok(BatchDone { object: ObjectId(n("object")), attributes });
    let outcomes = vec![done(Some(attributes())), Err(Status::NoSuchObject), done(None)];
    Batched { instance: n("instance"), outcomes }
}

/// Arguments of operations on partitions and on the drive.
fn administration() -> Vec<Sample> {
    let partition = PartitionId(n32("partition"));
    let value = SealedKey { salt: [1; 16], sealed: [2; 32], tag: [3; 16] };
    let epoch = n32("epoch");
    let initialize = InitializeArguments {
        master: value,
        clock: time("clock"),
        skew_past: n("skew_past"),
        skew_ahead: n("skew_ahead"),
    };
    let settings = SetpartitionArguments {
        partition,
        compression: Some(Compression::Zstd),
        minimum_protection: Some(Protection::from_bits_retain(n32("minimum_protection"))),
    };
    let nothing = SetpartitionArguments { compression: None, minimum_protection: None, ..settings };
    let bytes = n("bytes");
    let few = AuditArguments {
        audit_id: None,
        partition: None,
        object: None,
        status: None,
        ..audit_arguments()
    };
    let mut samples = vec![
        message("nasd_createpartition_arguments", &CreatepartitionArguments { partition }),
        message(
            "nasd_copypartition_arguments",
            &CopypartitionArguments { partition, source: PartitionId(n32("source")) },
        ),
        message("nasd_removepartition_arguments", &RemovepartitionArguments { partition }),
        message("nasd_resizepartition_arguments", &ResizepartitionArguments { partition, bytes }),
        message("nasd_flushpartition_arguments", &FlushpartitionArguments { partition }),
        message("nasd_setpartition_arguments", &settings),
        message("nasd_setpartition_arguments", &nothing),
        message("nasd_initialize_arguments", &initialize),
        message("nasd_setdrivekey_arguments", &SetdrivekeyArguments { value }),
        message("nasd_setdrive_arguments", &SetdriveArguments { minimum_protection: None }),
        message(
            "nasd_setdrive_arguments",
            &SetdriveArguments { minimum_protection: settings.minimum_protection },
        ),
        message("nasd_audit_arguments", &few),
        message("nasd_audit_arguments", &audit_arguments()),
    ];
    samples.extend(PartitionKey::ALL.iter().map(|&which| {
        let arguments = SetpartitionkeyArguments { partition, which, epoch, value };
        message("nasd_setpartitionkey_arguments", &arguments)
    }));
    samples
}

/// What copies a partition to another drive.
fn moving() -> Vec<Sample> {
    let ObjectName { partition, object } = object_name();
    let base = Some(PartitionId(n32("base")));
    let all = ComparepartitionArguments {
        partition,
        base,
        from: ObjectId(n("from")),
        offset: n("offset"),
    };
    let arguments = "nasd_comparepartition_arguments";
    let result_name = "nasd_comparepartition_result";
    let identifiers_end = ObjectId(n("identifiers_end"));
    let difference = |state, count| {
        let range = ByteRange::new(n("offset"), n("length"));
        let ranges = vec![ChangedRange { range, is_hole: true }; count];
        Difference { object, state, ranges }
    };
    let page = Comparison {
        identifiers_end,
        differences: vec![difference(Some(object_state(2)), 2), difference(None, 0)],
        next: Some((object, n("offset"))),
    };
    let last = Comparison { identifiers_end, differences: Vec::new(), next: None };
    let state = object_state(1);
    let put = PutobjectArguments { partition, object, identifiers_end, state };
    vec![
        message(arguments, &all),
        message(arguments, &ComparepartitionArguments { base: None, ..all }),
        result::<_, Status>(result_name, &Ok(page)),
        result::<_, Status>(result_name, &Ok(last)),
        result::<Comparison, _>(result_name, &Err(Status::NoSuchPartition)),
        message("nasd_putobject_arguments", &put),
    ]
}

fn object_state(appends: usize) -> ObjectState {
    let attributes = attributes();
    let append = MadeAppend {
        token: AppendToken([8; 16]),
        offset: n("offset"),
        length: n32("length"),
        time: time("time"),
    };
    ObjectState {
        access_control_version: attributes.access_control_version,
        nearby_object: attributes.nearby_object,
        copied_object: attributes.copied_object,
        logical_size: attributes.logical_size,
        blocks_allocated: attributes.blocks_allocated,
        create_time: attributes.create_time,
        data_modify_time: attributes.data_modify_time,
        attribute_modify_time: attributes.attribute_modify_time,
        fs_data_modify_time: attributes.fs_data_modify_time,
        fs_attribute_modify_time: attributes.fs_attribute_modify_time,
        fs_specific: attributes.fs_specific,
        appends: vec![append; appends],
    }
}

fn audit_arguments() -> AuditArguments {
    AuditArguments {
        after: n("after"),
        from: time("from"),
        to: time("to"),
        audit_id: Some(AuditId(n("audit_id"))),
        partition: Some(PartitionId(n32("partition"))),
        object: Some(ObjectId(n("object"))),
        status: Some(n32("status")),
        most: n32("most"),
    }
}

fn audit_page() -> AuditPage {
    let record = AuditRecord {
        sequence: n("sequence"),
        first: time("first"),
        span_ms: n32("span_ms"),
        count: n32("count"),
        kind: AuditKind::ClaimedLost,
        procedure: n32("procedure"),
        status: n32("status"),
        key: KeyKind::Capability,
        partition: PartitionId(n32("partition")),
        object: ObjectId(n("object")),
        audit_id: AuditId(n("audit_id")),
    };
    AuditPage { records: vec![record; 2], next: n("next"), more: true }
}

fn summary() -> PartitionSummary {
    PartitionSummary {
        partition: PartitionId(n32("partition")),
        quota_bytes: n("quota_bytes"),
        used_bytes: n("used_bytes"),
        objects: n("objects"),
        state: PartitionState::WithoutWorkingKey,
        compression: Compression::Lz4,
        minimum_protection: Protection::from_bits_retain(n32("minimum_protection")),
    }
}

fn drive_control() -> DriveControl {
    DriveControl {
        drive: DriveId(n("drive")),
        clock: time("clock"),
        clock_offset: n("clock_offset") as i64,
        skew_past: n("skew_past"),
        skew_ahead: n("skew_ahead"),
        started: time("started"),
        capacity_bytes: n("capacity_bytes"),
        used_bytes: n("used_bytes"),
        cache_bytes: n("cache_bytes"),
        block_size: n32("block_size"),
        medium: Medium::SolidState,
        capability_bytes_read: n("capability_bytes_read"),
        capability_bytes_written: n("capability_bytes_written"),
        key_bytes_read: n("key_bytes_read"),
        key_bytes_written: n("key_bytes_written"),
        requests: n("requests"),
        refusals: n("refusals"),
        minimum_protection: Protection::from_bits_retain(n32("minimum_protection")),
        read_only: true,
        bad_blocks: n("bad_blocks"),
        partitions: vec![summary(), summary()],
        extensions: vec![Extension {
            number: n32("number"),
            name: "search".to_owned(),
            revision: n32("revision"),
            rights: Rights::from_bits_retain(n32("rights")),
            parameters: "parameters".to_owned(),
        }],
        components: vec![ComponentStatus {
            drive: DriveId(n("drive")),
            address: "address".to_owned(),
            reachable: true,
            state: MemberState::Joining,
            since: time("since"),
            capacity_bytes: n("capacity_bytes"),
            used_bytes: n("used_bytes"),
            objects: n("objects"),
            objects_done: n("objects_done"),
            bytes_done: n("bytes_done"),
            seconds_left: n32("seconds_left"),
            role: ComponentRole::Leaving,
            places: n32("places"),
            places_coming: n32("places_coming"),
            places_going: n32("places_going"),
            width: n32("width"),
            complaint: ComponentComplaint::Refuses,
        }],
        extension_work: extension_work(),
    }
}

fn extension_work() -> ExtensionWork {
    let job = ExtensionJob {
        drive: DriveId(n("drive")),
        extension: n32("extension"),
        partition: PartitionId(n32("partition")),
        object: ObjectId(n("object")),
        object_bytes: n("object_bytes"),
        job: n("job"),
        running: n32("running"),
        waiting: n32("waiting"),
        age: n("age"),
        bytes_done: n("bytes_done"),
        bytes_left: n("bytes_left"),
        bytes_per_second: n("bytes_per_second"),
        memory_bytes: n("memory_bytes"),
    };
    ExtensionWork {
        memory_bytes: n("memory_bytes"),
        granted_bytes: n("granted_bytes"),
        jobs: vec![job; 2],
    }
}

fn drive_information() -> DriveInformation {
    DriveInformation {
        drive: DriveId(n("drive")),
        cell: CellId([9; 16]),
        vendor: "vendor".to_owned(),
        model: "m".to_owned(),
        revision: String::new(),
        clock: time("clock"),
        instance: n("instance"),
        suites: vec![Suite::Aegis, Suite::Blake3],
        protections: Protection::from_bits_retain(n32("protections")),
        minimum_protection: Protection::from_bits_retain(n32("minimum_protection")),
        max_transfer: n32("max_transfer"),
        is_virtual: true,
        partitions: vec![PartitionId(n32("partitions")); 2],
    }
}

fn order() -> WriteOrder {
    WriteOrder { time: time("time"), unique: n("unique") }
}

fn map() -> MapArguments {
    let (partition, object) = (PartitionId(n32("partition")), ObjectId(n("object")));
    let name = ObjectName { partition, object };
    MapArguments { name, write: true, end: n("end"), client: n("client") }
}

fn striping() -> SetstripingArguments {
    SetstripingArguments {
        partition: PartitionId(n32("partition")),
        unit: n("unit"),
        width: n32("width"),
        copies: n32("copies"),
    }
}

fn object_map() -> ObjectMap {
    let component = |state, capability| Component {
        drive: DriveId(n("drive")),
        address: "address".to_owned(),
        state,
        capability,
    };
    ObjectMap {
        generation: n("generation"),
        unit: n("unit"),
        copies: n32("copies"),
        is_spread: true,
        is_even: true,
        components: vec![
            component(MemberState::Current, Some(issued())),
            component(MemberState::Joining, None),
            component(MemberState::Out, None),
        ],
        stand_ins: vec![n32("stand_ins")],
        turn: n("turn"),
    }
}

fn drive_results() -> Vec<Sample> {
    let reply = AttributesReply { attributes: attributes() };
    let created = Created { object: ObjectId(n("object")), attributes: attributes() };
    let read = ReadData {
        logical_size: n("logical_size"),
        fs_data_modify_time: time("fs_data_modify_time"),
        data_length: DATA.len(),
    };
    let written = Written {
        instance: n("instance"),
        length: n("length"),
        logical_size: n("logical_size"),
        fs_data_modify_time: time("fs_data_modify_time"),
    };
    let control = PartitionControl {
        summary: summary(),
        free_bytes: n("free_bytes"),
        objects_supported: n("objects_supported"),
    };
    let sealed = Sealed { sealed: vec![7; 400], data_length: DATA.len() };
    let appended = Appended { offset: n("offset"), attributes: attributes() };
    let copied = Copied { length: n("length"), attributes: attributes() };
    let required = BlocksRequired { estimated: n("estimated"), maximum: n("maximum") };
    let sought = Sought { position: Some(n("position")) };
    let extended = ExtendedObject {
        outcome: ExtensionOutcome::Failed,
        position: n("position"),
        data_length: DATA.len(),
    };
    vec![
        result::<_, Status>("nasd_inquiry_result", &Ok(drive_information())),
        result::<_, Status>("nasd_create_result", &Ok(created)),
        result::<(), Status>("nasd_status_result", &Ok(())),
        result::<(), _>("nasd_status_result", &Err(Status::RefusedDigest)),
        result::<_, Status>("nasd_attributes_result", &Ok(reply)),
        result::<_, Status>("nasd_blocksrequired_result", &Ok(required)),
        result::<_, Status>("nasd_seek_result", &Ok(sought)),
        result::<_, Status>("nasd_seek_result", &Ok(Sought { position: None })),
        result::<BlocksRequired, _>("nasd_blocksrequired_result", &Err(Status::NotPermitted)),
        with_data(result::<_, Status>("nasd_read_result", &Ok(read)), DATA),
        result::<ReadData, _>("nasd_read_result", &Err(Status::NoSuchObject)),
        result::<_, Status>("nasd_write_result", &Ok(written)),
        with_data(result::<_, Status>("nasd_extend_result", &Ok(extended)), DATA),
        result::<ExtendedObject, _>("nasd_extend_result", &Err(Status::NoSuchExtension)),
        result::<_, Status>("nasd_append_result", &Ok(appended)),
        result::<Appended, _>("nasd_append_result", &Err(Status::Forgotten)),
        result::<_, Status>("nasd_copyrange_result", &Ok(copied)),
        result::<Copied, _>("nasd_copyrange_result", &Err(Status::NoSpace)),
        result::<_, Status>("nasd_map_result", &Ok(object_map())),
        result::<ObjectMap, _>("nasd_map_result", &Err(Status::NotPermitted)),
        with_data(message("nasd_sealed", &sealed), DATA),
        with_data(result::<_, Status>("nasd_private_result", &Ok(sealed.clone())), DATA),
        result::<Sealed, _>("nasd_private_result", &Err(Status::RefusedDigest)),
        result::<_, Status>("nasd_audit_result", &Ok(audit_page())),
        result::<_, Status>("nasd_flush_result", &Ok(Flushed { instance: n("instance") })),
        result::<_, Status>("nasd_batch_result", &Ok(batched())),
        result::<Batched, _>("nasd_batch_result", &Err(Status::TooLarge)),
        message("nasd_drive_control", &drive_control()),
        message("nasd_partition_control", &control),
    ]
}

fn handle() -> FileHandle {
    FileHandle::new(DriveId(n("drive")), object_name())
}

fn device() -> Device {
    Device { major: n32("major"), minor: n32("minor") }
}

fn file() -> File {
    File {
        handle: handle(),
        attributes: FileAttributes {
            file_type: FileType::Directory,
            mode: n32("mode"),
            links: n32("links"),
            uid: n32("uid"),
            gid: n32("gid"),
            size: n("size"),
            used_bytes: n("used_bytes"),
            access_time: time("access_time"),
            modify_time: time("modify_time"),
            change_time: time("change_time"),
            data_version: n("data_version"),
            create_time: time("create_time"),
            device: device(),
            revision: n("revision"),
            extended: Extended(n32("extended")),
        },
        capability: issued(),
    }
}

fn issued() -> IssuedCapability {
    IssuedCapability {
        capability: capability(),
        key: SecretKey::new([8; 32]),
        sealed: Some(sealed_capability()),
    }
}

fn minted() -> Minted {
    Minted {
        capability: file().capability,
        drive: DriveId(n("drive")),
        address: "host:2049".to_owned(),
        longest_lifetime: n("longest_lifetime"),
    }
}

fn set_file_attributes() -> SetFileAttributes {
    SetFileAttributes {
        mode: Some(n32("mode")),
        uid: Some(n32("uid")),
        gid: Some(n32("gid")),
        size: Some(n("size")),
        reserve: Some(FileRange { offset: n("offset"), length: n("length") }),
        access_time: Some(time("access_time")),
        modify_time: Some(time("modify_time")),
        access_time_now: true,
        modify_time_now: false,
    }
}

fn member() -> MemberArguments {
    MemberArguments { serial: name("4f"), identity: name("host:a") }
}

fn manager_arguments() -> Vec<Sample> {
    let directory = handle();
    let mode = NewMode { mode: n32("mode"), umask: n32("umask") };
    let set =
        |changes| message("nasd_set_file_arguments", &SetFileArguments { file: handle(), changes });
    let lookup = LookupArguments { directory, name: name("n") };
    let request = Request { client: n("client"), number: n("number"), oldest: n("oldest") };
    let create =
        CreateFileArguments { directory, name: name("file"), mode, exclusive: true, stores: true };
    let mkdir = MkdirArguments { directory, name: name("dir"), mode };
    let symlink = SymlinkArguments { directory, name: name("l"), target: b"../there".to_vec() };
    let rename = RenameArguments {
        from_directory: directory,
        from_name: name("from"),
        to_directory: directory,
        to_name: name("to"),
        flags: RenameFlags(n32("flags")),
        open: Some(handle()),
    };
    let link = LinkArguments { file: handle(), directory, name: name("another") };
    let mint = MintArguments {
        file: handle(),
        rights: Rights::from_bits_retain(n32("rights")),
        region_offset: n("region_offset"),
        region_length: n("region_length"),
        lifetime: n("lifetime"),
        sealed: true,
    };
    let repair = RepairArguments {
        file: handle(),
        action: RepairAction::SetLinks,
        directory,
        name: name("n"),
        links: n32("links"),
    };
    let enroll = EnrollArguments { secret: vec![1; 16], public_key: vec![4; 65] };
    let readdir =
        ReaddirArguments { directory, cookie: n("cookie"), max_entries: n32("max_entries") };
    vec![
        message("nasd_name", &name("volume")),
        message("nasd_file_handle", &directory),
        message("nasd_lookup_arguments", &lookup),
        message("nasd_request", &request),
        message("nasd_renew_arguments", &RenewArguments { public_key: vec![4; 65] }),
        message("nasd_enroll_arguments", &enroll),
        message("nasd_member_arguments", &member()),
        message("nasd_reload_arguments", &ReloadArguments { revoke: true }),
        message("nasd_rotate_arguments", &RotateArguments { at_once: true }),
        set(set_file_attributes()),
        set(SetFileAttributes::default()),
        message("nasd_create_file_arguments", &create),
        message("nasd_mkdir_arguments", &mkdir),
        message("nasd_symlink_arguments", &symlink),
        message(
            "nasd_unlink_arguments",
            &UnlinkArguments { directory, name: name("x"), open: Some(handle()) },
        ),
        message(
            "nasd_unlink_arguments",
            &UnlinkArguments { directory, name: name("x"), open: None },
        ),
        message("nasd_rmdir_arguments", &RmdirArguments { directory, name: name("x") }),
        message("nasd_tmpfile_arguments", &TmpfileArguments { directory, mode }),
        message("nasd_rename_arguments", &rename),
        message("nasd_link_arguments", &link),
        message("nasd_readdir_arguments", &readdir),
        message("nasd_mint_arguments", &mint),
        message("nasd_repair_arguments", &repair),
    ]
}

/// Of special files, mount points, extended attributes and access times.
fn extended_arguments() -> Vec<Sample> {
    let directory = handle();
    let mode = NewMode { mode: n32("mode"), umask: n32("umask") };
    vec![
        message(
            "nasd_mkmount_arguments",
            &MkmountArguments { directory, name: name("m"), volume: name("other") },
        ),
        message(
            "nasd_mknod_arguments",
            &MknodArguments {
                directory,
                name: name("pipe"),
                file_type: FileType::Fifo,
                mode,
                device: device(),
            },
        ),
        message("nasd_xattr_arguments", &XattrArguments { file: handle(), name: name("user.a") }),
        message(
            "nasd_setxattr_arguments",
            &SetxattrArguments {
                file: handle(),
                name: name("user.a"),
                flags: XattrFlags(n32("flags")),
                value: b"value".to_vec(),
            },
        ),
        message(
            "nasd_accessed_arguments",
            &AccessedArguments {
                root: handle(),
                accessed: vec![FileAccess { file: handle(), time: time("time") }; 2],
            },
        ),
    ]
}

fn statistics() -> Statistics {
    let operation = OperationStatistics {
        procedure: n32("procedure"),
        requests: n("requests"),
        failed: n("failed"),
        nanoseconds: n("nanoseconds"),
    };
    let client = ClientStatistics {
        client: "host:a".to_owned(),
        requests: n("requests"),
        read_bytes: n("read_bytes"),
        written_bytes: n("written_bytes"),
    };
    Statistics { operations: vec![operation; 2], clients: vec![client; 3] }
}

/// What is asked of drives by the way of the manager.
fn forward_samples() -> Vec<Sample> {
    let (file, offset) = (handle(), n("offset"));
    let read = ForwardReadArguments { file, offset, length: n32("length") };
    let write = ForwardWriteArguments { file, offset, durable: true, data_length: DATA.len() };
    let (token, data_length) = (AppendToken([9; 16]), DATA.len());
    let append = ForwardAppendArguments { file, token, age_ns: n("age"), data_length };
    let appended = Appended { offset, attributes: attributes() };
    let punch = ForwardPunchArguments { file, offset, length: n("length"), durable: true };
    let brought = ReadData {
        logical_size: n("logical_size"),
        fs_data_modify_time: time("fs_data_modify_time"),
        data_length: DATA.len(),
    };
    let written = Written {
        instance: n("instance"),
        length: n("length"),
        logical_size: n("logical_size"),
        fs_data_modify_time: time("fs_data_modify_time"),
    };
    let flushed = Flushed { instance: n("instance") };
    let reply = AttributesReply { attributes: attributes() };
    let sought = Sought { position: Some(n("position")) };
    let seek = ForwardSeekArguments { file, offset, target: SeekTarget::Hole };
    vec![
        message("nasd_forward_read_arguments", &read),
        with_data(message("nasd_forward_write_arguments", &write), DATA),
        with_data(message("nasd_forward_append_arguments", &append), DATA),
        message("nasd_forward_punch_arguments", &punch),
        message("nasd_forward_seek_arguments", &seek),
        with_data(result::<_, ManagerStatus>("nasd_forward_read_result", &Ok(brought)), DATA),
        result::<ReadData, _>("nasd_forward_read_result", &Err(ManagerStatus::Access)),
        result::<_, ManagerStatus>("nasd_forward_write_result", &Ok(written)),
        result::<_, ManagerStatus>("nasd_forward_append_result", &Ok(appended)),
        result::<_, ManagerStatus>("nasd_forward_flush_result", &Ok(flushed)),
        result::<_, ManagerStatus>("nasd_forward_getattr_result", &Ok(reply)),
        result::<_, ManagerStatus>("nasd_forward_seek_result", &Ok(sought)),
        result::<_, ManagerStatus>("nasd_statistics_result", &Ok(statistics())),
    ]
}

fn changed<R>(reply: R) -> Changed<R> {
    let directory = ToldDirectory { handle: handle(), attributes: file().attributes };
    let begun = Begun { version: n("access_version"), end: n("end"), time: n("time") };
    let (promised, begun) = (Some(n("promised")), Some(begun));
    Changed { reply, directories: vec![directory; 2], promised, begun }
}

fn file_page() -> FilePage {
    let listed = ListedFile { name: name("name"), file: file() };
    FilePage { files: vec![listed; 2], cookie: n("cookie"), end: true }
}

fn held_lock() -> HeldLock {
    HeldLock {
        file: handle(),
        kind: LockKind::Flock,
        owner: n("owner"),
        first: n("first"),
        last: n("last"),
        mode: LockMode::Exclusive,
        process: n32("process"),
    }
}

fn session_samples() -> Vec<Sample> {
    let client = n("client");
    let attach = AttachArguments { client, locks: vec![held_lock(); 2], open: vec![handle(); 3] };
    let closed = ClosedArguments { client, files: vec![handle(); 2] };
    let events = EventsArguments { client, seen: n("seen"), open: vec![handle()], wait: true };
    let lock = LockArguments { client, lock: held_lock(), wait: true };
    let unlock = UnlockArguments {
        client,
        file: handle(),
        kind: LockKind::Posix,
        owner: n("owner"),
        first: n("first"),
        last: n("last"),
        only_waiting: true,
    };
    let attached =
        Attached { instance: n("instance"), lease: n("lease"), lost: vec![n32("lost"); 2] };
    let page = EventsPage {
        first: n("first"),
        events: vec![
            Event::Removed(handle()),
            Event::LockFree(handle(), LockKind::Posix),
            Event::DirectoryChanged(handle()),
            Event::Broken(handle(), n("access_version")),
            Event::Changed(handle()),
        ],
    };
    let answer = |answer| result::<_, ManagerStatus>("nasd_lock_result", &Ok(answer));
    let in_the_way =
        |lock| result::<_, ManagerStatus>("nasd_test_lock_result", &Ok(InTheWay(lock)));
    vec![
        message("nasd_attach_arguments", &attach),
        message("nasd_detach_arguments", &DetachArguments { client }),
        message("nasd_closed_arguments", &closed),
        message("nasd_events_arguments", &events),
        message("nasd_lock_arguments", &lock),
        message("nasd_unlock_arguments", &unlock),
        result::<_, ManagerStatus>("nasd_attach_result", &Ok(attached)),
        result::<_, ManagerStatus>("nasd_events_result", &Ok(page)),
        answer(LockAnswer::Granted),
        answer(LockAnswer::Denied(held_lock())),
        answer(LockAnswer::Queued(held_lock())),
        in_the_way(None),
        in_the_way(Some(held_lock())),
        message("nasd_lease_arguments", &LeaseArguments { client, directory: handle() }),
        result::<_, ManagerStatus>("nasd_lease_result", &Ok(Leased { granted: true })),
        result::<_, ManagerStatus>("nasd_member_result", &Ok(Membership { present: true })),
    ]
}

/// The calls of the `afs` personality.
fn callback_samples() -> Vec<Sample> {
    let (client, version) = (n("client"), n("access_version"));
    let writes = |cut| GetwcapArguments {
        file: handle(),
        client,
        least_end: n("least_end"),
        best_end: n("best_end"),
        cut,
    };
    let readable = Readable { file: file(), version, promised: true };
    let (end, time) = (n("end"), n("time"));
    let writable = Writable { file: file(), version, end, time, alone: true };
    let returned = Returned { file: file(), version, promised: false };
    vec![
        message(
            "nasd_getcap_arguments",
            &GetcapArguments { file: handle(), client, contents: true },
        ),
        result::<_, ManagerStatus>("nasd_getcap_result", &Ok(readable.clone())),
        message(
            "nasd_getcaps_arguments",
            &GetcapsArguments { file: handle(), client, neighbours: vec![handle(), handle()] },
        ),
        result::<_, ManagerStatus>(
            "nasd_getcaps_result",
            &Ok(Readables { file: readable.clone(), neighbours: vec![readable] }),
        ),
        message("nasd_getwcap_arguments", &writes(None)),
        message("nasd_getwcap_arguments", &writes(Some(Cut { length: n("length"), version }))),
        result::<_, ManagerStatus>("nasd_getwcap_result", &Ok(writable)),
        message(
            "nasd_returncap_arguments",
            &ReturncapArguments { file: handle(), client, version },
        ),
        message(
            "nasd_hold_volume_arguments",
            &HoldVolumeArguments { volume: name("volume"), most_ns: n("most_ns") },
        ),
        message(
            "nasd_release_volume_arguments",
            &ReleaseVolumeArguments { volume: name("volume"), ticket: n("ticket") },
        ),
        message(
            "nasd_move_part_arguments",
            &MovePartArguments {
                volume: name("volume"),
                ticket: n("ticket"),
                part: DriveId(n("part")),
                drive: DriveId(n("drive")),
                partition: PartitionId(n32("partition")),
            },
        ),
        result::<_, ManagerStatus>("nasd_returncap_result", &Ok(returned)),
    ]
}

fn cell_status() -> CellStatus {
    let drive = DriveId(n("drive"));
    let answering = DriveStatus {
        drive,
        address: "host:1".to_owned(),
        reachable: true,
        control: Some(drive_control()),
        forwarded_bytes: n("forwarded_bytes"),
    };
    let away = DriveStatus {
        drive,
        address: String::new(),
        reachable: false,
        control: None,
        forwarded_bytes: n("forwarded_bytes"),
    };
    CellStatus {
        cell: CellId([1; 16]),
        volume: name("home"),
        started: time("started"),
        drives: vec![answering, away],
        file_data_bytes: n("file_data_bytes"),
        client_bytes_received: n("client_bytes_received"),
        client_bytes_sent: n("client_bytes_sent"),
        requests: n("requests"),
    }
}

fn enrolled() -> Enrolled {
    let text = |text: &str| text.to_owned();
    Enrolled {
        member: text("host"),
        certificate: text("a certificate"),
        authority: text("the authority"),
        cell: text("the cell"),
    }
}

fn rotation() -> Rotation {
    let state = WorkingKeyState { drive: DriveId(n("drive")), epoch: n32("epoch"), done: true };
    Rotation { drives: vec![state, state] }
}

fn volume_list() -> VolumeList {
    let volume = |text, serving| VolumeSummary {
        name: name(text),
        serving,
        backlog: n("backlog"),
        personality: if serving { Personality::Nfs } else { Personality::Afs },
        read_only: !serving,
    };
    VolumeList { volumes: vec![volume("home", true), volume("scratch", false)] }
}

fn volume_parts() -> VolumePartList {
    let part = VolumePart {
        drive: DriveId(n("drive")),
        partition: PartitionId(n32("partition")),
        made_drive: DriveId(n("made_drive")),
        made_partition: PartitionId(n32("made_partition")),
        reachable: true,
        quota_bytes: n("quota_bytes"),
        used_bytes: n("used_bytes"),
        free_bytes: n("free_bytes"),
        objects: n("objects"),
    };
    VolumePartList { parts: vec![part, part] }
}

fn manager_results() -> Vec<Sample> {
    let address = DriveAddress {
        drive: DriveId(n("drive")),
        address: "[::1]:2049".to_owned(),
        index: n32("index"),
    };
    let volume = Volume {
        cell: CellId([2; 16]),
        name: name("home"),
        root: file(),
        drives: vec![address],
        protection: Protection::from_bits_retain(n32("protection")),
        personality: Personality::Afs,
        read_only: true,
    };
    let entry = DirectoryEntry {
        cookie: n("cookie"),
        handle: handle(),
        file_type: FileType::Symlink,
        name: name("entry"),
    };
    let page = DirectoryPage { entries: vec![entry.clone(), entry], end: true };
    let space = SpaceInformation {
        total_bytes: n("total_bytes"),
        free_bytes: n("free_bytes"),
        files: n("files"),
        free_files: n("free_files"),
    };
    let (volumes, parts) = (volume_list(), volume_parts());
    vec![
        result::<_, ManagerStatus>("nasd_volume_list_result", &Ok(volumes)),
        result::<_, ManagerStatus>(
            "nasd_hold_volume_result",
            &Ok(HeldVolume { ticket: n("ticket") }),
        ),
        result::<_, ManagerStatus>("nasd_volume_part_list_result", &Ok(parts)),
        result::<_, ManagerStatus>("nasd_file_result", &Ok(file())),
        result::<File, _>("nasd_file_result", &Err(ManagerStatus::Access)),
        result::<(), ManagerStatus>("nasd_manager_status_result", &Ok(())),
        result::<_, ManagerStatus>("nasd_volume_result", &Ok(volume)),
        result::<_, ManagerStatus>("nasd_readdir_result", &Ok(page)),
        result::<_, ManagerStatus>("nasd_readdirplus_result", &Ok(file_page())),
        result::<_, ManagerStatus>("nasd_made_result", &Ok(changed(file()))),
        result::<_, ManagerStatus>("nasd_changed_result", &Ok(changed(()))),
        result::<_, ManagerStatus>("nasd_xattr_result", &Ok(XattrValue { value: vec![1; 7] })),
        result::<_, ManagerStatus>(
            "nasd_xattr_names_result",
            &Ok(XattrNames { names: b"user.a\0".to_vec() }),
        ),
        result::<_, ManagerStatus>("nasd_mint_result", &Ok(minted())),
        result::<_, ManagerStatus>("nasd_space_result", &Ok(space)),
        result::<_, ManagerStatus>("nasd_cell_status_result", &Ok(cell_status())),
        result::<_, ManagerStatus>("nasd_rotation_result", &Ok(rotation())),
        result::<_, ManagerStatus>("nasd_enroll_result", &Ok(enrolled())),
    ]
}

fn desk_path(text: &str) -> DeskPath {
    DeskPath::new(text).expect("paths here are short")
}

fn facts() -> FileFacts {
    FileFacts {
        file_type: FileType::Fifo,
        mode: n32("mode"),
        uid: n32("uid"),
        gid: n32("gid"),
        size: n("size"),
        modify_time: time("modify_time"),
    }
}

fn desk_arguments() -> Vec<Sample> {
    let path = desk_path("films/a film");
    let ticket = TicketArguments {
        path: path.clone(),
        wanted: Wanted::from_bits_retain(n32("wanted")),
        mode: n32("mode"),
        lifetime_ns: n("lifetime"),
    };
    let list = ListArguments { path: path.clone(), cookie: n("cookie"), most: n32("most") };
    let rename = DeskRenameArguments { from: path.clone(), to: desk_path("films/another") };
    let set = SettimeArguments { path: path.clone(), modify_time: time("modify_time") };
    vec![
        message("nasd_desk_path", &path),
        message("nasd_desk_path", &desk_path("")),
        message("nasd_ticket_arguments", &ticket),
        message("nasd_desk_list_arguments", &list),
        message("nasd_desk_mode_arguments", &ModeArguments { path, mode: n32("mode") }),
        message("nasd_desk_rename_arguments", &rename),
        message("nasd_desk_time_arguments", &set),
    ]
}

fn desk_results() -> Vec<Sample> {
    let ticket = IssuedTicket {
        capability: issued(),
        place: vec![9; 33],
        time: time("time"),
        facts: facts(),
    };
    let entry = |facts| Entry { name: name("a film"), file_type: FileType::Regular, facts };
    let entries = vec![entry(Some(facts())), entry(None)];
    let page = Page { entries, cookie: n("cookie"), end: true };
    vec![
        result::<_, DeskStatus>("nasd_ticket_result", &Ok(ticket)),
        result::<IssuedTicket, _>("nasd_ticket_result", &Err(DeskStatus::Unavailable)),
        result::<_, DeskStatus>("nasd_desk_facts_result", &Ok(facts())),
        result::<FileFacts, _>("nasd_desk_facts_result", &Err(DeskStatus::Loop)),
        result::<_, DeskStatus>("nasd_desk_list_result", &Ok(page)),
        result::<Page, _>("nasd_desk_list_result", &Err(DeskStatus::NotDirectory)),
        result::<(), DeskStatus>("nasd_desk_status_result", &Ok(())),
        result::<(), _>("nasd_desk_status_result", &Err(DeskStatus::CrossDevice)),
    ]
}

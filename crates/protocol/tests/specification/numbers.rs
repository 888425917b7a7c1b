//! Constants, enumerations, programs and procedures against the text.

use std::collections::BTreeMap;
use std::fmt::Debug;

use nasd_capability::{
    CAPABILITY_BYTES, DIGEST_BYTES, KEY_BYTES, KeyKind, MAX_NARROWINGS, SALT_BYTES,
    SEALED_NONCE_BYTES, Suite, TAG_BYTES,
};
use nasd_protocol::bulk::MAX_PLACE_BYTES;
use nasd_protocol::bulk_desk::{DeskStatus, MAX_DESK_ENTRIES, MAX_PATH_BYTES, Wanted};
use nasd_protocol::drive::{
    AuditKind, BatchKind, ComponentComplaint, ComponentRole, ExtensionOutcome, MAX_SEALED_BYTES,
    Medium, MemberState, NO_QUOTA, PRIVATE_UNIT_BYTES, PartitionKey, PartitionState,
};
use nasd_protocol::manager::{
    Extended, FileType, LockKind, LockMode, ManagerStatus, RenameFlags, RepairAction, XattrFlags,
};
use nasd_protocol::{AUTH_FLAVOR, Status, bulk_desk, drive, limits, manager};
use nasd_types::{
    Compression, FS_SPECIFIC_BYTES, ObjectId, Personality, Protection, Rights, SeekTarget,
};

use crate::spec::{Definition, Program, Spec};

/// `CamelCase` as `PREFIX_CAMEL_CASE`.
fn specified_name(prefix: &str, rust_name: &str) -> String {
    let mut name = prefix.to_owned();
    for character in rust_name.chars() {
        if character.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

fn numbered<T: Copy + Debug>(
    prefix: &str,
    values: &[T],
    number: impl Fn(T) -> u32,
) -> Vec<(String, u64)> {
    let name = |value: &T| specified_name(prefix, &format!("{value:?}"));
    values.iter().map(|value| (name(value), u64::from(number(*value)))).collect()
}

fn enumeration(spec: &Spec, name: &str) -> Vec<(String, u64)> {
    match &spec.definitions[name] {
        Definition::Enum(values) => values.clone(),
        other => panic!("{name} is no enumeration but {other:?}"),
    }
}

/// The constants of the specification, as the crates have them.
const CONSTANTS: &[(&str, u64)] = &[
    ("NASD_FS_SPECIFIC_BYTES", FS_SPECIFIC_BYTES as u64),
    ("NASD_KEY_BYTES", KEY_BYTES as u64),
    ("NASD_DIGEST_BYTES", DIGEST_BYTES as u64),
    ("NASD_CELL_ID_BYTES", size_of::<nasd_types::CellId>() as u64),
    ("NASD_MAX_TRANSFER", limits::MAX_TRANSFER_BYTES as u64),
    ("NASD_MAX_REGIONS", limits::MAX_REGIONS as u64),
    ("NASD_MAX_PIECES", limits::MAX_PIECES as u64),
    ("NASD_MAX_FLUSH", limits::MAX_FLUSH_OBJECTS as u64),
    ("NASD_MAX_BATCH", limits::MAX_BATCH as u64),
    ("NASD_FIRST_NAMED_OBJECT", ObjectId::FIRST_NAMED.0),
    ("NASD_END_OF_OBJECTS", ObjectId::END.0),
    ("NASD_MAX_COMPONENTS", limits::MAX_COMPONENTS as u64),
    ("NASD_MAX_BATCH_BYTES", limits::MAX_BATCH_BYTES as u64),
    ("NASD_MAX_TEXT", limits::MAX_TEXT_BYTES as u64),
    ("NASD_MAX_PARAMETERS", limits::MAX_PARAMETERS_BYTES as u64),
    ("NASD_MAX_PARTITIONS", limits::MAX_PARTITIONS as u64),
    ("NASD_MAX_EXTENSIONS", limits::MAX_EXTENSIONS as u64),
    ("NASD_MAX_EXTENSION_JOBS", limits::MAX_EXTENSION_JOBS as u64),
    ("NASD_MAX_EXTENSION_BYTES", limits::MAX_EXTENSION_BYTES as u64),
    ("NASD_MAX_AUDIT_RECORDS", limits::MAX_AUDIT_RECORDS as u64),
    ("NASD_PRIVATE_UNIT", PRIVATE_UNIT_BYTES as u64),
    ("NASD_MAX_SEALED", MAX_SEALED_BYTES as u64),
    ("NASD_MAX_DIFFERENCES", limits::MAX_DIFFERENCES as u64),
    ("NASD_MAX_CHANGED_RANGES", limits::MAX_CHANGED_RANGES as u64),
    ("NASD_MAX_MADE_APPENDS", limits::MAX_MADE_APPENDS as u64),
    ("NASD_MAX_COMPARISON_BYTES", limits::MAX_COMPARISON_BYTES as u64),
    ("NASD_SALT_BYTES", SALT_BYTES as u64),
    ("NASD_TAG_BYTES", TAG_BYTES as u64),
    ("NASD_TOKEN_BYTES", nasd_types::AppendToken::BYTES as u64),
    ("NASD_NONCE_BYTES", SEALED_NONCE_BYTES as u64),
    ("NASD_CAPABILITY_BYTES", CAPABILITY_BYTES as u64),
    ("NASD_MAX_NARROWINGS", MAX_NARROWINGS as u64),
    ("NASD_NO_QUOTA", NO_QUOTA),
    ("NASD_AUTH_FLAVOR", AUTH_FLAVOR as u64),
    ("NASD_NO_PROTECTION", Protection::NONE.bits() as u64),
    ("NASD_INTEGRITY_ARGS", Protection::INTEGRITY_ARGS.bits() as u64),
    ("NASD_INTEGRITY_DATA", Protection::INTEGRITY_DATA.bits() as u64),
    ("NASD_PRIVACY_ARGS", Protection::PRIVACY_ARGS.bits() as u64),
    ("NASD_PRIVACY_DATA", Protection::PRIVACY_DATA.bits() as u64),
    ("NASD_PRIVACY_CAPABILITY", Protection::PRIVACY_CAPABILITY.bits() as u64),
    ("NASD_RIGHT_READ", Rights::READ.bits() as u64),
    ("NASD_RIGHT_WRITE", Rights::WRITE.bits() as u64),
    ("NASD_RIGHT_GETATTR", Rights::GETATTR.bits() as u64),
    ("NASD_RIGHT_SETATTR", Rights::SETATTR.bits() as u64),
    ("NASD_RIGHT_CREATE", Rights::CREATE.bits() as u64),
    ("NASD_RIGHT_REMOVE", Rights::REMOVE.bits() as u64),
    ("NASD_RIGHT_FLUSH", Rights::FLUSH.bits() as u64),
    ("NASD_MAX_NAME", limits::MAX_NAME_BYTES as u64),
    ("NASD_MAX_SYMLINK", limits::MAX_SYMLINK_BYTES as u64),
    ("NASD_MAX_ADDRESS", limits::MAX_ADDRESS_BYTES as u64),
    ("NASD_MAX_DRIVES", limits::MAX_DRIVES as u64),
    ("NASD_MAX_VOLUMES", limits::MAX_VOLUMES as u64),
    ("NASD_MAX_ENTRIES", limits::MAX_ENTRIES as u64),
    ("NASD_MAX_FILES", limits::MAX_FILES as u64),
    ("NASD_MAX_NEIGHBOURS", limits::MAX_NEIGHBOURS as u64),
    ("NASD_MAX_TOLD", nasd_protocol::manager::MAX_TOLD as u64),
    ("NASD_MAX_CLAIMS", limits::MAX_CLAIMS as u64),
    ("NASD_MAX_EVENTS", limits::MAX_EVENTS as u64),
    ("NASD_MAX_TOKEN", limits::MAX_TOKEN_BYTES as u64),
    ("NASD_MAX_PUBLIC_KEY", limits::MAX_PUBLIC_KEY_BYTES as u64),
    ("NASD_MAX_CERTIFICATE", limits::MAX_CERTIFICATE_BYTES as u64),
    ("NASD_MAX_CELL_TEXT", limits::MAX_CELL_TEXT_BYTES as u64),
    ("NASD_MAX_XATTR_VALUE", limits::MAX_XATTR_VALUE_BYTES as u64),
    ("NASD_MAX_XATTR_LIST", limits::MAX_XATTR_LIST_BYTES as u64),
    ("NASD_MAX_STATISTICS", limits::MAX_STATISTICS as u64),
    ("NASD_MAX_ACCESSED", limits::MAX_ACCESSED as u64),
    ("NASD_HAS_ACCESS_ACL", Extended::ACCESS_ACL.0 as u64),
    ("NASD_HAS_DEFAULT_ACL", Extended::DEFAULT_ACL.0 as u64),
    ("NASD_HAS_AFS_ACL", Extended::AFS_ACL.0 as u64),
    ("NASD_NAMES_BY_CALLER", Extended::NAMES_BY_CALLER.0 as u64),
    ("NASD_HAS_ATTRIBUTES", Extended::ATTRIBUTES.0 as u64),
    ("NASD_XATTR_CREATE", XattrFlags::CREATE.0 as u64),
    ("NASD_XATTR_REPLACE", XattrFlags::REPLACE.0 as u64),
    ("NASD_RENAME_EXCHANGE", RenameFlags::EXCHANGE.0 as u64),
    ("NASD_RENAME_NO_REPLACE", RenameFlags::NO_REPLACE.0 as u64),
    ("NASD_MAX_DESK_PATH", MAX_PATH_BYTES as u64),
    ("NASD_MAX_DESK_NAME", limits::MAX_NAME_BYTES as u64),
    ("NASD_MAX_DESK_ENTRIES", MAX_DESK_ENTRIES as u64),
    ("NASD_MAX_PLACE", MAX_PLACE_BYTES as u64),
    ("NASD_WANT_READ", Wanted::READ.bits() as u64),
    ("NASD_WANT_WRITE", Wanted::WRITE.bits() as u64),
    ("NASD_WANT_CREATE", Wanted::CREATE.bits() as u64),
    ("NASD_WANT_EXCLUSIVE", Wanted::EXCLUSIVE.bits() as u64),
    ("NASD_WANT_TRUNCATE", Wanted::TRUNCATE.bits() as u64),
];

#[test]
fn constants_are_those_of_the_specification() {
    let rust = CONSTANTS;
    let rust: BTreeMap<String, u64> =
        rust.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    assert_eq!(Spec::load().constants, rust);
}

#[test]
fn statuses_are_those_of_the_specification() {
    let spec = Spec::load();
    let mut drive = vec![("NASD_OK".to_owned(), 0)];
    drive.extend(numbered("NASD", Status::ALL, u32::from));
    assert_eq!(enumeration(&spec, "nasd_status"), drive);
    let mut manager = vec![("NASDM_OK".to_owned(), 0)];
    manager.extend(numbered("NASDM", ManagerStatus::ALL, u32::from));
    assert_eq!(enumeration(&spec, "nasd_manager_status"), manager);
    let mut desk = vec![("NASDK_OK".to_owned(), 0)];
    desk.extend(numbered("NASDK", DeskStatus::ALL, u32::from));
    assert_eq!(enumeration(&spec, "nasd_desk_status"), desk);
}

#[test]
fn wishes_are_those_of_the_specification() {
    let spec = Spec::load();
    let specified: Vec<(&str, u64)> = spec
        .constants
        .iter()
        .filter_map(|(name, bit)| Some((name.strip_prefix("NASD_WANT_")?, *bit)))
        .collect();
    let mut rust: Vec<(&str, u64)> =
        Wanted::all().iter_names().map(|(name, wish)| (name, wish.bits().into())).collect();
    rust.sort_unstable();
    assert_eq!(specified, rust);
}

#[test]
fn other_enumerations_are_those_of_the_specification() {
    let spec = Spec::load();
    let kinds: Vec<KeyKind> = (0..).map_while(KeyKind::from_code).collect();
    assert_eq!(enumeration(&spec, "nasd_key_kind"), numbered("NASD_KEY", &kinds, KeyKind::code));
    let suites: Vec<(String, u64)> = (0..)
        .map_while(Suite::from_code)
        .map(|suite| (format!("{suite:?}").to_uppercase(), u64::from(suite.code())))
        .map(|(name, number)| (format!("NASD_SUITE_{name}"), number))
        .collect();
    assert_eq!(enumeration(&spec, "nasd_suite"), suites);
    assert_eq!(
        enumeration(&spec, "nasd_file_type"),
        numbered("NASD_FILE", FileType::ALL, u32::from)
    );
    assert_eq!(enumeration(&spec, "nasd_medium"), numbered("NASD_MEDIUM", Medium::ALL, u32::from));
    for (name, numbers) in [
        ("nasd_partition_key", numbered("NASD_PARTITION", PartitionKey::ALL, u32::from)),
        ("nasd_batch_kind", numbered("NASD_BATCH", BatchKind::ALL, u32::from)),
        ("nasd_audit_kind", numbered("NASD_AUDIT", AuditKind::ALL, u32::from)),
        ("nasd_partition_state", numbered("NASD_PARTITION", PartitionState::ALL, u32::from)),
        (
            "nasd_component_complaint",
            numbered("NASD_COMPLAINT", ComponentComplaint::ALL, u32::from),
        ),
        ("nasd_component_role", numbered("NASD_COMPONENT", ComponentRole::ALL, u32::from)),
        ("nasd_member_state", numbered("NASD_MEMBER", MemberState::ALL, u32::from)),
    ] {
        assert_eq!(enumeration(&spec, name), numbers);
    }
    let compressions: Vec<Compression> = (0..).map_while(Compression::from_number).collect();
    let number = |compression| u32::from(compression as u8);
    assert_eq!(
        enumeration(&spec, "nasd_compression"),
        numbered("NASD_COMPRESSION", &compressions, number)
    );
    let targets = [SeekTarget::Data, SeekTarget::Hole];
    let number = |target| target as u32;
    assert_eq!(enumeration(&spec, "nasd_seek_target"), numbered("NASD_SEEK", &targets, number));
    for (name, numbers) in [
        ("nasd_extension_outcome", numbered("NASD_EXTENSION", ExtensionOutcome::ALL, u32::from)),
        ("nasd_lock_kind", numbered("NASD_LOCK", LockKind::ALL, u32::from)),
        ("nasd_lock_mode", numbered("NASD_LOCK", LockMode::ALL, u32::from)),
        ("nasd_repair_action", numbered("NASD_REPAIR", RepairAction::ALL, u32::from)),
    ] {
        assert_eq!(enumeration(&spec, name), numbers);
    }
    let number = |personality| personality as u32;
    assert_eq!(
        enumeration(&spec, "nasd_personality"),
        numbered("NASD_PERSONALITY", &Personality::ALL, number)
    );
    let numbers =
        |name| -> Vec<u64> { enumeration(&spec, name).iter().map(|(_, number)| *number).collect() };
    assert_eq!(numbers("nasd_event_kind"), [1, 2, 3, 4, 5], "as the samples have them");
    assert_eq!(numbers("nasd_lock_outcome"), [0, 1, 2], "as the samples have them");
    let shown = enumeration(&spec, "nasd_shown");
    assert_eq!(
        shown.iter().map(|(_, number)| *number).collect::<Vec<_>>(),
        [0, 1, 2],
        "nothing, a capability, a sealed one: as the samples have them"
    );
    let enumerations = |definition: &&Definition| matches!(definition, Definition::Enum(_));
    assert_eq!(spec.definitions.values().filter(enumerations).count(), 24, "one is not checked");
}

#[test]
fn programs_are_those_of_the_specification() {
    let spec = Spec::load();
    assert_eq!(spec.programs.len(), 3);
    let program = &spec.programs["NASD_DRIVE_PROGRAM"];
    assert_eq!(program.number, u64::from(drive::PROGRAM));
    assert_eq!(program.version, u64::from(drive::VERSION));
    assert_eq!(procedures(program), numbered("NASD", drive::Procedure::ALL, u32::from));
    let program = &spec.programs["NASD_MANAGER_PROGRAM"];
    assert_eq!(program.number, u64::from(manager::PROGRAM));
    assert_eq!(program.version, u64::from(manager::VERSION));
    assert_eq!(procedures(program), numbered("NASDM", manager::Procedure::ALL, u32::from));
    let program = &spec.programs["NASD_BULK_DESK"];
    assert_eq!(program.number, u64::from(bulk_desk::PROGRAM));
    assert_eq!(program.version, u64::from(bulk_desk::VERSION));
    assert_eq!(procedures(program), numbered("NASD_DESK", bulk_desk::Procedure::ALL, u32::from));
}

fn procedures(program: &Program) -> Vec<(String, u64)> {
    program.procedures.iter().map(|each| (each.name.clone(), each.number)).collect()
}

/// The name in the specification of a Rust message, `void` for `()`.
fn specified_type<T>() -> String {
    let path = std::any::type_name::<T>();
    // What directories a change has touched is told behind what else there is.
    if path.contains("::Changed<") {
        let is_made = path.ends_with("::File>");
        return if is_made { "nasd_made" } else { "nasd_changed" }.to_owned();
    }
    let name = path.rsplit("::").next().unwrap_or(path);
    if path.contains("::bulk_desk::") {
        return match name {
            "IssuedTicket" => "nasd_ticket".to_owned(),
            "TicketArguments" => "nasd_ticket_arguments".to_owned(),
            "FileFacts" => "nasd_desk_facts".to_owned(),
            "DeskPath" => "nasd_desk_path".to_owned(),
            "SettimeArguments" => "nasd_desk_time_arguments".to_owned(),
            name => specified_name("nasd_desk", name).to_lowercase(),
        };
    }
    match name {
        "()" => "void".to_owned(),
        // Renamed because an operation has the name already, or to make a struct of one field.
        "SpaceInformation" => "nasd_space".to_owned(),
        "AttributesReply" => "nasd_attributes".to_owned(),
        name => specified_name("nasd", name).to_lowercase(),
    }
}

/// What follows success in a result: the type that a `Result` has in Rust.
fn success_type(spec: &Spec, result: &str) -> String {
    match &spec.definitions[result] {
        Definition::Union { arms, .. } => {
            let (_, body) = arms.first().unwrap_or_else(|| panic!("{result} has no arms"));
            body.as_ref().map_or("void".to_owned(), |body| body.type_name.clone())
        }
        Definition::Struct(_) => "void".to_owned(),
        other => panic!("{result} is {other:?}"),
    }
}

fn check_operation<Arguments, Reply>(spec: &Spec, program: &str, number: u32, numbered: bool) {
    let procedures = &spec.programs[program].procedures;
    let procedure = procedures
        .iter()
        .find(|each| each.number == u64::from(number))
        .expect("the procedure is specified");
    let mut arguments = vec![specified_type::<Arguments>()];
    arguments.extend(numbered.then(specified_type::<manager::Request>));
    assert_eq!(arguments, procedure.arguments, "{}", procedure.name);
    let reply = success_type(spec, &procedure.result);
    assert_eq!(specified_type::<Reply>(), reply, "{}", procedure.name);
}

/// Whether a call says which request of the client it is.
fn is_numbered(program: &str, procedure: u32) -> bool {
    fn number<Op: manager::Change>() -> u32 {
        Op::PROCEDURE.into()
    }
    let numbered = [
        number::<manager::Setattr>(),
        number::<manager::Create>(),
        number::<manager::Mkdir>(),
        number::<manager::Symlink>(),
        number::<manager::Mkmount>(),
        number::<manager::Unlink>(),
        number::<manager::Rmdir>(),
        number::<manager::Rename>(),
        number::<manager::Link>(),
        number::<manager::Tmpfile>(),
        number::<manager::Mknod>(),
        number::<manager::Setxattr>(),
        number::<manager::Removexattr>(),
    ];
    program == "NASD_MANAGER_PROGRAM" && numbered.contains(&procedure)
}

macro_rules! check_operations {
    ($spec:expr, $program:literal, $module:ident: $($operation:ident)+) => {{
        use nasd_protocol::$module::Operation;
        let mut checked = vec![$module::Procedure::Null];
        $(
            check_operation::<
                <$module::$operation as Operation>::Arguments,
                <$module::$operation as Operation>::Reply,
            >(
                $spec,
                $program,
                $module::$operation::PROCEDURE.into(),
                is_numbered($program, $module::$operation::PROCEDURE.into()),
            );
            checked.push($module::$operation::PROCEDURE);
        )+
        assert_eq!(checked, $module::Procedure::ALL, "every operation, in order");
    }};
}

#[test]
fn operations_have_the_types_of_the_specification() {
    let spec = Spec::load();
    check_operations!(&spec, "NASD_DRIVE_PROGRAM", drive:
        Inquiry Create Remove Getattr Setattr Read Write Flush Fastcopy Blocksrequired Punch Seek
        Createpartition Removepartition Resizepartition Flushpartition Setpartitionkey
        Setpartition Initialize Setdrivekey Setdrive Audit Private Batch Append
        Copyrange Map Setstriping Endwrites Extend Copypartition
        Comparepartition Putobject);
    check_operations!(&spec, "NASD_MANAGER_PROGRAM", manager:
        VolumeOperation Lookup Getattr Setattr Create Mkdir Symlink Unlink Rmdir Rename Link
        Readdir Space StatusOperation Rotate Mint Revoke Reload Enroll Renew Commit Member Volumes
        VolumeParts ReloadVolumes Repair Attach Detach Events Closed Lock Unlock TestLock
        Lease
        ForwardRead ForwardWrite ForwardFlush ForwardGetattr ForwardPunch ForwardSeek
        ForwardAppend
        StatisticsOperation
        Mknod Getxattr Setxattr Listxattr Removexattr Accessed Readdirplus
        Tmpfile Getcap Getwcap Returncap Getcaps Mkmount HoldVolume ReleaseVolume MovePart);
    check_operations!(&spec, "NASD_BULK_DESK", bulk_desk:
        Ticket Look List Mkdir Rename Remove Settime Setmode);
}

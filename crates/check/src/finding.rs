//! What a check can find: stable code names, how bad each is, and what a repair does about it.

use std::fmt;

use nasd_types::{ObjectId, ObjectName, PartitionId};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is lost and the drive opens.
    Note,
    /// The drive may refuse to open or miscount; no contents are lost by it.
    Damage,
    /// Contents, attributes or keys are lost, or can't be told from what is not theirs.
    DataLoss,
}

impl Severity {
    /// The word that is printed and documented.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Damage => "damage",
            Severity::DataLoss => "data loss",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! codes {
    ($($variant:ident $name:literal $severity:ident $meaning:literal $repair:literal;)*) => {
        /// A rule of the format that can be broken. The names are stable: scripts may rely on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// Every code there is, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The stable name, in kebab case.
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }

            /// What it means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning,)* }
            }

            /// What a repair does about it.
            pub const fn repair(self) -> &'static str {
                match self { $(Code::$variant => $repair,)* }
            }
        }
    };
}

codes! {
    NotADrive "not-a-drive" DataLoss
        "neither superblock has the magic of a NASD drive" "nothing";
    UnknownVersion "unknown-version" Damage
        "the superblock has a version that this program does not know" "nothing";
    SuperblocksDamaged "superblocks-damaged" DataLoss
        "no copy of the superblock is valid" "nothing";
    DeviceTruncated "device-truncated" DataLoss
        "the device is smaller than what it was formatted for" "nothing";
    SuperblockADamaged "superblock-a-damaged" Damage
        "superblock A is damaged, B is valid" "written anew from B";
    SuperblockBDamaged "superblock-b-damaged" Damage
        "superblock B is damaged, A is valid" "written anew from A";
    SuperblockAOlder "superblock-a-older" Note
        "superblock A is older than B, as after a power cut between the two" "written anew from B";
    SuperblockBOlder "superblock-b-older" Note
        "superblock B is older than A, as after a power cut between the two" "written anew from A";
    SuperblockConflict "superblock-conflict" Damage
        "both superblocks are valid with the same sequence, and differ" "A counts, B is written anew";
    TreeUnreadable "tree-unreadable" DataLoss
        "the metadata tree has no root that can be read" "nothing";
    TreeDamaged "tree-damaged" DataLoss
        "a page of the metadata tree is damaged or can't be read"
        "the tree is built anew from the pages that are left";
    TreeSpaceWrong "tree-space-wrong" Damage
        "the metadata tree counts pages as free that it uses, or the other way round"
        "counted again";
    TableMalformed "table-malformed" DataLoss
        "a table has other types of key or value than the format says"
        "the table is made anew, empty";
    TableUnknown "table-unknown" Note
        "there is a table that the format does not know" "the table is removed";
    BallastMissing "ballast-missing" Damage
        "the ballast is not there, not what it must be, or not at the end of the metadata region"
        "the tree is built anew";
    LogMarkMissing "log-mark-missing" DataLoss
        "the log mark record is missing or damaged, so that it is not known what was applied"
        "the whole log counts as applied";
    LogMarkInvalid "log-mark-invalid" Damage
        "the log mark names no place in the log"
        "the log is read from its start, and the mark is set anew";
    LogUnreadable "log-unreadable" DataLoss
        "the medium can't read a part of the log" "the log counts as far as it was read, and is written over";
    LogEntryDamaged "log-entry-damaged" DataLoss
        "an entry of the log is damaged, and later ones are there"
        "the entries behind it are kept out and erased";
    LogEntryMalformed "log-entry-malformed" DataLoss
        "an entry of the log has a right checksum and contents that make no sense"
        "what is behind that point of the log is kept out and erased";
    LogChangeSenseless "log-change-senseless" DataLoss
        "a change in the log does not fit the state that it changes" "the change is left out";
    LogPaddingNotZero "log-padding-not-zero" Note
        "the padding behind an entry of the log is not zero" "the log is applied";
    RecordDamaged "record-damaged" DataLoss
        "a record does not match its checksum, which covers its key: damaged, or under a foreign key"
        "the record is dropped; what it said is computed again where it can be";
    RecordVersion "record-version" DataLoss
        "a record has a right checksum and a version that is not known" "the record is dropped";
    RecordReserved "record-reserved" Damage
        "reserved bytes of a record are not zero" "they are zeroed";
    RecordField "record-field" Damage
        "a field of a record has a value that it can't have"
        "the field is set to the closest value that it may have";
    RecordUnknownKey "record-unknown-key" Damage
        "a table has a record under a key that has no meaning" "the record is dropped";
    DriveKeysMissing "drive-keys-missing" DataLoss
        "the record of the drive's keys is missing or damaged"
        "nothing: a drive without keys would obey anybody";
    DriveCountersMissing "drive-counters-missing" Damage
        "the record of the drive's counters is missing or damaged"
        "made anew, with the identifiers of the objects that are there";
    PartitionMissing "partition-missing" DataLoss
        "there are objects or families of a partition that has no valid record"
        "the record is made anew, without keys and quota";
    PartitionObjectsWrong "partition-objects-wrong" Damage
        "OBJECTS of a partition is not the number of its objects" "counted again";
    PartitionChargeWrong "partition-charge-wrong" Damage
        "CHARGED_BLOCKS of a partition is not what its objects and families add up to"
        "added up again";
    FirstObjectMissing "first-object-missing" DataLoss
        "a partition has no First Object" "made anew, empty";
    IdentifierAboveLimit "identifier-above-limit" Damage
        "an object's identifier was not chosen and is not below OBJECT_LIMIT"
        "OBJECT_LIMIT is raised";
    BlocksUsedWrong "blocks-used-wrong" Damage
        "BLOCKS_USED of an object is not the number of blocks that it alone holds" "counted again";
    ExtentMalformed "extent-malformed" DataLoss
        "an extent has lengths, a codec or a place that it can't have" "the extent is dropped";
    ExtentOutsideDevice "extent-outside-device" DataLoss
        "an extent names data blocks that the device does not have" "the extent is dropped";
    ExtentsOverlap "extents-overlap" DataLoss
        "two extents of an object overlap" "the one that begins later is dropped";
    ExtentBehindSize "extent-behind-size" Damage
        "an extent reaches behind the object's size"
        "what is behind is dropped, of a compressed extent all";
    ExtentOrphan "extent-orphan" DataLoss
        "an extent belongs to no object" "the extent is dropped";
    SmallOrphan "small-orphan" DataLoss
        "small contents belong to no object" "the record is dropped";
    SmallMissing "small-missing" DataLoss
        "an object's contents should be in table small, and are not"
        "the object reads as zeros";
    SmallUnexpected "small-unexpected" Damage
        "an object has a record in table small and does not say so"
        "the record counts if the object has no extents, else it is dropped";
    SmallMalformed "small-malformed" Damage
        "small contents are empty, too long, or longer than their object"
        "cut to the object's size";
    SmallWithExtents "small-with-extents" DataLoss
        "an object has both small contents and extents" "the extents are dropped";
    BlockUsedTwice "block-used-twice" DataLoss
        "two extents name a data block without a share record"
        "shared, but of those of one partition that are of two families the later object loses it";
    ShareMissing "share-missing" Damage
        "members of one family name a data block, and no share record does" "made anew";
    ShareMalformed "share-malformed" Damage
        "a share record has no blocks, or holders that can't be"
        "computed again from the extents";
    ShareOutsideDevice "share-outside-device" Damage
        "a share record names data blocks that the device does not have"
        "computed again from the extents";
    SharesOverlap "shares-overlap" Damage
        "two share records have a data block in common" "computed again from the extents";
    ShareCountWrong "share-count-wrong" Damage
        "a COUNT of a share record is not the number of the partition's extents that name its blocks"
        "counted again";
    ShareForeign "share-foreign" DataLoss
        "an object outside of the family, or of no holder, names a shared block"
        "the object joins its partition's family if it has none, else it loses the block";
    ShareUnused "share-unused" Damage
        "a share record has blocks that no extent names" "the blocks are free";
    FamilyMissing "family-missing" Damage
        "objects or shared blocks belong to a family that has no record" "made anew";
    FamilyEmpty "family-empty" Damage
        "a family has no members" "the record is dropped";
    FamilyMembersWrong "family-members-wrong" Damage
        "MEMBERS of a family is not the number of its members" "counted again";
    SharedBlocksWrong "shared-blocks-wrong" Damage
        "SHARED_BLOCKS of a family is not the sum of its share records" "added up again";
    MemberOrphan "member-orphan" Damage
        "a member of a family is an object that is not there" "the record is dropped";
    MemberMissing "member-missing" Damage
        "an object's family does not list it as a member" "listed";
    MemberMismatch "member-mismatch" Damage
        "a family lists an object as a member that says it is of another, or of none"
        "the record is dropped";
    SumsMissing "sums-missing" Damage
        "data blocks in use have no checksums"
        "made anew from the blocks as they are: damage in them is not noticed any more";
    SumsStray "sums-stray" Note
        "there are checksums of data blocks that the device does not have" "the record is dropped";
    BlockDamaged "block-damaged" DataLoss
        "a data block does not match its checksum"
        "left as it is (reads fail there), or made a hole on request";
    BlockUnreadable "block-unreadable" DataLoss
        "the medium can't read a data block"
        "left as it is (reads fail there), or made a hole on request";
    StreamDamaged "stream-damaged" DataLoss
        "a compressed extent's blocks match their checksums, and can't be decompressed"
        "left as it is (reads fail there), or made a hole on request";
    StreamPaddingNotZero "stream-padding-not-zero" Note
        "the rest of the last block behind a compressed stream is not zero" "left as it is";
    TailNotZero "tail-not-zero" Damage
        "bytes of an object's last block behind its size are not zero"
        "the block is copied with zeros there, if a free one is to be had";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The drive as a whole, its superblocks, log or metadata tree.
    Drive,
    /// A partition.
    Partition(PartitionId),
    /// An object, or a place in it.
    Object {
        /// Its name.
        name: ObjectName,
        /// The place, in bytes from the object's start, if it is about one.
        offset: Option<u64>,
    },
}

impl Subject {
    pub(crate) fn object(partition: u32, object: u64) -> Subject {
        let name = ObjectName { partition: PartitionId(partition), object: ObjectId(object) };
        Subject::Object { name, offset: None }
    }

    pub(crate) fn at(partition: u32, object: u64, offset: u64) -> Subject {
        let name = ObjectName { partition: PartitionId(partition), object: ObjectId(object) };
        Subject::Object { name, offset: Some(offset) }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Drive => f.write_str("drive"),
            Subject::Partition(partition) => write!(f, "partition {partition}"),
            Subject::Object { name, offset: None } => write!(f, "object {name}"),
            Subject::Object { name, offset: Some(offset) } => {
                write!(f, "object {name} at byte {offset}")
            }
        }
    }
}

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub code: Code,
    /// What it is about.
    pub subject: Subject,
    /// What exactly was found, for people.
    pub detail: String,
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// What a repair does about it.
    pub fn repair(&self) -> &'static str {
        self.code.repair()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { code, subject, detail } = self;
        write!(f, "{}: {code}: {subject}: {detail} (repair: {})", code.severity(), code.repair())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        let plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(names.iter().all(|name| name.chars().all(plain)));
    }

    #[test]
    fn a_finding_names_object_offset_and_repair() {
        let finding = Finding {
            code: Code::BlockDamaged,
            subject: Subject::at(1, 0x40, 8192),
            detail: "block 7".to_owned(),
        };
        let text = finding.to_string();
        assert!(text.starts_with("data loss: block-damaged: object p1/o40 at byte 8192"), "{text}");
        assert!(text.contains("made a hole"), "{text}");
    }
}

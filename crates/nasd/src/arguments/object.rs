//! `nasd object`, as the user types it.

use super::parse_size;
use super::partition::{DriveArguments, parse_identifier, parse_partition};
use clap::{Args, Subcommand, ValueEnum};
use nasd_protocol::Region;
use nasd_protocol::drive::Extension;
use nasd_types::{
    FS_SPECIFIC_BYTES, FsSpecific, ObjectId, PartitionId, Rights, SeekTarget, Timestamp,
};
use nasd_types::{ObjectName, SetAttributes};
use std::fmt::Display;

/// `nasd object`.
#[derive(Debug, Subcommand)]
pub enum ObjectCommand {
    /// Make an object; prints its identifier.
    Create {
        #[command(flatten)]
        place: PartitionPlace,
        #[command(flatten)]
        attributes: Box<AttributeArguments>,
        #[command(flatten)]
        durable: Durable,
    },
    /// List the identifiers of a partition's objects.
    List {
        #[command(flatten)]
        place: PartitionPlace,
    },
    /// Show the attributes of an object.
    Stat {
        #[command(flatten)]
        place: ObjectPlace,
    },
    /// Change attributes of an object; those not named stay.
    Set {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        attributes: Box<AttributeArguments>,
        #[command(flatten)]
        durable: Durable,
    },
    /// Read data of an object to the standard output: all of it, or regions.
    Read {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        regions: RegionArguments,
    },
    /// Write data of an object from the standard input: all of that, or as much as the regions hold.
    Write {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        regions: RegionArguments,
        #[command(flatten)]
        durable: Durable,
    },
    /// Make a copy that shares the object's blocks; prints its identifier.
    Copy {
        #[command(flatten)]
        place: ObjectPlace,
    },
    /// Make regions read as zeros, and free the blocks that lie within them.
    Punch {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        regions: RegionArguments,
        #[command(flatten)]
        durable: Durable,
    },
    /// Print where data, or a hole, begins from an offset on.
    Seek {
        #[command(flatten)]
        place: ObjectPlace,
        /// From which byte on.
        #[arg(long, default_value = "0", value_parser = parse_size)]
        offset: u64,
        /// What to look for.
        #[arg(value_enum)]
        target: SeekName,
    },
    /// Print how many blocks more the object may take once regions are overwritten.
    Required {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        regions: RegionArguments,
    },
    /// Have one of the drive's extensions do something with an object, or with regions of it; what it tells goes to the
    /// standard output.
    Extend {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        extension: ExtendOptions,
        #[command(flatten)]
        regions: RegionArguments,
        /// Print what it tells in hexadecimal.
        #[arg(long)]
        hex: bool,
    },
    /// Remove an object and its data.
    Remove {
        #[command(flatten)]
        place: ObjectPlace,
        #[command(flatten)]
        durable: Durable,
        /// Agree that its data is lost.
        #[arg(long)]
        yes: bool,
    },
    /// Make objects durable, data and attributes; the whole partition if none is named.
    Flush {
        #[command(flatten)]
        place: PartitionPlace,
        /// Which objects.
        #[arg(value_parser = parse_object)]
        objects: Vec<ObjectId>,
    },
    /// Show the control objects: the drive's (object 1), or a partition's (object 2).
    Control {
        #[command(flatten)]
        drive: DriveArguments,
        /// Show this partition's instead of the drive's.
        #[arg(value_parser = parse_partition)]
        partition: Option<PartitionId>,
    },
}

/// A partition of a running drive.
#[derive(Debug, Clone, Args)]
pub struct PartitionPlace {
    #[command(flatten)]
    pub drive: DriveArguments,
    /// A partition of the drive.
    #[arg(value_parser = parse_partition)]
    pub partition: PartitionId,
}

/// An object of a running drive.
#[derive(Debug, Clone, Args)]
pub struct ObjectPlace {
    #[command(flatten)]
    pub drive: DriveArguments,
    /// A partition of the drive.
    #[arg(value_parser = parse_partition)]
    pub partition: PartitionId,
    /// An object of the partition: o40 as it is printed, or 64. Objects 1 to 4 are the well-known
    /// ones: the drive's and the partition's control object, the list of objects, and the First
    /// Object.
    #[arg(value_parser = parse_object)]
    pub object: ObjectId,
}

impl ObjectPlace {
    /// The object's name within its drive.
    pub fn name(&self) -> ObjectName {
        ObjectName { partition: self.partition, object: self.object }
    }
}

/// Whether an answer is a promise.
#[derive(Debug, Clone, Copy, Args)]
pub struct Durable {
    /// Answer only when the change would survive a power cut.
    #[arg(long)]
    pub durable: bool,
}

/// Which bytes: rows of pieces. Repeated options make several regions, the first of each for the
/// first region, and so on.
#[derive(Debug, Clone, Default, Args)]
pub struct RegionArguments {
    /// First byte of a region; 0 if none is given.
    #[arg(long, value_parser = parse_size)]
    pub offset: Vec<u64>,
    /// Bytes of each piece of a region.
    #[arg(long, value_parser = parse_size)]
    pub length: Vec<u64>,
    /// From the start of a piece to the start of the next; at least the length.
    #[arg(long, value_parser = parse_size, requires = "count")]
    pub stride: Vec<u64>,
    /// Pieces of a region; 1 if none is given.
    #[arg(long, requires = "stride")]
    pub count: Vec<u32>,
}

impl RegionArguments {
    /// Where the one region without a length begins, if that is what they say.
    pub fn open_from(&self) -> Option<u64> {
        let open = self.length.is_empty() && self.count.is_empty() && self.offset.len() <= 1;
        open.then(|| self.offset.first().copied().unwrap_or(0))
    }

    /// The regions, each of which has a length.
    ///
    /// # Errors
    /// Says which option is missing.
    pub fn regions(&self) -> Result<Vec<Region>, String> {
        let regions = self.length.len();
        if regions == 0 {
            return Err("no region is named: add --length (and --offset)".to_owned());
        }
        for (option, given) in [
            ("--offset", self.offset.len()),
            ("--stride", self.stride.len()),
            ("--count", self.count.len()),
        ] {
            let may_be_left_out = given == 0 && (option != "--offset" || regions == 1);
            if given != regions && !may_be_left_out {
                return Err(format!(
                    "there are {regions} --length and {given} {option}: give one for each region"
                ));
            }
        }
        let region = |index: usize| Region {
            offset: self.offset.get(index).copied().unwrap_or(0),
            length: self.length[index],
            stride: self.stride.get(index).copied().unwrap_or(0),
            count: self.count.get(index).copied().unwrap_or(1),
        };
        Ok((0..regions).map(region).collect())
    }
}

/// What an extension is asked for.
#[derive(Debug, Clone, Args)]
pub struct ExtendOptions {
    /// Its name or number, as `nasd object control` lists those that a drive has.
    pub extension: String,
    /// Of which revision; the one that the drive has if that is not said.
    #[arg(long)]
    pub revision: Option<u32>,
    /// What it is told, in hexadecimal.
    #[arg(long, value_name = "HEX", default_value = "", value_parser = parse_bytes)]
    pub arguments: Bytes,
    /// Show the drive the right to write, too, for an extension that demands it; none gets to write yet.
    #[arg(long)]
    pub write: bool,
}

impl ExtendOptions {
    /// Which rights it is shown.
    pub fn rights(&self) -> Rights {
        if self.write { Rights::READ | Rights::WRITE } else { Rights::READ }
    }

    /// Its number and revision, where both were said.
    pub fn numbers(&self) -> Option<(u32, u32)> {
        Some((self.extension.parse().ok()?, self.revision?))
    }

    /// Its number and revision among those that a drive lists.
    ///
    /// # Errors
    /// Says what the drive has instead.
    pub fn among(&self, known: &[Extension], drive: &dyn Display) -> Result<(u32, u32), String> {
        let is_meant = |known: &&Extension| {
            self.extension == known.name || self.extension.parse() == Ok(known.number)
        };
        let found = known.iter().find(is_meant).ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|known| &known.name[..]).collect();
            let (wanted, names) = (&self.extension, names.join(", "));
            format!("drive {drive} has no extension `{wanted}`; it has: {names}")
        })?;
        Ok((found.number, self.revision.unwrap_or(found.revision)))
    }
}

/// Which bytes of files.
#[derive(Debug, Clone, Args)]
pub struct FileRanges {
    /// The first one; once, or once for each file.
    #[arg(long, value_parser = parse_size)]
    pub offset: Vec<u64>,
    /// How many; up to the end of the file if that is not said, or there are fewer. Once, or once for each file.
    #[arg(long, value_parser = parse_size)]
    pub length: Vec<u64>,
}

impl FileRanges {
    /// Of so many files: where each range begins, and how long it is at most.
    ///
    /// # Errors
    /// Says which option there is too often, or not often enough.
    pub fn of(&self, files: usize) -> Result<Vec<(u64, Option<u64>)>, String> {
        for (option, given) in [("--offset", self.offset.len()), ("--length", self.length.len())] {
            if given > 1 && given != files {
                return Err(format!(
                    "there are {files} files and {given} {option}: give one, or one for each file"
                ));
            }
        }
        let of = |given: &[u64], at: usize| given.get(at).or(given.first()).copied();
        let range = |at| (of(&self.offset, at).unwrap_or(0), of(&self.length, at));
        Ok((0..files).map(range).collect())
    }
}

/// Bytes that were written in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// The attributes of Table 5 that can be set.
#[derive(Debug, Clone, Default, Args)]
pub struct AttributeArguments {
    /// Its access control version: a new one revokes every capability of the object.
    #[arg(long, value_name = "NUMBER")]
    pub access_control_version: Option<u64>,
    /// Locate it near this object; `none` for none.
    #[arg(long, value_name = "OBJECT", value_parser = parse_object_or_none)]
    pub nearby_object: Option<ObjectId>,
    /// Its length in bytes: cuts, or extends with zeros.
    #[arg(long, value_parser = parse_size)]
    pub logical_size: Option<u64>,
    /// How many blocks are reserved for it.
    #[arg(long, value_name = "BLOCKS")]
    pub blocks_allocated: Option<u64>,
    /// Its block size; drives refuse all but theirs.
    #[arg(long, value_name = "BYTES", value_parser = parse_block_size)]
    pub block_size: Option<u32>,
    /// The file system's data time: seconds since 1970, with a fraction if wanted.
    #[arg(long, value_name = "SECONDS", value_parser = parse_time)]
    pub fs_data_modify_time: Option<Timestamp>,
    /// The file system's attribute time: seconds since 1970, with a fraction if wanted.
    #[arg(long, value_name = "SECONDS", value_parser = parse_time)]
    pub fs_attribute_modify_time: Option<Timestamp>,
    /// The file system's own bytes in hexadecimal, at most 256 bytes; zeros follow.
    #[arg(long, value_name = "HEX", value_parser = parse_fs_specific)]
    pub fs_specific: Option<Box<FsSpecific>>,
}

impl AttributeArguments {
    /// What of them is set.
    pub fn changes(&self) -> SetAttributes {
        SetAttributes {
            access_control_version: self.access_control_version,
            nearby_object: self.nearby_object,
            logical_size: self.logical_size,
            blocks_allocated: self.blocks_allocated,
            block_size: self.block_size,
            fs_data_modify_time: self.fs_data_modify_time,
            fs_attribute_modify_time: self.fs_attribute_modify_time,
            fs_specific: self.fs_specific.clone(),
        }
    }
}

/// What to seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeekName {
    /// Bytes that were written and not punched out since, in whole blocks.
    Data,
    /// Bytes that were never written, or punched out.
    Hole,
}

impl SeekName {
    /// As the protocol has it.
    pub fn target(self) -> SeekTarget {
        match self {
            SeekName::Data => SeekTarget::Data,
            SeekName::Hole => SeekTarget::Hole,
        }
    }
}

/// An object from `64`, or from `o40` (hexadecimal) as it is printed.
fn parse_object(text: &str) -> Result<ObjectId, String> {
    let wrong =
        || format!("`{text}` is no object: write a number such as 64, or o40 as it is printed");
    let number = parse_identifier(text, 'o').filter(|number| *number != 0);
    number.map(ObjectId).ok_or_else(wrong)
}

fn parse_object_or_none(text: &str) -> Result<ObjectId, String> {
    if text == "none" { Ok(ObjectId(0)) } else { parse_object(text) }
}

fn parse_block_size(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("`{text}` is too large"))
}

/// Seconds since 1970, with at most nine digits behind a point.
fn parse_time(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("`{text}` is no time: write seconds since 1970, such as 1700000000.5");
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return Err(wrong());
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    let seconds: u64 = seconds.parse().map_err(|_| wrong())?;
    let whole = seconds.checked_mul(Timestamp::SECOND_NS);
    whole.and_then(|whole| whole.checked_add(nanoseconds)).map(Timestamp).ok_or_else(wrong)
}

fn parse_fs_specific(text: &str) -> Result<Box<FsSpecific>, String> {
    let Bytes(given) = parse_bytes(text)?;
    let mut bytes = Box::new([0; FS_SPECIFIC_BYTES]);
    let room = bytes.get_mut(..given.len());
    room.ok_or_else(|| format!("{} bytes; there is room for {FS_SPECIFIC_BYTES}", given.len()))?
        .copy_from_slice(&given);
    Ok(bytes)
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
        return Err("these are no bytes: write two hexadecimal digits for each".to_owned());
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16);
    let bytes: Result<_, _> = (0..text.len()).step_by(2).map(byte).collect();
    bytes.map(Bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_times_and_bytes() {
        assert_eq!(parse_object("o40"), Ok(ObjectId(64)));
        assert_eq!(parse_object("64"), Ok(ObjectId(64)));
        assert_eq!(parse_object_or_none("none"), Ok(ObjectId(0)));
        assert!(parse_object("0").is_err() && parse_object("o").is_err());
        assert_eq!(parse_time("1.5"), Ok(Timestamp(1_500_000_000)));
        assert_eq!(parse_time("7"), Ok(Timestamp(7_000_000_000)));
        for bad in ["", ".", "1.", ".5", "-1", "1.0000000001", "99999999999999999999"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        let bytes = parse_fs_specific("00ff").unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[2]), (0, 255, 0));
        for bad in ["0", "0g", &"00".repeat(257)] {
            assert!(parse_fs_specific(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn regions_are_rows_of_options() {
        let mut arguments = RegionArguments::default();
        assert_eq!(arguments.open_from(), Some(0));
        assert!(arguments.regions().unwrap_err().contains("--length"));
        arguments.length = vec![5];
        assert_eq!(arguments.regions(), Ok(vec![Region::single(0, 5)]));
        arguments.length = vec![5, 6];
        assert!(arguments.regions().unwrap_err().contains("--offset"));
        arguments.offset = vec![1, 100];
        assert_eq!(arguments.regions(), Ok(vec![Region::single(1, 5), Region::single(100, 6)]));
        arguments.stride = vec![10];
        arguments.count = vec![3];
        assert!(arguments.regions().unwrap_err().contains("--stride"));
        assert_eq!(arguments.open_from(), None);
    }
}

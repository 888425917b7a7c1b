//! Fuzzing of the journal's format. How: `crates/protocol/tests/fuzzing`.
//!
//! An input is taken twice: as the bytes of an area, and as the bodies of frames whose checksums are then
//! made right, as nothing else would get past those.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "../../protocol/tests/fuzzing/mod.rs"]
mod fuzzing;

use nasd_manager::journal::frame::Chain;
use nasd_manager::journal::step::RequestKey;
use nasd_manager::journal::{FrameError, Image, Kind, Ledger, Step, scan};
use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::{DriveId, ObjectId, PartitionId, Timestamp};

fn handle(object: u64) -> FileHandle {
    FileHandle { drive: DriveId(1), partition: PartitionId(2), object: ObjectId(object) }
}

fn steps() -> Vec<Step> {
    let request = RequestKey { peer: 1, client: 2, number: 3 };
    let (directory, block, slot) = (handle(64), 3, 4);
    let (object, name) = (handle(65), b"name".to_vec());
    vec![
        Step::Making { drive: DriveId(1) },
        Step::Made { drive: DriveId(1), highest: ObjectId(66), objects: vec![ObjectId(65)] },
        Step::Take { object },
        Step::SetName {
            directory,
            block,
            slot,
            handle: object,
            file_type: FileType::Regular,
            name,
        },
        Step::SetRecord {
            object,
            changed: Timestamp(9),
            modified: Some(Timestamp(9)),
            record: Box::new([1; 256]),
        },
        Step::SetData { object, data: b"target".to_vec() },
        Step::Outcome { request, oldest: 1, handle: Some(object) },
        Step::RemoveName { directory, block, slot },
        Step::Remove { object },
    ]
}

/// Bodies, each behind its kind (a byte) and its length (two), as frames of one area.
fn frames(input: &[u8]) -> Vec<u8> {
    let (mut chain, mut area, mut rest) = (Chain::new(1), Vec::new(), input);
    while let [kind, low, high, body @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(body.len());
        let kind = [Kind::Opening, Kind::Opened, Kind::Changes][usize::from(*kind % 3)];
        area.extend(chain.frame(kind, &body[..length]));
        rest = &body[length..];
    }
    area
}

fn body(kind: u8, steps: &[Step]) -> Vec<u8> {
    let bytes = Step::encode_all(steps);
    [&[kind][..], &(bytes.len() as u16).to_le_bytes(), &bytes].concat()
}

/// Whatever is read has one encoding, and folds into what its own steps fold into.
fn look(area: &[u8]) -> u64 {
    let found = match scan(area) {
        Ok(Some(found)) => found,
        Ok(None) => return 0,
        Err(FrameError::UnknownVersion(_)) => return 1,
        Err(FrameError::OutOfPlace { sequence }) => return 2 + (sequence.min(3) << 8),
        Err(FrameError::Step { sequence, source }) => {
            let kind = source.to_string().len() as u64;
            return 3 + (sequence.min(3) << 8) + (kind << 16);
        }
    };
    assert!(found.length <= area.len());
    let mut outcome = 4;
    let (mut image, mut ledger) = (Image::default(), Ledger::default());
    for step in found.opening.iter().chain(&found.changes) {
        let bytes = Step::encode_all([step]);
        assert_eq!(Step::decode_all(&bytes).unwrap(), std::slice::from_ref(step));
        outcome |= 1 << (8 + bytes[0]);
        image.apply(step, 0);
        ledger.apply(step);
    }
    let (mut again, mut copy) = (Image::default(), Ledger::default());
    image.steps().for_each(|step| again.apply(&step, 0));
    assert_eq!(again, image);
    ledger.steps().for_each(|step| copy.apply(&step));
    assert_eq!(copy.doomed, ledger.doomed);
    assert_eq!(copy.ahead, ledger.ahead);
    outcome
}

#[test]
fn any_bytes_as_a_journal() {
    let whole = [body(0, &steps()[..2]), body(1, &[]), body(2, &steps())].concat();
    let singles = steps().into_iter().map(|step| [body(1, &[]), body(2, &[step])].concat());
    let samples: Vec<Vec<u8>> = singles.chain([whole.clone(), frames(&whole)]).collect();
    for sample in &samples[..samples.len() - 1] {
        assert!(look(&frames(sample)) >> 8 != 0, "the samples say something");
    }
    fuzzing::fuzz("journal", samples, |input| look(input) ^ look(&frames(input)) << 32);
}

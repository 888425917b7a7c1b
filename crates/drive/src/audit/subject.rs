//! What a request is about, as far as the audit trail goes.

use nasd_capability::KeyKind;
use nasd_protocol::Credential;
use nasd_protocol::drive::{CopyrangeArguments, Procedure};
use nasd_types::{AuditId, ObjectId, ObjectName, PartitionId};

/// By whose authority, what, and on which object. What a refused request says of itself may be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) audit_id: AuditId,
    pub(crate) object: ObjectId,
    pub(crate) partition: PartitionId,
    pub(crate) procedure: u16,
    pub(crate) key: KeyKind,
}

impl Subject {
    /// Of a request with these arguments, which decode, but for bulk data. Who it is by is not known
    /// of a sealed capability, which has to be opened for it.
    pub(crate) fn new(procedure: u32, credential: &Credential, arguments: &[u8]) -> Subject {
        let (partition, object) = Procedure::try_from(procedure)
            .map_or((PartitionId(0), ObjectId(0)), |procedure| named(procedure, arguments));
        let capability = credential.key.capability();
        let audit_id = capability.map_or(AuditId(0), |capability| capability.audit_id);
        // Numbers of procedures are small.
        let procedure = u16::try_from(procedure).unwrap_or(u16::MAX);
        Subject { audit_id, object, partition, procedure, key: credential.key.kind() }
    }

    /// Of what a copy reads, by its second authority.
    pub(crate) fn of_source(arguments: &CopyrangeArguments) -> Subject {
        let ObjectName { partition, object } = arguments.copy.source_name();
        let key = &arguments.source_authority.key;
        let audit_id = key.capability().map_or(AuditId(0), |capability| capability.audit_id);
        let procedure = Procedure::Copyrange as u16;
        Subject { audit_id, object, partition, procedure, key: key.kind() }
    }

    /// Of operations that are parts of this request: on `object`, or on several, which is told as 0.
    pub(super) fn part(self, procedure: Procedure, object: Option<ObjectId>) -> Subject {
        let object = object.unwrap_or(ObjectId(0));
        Subject { procedure: procedure as u16, object, ..self }
    }

    /// The same with the object that the request made, as its results tell, if it is of the kind that
    /// makes one. Of a copy that is the new object, which names its source in an attribute.
    pub(super) fn after(mut self, results: &[u8]) -> Subject {
        let makes = [Procedure::Create as u16, Procedure::Fastcopy as u16];
        if makes.contains(&self.procedure)
            && let Some(object) = results.get(4..).and_then(|rest| rest.first_chunk())
        {
            self.object = ObjectId(u64::from_be_bytes(*object));
        }
        self
    }
}

/// Partition and object that arguments name: those of operations on an object begin with both, those
/// on a partition with that.
fn named(procedure: Procedure, arguments: &[u8]) -> (PartitionId, ObjectId) {
    let word = |at: usize| {
        let word = arguments.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_be_bytes(*word))
    };
    let object_at = |at: usize| ObjectId(u64::from(word(at)) << 32 | u64::from(word(at + 4)));
    let none = ObjectId(0);
    let object = match procedure {
        Procedure::Null
        | Procedure::Inquiry
        | Procedure::Initialize
        | Procedure::Setdrivekey
        | Procedure::Setdrive
        // Nobody knows it before its arguments are decrypted.
        | Procedure::Private
        | Procedure::Audit => return (PartitionId(0), none),
        Procedure::Remove
        | Procedure::Getattr
        | Procedure::Setattr
        | Procedure::Read
        | Procedure::Write
        | Procedure::Append
        | Procedure::Copyrange
        | Procedure::Fastcopy
        | Procedure::Blocksrequired
        | Procedure::Punch
        | Procedure::Seek
        | Procedure::Map
        | Procedure::Endwrites
        | Procedure::Extend
        | Procedure::Putobject => object_at(4),
        // A list of objects: none is the partition.
        Procedure::Flush if word(4) == 1 => object_at(8),
        Procedure::Flush
        | Procedure::Create
        // Its parts have records of their own.
        | Procedure::Batch
        | Procedure::Createpartition
        // The new one.
        | Procedure::Copypartition
        | Procedure::Comparepartition
        | Procedure::Removepartition
        | Procedure::Resizepartition
        | Procedure::Flushpartition
        | Procedure::Setpartitionkey
        | Procedure::Setpartition
        | Procedure::Setstriping => none,
    };
    (PartitionId(word(0)), object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_protocol::drive::{FlushArguments, FlushpartitionArguments, GetattrArguments};
    use nasd_types::ObjectName;
    use nasd_xdr::to_bytes;

    const PARTITION: PartitionId = PartitionId(7);
    const OBJECT: ObjectId = ObjectId(0x1234_5678_9abc);

    fn subject(procedure: Procedure, arguments: &[u8]) -> (PartitionId, ObjectId) {
        let subject = Subject::new(procedure as u32, &Credential::NONE, arguments);
        assert_eq!(subject.procedure, procedure as u16);
        (subject.partition, subject.object)
    }

    #[test]
    fn names_are_found_in_arguments() {
        let name = ObjectName { partition: PARTITION, object: OBJECT };
        let arguments = to_bytes(&GetattrArguments { name });
        assert_eq!(subject(Procedure::Getattr, &arguments), (PARTITION, OBJECT));
        let of = |objects| to_bytes(&FlushArguments { partition: PARTITION, objects });
        assert_eq!(subject(Procedure::Flush, &of(vec![OBJECT])), (PARTITION, OBJECT));
        for several in [vec![], vec![OBJECT, ObjectId(9)]] {
            assert_eq!(subject(Procedure::Flush, &of(several)), (PARTITION, ObjectId(0)));
        }
        let arguments = to_bytes(&FlushpartitionArguments { partition: PARTITION });
        assert_eq!(subject(Procedure::Flushpartition, &arguments), (PARTITION, ObjectId(0)));
        assert_eq!(subject(Procedure::Inquiry, &[]), (PartitionId(0), ObjectId(0)));
        // Arguments that are cut short name nothing, and nothing panics.
        for procedure in Procedure::ALL {
            for length in 0..12 {
                subject(*procedure, &[0; 12][..length]);
            }
        }
    }
}

//! The list of a partition's objects.

use std::collections::VecDeque;

use nasd_types::{ObjectId, ObjectName, PartitionId};

use super::DriveClient;
use crate::{Authority, ClientError};

/// Bytes of an identifier in the list.
const IDENTIFIER_BYTES: usize = 8;

/// Bytes of the list that are read at a time.
const PAGE_BYTES: usize = 64 << 10;

/// The identifiers of a partition's objects, in ascending order. Every object that exists as long
/// as this is used comes exactly once; of those that come and go meanwhile some do.
///
/// After an error there is nothing more.
#[derive(Debug)]
pub struct Objects<'a> {
    client: &'a DriveClient,
    authority: &'a Authority,
    partition: PartitionId,
    /// Read, and not yet given out.
    page: VecDeque<ObjectId>,
    /// From where to go on reading; `None` at the end.
    next: Option<u64>,
}

impl DriveClient {
    /// Lists the objects of a partition.
    pub fn objects<'a>(&'a self, authority: &'a Authority, partition: PartitionId) -> Objects<'a> {
        self.objects_from(authority, partition, ObjectId(0))
    }

    /// Lists the objects of a partition whose number is `from` or higher.
    pub fn objects_from<'a>(
        &'a self,
        authority: &'a Authority,
        partition: PartitionId,
        from: ObjectId,
    ) -> Objects<'a> {
        Objects { client: self, authority, partition, page: VecDeque::new(), next: Some(from.0) }
    }
}

impl Objects<'_> {
    fn read_page(&mut self, from: u64) -> Result<(), ClientError> {
        let name = ObjectName { partition: self.partition, object: ObjectId::PARTITION_CONTENTS };
        // Behind the last identifier there is nothing to read, also not for a page that begins before.
        let left = ObjectId::END.0.saturating_sub(from);
        let most = left.min((PAGE_BYTES / IDENTIFIER_BYTES) as u64) as usize;
        if most == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; most * IDENTIFIER_BYTES];
        let offset = from * IDENTIFIER_BYTES as u64;
        let length = self.client.read(self.authority, name, offset, &mut bytes)?.length;
        let (identifiers, rest) = bytes[..length].as_chunks::<IDENTIFIER_BYTES>();
        let mut last = from.checked_sub(1);
        for identifier in identifiers {
            let identifier = u64::from_be_bytes(*identifier);
            // Otherwise it could go on forever.
            if last.is_some_and(|last| identifier <= last) {
                return Err(self.misplaced());
            }
            last = Some(identifier);
            self.page.push_back(ObjectId(identifier));
        }
        if !rest.is_empty() {
            return Err(self.misplaced());
        }
        let is_full = length == bytes.len();
        self.next = if is_full { last.and_then(|last| last.checked_add(1)) } else { None };
        Ok(())
    }

    fn misplaced(&self) -> ClientError {
        self.client.shared.protocol_error("the list of objects is not in ascending order")
    }
}

impl Iterator for Objects<'_> {
    type Item = Result<ObjectId, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(object) = self.page.pop_front() {
            return Some(Ok(object));
        }
        let from = self.next.take()?;
        if let Err(error) = self.read_page(from) {
            self.page.clear();
            self.next = None;
            return Some(Err(error));
        }
        self.page.pop_front().map(Ok)
    }
}

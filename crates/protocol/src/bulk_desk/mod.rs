//! The bulk desk program, one file an operation (`specs/bulk-desk.x`).

mod facts;
mod list;
mod look;
mod mkdir;
mod path;
mod remove;
mod rename;
mod setmode;
mod settime;
mod status;
mod ticket;

use nasd_xdr::{XdrDecode, XdrEncode, xdr_enum};

pub use facts::FileFacts;
pub use list::{Entry, List, ListArguments, MAX_DESK_ENTRIES, Page};
pub use look::Look;
pub use mkdir::{Mkdir, ModeArguments};
pub use path::{DeskPath, MAX_PATH_BYTES, PathTooLong};
pub use remove::Remove;
pub use rename::{Rename, RenameArguments};
pub use setmode::Setmode;
pub use settime::{Settime, SettimeArguments};
pub use status::DeskStatus;
pub use ticket::{IssuedTicket, Ticket, TicketArguments, Wanted};

/// RPC program number, from the range that RFC 5531 leaves to users (0x20000000-0x3fffffff).
pub const PROGRAM: u32 = 0x2004_5303;

/// Version of the program.
pub const VERSION: u32 = 1;

xdr_enum! {
    /// Procedures of the bulk desk program.
    pub enum Procedure {
        /// Does nothing.
        Null = 0,
        /// A ticket for a file, which is made if that is wanted.
        Ticket = 1,
        /// How a file is.
        Look = 2,
        /// List a directory.
        List = 3,
        /// Make a directory.
        Mkdir = 4,
        /// Move a name.
        Rename = 5,
        /// Remove a file or an empty directory.
        Remove = 6,
        /// Set when a file was changed.
        Settime = 7,
        /// Set a file's permission bits.
        Setmode = 8,
    }
}

/// An operation of the desk: ties its procedure to the types of its arguments and reply.
/// The result on the wire is a `Result<Reply, DeskStatus>` ([`crate::encode_result`]).
pub trait Operation {
    /// The procedure's number.
    const PROCEDURE: Procedure;
    /// What follows the head of the call.
    type Arguments: XdrEncode + XdrDecode;
    /// What follows the status 0 in the reply.
    type Reply: XdrEncode + XdrDecode;
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::Timestamp;
    use nasd_xdr::{XdrError, from_bytes, to_bytes};
    use proptest::prelude::*;

    fn path() -> impl Strategy<Value = DeskPath> {
        prop::collection::vec(any::<u8>(), 0..100).prop_map(|path| DeskPath::new(path).unwrap())
    }

    fn survives<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(
        message: T,
    ) -> Result<(), TestCaseError> {
        let bytes = to_bytes(&message);
        prop_assert_eq!(from_bytes::<T>(&bytes), Ok(message));
        for end in 0..bytes.len() {
            prop_assert!(from_bytes::<T>(&bytes[..end]).is_err());
        }
        Ok(())
    }

    /// What is decoded is encoded as it was.
    fn is_exact<T: XdrEncode + XdrDecode>(bytes: &[u8]) -> Result<(), TestCaseError> {
        let decoded: Result<T, XdrError> = from_bytes(bytes);
        if let Ok(decoded) = decoded {
            prop_assert_eq!(to_bytes(&decoded), bytes);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn arguments_survive(
            (path, to) in (path(), path()),
            (mode, most, bits) in any::<(u32, u32, u32)>(),
            (cookie, lifetime_ns, time) in any::<(u64, u64, u64)>(),
        ) {
            let wanted = Wanted::from_bits_retain(bits);
            survives(TicketArguments { path: path.clone(), wanted, mode, lifetime_ns })?;
            survives(ListArguments { path: path.clone(), cookie, most })?;
            survives(ModeArguments { path: path.clone(), mode })?;
            survives(SettimeArguments { path: path.clone(), modify_time: Timestamp(time) })?;
            survives(RenameArguments { from: path, to })?;
        }

        #[test]
        fn any_bytes_are_decoded_exactly_or_not(
            words in prop::collection::vec(prop_oneof![0..9_u32, any::<u32>()], 0..60)
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            is_exact::<TicketArguments>(&bytes)?;
            is_exact::<ListArguments>(&bytes)?;
            is_exact::<ModeArguments>(&bytes)?;
            is_exact::<SettimeArguments>(&bytes)?;
            is_exact::<RenameArguments>(&bytes)?;
            is_exact::<IssuedTicket>(&bytes)?;
            is_exact::<FileFacts>(&bytes)?;
            is_exact::<Page>(&bytes)?;
        }
    }
}

//! Which request of a client a call is: so that one that is sent again is not executed again.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{FileHandle, Name, Operation};
use crate::wire::message;

message! {
    /// A request (`nasd_request`); all zeros where the client does not number its requests.
    #[derive(Copy, Default, Hash)]
    pub struct Request {
        /// A number that the client drew for itself.
        pub client: u64,
        /// Of the request, from 1, each another one.
        pub number: u64,
        /// The lowest number of those that the client still waits for: those below will not be sent again.
        pub oldest: u64,
    }
}

impl Request {
    /// Whether the client numbers its requests.
    pub fn is_numbered(&self) -> bool {
        self.number != 0
    }
}

/// An operation that changes names or attributes. Behind its arguments its calls have a [`Request`].
pub trait Change: Operation {
    /// The directories and files whose names or attributes it changes.
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2];

    /// The names whose files it changes: their links, or where they are.
    fn names(_: &Self::Arguments) -> [Option<(FileHandle, &Name)>; 2] {
        [None, None]
    }

    /// The file that may lose its last name by it, and that the client has open.
    fn keeps(_: &Self::Arguments) -> Option<FileHandle> {
        None
    }
}

/// What follows the head of a call that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered<A> {
    /// The operation's own arguments.
    pub arguments: A,
    /// Which request it is.
    pub request: Request,
}

impl<A: XdrEncode> XdrEncode for Numbered<A> {
    fn encode(&self, out: &mut Encoder) {
        self.arguments.encode(out);
        self.request.encode(out);
    }
}

impl<A: XdrDecode> XdrDecode for Numbered<A> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let arguments = A::decode(input)?;
        Ok(Numbered { arguments, request: Request::decode(input)? })
    }
}

//! The typed procedures of the drive and file manager programs, as in `specs/*.x`.
//!
//! * [`auth`]: credentials and verifiers of the NASD flavor: which key, capability, nonce, digest.
//! * [`bulk`]: packets of the bulk service.
//! * [`drive`]: what a drive answers, one file an operation.
//! * [`manager`]: what the file manager answers, one file an operation.
//! * [`cancelling`]: how jobs of extensions are given up.
//! * [`packing`]: answers of extensions that are packed.
//! * [`range_locks`]: what locks on bytes mean.
//! * [`region`]: which bytes a read or write means.
//! * [`status`], [`result`]: how operations fail, and by whose fault.
//!
//! Messages encode and decode by `nasd_xdr`'s traits. The bulk data of a read or write is never
//! among them: it is the last field, its length word is the last thing that the message encodes,
//! and the bytes behind it go between the socket and the cache untouched. Padding to whole words
//! ([`xdr_pad`]) is the transport's business.
//!
//! Names are those of the specification in CamelCase without `nasd_`; `docs/wire-protocol.md`
//! shows the bytes. Not here: who may do what (`nasd-drive`, `nasd-capability`), and sockets.

pub mod auth;
pub mod bulk;
pub mod bulk_desk;
pub mod cancelling;
pub mod drive;
pub mod limits;
pub mod manager;
pub mod packing;
pub mod range_locks;
pub mod region;
pub mod result;
pub mod status;
mod wire;

pub use auth::{AUTH_FLAVOR, Credential, CredentialKey, Verifier};
pub use manager::ManagerStatus;
pub use nasd_xdr::xdr_pad;
pub use region::{Pieces, Region, expand, spread};
pub use result::{Failure, decode_result, encode_result};
pub use status::{Blame, Status};

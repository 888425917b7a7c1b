//! Keys, capabilities, digests and the replay window; time and randomness are arguments.
//!
//! A *capability* (CMU-CS-97-118, section 2.4 and Figure 1) has a public half, which says what its
//! holder may do, and a secret key, which only the file manager and the drive can derive from it.
//! A request shows the public half and a digest made with the key; the drive derives the key
//! anew, so that it needs no session and no table of who holds what.
//!
//! * [`key`]: the key hierarchy of Table 6 and how keys are derived from each other; [`seal`]: how a
//!   new key travels.
//! * [`capability`], [`mint`]: the public half, and the key that belongs to it.
//! * [`narrow`]: how a holder narrows it and hands it on; [`sealed`]: how it is kept from readers.
//! * [`text`]: capabilities as text and URLs, to be handed over.
//! * [`suite`], [`digest`], [`privacy`]: which algorithms, what exactly a digest covers, and how what
//!   nobody else may read is encrypted.
//! * [`nonce`], [`window`]: fresh nonces for clients, and the drive's memory of those seen.
//! * [`authorize`]: every check of a request, in its one fixed order; [`refusal`]: their outcomes.
//!
//! Nothing here does I/O, reads a clock, draws a random number or logs.

pub mod authorize;
pub mod base64url;
pub mod capability;
pub mod digest;
pub mod key;
mod lookahead;
pub mod mint;
pub mod narrow;
pub mod nonce;
pub mod privacy;
pub mod refusal;
pub mod seal;
pub mod sealed;
pub mod suite;
pub mod text;
pub mod window;

pub use authorize::{
    Access, Admission, Authorized, Claim, DriveRules, Proved, Target, admit, admit_again,
    admit_private, prove_source,
};
pub use capability::{CAPABILITY_BYTES, Capability};
pub use digest::{CoveredData, DIGEST_BYTES, DataTag, Digest, DigestKeys, Way, procedure_bytes};
pub use key::{KEY_BYTES, KeyKind, KeyKinds, SecretKey, WorkingKey, WorkingKeys, derive};
pub use mint::capability_key;
pub use narrow::{
    Chain, MAX_NARROWINGS, NARROWING_BYTES, NarrowError, Narrowing, effective, narrowed_key,
};
pub use nonce::{NONCE_BYTES, Nonce, NonceSource};
pub use privacy::Altered;
pub use refusal::Refusal;
pub use seal::{SALT_BYTES, SealedKey, TAG_BYTES};
pub use sealed::{SEALED_NONCE_BYTES, SealedCapability, SealingKeys};
pub use suite::Suite;
pub use text::{CapabilityUrl, Delegated, TEXT_PREFIX, TextError, URL_PREFIX};
pub use window::{NonceWindow, WindowOptions};

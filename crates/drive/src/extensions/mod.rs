//! Extensions: what a drive does with objects besides reading and writing, by number (CMU-CS-97-118 sections 2.2
//! and 3.4).
//!
//! A call of an extension is authorized like any other: the capability must allow what the caller says that the extension
//! is to be allowed, in all of the range that it may reach. The extension itself sees no drive, store or socket; it is
//! handed the bytes that it asks for ([`Reach`]), in a thread of its own with little weight ([`workers`]). So one that
//! panics, never ends or wants too much harms nobody but its caller.

#[cfg(test)]
mod an_object;
mod checksum;
mod feeding;
mod granted;
mod grep;
mod jobs;
mod lost;
mod packing;
mod queue;
mod reach;
mod scan;
mod work;
mod workers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use nasd_protocol::Status;
use nasd_protocol::cancelling;
use nasd_protocol::drive::Extension as Listed;
use nasd_protocol::limits::{MAX_EXTENSIONS, MAX_PARAMETERS_BYTES, MAX_TEXT_BYTES};
use nasd_types::{ByteRange, Rights};
use thiserror::Error;

use crate::prefetching;

pub use checksum::Checksum;
pub use granted::Granted;
pub use grep::Grep;
pub(crate) use jobs::JobName;
pub(crate) use reach::Bytes;
pub use reach::{Chunk, Reach};
pub use scan::Scan;
pub(crate) use workers::{Failure, Job, Workers};

/// What an extension is called, and what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// By which it is asked for: unlike that of any other extension of the drive.
    pub number: u32,
    /// For people; at most 64 bytes.
    pub name: &'static str,
    /// Rises when the same arguments come to mean something else.
    pub revision: u32,
    /// What it does with the object: whoever can't do that himself can't have it done.
    pub rights: Rights,
    /// What its arguments are, for people; at most 256 bytes.
    pub parameters: &'static str,
}

impl Description {
    fn listed(self) -> Listed {
        let Description { number, name, revision, rights, parameters } = self;
        Listed {
            number,
            name: name.to_owned(),
            revision,
            rights,
            parameters: parameters.to_owned(),
        }
    }
}

/// What an extension is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionCall {
    /// The bytes of the object that it may reach, in ascending order.
    pub pieces: Vec<ByteRange>,
    /// Most bytes that it may tell.
    pub most: usize,
    /// What it is told.
    pub arguments: Vec<u8>,
    /// When the drive was asked; it may have waited for its turn since.
    pub since: Option<Instant>,
}

impl ExtensionCall {
    /// The byte behind the last one that it may reach.
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, ByteRange::end)
    }
}

/// What an extension tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The first byte that it has not looked at; the caller asks for the pieces from there on again.
    pub position: u64,
    /// What it has found.
    pub data: Vec<u8>,
}

/// Why an extension does not do what it is asked for. Texts are for people: what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExtensionError {
    /// It takes no such arguments.
    #[error("{0}")]
    Refused(String),
    /// What it has met is not what it can work with.
    #[error("at byte {position}: {text}")]
    Failed {
        /// Where.
        position: u64,
        /// What it is.
        text: String,
    },
    /// The caller is not waited for any more, or the extension has taken too long.
    #[error("it was stopped")]
    Stopped,
    /// The object can't be read.
    #[error("the object can't be read: {0}")]
    Object(Status),
}

/// Something that a drive can do with an object. Registered when the drive is started ([`crate::Drive::with_extension`]).
pub trait Extension: Send + Sync + 'static {
    /// What it is called, and what it needs.
    fn description(&self) -> Description;

    /// Looks at what is asked for: how many bytes of memory doing it takes at most. They are granted before it is begun.
    ///
    /// # Errors
    ///
    /// [`ExtensionError::Refused`].
    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError>;

    /// Whether it looks at the bytes behind the object's end, which are zeros: those are work then, too.
    fn looks_behind_end(&self) -> bool {
        false
    }

    /// Does it. Called with what [`check`](Self::check) has let pass.
    ///
    /// # Errors
    ///
    /// Any [`ExtensionError`].
    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError>;
}

/// Why an extension can't be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistrationError {
    /// The drive has one of that number.
    #[error("extension {0} is registered already")]
    Twice(u32),
    /// There are as many as a drive may have.
    #[error("a drive has at most {MAX_EXTENSIONS} extensions")]
    TooMany,
    /// Its name is too long.
    #[error("the name of extension {0} is longer than {MAX_TEXT_BYTES} bytes")]
    Name(u32),
    /// What it says of its arguments is too long.
    #[error("extension {0} says more than {MAX_PARAMETERS_BYTES} bytes of its arguments")]
    Parameters(u32),
}

/// The extensions of a drive, and who runs them.
pub(crate) struct Extensions {
    known: BTreeMap<u32, Arc<dyn Extension>>,
    pub(crate) workers: Workers,
}

impl Extensions {
    /// Those that every drive has.
    pub(crate) fn new(memory_bytes: usize) -> Extensions {
        let all: [Arc<dyn Extension>; 3] = [Arc::new(Checksum), Arc::new(Scan), Arc::new(Grep)];
        let known = all.map(|extension| (extension.description().number, extension)).into();
        Extensions { known, workers: Workers::new(memory_bytes) }
    }

    pub(crate) fn register(
        &mut self,
        extension: Arc<dyn Extension>,
    ) -> Result<(), RegistrationError> {
        let Description { number, name, parameters, .. } = extension.description();
        let not_run = not_run();
        if self.known.contains_key(&number) || not_run.iter().any(|own| own.number == number) {
            return Err(RegistrationError::Twice(number));
        }
        if self.known.len() + not_run.len() >= MAX_EXTENSIONS {
            return Err(RegistrationError::TooMany);
        }
        if name.len() > MAX_TEXT_BYTES {
            return Err(RegistrationError::Name(number));
        }
        if parameters.len() > MAX_PARAMETERS_BYTES {
            return Err(RegistrationError::Parameters(number));
        }
        self.known.insert(number, extension);
        Ok(())
    }

    /// The extension of a number and a revision.
    pub(crate) fn find(&self, number: u32, revision: u32) -> Option<&Arc<dyn Extension>> {
        self.known.get(&number).filter(|known| known.description().revision == revision)
    }

    /// As the drive's control object lists them.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let known = self.known.values().map(|known| known.description().listed());
        let mut list: Vec<Listed> = known.collect();
        list.extend(not_run());
        list.sort_unstable_by_key(|listed| listed.number);
        list
    }
}

/// Those which no thread of extensions runs: what they are told is taken down, or done at once.
fn not_run() -> [Listed; 2] {
    let cancel = Description {
        number: cancelling::NUMBER,
        name: "cancel",
        revision: cancelling::REVISION,
        rights: Rights::empty(),
        parameters: "the number of the extension whose job is given up",
    };
    [prefetching::DESCRIPTION.listed(), cancel.listed()]
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Other(u32);

    impl Extension for Other {
        fn description(&self) -> Description {
            Description {
                number: self.0,
                name: "other",
                revision: 3,
                rights: Rights::READ,
                parameters: "",
            }
        }

        fn check(&self, _: &ExtensionCall) -> Result<usize, ExtensionError> {
            Ok(0)
        }

        fn run(&self, _: &ExtensionCall, _: &mut Reach) -> Result<Told, ExtensionError> {
            Ok(Told::default())
        }
    }

    #[test]
    fn no_number_is_registered_twice_and_no_more_than_can_be_listed() {
        let mut extensions = Extensions::new(0);
        let own = extensions.list();
        assert_eq!(
            extensions.register(Arc::new(Other(own[0].number))),
            Err(RegistrationError::Twice(own[0].number))
        );
        for number in 1000..1000 + (MAX_EXTENSIONS - own.len()) as u32 {
            extensions.register(Arc::new(Other(number))).unwrap();
        }
        assert_eq!(extensions.register(Arc::new(Other(9999))), Err(RegistrationError::TooMany));
        assert!(extensions.find(1000, 3).is_some());
        assert!(extensions.find(1000, 2).is_none() && extensions.find(9999, 3).is_none());
        assert_eq!(extensions.list().len(), MAX_EXTENSIONS);
    }
}

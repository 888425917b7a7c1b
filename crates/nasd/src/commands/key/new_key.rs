//! A new key on its way to a drive. It is in the keyring before the drive has it, beside the one that
//! it replaces, and both stay there until the drive has answered.

use crate::arguments::KeyArguments;
use crate::drive_session::DriveSession;
use nasd_capability::SecretKey;
use nasd_cell::{Cell, KeyPlace, Keyring, read_key_file};
use nasd_client::ClientError;
use nasd_protocol::Status;
use std::error::Error;
use zeroize::Zeroizing;

/// Why a drive was not given a key, by what the drive may have now. Each says what was tried, and
/// what the drive or its connection answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSet {
    /// The drive has answered, and has not done it; or it was not asked to, as it does not know the key.
    #[error("{0}\n(the drive refused: its keys are as they were)")]
    Refused(String),
    /// It has proved that it has another working key, with as high a number as this one or a higher.
    #[error("{0}\n(the drive has another working key, of this number or a later one)")]
    Stale(String),
    /// It was not reached.
    #[error("{0}\n(the drive was not reached: its keys are as they were)")]
    Away(String),
    /// It was asked, and nobody knows whether it has done it: no answer came, or one that anybody may
    /// have sent.
    #[error(
        "{0}\n(the drive may have the new key or the one before: keep both, as a keyring does, and give \
         the command again when the drive answers)"
    )]
    Unanswered(String),
}

impl NotSet {
    /// What an error says of the drive's keys after it was asked to change them.
    fn new(error: &ClientError, text: String) -> NotSet {
        match error {
            error if !error.has_not_run() => NotSet::Unanswered(text),
            ClientError::Drive(Status::StaleEpoch) => NotSet::Stale(text),
            ClientError::Drive(_) => NotSet::Refused(text),
            _ => NotSet::Away(text),
        }
    }

    /// Whether the drive certainly has not the new key by this.
    fn is_certain(&self) -> bool {
        match self {
            NotSet::Refused(_) | NotSet::Stale(_) | NotSet::Away(_) => true,
            NotSet::Unanswered(_) => false,
        }
    }

    /// Whether that is so of a key that was begun some time ago, too, and may have got there then.
    fn is_certain_of_all_tries(&self) -> bool {
        // The same key once more would be no other.
        matches!(self, NotSet::Stale(_))
    }
}

/// The session by the key that the drive proves to know: before anything is begun, as a refusal after
/// that would prove nothing.
///
/// # Errors
/// [`NotSet`] of the last key that was tried.
pub fn right<'a>(sessions: &'a [DriveSession], what: &str) -> Result<&'a DriveSession, NotSet> {
    let mut failed = NotSet::Refused("there is no key".to_owned());
    for session in sessions {
        let Err(error) = session.client.prove(&session.authority) else { return Ok(session) };
        let is_refused = matches!(error, ClientError::Refused(_) | ClientError::Drive(_));
        let text = session.failed(what)(error);
        if !is_refused {
            return Err(NotSet::Away(text));
        }
        failed = NotSet::Refused(text);
    }
    Err(failed)
}

/// Has the drive of a session change a key.
///
/// # Errors
/// [`NotSet`].
pub fn set(
    session: &DriveSession,
    what: &str,
    change: impl FnOnce(&DriveSession) -> Result<(), ClientError>,
) -> Result<(), NotSet> {
    change(session).map_err(|error| NotSet::new(&error, session.failed(what)(error.clone())))
}

/// The key.
pub struct NewKey<'a> {
    /// The key itself.
    pub key: SecretKey,
    /// Its number, for a working key.
    pub epoch: u32,
    /// Where it is kept, unless the user alone has it; and whether this is the beginning.
    kept: Option<(&'a Cell, KeyPlace, bool)>,
}

impl<'a> NewKey<'a> {
    /// The one in the user's file, or one that is drawn; both are kept, but for a drive that is of no
    /// cell, and partitions of which the keyring knows nothing. `epoch` is for a working key.
    ///
    /// # Errors
    /// A file that can't be used; if there is neither a file nor a place; a change of the place that
    /// was begun with another key.
    pub fn take(
        place: &KeyArguments,
        session: &'a DriveSession,
        which: KeyPlace,
        epoch: Option<u32>,
    ) -> Result<Self, Box<dyn Error>> {
        let wanted = place.new_key_file.as_deref().map(read_key_file).transpose()?;
        let wanted = wanted.map(Zeroizing::new);
        let Some((cell, _)) = &session.cell else {
            let wanted = wanted.ok_or_else(|| needs_new_key(&session.name))?;
            return Ok(NewKey { key: SecretKey::new(*wanted), epoch: given(epoch)?, kept: None });
        };
        if let Some(wanted) = &wanted
            && !is_known(&cell.keyring()?, which)
        {
            return Ok(NewKey { key: SecretKey::new(**wanted), epoch: given(epoch)?, kept: None });
        }
        let (begun, epoch) = Keyring::update(&cell.keyring_path(), |ring| match which {
            KeyPlace::Working(drive, partition) => {
                // Without a number of its own, a key of the user's is not begun: see `given`.
                let wanted = wanted.as_deref().zip(epoch);
                ring.begin_working(drive, partition, wanted)
            }
            _ => ring.begin(which, wanted.as_deref()).map(|begun| (begun, 0)),
        })?;
        let kept = Some((cell, which, begun.is_new));
        Ok(NewKey { key: SecretKey::new(begun.key), epoch, kept })
    }

    /// Keeps what the drive has now: the new key alone, or the one before, or both.
    ///
    /// # Errors
    /// What the drive said; a keyring that can't be written.
    pub fn settle(&self, outcome: Result<(), NotSet>) -> Result<(), Box<dyn Error>> {
        let Some((cell, which, is_new)) = self.kept else { return Ok(outcome?) };
        let path = cell.keyring_path();
        match outcome {
            Ok(()) => {
                Keyring::update(&path, |ring| ring.finish(which, self.key.expose(), self.epoch))?;
            }
            Err(not_set) if not_set.is_certain_of_all_tries() || is_new && not_set.is_certain() => {
                Keyring::update(&path, |ring| ring.cancel(which, self.key.expose()))?;
                return Err(not_set.into());
            }
            Err(not_set) => return Err(not_set.into()),
        }
        Ok(())
    }
}

/// Whether the keyring has keys of the place: of a partition that was made by hand they may be kept
/// elsewhere.
fn is_known(keyring: &Keyring, which: KeyPlace) -> bool {
    match which {
        KeyPlace::Drive(_) | KeyPlace::VolumePartition(_) => true,
        KeyPlace::Partition(drive, partition) | KeyPlace::Working(drive, partition) => {
            keyring.has_partition(drive, partition)
        }
    }
}

fn given(epoch: Option<u32>) -> Result<u32, Box<dyn Error>> {
    epoch.ok_or_else(|| "add --epoch N: a number above that of the present key".into())
}

/// Nobody knows where to keep a key of such a drive.
pub fn needs_new_key(name: &str) -> Box<dyn Error> {
    format!("{name} is no drive of the cell: add --new-key-file FILE with the new key").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_client::TransportError;
    use std::time::Duration;

    #[test]
    fn what_the_drive_may_have_is_told_apart() {
        let away = |may_have_run| ClientError::Unreachable {
            server: "a:1".to_owned(),
            taken: Duration::ZERO,
            tries: 1,
            may_have_run,
            last: Box::new(TransportError::NoConnectionInTime),
        };
        let kind = |error: ClientError| NotSet::new(&error, String::new());
        assert_eq!(kind(away(false)), NotSet::Away(String::new()));
        assert_eq!(kind(away(true)), NotSet::Unanswered(String::new()));
        let unanswered = NotSet::Unanswered(String::new());
        // Anybody may say so who has let the request pass.
        for told in [Status::RefusedDigest, Status::RefusedKey, Status::RefusedMinimum] {
            assert_eq!(kind(ClientError::Refused(told)), unanswered);
        }
        assert_eq!(kind(ClientError::Drive(Status::BadArgument)), unanswered);
        assert_eq!(kind(ClientError::Drive(Status::DriveFault)), unanswered);
        let proved = ClientError::Drive(Status::StaleEpoch);
        assert_eq!(kind(proved.clone()), NotSet::Stale(String::new()));
        let refused = ClientError::Drive(Status::NoSuchPartition);
        assert_eq!(kind(refused), NotSet::Refused(String::new()));
        assert_eq!(kind(ClientError::Unsettled(Box::new(proved))), unanswered);
        assert_eq!(kind(ClientError::BadReplyDigest { server: String::new() }), unanswered);
    }
}

//! The authority that a call shows besides its own: that for the object that `copyrange` copies from.
//!
//! The checks are those of any authority (`nasd_capability::authorize`), of which the call's nonce and
//! its being used up serve both: the proof covers it.

use nasd_capability::{Access, Refusal, procedure_bytes, prove_source};
use nasd_protocol::Status;
use nasd_protocol::drive::{CopyrangeArguments, PROGRAM, Procedure, VERSION};
use nasd_types::{Protection, Timestamp};

use super::{Denied, Found, Grant, said_by};
use crate::Drive;
use crate::audit::Subject;
use crate::status::status_of;

impl Drive {
    /// Whether the second authority of a call that was granted allows `access`. The audit trail gets a
    /// record of what it says, besides that of the call.
    pub(crate) fn check_source(
        &self,
        arguments: &CopyrangeArguments,
        access: &Access<'_>,
        grant: &Grant,
    ) -> Result<(), Status> {
        let credential = &arguments.source_authority;
        let opened = self.open_credential(credential).ok().flatten();
        let subject = said_by(Subject::of_source(arguments), opened.as_ref());
        match self.prove_source(arguments, access, grant, grant.received) {
            Ok(()) => {
                let proved = grant.shows_who_asks && !credential.protection.is_empty();
                self.audit.note_source(&subject, proved, grant.received);
                Ok(())
            }
            Err(denied) => {
                let status = match denied {
                    Denied::Refused(refusal) => {
                        self.counters.count_refusal();
                        tracing::debug!(%refusal, ?credential, "refused as a source");
                        refusal.into()
                    }
                    Denied::Failed(error) => status_of(&error),
                    Denied::Unknown(status) => status,
                };
                self.audit.note_refusal(&subject, status.into(), grant.received);
                Err(status)
            }
        }
    }

    /// Steps 1-4 and 7-16.
    fn prove_source(
        &self,
        arguments: &CopyrangeArguments,
        access: &Access<'_>,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<(), Denied> {
        let credential = &arguments.source_authority;
        let nonce = grant.authorized.nonce();
        // It is not better protected on its way than the arguments that it is among. A sealed one needs
        // nothing for its privacy; and no data travel.
        let elsewhere =
            Protection::PRIVACY_CAPABILITY | Protection::INTEGRITY_DATA | Protection::PRIVACY_DATA;
        if !grant.authorized.protection().contains(credential.protection - elsewhere) {
            return Err(Refusal::Protection.into());
        }
        self.admit_opened(credential, access, now)?;
        let ring = self.ring.read();
        let found = match credential.protection.is_empty() {
            true => Found::NONE,
            false => self.find_keys(&ring, credential, None)?,
        };
        let procedure = procedure_bytes(PROGRAM, VERSION, Procedure::Copyrange.into());
        let covered = [&procedure[..], &arguments.to_covered()];
        let (keys, protection) = (found.keys.as_deref(), credential.protection);
        prove_source(protection, keys, nonce, &covered, &arguments.source_proof)?;
        self.keep_keys(credential, &found);
        Ok(())
    }
}

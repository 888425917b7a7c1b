//! A connection to a drive, and the greeting that makes sure of what is at its other end.

use std::sync::Arc;
use std::time::Duration;

use nasd_capability::{NonceSource, Suite};
use nasd_protocol::drive::{DriveInformation, PROGRAM, Procedure, VERSION};
use nasd_protocol::{Status, decode_result};
use nasd_transport::{Channel, OpaqueAuth, OutgoingCall, ResultShape};
use nasd_types::DriveId;
use nasd_xdr::Decoder;
use tracing::{debug, info};

use super::Shared;
use super::exchange::Failure;
use crate::pool::{Connected, Lease};
use crate::{ClientError, TransportError};

/// An open connection to the drive that was meant.
pub(super) struct DriveConnection {
    pub(super) channel: Arc<dyn Channel>,
    /// One for each connection, so that the drive sees numbers in order.
    pub(super) nonces: NonceSource,
    /// What the drive offers, best first.
    pub(super) suites: Vec<Suite>,
}

impl Connected for DriveConnection {
    fn is_open(&self) -> bool {
        self.channel.is_open()
    }
}

impl Shared {
    /// A connection for one call, unless the drive is given up.
    pub(super) fn lease(&self, timeout: Duration) -> Result<Lease<'_, DriveConnection>, Failure> {
        let timeout = timeout.min(self.connect_timeout);
        let is_called = || match self.server.is_given_up() {
            true => Err(TransportError::GivenUp),
            false => Ok(()),
        };
        is_called()?;
        let lease = self
            .pool
            .lease(&*self.host, timeout, || self.connect(timeout))
            .ok_or(TransportError::NoConnectionInTime)??;
        // Whoever gives it up after this finds the connection, and closes it.
        is_called()?;
        Ok(lease)
    }

    /// Connects and asks the drive who it is.
    pub(super) fn connect(&self, timeout: Duration) -> Result<DriveConnection, Failure> {
        let started = self.host.elapsed();
        let channel = self.connector.connect(timeout)?;
        let left = timeout.saturating_sub(self.host.elapsed().saturating_sub(started));
        let information = self.greet(&*channel, left)?;
        self.accept(&information)?;
        debug!(server = self.server.address, drive = %information.drive, "connected");
        Ok(DriveConnection {
            channel,
            nonces: NonceSource::new(self.host.random()),
            suites: information.suites,
        })
    }

    /// Calls `inquiry` without authority.
    pub(super) fn greet(
        &self,
        channel: &dyn Channel,
        timeout: Duration,
    ) -> Result<DriveInformation, Failure> {
        let call = OutgoingCall {
            program: PROGRAM,
            version: VERSION,
            procedure: Procedure::Inquiry.into(),
            credential: OpaqueAuth::NONE,
            verifier: OpaqueAuth::NONE,
            arguments: &[],
            data: &[],
            results: ResultShape::Plain,
            timeout,
        };
        let reply = channel.call(&call, &mut []).map_err(TransportError::from)?;
        let mut input = Decoder::new(reply.results());
        match decode_result::<DriveInformation, Status>(&mut input) {
            Ok(Ok(information)) => Ok(information),
            Ok(Err(Status::Busy)) => Err(Failure::Transport(TransportError::Busy)),
            Ok(Err(status)) => Err(Failure::Final(ClientError::Drive(status))),
            Err(error) => Err(Failure::Final(self.protocol_error(error.to_string()))),
        }
    }

    /// Checks that it is the drive that was meant, if that is known.
    pub(super) fn check_drive(&self, information: &DriveInformation) -> Result<(), ClientError> {
        match self.facts().drive {
            Some(expected) if expected != information.drive => {
                Err(self.wrong_drive(expected, information.drive))
            }
            _ => Ok(()),
        }
    }

    /// Checks that it is the drive that was meant, and takes over what it tells.
    pub(super) fn accept(&self, information: &DriveInformation) -> Result<(), ClientError> {
        let found = information.drive;
        self.check_drive(information)?;
        let mut facts = self.facts();
        facts.drive = Some(found);
        let before = facts.information.replace(Arc::new(information.clone()));
        let is_anew = before.is_some_and(|before| before.instance != information.instance);
        facts.restarts += u64::from(is_anew);
        drop(facts);
        if is_anew {
            info!(server = self.server.address, drive = %found, "the drive started anew");
        }
        self.clock.take_hint(information.clock, &*self.host);
        Ok(())
    }

    fn wrong_drive(&self, expected: DriveId, found: DriveId) -> ClientError {
        ClientError::WrongDrive { server: self.address(), expected, found }
    }
}

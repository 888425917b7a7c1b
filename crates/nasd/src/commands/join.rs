//! `nasd join`: a machine or a person becomes a member of a cell, by the token that its owner gave.

use super::Outcome;
use crate::output::{self, say};
use crate::shared_file::read_argument;
use nasd_cell::MANAGER_NAME;
use nasd_cell::{
    CellConfig, CertificateFiles, Token, hash_of, now, write_client_directory, write_private,
};
use nasd_client::{ClientError, ConnectOptions, ManagerClient, RetryPolicy};
use nasd_protocol::ManagerStatus;
use nasd_transport::ClientTls;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use std::error::Error;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long the manager is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// Makes a key, has it certified, and writes a client's directory. The key never leaves it.
///
/// # Errors
/// A token that is none, can't be read, has expired or is used; a manager that is away, or not the one that the
/// token means; a directory that has something in it.
pub fn join(token: &str, directory: &Path, json: bool) -> Outcome {
    let token = Token::parse(read_argument(token, "a token")?.trim())?;
    if token.expires <= now().seconds() {
        return Err(
            "the token has expired (or this machine's clock is wrong): ask for another".into()
        );
    }
    if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        let shown = directory.display();
        return Err(
            format!("{shown} is not empty: name another directory, `nasd join TOKEN DIR`").into()
        );
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let enrolled = manager(&token)?
        .enroll(&token.secret, key.der_bytes())
        .map_err(|error| explained(&token, &error))?;
    let mut config = CellConfig::parse(&enrolled.cell)?;
    // As this machine has reached it, whatever the manager calls itself.
    let addresses = token.address.to_socket_addrs()?;
    config.manager.address = addresses.into_iter().next().ok_or("the address has no address")?;
    let member = match enrolled.member.as_str() {
        member @ ("host" | "user") => member,
        other => return Err(format!("the manager speaks of a member `{other}`").into()),
    };
    write_client_directory(directory, &config, enrolled.authority.as_bytes())?;
    let files = CertificateFiles::in_directory(&directory.join("tls"), member);
    let text = Zeroizing::new(key.serialize_pem());
    write_private(&files.key, text.as_bytes())?;
    write_private(&files.certificate, enrolled.certificate.as_bytes())?;
    let shown = directory.display();
    if json {
        let facts = serde_json::json!({ "directory": shown.to_string(), "member": member });
        return output::json(&facts);
    }
    say!("joined; try: nasd --cell {shown} ls {}:/", config.volume);
    Ok(())
}

/// The manager, if its authority is the token's.
fn manager(token: &Token) -> Result<ManagerClient, Box<dyn Error>> {
    let expected = token.authority;
    let is_authority = move |certificate: &[u8]| hash_of(certificate) == expected;
    let tls = ClientTls::pinned(is_authority, MANAGER_NAME)?;
    let options = ConnectOptions {
        connections: 1,
        retry: RetryPolicy::within(PATIENCE),
        ..ConnectOptions::default()
    };
    Ok(ManagerClient::tls(token.address.clone(), tls, &options))
}

fn explained(token: &Token, error: &ClientError) -> String {
    let address = &token.address;
    match error.manager_status() {
        Some(ManagerStatus::Access) => "the token is none of this cell, is used already, or has \
             expired: ask for another"
            .to_owned(),
        _ => format!("can't join at {address}: {error}"),
    }
}

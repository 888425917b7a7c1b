//! What a member is handed: a directory that is a cell's to a client, without anything of the
//! cell's own secrets.

use super::config::CellConfig;
use super::files::write_atomic;
use super::{Cell, CellError, CertificateFiles, tls_directory};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes the directory with all but the member's certificate, whose files it names.
///
/// # Errors
/// `NotEmpty` where something is there already; `Io` otherwise.
pub fn hand_over(cell: &Cell, out: &Path, member: &str) -> Result<CertificateFiles, CellError> {
    let authority = cell.certificate(member).authority;
    let roots = std::fs::read(&authority).map_err(CellError::io("read", &authority))?;
    write_client_directory(out, &cell.config, &roots)?;
    Ok(CertificateFiles::in_directory(&tls_directory(out), member))
}

/// The same from what a client knows of a cell.
///
/// # Errors
/// As [`hand_over`].
pub fn write_client_directory(
    out: &Path,
    config: &CellConfig,
    roots: &[u8],
) -> Result<(), CellError> {
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CellError::NotEmpty(out.to_owned()));
    }
    let tls = tls_directory(out);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&tls).map_err(CellError::io("create", &tls))?;
    write_atomic(&tls.join("ca.pem"), roots, 0o644)?;
    let path = out.join("cell.toml");
    let damaged = |reason: String| CellError::Damaged { path: path.clone(), reason };
    let text = config.for_clients().to_text().map_err(damaged)?;
    write_atomic(&path, text.as_bytes(), 0o644)
}

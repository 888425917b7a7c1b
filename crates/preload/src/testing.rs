//! What tests of several modules use.

/// A directory on the disk that the build uses: files that are opened past the cache need one.
pub(crate) fn scratch() -> tempfile::TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

//! Capabilities that are handed on: nobody gets more than he may do, and what is revoked is revoked.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::Arc;

use nasd_capability::capability_key;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{FileHandle, ManagerStatus, MintArguments, SetFileAttributes};
use nasd_types::{Rights, SetAttributes};

const OWNER: u32 = 1000;
const OTHER: u32 = 1002;

fn caller(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new(), peer: 7, ..Caller::default() }
}

struct Scene {
    drives: Arc<MemoryDrives>,
    namespace: Namespace,
    file: FileHandle,
}

/// A file of the owner's with that mode.
fn scene(mode: u32) -> Scene {
    let drives = Arc::new(MemoryDrives::new(1));
    let namespace = support::open(Arc::clone(&drives) as Arc<dyn ObjectStore>);
    let root = namespace.root();
    let open = SetFileAttributes { mode: Some(0o777), ..SetFileAttributes::default() };
    namespace.setattr(&support::root(), root, &open).unwrap();
    let file = namespace.create(&caller(OWNER), root, b"file", mode, true).unwrap().handle;
    Scene { drives, namespace, file }
}

fn asked(file: FileHandle, rights: Rights) -> MintArguments {
    MintArguments {
        file,
        rights,
        region_offset: 0,
        region_length: 100,
        lifetime: 60_000_000_000,
        sealed: false,
    }
}

impl Scene {
    fn mint(&self, uid: u32, rights: Rights) -> Result<(), ManagerStatus> {
        let issued = self.namespace.mint(&caller(uid), &asked(self.file, rights))?;
        assert_eq!(issued.capability.rights, rights);
        assert_eq!(issued.capability.audit_id.0 >> 32, u64::from(uid));
        Ok(())
    }

    fn version(&self) -> u64 {
        self.drives.getattr(self.file, Wait::Patient).unwrap().access_control_version
    }
}

#[test]
fn nobody_hands_on_more_than_he_has() {
    let (read, write) = (Rights::READ, Rights::WRITE | Rights::FLUSH);
    for (mode, uid, right, expected) in [
        (0o640, OWNER, read | write, Ok(())),
        (0o640, 0, read | write, Ok(())),
        (0o640, OTHER, read, Err(ManagerStatus::Access)),
        (0o644, OTHER, read | Rights::GETATTR, Ok(())),
        (0o644, OTHER, write, Err(ManagerStatus::Access)),
        (0o646, OTHER, read | write, Ok(())),
        (0o777, 0, Rights::SETATTR, Err(ManagerStatus::Invalid)),
        (0o777, 0, Rights::REMOVE | read, Err(ManagerStatus::Invalid)),
        (0o777, 0, Rights::CREATE, Err(ManagerStatus::Invalid)),
        (0o777, 0, Rights::from_bits_retain(1 << 20), Err(ManagerStatus::Invalid)),
        (0o777, 0, Rights::empty(), Err(ManagerStatus::Invalid)),
    ] {
        assert_eq!(scene(mode).mint(uid, right), expected, "{mode:o} {uid} {right:?}");
    }
}

#[test]
fn only_files_are_handed_on_and_only_some_bytes() {
    let Scene { namespace, file, .. } = scene(0o644);
    let owner = caller(OWNER);
    let root = namespace.root();
    let directory = namespace.mint(&support::root(), &asked(root, Rights::READ));
    assert_eq!(directory.unwrap_err(), ManagerStatus::IsDirectory);
    let link = namespace.symlink(&owner, root, b"link", b"file").unwrap().handle;
    let link = namespace.mint(&owner, &asked(link, Rights::READ));
    assert_eq!(link.unwrap_err(), ManagerStatus::Invalid);
    let good = asked(file, Rights::READ);
    for bad in [
        MintArguments { region_length: 0, ..good },
        MintArguments { region_offset: u64::MAX, ..good },
        MintArguments { lifetime: 0, ..good },
    ] {
        assert_eq!(namespace.mint(&owner, &bad).unwrap_err(), ManagerStatus::Invalid, "{bad:?}");
    }
    let gone = FileHandle { object: nasd_types::ObjectId(99_999), ..file };
    let gone = namespace.mint(&owner, &asked(gone, Rights::READ));
    assert_eq!(gone.unwrap_err(), ManagerStatus::Stale);
}

#[test]
fn the_owner_revokes_and_nobody_else() {
    let scene = scene(0o666);
    let before = scene.version();
    let refused = scene.namespace.revoke(&caller(OTHER), scene.file);
    assert_eq!(refused, Err(ManagerStatus::Permission));
    assert_eq!(scene.version(), before);
    for (round, uid) in [OWNER, 0, OWNER].into_iter().enumerate() {
        scene.namespace.revoke(&caller(uid), scene.file).unwrap();
        assert_eq!(scene.version(), before + 1 + round as u64);
        // What is given out from then on is good for the version from then on.
        let asked = asked(scene.file, Rights::READ);
        let issued = scene.namespace.mint(&caller(OWNER), &asked).unwrap();
        let working = support::working_key(scene.file.drive);
        assert_eq!(issued.key, capability_key(&working, &issued.capability, scene.version()));
    }
}

/// An administrator may set the version at the drive, without telling the manager.
#[test]
fn a_version_that_was_set_behind_the_managers_back_is_passed() {
    let scene = scene(0o666);
    scene.namespace.getattr(&caller(OWNER), scene.file).unwrap();
    let set = |version| {
        let set =
            SetAttributes { access_control_version: Some(version), ..SetAttributes::default() };
        scene.drives.setattr(scene.file, &set, true, Wait::Patient).unwrap();
    };
    set(scene.version() + 1);
    let live = scene.version();
    scene.namespace.revoke(&caller(OWNER), scene.file).unwrap();
    assert_eq!(scene.version(), live + 1);
    // So with a change of mode that takes somebody's permission: from memory it would set the
    // version that is in force already, and revoke nothing.
    set(scene.version() + 1);
    let live = scene.version();
    let narrow = SetFileAttributes { mode: Some(0o600), ..SetFileAttributes::default() };
    scene.namespace.setattr(&caller(OWNER), scene.file, &narrow).unwrap();
    assert_eq!(scene.version(), live + 1);
}

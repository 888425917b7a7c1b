//! Capabilities: used while good, renewed when not, and then no more than once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{cell, eventually, name, new_file, open, root, settings, user};
use crate::{ClerkError, ManagerStatus, OpenMode, SetFileAttributes, Settings};

#[test]
fn open_files_go_on_without_the_manager() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    // From here on its name is durable, and the manager not needed for that.
    file.sync().unwrap();
    cell.set_manager_runs(false);
    let before = cell.manager_requests.load(Ordering::Relaxed);
    for round in 0..20_u8 {
        file.write(u64::from(round) * 1000, &[round; 1000]).unwrap();
        file.sync().unwrap();
        let mut back = [0; 1000];
        file.read(u64::from(round) * 1000, &mut back).unwrap();
        assert_eq!(back, [round; 1000]);
        assert_eq!(clerk.getattr_now(&root(), handle).unwrap().size, (u64::from(round) + 1) * 1000);
    }
    let (again, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    assert_eq!(again.size(), 20_000);
    assert_eq!(cell.manager_requests.load(Ordering::Relaxed), before);
}

#[test]
fn a_refused_capability_is_renewed_once() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, b"before").unwrap();
    cell.expire_capabilities();
    file.sync().unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"before");
    cell.expire_capabilities();
    let before = cell.manager_requests.load(Ordering::Relaxed);
    let mut back = [0; 6];
    assert_eq!(file.read(0, &mut back).unwrap(), 6);
    assert_eq!(cell.manager_requests.load(Ordering::Relaxed), before + 1);
}

#[test]
fn refused_readers_of_many_threads_share_a_renewal() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "f");
    file.write(0, &[1; 4096]).unwrap();
    file.sync().unwrap();
    cell.drive(0).set_delay(Duration::from_millis(5));
    cell.expire_capabilities();
    let before = cell.manager_requests.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(file.read(0, &mut [0; 100]).unwrap(), 100));
        }
    });
    assert_eq!(cell.manager_requests.load(Ordering::Relaxed), before + 1);
}

#[test]
fn a_capability_that_will_expire_is_renewed_ahead_of_time() {
    let cell = cell(1);
    cell.set_capability_seconds(5);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "f");
    let before = cell.manager_requests.load(Ordering::Relaxed);
    file.write(0, b"x").unwrap();
    file.sync().unwrap();
    eventually("a renewal", || cell.manager_requests.load(Ordering::Relaxed) > before);
}

#[test]
fn capabilities_are_renewed_by_the_drives_clock_and_not_by_the_hosts() {
    for ahead in [-86_400, 86_400] {
        let cell = cell(1);
        cell.set_drives_ahead(ahead);
        let clerk = cell.clerk(settings());
        let (file, _) = new_file(&clerk, "f");
        file.sync().unwrap();
        let before = cell.manager_requests.load(Ordering::Relaxed);
        for _ in 0..20 {
            file.write(0, b"x").unwrap();
            file.sync().unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(cell.manager_requests.load(Ordering::Relaxed), before, "{ahead} s ahead");
    }
}

#[test]
fn an_expired_capability_without_a_manager_is_an_error_in_time() {
    let cell = crate::fake::FakeCell::new(1, Duration::from_millis(100));
    let clerk = cell.clerk(Settings { deadline: Duration::from_millis(100), ..settings() });
    let (file, _) = new_file(&clerk, "f");
    file.write(0, b"x").unwrap();
    file.sync().unwrap();
    cell.expire_capabilities();
    cell.set_manager_runs(false);
    let refused = file.read(0, &mut [0; 10]);
    assert!(matches!(refused, Err(ClerkError::Unreachable(_))), "{refused:?}");
}

#[test]
fn rights_that_were_taken_away_end_with_the_capability() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, b"x").unwrap();
    file.close().unwrap();
    let stranger = user(1000);
    let (theirs, _) = clerk.open(&stranger, handle, OpenMode::READ_WRITE).unwrap();
    let changes = SetFileAttributes { mode: Some(0o600), ..Default::default() };
    clerk.setattr(&root(), handle, &changes).unwrap();
    cell.expire_capabilities();
    let refused = theirs.read(0, &mut [0; 10]).unwrap_err();
    assert_eq!(refused.errno(), libc::EACCES);
    let refused = clerk.open(&stranger, handle, OpenMode::READ).err();
    assert_eq!(refused, Some(ClerkError::Access));
    // And given back.
    let changes = SetFileAttributes { mode: Some(0o604), ..Default::default() };
    clerk.setattr(&root(), handle, &changes).unwrap();
    assert!(clerk.open(&stranger, handle, OpenMode::READ).is_ok());
    let refused = clerk.open(&stranger, handle, OpenMode::WRITE).err();
    assert_eq!(refused, Some(ClerkError::Access));
}

#[test]
fn each_caller_has_his_own_rights() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let entry = clerk.create(&user(5), clerk.root(), &name("private"), 0o600, true).unwrap();
    let own = open(&clerk, &user(5), entry);
    own.write(0, b"secret").unwrap();
    own.close().unwrap();
    let refused = clerk.open(&user(6), entry.handle, OpenMode::READ).err();
    assert_eq!(refused, Some(ClerkError::Access));
    assert_eq!(own.read(0, &mut [0; 10]).unwrap(), 6);
}

#[test]
fn without_a_session_a_removed_file_is_stale() {
    let cell = cell(1);
    let alone = || Settings { session: false, ..settings() };
    let (ours, theirs) = (cell.clerk(alone()), cell.clerk(alone()));
    let (file, handle) = new_file(&ours, "f");
    theirs.unlink(&root(), theirs.root(), &name("f"), None).unwrap();
    let stale = ClerkError::Manager(ManagerStatus::Stale);
    assert_eq!(file.read(0, &mut [0; 1]), Err(stale.clone()));
    assert_eq!(ours.getattr_now(&root(), handle), Err(stale));
}

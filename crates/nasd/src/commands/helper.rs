//! What mount(8) and umount(8) call: `mount.fuse.nasd SOURCE MOUNTPOINT -o ...` mounts in the
//! background and returns when the volume is there; `umount.fuse.nasd MOUNTPOINT` returns when all is
//! durable.

use super::Outcome;
use super::mount::{check_option, mount, umount};
use crate::arguments::{MOUNT_NAME, MountArguments, MountHelper, UmountHelper, Wanted};
use crate::output::note;
use clap::Parser;
use nasd_cell::{Cell, cell_directory};
use std::process::{Command, ExitCode};

/// mount(8): incorrect invocation.
const INVOCATION: u8 = 1;
/// mount(8): the mount failed.
const FAILURE: u8 = 32;

/// Does what the name asks for; the exit status is as mount(8) has it.
pub fn run(name: &str) -> ExitCode {
    let outcome = if name == MOUNT_NAME {
        MountHelper::try_parse().map(|helper| mount_as_asked(&helper))
    } else {
        UmountHelper::try_parse().map(|helper| umount_as_asked(&helper))
    };
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            note!("{name}: {error}");
            ExitCode::from(FAILURE)
        }
        Err(usage) => {
            let _ = usage.print();
            // A plea for help is no mistake.
            if usage.use_stderr() { ExitCode::from(INVOCATION) } else { ExitCode::SUCCESS }
        }
    }
}

fn mount_as_asked(helper: &MountHelper) -> Outcome {
    if let Some(namespace) = &helper.namespace {
        let text = format!("can't mount in the namespace {namespace}: use nsenter(1)");
        return Err(text.into());
    }
    let Wanted { cell, volume, options } = helper.wanted(&mut check_option)?;
    let named = cell.or_else(|| std::env::var_os("NASD_CELL").map(Into::into));
    let cell = Cell::open(&cell_directory(named))?;
    if helper.verbose {
        let (directory, mountpoint) = (cell.directory().display(), helper.mountpoint.display());
        println!("{MOUNT_NAME}: mounts the cell in {directory} at {mountpoint}");
    }
    if helper.fake {
        return Ok(());
    }
    let source = Some(helper.source.clone());
    let mountpoint = helper.mountpoint.clone();
    let (detach, takeover) = (true, false);
    let arguments = MountArguments { mountpoint, volume, detach, takeover, options, source };
    mount(&cell, &arguments, false)
}

fn umount_as_asked(helper: &UmountHelper) -> Outcome {
    if let Some(namespace) = &helper.namespace {
        let text = format!("can't unmount in the namespace {namespace}: use nsenter(1)");
        return Err(text.into());
    }
    if !(helper.force || helper.lazy || helper.read_only) {
        return umount(&helper.mountpoint);
    }
    // Nobody waits then: it is the kernel's affair alone.
    let mut plain = Command::new("umount");
    plain.arg("-i");
    for (asked, flag) in [(helper.force, "-f"), (helper.lazy, "-l"), (helper.read_only, "-r")] {
        if asked {
            plain.arg(flag);
        }
    }
    let status = plain.arg("--").arg(&helper.mountpoint).status()?;
    if status.success() { Ok(()) } else { Err(format!("umount: {status}").into()) }
}

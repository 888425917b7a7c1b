//! The health codes: what each means, what to look at, what to do. `nasd explain` and docs/health.md are
//! made of this table alone.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// All works; it may not for long, or something is weaker than it should be.
    Warning,
    /// Something does not work.
    Error,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
        })
    }
}

/// One code.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    /// As it is printed, and given to `nasd explain`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it means.
    pub meaning: &'static str,
    /// What to look at.
    pub look: &'static str,
    /// What to do.
    pub act: &'static str,
}

macro_rules! codes {
    ($($name:ident $severity:ident $meaning:literal $look:literal $act:literal)+) => {
        $(
            #[doc = $meaning]
            pub const $name: &Code = &Code {
                code: stringify!($name),
                severity: Severity::$severity,
                meaning: $meaning,
                look: $look,
                act: $act,
            };
        )+

        /// All of them, by their names.
        pub const ALL: &[&Code] = &[$($name),+];
    };
}

codes! {
    CERTIFICATE_ENDED Error
    "A certificate of this directory is not good any more: whoever shows it is refused."
    "The clock of this machine; the manager's log, which tells why the certificate was not renewed."
    "Correct the clock if it is wrong. Give `nasd renew`; where that is refused, join anew with a token of \
     `nasd host add` or `nasd user add`. In the cell's own directory, `nasd key authority` makes new ones."
    CERTIFICATE_ENDS Warning
    "A certificate of this directory ends within two weeks. It should have been renewed by itself."
    "Whether the manager and the mounts run, and what the manager's log says about certificates."
    "Give `nasd renew`. A mount goes on with the certificate that it read at its start: mount it anew before \
     that ends."
    CLOCK_SKEW Warning
    "A drive's clock differs from that of its machine by more than a second. Clients follow the drive's clock, \
     so nothing fails; times of files, and the ends of capabilities, are off by as much."
    "`nasd status --json`, the drives' `clock_offset_ns`; whether the drive's machine keeps its time (chronyc, \
     timedatectl)."
    "Have the machine's time kept. The drive's clock follows it by a sixteenth of the time that passes."
    COPIES_LACKING Warning
    "A drive that has copies of files is out, or was and is being given what it lacks. Everything can be read and \
     written; but there is a copy less of what it should have, and if the drives with the others fail too, that is \
     lost."
    "`nasd status`, which tells how far the giving has come; whether the drive's process runs (the cell's \
     log/drive-N.log), its machine, and the network between."
    "Start the drive, if it does not run. Once it answers, it is given what it lacks by itself."
    DRIVE_AWAY Error
    "A drive does not answer the manager. Programs that need files on it wait, or get an I/O error when their \
     time-out is over; all others go on."
    "Whether its process runs (`systemctl status nasd-drive@NAME`, or the cell's log/drive-N.log), its machine and \
     the network between."
    "Start it. If its device is broken, replace that: the files on it are lost, their names stay, and `nasd rm` \
     removes them."
    DRIVE_FULL Error
    "A drive has no room. Files on it can't grow; new files go to other drives."
    "`nasd status`, and `nasd volume show NAME` for what takes the room."
    "Remove files, let the drive use more of its device (`nasd drive resize`), or add a drive \
     (`nasd drive format`)."
    DRIVE_LIMPS Warning
    "A drive answers, but takes seconds to make something durable that takes others milliseconds, or its medium refuses \
     it. Where there are copies it is out, and programs go on with the others; else they wait for it."
    "`nasd status`, which says which; the drive's log, the kernel's messages about its device, and the device's own \
     health (smartctl)."
    "Replace the device, or find out what slows it down. When it has been quick for a while, it is used again by \
     itself; later each time that it was slow before."
    DRIVE_NEARLY_FULL Warning
    "A drive is more than 90 % full. When it is full, files on it can't grow."
    "`nasd status`, and `nasd volume show NAME` for what takes the room."
    "Remove files, let the drive use more of its device (`nasd drive resize`), or add a drive \
     (`nasd drive format`)."
    DRIVE_READ_ONLY Error
    "A drive takes no more changes since it could not write to its device, or could not read what it must know \
     before it writes. What it holds can be read."
    "The drive's log; the kernel's messages about the device; `nasd check` when the drive is stopped."
    "Repair or replace the device, and start the drive anew."
    KEY_DUE Warning
    "A working key is older than twice the interval in which keys are changed, or a change that was demanded has not \
     reached its drive: capabilities that should be worthless may still be good there."
    "`nasd key show`, and whether the drive is away; the manager's log tells why a key was not changed."
    "Bring the drive back; the manager changes the key by itself. `nasd key rotate` does it at once."
    MANAGER_AWAY Error
    "The file manager does not answer. Open files go on; names, new opens and locks wait."
    "Whether its process runs (`systemctl status nasd-manager`, or `nasd up`), its log, and the network between."
    "Start it. It loses nothing that it has answered."
    MANAGER_BACKLOG Warning
    "The manager could not finish changes of names, or could not remove objects that no name leads to, because \
     a drive is away or refuses. The files that such a change is about are not available until it is finished."
    "Which drive is away; the manager's log names the objects."
    "Bring the drive back: the manager tries again every few seconds."
    SCRUB_FOUND_ROT Error
    "A drive has read blocks back that are not as they were written. The bytes are lost: programs that read \
     them get an I/O error."
    "`nasd audit` and the drive's log name the objects; `nasd check` of the stopped drive names the files' blocks."
    "Restore the files from a copy. Look at the device's own health (smartctl) and replace it if there is more."
    STATE_ON_ONE_DRIVE Warning
    "What the striping manager has to know is on one drive alone, although there are several. If that drive is lost too, \
     nobody can tell any more where the parts of files are."
    "`nasd status`, which tells the drive; whether the others answer, and have room; the striping manager's log \
     (log/striping-N.log), which tells why none of them can be given a copy."
    "Bring the others back. One that answers is given a copy within seconds, by itself."
    VOLUME_FILES_NEARLY_FULL Warning
    "A volume has more than 90 % of the files that its drives have room for, whatever room there is for data. How many that are was decided when the drives were formatted."
    "`df -i` on a mount; `nasd volume show NAME`, which shows on what drives they are."
    "Remove files, or add a drive (`nasd drive format`)."
    VOLUME_FULL Error
    "A volume has no room left: its quota is used up, or its drives are full, or they have room for no more files."
    "`nasd volume show NAME`; `df -i` on a mount."
    "Remove files, or give it more room: `nasd volume resize NAME --quota SIZE`."
    VOLUME_QUOTA_NEARLY_FULL Warning
    "A volume with a quota has used more than 90 % of it."
    "`nasd volume show NAME`."
    "Remove files, or give it more room: `nasd volume resize NAME --quota SIZE`."
    VOLUME_UNFINISHED Warning
    "A volume was being made or removed when the command was interrupted. Nobody serves it, and it takes room."
    "`nasd volume list`, where the cell's own directory is."
    "`nasd volume remove NAME` takes away what there is of it; then make it again if you want it."
    VOLUME_WAITS Error
    "A volume is not served, because the drive that its root is on does not answer. The other volumes go on."
    "Which drive is away; the manager's log names it."
    "Bring the drive back: the manager tries again every few seconds."
}

/// The code of that name, in any case.
pub fn find(name: &str) -> Option<&'static Code> {
    ALL.iter().find(|code| code.code.eq_ignore_ascii_case(name)).copied()
}

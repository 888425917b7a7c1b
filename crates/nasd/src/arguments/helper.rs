//! What mount(8) and umount(8) call for the type `fuse.nasd`: their own words, as those pages have
//! them, made into what `nasd mount` takes. Nothing here touches the system.

use clap::Parser;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name by which mount(8) calls this program.
pub const MOUNT_NAME: &str = "mount.fuse.nasd";
/// The name by which umount(8) does.
pub const UMOUNT_NAME: &str = "umount.fuse.nasd";

/// Mount a volume of a NASD cell, as mount(8) asks for it.
///
/// In /etc/fstab: `/var/lib/nasd/cell:main /mnt/nasd fuse.nasd _netdev,nofail 0 0`.
#[derive(Debug, Parser)]
#[command(name = MOUNT_NAME, version, max_term_width = 100)]
pub struct MountHelper {
    /// The cell's directory, DIR or DIR:VOLUME; or a volume's name, with `-o cell=DIR`.
    pub source: String,
    /// Where to mount it.
    pub mountpoint: PathBuf,
    /// Options, separated by commas: `cell=DIR`, `volume=NAME`, those of `nasd mount -o`, and those
    /// that only mount(8), fstab(5) and systemd.mount(5) heed.
    #[arg(short = 'o', value_delimiter = ',')]
    pub options: Vec<String>,
    /// Leave out options that are not known.
    #[arg(short = 's')]
    pub sloppy: bool,
    /// Check everything, and mount nothing.
    #[arg(short = 'f')]
    pub fake: bool,
    /// Accepted: there is no list of mounts beside the kernel's.
    #[arg(short = 'n')]
    pub no_list: bool,
    /// Tell what is done.
    #[arg(short = 'v')]
    pub verbose: bool,
    /// The type, `fuse.nasd`.
    #[arg(short = 't', value_name = "TYPE")]
    pub file_system: Option<String>,
    /// Refused: mount from within that namespace instead.
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// Unmount a volume of a NASD cell, as umount(8) asks for it: what was written through the mount is
/// durable when it returns.
#[derive(Debug, Parser)]
#[command(name = UMOUNT_NAME, version, max_term_width = 100)]
pub struct UmountHelper {
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Take it away from those who use it.
    #[arg(short = 'f')]
    pub force: bool,
    /// Take it from the tree at once; those who have files open keep them.
    #[arg(short = 'l')]
    pub lazy: bool,
    /// Accepted: there is no list of mounts beside the kernel's.
    #[arg(short = 'n')]
    pub no_list: bool,
    /// Where it can't be unmounted, make it read-only.
    #[arg(short = 'r')]
    pub read_only: bool,
    /// Accepted.
    #[arg(short = 'v')]
    pub verbose: bool,
    /// The type, `fuse.nasd`.
    #[arg(short = 't', value_name = "TYPE")]
    pub file_system: Option<String>,
    /// Refused: unmount from within that namespace instead.
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// What a source and options ask for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The cell's directory, where one is named.
    pub cell: Option<PathBuf>,
    /// The volume, where one is named.
    pub volume: Option<String>,
    /// Options of `nasd mount -o`.
    pub options: Vec<String>,
}

/// Why that can't be mounted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WantedError {
    /// Source and options don't agree.
    #[error("{0} is named twice, `{1}` and `{2}`: leave one out")]
    Twice(&'static str, String, String),
    /// No option of anybody's.
    #[error("{0}; `mount -s` leaves out what is not known")]
    Unknown(String),
    /// A mounted volume stays as it is.
    #[error("a mounted volume's options can't be changed: unmount it, and mount it anew")]
    Remount,
}

/// Words that are meant for mount(8), fstab(5) and systemd.mount(5), or say what holds anyway.
const IGNORED: &[&str] = &[
    "async",
    "atime",
    "auto",
    "diratime",
    "group",
    "loud",
    "noauto",
    "nodiratime",
    "nofail",
    "noiversion",
    "nolazytime",
    "nomand",
    "nostrictatime",
    "nouser",
    "owner",
    "relatime",
    "silent",
    "user",
    "users",
    "_netdev",
];
/// Beginnings of such words.
const IGNORED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "helper=", "uhelper=", "user="];

impl MountHelper {
    /// Makes sense of source and options; `known` judges an option of `nasd mount -o`, which goes
    /// before what is ignored.
    ///
    /// # Errors
    /// What does not fit together, or is not known.
    pub fn wanted(
        &self,
        known: &mut dyn FnMut(&str) -> Result<(), String>,
    ) -> Result<Wanted, WantedError> {
        let mut wanted = source(&self.source);
        for word in self.options.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            if let Some(cell) = word.strip_prefix("cell=") {
                set(&mut wanted.cell, "the cell", cell.into(), |path| path.display().to_string())?;
            } else if let Some(volume) = word.strip_prefix("volume=") {
                set(&mut wanted.volume, "the volume", volume.to_owned(), String::clone)?;
            } else if word == "remount" {
                return Err(WantedError::Remount);
            } else {
                match known(word) {
                    Ok(()) => wanted.options.push(word.to_owned()),
                    Err(_) if is_ignored(word) || self.sloppy => {}
                    Err(error) => return Err(WantedError::Unknown(error)),
                }
            }
        }
        Ok(wanted)
    }
}

fn set<T: PartialEq>(
    place: &mut Option<T>,
    what: &'static str,
    value: T,
    text: fn(&T) -> String,
) -> Result<(), WantedError> {
    match place {
        Some(there) if *there != value => Err(WantedError::Twice(what, text(there), text(&value))),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

/// `DIR`, `DIR:VOLUME` or `VOLUME`. A volume's name has no slash.
fn source(text: &str) -> Wanted {
    let mut wanted = Wanted::default();
    match text.rsplit_once(':') {
        Some((cell, volume)) if !cell.is_empty() && !volume.is_empty() && !volume.contains('/') => {
            (wanted.cell, wanted.volume) = (Some(cell.into()), Some(volume.to_owned()));
        }
        _ if text.contains('/') => wanted.cell = Some(text.into()),
        _ => wanted.volume = Some(text.to_owned()),
    }
    wanted
}

fn is_ignored(word: &str) -> bool {
    IGNORED.contains(&word) || IGNORED_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// The helper that a program's name asks for.
pub fn helper_name(program: &OsStr) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    [MOUNT_NAME, UMOUNT_NAME].into_iter().find(|known| name == *known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Wanted, WantedError> {
        let helper = MountHelper::parse_from([&[MOUNT_NAME], words].concat());
        helper.wanted(&mut |word| match word {
            "ro" | "rw" | "noatime" | "timeout=5" => Ok(()),
            _ => Err(format!("unknown mount option {word:?}")),
        })
    }

    fn wanted(cell: Option<&str>, volume: Option<&str>, options: &[&str]) -> Wanted {
        Wanted {
            cell: cell.map(PathBuf::from),
            volume: volume.map(str::to_owned),
            options: options.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn sources_name_a_cell_a_volume_or_both() {
        let cases = [
            ("/srv/cell", Some("/srv/cell"), None),
            ("/srv/cell:home", Some("/srv/cell"), Some("home")),
            ("home", None, Some("home")),
            ("/srv/a:b/cell", Some("/srv/a:b/cell"), None),
            ("./cell", Some("./cell"), None),
            (":home", None, Some(":home")),
        ];
        for (source, cell, volume) in cases {
            assert_eq!(parse(&[source, "/mnt"]), Ok(wanted(cell, volume, &[])), "{source}");
        }
    }

    #[test]
    fn words_of_others_are_left_out_and_ours_kept() {
        let options = "rw,noauto,_netdev,nofail,user,x-systemd.requires=a,X-mount.mkdir,comment=b,\
                       cell=/c,timeout=5,noatime,volume=home";
        let called = ["home", "/mnt", "-s", "-v", "-n", "-o", options, "-t", "fuse.nasd"];
        let kept = wanted(Some("/c"), Some("home"), &["rw", "timeout=5", "noatime"]);
        assert_eq!(parse(&called), Ok(kept.clone()));
        // mount(8) may put its flags before or behind, and options in several groups.
        let called = ["-sn", "home", "/mnt", "-o", "rw,cell=/c", "-o", "timeout=5,noatime"];
        assert_eq!(parse(&called), Ok(kept));
    }

    #[test]
    fn what_is_not_known_is_refused_unless_told_to_leave_it_out() {
        let refused = |words: &[&str]| parse(words).unwrap_err().to_string();
        assert!(refused(&["/c", "/mnt", "-o", "sync"]).contains("\"sync\""));
        assert!(refused(&["/c", "/mnt", "-o", "remount,ro", "-s"]).contains("unmount"));
        assert!(refused(&["/c", "/mnt", "-o", "cell=/d"]).contains("`/c` and `/d`"));
        assert!(refused(&["/c:a", "/mnt", "-o", "volume=b"]).contains("`a` and `b`"));
        let sloppy = parse(&["/c", "/mnt", "-s", "-o", "sync,ro"]);
        assert_eq!(sloppy, Ok(wanted(Some("/c"), None, &["ro"])));
    }

    #[test]
    fn the_program_knows_the_names_that_it_is_called_by() {
        assert_eq!(helper_name(OsStr::new("/sbin/mount.fuse.nasd")), Some(MOUNT_NAME));
        assert_eq!(helper_name(OsStr::new("umount.fuse.nasd")), Some(UMOUNT_NAME));
        assert_eq!(helper_name(OsStr::new("/usr/bin/nasd")), None);
        assert_eq!(helper_name(OsStr::new("")), None);
    }
}

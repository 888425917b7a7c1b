//! The health of a cell: what is found in the facts that the cell tells. Pure: `nasd status` gathers
//! the facts.

pub mod codes;

use codes::{Code, Severity};
use nasd_types::Personality;
use serde::{Serialize, Serializer};

/// Fuller than this is nearly full.
const NEARLY_FULL: f64 = 0.9;
/// With less room than this, nothing that matters fits any more.
const FULL_BYTES: u64 = 1 << 20;
/// Clocks that differ by less agree.
const CLOCK_SKEW_NS: u64 = 1_000_000_000;
/// Certificates that end earlier should have been renewed.
const CERTIFICATE_SECONDS: u64 = 14 * 86_400;

/// What is known of the cell.
#[derive(Debug, Default)]
pub struct Facts {
    /// Seconds since 1970.
    pub now: u64,
    /// Why the manager does not answer, if it does not.
    pub manager_away: Option<String>,
    /// The drives, as the manager sees them.
    pub drives: Vec<DriveFacts>,
    /// The drives that have the objects of virtual ones.
    pub components: Vec<ComponentFacts>,
    /// The own states of striping managers.
    pub own_states: Vec<OwnStateFacts>,
    /// The volumes that are served, or should be.
    pub volumes: Vec<VolumeFacts>,
    /// Volumes that were begun to be made or removed.
    pub unfinished: Vec<String>,
    /// Whose certificates, and when they end, in seconds since 1970.
    pub certificates: Vec<(String, u64)>,
    /// Working keys, where the keyring is.
    pub keys: Vec<KeyFacts>,
}

/// One drive.
#[derive(Debug, Default, Clone)]
pub struct DriveFacts {
    /// How it is called: `drive 2`.
    pub name: String,
    /// Where it should answer.
    pub address: String,
    /// Whether it does; the rest is nothing if not.
    pub reachable: bool,
    /// Bytes.
    pub capacity_bytes: u64,
    /// Bytes.
    pub used_bytes: u64,
    /// How far its clock is ahead of its machine's, in nanoseconds.
    pub clock_offset: i64,
    /// It takes no more changes.
    pub read_only: bool,
    /// Blocks that its scrub has found bad since it was started.
    pub bad_blocks: u64,
}

/// A drive that has objects of a virtual one.
#[derive(Debug, Default, Clone)]
pub struct ComponentFacts {
    /// How it is called: `drive 2`.
    pub name: String,
    /// Where it should answer.
    pub address: String,
    /// Whether it does.
    pub reachable: bool,
    /// `current`, `out` or `joining`.
    pub state: &'static str,
    /// What there is to be said of that.
    pub remark: String,
    /// `slow` or `refuses`, if there is something to be said against it though it answers.
    pub complaint: &'static str,
}

/// What a striping manager keeps for itself.
#[derive(Debug, Default, Clone)]
pub struct OwnStateFacts {
    /// How it is called: `striping-3`.
    pub name: String,
    /// Where current copies are: `drives 1, 2`.
    pub on: String,
    /// How many there are; none before the striping manager was started first.
    pub copies: usize,
    /// Component drives that could have one.
    pub drives: usize,
}

/// One volume.
#[derive(Debug, Default, Clone)]
pub struct VolumeFacts {
    /// Its name.
    pub name: String,
    /// Whether it is served; the rest is nothing if not.
    pub serving: bool,
    /// How it behaves for those who share its files.
    pub personality: Personality,
    /// Whether it has a quota.
    pub has_quota: bool,
    /// Bytes.
    pub total_bytes: u64,
    /// Bytes.
    pub free_bytes: u64,
    /// Files in it.
    pub files: u64,
    /// About how many more there is room for.
    pub free_files: u64,
    /// Objects and changes that wait for a drive.
    pub backlog: u64,
}

/// One working key.
#[derive(Debug, Default, Clone)]
pub struct KeyFacts {
    /// Whose: `drive 2, volume main`.
    pub name: String,
    /// Seconds since it was set; `None` if that is not known.
    pub age: Option<u64>,
    /// In how many seconds keys are changed; `None` for never.
    pub interval: Option<u64>,
    /// Changes that must come.
    pub owed: u32,
}

/// Something that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    #[serde(serialize_with = "code_name")]
    pub code: &'static Code,
    /// How bad.
    pub severity: Severity,
    /// What it is about.
    pub about: String,
    /// One line.
    pub text: String,
}

fn code_name<S: Serializer>(code: &&'static Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.code)
}

/// The whole cell's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// Nothing was found.
    Healthy,
    /// Only warnings.
    Warning,
    /// An error at least.
    Error,
}

impl State {
    /// Of what was found.
    pub fn of(findings: &[Finding]) -> State {
        match findings.iter().map(|finding| finding.severity).max() {
            None => State::Healthy,
            Some(Severity::Warning) => State::Warning,
            Some(Severity::Error) => State::Error,
        }
    }

    /// The exit status of `nasd status --check`.
    pub fn exit_status(self) -> u8 {
        match self {
            State::Healthy => 0,
            State::Warning => 3,
            State::Error => 4,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Healthy => "HEALTHY",
            State::Warning => "WARNING",
            State::Error => "ERROR",
        })
    }
}

/// What is found, errors first.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |code: &'static Code, about: &str, text: String| {
        found.push(Finding { code, severity: code.severity, about: about.to_owned(), text });
    };
    if let Some(why) = &facts.manager_away {
        add(codes::MANAGER_AWAY, "manager", why.clone());
    }
    facts.drives.iter().for_each(|drive| judge_drive(drive, &mut add));
    facts.components.iter().for_each(|component| judge_component(component, &mut add));
    for own in facts.own_states.iter().filter(|own| own.copies == 1 && own.drives > 1) {
        let text = format!("has its own state on {} alone", own.on);
        add(codes::STATE_ON_ONE_DRIVE, &own.name, text);
    }
    facts.volumes.iter().for_each(|volume| judge_volume(volume, &mut add));
    for name in &facts.unfinished {
        let text = "was being made or removed; `nasd volume remove` clears it away".to_owned();
        add(codes::VOLUME_UNFINISHED, &format!("volume {name}"), text);
    }
    for (name, ends) in &facts.certificates {
        let about = format!("certificate {name}");
        if *ends <= facts.now {
            add(codes::CERTIFICATE_ENDED, &about, "is not good any more".to_owned());
        } else if ends - facts.now < CERTIFICATE_SECONDS {
            let days = (ends - facts.now) / 86_400;
            add(codes::CERTIFICATE_ENDS, &about, format!("ends in {days} days"));
        }
    }
    facts.keys.iter().for_each(|key| judge_key(key, &mut add));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

type Add<'a> = &'a mut dyn FnMut(&'static Code, &str, String);

fn judge_component(component: &ComponentFacts, add: Add<'_>) {
    let name = component.name.as_str();
    if !component.complaint.is_empty() {
        let what = match component.complaint {
            "slow" => "takes far longer than others to make something durable",
            _ => "can't make anything durable",
        };
        add(codes::DRIVE_LIMPS, name, format!("at {} answers, but {what}", component.address));
    }
    match component.state {
        "joining" => add(codes::COPIES_LACKING, name, component.remark.clone()),
        "out" => {
            let text = format!("at {} is out: its copies are not used", component.address);
            add(codes::COPIES_LACKING, name, text);
        }
        _ if !component.reachable => {
            let text = format!("at {} does not answer the striping manager", component.address);
            add(codes::DRIVE_AWAY, name, text);
        }
        _ => {}
    }
}

fn judge_drive(drive: &DriveFacts, add: Add<'_>) {
    let name = drive.name.as_str();
    if !drive.reachable {
        let text = format!("at {} does not answer; its files wait for it", drive.address);
        return add(codes::DRIVE_AWAY, name, text);
    }
    let free = drive.capacity_bytes.saturating_sub(drive.used_bytes);
    if free < FULL_BYTES {
        add(codes::DRIVE_FULL, name, "has no room left".to_owned());
    } else if is_nearly_full(drive.used_bytes, drive.capacity_bytes) {
        add(codes::DRIVE_NEARLY_FULL, name, percent(drive.used_bytes, drive.capacity_bytes));
    }
    if drive.read_only {
        add(codes::DRIVE_READ_ONLY, name, "takes no more changes; its log says why".to_owned());
    }
    if drive.bad_blocks > 0 {
        let text = format!("{} blocks are not as they were written", drive.bad_blocks);
        add(codes::SCRUB_FOUND_ROT, name, text);
    }
    if drive.clock_offset.unsigned_abs() > CLOCK_SKEW_NS {
        let seconds = drive.clock_offset as f64 / 1e9;
        let text = format!("its clock is {seconds:+.1} s from its machine's");
        add(codes::CLOCK_SKEW, name, text);
    }
}

fn judge_volume(volume: &VolumeFacts, add: Add<'_>) {
    let about = format!("volume {}", volume.name);
    if !volume.serving {
        let text = "is not served: the drive with its root does not answer".to_owned();
        return add(codes::VOLUME_WAITS, &about, text);
    }
    let used = volume.total_bytes.saturating_sub(volume.free_bytes);
    if volume.free_bytes < FULL_BYTES {
        add(codes::VOLUME_FULL, &about, "has no room left".to_owned());
    } else if volume.has_quota && is_nearly_full(used, volume.total_bytes) {
        add(codes::VOLUME_QUOTA_NEARLY_FULL, &about, percent(used, volume.total_bytes));
    }
    let files = volume.files.saturating_add(volume.free_files);
    if volume.free_files == 0 {
        add(codes::VOLUME_FULL, &about, "has no room for another file".to_owned());
    } else if is_nearly_full(volume.files, files) {
        let text = format!("has {} files of about {files} that there is room for", volume.files);
        add(codes::VOLUME_FILES_NEARLY_FULL, &about, text);
    }
    if volume.backlog > 0 {
        let text = format!("{} changes and removals wait for a drive", volume.backlog);
        add(codes::MANAGER_BACKLOG, &about, text);
    }
}

fn judge_key(key: &KeyFacts, add: Add<'_>) {
    let about = format!("working key of {}", key.name);
    if key.owed > 0 {
        let text = format!("{} changes have not reached the drive", key.owed);
        return add(codes::KEY_DUE, &about, text);
    }
    if let (Some(age), Some(interval)) = (key.age, key.interval)
        && age > interval.saturating_mul(2)
    {
        let text = format!("is {} old", nasd_cell::time::spoken(age));
        add(codes::KEY_DUE, &about, text);
    }
}

fn is_nearly_full(used: u64, total: u64) -> bool {
    used as f64 > NEARLY_FULL * total as f64
}

fn percent(used: u64, total: u64) -> String {
    format!("is {:.0} % full", 100.0 * used as f64 / total.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive() -> DriveFacts {
        DriveFacts {
            name: "drive 1".to_owned(),
            reachable: true,
            capacity_bytes: 100 << 30,
            used_bytes: 10 << 30,
            ..DriveFacts::default()
        }
    }

    fn volume() -> VolumeFacts {
        VolumeFacts {
            name: "main".to_owned(),
            serving: true,
            total_bytes: 100 << 30,
            free_bytes: 50 << 30,
            files: 1000,
            free_files: 100_000,
            ..VolumeFacts::default()
        }
    }

    fn key() -> KeyFacts {
        KeyFacts { age: Some(10), interval: Some(86_400), ..KeyFacts::default() }
    }

    fn facts() -> Facts {
        Facts {
            now: 1_000_000_000,
            drives: vec![drive()],
            volumes: vec![volume()],
            certificates: vec![("host".to_owned(), 1_000_000_000 + 30 * 86_400)],
            keys: vec![key()],
            ..Facts::default()
        }
    }

    fn with_component(change: fn(&mut ComponentFacts)) -> Facts {
        let mut component = ComponentFacts {
            name: "drive 2".to_owned(),
            address: "host:1".to_owned(),
            reachable: true,
            state: "current",
            remark: String::new(),
            complaint: "",
        };
        change(&mut component);
        Facts { components: vec![component], ..facts() }
    }

    fn with_own_state(copies: usize, drives: usize) -> Facts {
        let own = OwnStateFacts {
            name: "striping-3".to_owned(),
            copies,
            drives,
            ..OwnStateFacts::default()
        };
        Facts { own_states: vec![own], ..facts() }
    }

    /// A change of healthy facts that brings about one code and no other.
    fn causes() -> Vec<(&'static Code, Facts)> {
        let with_drive = |change: fn(&mut DriveFacts)| {
            let mut changed = drive();
            change(&mut changed);
            Facts { drives: vec![drive(), changed], ..facts() }
        };
        let with_volume = |change: fn(&mut VolumeFacts)| {
            let mut changed = volume();
            change(&mut changed);
            Facts { volumes: vec![changed], ..facts() }
        };
        let with_key = |change: fn(&mut KeyFacts)| {
            let mut changed = key();
            change(&mut changed);
            Facts { keys: vec![changed], ..facts() }
        };
        let certificate = |ends: u64| vec![("host".to_owned(), 1_000_000_000 + ends)];
        vec![
            (codes::MANAGER_AWAY, Facts { manager_away: Some("away".into()), ..facts() }),
            (codes::DRIVE_AWAY, with_drive(|drive| drive.reachable = false)),
            (codes::DRIVE_AWAY, with_component(|component| component.reachable = false)),
            (codes::COPIES_LACKING, with_component(|component| component.state = "out")),
            (codes::COPIES_LACKING, with_component(|component| component.state = "joining")),
            (codes::STATE_ON_ONE_DRIVE, with_own_state(1, 2)),
            (codes::DRIVE_LIMPS, with_component(|component| component.complaint = "slow")),
            (codes::DRIVE_LIMPS, with_component(|component| component.complaint = "refuses")),
            (codes::DRIVE_FULL, with_drive(|drive| drive.used_bytes = drive.capacity_bytes)),
            (codes::DRIVE_NEARLY_FULL, with_drive(|drive| drive.used_bytes = 91 << 30)),
            (codes::DRIVE_READ_ONLY, with_drive(|drive| drive.read_only = true)),
            (codes::SCRUB_FOUND_ROT, with_drive(|drive| drive.bad_blocks = 1)),
            (codes::CLOCK_SKEW, with_drive(|drive| drive.clock_offset = -1_100_000_000)),
            (codes::CLOCK_SKEW, with_drive(|drive| drive.clock_offset = i64::MIN)),
            (codes::VOLUME_WAITS, with_volume(|volume| volume.serving = false)),
            (codes::VOLUME_FULL, with_volume(|volume| volume.free_bytes = 0)),
            (codes::VOLUME_FULL, with_volume(|volume| volume.free_files = 0)),
            (codes::VOLUME_FILES_NEARLY_FULL, with_volume(|volume| volume.free_files = 90)),
            (codes::MANAGER_BACKLOG, with_volume(|volume| volume.backlog = 3)),
            (
                codes::VOLUME_QUOTA_NEARLY_FULL,
                with_volume(|volume| (volume.has_quota, volume.free_bytes) = (true, 9 << 30)),
            ),
            (codes::VOLUME_UNFINISHED, Facts { unfinished: vec!["a".into()], ..facts() }),
            (codes::CERTIFICATE_ENDED, Facts { certificates: certificate(0), ..facts() }),
            (codes::CERTIFICATE_ENDS, Facts { certificates: certificate(86_400), ..facts() }),
            (codes::KEY_DUE, with_key(|key| key.owed = 2)),
            (codes::KEY_DUE, with_key(|key| key.age = Some(200_000))),
        ]
    }

    #[test]
    fn each_code_has_its_cause_and_no_other() {
        assert_eq!(judge(&facts()), []);
        for (code, facts) in causes() {
            let found = judge(&facts);
            let codes: Vec<_> = found.iter().map(|finding| finding.code.code).collect();
            assert_eq!(codes, [code.code]);
        }
        for code in codes::ALL {
            assert!(causes().iter().any(|(caused, _)| caused == code), "{} is untested", code.code);
        }
    }

    #[test]
    fn what_is_almost_so_is_not_reported() {
        let mut facts = facts();
        facts.drives[0].used_bytes = 90 << 30;
        facts.drives[0].clock_offset = 1_000_000_000;
        facts.volumes[0].free_bytes = 5 << 30; // No quota: its drives tell.
        facts.keys[0].age = Some(2 * 86_400);
        facts.certificates[0].1 = facts.now + 14 * 86_400;
        assert_eq!(judge(&facts), []);
        for (copies, drives) in [(0, 4), (1, 1), (2, 4), (3, 4)] {
            assert_eq!(judge(&with_own_state(copies, drives)), []);
        }
        facts.keys[0] = KeyFacts { age: Some(u64::MAX), interval: None, ..KeyFacts::default() };
        assert_eq!(judge(&facts), []);
    }

    #[test]
    fn the_worst_is_told_first_and_is_the_state() {
        assert_eq!(State::of(&[]), State::Healthy);
        let mut facts = Facts { unfinished: vec!["a".into()], ..facts() };
        assert_eq!(State::of(&judge(&facts)), State::Warning);
        facts.drives[0].reachable = false;
        let found = judge(&facts);
        assert_eq!(found[0].code, codes::DRIVE_AWAY);
        assert_eq!((State::of(&found), State::of(&found).exit_status()), (State::Error, 4));
    }

    #[test]
    fn codes_are_found_by_name_and_sorted() {
        assert_eq!(codes::find("drive_away"), Some(codes::DRIVE_AWAY));
        assert_eq!(codes::find("DRIVE"), None);
        assert!(codes::ALL.is_sorted_by_key(|code| code.code));
    }
}

//! People and machines: who is let in, as whom, and how they are shut out. The real binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{CellOptions, TestCell, finish, nasd, text};

fn cell() -> TestCell {
    let cell = TestCell::start(&CellOptions {
        drives: 2,
        size: "128M",
        cache: "32M",
        ..CellOptions::default()
    });
    fs::set_permissions(cell.mountpoint(), fs::Permissions::from_mode(0o777)).unwrap();
    cell
}

fn told(cell: &TestCell, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = cell.nasd(&words);
    assert!(output.status.success(), "nasd {line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: &Output, expected: &[&str]) {
    let printed = text(output);
    assert!(!output.status.success(), "it succeeded: {printed}");
    for word in expected {
        assert!(printed.contains(word), "no `{word}` in: {printed}");
    }
    assert!(!printed.contains("panicked"), "{printed}");
}

/// `nasd` as whoever was handed a directory.
fn with(directory: &Path, words: &[&str]) -> Output {
    let mut command = nasd();
    command.args(words).arg("--cell").arg(directory);
    finish(command)
}

fn ok(directory: &Path, words: &[&str]) -> String {
    let output = with(directory, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn handed(cell: &TestCell, member: &str) -> PathBuf {
    cell.cell().join("members").join(member)
}

#[test]
fn a_person_has_its_own_files_and_no_others() {
    let cell = cell();
    told(&cell, "user add bob --uid 1000");
    let bob = handed(&cell, "user-bob");
    assert_eq!(fs::metadata(bob.join("tls/user.key")).unwrap().mode() & 0o777, 0o600);
    assert!(!bob.join("keyring.toml").exists() && !bob.join("tls/ca.key").exists());

    let local = cell.directory.path().join("note");
    fs::write(&local, "bob's own").unwrap();
    ok(&bob, &["cp", local.to_str().unwrap(), "main:/note"]);
    assert_eq!(fs::metadata(cell.path("note")).unwrap().uid(), 1000);
    assert_eq!(ok(&bob, &["cat", "main:/note"]), "bob's own");
    fs::write(cell.path("secret"), "root's").unwrap();
    fs::set_permissions(cell.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    refused(&with(&bob, &["cat", "main:/secret"]), &["secret"]);
    // Nor can bob do what administrators do.
    refused(&with(&bob, &["key", "rotate"]), &["manager's machine"]);
    refused(&with(&bob, &["user", "add", "eve", "--uid", "0"]), &["ca.key"]);
}

#[test]
fn who_is_removed_is_out_at_once_and_others_go_on() {
    let cell = cell();
    for (name, uid) in [("bob", "1000"), ("carol", "1001")] {
        told(&cell, &format!("user add {name} --uid {uid}"));
    }
    let (bob, carol) = (handed(&cell, "user-bob"), handed(&cell, "user-carol"));
    ok(&bob, &["ls", "main:/"]);
    ok(&carol, &["ls", "main:/"]);
    fs::write(cell.path("open"), vec![7; 1 << 20]).unwrap();
    let mut open = fs::File::open(cell.path("open")).unwrap();
    let mut half = vec![0; 1 << 19];
    open.read_exact(&mut half).unwrap();

    refused(&cell.nasd(&["user", "remove", "bob"]), &["--yes"]);
    ok(&bob, &["ls", "main:/"]);
    told(&cell, "user remove bob --yes");
    refused(&with(&bob, &["ls", "main:/"]), &[]);
    // The keys have been changed twice, which the mount and carol do not notice.
    let keys: Value = serde_json::from_str(&told(&cell, "key show --json")).unwrap();
    assert_eq!(keys["drives"][0]["working_key_epoch"], 3);
    open.read_exact(&mut half).unwrap();
    assert!(half.iter().all(|byte| *byte == 7));
    ok(&carol, &["ls", "main:/"]);

    let list: Value = serde_json::from_str(&told(&cell, "user list --json")).unwrap();
    let members = list["members"].as_array().unwrap();
    assert!(members[0]["name"] == "bob" && members[0]["removed"].is_u64(), "{list}");
    assert!(members[1]["name"] == "carol" && members[1]["removed"].is_null(), "{list}");
    assert!(told(&cell, "user list").contains("removed"));
    refused(&cell.nasd(&["user", "remove", "bob", "--yes"]), &["no such member"]);

    // It may come back, and what it had before stays worthless.
    let again = cell.directory.path().join("bob-again");
    told(&cell, &format!("user add bob --uid 1000 --out {}", again.display()));
    ok(&again, &["ls", "main:/"]);
    refused(&with(&bob, &["ls", "main:/"]), &[]);
    // In the usual place too, where its directory from before is.
    told(&cell, "user remove bob --yes");
    told(&cell, "user add bob --uid 1000");
    ok(&bob, &["ls", "main:/"]);
    fs::set_permissions(bob.join("tls/user.key"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(&with(&bob, &["ls", "main:/"]), &["user.key", "chmod 600"]);
}

#[test]
fn a_machine_speaks_for_all_of_its_users() {
    let cell = cell();
    let other = cell.directory.path().join("other");
    told(&cell, &format!("host add other --out {}", other.display()));
    fs::write(cell.path("secret"), "root's").unwrap();
    fs::set_permissions(cell.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ok(&other, &["cat", "main:/secret"]), "root's");
    let list = told(&cell, "host list");
    assert!(list.contains("other") && list.contains("good for 36"), "{list}");
    told(&cell, "host remove other --yes");
    refused(&with(&other, &["cat", "main:/secret"]), &[]);
}

#[test]
fn the_cells_own_machine_is_not_removed() {
    let cell = cell();
    let list: Value = serde_json::from_str(&told(&cell, "host list --json")).unwrap();
    let own = list["members"][0]["name"].as_str().unwrap();
    refused(&cell.nasd(&["host", "remove", own, "--yes"]), &["own machine", "host.pem"]);
    let list: Value = serde_json::from_str(&told(&cell, "host list --json")).unwrap();
    assert!(list["members"][0]["removed"].is_null(), "{list}");
}

#[test]
fn names_are_checked_and_certificates_expire() {
    let cell = cell();
    told(&cell, "user add bob --uid 1000");
    for (line, words) in [
        ("user add bob --uid 1001", &["there is one of this name"][..]),
        ("user add bill --uid 1000", &["bob", "same user number"]),
        ("user add ../x --uid 5", &["letters"]),
        ("user add nobody-knows-me", &["--uid"]),
        ("host add a/b", &["letters"]),
        ("user add x --uid 6 --for soon", &["soon", "30s"]),
        ("user add x --uid 6 --for 99999d", &["99999d", "3652d"]),
    ] {
        let words_of_line: Vec<&str> = line.split_whitespace().collect();
        refused(&cell.nasd(&words_of_line), words);
    }
    told(&cell, "user add root");
    assert_eq!(ok(&handed(&cell, "user-root"), &["ls", "main:/"]), "");

    told(&cell, "user add brief --uid 7 --for 10s");
    let brief = handed(&cell, "user-brief");
    ok(&brief, &["ls", "main:/"]);
    sleep_until(ends(&brief.join("tls/user.pem")) + Duration::from_secs(1));
    refused(&with(&brief, &["ls", "main:/"]), &["expired"]);
    assert!(told(&cell, "user list").contains("expired"));
}

#[test]
fn a_certificate_without_its_entry_in_the_ledger_is_worthless() {
    let mut cell = cell();
    let other = cell.directory.path().join("other");
    told(&cell, &format!("host add other --out {}", other.display()));
    ok(&other, &["ls", "main:/"]);
    cell.stop();
    let ledger = cell.cell().join("tls/members.toml");
    let entries = fs::read_to_string(&ledger).unwrap();
    let (kept, _) = entries.rsplit_once("[[member]]").unwrap();
    fs::write(&ledger, kept).unwrap();
    cell.restart();
    refused(&with(&other, &["ls", "main:/"]), &[]);
    fs::write(cell.path("file"), "this machine is a member").unwrap();
}

#[test]
fn a_cell_without_a_ledger_gets_one() {
    let mut cell = cell();
    cell.stop();
    for file in ["members.toml", "admin.key", "admin.pem"] {
        fs::remove_file(cell.cell().join("tls").join(file)).unwrap();
    }
    cell.restart();
    fs::write(cell.path("file"), "x").unwrap();
    told(&cell, "key rotate");
    assert_eq!(told(&cell, "host list").lines().count(), 2);
}

/// The token that a command printed.
fn token(cell: &TestCell, line: &str) -> String {
    told(cell, line).split_whitespace().last().unwrap().to_owned()
}

fn join(token: &str, directory: &Path) -> Output {
    let mut command = nasd();
    command.args(["join", token]).arg(directory);
    finish(command)
}

#[test]
fn a_machine_joins_with_a_token_once() {
    let cell = cell();
    fs::write(cell.path("file"), "hello").unwrap();
    let token_text = token(&cell, "host add laptop");
    assert!(token_text.starts_with("nasdjoin1."), "{token_text}");
    let ledger = || fs::read_to_string(cell.cell().join("tls/members.toml")).unwrap();
    assert!(ledger().contains("[[invitation]]") && !ledger().contains(&token_text[10..40]));
    assert!(told(&cell, "host list").contains("invited"));

    let laptop = cell.directory.path().join("laptop");
    let joined = join(&token_text, &laptop);
    assert!(joined.status.success(), "{}", text(&joined));
    assert_eq!(ok(&laptop, &["cat", "main:/file"]), "hello");
    assert_eq!(fs::metadata(laptop.join("tls/host.key")).unwrap().mode() & 0o777, 0o600);
    assert!(!ledger().contains("[[invitation]]"));
    assert!(told(&cell, "host list").contains("laptop"));

    // Once; and a directory that has something in it is left alone.
    refused(&join(&token_text, &laptop), &["not empty"]);
    let other = cell.directory.path().join("other");
    refused(&join(&token_text, &other), &["is used already"]);
    assert!(!other.exists());
    told(&cell, "host remove laptop --yes");
    refused(&with(&laptop, &["cat", "main:/file"]), &[]);
}

#[test]
fn a_person_joins_with_a_token_as_itself() {
    let cell = cell();
    let token_text = token(&cell, "user add bob --uid 1000 --token");
    let bob = cell.directory.path().join("bob");
    let written = cell.directory.path().join("token");
    fs::write(&written, format!("{token_text}\n")).unwrap();
    refused(&join("@/no/such/file", &bob), &["/no/such/file", "a token"]);
    assert!(join(&format!("@{}", written.display()), &bob).status.success());
    ok(&bob, &["mkdir", "main:/bobs"]);
    assert_eq!(fs::metadata(cell.path("bobs")).unwrap().uid(), 1000);
}

#[test]
fn tokens_that_are_not_good_open_nothing() {
    let cell = cell();
    let target = cell.directory.path().join("target");
    let brief = token(&cell, "host add brief --token-for 1s");
    std::thread::sleep(Duration::from_millis(2100));
    refused(&join(&brief, &target), &["expired"]);
    for wrong in ["", "nasdjoin1.", "hello", &brief[..brief.len() - 3]] {
        refused(&join(wrong, &target), &["no token"]);
    }
    // A newer token is the only one; and a cell's token opens no other cell.
    let first = token(&cell, "host add twice");
    let second = token(&cell, "host add twice");
    refused(&join(&first, &target), &["is used already"]);
    let elsewhere = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    let address = |cell: &TestCell| {
        let config: toml::Table =
            fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
        config["manager"]["address"].as_str().unwrap().to_owned()
    };
    let led_astray = token(&cell, &format!("host add astray --manager {}", address(&elsewhere)));
    refused(&join(&led_astray, &target), &["certificate is not of this cell"]);
    assert!(!target.exists());
    assert!(join(&second, &target).status.success());
}

#[test]
fn an_invitation_goes_with_its_name() {
    let cell = cell();
    let target = cell.directory.path().join("target");
    // Somebody who was only invited.
    let alone = token(&cell, "host add laptop");
    let said = told(&cell, "host remove laptop --yes");
    assert!(said.contains("invited no more"), "{said}");
    refused(&join(&alone, &target), &["is used already"]);
    refused(&cell.nasd(&["host", "remove", "laptop", "--yes"]), &["no such member"]);
    // A member who was invited before it was added in another way.
    let unused = token(&cell, "host add laptop");
    let user = token(&cell, "user add laptop --uid 1000 --token");
    let out = cell.directory.path().join("laptop");
    told(&cell, &format!("host add laptop --out {}", out.display()));
    refused(&join(&unused, &target), &["is used already"]);
    told(&cell, "host remove laptop --yes");
    refused(&join(&unused, &target), &["is used already"]);
    // A person of that name is somebody else.
    assert!(join(&user, &target).status.success());
}

#[test]
fn without_a_certificate_nothing_but_joining_is_answered() {
    use nasd_client::{Caller, ConnectOptions, ManagerClient, RetryPolicy};
    use nasd_transport::ClientTls;
    let cell = cell();
    let config: toml::Table =
        fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
    let address = config["manager"]["address"].as_str().unwrap();
    let tls = ClientTls::pinned(|_| true, "manager.nasd.internal").unwrap();
    let options = ConnectOptions {
        retry: RetryPolicy::within(Duration::from_secs(5)),
        ..ConnectOptions::default()
    };
    let stranger = ManagerClient::tls(address, tls, &options);
    for uid in [0, 1000] {
        let caller = Caller { uid, gid: uid, groups: vec![] };
        let denied = stranger.volume(&caller, b"main").unwrap_err();
        assert_eq!(denied.manager_status(), None, "{denied}");
        assert!(stranger.status(&caller).is_err() && stranger.space(&caller, b"main").is_err());
    }
    assert!(stranger.rotate(true).is_err() && stranger.reload(true).is_err());
    for (secret, key) in [(&[0_u8; 16][..], vec![4; 65]), (&[], vec![4; 65]), (&[0; 16], vec![])] {
        let refused = stranger.enroll(secret, &key).unwrap_err();
        assert_eq!(refused.manager_status(), Some(nasd_protocol::ManagerStatus::Access));
    }
}

/// When a certificate ends.
fn ends(path: &Path) -> SystemTime {
    let (_, end) = nasd_transport::certificate_times(&fs::read(path).unwrap()).unwrap();
    UNIX_EPOCH + Duration::from_secs(end)
}

fn sleep_until(time: SystemTime) {
    std::thread::sleep(time.duration_since(SystemTime::now()).unwrap_or_default());
}

#[test]
fn certificates_are_renewed_in_time_and_on_demand() {
    let cell = cell();
    let laptop = cell.directory.path().join("laptop");
    let token_text = token(&cell, "host add laptop --for 24s");
    assert!(join(&token_text, &laptop).status.success());
    let path = laptop.join("tls/host.pem");
    let certificate = || fs::read(&path).unwrap();
    let (first, end_of_first) = (certificate(), ends(&path));
    ok(&laptop, &["ls", "main:/"]);
    assert!(certificate() == first, "it is fresh");
    sleep_until(end_of_first - Duration::from_secs(7));
    ok(&laptop, &["ls", "main:/"]);
    let second = certificate();
    assert!(second != first, "less than a third was left");
    sleep_until(end_of_first + Duration::from_secs(1));
    ok(&laptop, &["ls", "main:/"]);
    ok(&laptop, &["renew"]);
    assert!(certificate() != second);
    told(&cell, "host remove laptop --yes");
    refused(&with(&laptop, &["renew"]), &["not renewed"]);
}

/// The manager, asked by one session with a directory's certificate.
fn session(directory: &Path) -> nasd_client::ManagerClient {
    session_as("host", directory)
}

fn session_as(member: &str, directory: &Path) -> nasd_client::ManagerClient {
    use nasd_client::{ConnectOptions, ManagerClient, RetryPolicy};
    use nasd_transport::{ClientTls, PemFiles};
    let read = |file: &str| fs::read(directory.join("tls").join(file)).unwrap();
    let (certificate, key) = (read(&format!("{member}.pem")), read(&format!("{member}.key")));
    let authority = read("ca.pem");
    let pem = PemFiles { authority: &authority, certificate: &certificate, key: &key };
    let tls = ClientTls::new(&pem, "manager.nasd.internal").unwrap();
    let options = ConnectOptions {
        connections: 1,
        retry: RetryPolicy::within(Duration::from_secs(5)),
        ..ConnectOptions::default()
    };
    let config: toml::Table =
        fs::read_to_string(directory.join("cell.toml")).unwrap().parse().unwrap();
    ManagerClient::tls(config["manager"]["address"].as_str().unwrap(), tls, &options)
}

#[test]
fn the_authority_is_replaced_while_members_go_on() {
    let mut cell = cell();
    let (old, renewing) = (cell.directory.path().join("old"), cell.directory.path().join("new"));
    for (name, directory) in [("old", &old), ("new", &renewing)] {
        assert!(join(&token(&cell, &format!("host add {name}")), directory).status.success());
    }
    let roots = |directory: &Path| {
        fs::read_to_string(directory.join("tls/ca.pem")).unwrap().matches("BEGIN").count()
    };
    refused(&cell.nasd(&["key", "rotate-authority", "--finish"]), &["begin with"]);
    fs::write(cell.path("file"), "before").unwrap();
    let said = told(&cell, "key rotate-authority");
    assert!(said.contains("host:old, host:new"), "{said}");
    // Given again, it changes nothing.
    told(&cell, "key rotate-authority");
    assert_eq!(roots(&cell.cell()), 2);
    for directory in [&old, &renewing] {
        assert_eq!(ok(directory, &["cat", "main:/file"]), "before");
    }
    let before_renewal = session(&renewing);
    ok(&renewing, &["renew"]);
    assert_eq!((roots(&old), roots(&renewing)), (1, 2));
    let joined = cell.directory.path().join("joined");
    assert!(join(&token(&cell, "host add joined"), &joined).status.success());
    refused(&cell.nasd(&["key", "rotate-authority", "--finish"]), &["host:old", "--yes"]);
    // Who goes on by a certificate that it has read before, as mounts do, starts anew.
    cell.stop();
    cell.restart();
    let sessions = [session(&old), before_renewal];
    for session in &sessions {
        let let_in = session.renew(&[]).unwrap_err();
        assert_eq!(let_in.manager_status(), Some(nasd_protocol::ManagerStatus::Access));
    }
    told(&cell, "key rotate-authority --finish --yes");
    for session in &sessions {
        let denied = session.renew(&[]).unwrap_err();
        assert_eq!(denied.manager_status(), None, "{denied}");
    }
    assert!(told(&cell, "host list").contains("removed"));
    assert_eq!(roots(&cell.cell()), 1);
    for directory in [&renewing, &joined] {
        assert_eq!(ok(directory, &["cat", "main:/file"]), "before");
    }
    refused(&with(&old, &["cat", "main:/file"]), &[]);
    fs::write(cell.path("file"), "the mount goes on").unwrap();
    told(&cell, "key rotate");
    assert!(
        join(&token(&cell, "host add later"), &cell.directory.path().join("later"))
            .status
            .success()
    );
}

/// What a thief has copied of the cell's own certificates.
fn steal(cell: &TestCell, name: &str) -> PathBuf {
    let thief = cell.directory.path().join(name);
    fs::create_dir_all(thief.join("tls")).unwrap();
    fs::copy(cell.cell().join("cell.toml"), thief.join("cell.toml")).unwrap();
    for file in ["ca.pem", "admin.pem", "admin.key", "host.pem", "host.key"] {
        fs::copy(cell.cell().join("tls").join(file), thief.join("tls").join(file)).unwrap();
    }
    thief
}

/// The serial numbers of all certificates that count as the administrator's.
fn administrators(cell: &TestCell) -> usize {
    let ledger: toml::Table =
        fs::read_to_string(cell.cell().join("tls/members.toml")).unwrap().parse().unwrap();
    let members = ledger["member"].as_array().unwrap();
    let of = |member: &toml::Value| {
        let more = |field: &str| member.get(field).map_or(0, |list| list.as_array().unwrap().len());
        1 + more("previous") + more("superseded")
    };
    let is_admin = |member: &&toml::Value| member["kind"].as_str() == Some("admin");
    members.iter().filter(is_admin).map(of).sum()
}

#[test]
fn a_stolen_certificate_of_the_administrator_is_shut_out_alone() {
    let mut cell = cell();
    told(&cell, "user add bob --uid 1000");
    let bob = handed(&cell, "user-bob");
    let thief = steal(&cell, "thief");
    let open = session_as("admin", &thief);
    open.rotate(false).unwrap();
    // It is not made into another one, before or after.
    let denied = open.renew(&p256_point()).unwrap_err();
    assert_eq!(denied.manager_status(), Some(nasd_protocol::ManagerStatus::Permission));
    assert_eq!(administrators(&cell), 1);

    told(&cell, "key rotate-certificate admin");
    assert_eq!(administrators(&cell), 1);
    let is_out = |thief: &Path| {
        let denied = session_as("admin", thief).rotate(false).unwrap_err();
        assert_eq!(denied.manager_status(), None, "{denied}");
        refused(&with(thief, &["key", "rotate"]), &["does not let this member in"]);
    };
    let denied = open.rotate(false).unwrap_err();
    assert_eq!(denied.manager_status(), None, "{denied}");
    assert!(open.renew(&p256_point()).is_err());
    is_out(&thief);
    // Nobody else notices.
    told(&cell, "key rotate");
    ok(&bob, &["ls", "main:/"]);
    fs::write(cell.path("file"), "the mount goes on").unwrap();
    cell.stop();
    cell.restart();
    is_out(&thief);
    told(&cell, "key rotate");

    // While the cell is stopped, too.
    let later = steal(&cell, "later");
    cell.stop();
    told(&cell, "key rotate-certificate admin");
    cell.restart();
    is_out(&later);
    told(&cell, "key rotate");
    // Also a ledger that has forgotten the owner's certificate for others leads back.
    told(&cell, "key rotate-certificate admin");
    forget_administrator(&cell);
    told(&cell, "key rotate-certificate admin");
    told(&cell, "key rotate");
}

#[test]
fn a_manager_that_is_slow_is_not_one_that_does_not_run() {
    let mut cell = cell();
    cell.stop();
    // One that was started by itself, takes connections, and does not answer in time.
    let config: toml::Table =
        fs::read_to_string(cell.cell().join("cell.toml")).unwrap().parse().unwrap();
    let address = config["manager"]["address"].as_str().unwrap();
    let silent = std::net::TcpListener::bind(address).unwrap();
    let output = cell.nasd(&["key", "rotate-certificate", "admin"]);
    refused(&output, &["the manager could not be told"]);
    assert!(!text(&output).contains("no earlier one counts"), "{}", text(&output));
    drop(silent);
    told(&cell, "key rotate-certificate admin");
    cell.restart();
    told(&cell, "key rotate");
}

/// Has the ledger know another certificate as the administrator's.
fn forget_administrator(cell: &TestCell) {
    let path = cell.cell().join("tls/members.toml");
    let text = fs::read_to_string(&path).unwrap();
    let mut ledger: toml::Table = text.parse().unwrap();
    for member in ledger["member"].as_array_mut().unwrap() {
        if member["kind"].as_str() == Some("admin") {
            member.as_table_mut().unwrap().insert("serial".to_owned(), "4142".into());
        }
    }
    fs::write(&path, ledger.to_string()).unwrap();
}

/// A key that could be certified.
fn p256_point() -> Vec<u8> {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap().der_bytes().to_vec()
}

#[test]
fn a_replacement_that_is_killed_anywhere_leaves_an_administrator() {
    let cell = cell();
    let thief = steal(&cell, "thief");
    for step in 0..24 {
        let mut command = nasd();
        command.args(["key", "rotate-certificate", "admin", "--cell"]).arg(cell.cell());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(step * 2));
        let _ = child.kill();
        child.wait().unwrap();
        told(&cell, "key rotate");
    }
    // For certain before its end: the manager does not answer.
    let manager = cell.member("manager serve");
    let ledger = || fs::read(cell.cell().join("tls/members.toml")).unwrap();
    for _ in 0..3 {
        support::signal(manager, "STOP");
        let before = ledger();
        let mut command = nasd();
        command.args(["key", "rotate-certificate", "admin", "--cell"]).arg(cell.cell());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        support::wait_until("the ledger is changed", || ledger() != before);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        support::signal(manager, "CONT");
        told(&cell, "key rotate");
    }
    told(&cell, "key rotate-certificate admin");
    assert_eq!(administrators(&cell), 1);
    assert!(session_as("admin", &thief).rotate(false).is_err());
}

#[test]
fn a_stolen_certificate_of_the_cells_own_machine_is_shut_out_alone() {
    let mut cell = cell();
    fs::write(cell.path("file"), "hello").unwrap();
    // The mount is shut out with the thief, and could make nothing durable any more.
    fs::File::open(cell.path("file")).unwrap().sync_all().unwrap();
    let thief = steal(&cell, "thief");
    fs::remove_file(thief.join("tls/admin.key")).unwrap();
    assert_eq!(ok(&thief, &["cat", "main:/file"]), "hello");
    // A machine's may be renewed from afar; what comes of that goes with it, and a thief who has it
    // renewed until the ledger forgets the owner's keeps nothing by that.
    for _ in 0..20 {
        ok(&thief, &["renew"]);
    }
    refused(&cell.nasd(&["ls", "main:/"]), &["does not let this member in"]);
    refused(&cell.nasd(&["key", "rotate-certificate", "host"]), &["--yes", "mounts"]);
    assert_eq!(ok(&thief, &["cat", "main:/file"]), "hello");
    told(&cell, "key rotate-certificate host --yes");
    for words in [&["cat", "main:/file"][..], &["renew"]] {
        refused(&with(&thief, words), &["does not let this member in"]);
    }
    assert_eq!(told(&cell, "cat main:/file"), "hello");
    let keys: Value = serde_json::from_str(&told(&cell, "key show --json")).unwrap();
    assert_eq!(keys["drives"][0]["working_key_epoch"], 3);
    cell.stop();
    cell.restart();
    assert_eq!(fs::read_to_string(cell.path("file")).unwrap(), "hello");
    refused(&with(&thief, &["cat", "main:/file"]), &["does not let this member in"]);
}

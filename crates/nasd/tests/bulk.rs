//! Big files by the bulk service: `nasd bulk serve`, `get` and `put`, with real servers that die and clients that are killed.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use support::{
    CellOptions, TestCell, feed, finish, free_ports, make_tree, nasd, noise, scratch, shell,
    signal, text, wait_for_exit, wait_until,
};

/// Lengths that fill sectors, pages, blocks and parts, and that don't.
const LENGTHS: [usize; 7] = [0, 1, 511, 512, 513, (3 << 19) + 7, 20 << 20];

/// One that takes several parts, with blocks so small that it takes a while.
const LARGE: usize = (96 << 20) + 513;
const SLOWLY: [&str; 5] = ["--streams", "1", "--block", "4K", "--resume"];

/// A server, which is killed at the end.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(cell: Option<&Path>, directory: &Path, arguments: &[&str]) -> Served {
        let mut command = nasd();
        command.args(["bulk", "serve"]).arg(directory).args(arguments);
        if let Some(cell) = cell {
            command.arg("--cell").arg(cell);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() != Some(&"ready") {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("it does not serve: {errors}");
        }
        assert_eq!(Path::new(words[2]), directory.canonicalize().unwrap());
        let address = words[1].to_owned();
        Served { child, address }
    }

    /// With nothing but a free port.
    fn any(cell: &TestCell, directory: &Path, arguments: &[&str]) -> Served {
        let arguments = [&["--listen", "127.0.0.1:0"], arguments].concat();
        Served::start(Some(&cell.cell()), directory, &arguments)
    }

    fn url(&self, path: &str) -> String {
        format!("bulk://{}/{path}", self.address)
    }

    fn end(&mut self, how: &str) -> std::process::ExitStatus {
        signal(self.child.id(), how);
        wait_for_exit(&mut self.child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cell, a directory that is to be served, and one of ours.
struct Scene {
    cell: TestCell,
    served: PathBuf,
    ours: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let options = CellOptions { size: "256M", ..CellOptions::default() };
        let cell = TestCell::start(&options);
        let (served, ours) =
            (cell.directory.path().join("served"), cell.directory.path().join("ours"));
        for directory in [&served, &ours] {
            fs::create_dir(directory).unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        }
        fs::set_permissions(cell.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Scene { cell, served, ours }
    }

    fn trusting(&self) -> Served {
        Served::any(&self.cell, &self.served, &["--trust-root"])
    }

    fn bulk(&self, arguments: &[&str]) -> Output {
        finish(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = nasd();
        command.arg("bulk").args(arguments).arg("--cell").arg(self.cell.cell());
        command.current_dir(&self.ours).env("XDG_STATE_HOME", self.ours.join("state"));
        command
    }

    /// What a command tells that must succeed.
    fn told(&self, arguments: &[&str]) -> Value {
        let output = self.bulk(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.ours.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn assert_fails(output: &Output, words: &str) {
    let said = text(output);
    assert!(!output.status.success(), "it succeeded, and should say `{words}`: {said}");
    assert!(said.contains(words), "`{words}` is not in: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (fs::read(one).unwrap(), fs::read(other).unwrap());
    assert!(one == other, "{} bytes of {}, or others", one.len(), other.len());
}

/// Waits until a journal says that a part is done.
fn await_part(journal: impl Fn() -> Option<PathBuf>) {
    wait_until("a part is done", || {
        let text = journal().map(|path| fs::read_to_string(path).unwrap_or_default());
        text.is_some_and(|text| text.contains("\ndone "))
    });
}

#[test]
fn files_of_any_length_go_there_and_back() {
    let scene = Scene::new();
    let server = scene.trusting();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let name = format!("f{length}");
        let bytes = noise(seed as u64 + 1, length);
        let file = scene.file(&name, &bytes);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        shell("touch -d '2020-02-03 04:05:06.789' \"$1\"", &[&file]);
        for remote in [server.url(""), "main:/".to_owned()] {
            let put = scene.told(&["put", "--checksum", &name, &remote]);
            let checksum = blake3(&bytes);
            assert_eq!(put["checksums"][0]["blake3"].as_str(), Some(&*checksum), "{name}");
            assert_eq!(
                (put["bytes"].as_u64(), put["files"].as_u64()),
                (Some(length as u64), Some(1))
            );
            let got = scene.told(&["get", "--checksum", &format!("{remote}{name}"), "got"]);
            assert_eq!(got["checksums"][0]["blake3"].as_str(), Some(&*checksum), "{name}");
            assert_same(&scene.ours.join("got"), &file);
            let (got, file) =
                (fs::metadata(scene.ours.join("got")).unwrap(), fs::metadata(&file).unwrap());
            assert_eq!(
                (got.mode(), got.mtime(), got.mtime_nsec()),
                (file.mode(), file.mtime(), file.mtime_nsec())
            );
        }
        assert_same(&scene.served.join(&name), &file);
        assert_same(&scene.cell.path(&name), &file);
    }
    let left: Vec<_> = fs::read_dir(&scene.served).unwrap().collect();
    assert_eq!(left.len(), LENGTHS.len(), "something is left: {left:?}");
    // Shorter than what it takes the place of, and longer.
    for length in [513, 20 << 20, 7] {
        scene.file("f", &noise(9, length));
        scene.told(&["put", "f", &server.url("f")]);
        assert_same(&scene.served.join("f"), &scene.ours.join("f"));
    }
}

fn blake3(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[test]
fn trees_go_there_and_back() {
    let scene = Scene::new();
    let server = scene.trusting();
    let tree = scene.ours.join("tree");
    make_tree(&tree, 300);
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(tree.join("large"), noise(5, 40 << 20)).unwrap();
    fs::set_permissions(tree.join("d1"), fs::Permissions::from_mode(0o500)).unwrap();
    shell("touch -d 2021-02-03 \"$1\"/d2/e2/* \"$1\"/d2/e2 \"$1\"", &[&tree]);
    let links = shell("find \"$1\" -type l | wc -l", &[&tree]).trim().parse::<u64>().unwrap();
    for remote in [server.url(""), "main:/".to_owned()] {
        assert_fails(&scene.bulk(&["put", "tree", &remote]), "add -r");
        let put = scene.told(&["put", "-r", "tree", &remote]);
        assert_eq!(put["left_out"].as_u64(), Some(links));
        assert_fails(&scene.bulk(&["get", &format!("{remote}tree"), "back"]), "add -r");
        let got = scene.told(&["get", "-r", &format!("{remote}tree"), "back"]);
        assert_eq!(
            (got["files"].as_u64(), got["bytes"].as_u64()),
            (put["files"].as_u64(), put["bytes"].as_u64())
        );
        let facts = "cd \"$1\"; find . ! -type l ! -name . -printf '%p %y %m %T@ ' \\( -type f -printf '%s' -o -true \\) -printf '\\n' | sort";
        assert_eq!(shell(facts, &[&scene.ours.join("back")]), shell(facts, &[&tree]));
        shell(
            "diff -r --no-dereference -x 'l*' \"$1\" \"$2\"; rm -r \"$2\"",
            &[&tree, &scene.ours.join("back")],
        );
    }
}

#[test]
fn the_input_and_the_output() {
    let scene = Scene::new();
    let server = scene.trusting();
    for length in [0, 1, 513, (9 << 20) + 5] {
        let bytes = noise(3, length);
        for remote in [server.url("piped"), "main:/piped".to_owned()] {
            let put =
                feed(scene.command(&["put", "--checksum", "--block", "1M", "-", &remote]), &bytes);
            assert!(put.status.success(), "{}", text(&put));
            let got = scene.bulk(&["get", &remote, "-"]);
            assert!(
                got.status.success() && got.stdout == bytes,
                "{length}: {} bytes",
                got.stdout.len()
            );
        }
    }
    let line = format!("\"$1\" bulk get {} - --cell \"$2\" | head -c 5", server.url("piped"));
    let head = shell(&line, &[Path::new(env!("CARGO_BIN_EXE_nasd")), &scene.cell.cell()]);
    assert!(!head.is_empty());
}

#[test]
fn what_was_interrupted_goes_on() {
    let scene = Scene::new();
    let server = scene.trusting();
    let bytes = noise(4, LARGE);
    fs::write(scene.served.join("large"), &bytes).unwrap();
    fs::write(scene.ours.join("copy"), b"old").unwrap();
    let (url, copy) = (server.url("large"), scene.ours.join("copy"));
    let slowly = |verb: &str, from: &str, to: &str, journal: &dyn Fn() -> Option<PathBuf>| {
        let arguments = [&[verb][..], &SLOWLY, &["--checksum", from, to]].concat();
        let mut begun = scene.command(&arguments).stderr(Stdio::null()).spawn().unwrap();
        await_part(journal);
        signal(begun.id(), "KILL");
        assert!(!wait_for_exit(&mut begun).success(), "it was faster than the test");
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let again = |arguments: &[String]| {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        scene.told(&words)
    };
    let arguments = slowly("get", &url, "copy", &|| Some(scene.ours.join("copy.part.journal")));
    assert_eq!(fs::read(&copy).unwrap(), b"old", "the old file stays");
    let told = again(&arguments);
    assert!(told["resumed_bytes"].as_u64() >= Some(8 << 20), "{told}");
    assert!(fs::read(&copy).unwrap() == bytes);
    assert_eq!(told["checksums"][0]["blake3"].as_str(), Some(&*blake3(&bytes)));
    // Begun, and then the source is another one.
    let arguments = slowly("get", &url, "copy2", &|| Some(scene.ours.join("copy2.part.journal")));
    let other = noise(5, LARGE - 1000);
    fs::write(scene.served.join("large"), &other).unwrap();
    assert_eq!(again(&arguments)["resumed_bytes"].as_u64(), Some(0));
    assert!(fs::read(scene.ours.join("copy2")).unwrap() == other);
    // The other way.
    let state = scene.ours.join("state/nasd/bulk");
    let journal = || Some(fs::read_dir(&state).ok()?.next()?.ok()?.path());
    scene.file("source", &bytes);
    let arguments = slowly("put", "source", &server.url("target"), &journal);
    assert!(!scene.served.join("target").exists());
    let told = again(&arguments);
    assert!(told["resumed_bytes"].as_u64() >= Some(8 << 20), "{told}");
    assert!(fs::read(scene.served.join("target")).unwrap() == bytes);
    for name in ["copy.part", "copy.part.journal", "copy2.part", "copy2.part.journal"] {
        assert!(!scene.ours.join(name).exists(), "{name} is left");
    }
    assert!(
        !scene.served.join("target.part").exists() && fs::read_dir(&state).unwrap().count() == 0
    );
}

#[test]
fn a_server_that_dies_and_comes_back_is_not_noticed() {
    let scene = Scene::new();
    let address = format!("127.0.0.1:{}", free_ports(1));
    let start = || {
        let arguments = ["--trust-root", "--listen", &address];
        Served::start(Some(&scene.cell.cell()), &scene.served, &arguments)
    };
    let mut server = start();
    let bytes = noise(6, LARGE);
    fs::write(scene.served.join("large"), &bytes).unwrap();
    scene.file("source", &bytes);
    let state = scene.ours.join("state/nasd/bulk");
    let mut through = |verb: &str, from: &str, to: &str, journal: &dyn Fn() -> Option<PathBuf>| {
        let arguments = [&[verb][..], &SLOWLY, &[from, to]].concat();
        let mut command = scene.command(&arguments);
        let begun = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut begun = begun.spawn().unwrap();
        await_part(journal);
        server.end("KILL");
        assert!(begun.try_wait().unwrap().is_none(), "it was faster than the test");
        thread::sleep(Duration::from_millis(300));
        server = start();
        let status = wait_for_exit(&mut begun);
        let mut errors = String::new();
        begun.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{errors}");
    };
    let url = |name: &str| format!("bulk://{address}/{name}");
    through("get", &url("large"), "copy", &|| Some(scene.ours.join("copy.part.journal")));
    assert!(fs::read(scene.ours.join("copy")).unwrap() == bytes);
    let journal = || Some(fs::read_dir(&state).ok()?.next()?.ok()?.path());
    through("put", "source", &url("target"), &journal);
    assert!(fs::read(scene.served.join("target")).unwrap() == bytes);
    assert!(server.end("TERM").success(), "it ends well");
}

#[test]
fn who_has_no_right_gets_nothing() {
    let scene = Scene::new();
    let server = Served::any(&scene.cell, &scene.served, &[]);
    fs::write(scene.served.join("open"), b"open").unwrap();
    fs::write(scene.served.join("closed"), b"closed").unwrap();
    fs::set_permissions(scene.served.join("closed"), fs::Permissions::from_mode(0o600)).unwrap();
    // Root of a host is nobody, unless it is trusted.
    assert_fails(&scene.bulk(&["get", &server.url("closed"), "x"]), "mode does not allow");
    scene.told(&["get", &server.url("open"), "x"]);
    assert_eq!(fs::read(scene.ours.join("x")).unwrap(), b"open");
    // A person of the cell has what is its own.
    let added = scene.cell.nasd(&["user", "add", "bob", "--uid", "12345"]);
    assert!(added.status.success(), "{}", text(&added));
    let bob = scene.cell.cell().join("members/user-bob");
    let by_bob = |arguments: &[&str]| {
        let mut command = nasd();
        command.arg("bulk").args(arguments).arg("--cell").arg(&bob).current_dir(&scene.ours);
        finish(command)
    };
    scene.file("mine", b"bob's");
    let put = by_bob(&["put", "mine", &server.url("mine")]);
    assert!(put.status.success(), "{}", text(&put));
    assert_eq!(fs::metadata(scene.served.join("mine")).unwrap().uid(), 12345);
    assert_fails(&by_bob(&["get", &server.url("closed"), "y"]), "mode does not allow");
    // Who was removed is out, some seconds later.
    let removed = scene.cell.nasd(&["user", "remove", "bob", "--yes"]);
    assert!(removed.status.success(), "{}", text(&removed));
    wait_until("bob is out", || !by_bob(&["get", &server.url("mine"), "y"]).status.success());
    assert_fails(&by_bob(&["get", &server.url("mine"), "y"]), "does not let this member in");
    // Without a certificate there is nothing.
    let mut stranger = nasd();
    let nowhere = scratch();
    stranger.args(["bulk", "get", &server.url("open"), "y", "--cell"]).arg(nowhere.path());
    assert_fails(&finish(stranger), "wants a certificate");
    let insecure = server.url("open").replace("bulk://", "bulk+insecure://");
    assert_fails(&scene.bulk(&["get", &insecure, "y"]), "wants certificates");
    let other = server.url("open").replace("bulk://", "bulk://tower@");
    assert_fails(&scene.bulk(&["get", &other, "y"]), "not for tower");
}

#[test]
fn nothing_leads_out_of_what_is_served() {
    let scene = Scene::new();
    let server = scene.trusting();
    fs::write(scene.ours.join("outside"), b"outside").unwrap();
    symlink("/etc/passwd", scene.served.join("absolute")).unwrap();
    symlink("../ours/outside", scene.served.join("relative")).unwrap();
    symlink("..", scene.served.join("up")).unwrap();
    for name in ["absolute", "relative", "up/ours/outside"] {
        assert_fails(&scene.bulk(&["get", &server.url(name), "x"]), "leads out");
        assert_fails(
            &scene.bulk(&["put", "outside", &server.url(&format!("{name}/x"))]),
            "leads out",
        );
    }
    assert_fails(&scene.bulk(&["get", &server.url("../ours/outside"), "x"]), "leads out");
    // A name that is a link is replaced, not followed out.
    scene.file("new", b"new");
    let put = scene.bulk(&["put", "new", &server.url("relative")]);
    assert!(!put.status.success(), "{}", text(&put));
    assert_eq!(fs::read(scene.ours.join("outside")).unwrap(), b"outside");
}

#[test]
fn anyone_is_nobody_and_read_only_is_that() {
    let scene = Scene::new();
    fs::write(scene.served.join("open"), b"open").unwrap();
    fs::write(scene.served.join("closed"), b"closed").unwrap();
    fs::set_permissions(scene.served.join("closed"), fs::Permissions::from_mode(0o600)).unwrap();
    let server = Served::start(None, &scene.served, &["--anyone", "--listen", "127.0.0.1:0"]);
    let url = |name: &str| format!("bulk+insecure://{}/{name}", server.address);
    let nowhere = scratch();
    let anybody = |arguments: &[&str]| {
        let mut command = nasd();
        command.arg("bulk").args(arguments).arg("--cell").arg(nowhere.path());
        command.current_dir(&scene.ours);
        finish(command)
    };
    let got = anybody(&["get", &url("open"), "x"]);
    assert!(
        got.status.success() && fs::read(scene.ours.join("x")).unwrap() == b"open",
        "{}",
        text(&got)
    );
    assert_fails(&anybody(&["get", &url("closed"), "x"]), "mode does not allow");
    let put = anybody(&["put", "x", &url("made")]);
    assert!(put.status.success(), "{}", text(&put));
    assert_eq!(fs::metadata(scene.served.join("made")).unwrap().uid(), 65534);
    assert_fails(
        &anybody(&["get", &url("open").replace("+insecure", ""), "x"]),
        "bulk+insecure://",
    );
    // Nobody changes what is read-only.
    let server = Served::any(&scene.cell, &scene.served, &["--read-only", "--trust-root"]);
    assert_fails(&scene.bulk(&["put", "x", &server.url("new")]), "read-only");
    assert_fails(&scene.bulk(&["put", "-r", ".", &server.url("new")]), "read-only");
    scene.told(&["get", &server.url("open"), "x"]);
}

#[test]
fn a_capability_is_all_that_is_needed() {
    let scene = Scene::new();
    let bytes = noise(8, (12 << 20) + 5);
    scene.file("f", &bytes);
    scene.told(&["put", "f", "main:/f"]);
    let mint = |more: &[&str]| {
        let minted = scene.cell.nasd(&[&["cap", "mint", "main:/f"], more].concat());
        assert!(minted.status.success(), "{}", text(&minted));
        String::from_utf8(minted.stdout).unwrap().trim().to_owned()
    };
    let url = mint(&["--read", "--write"]);
    let nowhere = scratch();
    let anybody = |arguments: &[&str]| {
        let mut command = nasd();
        command
            .arg("bulk")
            .args(arguments)
            .arg("--cell")
            .arg(nowhere.path())
            .current_dir(&scene.ours);
        finish(command)
    };
    let got = anybody(&["get", "--checksum", &url, "got"]);
    assert!(got.status.success(), "{}", text(&got));
    assert_same(&scene.ours.join("got"), &scene.ours.join("f"));
    for (region, range) in [("0+100001", 0..100_001), ("4099+100001", 4099..104_100)] {
        let part = mint(&["--read", "--region", region]);
        assert!(anybody(&["get", &part, "got"]).status.success());
        assert!(fs::read(scene.ours.join("got")).unwrap() == bytes[range]);
        assert_fails(&anybody(&["put", "f", &part]), "does not allow writing");
    }
    let new = noise(9, bytes.len());
    scene.file("new", &new);
    let put = anybody(&["put", "--checksum", "new", &url]);
    assert!(put.status.success(), "{}", text(&put));
    assert!(fs::read(scene.cell.path("f")).unwrap() == new);
    scene.file("short", b"short");
    assert_fails(&anybody(&["put", "short", &url]), "can't make a file shorter");
}

#[test]
fn what_is_wrong_is_said() {
    let scene = Scene::new();
    let server = scene.trusting();
    scene.file("f", b"f");
    fs::create_dir(scene.served.join("d")).unwrap();
    fs::write(scene.served.join("f"), b"f").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (f, url) = (&*server.url("f"), |name: &str| server.url(name));
    for (arguments, words) in [
        (vec!["get", "bulk://no-such-host.invalid:1/x", "y"], "no-such-host.invalid"),
        (vec!["get", &format!("bulk://{closed}/x"), "y"], "is away"),
        (vec!["get", "bulk://h/x", "y"], "port is missing"),
        (vec!["get", "http://h:1/x", "y"], "http://"),
        (vec!["get", &url("missing"), "y"], "no file of this name"),
        (vec!["get", "main:/missing", "y"], "no file of this name"),
        (vec!["get", "nope:/f", "y"], "no volume"),
        (vec!["get", &url("d"), "y"], "add -r"),
        (vec!["get", &url("d"), "-"], "directory"),
        (vec!["get", f], "where is"),
        (vec!["get", "f", "y"], "of this machine"),
        (vec!["get", f, &url("y")], "copies to this machine"),
        (vec!["get", f, f, "y"], "no directory"),
        (vec!["get", f, "/no/such/place"], "/no/such/place"),
        (vec!["get", f, "-", "--resume"], "--resume"),
        (vec!["get", f, "-", "--json"], "--json"),
        (vec!["get", "nasd://h:1/x#nasdcap1.AAAA", "y"], "no capability"),
        (vec!["put", "missing", &url("x")], "missing"),
        (vec!["put", "f", &url("no/such/place")], "no such directory"),
        (vec!["put", "f", &url("new/")], "no such directory"),
        (vec!["put", "f", "main:/no/such"], "no such directory"),
        (vec!["put", "f", "x"], "of this machine"),
        (vec!["put", f, &url("x")], "not of this machine"),
        (vec!["put", "-", &url("d")], "say which file"),
        (vec!["put", "-", &url("x"), "--resume"], "--resume"),
        (vec!["get", f, "y", "--block", "1000"], "no block"),
        (vec!["get", f, "y", "--streams", "0"], "streams"),
        (vec!["serve", "missing"], "missing"),
        (vec!["serve", "f"], "not a directory"),
        (vec!["serve", ".", "--listen", &server.address], "can't listen"),
    ] {
        assert_fails(&scene.bulk(&arguments), words);
    }
    assert!(!scene.ours.join("y").exists());
    let none = scratch();
    let mut command = nasd();
    command.arg("bulk").arg("serve").arg(&scene.ours).arg("--cell").arg(none.path());
    assert_fails(&finish(command), "--anyone");
}

//! The tables of `specs/callbacks.md` are what the rules do.

use std::fmt::Write;
use std::path::Path;

use nasd_afs::callbacks::{Client, FileRules, NeverGiven, Reading, State, Step};

const R: Client = 1;
const W: Client = 2;

/// The rows of the table that begins with this head.
fn rows(text: &str, head: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| *line != head).skip(2);
    let cells = |line: &str| {
        let line = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).expect(line);
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/callbacks.md");
    std::fs::read_to_string(path).expect("the document is there")
}

fn name(state: State) -> String {
    format!("{state:?}").to_lowercase()
}

/// A file at version 2 in that state, R holding a callback, and W storing.
fn file(state: &str) -> FileRules {
    let (mut rules, steps) = FileRules::found(2);
    assert!(steps.is_empty());
    assert_eq!(rules.may_read(R), Reading::Promised(2));
    for what in ["W may write", "advanced to 3", "W returned 3", "advanced to 4"] {
        if name(rules.state()) == state {
            break;
        }
        happen(&mut rules, what);
    }
    assert_eq!(name(rules.state()), state);
    rules
}

fn who(client: Client) -> &'static str {
    if client == R { "R" } else { "W" }
}

fn told(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let separator = if text.is_empty() { "" } else { "; " };
        text.push_str(separator);
        match step {
            Step::Advance { to } => write!(text, "advance to {to}"),
            Step::MayWrite { client, version } => {
                write!(text, "{} may write {version}", who(*client))
            }
            Step::Break { client, version } => write!(text, "break {} {version}", who(*client)),
            Step::Stored { client, version, is_promised } => {
                let promised = if *is_promised { ", promised" } else { "" };
                write!(text, "{} stored {version}{promised}", who(*client))
            }
            Step::Settled => write!(text, "settled"),
        }
        .expect("writing to a string");
    }
    text
}

/// Has something happen to a file, in the document's words; tells what is done.
fn happen(rules: &mut FileRules, what: &str) -> String {
    let words: Vec<&str> = what.split(' ').collect();
    let client = |word| if word == "R" { R } else { W };
    let version = |word: &str| word.parse().expect(what);
    let steps = match words[..] {
        [name, "may", "read"] => {
            return match rules.may_read(client(name)) {
                Reading::Promised(version) => format!("{name} is promised {version}"),
                Reading::Unpromised(version) => format!("{name} is told {version}"),
                Reading::Wait => format!("{name} waits"),
            };
        }
        [name, "may", "write"] => match rules.may_write(client(name)) {
            steps if steps.is_empty() => return format!("{name} waits"),
            steps => steps,
        },
        [name, "returned", at] => match rules.returned(client(name), version(at)) {
            Ok(steps) => steps,
            Err(NeverGiven) => return "never given".to_owned(),
        },
        [name, "told", at] => rules.told(client(name), version(at)),
        [name, "gone"] => rules.gone(client(name)),
        ["advanced", "to", to] => rules.advanced(version(to)),
        ["expired", at] => rules.expired(version(at)),
        _ => panic!("`{what}` is no event"),
    };
    told(&steps)
}

/// All that can happen.
fn events() -> Vec<String> {
    let mut events = Vec::new();
    for name in ["R", "W"] {
        for what in ["may read", "may write", "gone"] {
            events.push(format!("{name} {what}"));
        }
        for version in 1..=4 {
            events.push(format!("{name} returned {version}"));
            events.push(format!("{name} told {version}"));
        }
    }
    for version in 1..=6 {
        events.push(format!("advanced to {version}"));
        events.push(format!("expired {version}"));
    }
    events
}

#[test]
fn each_row_of_the_table_is_so() {
    let rows = rows(&document(), "| state | what happens | becomes | what is done |");
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let [state, what, becomes, done] = &row[..] else { panic!("{row:?}") };
        let mut rules = file(state);
        assert_eq!((&happen(&mut rules, what), &name(rules.state())), (done, becomes), "{row:?}");
    }
}

#[test]
fn what_is_not_in_the_table_changes_nothing() {
    let document = document();
    let rows = rows(&document, "| state | what happens | becomes | what is done |");
    let mut missing = Vec::new();
    for state in self::rows(&document, "| state | version | what is going on |") {
        for event in events() {
            let is_told = |row: &Vec<String>| row[0] == state[0] && row[1] == event;
            let (mut rules, before) = (file(&state[0]), file(&state[0]));
            let done = happen(&mut rules, &event);
            if (!matches!(&*done, "" | "never given") || rules != before)
                && !rows.iter().any(is_told)
            {
                missing.push(format!(
                    "| {} | {event} | {} | {done} |",
                    state[0],
                    name(rules.state())
                ));
            }
        }
    }
    assert!(missing.is_empty(), "not in the document:\n{}", missing.join("\n"));
}

#[test]
fn versions_are_even_and_odd_as_the_document_says() {
    for row in rows(&document(), "| state | version | what is going on |") {
        let is_odd = nasd_afs::callbacks::is_store(file(&row[0]).version());
        assert_eq!(is_odd, row[1] == "odd", "{row:?}");
    }
}

#[test]
fn a_store_that_others_wait_for_is_not_prolonged() {
    for waits in ["R may read", "R may write"] {
        let mut rules = file("writing");
        assert_eq!(happen(&mut rules, "W may write"), "W may write 3");
        assert_eq!(happen(&mut rules, waits), "R waits");
        assert_eq!(happen(&mut rules, "W may write"), "W waits");
        assert_eq!(happen(&mut rules, "W returned 3"), "advance to 4");
    }
}

#[test]
fn a_store_that_was_too_slow_is_stored_when_it_is_returned() {
    for (state, ends) in [("writing", "expired 3"), ("writing", "W gone")] {
        let mut rules = file(state);
        assert_eq!(happen(&mut rules, ends), "advance to 4");
        assert_eq!(happen(&mut rules, "W returned 3"), "");
        assert_eq!(happen(&mut rules, "advanced to 4"), "break R 3");
        assert_eq!(happen(&mut rules, "R told 3"), "W stored 3, promised; settled");
    }
}

#[test]
fn a_file_that_is_made_with_a_store_is_as_though_that_had_been_asked_for() {
    let mut made = FileRules::made(W, 3);
    let (mut asked, _) = FileRules::found(2);
    for what in ["W may write", "advanced to 3"] {
        happen(&mut asked, what);
    }
    assert!(made == asked && made.is_alone(W) && !made.is_alone(R));
    assert_eq!(happen(&mut made, "R may read"), "R waits");
    assert_eq!(happen(&mut made, "W returned 3"), "advance to 4");
    assert_eq!(happen(&mut made, "advanced to 4"), "W stored 3, promised; settled");
    assert_eq!(FileRules::made(W, 4), FileRules::found(4).0, "an even version is nobody's store");
}

//! `nasd user` and `nasd host`: who may use the cell. A member's certificate counts for as long as
//! the ledger has it; who is removed is out when the command returns.

use super::Outcome;
use super::agree::agree;
use crate::arguments::{HandedArguments, HostCommand, UserCommand};
use crate::output::{self, note, say};
use nasd_cell::session::{COMMAND_DEADLINE, STOPPED_PATIENCE, administrator_within};
use nasd_cell::time::{spoken, utc};
use nasd_cell::{
    Authority, Cell, CellError, CellLock, Guest, Member, MemberKind, Members, Usage, VALIDITY,
    hand_over, identity, invite, now, serial_of,
};
use nasd_types::Timestamp;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Runs a user command.
///
/// # Errors
/// The command's own.
pub fn user(cell: &Cell, command: UserCommand, json: bool) -> Outcome {
    match command {
        UserCommand::Add { name, uid, handed } => {
            let uid = match uid {
                Some(uid) => uid,
                None => uid_of(&name).ok_or_else(|| {
                    format!(
                        "this machine knows no user {name}: add --uid N, the number in the volume"
                    )
                })?,
            };
            add(cell, &name, MemberKind::User, Some(uid), &handed, json)
        }
        UserCommand::Remove { name, yes } => remove(cell, &name, MemberKind::User, yes, json),
        UserCommand::List => list(cell, MemberKind::User, json),
    }
}

/// Runs a host command.
///
/// # Errors
/// The command's own.
pub fn host(cell: &Cell, command: HostCommand, json: bool) -> Outcome {
    match command {
        HostCommand::Add { name, handed } => {
            add(cell, &name, MemberKind::Host, None, &handed, json)
        }
        HostCommand::Remove { name, yes } => remove(cell, &name, MemberKind::Host, yes, json),
        HostCommand::List => list(cell, MemberKind::Host, json),
    }
}

fn add(
    cell: &Cell,
    name: &str,
    kind: MemberKind,
    uid: Option<u32>,
    handed: &HandedArguments,
    json: bool,
) -> Outcome {
    let by_token = handed.token || (kind == MemberKind::Host && handed.out.is_none());
    if by_token {
        return print_token(cell, name, kind, uid, handed, json);
    }
    let authority = Authority::open(cell.directory(), cell.config.cell_id())?;
    let out = match &handed.out {
        Some(out) => out.clone(),
        None => cell.directory().join("members").join(format!("{}-{name}", kind.file())),
    };
    let validity = handed.validity.unwrap_or(VALIDITY);
    let member = Members::update(cell.directory(), |members| {
        members.check_new(name, kind, uid)?;
        if handed.out.is_none() {
            forget_handed(&out)?;
        }
        let files = hand_over(cell, &out, kind.file())?;
        let identity = identity(name, kind, uid);
        let issued = authority.issue_into(&files, &identity, Usage::Client, validity)?;
        let member = Member::new(name, kind, uid, &issued);
        members.add(member.clone());
        Ok(member)
    })?;
    tell_manager(cell, false)?;
    let shown = out.display();
    if json {
        let mut facts = facts(&member);
        facts["directory"] = shown.to_string().into();
        return output::json(&facts);
    }
    say!(
        "{} {name} may use the cell; hand over {shown}, by a way that nobody else sees:",
        kind.file()
    );
    say!("  nasd --cell {shown} ls {}:/", cell.config.volume);
    Ok(())
}

/// Removes what was made for one of that name before, who is a member no more: its key is worthless.
fn forget_handed(out: &Path) -> Result<(), CellError> {
    let gone = |path: &Path, removed: std::io::Result<()>| match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CellError::io("remove", path)(error))
        }
        _ => Ok(()),
    };
    let (tls, config) = (out.join("tls"), out.join("cell.toml"));
    gone(&tls, std::fs::remove_dir_all(&tls))?;
    gone(&config, std::fs::remove_file(&config))
}

fn print_token(
    cell: &Cell,
    name: &str,
    kind: MemberKind,
    uid: Option<u32>,
    handed: &HandedArguments,
    json: bool,
) -> Outcome {
    let manager = match &handed.manager {
        Some(manager) => manager.clone(),
        None => cell.config.manager.address.to_string(),
    };
    if manager.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) {
        return Err("add --manager HOST:PORT: where the manager is for who joins".into());
    }
    let validity = handed.validity.unwrap_or(VALIDITY);
    let token_for = handed.token_for;
    let token = invite(cell, &Guest { name, kind, uid, token_for, validity, manager })?;
    let text = token.to_text();
    if json {
        let facts = serde_json::json!({ "token": *text, "expires": token.expires });
        return output::json(&facts);
    }
    let (what, left) = (kind.file(), spoken(token_for.as_secs()));
    note!("nasd: {what} {name} joins with this command, once, within {left}:");
    say!("nasd join {}", *text);
    Ok(())
}

fn remove(cell: &Cell, name: &str, kind: MemberKind, yes: bool, json: bool) -> Outcome {
    let what = kind.file();
    agree(&format!("{what} {name} would be shut out of the cell at once"), yes)?;
    let removed = Members::update(cell.directory(), |members| {
        refuse_own(cell, members, name, kind)?;
        members.remove(name, kind)
    })?;
    if removed.is_none() {
        if json {
            return output::json(&serde_json::json!({ "removed": name, "drives_away": 0 }));
        }
        say!("{what} {name} is invited no more: its token is worthless");
        return Ok(());
    }
    let late = tell_manager(cell, true)?;
    if json {
        return output::json(&serde_json::json!({ "removed": name, "drives_away": late }));
    }
    say!("{what} {name} is out: its certificate counts no more, nor any capability it was given");
    if late > 0 {
        note!(
            "nasd: {late} of the drives are away; capabilities given out before are good there \
             until they expire, or the drive is back"
        );
    }
    Ok(())
}

/// This machine's own certificate stays: its mount goes by it, and nothing would renew it.
fn refuse_own(
    cell: &Cell,
    members: &mut Members,
    name: &str,
    kind: MemberKind,
) -> Result<(), CellError> {
    let path = cell.certificate(MemberKind::Host.file()).certificate;
    // Where it is missing, nobody goes by it.
    let own = serial_of(&path).ok().and_then(|serial| members.by_serial(&serial).cloned());
    match own {
        Some(own) if own.kind == kind && own.name == name => Err(CellError::Member {
            name: name.to_owned(),
            why: format!(
                "this is the cell's own machine, which goes by {}; it can't be removed",
                path.display()
            ),
        }),
        _ => Ok(()),
    }
}

/// Has the manager read the ledger; tells how many drives did not get their new keys.
///
/// # Errors
/// If the manager can't be told and may run; if capabilities should be revoked, also if it does not.
pub fn tell_manager(cell: &Cell, revoke: bool) -> Result<usize, Box<dyn Error>> {
    let is_up = CellLock::holder(&cell.lock_path()).is_some();
    let patience = if is_up { COMMAND_DEADLINE } else { STOPPED_PATIENCE };
    match administrator_within(cell, patience)?.reload(revoke) {
        Ok(rotation) => Ok(rotation.drives.iter().filter(|drive| !drive.done).count()),
        // A manager that does not run reads the ledger when it starts. Capabilities given out
        // before are a matter of their own.
        Err(error) if !revoke && !is_up && error.is_nobody_there() => {
            tracing::debug!(%error, "the manager does not run");
            Ok(0)
        }
        Err(error) => Err(format!(
            "the ledger is changed, but the manager could not be told: {error}; start it, and give \
             `nasd key rotate --now`"
        )
        .into()),
    }
}

fn list(cell: &Cell, kind: MemberKind, json: bool) -> Outcome {
    let members = Members::load(cell.directory())?;
    let listed: Vec<&Member> = members.all().iter().filter(|member| member.kind == kind).collect();
    if json {
        let listed: Vec<_> = listed.iter().map(|member| facts(member)).collect();
        return output::json(&serde_json::json!({ "members": listed }));
    }
    let is_user = kind == MemberKind::User;
    let uid = if is_user { format!("{:>10} ", "uid") } else { String::new() };
    say!("{:<24} {uid}{:<22} state", "name", "since");
    for member in listed {
        let uid = member.uid.map_or_else(String::new, |uid| format!("{uid:>10} "));
        let since = day(member.issued);
        say!("{:<24} {uid}{since:<22} {}", member.name, state(member));
    }
    for invited in members.invitations().iter().filter(|invited| invited.kind == kind) {
        let until = day(invited.expires);
        say!("{:<24} invited; its token is good until {until}", invited.name);
    }
    Ok(())
}

fn state(member: &Member) -> String {
    let now = now().seconds();
    match member.removed {
        Some(removed) => format!("removed {}", day(removed)),
        None if member.expires <= now => "expired: add it anew".to_owned(),
        None => format!("good for {}", spoken(member.expires - now)),
    }
}

/// Date and minute.
fn day(seconds: u64) -> String {
    let text = utc(Timestamp::from_parts(seconds, 0));
    format!("{} UTC", text.get(..16).unwrap_or_default().replace('T', " "))
}

fn facts(member: &Member) -> serde_json::Value {
    serde_json::json!({
        "name": member.name,
        "kind": member.kind.file(),
        "uid": member.uid,
        "serial": member.serial,
        "issued": member.issued,
        "expires": member.expires,
        "removed": member.removed,
    })
}

/// The number of a user of this machine.
fn uid_of(name: &str) -> Option<u32> {
    let users = std::fs::read_to_string(PathBuf::from("/etc/passwd")).ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

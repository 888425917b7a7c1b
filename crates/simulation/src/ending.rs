//! The end: all is well again, becomes quiet, and is looked at, through the cell and past it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nasd_protocol::drive::ObjectMap;
use nasd_store::StoreError;
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId};

use crate::checker::{Object, REACH};
use crate::client::Client;
use crate::drives::{ComponentDrive, PARTITION};
use crate::run::Cell;
use crate::turns::lock;

/// How long it may take until all copies are the same.
const TO_SETTLE: Duration = Duration::from_secs(240);

/// How often it is looked whether all is quiet, and how often more it has to be: what drives have left of moves is
/// removed every two seconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOKS: u32 = 2;

/// How long one task of this may take.
const TO_LOOK: Duration = Duration::from_secs(60);

/// Where components are.
const COMPONENTS: PartitionId = PartitionId(PARTITION.0 + (1 << 30));

/// Runs something as a new client does, and waits for it.
fn as_client(
    cell: &mut Cell,
    place: usize,
    what: &str,
    work: impl FnOnce(&Client) -> Result<(), String> + Send + 'static,
) {
    let client = cell.client(place);
    as_this_client(cell, &client, what, work);
    cell.time.kill(client.process);
}

/// The same as one that there is, and goes on after it.
pub(crate) fn as_this_client(
    cell: &Cell,
    client: &Arc<Client>,
    what: &str,
    work: impl FnOnce(&Client) -> Result<(), String> + Send + 'static,
) {
    let is_done = Arc::new(AtomicBool::new(false));
    let (own, done, time) = (Arc::clone(client), Arc::clone(&is_done), Arc::clone(&cell.time));
    cell.time.spawn(client.process, move || {
        if let Err(why) = work(&own) {
            time.fail(why);
        }
        done.store(true, Ordering::Relaxed);
    });
    let until = cell.time.now() + TO_LOOK;
    while !is_done.load(Ordering::Relaxed) && cell.time.failure().is_none() {
        cell.time.sleep(Duration::from_millis(50));
        if cell.time.now() > until {
            cell.time.fail(format!("it takes too long to {what}"));
        }
    }
}

pub(crate) fn objects(cell: &Cell) -> Vec<(Object, ObjectId)> {
    lock(&cell.shared).objects.iter().map(|(object, id)| (*object, *id)).collect()
}

/// The objects to which is only appended.
fn logs(cell: &Cell) -> Vec<ObjectId> {
    lock(&cell.shared).log_ids.clone()
}

/// Makes all durable, and waits until all copies are said to be the same.
pub(crate) fn settle(cell: &mut Cell) {
    lock(&cell.shared).may_fail = false;
    let all = objects(cell);
    as_client(cell, 0, "make all durable", move |client| {
        all.iter().for_each(|(object, _)| client.flush(*object));
        Ok(())
    });
    let until = cell.time.now() + TO_SETTLE;
    // What the dead have sent has come by then.
    cell.time.sleep(crate::director::ECHO);
    let (mut why, mut quiet) = (String::new(), 0);
    while cell.time.now() < until && cell.time.failure().is_none() {
        match is_settled(cell) {
            Ok(()) if quiet == LOOKS => {
                lock(&cell.shared).checker.make_even();
                return;
            }
            Ok(()) => quiet += 1,
            Err(what) => (why, quiet) = (what, 0),
        }
        cell.time.sleep(LOOK_EVERY);
    }
    if cell.time.failure().is_none() {
        cell.time.fail(format!("it does not become quiet: {why}"));
    }
}

/// Whether drives lack nothing, and copies are said to be the same.
fn is_settled(cell: &mut Cell) -> Result<(), String> {
    let all = cell.manager.status().ok_or("the striping manager tells nothing")?;
    cell.members.check_shares(&all, cell.plan.habits.copies)?;
    if cell.plan.copies == 1 {
        return Ok(());
    }
    let maps = maps(cell);
    let uneven: Vec<ObjectId> =
        maps.iter().filter(|(_, map)| !map.is_even).map(|(id, _)| *id).collect();
    match uneven.is_empty() {
        true => Ok(()),
        false => Err(format!("copies may differ of {uneven:?}")),
    }
}

/// The maps of all objects, logs too.
pub(crate) fn maps(cell: &mut Cell) -> BTreeMap<ObjectId, ObjectMap> {
    let all: Vec<ObjectId> =
        objects(cell).into_iter().map(|(_, id)| id).chain(logs(cell)).collect();
    let found = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let told = Arc::clone(&found);
    as_client(cell, 0, "ask for maps", move |client| {
        for id in all {
            let map = client.map(id).map_err(|error| format!("no map of {id}: {error}"))?;
            lock(&told).insert(id, map);
        }
        Ok(())
    });
    std::mem::take(&mut *lock(&found))
}

/// Looks at everything.
pub(crate) fn look(cell: &mut Cell) {
    let all = objects(cell);
    // Twice, by others: what the first has seen, the second has to see.
    for place in [0, 1] {
        let (all, logs) = (all.clone(), logs(cell).len());
        let place = place % cell.places.len();
        as_client(cell, place, "read all", move |client| {
            all.iter().for_each(|(object, _)| client.read(*object, ByteRange::new(0, REACH)));
            (0..logs).for_each(|log| client.read_log(log));
            Ok(())
        });
    }
    let shared = Arc::clone(&cell.shared);
    as_client(cell, 0, "ask for lengths", move |client| {
        for (object, id) in all {
            let size = client.size(id).map_err(|error| format!("no length of {id}: {error}"))?;
            lock(&shared).checker.check_size(object, size)?;
        }
        Ok(())
    });
    if cell.time.failure().is_none() {
        let maps = maps(cell);
        if let Err(why) = compare(cell, &maps) {
            cell.time.fail(why);
        }
    }
}

/// All copies are the same, what they hold is what applications were promised, and nothing else is there.
fn compare(cell: &Cell, maps: &BTreeMap<ObjectId, ObjectMap>) -> Result<(), String> {
    let no_map = |id: &ObjectId| format!("{id} has no map");
    for (object, id) in objects(cell) {
        let bytes = compare_copies(cell, id, maps.get(&id).ok_or_else(|| no_map(&id))?)?;
        let mut shared = lock(&cell.shared);
        let read = shared.checker.begin_read(object, 0..REACH);
        shared.checker.end_read(object, read, &bytes)?;
    }
    for (log, id) in logs(cell).into_iter().enumerate() {
        let bytes = compare_copies(cell, id, maps.get(&id).ok_or_else(|| no_map(&id))?)?;
        let shared = lock(&cell.shared);
        shared.logs.end_read(log, &shared.logs.begin_read(log), &bytes)?;
    }
    let removed = lock(&cell.shared).removed.clone();
    // What was tried in vain may leave something behind, which nobody sees, but which takes room.
    let is_calm = cell.plan.faults.is_calm();
    let living = cell.drives.iter().filter(|drive| !cell.members.is_dead(drive.drive));
    for drive in living {
        for object in listed(drive)? {
            if is_calm && removed.contains(&object) {
                return Err(format!("drive {} has {object}, which was removed", drive.drive));
            }
            let map = maps.get(&object);
            let is_here = |map: &ObjectMap| map.components.iter().any(|it| it.drive == drive.drive);
            if map.is_some_and(|map| !is_here(map)) {
                return Err(format!("drive {} has {object}, which is elsewhere", drive.drive));
            }
        }
    }
    Ok(())
}

fn listed(drive: &ComponentDrive) -> Result<Vec<ObjectId>, String> {
    let running = drive.running().ok_or("a drive is away at the end")?;
    match running.store().list(COMPONENTS, ObjectId::FIRST_OBJECT, 100_000) {
        Ok(objects) => Ok(objects),
        Err(StoreError::NoSuchPartition(_)) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// The bytes of a component, with zeros behind its end; none if there is no such component.
fn bytes_at(drive: &ComponentDrive, object: ObjectId) -> Result<Option<Vec<u8>>, String> {
    let running = drive.running().ok_or("a drive is away at the end")?;
    let name = ObjectName { partition: COMPONENTS, object };
    let read = match running.store().read(name, ByteRange::new(0, REACH)) {
        Ok(read) => read,
        Err(StoreError::NoSuchObject(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut bytes: Vec<u8> = read.segments.iter().flat_map(|piece| piece.iter()).copied().collect();
    bytes.resize(REACH as usize, 0);
    Ok(Some(bytes))
}

/// What there is of an object, if all copies are the same.
fn compare_copies(cell: &Cell, id: ObjectId, map: &ObjectMap) -> Result<Vec<u8>, String> {
    if !map.stand_ins.is_empty() {
        return Err(format!("members of {id} move, though it was quiet"));
    }
    let width = map.components.len() as u64;
    let mut components = Vec::new();
    for component in &map.components {
        let drive = cell.drives.iter().find(|drive| drive.drive == component.drive);
        let drive = drive.ok_or("a map names a drive that there is not")?;
        components.push((component.drive, bytes_at(drive, id)?));
    }
    let mut whole = vec![0; REACH as usize];
    for unit in 0..REACH.div_ceil(map.unit) {
        let (from, to) = ((unit * map.unit) as usize, ((unit + 1) * map.unit).min(REACH) as usize);
        let column = if map.is_spread { unit % width } else { 0 };
        let copies =
            (0..u64::from(map.copies)).map(|copy| &components[((column + copy) % width) as usize]);
        let copies: Vec<_> = copies.collect();
        let Some(first) = &copies[0].1 else {
            return Err(format!("drive {} has no component of {id}", copies[0].0));
        };
        whole[from..to].copy_from_slice(&first[from..to]);
        for (drive, copy) in &copies[1..] {
            let Some(copy) = copy else {
                return Err(format!("drive {drive} has no component of {id}"));
            };
            if let Some(at) = (from..to).find(|at| copy[*at] != first[*at]) {
                return Err(format!(
                    "copies of byte {at} of {id} differ: {:#04x} on drive {}, {:#04x} on drive {drive}",
                    first[at], copies[0].0, copy[at],
                ));
            }
        }
    }
    whole.truncate(map_length(cell, id, map)? as usize);
    Ok(whole)
}

/// The length of the longest component.
fn map_length(cell: &Cell, id: ObjectId, map: &ObjectMap) -> Result<u64, String> {
    let name = ObjectName { partition: COMPONENTS, object: id };
    let mut longest = 0;
    for component in &map.components {
        let drive = cell.drives.iter().find(|drive| drive.drive == component.drive);
        let running = drive.and_then(|drive| drive.running()).ok_or("a drive is away")?;
        match running.store().getattr(name) {
            Ok(told) => longest = longest.max(told.logical_size),
            Err(StoreError::NoSuchObject(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(longest.min(REACH))
}

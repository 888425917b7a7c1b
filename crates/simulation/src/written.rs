//! What was written and is durable is soon said to be the same in all copies, so that any may be read and none is
//! compared.

use std::sync::Arc;
use std::time::Duration;

use nasd_types::ByteRange;

use crate::client::Client;
use crate::ending::{as_this_client, maps, objects};
use crate::plan::{Faults, Habits, Plan};
use crate::run::{Cell, WRITING, act};

/// Until a client has told that its writes have ended, and the striping manager has believed that nobody writes any more:
/// less than the time after which it stops to wait for one that does not tell.
const SOON: Duration = Duration::from_secs(5);
const _: () = assert!(SOON.as_secs() < 2 * WRITING.as_secs());

const SOME: ByteRange = ByteRange { offset: 5000, length: 30_000 };

/// One object with two copies, and no faults.
fn make_calm(plan: &mut Plan) {
    (plan.drives, plan.width, plan.copies) = (2, 2, 2);
    (plan.clients, plan.objects) = (2, 1);
    (plan.faults, plan.habits, plan.moves) = (Faults::none(), Habits::default(), false);
    (plan.spares, plan.added) = (0, 0);
}

fn is_even(cell: &mut Cell) -> bool {
    maps(cell).values().all(|map| map.is_even)
}

fn write(cell: &Cell, client: &Arc<Client>) {
    let object = objects(cell)[0].0;
    as_this_client(cell, client, "write", move |client| {
        client.write_range(object, SOME, false);
        client.flush(object);
        Ok(())
    });
}

fn read(cell: &Cell, client: &Arc<Client>) {
    let object = objects(cell)[0].0;
    as_this_client(cell, client, "read", move |client| {
        client.read(object, SOME);
        Ok(())
    });
}

fn in_a_calm_cell(live: impl FnOnce(&mut Cell)) {
    match act(1, make_calm, live) {
        Ok(report) => assert_eq!(report.failed, 0),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn the_end_of_writes_is_told_and_believed() {
    in_a_calm_cell(|cell| {
        let writer = cell.client(0);
        for _again in [false, true] {
            write(cell, &writer);
            assert!(!is_even(cell), "it may go on");
            cell.time.sleep(SOON);
            assert!(is_even(cell), "its end was not told, or not believed");
        }
    });
}

#[test]
fn who_reads_what_he_wrote_does_not_count_as_one_who_writes() {
    in_a_calm_cell(|cell| {
        let writer = cell.client(0);
        write(cell, &writer);
        read(cell, &writer);
        assert!(!is_even(cell), "he may go on");
        cell.time.sleep(SOON);
        for _again in [false, true] {
            read(cell, &writer);
            assert!(is_even(cell));
        }
    });
}

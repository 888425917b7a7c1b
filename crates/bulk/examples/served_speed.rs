//! How fast a directory is served: `cargo run --release -p nasd-bulk --example served_speed -- FILE [BLOCK_KIB [UNDER_WAY
//! [random]]]`.

use std::error::Error;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_bulk_service::client::{BulkFile, Opening};
use nasd_bulk_service::directory::{Directory, DirectoryOptions, Surroundings, Ticket};
use nasd_bulk_service::server::{Sessions, serve};
use nasd_capability::{Chain, SecretKey};
use nasd_client::Authority;
use nasd_protocol::bulk::Options;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{DriveId, Protection, Rights, Timestamp};

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since_epoch.as_secs(), since_epoch.subsec_nanos())
}

/// A step from block to block, far and without order for a medium.
fn coprime(blocks: u64) -> u64 {
    let have_a_divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a > 1
    };
    (blocks * 5 / 13 + 1..).find(|step| !have_a_divisor(*step, blocks)).unwrap_or(1)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("which file?")?);
    let block: usize = arguments.next().map_or(Ok(1536), |text| text.parse())? << 10;
    let under_way: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let is_random = arguments.next().is_some_and(|text| text == "random");
    let folder = path.parent().ok_or("a file in a directory")?;
    let surroundings = Surroundings {
        identity: DriveId(7),
        secret: SecretKey::new([3; 32]),
        clock: Box::new(now),
        random: [1, 2, 3],
    };
    let directory = Directory::new(folder, surroundings, DirectoryOptions::default())?;
    let name = path.file_name().ok_or("a file")?.as_encoded_bytes();
    let expires = now().plus_ns(3600 * Timestamp::SECOND_NS);
    let rights = Rights::READ | Rights::GETATTR;
    let Ticket { capability, sealed, key, place } = directory.ticket(name, rights, expires);
    let issued = IssuedCapability { capability, key, sealed: Some(sealed) };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        let (directory, sessions) = (&directory, &Sessions::default());
        thread::scope(|scope| {
            for stream in listener.incoming().flatten() {
                scope.spawn(move || serve(directory, sessions, &Arc::new(stream), &()));
            }
        });
    });
    let authority = Authority::delegated(&issued, Chain::default(), Protection::NONE);
    let patience = Duration::from_secs(10);
    let options = if is_random { Options::READ | Options::RANDOM } else { Options::READ };
    let opening = Opening {
        address,
        authority,
        place,
        options,
        block: block as u64,
        durable: false,
        patience,
        clock_ahead_ns: 0,
    };
    let begun = Instant::now();
    let file = BulkFile::open(opening)?;
    let (mut queue, mut total) = (file.queue::<Vec<u8>>(), 0_u64);
    let blocks = file.size_at_open().div_ceil(block as u64);
    // Each block once: by steps that have no divisor in common with their number.
    let step = if is_random { coprime(blocks) } else { 1 };
    let mut offsets = (0..blocks).map(|number| number * step % blocks * block as u64);
    let mut spare: Vec<Vec<u8>> = (0..under_way).map(|_| vec![0; block]).collect();
    loop {
        while let Some(buffer) = spare.pop()
            && let Some(offset) = offsets.next()
        {
            queue.read(offset, buffer);
        }
        let Some(done) = queue.wait() else { break };
        total += done.outcome? as u64;
        spare.push(done.buffer);
    }
    let taken = begun.elapsed();
    let seconds = taken.as_secs_f64();
    println!(
        "{total} bytes: {:.0} MB/s, {:.0} blocks a second",
        total as f64 / seconds / 1e6,
        blocks as f64 / seconds
    );
    Ok(())
}

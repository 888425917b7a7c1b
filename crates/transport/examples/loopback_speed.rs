//! How fast the transport alone moves replies over loopback TCP: no digests, no store. Compare with
//! `iperf3 -c 127.0.0.1`.
//!
//! Usage: `loopback_speed [REPLY_KIB] [SECONDS] [BUFFER_KIB]`

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nasd_transport::{
    Answer, Arriving, Attempt, Call, Channel, ClientOptions, Connection, NoPayload, OpaqueAuth,
    OutgoingCall, Receive, ReplyVerifier, ResultShape, Server, ServerOptions, Service,
};

/// Answers every call with the same pages, as a cache would.
struct Pages {
    pages: Vec<Arc<Vec<u8>>>,
}

#[derive(Clone)]
struct Page(Arc<Vec<u8>>, usize);

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl Service for Pages {
    type Payload = NoPayload;
    type Segment = Page;

    fn receive(&self, _call: &Arriving<'_>) -> Receive<NoPayload> {
        Receive::Whole
    }

    fn attempt(&self, call: Call<'_, NoPayload>) -> Attempt<NoPayload, Page> {
        Attempt::Answered(self.execute(call))
    }

    fn execute(&self, call: Call<'_, NoPayload>) -> Answer<Page> {
        let length =
            call.arguments.first_chunk().map_or(0, |word| u32::from_be_bytes(*word)) as usize;
        let mut data = Vec::new();
        let mut left = length;
        for page in self.pages.iter().cycle() {
            if left == 0 {
                break;
            }
            let part = left.min(page.len());
            data.push(Page(Arc::clone(page), part));
            left -= part;
        }
        let results = (length as u32).to_be_bytes().to_vec();
        Answer::Results { verifier: ReplyVerifier::default(), results, data }
    }
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| match arguments.get(index) {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    let length = number(0, 1024)? << 10;
    let duration = Duration::from_secs(number(1, 2)? as u64);
    let buffer = Some(number(2, 0)? << 10).filter(|bytes| *bytes > 0);
    let pages = (0..16384).map(|_| Arc::new(vec![1; 64 << 10])).collect();
    let options = ServerOptions {
        send_buffer_bytes: buffer,
        receive_buffer_bytes: buffer,
        ..ServerOptions::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = Server::start(listener, None, Arc::new(Pages { pages }), options)?;
    let options = ClientOptions {
        send_buffer_bytes: buffer,
        receive_buffer_bytes: buffer,
        ..ClientOptions::default()
    };
    for (connections, threads) in [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4)] {
        let channels = (0..connections)
            .map(|_| Connection::tcp(server.address(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        let speed = measure(&channels, threads, length, duration)?;
        println!(
            "{connections} connections, {threads} threads: {:.2} GB/s, {:.0} calls/s",
            speed / 1e9,
            speed / length as f64
        );
    }
    Ok(())
}

/// Bytes a second.
fn measure(
    channels: &[Connection],
    threads: usize,
    length: usize,
    duration: Duration,
) -> Outcome<f64> {
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let bytes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let channel = &channels[thread % channels.len()];
                let stop = &stop;
                scope.spawn(move || call_until(channel, length, stop))
            })
            .collect();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum::<Outcome<u64>>()
    })?;
    Ok(bytes as f64 / begin.elapsed().as_secs_f64())
}

fn call_until(channel: &Connection, length: usize, stop: &AtomicBool) -> Outcome<u64> {
    let mut into = vec![0; length];
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        let call = OutgoingCall {
            program: 1,
            version: 1,
            procedure: 1,
            credential: OpaqueAuth::NONE,
            verifier: OpaqueAuth::NONE,
            arguments: &(length as u32).to_be_bytes(),
            data: &[],
            results: ResultShape::DataAfter { head_bytes: 4 },
            timeout: Duration::from_secs(10),
        };
        bytes += channel.call(&call, &mut into)?.data_length() as u64;
    }
    Ok(bytes)
}

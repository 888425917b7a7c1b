//! How fast the transport alone moves replies over loopback TCP: no digests, no store. Compare with
//! `iperf3 -c 127.0.0.1`.
//!
//! Usage: `loopback_speed [REPLY_KIB] [SECONDS] [BUFFER_KIB]`

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nasd_transport::{
    Answer, Arriving, Call, CallHead, Channel, ClientOptions, Connection, NoPayload, OpaqueAuth,
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

    fn may_block(&self, _: &CallHead<'_>, _: &[u8], _: Option<&NoPayload>) -> bool {
        false
    }

    fn execute(&self, call: Call<'_, NoPayload>) -> Answer<Page> {
        let length = u32::from_be_bytes(*call.arguments.first_chunk().unwrap()) as usize;
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
        Answer::Results {
            verifier: ReplyVerifier::default(),
            results,
            data,
        }
    }
}

fn main() {
    let number = |index, default| {
        std::env::args()
            .nth(index)
            .map_or(default, |text| text.parse::<usize>().unwrap())
    };
    let length = number(1, 1024) << 10;
    let seconds = number(2, 2);
    let buffer = Some(number(3, 0) << 10).filter(|bytes| *bytes > 0);
    let pages = (0..16384).map(|_| Arc::new(vec![1; 64 << 10])).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ServerOptions {
        send_buffer_bytes: buffer,
        receive_buffer_bytes: buffer,
        ..ServerOptions::default()
    };
    let server = Server::start(listener, None, Arc::new(Pages { pages }), options).unwrap();
    for (connections, threads) in [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4)] {
        let bytes = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let options = ClientOptions {
            send_buffer_bytes: buffer,
            receive_buffer_bytes: buffer,
            ..ClientOptions::default()
        };
        let channels: Vec<_> = (0..connections)
            .map(|_| Connection::tcp(server.address(), &options).unwrap())
            .collect();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let channel = &channels[thread % connections];
                let (bytes, stop) = (&bytes, &stop);
                scope.spawn(move || {
                    let mut into = vec![0; length];
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
                        let reply = channel.call(&call, &mut into).unwrap();
                        bytes.fetch_add(reply.data_length() as u64, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_secs(seconds as u64));
            stop.store(true, Ordering::Relaxed);
        });
        let elapsed = start.elapsed().as_secs_f64();
        let bytes = bytes.into_inner() as f64;
        println!(
            "{connections} connections, {threads} threads: {:.2} GB/s, {:.0} calls/s",
            bytes / elapsed / 1e9,
            bytes / length as f64 / elapsed
        );
    }
}

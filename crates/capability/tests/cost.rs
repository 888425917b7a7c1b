//! What a request costs here. Not a check: run with `--release --ignored --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use nasd_capability::{
    Capability, DigestKeys, Narrowing, Nonce, NonceSource, NonceWindow, SealingKeys, SecretKey,
    Suite, Way, WindowOptions, capability_key, effective, narrowed_key,
};
use nasd_types::{ByteRange, Timestamp};

fn measure(name: &str, mut work: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let count = 20_000;
        let start = Instant::now();
        for _ in 0..count {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    println!("{name:32} {best:10.1} ns");
}

#[test]
#[ignore = "measures, does not check"]
fn cost() {
    let key = SecretKey::new([7; 32]);
    let capability = Capability::from_bytes(&[5; 64]);
    measure("capability_key", || {
        black_box(capability_key(&key, black_box(&capability), 3));
    });
    let root = Capability { region: ByteRange::ALL, ..capability };
    for links in [1, 8] {
        let chain = vec![Narrowing::of(&root); links];
        measure(&format!("a chain of {links}: what it allows"), || {
            let _ = black_box(effective(black_box(&root), &chain));
        });
        measure(&format!("a chain of {links}: its key"), || {
            black_box(narrowed_key(black_box(&key).clone(), &chain));
        });
    }
    let sealing = SealingKeys::new(&key);
    let sealed = sealing.seal(&capability);
    measure("a sealed capability, opened", || {
        black_box(sealing.open(black_box(&sealed)));
    });
    let nonce = Nonce { timestamp: Timestamp(1 << 60), unique: 7 };
    let covered: [&[u8]; 3] = [&[1; 12], &[2; 84], &[3; 60]];
    let page = vec![5; 64 << 10];
    for suite in Suite::available() {
        measure(&format!("{suite:?} DigestKeys::new"), || {
            black_box(DigestKeys::new(black_box(&key), *suite));
        });
        let keys = DigestKeys::new(&key, *suite);
        measure(&format!("{suite:?} arguments"), || {
            black_box(keys.request(black_box(&nonce), &covered, None));
        });
        measure(&format!("{suite:?} 64 KiB of data"), || {
            black_box(keys.data(Way::Request, black_box(&nonce), &[&page]));
        });
    }
    let start = Timestamp(1_000 * Timestamp::SECOND_NS);
    let now = start.plus_ns(5 * Timestamp::SECOND_NS);
    let window = NonceWindow::new(WindowOptions::default(), start, 1);
    let sources: Vec<_> = (0..2_000).map(|seed| NonceSource::new(seed << 32)).collect();
    for senders in [1, 2_000] {
        let mut turn = 0;
        measure(&format!("window check, record, {senders} senders"), || {
            turn = (turn + 1) % senders;
            let nonce = sources[turn].draw(now);
            let passed = window.check(now, &nonce).and_then(|()| window.record(now, &nonce));
            black_box(passed).expect("fresh");
        });
    }
    let mut unique = 0_u64;
    let window = NonceWindow::new(WindowOptions::default(), start, 1);
    measure("window, every sender new", || {
        unique = unique.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let nonce = Nonce { timestamp: now.plus_ns(unique >> 40), unique };
        let _ = black_box(window.check(now, &nonce).and_then(|()| window.record(now, &nonce)));
    });
}

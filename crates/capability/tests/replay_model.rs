//! The replay window against a model that remembers everything.

use std::collections::HashSet;

use nasd_capability::{Nonce, NonceSource, NonceWindow, WindowOptions};
use nasd_types::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

const START: Timestamp = Timestamp(1_000 * Timestamp::SECOND_NS);
const OPTIONS: WindowOptions = WindowOptions { past_ns: 500, ahead_ns: 100, senders: 8 };

/// One request, by small numbers so that senders, sequences and instants meet often.
#[derive(Clone, Debug)]
enum Step {
    /// The clock moves, perhaps backwards, as somebody sets it.
    Clock(i64),
    /// A request stamped so far from the clock, of this sender and sequence.
    Request(i64, u64, u32),
    /// The request made that many requests ago is sent once more.
    Replay(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let sequence = prop_oneof![0..40_u32, 0..5_000_u32, 0..=0xff_ffff_u32];
    prop_oneof![
        1 => (-300..400_i64).prop_map(Step::Clock),
        6 => (-600..150_i64, 0..20_u64, sequence)
            .prop_map(|(skew, sender, sequence)| Step::Request(skew, sender, sequence)),
        3 => (1..200_usize).prop_map(Step::Replay),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_passes_twice(steps in vec(steps(), 1..800), seed in any::<u64>()) {
        let window = NonceWindow::new(OPTIONS, START, seed);
        let mut now = START;
        let mut sent: Vec<Nonce> = Vec::new();
        let mut passed: HashSet<Nonce> = HashSet::new();
        for step in steps {
            let nonce = match step {
                Step::Clock(by) => {
                    now = Timestamp(now.0.wrapping_add_signed(by));
                    continue;
                }
                Step::Request(skew, sender, sequence) => Nonce {
                    timestamp: Timestamp(now.0.wrapping_add_signed(skew)),
                    unique: sender << 24 | u64::from(sequence),
                },
                Step::Replay(ago) => match sent.len().checked_sub(ago) {
                    Some(index) => sent[index],
                    None => continue,
                },
            };
            sent.push(nonce);
            let checked = window.check(now, &nonce);
            // Recording without a check, too, must never let a replay pass.
            let recorded = window.record(now, &nonce);
            prop_assert!(checked.is_err() || recorded.is_ok(), "nothing came between");
            if recorded.is_ok() {
                prop_assert!(passed.insert(nonce), "{:?} passed twice", nonce);
                prop_assert!(nonce.timestamp > START.plus_ns(OPTIONS.ahead_ns));
            }
        }
    }

    #[test]
    fn the_clock_of_a_refusal_passes(steps in vec(steps(), 1..400), seed in any::<u64>()) {
        let window = NonceWindow::new(OPTIONS, START, seed);
        let mut now = START.plus_ns(OPTIONS.ahead_ns + 1);
        let source = NonceSource::new(seed ^ 5);
        for step in steps {
            let Step::Request(skew, sender, sequence) = step else {
                now = now.plus_ns(1);
                continue;
            };
            let timestamp = Timestamp(now.0.wrapping_add_signed(skew));
            let nonce = Nonce { timestamp, unique: sender << 24 | u64::from(sequence) };
            if window.check(now, &nonce).is_ok() {
                prop_assert!(window.record(now, &nonce).is_ok());
                continue;
            }
            let retry = source.draw(window.clock_for(now, &source.draw(now)));
            if retry.timestamp <= now.plus_ns(OPTIONS.ahead_ns) {
                prop_assert_eq!(window.check(now, &retry), Ok(()));
            }
        }
    }
}

#[test]
fn a_restart_refuses_everything_that_passed_before_it() {
    let first = NonceWindow::new(OPTIONS, START, 1);
    let source = NonceSource::new(7);
    let mut now = START;
    let mut passed = Vec::new();
    for step in 0..2_000 {
        now = now.plus_ns(3);
        let nonce = source.draw(now.plus_ns(step % (OPTIONS.ahead_ns + 1)));
        if first.record(now, &nonce).is_ok() {
            passed.push(nonce);
        }
    }
    assert!(passed.len() > 1_900);
    let second = NonceWindow::new(OPTIONS, now, 2);
    for later in [0, 1, OPTIONS.ahead_ns, OPTIONS.past_ns] {
        for nonce in &passed {
            assert!(second.check(now.plus_ns(later), nonce).is_err());
        }
    }
}

/// Honest clients with many requests under way see no refusal, even in a table that is full.
#[test]
fn honest_clients_are_not_refused() {
    let options = WindowOptions::default();
    let window = NonceWindow::new(options, START, 3);
    let mut now = START.plus_ns(2 * Timestamp::SECOND_NS);
    let sources: Vec<_> = (0..2_000).map(|client| NonceSource::new(client * 0x1234_5677)).collect();
    let mut under_way: Vec<Nonce> = Vec::new();
    let mut random = 1_u64;
    let mut refused = 0;
    for _ in 0..400_000 {
        // A million requests a second, 1000 of them under way at a time, arriving in any order.
        now = now.plus_ns(1_000);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let client = (random >> 33) as usize % sources.len();
        under_way.push(sources[client].draw(now));
        if under_way.len() == 1_000 {
            let nonce = under_way.swap_remove((random >> 20) as usize % 1_000);
            if window.check(now, &nonce).and_then(|()| window.record(now, &nonce)).is_err() {
                refused += 1;
            }
        }
    }
    assert!(refused < 100, "{refused} of 400 000 honest requests were refused");
}

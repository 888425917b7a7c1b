//! The bookkeeping of unflushed bytes, beside a plain map from place to byte.

use std::collections::BTreeMap;

use super::Random;
use crate::buffers::SpareBuffers;
use crate::pending::{Answer, CHUNK_BYTES, Outgoing, Pending};
use nasd_types::ByteRange;

/// Everything a drive could do, in one thread: it has memory, and a medium that survives it.
struct World {
    pending: Pending<u8>,
    /// What was written: place to (byte, writer).
    written: BTreeMap<u64, u8>,
    memory: BTreeMap<u64, u8>,
    medium: BTreeMap<u64, u8>,
    instance: u64,
    /// With the instance that was known when it was sent.
    flying: Vec<(Outgoing<u8>, Option<u64>)>,
    random: Random,
}

impl World {
    fn range(&mut self) -> ByteRange {
        // Close to a chunk boundary, so that chunks are split and joined a lot.
        let offset = CHUNK_BYTES - 60 + self.random.below(120);
        ByteRange::new(offset, 1 + self.random.below(40))
    }

    fn write(&mut self) {
        let range = self.range();
        if self.pending.is_in_flight(range) {
            return;
        }
        let value = self.random.below(256) as u8;
        let data: Vec<u8> = (0..range.length).map(|at| value.wrapping_add(at as u8)).collect();
        let writer = self.random.below(2) as u8;
        self.pending.put(range.offset, &data, &writer);
        self.written.extend((range.offset..).zip(data));
    }

    fn send(&mut self) {
        let taken = self.pending.take_queued();
        self.flying.extend(taken.map(|outgoing| (outgoing, Some(self.instance))));
    }

    fn answer(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let index = self.random.below(self.flying.len() as u64) as usize;
        let (sent, restarts) = self.flying.swap_remove(index);
        let places = sent.piece.range().offset..;
        self.memory.extend(places.zip(sent.piece.data().iter().copied()));
        let durable = self.random.below(4) == 0;
        if durable {
            self.medium = self.memory.clone();
        }
        let answer = Answer { instance: self.instance, restarts, durable };
        self.pending.acknowledge(&sent, answer);
        self.pending.requeue_other_instances(self.instance);
    }

    fn flush(&mut self) {
        let mark = self.pending.acknowledged();
        // Answers may come between the flush and its answer.
        self.medium = self.memory.clone();
        let instance = self.instance;
        for _ in 0..self.random.below(3) {
            self.answer();
        }
        if self.random.below(8) == 0 {
            self.crash();
            self.answer();
        }
        self.pending.release(instance, mark);
        self.pending.requeue_other_instances(instance);
    }

    fn crash(&mut self) {
        self.instance += 1;
        self.memory = self.medium.clone();
        self.pending.hide_acknowledged(Some(self.instance));
    }

    fn check(&self) {
        let all = ByteRange::new(0, u64::MAX);
        let pieces = self.pending.overlay(all);
        let mut seen = self.memory.clone();
        let mut end = 0;
        let mut held = 0;
        for piece in &pieces {
            assert!(piece.range().offset >= end, "chunks overlap");
            end = piece.range().end();
            held += piece.range().length;
            let places = piece.range().offset..;
            seen.extend(places.zip(piece.data().iter().copied()));
        }
        let held_bytes = self.pending.held_bytes();
        assert!(held == held_bytes || self.pending.hides_any() && held < held_bytes);
        assert_eq!(pieces.is_empty(), !self.pending.shows_any());
        assert_eq!(end, self.pending.end());
        assert!(seen == self.written, "a reader sees what was written");
    }
}

#[test]
fn nothing_written_is_lost_by_any_order_of_events() {
    for seed in 500..560 {
        let mut world = World {
            pending: Pending::new(SpareBuffers::default()),
            written: BTreeMap::new(),
            memory: BTreeMap::new(),
            medium: BTreeMap::new(),
            instance: 1,
            flying: Vec::new(),
            random: Random::new(seed),
        };
        for _ in 0..400 {
            match world.random.below(17) {
                16 => world.pending.hide_acknowledged(Some(world.instance)),
                0..7 => world.write(),
                7 => drop(world.pending.seal()),
                8..11 => world.send(),
                11..14 => world.answer(),
                14 => world.flush(),
                _ => world.crash(),
            }
            world.check();
        }
        // In the end everything becomes durable.
        while !world.pending.is_empty() {
            world.pending.seal();
            world.send();
            world.answer();
            world.flush();
        }
        assert!(world.medium == world.written);
        assert_eq!(world.pending.held_bytes(), 0);
        assert_eq!(world.pending.unsent() + world.pending.in_flight(), 0);
    }
}

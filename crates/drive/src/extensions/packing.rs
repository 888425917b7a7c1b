//! Answers that are packed where their callers wish so, and told how long they took.

use std::time::Instant;

use nasd_protocol::packing::{Took, Wish, pack, put_trailer};

use super::ExtensionCall;

/// Bytes that packing takes besides the answer's.
pub(super) const MEMORY_BYTES: usize = 300 << 10;

/// Bytes that an answer may have before its trailer.
pub(super) fn most(call: &ExtensionCall, wish: Option<Wish>) -> usize {
    match wish {
        Some(_) => call.most.saturating_sub(nasd_protocol::packing::TRAILER_BYTES),
        None => call.most,
    }
}

/// What is sent of an answer.
pub(super) fn finish(call: &ExtensionCall, wish: Option<Wish>, mut data: Vec<u8>) -> Vec<u8> {
    let Some(wish) = wish else {
        return data;
    };
    let begun = Instant::now();
    let is_packed = wish == Wish::Packed && pack(&mut data);
    let packing = begun.elapsed();
    let all = call.since.map_or(packing, |since| since.elapsed());
    put_trailer(&mut data, is_packed, Took { all, packing });
    data
}

//! The `nasd` command.
fn main() {}

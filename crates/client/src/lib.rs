//! Typed calls to a drive and to a file manager over any channel, with reconnect and retry.

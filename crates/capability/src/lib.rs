//! Keys, capabilities, digests and the replay window; time and randomness are arguments.

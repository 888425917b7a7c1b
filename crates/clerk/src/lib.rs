//! What applications use: caches capabilities, moves data straight to drives, retries, reads ahead.

//! The typed procedures of the drive and file manager programs, as in specs/*.x.

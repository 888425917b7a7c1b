//! The file manager: names, policy and capabilities over drives.

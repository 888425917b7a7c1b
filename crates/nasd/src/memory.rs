//! How much memory this machine has, and what of it drives use for their caches when nobody says.

/// Caches of all drives of one machine together, as a share of its memory. The rest is for programs;
/// the kernel caches nothing of a drive's device, which is opened past its page cache.
const SHARE: u64 = 4;

/// Smallest cache that is chosen for a drive, in bytes.
const SMALLEST: u64 = 64 << 20;

/// Largest cache that is chosen for a drive, in bytes; more only if somebody says so.
const LARGEST: u64 = 64 << 30;

/// The cache of each of `drives` drives on this machine, in bytes.
pub fn default_cache_bytes(drives: u64) -> u64 {
    cache_bytes(memory_bytes(), drives)
}

fn cache_bytes(memory: u64, drives: u64) -> u64 {
    let each = memory / SHARE / drives.max(1);
    // Whole mebibytes are easier to read.
    (each >> 20 << 20).clamp(SMALLEST, LARGEST)
}

/// The memory that this process may use, in bytes: the machine's, or its control group's if less.
fn memory_bytes() -> u64 {
    // SAFETY: no memory is involved.
    let (pages, page) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine =
        u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page).unwrap_or(0));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    machine.min(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_share_a_quarter() {
        assert_eq!(cache_bytes(16 << 30, 1), 4 << 30);
        assert_eq!(cache_bytes(16 << 30, 4), 1 << 30);
        assert_eq!(cache_bytes(1 << 30, 1000), SMALLEST);
        assert_eq!(cache_bytes(1 << 50, 0), LARGEST);
        assert!(default_cache_bytes(1) >= SMALLEST);
    }
}

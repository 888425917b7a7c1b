//! The rows of this version, each with its workload and its limit.

mod aggregate;
mod andrew;
mod bulk;
mod bulk_service;
mod crowded;
mod epoch;
mod filter;
mod links;
mod lost;
mod lost_link;
mod objects;
mod one_core;
mod packed;
mod pairs;
mod prefetch;
mod protection;
mod scale;
mod scheduled;
mod small;
mod striped;

pub use objects::make_objects;

use nasd_types::Protection;

use crate::workload::Bench;
use crate::{BenchError, Row, Target};

type Measure = fn(&Bench<'_>, &str) -> Result<Row, BenchError>;

/// Name and workload of each row.
const ROWS: &[(&str, Measure)] = &[
    ("flushed-write-1m", bulk::flushed_write),
    ("cached-read-1m", bulk::cached_read_1m),
    ("cached-read-512k", bulk::cached_read_512k),
    ("cached-read-512k-x8", bulk::cached_read_512k_x8),
    ("integrity-args", protection::integrity_args),
    ("integrity-data", protection::integrity_data),
    ("privacy-data", protection::privacy_data),
    ("authorize-cached", protection::authorize_cached),
    ("authorize-uncached", protection::authorize_uncached),
    ("small-read-4k-pipelined", small::pipelined),
    ("small-read-latency", small::latency),
    ("cold-read-1m", bulk::cold_read),
    ("cold-read-4k-qd32", small::cold_scattered),
    ("write-flush-4k", small::write_flush),
    ("write-durable-4k", small::write_durable),
    ("write-flush-4k-x16", small::write_flush_x16),
    ("create", objects::create),
    ("remove", objects::remove),
    ("fastcopy-1g", objects::fastcopy),
    ("honest-beside-hostile", crowded::honest),
    ("stripe-read-4", striped::read),
    ("stripe-write-4", striped::write),
    ("mirror-write", striped::mirror_write),
    ("open-2m", objects::open_many),
    ("links-read-4", links::measure),
    ("links-write-4", links::measure),
    ("links-mirror-read-4", links::measure),
    ("links-mirror-write-4", links::measure),
    ("links-rebuild", lost_link::rebuild),
    ("links-rebuild-one", lost_link::rebuild),
    ("filter-select-1", filter::measure),
    ("filter-select-10", filter::measure),
    ("filter-select-25", filter::measure),
    ("filter-select-50", filter::measure),
    ("filter-select-75", filter::measure),
    ("filter-select-100", filter::measure),
    ("filter-select-1-small", filter::measure),
    ("filter-select-10-small", filter::measure),
    ("filter-select-25-small", filter::measure),
    ("filter-select-50-small", filter::measure),
    ("filter-select-75-small", filter::measure),
    ("filter-select-100-small", filter::measure),
    ("filter-select-1-large", filter::measure),
    ("filter-select-10-large", filter::measure),
    ("filter-select-25-large", filter::measure),
    ("filter-select-50-large", filter::measure),
    ("filter-select-75-large", filter::measure),
    ("filter-select-100-large", filter::measure),
    ("filter-select-compressed", packed::measure),
    ("filter-local-1", filter::measure),
    ("filter-local-10", filter::measure),
    ("filter-local-25", filter::measure),
    ("filter-local-50", filter::measure),
    ("filter-local-75", filter::measure),
    ("filter-local-100", filter::measure),
    ("filter-local-1-small", filter::measure),
    ("filter-local-10-small", filter::measure),
    ("filter-local-25-small", filter::measure),
    ("filter-local-50-small", filter::measure),
    ("filter-local-75-small", filter::measure),
    ("filter-local-100-small", filter::measure),
    ("filter-local-1-large", filter::measure),
    ("filter-local-10-large", filter::measure),
    ("filter-local-25-large", filter::measure),
    ("filter-local-50-large", filter::measure),
    ("filter-local-75-large", filter::measure),
    ("filter-local-100-large", filter::measure),
    ("lost-drive-stall", lost::stall),
    ("rebuild", lost::speed),
    ("rebuild-written", lost::written),
    ("rebuild-foreground", lost::foreground),
    ("prefetch-slices", prefetch::slices),
    ("prefetch-slices-disk", prefetch::slices_of_a_disk),
    ("prefetch-slices-small-cache", prefetch::slices_of_a_small_cache),
    ("prefetch-epoch", epoch::by_one),
    ("prefetch-epoch-workers", epoch::by_workers),
    ("prefetch-epoch-striped", epoch::striped),
    ("prefetch-wrong", prefetch::wrong),
    ("prefetch-wrong-disk", prefetch::wrong_of_a_disk),
    ("prefetch-half-wrong-disk", prefetch::half_wrong_of_a_disk),
    ("filter-fixed-scan", one_core::fixed),
    ("filter-csv-scan", one_core::delimited),
    ("filter-grep", one_core::grep),
    ("filter-beside-reads", scheduled::beside_reads),
    ("filter-short-job", scheduled::short_job),
    ("aggregate-link", aggregate::link),
    ("aggregate-drives", aggregate::drives),
    ("bulk-read", bulk_service::cold_read),
    ("bulk-read-x2", bulk_service::several),
    ("bulk-read-x3", bulk_service::several),
    ("bulk-write", bulk_service::durable_write),
    ("bulk-3mb", bulk_service::by_size),
    ("bulk-6mb", bulk_service::by_size),
    ("bulk-12mb", bulk_service::by_size),
    ("bulk-25mb", bulk_service::by_size),
    ("bulk-1000mb", bulk_service::by_size),
    ("bulk-directory-read", bulk_service::cold_read),
    ("bulk-directory-read-x2", bulk_service::several),
    ("bulk-directory-read-x3", bulk_service::several),
    ("bulk-directory-write", bulk_service::durable_write),
    ("bulk-directory-3mb", bulk_service::by_size),
    ("bulk-directory-6mb", bulk_service::by_size),
    ("bulk-directory-12mb", bulk_service::by_size),
    ("bulk-directory-25mb", bulk_service::by_size),
    ("bulk-directory-1000mb", bulk_service::by_size),
    ("bulk-directory-play", bulk_service::play),
    ("bulk-preload", bulk_service::read_by_program),
    ("bulk-play", bulk_service::play),
    ("scale-read-1", scale::measure),
    ("scale-read-2", scale::measure),
    ("scale-read-4", scale::measure),
    ("scale-read-8", scale::measure),
    ("scale-forwarded-read-1", scale::measure),
    ("scale-forwarded-read-2", scale::measure),
    ("scale-forwarded-read-4", scale::measure),
    ("scale-forwarded-read-8", scale::measure),
    ("scale-search-1", scale::measure),
    ("scale-search-2", scale::measure),
    ("scale-search-4", scale::measure),
    ("scale-search-8", scale::measure),
    ("scale-forwarded-search-1", scale::measure),
    ("scale-forwarded-search-2", scale::measure),
    ("scale-forwarded-search-4", scale::measure),
    ("scale-forwarded-search-8", scale::measure),
    ("many-clients-1", scale::measure),
    ("many-clients-2", scale::measure),
    ("many-clients-4", scale::measure),
    ("many-clients-6", scale::measure),
    ("many-clients-8", scale::measure),
    ("many-clients-10", scale::measure),
    ("andrew-nfs", andrew::measure),
    ("andrew-afs", andrew::measure),
    ("andrew-afs-warm", andrew::warm),
    ("afs-scale-1", pairs::measure),
    ("afs-scale-2", pairs::measure),
    ("afs-scale-4", pairs::measure),
    ("afs-scale-8", pairs::measure),
    ("afs-scale-forwarded-1", pairs::measure),
    ("afs-scale-forwarded-2", pairs::measure),
    ("afs-scale-forwarded-4", pairs::measure),
    ("afs-scale-forwarded-8", pairs::measure),
    ("afs-agrep-1", pairs::measure),
    ("afs-agrep-2", pairs::measure),
    ("afs-agrep-4", pairs::measure),
    ("afs-agrep-8", pairs::measure),
    ("afs-agrep-forwarded-1", pairs::measure),
    ("afs-agrep-forwarded-2", pairs::measure),
    ("afs-agrep-forwarded-4", pairs::measure),
    ("afs-agrep-forwarded-8", pairs::measure),
    ("afs-link-1", pairs::measure),
    ("afs-link-2", pairs::measure),
    ("afs-link-4", pairs::measure),
    ("afs-link-8", pairs::measure),
    ("afs-link-forwarded-1", pairs::measure),
    ("afs-link-forwarded-2", pairs::measure),
    ("afs-link-forwarded-4", pairs::measure),
    ("afs-link-forwarded-8", pairs::measure),
];

/// Rows that take a minute and 12 GiB, or need a mount or hosts of their own and with them root, are measured only when
/// they are named.
fn is_when_named(name: &str) -> bool {
    [
        "open-2m",
        "afs-",
        "aggregate-",
        "andrew-",
        "bulk-",
        "filter-select",
        "filter-local",
        "links-",
        "lost-",
        "prefetch-",
        "rebuild",
        "scale-",
        "many-clients-",
    ]
    .iter()
    .any(|begin| name.starts_with(begin))
}

/// The rows of this version, in the order in which they are measured.
pub const ROW_NAMES: [&str; ROWS.len()] = {
    let mut names = [""; ROWS.len()];
    let mut index = 0;
    while index < ROWS.len() {
        names[index] = ROWS[index].0;
        index += 1;
    }
    names
};

/// Requests in flight when the object is written.
const WRITE_DEPTH: usize = 8;

/// Measures the named rows, or all but those that take long, giving each to `report` when it is done.
///
/// # Errors
///
/// An unknown name, or a failed request. A missing program is told in its row.
pub fn measure(
    target: &Target,
    names: &[String],
    mut report: impl FnMut(&Row),
) -> Result<Vec<Row>, BenchError> {
    let unknown = names.iter().find(|name| !ROW_NAMES.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(BenchError::NoSuchRow { name: name.clone(), known: ROW_NAMES.join(" ") });
    }
    let bench = Bench::new(target);
    // The object exists in full, and in the cache, whichever rows are asked for.
    bench.write_object(Protection::INTEGRITY_ARGS, WRITE_DEPTH)?;
    let mut rows = Vec::new();
    for (name, row) in ROWS {
        let is_named = names.iter().any(|wanted| wanted == name);
        if is_named || (names.is_empty() && !is_when_named(name)) {
            (target.peak_memory)();
            let mut row = row(&bench, name)?;
            // Files of a directory are served by a process of their own.
            row.memory =
                (target.peak_memory)().filter(|_| !name.starts_with(bulk_service::OF_A_DIRECTORY));
            report(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

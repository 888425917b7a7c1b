//! What the drive counts, as text for Prometheus (exposition format 0.0.4).
//!
//! The numbers are read one after the other while requests go on, so that together they are not a
//! snapshot.

use nasd_metrics::{Labels, Page};
use nasd_protocol::drive::Procedure;
use nasd_store::PartitionSpace;

use crate::Drive;
use crate::counters::Outcome;

fn name_of(procedure: Option<Procedure>) -> String {
    match procedure {
        Some(procedure) => format!("{procedure:?}").to_lowercase(),
        None => "unknown".to_owned(),
    }
}

impl Drive {
    /// What the drive has counted since its start, and what it holds now, as text for Prometheus.
    pub fn metrics(&self) -> String {
        let mut page = Page::default();
        self.put_identity(&mut page);
        self.put_requests(&mut page);
        self.put_times(&mut page);
        self.put_data(&mut page);
        self.put_store(&mut page);
        self.put_scrub(&mut page);
        self.put_extensions(&mut page);
        self.put_space(&mut page);
        self.put_partitions(&mut page);
        page.into_text()
    }

    fn put_identity(&self, page: &mut Page) {
        let name = "nasd_drive_info";
        page.family(name, "gauge", "Who the drive is.");
        let options = &self.options;
        let drive = format!("{:016x}", self.identity.drive.0);
        let labels: Labels<'_> = &[
            ("drive", &drive),
            ("cell", &self.identity.cell),
            ("instance", &self.instance),
            ("vendor", &options.vendor),
            ("model", &options.model),
            ("revision", &options.revision),
        ];
        page.sample(name, labels, 1);
        let seconds = |time: nasd_types::Timestamp| time.0 as f64 / 1e9;
        let name = "nasd_drive_start_time_seconds";
        page.single(name, "gauge", "When the drive was started.", seconds(self.started));
        let name = "nasd_drive_clock_seconds";
        page.single(name, "gauge", "The drive's clock.", seconds(self.environment.now()));
        let name = "nasd_drive_read_only";
        let help = "1 if the drive has stopped writing after a failed write.";
        page.single(name, "gauge", help, u8::from(self.store.read_only().is_some()));
    }

    fn put_requests(&self, page: &mut Page) {
        let name = "nasd_requests_total";
        page.family(
            name,
            "counter",
            "Requests answered, by operation and by whose fault it failed.",
        );
        for (procedure, counted) in self.counters.procedures() {
            let operation = name_of(procedure);
            for outcome in Outcome::ALL {
                let count = counted.outcome(outcome);
                // Success is there from the start; what never happened need not be.
                if count > 0 || (outcome == Outcome::Done && procedure.is_some()) {
                    let labels: Labels<'_> =
                        &[("operation", &operation), ("status", &outcome.name())];
                    page.sample(name, labels, count);
                }
            }
        }
        let name = "nasd_refusals_total";
        page.family(name, "counter", "Requests that were not authorized, by reason.");
        for (refusal, count) in self.counters.reasons() {
            let reason = format!("{refusal:?}").to_lowercase();
            page.sample(name, &[("reason", &reason)], count);
        }
    }

    fn put_times(&self, page: &mut Page) {
        let name = "nasd_request_seconds";
        page.family(name, "histogram", "Time to execute a request, of every eighth.");
        for (procedure, counted) in self.counters.procedures() {
            let operation = name_of(procedure);
            page.histogram(name, &[("operation", &operation)], counted.times());
        }
    }

    fn put_data(&self, page: &mut Page) {
        let name = "nasd_data_bytes_total";
        page.family(name, "counter", "Data bytes of reads and writes, by who asked.");
        for (direction, moved) in [("read", &self.counters.read), ("write", &self.counters.written)]
        {
            for (holder, bytes) in [("capability", moved.by_capability()), ("key", moved.by_key())]
            {
                page.sample(name, &[("direction", &direction), ("holder", &holder)], bytes);
            }
        }
    }

    fn put_store(&self, page: &mut Page) {
        let counted = self.store.statistics();
        let counters = [
            ("cache_hit_bytes", "Bytes of reads that the cache had.", counted.cache_hit_bytes),
            ("cache_miss_bytes", "Bytes read from the medium for reads.", counted.cache_miss_bytes),
            ("written_bytes", "Data bytes written to the medium.", counted.data_written_bytes),
            ("log_bytes", "Bytes written to the log.", counted.log_bytes),
            ("log_entries", "Entries of the log, each one sync.", counted.log_entries),
            ("flushes", "Flushes asked for.", counted.flushes),
            ("checkpoints", "Checkpoints of the metadata tree.", counted.checkpoints),
            ("corrupt_blocks", "Blocks that did not match their checksum.", counted.corrupt_blocks),
            ("scrubbed_blocks", "Blocks that the scrub found good.", counted.scrubbed_blocks),
        ];
        for (name, help, value) in counters {
            page.single(&format!("nasd_store_{name}_total"), "counter", help, value);
        }
        let help = "Bytes of the cache that are not on the medium yet.";
        page.single("nasd_store_dirty_bytes", "gauge", help, counted.dirty_bytes);
    }

    fn put_scrub(&self, page: &mut Page) {
        let scrub = &self.scrub;
        for (name, help, value) in [
            ("read_bytes", "Bytes that the scrub has read.", scrub.read_bytes()),
            ("bad_blocks", "Bad data blocks that the scrub found.", scrub.bad_blocks()),
            ("passes", "Passes of the scrub that ended.", scrub.passes()),
        ] {
            page.single(&format!("nasd_scrub_{name}_total"), "counter", help, value);
        }
        let Some(pass) = scrub.last() else {
            return;
        };
        let help = "When the last pass of the scrub ended, by the drive's clock.";
        let seconds = pass.ended.0 as f64 / 1e9;
        page.single("nasd_scrub_last_pass_end_seconds", "gauge", help, seconds);
        let help = "Bad data blocks that the last pass found.";
        page.single("nasd_scrub_last_pass_bad_blocks", "gauge", help, pass.bad_blocks);
    }

    fn put_extensions(&self, page: &mut Page) {
        let name = "nasd_extension_heavy_threads_total";
        let help = "Threads of extensions that the system would not have weigh less than others.";
        page.single(name, "counter", help, self.extensions.workers.heavy_threads());
    }

    fn put_space(&self, page: &mut Page) {
        let space = self.store.space();
        for (name, help, value) in [
            ("capacity", "What objects can take in all.", space.capacity_bytes),
            ("used", "What objects hold on the device.", space.used_bytes),
            ("free", "What a writer could still store.", space.free_bytes),
            ("cache", "Memory for data.", space.cache_bytes),
        ] {
            page.single(&format!("nasd_drive_{name}_bytes"), "gauge", help, value);
        }
    }

    fn put_partitions(&self, page: &mut Page) {
        let partitions = self.partitions().into_iter();
        // One that is gone by now is not told of.
        let spaces: Vec<PartitionSpace> =
            partitions.filter_map(|partition| self.store.partition_space(partition).ok()).collect();
        type Value = fn(&PartitionSpace) -> u64;
        let families: [(&str, &str, Value); 4] = [
            ("quota_bytes", "Most that its objects may take.", |space| space.quota_bytes),
            ("used_bytes", "What its objects take.", |space| space.used_bytes),
            ("free_bytes", "What a writer could still store.", |space| space.free_bytes),
            ("objects", "How many objects there are.", |space| space.objects),
        ];
        for (name, help, value) in families {
            let name = format!("nasd_partition_{name}");
            page.family(&name, "gauge", help);
            for space in &spaces {
                page.sample(&name, &[("partition", &space.partition.0)], value(space));
            }
        }
    }
}

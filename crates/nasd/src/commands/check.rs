//! `nasd check`: a drive's device against every rule of the on-disk format, and its repair.

use super::Outcome;
use super::agree::agree;
use super::drive::open_stopped;
use crate::arguments::CheckArguments;
use crate::output::{self, say};
use indicatif::{ProgressBar, ProgressStyle};
use nasd_check::{Finding, Options, Progress, Repair, RepairOptions, Report, Severity, Stage};
use nasd_device::BlockDevice;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;

/// Checks a device; with `--repair`, shows what a repair would do, asks, and does it.
///
/// # Errors
/// A device that can't be opened or is in use; damage that is left.
pub fn check(arguments: &CheckArguments, as_json: bool) -> Outcome {
    let device: Arc<dyn BlockDevice> = Arc::new(open_stopped(&arguments.image, "check")?);
    let options = Options::default().with_data(!arguments.no_data);
    if arguments.repair {
        return repair(&device, &options, arguments, as_json);
    }
    let progress = Bar::new();
    let report = nasd_check::check(&device, &options, &mut |step| progress.show(step));
    progress.clear();
    let image = &arguments.image;
    if as_json {
        let left = outcome_word(&report);
        output::json(&facts(image, &report, left))?;
    } else {
        say!("{report}");
    }
    judge(image, &report, "`nasd check --repair` shows what can be mended")
}

fn repair(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    arguments: &CheckArguments,
    as_json: bool,
) -> Outcome {
    let image = &arguments.image;
    let wanted = RepairOptions::default().with_check(options.clone()).with_punch(arguments.punch);
    let plan = run(device, &wanted.clone().with_dry_run(true), image)?;
    if plan.before.findings.is_empty() {
        return report_clean(image, &plan.before, as_json);
    }
    if !as_json {
        say!("{}", plan.before);
    }
    if changes_nothing(&plan) {
        if as_json {
            print_repair(image, &plan)?;
        }
        return judge(image, &plan.before, "a repair would change nothing");
    }
    let text = describe(&plan, image);
    if arguments.yes && !as_json {
        say!("{text}");
    }
    agree(&text, arguments.yes)?;
    let done = run(device, &wanted, image)?;
    if as_json {
        print_repair(image, &done)?;
    } else {
        say!("{} rows and {} blocks were changed", done.rows_changed, done.blocks_written);
        say!("left: {}", done.after);
    }
    judge(image, &done.after, "restore from a copy what is lost; docs/checking.md explains each")
}

fn run(
    device: &Arc<dyn BlockDevice>,
    options: &RepairOptions,
    image: &Path,
) -> Result<Repair, String> {
    let progress = Bar::new();
    let result = nasd_check::repair(device, options, &mut |step| progress.show(step));
    progress.clear();
    result.map_err(|error| {
        let image = image.display();
        format!("the repair of {image} failed: {error}; run it again, or restore a copy")
    })
}

fn report_clean(image: &Path, report: &Report, as_json: bool) -> Outcome {
    if as_json {
        output::json(&facts(image, report, "clean"))?;
    } else {
        say!("{report}\nnothing is to be repaired");
    }
    Ok(())
}

/// Whether there is nothing that a repair can mend.
fn changes_nothing(plan: &Repair) -> bool {
    plan.rows_changed == 0
        && plan.blocks_written == 0
        && !plan.tree_rebuilt
        && plan.before.counts == plan.after.counts
}

/// What a repair would do.
fn describe(plan: &Repair, image: &Path) -> String {
    let Repair { rows_changed, blocks_written, .. } = plan;
    let mut text = format!(
        "the repair of {} would mend {}, leave {}, and change {rows_changed} rows of the metadata \
         and {blocks_written} data blocks",
        image.display(),
        list(&plan.before, &plan.after),
        list(&plan.after, &Report::default()),
    );
    if plan.before.has(Severity::DataLoss) {
        text.push_str("; what the findings call lost stays lost");
    }
    if plan.tree_rebuilt {
        text.push_str(
            "; the metadata tree would be made anew in its place: a power cut meanwhile would leave \
             the drive without metadata, so make a copy of the device first",
        );
    }
    text
}

/// How many findings of each code there are in `report` and not in `without`, in words.
fn list(report: &Report, without: &Report) -> String {
    let counts = report.counts.iter().filter_map(|(code, count)| {
        let rest = count.saturating_sub(without.counts.get(code).copied().unwrap_or(0));
        (rest > 0).then(|| if rest == 1 { code.to_string() } else { format!("{rest} {code}") })
    });
    let words: Vec<String> = counts.collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// An error if there is damage.
fn judge(image: &Path, report: &Report, advice: &str) -> Outcome {
    let wrong = report.counts.iter().filter(|(code, _)| code.severity() > Severity::Note);
    let count: u64 = wrong.map(|(_, count)| count).sum();
    if count == 0 {
        return Ok(());
    }
    let loss = if report.has(Severity::DataLoss) { ", data is lost" } else { "" };
    let findings = if count == 1 { "1 rule is".to_owned() } else { format!("{count} rules are") };
    Err(format!("{}: {findings} broken{loss}; {advice}", image.display()).into())
}

fn outcome_word(report: &Report) -> &'static str {
    if report.has(Severity::Damage) { "damaged" } else { "clean" }
}

fn print_repair(image: &Path, repair: &Repair) -> Outcome {
    let outcome = match (outcome_word(&repair.before), outcome_word(&repair.after)) {
        ("clean", "clean") => "clean",
        (_, "clean") => "repaired",
        _ => "damaged",
    };
    let mut facts = facts(image, &repair.before, outcome);
    facts["repair"] = json!({
        "rows_changed": repair.rows_changed,
        "blocks_written": repair.blocks_written,
        "tree_rebuilt": repair.tree_rebuilt,
        "done": !repair.dry_run,
        "left": counts(&repair.after),
    });
    output::json(&facts)?;
    Ok(())
}

/// What `--json` tells of a check.
fn facts(image: &Path, report: &Report, outcome: &str) -> Value {
    let statistics = &report.statistics;
    json!({
        "image": image.display().to_string(),
        "drive": report.drive.map(|drive| format!("{:016x}", drive.0)),
        "cell": report.cell.map(|cell| cell.to_string()),
        "outcome": outcome,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "counts": counts(report),
        "statistics": {
            "partitions": statistics.partitions,
            "objects": statistics.objects,
            "extents": statistics.extents,
            "blocks_in_use": statistics.blocks_in_use,
            "data_blocks": statistics.data_blocks,
            "blocks_verified": statistics.blocks_verified,
            "log_entries": statistics.log_entries,
            "tree_pages": statistics.tree_pages,
        },
    })
}

fn counts(report: &Report) -> Value {
    let counts = report.counts.iter().map(|(code, count)| (code.name().to_owned(), json!(count)));
    Value::Object(counts.collect::<Map<_, _>>())
}

fn finding(finding: &Finding) -> Value {
    json!({
        "code": finding.code.name(),
        "severity": finding.severity().name(),
        "subject": finding.subject.to_string(),
        "detail": finding.detail,
        "repair": finding.repair(),
    })
}

/// How far it is, on a terminal; nothing in a pipe.
pub struct Bar(ProgressBar);

impl Bar {
    /// Nothing is known yet.
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        let template = "checking {msg:14} {wide_bar} {pos}/{len} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Bar(bar)
    }

    /// Shows one step.
    pub fn show(&self, step: Progress) {
        let unit = match step.stage {
            Stage::Tree | Stage::Log | Stage::Tables => step.stage.to_string(),
            Stage::Data => "data blocks".to_owned(),
        };
        self.0.set_message(unit);
        self.0.set_length(step.total);
        self.0.set_position(step.done);
    }

    /// Takes it from the screen.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

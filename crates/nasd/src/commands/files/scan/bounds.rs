//! What is wrong with a plan or its result, in words of the command line: which options its bounds are, and what to do.

use crate::arguments::ScanArguments;
use nasd_filter::{Limit, MergeError, ParameterError, ScanError};

/// Why a plan can't be run.
pub fn of_plan(error: &ParameterError) -> String {
    let ParameterError::Bounds { what, .. } = error else {
        return error.to_string();
    };
    let text = error
        .to_string()
        .replace("options.longest_record", "--longest-record")
        .replace("options.state_bytes", "--memory")
        .replace("options.groups", "--groups")
        .replace("records of a top", "LIMIT behind ORDER BY");
    match what.contains("LIKE") {
        true => format!("{text}: leave some `_` out, or say a shorter --longest-record"),
        false => text,
    }
}

/// Why there is no result.
pub fn of_result(error: &MergeError, arguments: &ScanArguments) -> String {
    let (MergeError::Limit(limit) | MergeError::Scan(ScanError::Limit(limit))) = error else {
        return error.to_string();
    };
    match limit {
        Limit::Groups => format!(
            "there are more groups than the {} of --groups: say a higher number, or leave records out with WHERE",
            arguments.groups
        ),
        Limit::StateBytes => format!(
            "the keys, texts and records that are kept take more than the {} bytes of --memory: give more, or leave records out with WHERE",
            arguments.memory
        ),
        Limit::KeyBytes => error.to_string(),
    }
}

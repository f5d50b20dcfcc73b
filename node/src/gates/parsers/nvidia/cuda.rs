//! Errors of CUDA that name broken hardware. Tools without a usable answer print such an error in
//! place of their results. Other errors, such as a missing device or full memory, are no answer:
//! the cause may be software or another process.
//!
//! Source: CUDA Driver API, `cuGetErrorName` and `cuGetErrorString` for the codes 214 and 220. HIP
//! has the same text for 214.

use crate::gates::parsers::{Answer, Reading, scan};

/// Tools on CUDA. nccl-tests and gpu-burn print the text of an error, and nvbandwidth the name.
const PARSERS: [&str; 6] = [
    "dcgmproftester",
    "gpu-burn",
    "gpu-fryer",
    "nccl-tests",
    "nccl-tests-json",
    "nvbandwidth",
];
/// Name and text of an error.
const BROKEN: [[&str; 2]; 2] = [
    [
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "uncorrectable ECC error encountered",
    ],
    [
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "uncorrectable NVLink error detected during the execution",
    ],
];

/// Returns the fault of a run without a usable answer: the first line with an error of broken
/// hardware.
pub(in crate::gates::parsers) fn read_fault(parser: &str, answer: &Answer<'_>) -> Option<Reading> {
    if !PARSERS.contains(&parser) {
        return None;
    }
    let is_broken = |line: &&str| BROKEN.iter().flatten().any(|word| line.contains(word));
    let mut lines = [answer.messages, answer.text]
        .into_iter()
        .flat_map(str::lines);
    let line = lines.find(is_broken)?;
    Some(Reading::of_faults(vec![scan::word(line)]))
}

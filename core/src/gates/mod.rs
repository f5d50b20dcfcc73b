//! Gates: measurements, thresholds and verdicts. Gates fail closed: a verdict has no default and
//! never follows from an exit code alone.

mod assess; // Compares samples with criteria, giving the verdict
mod budget; // Size of a run
mod catalogue; // Parsers, their metrics and units
mod checks; // Common checks of GPU clusters, and the gates covering each
mod fingerprint; // Hardware fingerprint of a result
mod gate; // Gate definition as written in a suite
mod gpus; // Gates that need a GPU
mod judge; // Admission verdict of a whole run
mod lint; // Rejects suites that could pass without measuring
mod lint_during; // Checks gates sampled under load
mod lint_pair; // Rejects pair gates with ends that may miss each other
mod lint_profile; // Rejects thresholds without a reliable source
mod lint_program; // Rejects programs that could change the node
mod mode; // Required, optional or shadow
mod programs; // Programs that a gate may start, with their arguments
mod reach; // Networks and disks that a tool may reach
mod resolve; // Resolves references in limits and counts on a node
mod result; // Result of a gate
mod sandbox; // Sandbox of a gate's tool
mod shipped; // Suites and profiles shipped with Muster
mod units; // Unit conversion
mod words; // Variables allowed in argv
pub mod xid; // Actions for Xid errors of NVIDIA drivers

pub use assess::{Assessment, Sample, assess, unmeasurable};
pub use budget::{RESULT_BYTES, RUN_BYTES, cut_evidence};
pub use catalogue::{Metric, Parser, TEXT};
pub use checks::{CHECKS, Check};
pub use fingerprint::fingerprint;
pub use gate::{
    Criterion, During, Each, Gate, Limit, Need, OnTimeout, Op, Peer, SideEffect, Stage, Suite,
    Value,
};
pub use judge::{Judged, SuiteVerdict, blocks, judge};
pub use lint::{RETRIES_MAX, lint, lint_accepted, lint_with};
pub use lint_profile::lint_profile;
pub use lint_program::lint_program;
pub use mode::Mode;
pub use programs::PROGRAMS_FOLDER;
pub use reach::{Disks, Network};
pub use resolve::Reference;
pub use result::{Evidence, GateResult, Measured, Verdict, Waived};
pub use sandbox::Sandbox;
pub use shipped::{PROFILES, SUITES, Shipped};
pub use units::{Dimension, dimension};
pub use words::VARIABLES;

#[cfg(test)]
mod tests;

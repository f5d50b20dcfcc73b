//! Gates: what is measured, against which threshold, and the verdict. Fails closed: there is no default verdict, and none from an exit code alone.

mod assess; // Samples against criteria: the verdict
mod catalogue; // Parsers, their metrics and units
mod checks; // The field's checks, and what covers each
mod fingerprint; // The hardware a result belongs to
mod gate; // A gate as it is written
mod judge; // A whole run: what it says about admission
mod lint; // Refuses suites that could pass without measuring
mod lint_during; // What looks on while others load the machine
mod lint_pair; // Refuses pair gates whose ends could miss each other
mod lint_profile; // Refuses thresholds that nobody can stand by
mod mode; // Required, optional or shadow
mod resolve; // References in limits and counts, resolved on a node
mod result; // What became of a gate
mod shipped; // The suites and profiles that come with Muster
mod units; // Units that convert into each other
mod words; // What an argv may name
pub mod xid; // What errors of NVIDIA's drivers ask for

pub use assess::{Assessment, Sample, assess, unmeasurable};
pub use catalogue::{Metric, Parser, TEXT};
pub use checks::{CHECKS, Check};
pub use fingerprint::fingerprint;
pub use gate::{
    Criterion, During, Each, Gate, Limit, Need, OnTimeout, Op, Peer, SideEffect, Stage, Suite,
    Value,
};
pub use judge::{Judged, SuiteVerdict, blocks, judge};
pub use lint::{RETRIES_MAX, lint, lint_with};
pub use lint_profile::lint_profile;
pub use mode::Mode;
pub use resolve::Reference;
pub use result::{Evidence, GateResult, Measured, Verdict, Waived};
pub use shipped::{PROFILES, SUITES, Shipped};
pub use units::{Dimension, dimension};
pub use words::VARIABLES;

#[cfg(test)]
mod tests;

//! Suites: ordered sets of gates.

use muster_core::gates::Suite;

use crate::kind::Kind;
use crate::object::NoStatus;

impl Kind for Suite {
    const KIND: &'static str = "suite";
    const COLLECTION: &'static str = "suites";
    const SCHEMA: &'static str = "SuiteObject";
    type Status = NoStatus;
}

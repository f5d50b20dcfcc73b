//! Suites: refused when a gate could pass without having measured anything.

use muster_core::gates::{Suite, lint};

use crate::error::Fault;
use crate::http::declared::{Declared, fault};

impl Declared for Suite {
    fn faults(&self) -> Vec<Fault> {
        lint(self).into_iter().map(|problem| fault("/spec/gates", "unsound_gate", problem)).collect()
    }
}

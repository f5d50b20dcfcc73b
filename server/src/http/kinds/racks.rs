//! Racks.

use muster_api::racks::RackSpec;

use crate::error::Fault;
use crate::http::declared::{Declared, Reference, fault};

impl Declared for RackSpec {
    fn references(&self) -> Vec<Reference<'_>> {
        vec![Reference::new("/spec/site", "site", &self.site)]
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !(1..=60).contains(&self.units) {
            faults.push(fault("/spec/units", "out_of_range", "1 to 60 U"));
        }
        if self.power_budget_w > 1_000_000 {
            faults.push(fault("/spec/power_budget_w", "out_of_range", "at most 1,000,000 W"));
        }
        faults
    }
}

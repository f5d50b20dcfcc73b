//! Sites.

use std::ops::RangeInclusive;

use muster_api::sites::SiteSpec;
use muster_core::rollout::check_axes;

use crate::document::fault;
use crate::error::Fault;
use crate::http::declared::{Declared, Reference};
use crate::intents::references::Table;

/// Throughput of a site's link in Mbit/s.
const LINK_MBPS: RangeInclusive<u32> = 1..=1_000_000;

impl Declared for SiteSpec {
    const REFERENCES: Table = &[("/spec/maintenance_window", "maintenance_window")];

    fn references(&self) -> Vec<Reference<'_>> {
        let window = self.maintenance_window.iter();
        let pointed = |name| Reference::new("/spec/maintenance_window", "maintenance_window", name);
        window.map(|name: &String| pointed(name.as_str())).collect()
    }

    fn faults(&self) -> Vec<Fault> {
        let wrong = self.xid.iter().flat_map(|xid| xid.faults());
        let xid =
            wrong.map(|(member, why)| fault(format!("/spec/xid/{member}"), "out_of_range", why));
        let axes = check_axes(&self.failure_domains).into_iter();
        let axes = axes.map(|(member, why)| {
            let pointer = format!("/spec/failure_domains{member}");
            fault(pointer, "out_of_range", why)
        });
        let link = self.link_mbps.filter(|mbps| !LINK_MBPS.contains(mbps));
        let link = link.map(|_| {
            let detail = "From 1 to 1000000 Mbit/s.";
            fault("/spec/link_mbps", "out_of_range", detail)
        });
        xid.chain(axes).chain(link).collect()
    }
}

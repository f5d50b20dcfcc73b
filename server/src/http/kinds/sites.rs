//! Sites.

use muster_api::sites::SiteSpec;
use muster_core::rollout::check_axes;

use crate::document::fault;
use crate::error::Fault;
use crate::http::declared::Declared;

impl Declared for SiteSpec {
    fn faults(&self) -> Vec<Fault> {
        let wrong = self.xid.iter().flat_map(|xid| xid.faults());
        let xid =
            wrong.map(|(member, why)| fault(format!("/spec/xid/{member}"), "out_of_range", why));
        let axes = check_axes(&self.failure_domains).into_iter();
        let axes = axes.map(|(member, why)| {
            let pointer = format!("/spec/failure_domains{member}");
            fault(pointer, "out_of_range", why)
        });
        xid.chain(axes).collect()
    }
}

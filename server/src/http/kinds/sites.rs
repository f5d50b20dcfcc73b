//! Sites.

use muster_api::sites::SiteSpec;

use crate::document::fault;
use crate::error::Fault;
use crate::http::declared::Declared;

impl Declared for SiteSpec {
    fn faults(&self) -> Vec<Fault> {
        let wrong = self.xid.iter().flat_map(|xid| xid.faults());
        wrong
            .map(|(member, why)| fault(format!("/spec/xid/{member}"), "out_of_range", why))
            .collect()
    }
}

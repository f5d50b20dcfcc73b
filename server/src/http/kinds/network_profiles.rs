//! Network profiles.

use muster_core::network::NetworkProfile;

use crate::error::Fault;
use crate::http::declared::{Declared, Reference, fault};

impl Declared for NetworkProfile {
    fn references(&self) -> Vec<Reference<'_>> {
        let pointed = |(at, name)| Reference::new(format!("/spec/{at}"), "subnet", name);
        self.subnets().into_iter().map(pointed).collect()
    }

    fn faults(&self) -> Vec<Fault> {
        let pointed = |(at, why): (String, String)| match at.is_empty() {
            true => fault("/spec", "invalid_network", why),
            false => fault(format!("/spec/{at}"), "invalid_network", why),
        };
        NetworkProfile::faults(self)
            .into_iter()
            .map(pointed)
            .collect()
    }
}

//! Network profiles.

use muster_core::network::NetworkProfile;

use crate::document::fault;
use crate::error::Fault;
use crate::http::declared::{Declared, Reference};
use crate::intents::references::Table;

impl Declared for NetworkProfile {
    const IN_REVISIONS: bool = true;
    const REFERENCES: Table = &[
        ("/spec/interfaces/*/addresses/*/beside/subnet", "subnet"),
        ("/spec/bonds/*/addresses/*/beside/subnet", "subnet"),
        ("/spec/vlans/*/addresses/*/beside/subnet", "subnet"),
    ];

    fn references(&self) -> Vec<Reference<'_>> {
        let pointed = |(at, name)| Reference::new(format!("/spec/{at}"), "subnet", name);
        self.subnets().into_iter().map(pointed).collect()
    }

    fn faults(&self) -> Vec<Fault> {
        NetworkProfile::faults(self)
            .into_iter()
            .map(|(at, why)| {
                let pointer = match at.is_empty() {
                    true => "/spec".to_owned(),
                    false => format!("/spec/{at}"),
                };
                fault(pointer, "invalid_network", why)
            })
            .collect()
    }
}

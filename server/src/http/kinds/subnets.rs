//! Subnets. DHCP answers come from the subnet's spec, so an address outside of the network is
//! rejected before any machine can receive it.

use std::net::Ipv4Addr;

use muster_api::subnets::SubnetSpec;
use sqlx::PgConnection;

use super::{dependents, networks, residents};
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document::{self, fault};
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, Reference};
use crate::intents::nodes::addresses::is_host;
use crate::intents::references::Table;

impl Declared for SubnetSpec {
    const REFERENCES: Table = &[("/spec/site", "site")];

    fn references(&self) -> Vec<Reference<'_>> {
        vec![Reference::new("/spec/site", "site", &self.site)]
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let network = self.network;
        if network.addr() != network.network() {
            let detail = format!("The network's own address is {}.", network.trunc());
            faults.push(fault("/spec/network", "host_bits", detail));
        }
        if !(8..=30).contains(&network.prefix_len()) {
            faults.push(fault(
                "/spec/network",
                "out_of_range",
                "A prefix of 8 to 30.",
            ));
        }
        let mut inside = |pointer: &str, address: Ipv4Addr| {
            if !is_host(self, address) {
                faults.push(fault(
                    pointer,
                    "outside_network",
                    format!("{address} is not a host address of {network}."),
                ));
            }
        };
        inside("/spec/agent_address", self.agent_address);
        self.gateway
            .iter()
            .for_each(|gateway| inside("/spec/gateway", *gateway));
        if let Some(range) = self.dynamic_range {
            inside("/spec/dynamic_range/first", range.first);
            inside("/spec/dynamic_range/last", range.last);
            if range.first > range.last {
                faults.push(fault(
                    "/spec/dynamic_range",
                    "reversed",
                    "The first address is greater than the last.",
                ));
            }
        }
        for (member, list) in [("dns", &self.dns), ("relays", &self.relays)] {
            if list.len() > 16 {
                faults.push(fault(format!("/spec/{member}"), "too_many", "At most 16."));
            }
        }
        faults
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let advice = "take the subnet out of `macs` of each node first";
        residents::keep_place(conn, before, row, "site", advice).await?;
        refuse_overlapping(conn, row).await?;
        networks::check_subnet(conn, before, row).await
    }

    /// Addresses outside of every machine and listener are refused in new specs. A stored one may
    /// stay.
    async fn allow_dependents(
        conn: &mut PgConnection,
        actor: &Actor,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let new: Self = document::stored(row)?;
        let former = before.and_then(|before| document::stored::<Self>(before).ok());
        let known = former.map_or_else(Vec::new, |former| former.list_unanswered());
        let faults: Vec<Fault> = new
            .list_unanswered()
            .into_iter()
            .filter(|found| !known.contains(found))
            .map(|found| fault(found.pointer, "no_machine", found.detail))
            .collect();
        if !faults.is_empty() {
            return Err(Error::Unprocessable(faults));
        }
        match before {
            Some(before) => dependents::subnets::keep_addresses(conn, actor, before, row).await,
            None => Ok(()),
        }
    }
}

/// Rejects a network overlapping another subnet of the site. A site has one provisioning network,
/// and each address must belong to a single subnet.
async fn refuse_overlapping(conn: &mut PgConnection, row: &ObjectRow) -> Result<(), Error> {
    let Some(other) = db::taken::find_overlapping(conn, row.id).await? else {
        return Ok(());
    };
    let detail = "Another subnet of the site has addresses of this network.";
    Err(Error::taken(
        "objects_name_key",
        format!("subnet, {other}"),
        "network_taken",
        detail,
    ))
}

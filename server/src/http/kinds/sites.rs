//! Sites.

use std::ops::RangeInclusive;

use muster_api::sites::SiteSpec;
use muster_core::rollout::check_axes;
use muster_core::signatures::check_form;
use sqlx::PgConnection;

use super::networks;
use super::signing_keys::LONGEST_TEXT;
use crate::auth::Actor;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, Reference};
use crate::intents::references::Table;

/// Throughput of a site's link in Mbit/s.
const LINK_MBPS: RangeInclusive<u32> = 1..=1_000_000;

/// The most networks from which the agents of a site log in.
const SSH_SOURCES: usize = 16;

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
        let sources = (self.ssh_sources.len() > SSH_SOURCES).then(|| {
            let detail = "At most 16 networks: name a larger network instead of many small ones.";
            fault("/spec/ssh_sources", "out_of_range", detail)
        });
        let spine = self.spine_switch.iter();
        let spine = spine.filter(|name| !is_switch(name)).map(|_| {
            let detail =
                "Write 1 to 64 letters, digits, `-`, `_` or `.`, and begin with a letter or digit.";
            fault("/spec/spine_switch", "invalid_name", detail)
        });
        let signature = self
            .live
            .iter()
            .filter_map(|live| live.signature.as_deref());
        let signature = signature.filter_map(|signature| {
            let pointer = "/spec/live/signature";
            if signature.chars().count() > LONGEST_TEXT {
                let detail = format!("At most {LONGEST_TEXT} characters.");
                return Some(fault(pointer, "too_long", detail));
            }
            let error = check_form(signature).err()?;
            Some(fault(pointer, "invalid_signature", error.to_string()))
        });
        let [bmc, console] = networks::MEMBERS.map(|member| format!("/spec/{member}"));
        let bmc = networks::list_faults(&bmc, &self.bmc_networks);
        let console = networks::list_faults(&console, &self.console_networks);
        xid.chain(axes)
            .chain(link)
            .chain(sources)
            .chain(spine)
            .chain(bmc)
            .chain(console)
            .chain(signature)
            .collect()
    }

    async fn allow_dependents(
        conn: &mut PgConnection,
        actor: &Actor,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        networks::check_site(conn, actor, before, row).await
    }
}

/// Returns whether the name fits into a line of Slurm's configuration.
fn is_switch(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    begins && name.len() <= 64 && name.bytes().all(allowed)
}

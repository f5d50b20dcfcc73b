//! Agents: recent contact, and a compatible version.

use jiff::SignedDuration;
use muster_api::agents::Agent;
use muster_api::sites::SiteSpec;

use super::{Found, Host};

/// Time without contact for a warning. Agents call every few seconds.
const SILENT: SignedDuration = SignedDuration::from_mins(3);
const OURS: &str = env!("CARGO_PKG_VERSION");

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let Ok(sites) = host.client.list_all::<SiteSpec>(None).await else {
        return vec![Found::unknown(
            "the server's list of agents is unavailable",
            "see the checks `server` and `token`",
        )];
    };
    let mut found = Vec::new();
    for site in sites {
        match host.client.list_agents(site.name.as_str()).await {
            Ok(agents) if agents.items.is_empty() => found.push(Found::fail(
                format!("the site {} has no agent, so its nodes cannot change", site.name),
                format!(
                    "muster agent enrol {} NAME, then start `muster agent` there with the token it prints",
                    site.name
                ),
            )),
            Ok(agents) => found.extend(agents.items.iter().map(|agent| verdict(host, agent))),
            Err(error) => {
                found.push(Found::unknown(format!("the agents of {}: {error}", site.name), "see the check `token`"))
            }
        }
    }
    if found.is_empty() {
        found.push(Found::ok("no site is declared yet"));
    }
    found
}

fn verdict(host: &Host, agent: &Agent) -> Found {
    let name = format!("agent {} of {}", agent.name, agent.site);
    if let Some(why) = agent.refused {
        return Found::fail(
            format!("{name} is refused by the server: {why}"),
            "look at its machine and at the event `agent.cloned` or `agent.lies`; then remove the agent and enrol it anew",
        );
    }
    let Some(seen) = agent.last_seen else {
        return Found::fail(
            format!("{name} has never called"),
            "start `muster agent` on its host with the token that enrolling printed",
        );
    };
    if host.clock.now().duration_since(seen) > SILENT {
        return Found::fail(
            format!("{name} called last at {seen:.0}"),
            "look at its service and log, and whether it reaches the server's agent listener; run `muster doctor --as agent` there",
        );
    }
    match agent.version.as_deref() {
        Some(OURS) => Found::ok(format!("{name} is of this version, {OURS}")),
        other => Found::warn(
            format!(
                "{name} is of version {}, this is {OURS}",
                other.unwrap_or("unknown")
            ),
            "upgrade the server first, then its agents: a server works with agents of its own version and the one before",
        ),
    }
}

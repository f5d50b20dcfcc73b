//! Leased jobs, parsed order by order: an order of a newer server does not hold back the others.

use muster_core::ids::JobId;
use muster_core::wire::job::Job;
use serde::Deserialize;
use serde_json::Value;

/// The answer to a lease call, with the orders still unparsed.
#[derive(Debug, Deserialize)]
pub(super) struct Orders {
    pub(super) jobs: Vec<Value>,
}

/// Leased jobs, and orders unreadable for this agent.
#[derive(Clone, Debug, Default)]
pub struct Leased {
    pub jobs: Vec<Job>,
    pub unread: Vec<Unread>,
}

/// An order of a newer server, with a kind or member unknown to this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub id: JobId,
    pub attempt: i32,
    /// The parse error.
    pub why: String,
}

/// The members of every order since the first protocol.
#[derive(Deserialize)]
struct Head {
    id: JobId,
    attempt: i32,
}

impl Leased {
    pub(super) fn from_orders(orders: Vec<Value>) -> Self {
        let mut leased = Self::default();
        for order in orders {
            let kind = order["spec"]["kind"]
                .as_str()
                .unwrap_or("no kind")
                .chars()
                .take(64)
                .collect::<String>();
            let head = serde_json::from_value::<Head>(order.clone());
            match (serde_json::from_value::<Job>(order), head) {
                (Ok(job), _) => leased.jobs.push(job),
                (Err(error), Ok(Head { id, attempt })) => {
                    let version = env!("CARGO_PKG_VERSION");
                    let why = format!(
                        "the agent (version {version}) cannot read this {kind}: {error}; update it"
                    );
                    leased.unread.push(Unread { id, attempt, why });
                }
                // Without id and attempt, the failure cannot be reported for this job. The lease
                // expires.
                (Err(error), Err(_)) => {
                    tracing::error!(%error, kind, "order without id or attempt ignored; its lease will expire")
                }
            }
        }
        leased
    }
}

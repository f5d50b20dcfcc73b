//! Slots of the disruption budget, taken in the transaction of the act. The locks on the pool and on
//! the node's failure domains last until the commit, so two acts never take the same slot.

use std::collections::BTreeSet;

use jiff::Timestamp;
use muster_core::ids::NodeId;
use muster_core::lifecycle::decision::Decision;
use muster_core::lifecycle::snapshot::{NoSlot, Room};
use muster_core::lifecycle::state::{Purpose, State};
use muster_core::rollout::{Ledger, Member, Refusal, Slot, build_budget};
use serde_json::json;
use sqlx::PgConnection;

use crate::db;
use crate::db::disruption::{MemberRow, PlaceRow};
use crate::db::events::NewEvent;
use crate::db::lifecycle::EngineNode;
use crate::error::Error;

/// The ledger for acts on nodes of a pool, under the locks of its accounts.
#[derive(Clone, Debug)]
pub struct OpenLedger {
    ledger: Ledger,
    members: Vec<Member>,
}

impl OpenLedger {
    /// Opens the ledger for acts on claimed nodes of a pool at a site. `None`: the pool or the site
    /// is being changed, or no node of a claim is given.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn open(
        conn: &mut PgConnection,
        nodes: &[NodeId],
        now: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let places = db::disruption::list_places(conn, nodes).await?;
        let Some((pool, site)) = places.first().map(|place| (place.pool, place.site)) else {
            return Ok(None);
        };
        let Some(budgets) = db::disruption::hold_budgets(conn, pool, site).await? else {
            return Ok(None);
        };
        let here = |place: &&PlaceRow| (place.pool, place.site) == (pool, site);
        let domains: BTreeSet<String> = places
            .iter()
            .filter(here)
            .flat_map(|place| place.domains(&budgets.axes))
            .collect();
        db::disruption::lock(conn, pool, site, &domains).await?;
        let axes = &budgets.axes;
        let counted =
            db::disruption::count_for_acts(conn, pool, site, axes, &domains, nodes).await?;
        let of_row = |row: &MemberRow| row.member(site, axes);
        let members: Vec<Member> = counted.rows.iter().map(of_row).collect();
        let budget = build_budget(budgets.max_unavailable, axes, &members);
        Ok(Some(Self {
            ledger: Ledger::open_beside(&budget, &members, counted.serving, now),
            members,
        }))
    }

    /// Takes the slot of a node. A node without a member, because its claim is under release, needs
    /// no slot.
    ///
    /// # Errors
    /// Returns the exhausted budget, and takes no slot.
    pub fn take(&mut self, node: NodeId) -> Result<Slot, Refusal> {
        match self.members.iter().find(|member| member.node == node) {
            Some(member) => self.ledger.take(member),
            None => Ok(Slot::NotNeeded),
        }
    }
}

/// Returns whether a decision takes a serving node out of service for another reason than a release.
pub(super) fn needs_slot(node: &EngineNode, decision: &Decision) -> bool {
    match decision {
        Decision::Advance(to) => {
            node.state == State::InService
                && to.to == State::Draining
                && to.purpose != Some(Purpose::Release)
        }
        Decision::Wait(_)
        | Decision::Start(_)
        | Decision::Retry(..)
        | Decision::Cancel(_)
        | Decision::Granted(_)
        | Decision::Refused(_) => false,
    }
}

/// Takes a slot for a node about to leave service. Returns the obstacle, if there is one. A person's
/// override takes the place of a slot, and is recorded.
///
/// # Errors
/// When the database fails.
pub(super) async fn find_obstacle(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<Option<NoSlot>, Error> {
    let Some(mut open) = OpenLedger::open(conn, &[node.id], now).await? else {
        return Ok(node.claim.map(|_| NoSlot::Changing));
    };
    let Err(full) = open.take(node.id) else {
        return Ok(None);
    };
    let overrides = match node.operation {
        Some(operation) if node.action.is_some() => {
            db::operations::find_override(conn, operation).await?
        }
        Some(_) | None => None,
    };
    let Some(reason) = overrides else {
        return Ok(Some(NoSlot::Full(full)));
    };
    let summary = format!(
        "{}: taken out of service beyond the disruption budget: {full}; override: {reason}",
        node.name
    );
    let event = NewEvent::node(now, "muster", "budget.overridden", node.id, summary);
    let detail = json!({ "code": full.code(), "out": full.out, "max": full.max, "counted": full.counted, "reason": reason });
    db::events::insert(conn, event.under(node.operation).with(detail)).await?;
    Ok(None)
}

/// Returns whether the pool can spare a node for a sweep without jobs, and takes the slot.
///
/// # Errors
/// When the database fails.
pub(super) async fn find_room(
    conn: &mut PgConnection,
    node: &EngineNode,
    now: Timestamp,
) -> Result<Room, Error> {
    let Some(mut open) = OpenLedger::open(conn, &[node.id], now).await? else {
        return Ok(Room::Later);
    };
    if open.take(node.id).is_ok() {
        return Ok(Room::Enough);
    }
    Ok(match db::sweeps::is_pool_swept(conn, node.id).await? {
        true => Room::Later,
        false => Room::Nothing,
    })
}

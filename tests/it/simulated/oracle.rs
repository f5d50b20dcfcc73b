//! Invariants that must hold at every moment and after any fault. The checks compare the database,
//! the events and the machines' own logs.

use std::collections::BTreeMap;

use muster_core::lifecycle::state::State;
use muster_core::lifecycle::table;
use muster_lab::simulated::machine::{Done, Running};
use uuid::Uuid;

use super::World;

impl World {
    /// Checks all invariants. Panics on the first violation.
    pub(crate) async fn check(&self) {
        self.check_states().await;
        self.check_claims().await;
        self.check_data().await;
        self.check_power().await;
        self.check_acts().await;
        self.check_members().await;
        self.check_ledger().await;
    }

    /// No commit took a serving node out of service beyond the disruption budget of the node's
    /// pool.
    async fn check_ledger(&self) {
        let breaches: Vec<(String, i32, i32)> = sqlx::query_as(
            "SELECT node, out_nodes, allowed FROM ledger_log WHERE out_nodes > allowed AND NOT overridden",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        assert!(breaches.is_empty(), "node, out, allowed: {breaches:?}");
    }

    /// Each node reached every state by a legal move from the previous state. Each move is recorded
    /// by exactly one event. The node's `visit` and `version` are the number of moves plus one.
    async fn check_states(&self) {
        let nodes: Vec<(Uuid, String, String, i64, i64)> =
            sqlx::query_as("SELECT id, name, state, visit, version FROM nodes")
                .fetch_all(&self.server.app.pool)
                .await
                .unwrap();
        let moves: Vec<(Uuid, String, String)> = sqlx::query_as(
            "SELECT node_id, detail ->> 'from', detail ->> 'to' FROM events WHERE kind = 'node.advanced' ORDER BY seq",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        for (id, name, state, visit, version) in nodes {
            let mut at = State::Discovered;
            let mut count = 0;
            for (_, from, to) in moves.iter().filter(|(node, ..)| *node == id) {
                let to: State = to.parse().unwrap();
                assert_eq!(from, at.as_str(), "{name} moved from where it was not");
                assert!(table::legal(at, to), "{name}: {at} -> {to}");
                at = to;
                count += 1;
            }
            assert_eq!(
                (at.as_str(), count + 1, count + 1),
                (state.as_str(), visit, version),
                "{name}: moves without events"
            );
        }
    }

    /// Each machine with data is marked as unsanitised, unless the machine runs a system installed
    /// without Muster. Each node has at most one open operation.
    async fn check_data(&self) {
        let nodes: Vec<(String, bool, i64)> = sqlx::query_as(
            "SELECT n.name, n.unsanitised, (SELECT count(*) FROM operations o WHERE o.node_id = n.id AND o.finished_at IS NULL)
             FROM nodes n",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        let rack = self.rack();
        for (name, unsanitised, open) in nodes {
            let machine = &rack.machines[&name];
            assert!(
                unsanitised || machine.empty() || machine.foreign,
                "{name} holds data, and Muster thinks it clean"
            );
            assert!(open <= 1, "{name} works on {open} operations");
        }
    }

    async fn check_claims(&self) {
        let shared: Vec<String> = sqlx::query_scalar(
            "SELECT n.name FROM nodes n JOIN claims c ON c.node_id = n.id AND c.state <> 'released' GROUP BY n.name HAVING count(*) > 1",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        assert!(shared.is_empty(), "claimed twice: {shared:?}");
    }

    /// Each running machine has reserved power, unless the machine runs a system installed without
    /// Muster. No rack has more power reserved than the budget of the rack.
    async fn check_power(&self) {
        let reserved: BTreeMap<String, i32> =
            sqlx::query_as::<_, (String, i32)>("SELECT name, power_reserved_w FROM nodes")
                .fetch_all(&self.server.app.pool)
                .await
                .unwrap()
                .into_iter()
                .collect();
        for machine in self
            .rack()
            .machines
            .values()
            .filter(|machine| machine.running != Running::Off && !machine.foreign)
        {
            assert!(
                reserved[&machine.name] > 0,
                "{} is on without its share of the rack's power",
                machine.name
            );
        }
        let over: Vec<String> = sqlx::query_scalar(
            "SELECT r.name FROM objects r JOIN nodes n ON n.rack_id = r.id GROUP BY r.id
             HAVING sum(n.power_reserved_w) > (r.spec ->> 'power_budget_w')::integer",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        assert!(over.is_empty(), "over their budget: {over:?}");
    }

    /// Each act had a redeemed permit of the same kind, node and epoch, and no permit served two
    /// acts. Epochs of disk writes never decrease: an assignment that is over writes no disk. An
    /// image overwrites only an unmarked disk or data of the same claim. The data of a bound claim
    /// is never wiped: a wipe follows the release. The scheduler saw no wipe of a listed node.
    async fn check_acts(&self) {
        type Permit = (Uuid, String, String, i64, i32, Option<Uuid>);
        let permits: Vec<Permit> = sqlx::query_as(
            "SELECT p.id, p.kind, n.name, p.epoch, p.redemptions, COALESCE(c.marker, p.claim_id)
             FROM permits p JOIN nodes n ON n.id = p.node_id LEFT JOIN claims c ON c.id = p.claim_id",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        let permits: BTreeMap<Uuid, Permit> = permits
            .into_iter()
            .map(|permit| (permit.0, permit))
            .collect();
        let bound: Vec<Uuid> =
            sqlx::query_scalar("SELECT COALESCE(marker, id) FROM claims WHERE state = 'bound'")
                .fetch_all(&self.server.app.pool)
                .await
                .unwrap();
        let rack = self.rack();
        assert!(
            rack.scheduler.violations.is_empty(),
            "{:?}",
            rack.scheduler.violations
        );
        for machine in rack.machines.values() {
            let (mut seen, mut written) = (std::collections::BTreeSet::new(), 0);
            for done in &machine.log {
                let Done {
                    act,
                    permit,
                    epoch,
                    marked,
                    ..
                } = done;
                assert!(
                    seen.insert(permit),
                    "{}: {act}, and something else under the same permit",
                    machine.name
                );
                let writes = matches!(&**act, "image" | "wipe");
                let kind = if writes { act } else { "power" };
                let (_, of_kind, of_node, of_epoch, redemptions, of_claim) = &permits[&permit.0];
                assert_eq!(
                    (kind, machine.name.as_str(), *epoch),
                    (of_kind.as_str(), of_node.as_str(), *of_epoch),
                    "{done:?}"
                );
                assert!(
                    *redemptions > 0,
                    "{}: {done:?} without its permit redeemed",
                    machine.name
                );
                assert!(
                    !writes || *epoch >= written,
                    "{}: {done:?} after epoch {written} had written",
                    machine.name
                );
                written = if writes { *epoch } else { written };
                let own = marked.is_none_or(|claim| Some(claim.0) == *of_claim);
                assert!(
                    *act != "image" || own,
                    "{}: {done:?} over the data of another than {of_claim:?}",
                    machine.name
                );
                let held = marked.is_some_and(|claim| bound.contains(&claim.0));
                assert!(
                    *act != "wipe" || !held,
                    "{}: wiped, and its claim is bound: {done:?}",
                    machine.name
                );
            }
        }
    }

    /// A node in service is listed in the scheduler, unless the machine runs a system installed
    /// without Muster. A node that can be claimed is unlisted, has empty disks and is off.
    async fn check_members(&self) {
        let nodes: Vec<(String, String, Option<String>, bool)> = sqlx::query_as(
            "SELECT n.name, n.state, c.state, n.wish IS NULL FROM nodes n LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'",
        )
        .fetch_all(&self.server.app.pool)
        .await
        .unwrap();
        let rack = self.rack();
        for (name, state, claim, asked_nothing) in nodes {
            let listed = rack.scheduler.members.contains(&name);
            let machine = &rack.machines[&name];
            match state.as_str() {
                "in_service" => {
                    assert!(listed || machine.foreign, "{name} serves and is not listed")
                }
                "available" if claim.is_none() => {
                    assert!(!listed, "{name} can be claimed and is listed");
                    assert!(machine.empty(), "{name} can be claimed and holds data");
                    // A node with a requested action, such as gates, may be on. No claim takes such
                    // a node.
                    assert!(
                        !asked_nothing || machine.running == Running::Off,
                        "{name} can be claimed and is on"
                    );
                }
                _ => {}
            }
        }
    }
}

//! Nodes affected by a changed object, and the cost of the change.

use muster_api::kind::Kind as _;
use muster_api::plans::PlannedObject;
use muster_api::pools::PoolSpec;
use muster_core::effects::{self, Effect};
use muster_core::gates::Suite;
use muster_core::ids::ObjectId;
use muster_core::images::ImageManifest;
use muster_core::rollout::RolloutPolicy;
use muster_core::stacks::{StackSpec, diff};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgConnection;

use crate::auth::Actor;
use crate::db;
use crate::document;
use crate::engine::compatibility::Onto;
use crate::error::Error;
use crate::http::plan::fit;
use crate::intents::claims::replicas;

/// The largest number of nodes named in a plan.
const NAMED: i64 = 10_000;

/// The effect of a change on the nodes with a reference to the object.
pub(super) struct Reach {
    effect: Effect,
    /// Whether the nodes must pass their gates after the change.
    gated: bool,
    /// Whether nodes use the object themselves, also without a claim. The nodes keep their present
    /// state until the next use.
    direct: bool,
}

impl Reach {
    /// The reach of a change from one spec to another. Both specs are in the form of the API.
    pub(super) async fn of(
        conn: &mut PgConnection,
        kind: &str,
        before: Option<&Value>,
        after: &Value,
    ) -> Result<Self, Error> {
        let nothing = Self {
            effect: Effect::None,
            gated: false,
            direct: false,
        };
        let Some(before) = before else {
            return Ok(nothing);
        };
        Ok(match kind {
            "image" => Self::costing(
                parse_both::<ImageManifest>(before, after).map(|(a, b)| effects::of_image(&a, &b)),
            ),
            "stack" => Self::costing(
                parse_both::<StackSpec>(before, after).map(|(a, b)| diff::effect_of(&a, &b)),
            ),
            "pool" => match parse_both::<PoolSpec>(before, after) {
                Some((before, after)) => of_pool(conn, &before, &after).await?,
                None => nothing,
            },
            // A running node keeps the network until the next installation, which ends with the
            // gates.
            "network_profile" if before != after => Self {
                effect: Effect::Reinstall,
                gated: true,
                ..nothing
            },
            "suite" => Self {
                gated: before != after,
                ..nothing
            },
            "cluster" if before != after => Self {
                effect: Effect::InPlace,
                ..nothing
            },
            "credential" if before["purpose"] == "stack" => Self {
                effect: Effect::InPlace,
                ..nothing
            },
            // DHCP, the next power act, the next inspection or the next gates show the change.
            "hardware_profile" if before != after => Self {
                gated: true,
                direct: true,
                ..nothing
            },
            "rack" | "subnet" if before != after => Self {
                direct: true,
                ..nothing
            },
            // A spec does not show the secret.
            "credential" => Self {
                direct: true,
                ..nothing
            },
            _ => nothing,
        })
    }

    fn costing(effect: Option<Effect>) -> Self {
        let effect = effect.unwrap_or(Effect::None);
        Self {
            effect,
            gated: effect != Effect::None,
            direct: false,
        }
    }

    /// Completes the plan of the object with this id: affected nodes, gates and findings.
    pub(super) async fn complete(
        self,
        conn: &mut PgConnection,
        actor: &Actor,
        id: &str,
        planned: PlannedObject,
    ) -> Result<PlannedObject, Error> {
        if self.effect == Effect::None && !self.gated && !self.direct {
            return Ok(planned);
        }
        let id = id.parse().map_err(Error::internal)?;
        if self.direct {
            let (nodes, node_count) = db::dependents::list_nodes_of(conn, id, NAMED).await?;
            let mut gates = Vec::new();
            if self.gated && node_count > 0 {
                let pools = db::plans::list_pools(conn, id).await?;
                gates = list_gates(conn, &pools).await?;
            }
            // A scope with labels may have a rack without the rack's nodes.
            return Ok(PlannedObject {
                nodes: actor.keep_readable(conn, nodes, usize::MAX).await?,
                node_count,
                gates,
                ..planned
            });
        }
        let pools = db::plans::list_pools(conn, id).await?;
        let (nodes, node_count) = db::plans::list_held(conn, &pools, NAMED).await?;
        if node_count == 0 {
            return Ok(planned);
        }
        let gates = if self.gated {
            list_gates(conn, &pools).await?
        } else {
            Vec::new()
        };
        let onto = if self.effect >= Effect::Reinstall {
            Onto::Image
        } else {
            Onto::System
        };
        let findings = match self.effect {
            Effect::None => Vec::new(),
            _ => fit::check_held(conn, &nodes, onto).await?,
        };
        Ok(PlannedObject {
            effect: self.effect.to_string(),
            begins: planned.begins || self.is_rolled_out(conn, &planned.kind, &pools).await?,
            nodes,
            node_count,
            gates,
            findings,
            ..planned
        })
    }

    /// Returns whether a rollout of one of the pools starts by itself after the write, which the
    /// transaction has made.
    async fn is_rolled_out(
        &self,
        conn: &mut PgConnection,
        kind: &str,
        pools: &[ObjectId],
    ) -> Result<bool, Error> {
        let is_revised = matches!(kind, "image" | "stack" | "network_profile" | "pool");
        if !is_revised || !RolloutPolicy::default().allow.permits(self.effect) {
            return Ok(false);
        }
        for pool in pools {
            let due = db::due_rollouts::find(conn, *pool).await?;
            if due.is_some_and(|due| due.reason_code.is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

async fn of_pool(
    conn: &mut PgConnection,
    before: &PoolSpec,
    after: &PoolSpec,
) -> Result<Reach, Error> {
    let mut effect = if before.cluster == after.cluster {
        Effect::None
    } else {
        Effect::InPlace
    };
    if before.stack != after.stack {
        let old = find_spec::<StackSpec>(conn, "stack", &before.stack).await?;
        let new = find_spec::<StackSpec>(conn, "stack", &after.stack).await?;
        effect = effect.max(
            old.zip(new)
                .map_or(Effect::None, |(old, new)| diff::effect_of(&old, &new)),
        );
    }
    if before.image != after.image {
        let old = find_spec::<ImageManifest>(conn, "image", &before.image).await?;
        let new = find_spec::<ImageManifest>(conn, "image", &after.image).await?;
        effect = effect.max(
            old.zip(new)
                .map_or(Effect::None, |(old, new)| effects::of_image(&old, &new)),
        );
    }
    if before.network_profile != after.network_profile {
        effect = effect.max(Effect::Reinstall);
    }
    Ok(Reach {
        effect,
        gated: effect != Effect::None || before.suite != after.suite,
        direct: false,
    })
}

/// Adds the nodes the pool would then claim for its `replicas`. The plan names only nodes inside
/// the actor's read scope.
pub(super) async fn add_new_claims(
    conn: &mut PgConnection,
    actor: &Actor,
    planned: PlannedObject,
) -> Result<PlannedObject, Error> {
    let Some(pool) = db::objects::find(conn, PoolSpec::KIND, &planned.name).await? else {
        return Ok(planned);
    };
    let coming = replicas::next_nodes(conn, &pool).await?;
    if coming.is_empty() {
        return Ok(planned);
    }
    let effect = planned
        .effect
        .parse()
        .unwrap_or(Effect::None)
        .max(Effect::Reinstall)
        .to_string();
    let gates = list_gates(conn, &[pool.id]).await?;
    let claims = u32::try_from(coming.len()).unwrap_or(u32::MAX);
    let node_count = planned.node_count + i64::from(claims);
    let mut nodes = planned.nodes.clone();
    for name in coming {
        if actor.find_node(conn, &name).await?.is_some() {
            nodes.push(name);
        }
    }
    let mut findings = fit::check_coming(conn, &nodes[planned.nodes.len()..], &pool).await?;
    findings.splice(0..0, planned.findings.clone());
    nodes.truncate(usize::try_from(NAMED).unwrap_or(usize::MAX));
    Ok(PlannedObject {
        effect,
        begins: true,
        nodes,
        node_count,
        gates,
        findings,
        claims,
        ..planned
    })
}

/// Lists the gates of the suites named by the pools.
pub(super) async fn list_gates(
    conn: &mut PgConnection,
    pools: &[ObjectId],
) -> Result<Vec<String>, Error> {
    let mut gates = Vec::new();
    for suite in db::plans::list_suites(conn, pools).await? {
        // Skip an unreadable suite; reading the suite itself reports the error.
        let Ok(suite) = document::stored_spec::<Suite>(&suite) else {
            continue;
        };
        gates.extend(
            suite
                .gates
                .into_iter()
                .map(|gate| gate.id)
                .filter(|id| !gates.contains(id))
                .collect::<Vec<_>>(),
        );
    }
    Ok(gates)
}

/// Parses both specs. Returns `None` for a malformed spec, because the write reports the error.
fn parse_both<T: DeserializeOwned>(before: &Value, after: &Value) -> Option<(T, T)> {
    T::deserialize(before).ok().zip(T::deserialize(after).ok())
}

async fn find_spec<T: DeserializeOwned>(
    conn: &mut PgConnection,
    kind: &str,
    name: &str,
) -> Result<Option<T>, Error> {
    let row = db::objects::find(conn, kind, name).await?;
    Ok(row.and_then(|row| T::deserialize(&row.spec).ok()))
}

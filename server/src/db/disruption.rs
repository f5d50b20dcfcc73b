//! The ledger of disruption, read from the rows: the members of a pool and of a node's failure
//! domains, and the locks under which a slot is taken. The budgets are checked in `core/rollout`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_api::pools::DEFAULT_MAX_UNAVAILABLE;
use muster_core::clusters::slurm::OUR_REASON;
use muster_core::ids::{ClaimId, NodeId, ObjectId, OperationId};
use muster_core::lifecycle::state::{Action, State};
use muster_core::lifecycle::wait::WaitReason;
use muster_core::rollout::{
    Amount, DomainAxis, DomainSource, Member, NodePlace, Service, list_domains,
};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::objects::Labels;
use crate::error::Error;

/// Nodes made due when a slot becomes free: the longest waiting ones. Further nodes ask again by
/// themselves.
const WOKEN: i64 = 8;

/// The budgets that apply to nodes of a pool at a site.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// The declared budget of the pool, or the default.
    pub max_unavailable: Amount,
    pub axes: Vec<DomainAxis>,
}

struct BudgetsRow {
    max: Option<Json<Option<Amount>>>,
    axes: Option<Json<Option<Vec<DomainAxis>>>>,
}

impl From<BudgetsRow> for Budgets {
    fn from(row: BudgetsRow) -> Self {
        Self {
            max_unavailable: row
                .max
                .and_then(|json| json.0)
                .unwrap_or(DEFAULT_MAX_UNAVAILABLE),
            axes: row.axes.and_then(|json| json.0).unwrap_or_default(),
        }
    }
}

/// The pool and the site of a claimed node, and the values behind the node's failure domains.
#[derive(Clone, Debug)]
pub struct PlaceRow {
    pub node: NodeId,
    pub pool: ObjectId,
    pub site: ObjectId,
    pub rack: Option<String>,
    pub rack_labels: Option<Labels>,
    pub labels: Labels,
}

impl PlaceRow {
    /// Returns the node's failure domains.
    pub fn domains(&self, axes: &[DomainAxis]) -> BTreeSet<String> {
        let place = NodePlace {
            rack: self.rack.as_deref(),
            rack_labels: self.rack_labels.as_ref().map(|labels| &labels.0),
            labels: &self.labels.0,
        };
        list_domains(axes, place)
    }
}

/// A member of a pool or of a failure domain, with the facts behind its service.
#[derive(Clone, Debug)]
pub struct MemberRow {
    pub node: NodeId,
    pub name: String,
    pub claim: String,
    pub in_pool: bool,
    pub state: State,
    pub entered_at: Timestamp,
    pub reason: Option<String>,
    pub served: bool,
    /// Muster holds back the scheduler's jobs for a measurement.
    pub held: bool,
    /// The scheduler gives the node in service no jobs: the scheduler's state and reason. Outside
    /// service the drain may be Muster's own.
    pub out: Option<String>,
    pub written_off_until: Option<jiff_sqlx::Timestamp>,
    pub written_off_reason: Option<String>,
    pub written_off_by: Option<String>,
    pub site: ObjectId,
    pub site_name: String,
    pub pool_name: String,
    pub rack: Option<String>,
    pub rack_labels: Option<Labels>,
    pub labels: Labels,
}

impl MemberRow {
    /// Returns the member as the ledger of a site reads it.
    pub fn member(&self, site: ObjectId, axes: &[DomainAxis]) -> Member {
        let place = NodePlace {
            rack: self.rack.as_deref(),
            rack_labels: self.rack_labels.as_ref().map(|labels| &labels.0),
            labels: &self.labels.0,
        };
        let axes = if self.site == site { axes } else { &[] };
        Member {
            node: self.node,
            in_pool: self.in_pool,
            domains: list_domains(axes, place),
            service: self.service(),
            others_drain: self.out.clone(),
            written_off_until: self.written_off_until.map(|until| until.to_jiff()),
        }
    }

    /// Returns the service of the claim.
    pub fn service(&self) -> Service {
        find_service(self.state, self.served, self.held)
    }
}

/// Returns the service of a claim from the state of its node. `served`: the claim was in service
/// before; `held`: Muster holds back the scheduler's jobs for a measurement. A node at rest outside
/// service is out; a node in any other state outside service was taken out by an act that is under
/// way.
pub(super) fn find_service(state: State, served: bool, held: bool) -> Service {
    match state {
        State::InService if held => Service::Taken,
        State::InService => Service::Serving,
        _ if !served => Service::Joining,
        state if state.is_resting() => Service::Out,
        _ => Service::Taken,
    }
}

/// Counts the claimed nodes of a pool. A claim under release has no member.
pub async fn count_members(conn: &mut PgConnection, pool: ObjectId) -> Result<usize, Error> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM claims WHERE pool_id = $1 AND state = 'bound'"#,
        pool as ObjectId,
    )
    .fetch_one(conn)
    .await?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Lists the places of claimed nodes.
pub async fn list_places(
    conn: &mut PgConnection,
    nodes: &[NodeId],
) -> Result<Vec<PlaceRow>, Error> {
    let ids: Vec<Uuid> = nodes.iter().map(|id| id.0).collect();
    Ok(sqlx::query_as!(
        PlaceRow,
        r#"SELECT n.id AS "node: NodeId", c.pool_id AS "pool: ObjectId", n.site_id AS "site: ObjectId",
                  rack.name AS "rack?", rack.labels AS "rack_labels?: Labels", n.labels AS "labels: Labels"
           FROM nodes n JOIN claims c ON c.node_id = n.id AND c.state <> 'released' LEFT JOIN objects rack ON rack.id = n.rack_id
           WHERE n.id = ANY ($1) ORDER BY n.id"#,
        &ids,
    )
    .fetch_all(conn)
    .await?)
}

/// Returns the budgets as declared now.
///
/// # Errors
/// When the stored budget of the pool or of the site cannot be parsed.
pub async fn find_budgets(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: ObjectId,
) -> Result<Option<Budgets>, Error> {
    let row = sqlx::query_as!(
        BudgetsRow,
        r#"SELECT pool.spec -> 'max_unavailable' AS "max: Json<Option<Amount>>",
                  site.spec -> 'failure_domains' AS "axes: Json<Option<Vec<DomainAxis>>>"
           FROM objects pool, objects site WHERE pool.id = $1 AND site.id = $2"#,
        pool as ObjectId,
        site as ObjectId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Budgets::from))
}

/// Returns the budgets, unchanged until the transaction ends. `None`: a writer holds the pool or the
/// site. The query never waits for the writer, because the writer may wait for the caller's node.
///
/// # Errors
/// When the stored budget of the pool or of the site cannot be parsed.
pub async fn hold_budgets(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: ObjectId,
) -> Result<Option<Budgets>, Error> {
    let row = sqlx::query_as!(
        BudgetsRow,
        r#"SELECT pool.spec -> 'max_unavailable' AS "max: Json<Option<Amount>>",
                  site.spec -> 'failure_domains' AS "axes: Json<Option<Vec<DomainAxis>>>"
           FROM objects pool, objects site WHERE pool.id = $1 AND site.id = $2 FOR SHARE SKIP LOCKED"#,
        pool as ObjectId,
        site as ObjectId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Budgets::from))
}

/// Locks the accounts of a pool and of failure domains until the transaction ends: the pool first,
/// then the domains in the order of their ids. A domain has no row, so the locks are advisory.
pub async fn lock(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: ObjectId,
    domains: &BTreeSet<String>,
) -> Result<(), Error> {
    let mut keys = vec![format!("muster disruption pool {pool}")];
    keys.extend(
        domains
            .iter()
            .map(|id| format!("muster disruption domain {site} {id}")),
    );
    for key in keys {
        sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

/// Values that select the nodes of failure domains.
#[derive(Clone, Debug, Default)]
struct Selectors {
    racks: Vec<String>,
    rack_labels: Vec<Json<BTreeMap<String, String>>>,
    labels: Vec<Json<BTreeMap<String, String>>>,
}

impl Selectors {
    fn new(axes: &[DomainAxis], domains: &BTreeSet<String>) -> Self {
        let mut selectors = Self::default();
        for (name, value) in domains.iter().filter_map(|id| id.split_once(':')) {
            let Some(axis) = axes.iter().find(|axis| axis.name == name) else {
                continue;
            };
            let label = || {
                Json(BTreeMap::from([(
                    axis.label().to_owned(),
                    value.to_owned(),
                )]))
            };
            match axis.source {
                DomainSource::Rack => selectors.racks.push(value.to_owned()),
                DomainSource::RackLabel => selectors.rack_labels.push(label()),
                DomainSource::NodeLabel => selectors.labels.push(label()),
            }
        }
        selectors
    }
}

/// Lists the claimed nodes of a pool, and the claimed nodes of other pools in the failure domains of
/// a site, ordered by name. A claim under release has no member. Until the scheduler's next look, a
/// node back in service is known by its last state before the return; a drain of Muster ended there.
pub async fn list_members(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: Option<ObjectId>,
    axes: &[DomainAxis],
    domains: &BTreeSet<String>,
) -> Result<Vec<MemberRow>, Error> {
    let selectors = Selectors::new(axes, domains);
    let nodes = list_nodes(conn, pool, site, &selectors, true).await?;
    load_members(conn, pool, &nodes).await
}

/// Lists the claimed nodes of other pools in the failure domains of a site, as [`list_members`].
pub async fn list_neighbours(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: ObjectId,
    axes: &[DomainAxis],
    domains: &BTreeSet<String>,
) -> Result<Vec<MemberRow>, Error> {
    let selectors = Selectors::new(axes, domains);
    let nodes = list_nodes(conn, pool, Some(site), &selectors, false).await?;
    load_members(conn, pool, &nodes).await
}

/// The members of a pool and of failure domains, without a row for each serving node of the pool.
#[derive(Clone, Debug)]
pub struct CountedMembers {
    /// The nodes of the acts, all nodes of the domains, and the nodes of the pool that may be out.
    pub rows: Vec<MemberRow>,
    /// Further nodes of the pool. All serve, and none belongs to one of the domains.
    pub serving: u32,
}

/// Lists the members that decide about acts on some nodes of a pool, and counts the other members of
/// the pool. Among 10,000 nodes, few are out or in the domains of an act.
pub async fn count_for_acts(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: ObjectId,
    axes: &[DomainAxis],
    domains: &BTreeSet<String>,
    nodes: &[NodeId],
) -> Result<CountedMembers, Error> {
    let selectors = Selectors::new(axes, domains);
    let nodes: Vec<Uuid> = nodes.iter().map(|id| id.0).collect();
    let found = sqlx::query!(
        r#"WITH near AS (
               SELECT n.id FROM nodes n LEFT JOIN objects rack ON rack.id = n.rack_id
               WHERE n.site_id = $2 AND (rack.name = ANY ($3) OR rack.labels @> ANY ($4::jsonb[]) OR n.labels @> ANY ($5::jsonb[]))),
           listed AS (
               SELECT id FROM near
               UNION ALL SELECT n.id FROM nodes n JOIN claims c ON c.node_id = n.id AND c.pool_id = $1 AND c.state = 'bound'
                         WHERE n.state <> 'in_service' OR n.held_back OR n.id = ANY ($6)
               UNION ALL SELECT node_id FROM scheduler_outs
               UNION ALL SELECT node_id FROM pair_ends WHERE back_at IS NULL)
           SELECT COALESCE(array_agg(c.node_id), '{}') AS "nodes!",
                  (SELECT count(*) FROM claims WHERE pool_id = $1 AND state = 'bound') - count(*) FILTER (WHERE c.pool_id = $1) AS "serving!"
           FROM claims c
           WHERE c.state = 'bound' AND c.node_id IN (SELECT id FROM listed) AND (c.pool_id = $1 OR c.node_id IN (SELECT id FROM near))"#,
        pool as ObjectId,
        site as ObjectId,
        &selectors.racks,
        &selectors.rack_labels as _,
        &selectors.labels as _,
        &nodes,
    )
    .fetch_one(&mut *conn)
    .await?;
    Ok(CountedMembers {
        rows: load_members(conn, pool, &found.nodes).await?,
        serving: u32::try_from(found.serving).unwrap_or_default(),
    })
}

async fn list_nodes(
    conn: &mut PgConnection,
    pool: ObjectId,
    site: Option<ObjectId>,
    selectors: &Selectors,
    with_pool: bool,
) -> Result<Vec<Uuid>, Error> {
    Ok(sqlx::query_scalar!(
        "SELECT n.id
           FROM claims c JOIN nodes n ON n.id = c.node_id LEFT JOIN objects rack ON rack.id = n.rack_id
           WHERE c.state = 'bound' AND (c.pool_id = $1 OR (n.site_id = $2 AND (
                     rack.name = ANY ($3) OR rack.labels @> ANY ($4::jsonb[]) OR n.labels @> ANY ($5::jsonb[]))))
                 AND ($6 OR c.pool_id <> $1)",
        pool as ObjectId,
        site as Option<ObjectId>,
        &selectors.racks,
        &selectors.rack_labels as _,
        &selectors.labels as _,
        with_pool,
    )
    .fetch_all(conn)
    .await?)
}

/// Loads the members among some nodes, ordered by name.
async fn load_members(
    conn: &mut PgConnection,
    pool: ObjectId,
    nodes: &[Uuid],
) -> Result<Vec<MemberRow>, Error> {
    Ok(sqlx::query_as!(
        MemberRow,
        r#"SELECT n.id AS "node: NodeId", n.name, c.name AS claim, c.pool_id = $1 AS "in_pool!", n.state, n.entered_at, n.reason,
                  c.served_at IS NOT NULL AS "served!",
                  n.held_back OR EXISTS (SELECT FROM pair_ends e WHERE e.node_id = n.id AND e.back_at IS NULL) AS "held!",
                  CASE WHEN o.node_id IS NOT NULL AND n.state = 'in_service' AND (starts_with(o.reason, $3) AND o.seen_at <= n.entered_at) IS NOT TRUE
                       THEN concat_ws(': ', o.state, o.reason) END AS out,
                  c.written_off_until, c.written_off_reason, c.written_off_by,
                  n.site_id AS "site: ObjectId", site.name AS site_name, pool.name AS pool_name, rack.name AS "rack?", rack.labels AS "rack_labels?: Labels", n.labels AS "labels: Labels"
           FROM claims c JOIN nodes n ON n.id = c.node_id JOIN objects site ON site.id = n.site_id JOIN objects pool ON pool.id = c.pool_id
                LEFT JOIN objects rack ON rack.id = n.rack_id LEFT JOIN scheduler_outs o ON o.node_id = n.id
           WHERE c.state = 'bound' AND c.node_id = ANY ($2)
           ORDER BY n.name"#,
        pool as ObjectId,
        nodes,
        OUR_REASON,
    )
    .fetch_all(conn)
    .await?)
}

/// A node waiting for a slot.
#[derive(Clone, Debug)]
pub struct WaitRow {
    pub node: NodeId,
    pub name: String,
    pub action: Option<Action>,
    pub operation: Option<OperationId>,
    pub since: Option<jiff_sqlx::Timestamp>,
    pub detail: String,
}

/// Lists the nodes of a pool waiting for a slot, the longest wait first.
pub async fn list_waiting(
    conn: &mut PgConnection,
    pool: ObjectId,
    limit: i64,
) -> Result<Vec<WaitRow>, Error> {
    Ok(sqlx::query_as!(
        WaitRow,
        r#"SELECT n.id AS "node: NodeId", n.name, n.wish AS "action: Action", CASE WHEN n.wish IS NOT NULL THEN n.operation_id END AS "operation: OperationId",
                  n.waiting_since AS since, COALESCE(n.waiting_for, '') AS "detail!"
           FROM nodes n JOIN claims c ON c.node_id = n.id AND c.state = 'bound'
           WHERE c.pool_id = $1 AND n.waiting_reason = $2 ORDER BY n.waiting_since, n.name LIMIT $3"#,
        pool as ObjectId,
        WaitReason::Slot.as_str(),
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Makes the longest waiting nodes of a node's pool due. Nodes locked by others are skipped, and ask
/// again by themselves.
pub async fn wake_waiting(
    conn: &mut PgConnection,
    node: NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "WITH waiting AS (
             SELECT n.id FROM nodes n JOIN claims c ON c.node_id = n.id AND c.state = 'bound'
             WHERE n.waiting_reason = $2 AND n.id <> $1
               AND c.pool_id = (SELECT pool_id FROM claims WHERE node_id = $1 AND state <> 'released')
             ORDER BY n.waiting_since LIMIT $4 FOR NO KEY UPDATE OF n SKIP LOCKED)
         UPDATE nodes SET due_at = LEAST(COALESCE(due_at, $3), $3) FROM waiting WHERE nodes.id = waiting.id",
        node as NodeId,
        WaitReason::Slot.as_str(),
        now.to_sqlx() as _,
        WOKEN,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes a claim's node off until a time, or ends the write-off.
pub async fn set_write_off(
    conn: &mut PgConnection,
    claim: ClaimId,
    until: Option<Timestamp>,
    reason: &str,
    by: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE claims SET written_off_until = $2, written_off_reason = CASE WHEN $2::timestamptz IS NOT NULL THEN $3 END,
                written_off_by = CASE WHEN $2::timestamptz IS NOT NULL THEN $4 END, updated_at = $5
         WHERE id = $1",
        claim as ClaimId,
        until.map(|until| until.to_sqlx()) as _,
        reason,
        by,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns whether the scheduler gives a node in service no jobs.
pub async fn is_out_of_jobs(conn: &mut PgConnection, node: NodeId) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT FROM scheduler_outs o JOIN nodes n ON n.id = o.node_id AND n.state = 'in_service'
               WHERE n.id = $1 AND (starts_with(o.reason, $2) AND o.seen_at <= n.entered_at) IS NOT TRUE) AS "out!""#,
        node as NodeId,
        OUR_REASON,
    )
    .fetch_one(conn)
    .await?)
}

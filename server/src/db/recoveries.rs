//! Recoveries: the rungs tried on failed nodes, and the counts that bound further recoveries.

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::{NodeId, ObjectId, OperationId};
use muster_core::recovery::{Cause, Ended, Out, Recovery, Rung, Seen, Tried, UNMENDED_S, WINDOW_S};
use muster_core::words::UnknownWord;
use serde::Deserialize;
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Error;

/// The row of a recovery under way, as loaded with its node.
#[derive(Clone, Debug, Deserialize)]
pub struct OpenRecovery {
    id: Uuid,
    signature: String,
    what: String,
    answers: bool,
    asked: bool,
    rungs: Vec<String>,
    tried: i32,
}

impl OpenRecovery {
    /// Returns the id, and the recovery as input for a decision.
    ///
    /// # Errors
    /// When the row contains an unknown rung.
    pub fn opened(self) -> Result<(Uuid, Recovery), UnknownWord> {
        let Self {
            id,
            signature,
            what,
            answers,
            asked,
            rungs,
            tried,
        } = self;
        let rungs = rungs
            .iter()
            .map(|rung| rung.parse())
            .collect::<Result<_, _>>()?;
        let cause = Cause {
            signature,
            what,
            answers,
            asked,
            action: None,
        };
        Ok((
            id,
            Recovery {
                cause,
                rungs,
                tried: usize::try_from(tried).unwrap_or(0),
            },
        ))
    }
}

/// Inserts a new recovery and returns its id.
pub async fn insert(
    conn: &mut PgConnection,
    node: NodeId,
    cause: &Cause,
    rungs: &[Rung],
    now: Timestamp,
) -> Result<Uuid, Error> {
    let id = Uuid::now_v7();
    let rungs: Vec<String> = rungs.iter().map(|rung| rung.as_str().to_owned()).collect();
    let signature: String = cause.signature.chars().take(200).collect();
    sqlx::query!(
        "INSERT INTO recoveries (id, node_id, signature, what, answers, asked, rungs, begun_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        id,
        node as NodeId,
        signature,
        cause.what,
        cause.answers,
        cause.asked,
        &rungs,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(id)
}

/// Records the outcomes of rungs and advances the number of tried rungs. Ends the recovery if
/// `ended` is given.
pub async fn record_rungs(
    conn: &mut PgConnection,
    recovery: Uuid,
    tried: Option<usize>,
    went: &[Tried],
    ended: Option<Ended>,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE recoveries SET tried = LEAST(COALESCE($2, tried + $3), cardinality(rungs)), went = went || $4, ended = $5,
                ended_at = CASE WHEN $5::text IS NULL THEN NULL ELSE $6::timestamptz END
         WHERE id = $1 AND ended_at IS NULL",
        recovery,
        tried.map(|tried| i32::try_from(tried).unwrap_or(i32::MAX)),
        i32::try_from(went.len()).unwrap_or(0),
        Json(went) as _,
        ended.map(Ended::as_str),
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records the time at which a recovery begins to write the root disk anew.
pub async fn set_reimaged(
    conn: &mut PgConnection,
    recovery: Uuid,
    now: Timestamp,
) -> Result<(), Error> {
    sqlx::query!(
        "UPDATE recoveries SET reimaged_at = $2 WHERE id = $1",
        recovery,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The pool of a node, with the pool's hourly limit of erasures as stored.
#[derive(Clone, Debug)]
pub struct PoolLimit {
    pub id: ObjectId,
    pub name: String,
    pub releases_per_hour: Option<Value>,
}

/// Returns the pool of a node's claim, with the limit.
pub async fn find_pool_limit(
    conn: &mut PgConnection,
    node: NodeId,
) -> Result<Option<PoolLimit>, Error> {
    Ok(sqlx::query_as!(
        PoolLimit,
        r#"SELECT p.id AS "id: ObjectId", p.name, p.spec -> 'releases_per_hour' AS releases_per_hour
           FROM claims c JOIN objects p ON p.id = c.pool_id WHERE c.node_id = $1 AND c.state <> 'released'"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?)
}

/// Returns whether a ladder of the node ended at the rung `rma` at or after a time.
pub async fn returns_to_maker(
    conn: &mut PgConnection,
    node: NodeId,
    since: Timestamp,
) -> Result<bool, Error> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT FROM recoveries
               WHERE node_id = $1 AND ended = 'spent' AND ended_at >= $2 AND went @> '[{"rung": "rma", "outcome": "done"}]') AS "returns!""#,
        node as NodeId,
        since.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Serializes the start of recoveries until the transaction ends. Two transactions counting at once
/// could both start the last allowed recovery.
pub async fn one_at_a_time(conn: &mut PgConnection) -> Result<(), Error> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtextextended('muster recoveries', 0))")
        .execute(conn)
        .await?;
    Ok(())
}

/// Returns the name of the breaker belonging to one pool.
pub fn breaker_of_pool(signature: &str, pool: &str) -> String {
    format!("{signature} in pool {pool}")
}

/// The node and the signature of a count.
struct Subject<'text> {
    node: NodeId,
    signature: &'text str,
    /// The pool of the node's claim.
    pool: Option<Uuid>,
    /// The breaker of the pool.
    breaker_of_pool: Option<String>,
    now: Timestamp,
}

/// Other nodes with failures of the signature since the breaker's reset.
struct Failures {
    same_way: i64,
    unmended: i64,
    same_way_of_pool: i64,
    unmended_of_pool: i64,
}

/// Current recoveries and claims, and open breakers.
struct Totals {
    on_node: i64,
    under_way: i64,
    held: i64,
    held_by_pool: i64,
    open: bool,
    open_of_pool: bool,
}

/// Counts the other nodes with failures of the signature. A node counts as unrepaired until it is
/// in service again or leaves the pool. A node sent straight to the manufacturer (RMA) by the
/// driver is not counted, because the fault is known.
async fn count_failures(conn: &mut PgConnection, of: &Subject<'_>) -> Result<Failures, Error> {
    Ok(sqlx::query_as!(
        Failures,
        r#"WITH reset AS (
               SELECT max(closed_at) FILTER (WHERE signature = $2) AS fleet, max(closed_at) AS pool FROM breakers WHERE signature IN ($2, $3)),
           failed AS (
               SELECT DISTINCT ON (r.node_id) r.begun_at, c.pool_id = $4 AS of_pool,
                      r.begun_at > $5 AS same_way,
                      r.ended IS DISTINCT FROM 'recovered' AND c.pool_id IS NOT NULL AND n.state <> 'in_service'
                          AND (r.went -> -1 ->> 'rung' IS DISTINCT FROM 'rma' OR r.went @? '$[*] ? (@.rung != "rma" && @.rung != "collect" && @.outcome != "skipped")') AS unmended
               FROM recoveries r JOIN nodes n ON n.id = r.node_id LEFT JOIN claims c ON c.node_id = n.id AND c.state <> 'released'
               WHERE r.signature = $2 AND r.node_id <> $1 AND r.begun_at > $6 ORDER BY r.node_id, r.begun_at DESC)
           SELECT count(*) FILTER (WHERE same_way AND begun_at > COALESCE(reset.fleet, $6)) AS "same_way!",
                  count(*) FILTER (WHERE unmended AND begun_at > COALESCE(reset.fleet, $6)) AS "unmended!",
                  count(*) FILTER (WHERE same_way AND of_pool AND begun_at > COALESCE(reset.pool, $6)) AS "same_way_of_pool!",
                  count(*) FILTER (WHERE unmended AND of_pool AND begun_at > COALESCE(reset.pool, $6)) AS "unmended_of_pool!"
           FROM reset LEFT JOIN failed ON true"#,
        of.node as NodeId,
        of.signature,
        of.breaker_of_pool.as_deref(),
        of.pool,
        seconds_before(of.now, WINDOW_S) as _,
        seconds_before(of.now, UNMENDED_S) as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Counts the recoveries and claims that bound a recovery. Shares are computed over the nodes held
/// by pools, so that a pool in its first installation has a base. A recovery held back without a
/// rung is not counted for the node.
async fn count_totals(
    conn: &mut PgConnection,
    of: &Subject<'_>,
    within_h: u32,
) -> Result<Totals, Error> {
    Ok(sqlx::query_as!(
        Totals,
        r#"SELECT (SELECT count(*) FROM recoveries WHERE node_id = $1 AND NOT asked AND begun_at > $2
                     AND (ended IS DISTINCT FROM 'held_back' OR rungs <> '{}')) AS "on_node!",
                  (SELECT count(*) FROM recoveries WHERE ended_at IS NULL AND node_id <> $1) AS "under_way!",
                  (SELECT count(*) FROM claims WHERE state = 'bound') AS "held!",
                  (SELECT count(*) FROM claims WHERE pool_id = $3 AND state = 'bound') AS "held_by_pool!",
                  EXISTS (SELECT FROM breakers WHERE signature = $4 AND closed_at IS NULL AND (closes_at IS NULL OR closes_at > $6)) AS "open!",
                  EXISTS (SELECT FROM breakers WHERE signature = $5 AND closed_at IS NULL AND (closes_at IS NULL OR closes_at > $6)) AS "open_of_pool!""#,
        of.node as NodeId,
        seconds_before(of.now, i64::from(within_h) * 3600) as _,
        of.pool,
        of.signature,
        of.breaker_of_pool.as_deref(),
        of.now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

fn seconds_before(now: Timestamp, seconds: i64) -> jiff_sqlx::Timestamp {
    (now - SignedDuration::from_secs(seconds)).to_sqlx()
}

/// Returns the counts behind the bounds of a recovery for a node and a signature, and the name of
/// the node's pool.
pub async fn count_seen(
    conn: &mut PgConnection,
    node: NodeId,
    signature: &str,
    within_h: u32,
    now: Timestamp,
) -> Result<(Seen, Option<String>), Error> {
    let pool = sqlx::query!(
        "SELECT pool.id, pool.name FROM claims c JOIN objects pool ON pool.id = c.pool_id WHERE c.node_id = $1 AND c.state <> 'released'",
        node as NodeId,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let subject = Subject {
        node,
        signature,
        pool: pool.as_ref().map(|pool| pool.id),
        breaker_of_pool: pool
            .as_ref()
            .map(|pool| breaker_of_pool(signature, &pool.name)),
        now,
    };
    let failures = count_failures(conn, &subject).await?;
    let totals = count_totals(conn, &subject, within_h).await?;
    let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let seen = Seen {
        on_node: count(totals.on_node),
        under_way: count(totals.under_way),
        fleet: Out {
            same_way: count(failures.same_way),
            unmended: count(failures.unmended),
            held: count(totals.held),
            open: totals.open,
        },
        pool: Out {
            same_way: count(failures.same_way_of_pool),
            unmended: count(failures.unmended_of_pool),
            held: count(totals.held_by_pool),
            open: totals.open_of_pool,
        },
    };
    Ok((seen, pool.map(|pool| pool.name)))
}

/// A recovery as shown to people.
#[derive(Clone, Debug)]
pub struct RecoveryRow {
    pub id: Uuid,
    pub signature: String,
    pub what: String,
    pub asked: bool,
    pub rungs: Vec<String>,
    pub tried: i32,
    pub went: Json<Vec<Tried>>,
    pub begun_at: Timestamp,
    pub ended_at: Option<jiff_sqlx::Timestamp>,
    pub ended: Option<Ended>,
    /// The operation of the node, for a recovery under way.
    pub operation: Option<OperationId>,
}

/// Lists the recoveries of a node, newest first.
pub async fn list(
    conn: &mut PgConnection,
    node: NodeId,
    limit: i64,
) -> Result<Vec<RecoveryRow>, Error> {
    Ok(sqlx::query_as!(RecoveryRow, r#"SELECT r.id, r.signature, r.what, r.asked, r.rungs, r.tried, r.went AS "went: Json<Vec<Tried>>", r.begun_at, r.ended_at, r.ended,
                  o.id AS "operation?: OperationId"
           FROM recoveries r JOIN nodes n ON n.id = r.node_id
           LEFT JOIN operations o ON o.id = n.operation_id AND o.finished_at IS NULL AND r.ended_at IS NULL
           WHERE r.node_id = $1 ORDER BY r.begun_at DESC, r.id DESC LIMIT $2"#,
        node as NodeId,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Lists recoveries by id. Deleted ids are left out.
pub async fn list_by_id(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<RecoveryRow>, Error> {
    Ok(sqlx::query_as!(RecoveryRow, r#"SELECT r.id, r.signature, r.what, r.asked, r.rungs, r.tried, r.went AS "went: Json<Vec<Tried>>", r.begun_at, r.ended_at, r.ended,
                  o.id AS "operation?: OperationId"
           FROM recoveries r JOIN nodes n ON n.id = r.node_id
           LEFT JOIN operations o ON o.id = n.operation_id AND o.finished_at IS NULL AND r.ended_at IS NULL
           WHERE r.id = ANY ($1)"#, ids,)
        .fetch_all(conn)
        .await?)
}

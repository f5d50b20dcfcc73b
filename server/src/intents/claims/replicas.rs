//! Claims created by the server for a pool, up to the number in `spec.replicas`. Such a claim works
//! like a claim created by a person. Lowering the number releases no claim: people release the
//! surplus.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_api::claims::ClaimSpec;
use muster_api::pools::{PoolReplicas, PoolSpec};
use muster_core::claims::WaitFor;
use muster_core::ids::ClaimId;
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::db::claims::Fits;
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::intents::claims::create::{self, Draft};
use crate::{db, document};

/// Claims created in one transaction; later transactions create the rest.
const BATCH: i64 = 20;

/// Creates the pool's missing claims, as far as nodes are available. Returns the number of new
/// claims. The caller holds the pool's lock, so that no other transaction fills the pool.
///
/// # Errors
/// When the database fails.
pub(crate) async fn create_missing(
    conn: &mut PgConnection,
    app: &App,
    pool: &ObjectRow,
) -> Result<i64, Error> {
    let missing = requested_count(pool)? - db::replicas::count(conn, pool.id).await?.claimed;
    let labels = BTreeMap::new();
    let fits = build_filter(conn, pool, &labels).await?;
    let now = app.clock.now();
    if is_cautious(conn, pool).await? || find_unsigned(conn, pool, now).await?.is_some() {
        return Ok(0);
    }
    let mut made = 0;
    while made < missing.min(BATCH) {
        let Some(node) = create::lock_any(conn, &fits).await? else {
            break;
        };
        let id = ClaimId::new();
        let spec = ClaimSpec::new(pool.name.clone(), None, Some(BTreeMap::new()));
        let draft = Draft {
            id,
            name: &create::generate_name(&pool.name, id),
            spec: serde_json::to_value(spec).map_err(Error::internal)?,
            wait_for: WaitFor::default(),
            hold: false,
            replica: true,
        };
        create::bind(conn, app, &Actor::muster(), &node, draft, pool).await?;
        made += 1;
    }
    if made >= missing {
        end_shortage(conn, pool, now).await?;
    } else if db::claims::list_available(conn, &fits, 1).await?.is_empty() {
        // A node locked by another transaction is still listed: the shortage begins only when no
        // available node is left.
        begin_shortage(conn, pool, missing - made, now).await?;
    }
    Ok(made)
}

/// Counts the present and missing replicas of a pool; `None` for a pool without `replicas`.
///
/// # Errors
/// When the database fails.
pub async fn describe(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    now: Timestamp,
) -> Result<Option<PoolReplicas>, Error> {
    let spec: PoolSpec = document::stored(pool)?;
    let Some(wanted) = spec.replicas else {
        return Ok(None);
    };
    let made = db::replicas::count(conn, pool.id).await?;
    let missing = (i64::from(wanted) - made.claimed).max(0);
    let coming = i64::try_from(next_nodes(conn, pool).await?.len()).unwrap_or(missing);
    let short = missing - coming;
    let surplus = (made.claimed - i64::from(wanted)).max(0);
    let unsigned = find_unsigned(conn, pool, now).await?;
    let because = match (coming, short, surplus) {
        (1.., _, _) if is_cautious(conn, pool).await? => Some(
            "The database was restored: the server creates no claims until `muster caution confirm`."
                .to_owned(),
        ),
        (1.., _, _) if unsigned.is_some() => unsigned,
        (_, 1.., _) => Some(no_nodes(&spec, short, made.leaving)),
        (_, _, 1..) => Some(format!(
            "{surplus} more than requested. Lowering the number releases no claim: run `muster claim delete` for each surplus claim."
        )),
        _ => None,
    };
    let short_since = match short {
        0 => None,
        _ => db::replicas::find_shortage(conn, pool.id).await?,
    };
    let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Some(PoolReplicas {
        wanted,
        claimed: count(made.claimed),
        in_service: count(made.in_service),
        coming: count(coming),
        short: count(short),
        short_since,
        surplus: count(surplus),
        because,
    }))
}

/// The nodes a pool would claim now, at most one for each missing claim.
///
/// # Errors
/// When the database fails.
pub(crate) async fn next_nodes(
    conn: &mut PgConnection,
    pool: &ObjectRow,
) -> Result<Vec<String>, Error> {
    let missing = requested_count(pool)? - db::replicas::count(conn, pool.id).await?.claimed;
    if missing <= 0 {
        return Ok(Vec::new());
    }
    let labels = BTreeMap::new();
    let fits = build_filter(conn, pool, &labels).await?;
    db::claims::list_available(conn, &fits, missing).await
}

fn requested_count(pool: &ObjectRow) -> Result<i64, Error> {
    Ok(document::stored::<PoolSpec>(pool)?
        .replicas
        .map_or(0, i64::from))
}

/// The filter for available nodes: the pool's hardware profile, and the site of the pool's cluster.
/// The cluster admits only nodes of its site. An actor with the permission to set `replicas` may
/// claim every node there.
async fn build_filter<'labels>(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    labels: &'labels BTreeMap<String, String>,
) -> Result<Fits<'labels>, Error> {
    let profile = create::find_profile(conn, pool.id).await?;
    let missing =
        |what: &str| Error::internal(anyhow::anyhow!("the pool {} has no {what}", pool.name));
    let cluster = db::objects::find_target(conn, pool.id, "/spec/cluster")
        .await?
        .ok_or_else(|| missing("cluster"))?;
    let site = db::objects::find_target(conn, cluster.id, "/spec/site")
        .await?
        .ok_or_else(|| missing("site"))?;
    Ok(Fits {
        labels,
        profile,
        site: Some(site.id),
    })
}

/// Returns the reason not to claim nodes: the image of the pool has no valid signature. Each claimed
/// node would fail before its image is written.
async fn find_unsigned(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    now: Timestamp,
) -> Result<Option<String>, Error> {
    match create::allow_image(conn, pool.id, now).await {
        Err(Error::Conflict { detail, .. }) => Ok(Some(detail)),
        other => other.map(|()| None),
    }
}

/// Returns whether a caution holds at the site of the pool's nodes.
async fn is_cautious(conn: &mut PgConnection, pool: &ObjectRow) -> Result<bool, Error> {
    if db::cautions::find_open(conn).await?.is_none() {
        return Ok(false);
    }
    let labels = BTreeMap::new();
    let Some(site) = build_filter(conn, pool, &labels).await?.site else {
        return Ok(true);
    };
    Ok(db::cautions::find_at_site(conn, site).await?.is_some())
}

fn no_nodes(spec: &PoolSpec, short: i64, leaving: i64) -> String {
    let profile = spec
        .profile
        .as_ref()
        .map(|name| format!(" with the hardware profile {name}"))
        .unwrap_or_default();
    let leaving = match leaving {
        0 => String::new(),
        count => format!(
            " {count} of its own are being released: their nodes count again once they are clean."
        ),
    };
    format!(
        "{short} more claims are requested, and no node{profile} is available at the site of {}: `muster node list --filter state=available`.{leaving} The \
         pool claims the next available node.",
        spec.cluster
    )
}

async fn begin_shortage(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    short: i64,
    now: Timestamp,
) -> Result<(), Error> {
    if !db::replicas::begin_shortage(conn, pool.id, now).await? {
        return Ok(());
    }
    let summary = format!(
        "{} has no node for {short} of its {} requested claims",
        pool.name,
        requested_count(pool)?
    );
    record(conn, pool, "pool.short", summary, now).await
}

async fn end_shortage(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    now: Timestamp,
) -> Result<(), Error> {
    if !db::replicas::end_shortage(conn, pool.id).await? {
        return Ok(());
    }
    let summary = format!("{} has all requested nodes again", pool.name);
    record(conn, pool, "pool.filled", summary, now).await
}

async fn record(
    conn: &mut PgConnection,
    pool: &ObjectRow,
    kind: &'static str,
    summary: String,
    now: Timestamp,
) -> Result<(), Error> {
    let event = db::events::NewEvent::new(now, "muster", kind, summary).about(pool.id);
    db::events::insert(
        conn,
        event.with(json!({ "pool": pool.name, "wanted": requested_count(pool)? })),
    )
    .await
}

//! Follows the rotations of the master key and of the authority of agents, and reports the held
//! keys. The begin of a rotation changes the keys of all servers within a second.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::db::key_rotations::HolderRow;
use crate::keys::follow_master;

const EVERY: Duration = Duration::from_secs(1);
/// Interval of the reports.
const REPORTED: SignedDuration = SignedDuration::from_secs(20);
/// Servers without a report for this time are forgotten.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// A running server, as named in reports.
#[derive(Clone, Debug)]
pub struct Replica {
    id: Uuid,
    host: String,
    reported: Option<Timestamp>,
}

impl Replica {
    /// Returns this process, not yet reported.
    pub fn here() -> Self {
        let host = nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned());
        Self {
            id: Uuid::from_bytes(rand::random()),
            host: host.unwrap_or_else(|_| "unknown host".to_owned()),
            reported: None,
        }
    }
}

pub(super) async fn run(app: App, cancel: CancellationToken) {
    let (mut replica, mut failed) = (Replica::here(), String::new());
    loop {
        let problem = match follow(&app, &mut replica).await {
            Ok(()) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        if problem != failed && !problem.is_empty() {
            tracing::error!(
                error = problem,
                "the keys of this server cannot be compared with the database's"
            );
        }
        failed = problem;
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Seals by the key of the database, accepts the authorities of the database, and reports the held
/// keys.
///
/// # Errors
///
/// When the database fails, or this server lacks a key of a rotation.
pub async fn follow(app: &App, replica: &mut Replica) -> anyhow::Result<()> {
    let mut conn = app.pool.acquire().await?;
    let now = app.clock.now();
    let opened = app.keys.open_authorities(&mut conn).await;
    let changed = opened.map(|ring| app.keys.authorities.take(ring));
    let due = |at: Timestamp| now.duration_since(at).abs() >= REPORTED;
    if replica.reported.is_none_or(due) || matches!(changed, Ok(true)) {
        report(&mut conn, app, replica, now).await?;
        replica.reported = Some(now);
    }
    follow_master(&app.keys.master, &mut conn).await?;
    changed?;
    Ok(())
}

async fn report(
    conn: &mut PgConnection,
    app: &App,
    replica: &Replica,
    now: Timestamp,
) -> anyhow::Result<()> {
    let holder = HolderRow {
        host: replica.host.clone(),
        keys: app.keys.master.ids(),
        authorities: app.keys.authorities.now().ids(),
        seen_at: now.to_sqlx(),
    };
    db::key_rotations::report_holder(conn, replica.id, &holder).await?;
    Ok(db::key_rotations::delete_holders(conn, now - KEPT).await?)
}

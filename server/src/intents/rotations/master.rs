//! The rotation of the master key. The begin switches all servers to the new key at once. The data
//! keys of all secrets are then wrapped by the new key, in batches. A repeated call continues after
//! a crash. The end makes the former key useless.

use anyhow::{bail, ensure};
use jiff::{SignedDuration, Timestamp};
use sqlx::{PgConnection, PgPool};

use super::events::{Act, tell};
use crate::auth::seals::again;
use crate::db;
use crate::db::key_rotations::{HolderRow, NewRotation};
use crate::engine::orders::secret_place;
use crate::intents::idempotency;
use crate::keys::{MASTER, MasterKey, keep_marks, place};

/// A server without a report for this time counts as stopped.
pub const SILENT: SignedDuration = SignedDuration::from_mins(2);

/// Time from the begin to the end of a rotation at least. A request under way at the begin may
/// still seal with the former key.
pub const SETTLES: SignedDuration = SignedDuration::from_mins(5);

/// Secrets of one kind in a transaction.
pub const BATCH: i64 = 200;

/// Makes the key of `--key-file` the key that seals. `false`: the rotation had begun before, or
/// secrets are left from before its end.
///
/// # Errors
/// When the key seals already, another rotation is under way, a running server lacks the key, or a
/// stored key cannot be opened.
pub async fn begin(
    conn: &mut PgConnection,
    master: &MasterKey,
    act: Act<'_>,
) -> anyhow::Result<bool> {
    db::key_rotations::lock_acts(conn).await?;
    let next = master.newest_id();
    if let Some(row) = db::key_rotations::find(conn, MASTER).await? {
        ensure!(
            row.next == next,
            "a rotation to the key {} is under way, and the new key file has the key {next}: name the file of {}, or end that rotation with --finish",
            row.next,
            row.next
        );
        ensure!(master.seal_by(next), "the key {next} is not held");
        return Ok(false);
    }
    let former = db::keys::get(conn, "permit").await?.key_id;
    if former == next && !list_left(conn, next).await?.is_empty() {
        // A server without news of the rotation has sealed by the former key after the end.
        return Ok(false);
    }
    ensure!(
        former != next,
        "the key {next} is the present key: make another one with (umask 077; head -c 32 /dev/urandom > FILE), and name it with --new-key-file"
    );
    need_holders(conn, next, act.now).await?;
    ensure!(master.seal_by(next), "the key {next} is not held");
    wrap_server_keys(conn, master).await?;
    keep_marks(master, conn, &former, act.now).await?;
    let rotation = NewRotation {
        key: MASTER,
        former: &former,
        next,
    };
    db::key_rotations::insert(conn, rotation, act.now).await?;
    let summary = format!("the master key {next} takes the place of {former}");
    tell(conn, act, "key.rotation_started", summary, rotation).await?;
    Ok(true)
}

/// Wraps at most `limit` secrets of each kind by the new key. Returns their number.
///
/// # Errors
/// When the database fails, or a secret cannot be opened.
pub async fn wrap_some(
    conn: &mut PgConnection,
    master: &MasterKey,
    limit: i64,
) -> anyhow::Result<usize> {
    let newest = master.newest_id();
    ensure!(
        master.id() == newest,
        "the rotation to the key {newest} has not begun"
    );
    let mut wrapped = wrap_server_keys(conn, master).await?;
    for row in db::wrapped_keys::list_secrets(conn, newest, limit).await? {
        let key = master.wrap_again(&secret_place(row.id), &row.sealed)?;
        db::wrapped_keys::set_secret(conn, &row, &key).await?;
        wrapped += 1;
    }
    for row in db::wrapped_keys::list_passwords(conn, newest, limit).await? {
        let key = master.wrap_again(&row.id.place(), &row.sealed)?;
        db::wrapped_keys::set_password(conn, &row, &key).await?;
        wrapped += 1;
    }
    for row in db::wrapped_keys::list_next_passwords(conn, newest, limit).await? {
        let key = master.wrap_again(&row.id.place(), &row.sealed)?;
        db::wrapped_keys::set_next_password(conn, &row, &key).await?;
        wrapped += 1;
    }
    for answer in db::wrapped_keys::list_answers(conn, newest, limit).await? {
        let body = idempotency::wrap_again(master, &answer)?;
        db::wrapped_keys::set_answer(conn, &answer, &body).await?;
        wrapped += 1;
    }
    Ok(wrapped)
}

/// Wraps every secret by the new key, and seals every row again, in short transactions.
///
/// # Errors
/// When the database fails, or a secret cannot be opened.
pub async fn wrap_all(pool: &PgPool, master: &MasterKey, now: Timestamp) -> anyhow::Result<usize> {
    let mut all = 0;
    loop {
        let mut tx = pool.begin().await?;
        let wrapped = wrap_some(&mut tx, master, BATCH).await?;
        tx.commit().await?;
        all += wrapped;
        if wrapped == 0 {
            break;
        }
    }
    let rows = again::seal_again(pool, master, now).await?;
    Ok(all + usize::try_from(rows)?)
}

/// Ends a rotation: the former key opens nothing any more.
///
/// # Errors
/// When no rotation is under way, the rotation is too young, a running server lacks the new key, or
/// a secret is still under another key.
pub async fn finish(
    conn: &mut PgConnection,
    master: &MasterKey,
    act: Act<'_>,
) -> anyhow::Result<String> {
    db::key_rotations::lock_acts(conn).await?;
    let Some(row) = db::key_rotations::find(conn, MASTER).await? else {
        bail!("no rotation of the master key is under way: begin one without --finish");
    };
    ensure!(
        row.next == master.newest_id(),
        "the rotation is to the key {}, and the new key file has the key {}",
        row.next,
        master.newest_id()
    );
    let earliest = row.begun_at.to_jiff() + SETTLES;
    ensure!(
        act.now >= earliest,
        "requests from before the rotation may still use the former key: finish after {earliest:.0}"
    );
    need_holders(conn, &row.next, act.now).await?;
    let left = list_left(conn, &row.next).await?;
    ensure!(
        left.is_empty(),
        "the former key is still needed: {}; run the command again without --finish",
        left.join(", ")
    );
    db::key_rotations::delete(conn, MASTER).await?;
    let summary = format!("the master key {} is ended, after {}", row.former, row.next);
    let rotation = NewRotation {
        key: MASTER,
        former: &row.former,
        next: &row.next,
    };
    tell(conn, act, "key.rotated", summary, rotation).await?;
    Ok(row.former)
}

/// Lists the secrets under other keys than the new key, by table.
///
/// # Errors
/// When the database fails.
pub async fn list_left(conn: &mut PgConnection, next: &str) -> anyhow::Result<Vec<String>> {
    let counts = db::wrapped_keys::count_by_key(conn).await?;
    let left = counts.iter().filter(|row| row.key_id != next);
    let told = left.map(|row| format!("{} of {} under {}", row.count, row.place, row.key_id));
    Ok(told.collect())
}

/// Lists the running servers that lack a key.
///
/// # Errors
/// When the database fails.
pub async fn list_lacking(
    conn: &mut PgConnection,
    key: &str,
    now: Timestamp,
) -> anyhow::Result<Vec<String>> {
    let holders = db::key_rotations::list_holders(conn, now - SILENT).await?;
    let lacks = |holder: &HolderRow| !holder.keys.iter().any(|held| held == key);
    let lacking = holders.into_iter().filter(lacks).map(|holder| holder.host);
    Ok(lacking.collect())
}

async fn need_holders(conn: &mut PgConnection, key: &str, now: Timestamp) -> anyhow::Result<()> {
    let lacking = list_lacking(conn, key, now).await?;
    ensure!(
        lacking.is_empty(),
        "these servers run without the key {key}: {}; start each with --key-file NEW --former-key-file FORMER, and wait {} s after the last stop",
        lacking.join(", "),
        SILENT.as_secs()
    );
    Ok(())
}

/// Wraps the server's own keys. The table has a row for each name.
async fn wrap_server_keys(conn: &mut PgConnection, master: &MasterKey) -> anyhow::Result<usize> {
    let rows = db::wrapped_keys::list_server_keys(conn, master.newest_id()).await?;
    for row in &rows {
        let key = master.wrap_again(&place(&row.id), &row.sealed)?;
        db::wrapped_keys::set_server_key(conn, row, &key).await?;
    }
    Ok(rows.len())
}

//! Machines that discovered themselves. A stranger on the network chooses its MAC freely, so each
//! site has limits: nodes in all, new nodes in a minute, events in a minute. One event sums up a
//! minute that went beyond a limit.

use jiff::{SignedDuration, Timestamp};
use muster_core::ids::{NodeId, ObjectId};
use muster_core::values::Mac;
use muster_core::wire::calls::Seen;
use serde_json::json;
use sqlx::PgConnection;

use super::remains;
use crate::app::App;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::strangers::MinuteRow;
use crate::error::Error;

/// The largest number of strangers of a site. The least recently seen are forgotten first.
pub const MOST_STRANGERS: i64 = 1000;
/// The largest number of new strangers of a site in a minute: more than the nodes of a large rack.
pub const NEW_IN_A_MINUTE: i64 = 100;
/// The largest number of events of a site in a minute about strangers, and about machines of other
/// sites.
pub const EVENTS_IN_A_MINUTE: i64 = 20;
/// The largest number of boot events of a declared node in a minute. A boot has about ten.
pub const BOOT_EVENTS_IN_A_MINUTE: i64 = 60;
/// The same for alarms: a second fetch of the boot script, or another DHCP server. Other boot
/// events take no place of an alarm.
pub const ALARMS_IN_A_MINUTE: i64 = 5;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// The largest number of strangers forgotten at once.
const FORGOTTEN_AT_ONCE: i64 = 100;
/// The largest number of sites summed up at once.
const SITES_AT_ONCE: i64 = 1000;

/// Locks the present minute of a site. A minute that is over is summed up first.
///
/// # Errors
/// When the database fails.
pub(crate) async fn begin(
    conn: &mut PgConnection,
    site: ObjectId,
    now: Timestamp,
) -> Result<MinuteRow, Error> {
    let minute = db::strangers::lock_minute(conn, site, now).await?;
    // A time in the future means a step back of the server's clock.
    if now.duration_since(minute.began_at) < MINUTE && minute.began_at <= now {
        return Ok(minute);
    }
    sum_up(conn, &minute, now).await?;
    let MinuteRow {
        site, site_name, ..
    } = minute;
    Ok(MinuteRow {
        site,
        site_name,
        began_at: now,
        recorded: 0,
        refused: 0,
        forgotten: 0,
        events: 0,
        untold: 0,
    })
}

/// Emits the event of a minute that went beyond a limit.
async fn sum_up(conn: &mut PgConnection, minute: &MinuteRow, now: Timestamp) -> Result<(), Error> {
    let MinuteRow {
        site,
        site_name,
        began_at,
        recorded,
        refused,
        forgotten,
        events,
        untold,
    } = minute;
    if refused + forgotten + untold == 0 {
        return Ok(());
    }
    let hint = match refused + forgotten {
        0 => "",
        _ => " Look for a machine that sends invented MAC addresses.",
    };
    let summary = format!(
        "Site {site_name} had too many unknown machines in the minute from {began_at:.0}: {recorded} recorded, \
         {refused} refused, {forgotten} forgotten, {untold} events left out.{hint}"
    );
    let limits = json!({
        "recorded_in_a_minute": NEW_IN_A_MINUTE, "events_in_a_minute": EVENTS_IN_A_MINUTE, "unknown_machines": MOST_STRANGERS,
    });
    let detail = json!({
        "began_at": began_at, "recorded": recorded, "refused": refused, "forgotten": forgotten, "events": events, "untold": untold,
        "limits": limits,
    });
    let event = NewEvent::new(now, "muster", "site.strangers", summary).about(*site);
    db::events::insert(conn, event.with(detail)).await
}

/// Sums up every minute that is over, for sites without a further sighting. Strangers recorded by a
/// server of the version before are counted from now on.
///
/// # Errors
/// When the database fails.
pub async fn end_minutes(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    let mut conn = app.pool.acquire().await?;
    db::strangers::add_missed(&mut conn).await?;
    let ended = db::strangers::list_ended(&mut conn, now - MINUTE, SITES_AT_ONCE).await?;
    drop(conn);
    for site in ended {
        let mut tx = app.pool.begin().await?;
        let minute = begin(&mut tx, site, now).await?;
        db::strangers::set_minute(&mut tx, &minute).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Makes a node of an unknown machine, and forgets the strangers above the limit of the site. A
/// deleted record of the machine is merged into the node. `None`: the minute has too many new
/// strangers, or another node has the name.
///
/// # Errors
/// When the database fails.
pub(crate) async fn discover(
    conn: &mut PgConnection,
    minute: &mut MinuteRow,
    actor: &str,
    mac: Mac,
    now: Timestamp,
) -> Result<Option<NodeId>, Error> {
    if minute.recorded >= NEW_IN_A_MINUTE {
        minute.refused += 1;
        return Ok(None);
    }
    minute.forgotten += forget_excess(conn, minute.site).await?;
    let Some(node) = db::strangers::insert(conn, minute.site, mac, now).await? else {
        tracing::warn!(%mac, "unknown machine not recorded: another node has the name made from the MAC; rename that node");
        return Ok(None);
    };
    minute.recorded += 1;
    if take_event(minute) {
        let summary = format!("an unknown machine was seen: {mac}");
        let event = NewEvent::node(now, actor, "node.discovered", node, summary);
        db::events::insert(conn, event).await?;
    }
    remains::merge(conn, node, actor, now).await?;
    Ok(Some(node))
}

/// Makes room for a stranger. Returns the number of strangers forgotten. A stranger without a
/// person's word has no epoch and no data on record, so its deletion leaves no remains.
async fn forget_excess(conn: &mut PgConnection, site: ObjectId) -> Result<i64, Error> {
    let excess =
        db::strangers::lock_excess(conn, site, MOST_STRANGERS - 1, FORGOTTEN_AT_ONCE).await?;
    let mut forgotten = 0;
    for stranger in excess {
        db::nodes::delete(conn, stranger.id).await?;
        forgotten += 1;
    }
    Ok(forgotten)
}

/// Whether a sighting of a node becomes an event. `None` is a machine of another site.
///
/// # Errors
/// When the database fails.
pub(crate) async fn allow_event(
    conn: &mut PgConnection,
    minute: &mut MinuteRow,
    node: Option<NodeId>,
    what: Seen,
    now: Timestamp,
) -> Result<bool, Error> {
    let declared = match node {
        Some(node) if !db::strangers::touch(conn, node, now).await? => Some(node),
        Some(_) | None => None,
    };
    match declared {
        Some(node) => {
            let (is_alarm, most) = match what {
                Seen::FetchedTwice | Seen::RogueDhcp => (true, ALARMS_IN_A_MINUTE),
                Seen::Dhcp | Seen::Tftp | Seen::Script | Seen::Kernel | Seen::Report => {
                    (false, BOOT_EVENTS_IN_A_MINUTE)
                }
            };
            let after = now - MINUTE;
            let recent = db::strangers::count_boot_events(conn, node, is_alarm, after).await?;
            Ok(recent < most)
        }
        None => Ok(take_event(minute)),
    }
}

/// Takes one of the events of a minute, or counts the event as left out.
fn take_event(minute: &mut MinuteRow) -> bool {
    let is_left = minute.events < EVENTS_IN_A_MINUTE;
    match is_left {
        true => minute.events += 1,
        false => minute.untold += 1,
    }
    is_left
}

/// Forgets the strangers with the MACs of a declaration, because a person's declaration counts more
/// than a machine's own word. A stranger that a person has acted on keeps its MAC. `own` is the
/// declared node, if the node exists.
///
/// # Errors
/// When the database fails.
pub(crate) async fn yield_macs(
    conn: &mut PgConnection,
    macs: &[Mac],
    own: Option<NodeId>,
    actor: &str,
    name: &str,
    now: Timestamp,
) -> Result<(), Error> {
    for stranger in db::strangers::lock_by_macs(conn, macs, own).await? {
        db::nodes::delete(conn, stranger.id).await?;
        let summary = format!(
            "{}: the MAC was declared for node {name}, so the record of the unknown machine was removed",
            stranger.name
        );
        let event = NewEvent::node(now, actor, "node.unregistered", stranger.id, summary);
        db::events::insert(conn, event).await?;
    }
    Ok(())
}

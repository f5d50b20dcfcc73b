//! The objects that refer to an object, as named in refusals.

use muster_core::ids::ObjectId;
use sqlx::PgConnection;

use crate::access::has_place;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::error::Error;

/// The largest number of objects named in a refusal.
const NAMED: usize = 5;
/// The largest number of objects whose place is compared with the read scope of the caller.
const COMPARED: i64 = 50;

/// Describes the objects that refer to an object: a few names within the caller's read scope.
/// `None`: no object refers to the object.
///
/// # Errors
/// When the database fails.
pub(in crate::http) async fn describe_referrers(
    conn: &mut PgConnection,
    actor: &Actor,
    id: ObjectId,
) -> Result<Option<String>, Error> {
    let referrers = db::objects::list_referrers(conn, id, COMPARED).await?;
    let mut named = Vec::new();
    for referrer in &referrers {
        if named.len() < NAMED && is_readable(conn, actor, referrer).await? {
            named.push(referrer.as_str());
        }
    }
    let names = named.join(", ");
    Ok(match (named.len(), referrers.len()) {
        (_, 0) => None,
        (0, _) => Some("objects outside of your read scope".to_owned()),
        (shown, all) if shown == all => Some(names),
        (_, _) => Some(format!("{names} and further objects")),
    })
}

/// Returns whether the caller may read a referrer, such as `node n1` or `revision 3 of pool train`.
/// Every reader reads the objects without a place.
async fn is_readable(
    conn: &mut PgConnection,
    actor: &Actor,
    referrer: &str,
) -> Result<bool, Error> {
    let mut words = referrer.rsplit(' ');
    let (Some(key), Some(kind)) = (words.next(), words.next()) else {
        return Ok(false);
    };
    if !has_place(kind) && !matches!(kind, "node" | "claim" | "rollout") {
        return Ok(true);
    }
    actor.may(conn, "fleet.read", Named { kind, key }).await
}

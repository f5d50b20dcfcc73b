//! Names the holder of a key already in use: one mechanism for every natural key. The answer
//! includes the holder only for a caller with read access to the holder.

use muster_api::problem::Existing;
use muster_core::ids::TokenId;
use sqlx::PgConnection;

use crate::access;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::taken::Holder;
use crate::error::Error;

/// Returns the same error, with the holder for an [`Error::Taken`]. Called after the rollback,
/// because the failed write has ended its transaction.
pub async fn name_holder(conn: &mut PgConnection, actor: &Actor, error: Error) -> Error {
    let Error::Taken(mut taken) = error else {
        return error;
    };
    match find_existing(conn, actor, &taken.constraint, &taken.key).await {
        Ok(existing) => {
            taken.existing = existing;
            Error::Taken(taken)
        }
        Err(other) => other,
    }
}

async fn find_existing(
    conn: &mut PgConnection,
    actor: &Actor,
    constraint: &str,
    key: &str,
) -> Result<Option<Existing>, Error> {
    let Some(holder) = db::taken::find(conn, constraint, key).await? else {
        return Ok(None);
    };
    if !may_see(conn, actor, &holder).await? {
        return Ok(None);
    }
    let Holder {
        kind,
        id,
        name,
        site,
    } = holder;
    let link = match (kind.as_str(), site) {
        ("node", _) => format!("/v1/nodes/{name}"),
        ("claim", _) => format!("/v1/claims/{name}"),
        ("token", _) => format!("/v1/tokens/{id}"),
        (_, Some((_, site))) => format!("/v1/sites/{site}/agents/{name}"),
        (kind, None) => format!("/v1/{kind}s/{name}"),
    };
    Ok(Some(Existing {
        kind,
        id,
        name,
        link,
    }))
}

async fn may_see(conn: &mut PgConnection, actor: &Actor, holder: &Holder) -> Result<bool, Error> {
    let id = holder.id.to_string();
    let site = holder.site.as_ref().map(|(site, _)| site.to_string());
    let named = match (holder.kind.as_str(), &site) {
        ("token", _) => {
            let row = db::tokens::find(conn, TokenId(holder.id)).await?;
            let own = row.is_some_and(|row| row.person.as_deref() == Some(&*actor.person));
            return Ok(own || actor.holding.everywhere("token.read"));
        }
        (_, Some(site)) => Named {
            kind: "site",
            key: site,
        },
        ("node" | "claim", None) => Named {
            kind: &holder.kind,
            key: &id,
        },
        (kind, None) if access::has_place(kind) => Named { kind, key: &id },
        _ => return Ok(actor.holding.somewhere("fleet.read")),
    };
    match actor.need(conn, "fleet.read", named).await {
        Ok(()) => Ok(true),
        Err(Error::NotFound(_) | Error::Forbidden(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

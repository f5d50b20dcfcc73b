//! Whose it is, where a write wants what something else has already: one mechanism for every natural key. It is told to who may see that.

use muster_api::problem::Existing;
use muster_core::ids::TokenId;
use sqlx::PgConnection;

use crate::auth::access::Named;
use crate::auth::{Actor, routes};
use crate::db;
use crate::db::taken::Holder;
use crate::error::Error;

/// The same error; of a key that is taken, with whose it is. The transaction that it ended is over.
pub async fn named(conn: &mut PgConnection, actor: &Actor, error: Error) -> Error {
    let Error::Taken(mut taken) = error else {
        return error;
    };
    match existing(conn, actor, &taken.constraint, &taken.key).await {
        Ok(existing) => {
            taken.existing = existing;
            Error::Taken(taken)
        }
        Err(other) => other,
    }
}

async fn existing(
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
        (kind, None) if routes::lies(kind) => Named { kind, key: &id },
        _ => return Ok(actor.holding.somewhere("fleet.read")),
    };
    match actor.need(conn, "fleet.read", named).await {
        Ok(()) => Ok(true),
        Err(Error::NotFound(_) | Error::Forbidden(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

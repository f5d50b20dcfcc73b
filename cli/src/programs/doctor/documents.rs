//! Documents stored by an earlier version and refused today: readable secrets, and specs with
//! faults.

use muster_api::client::ClientError;
use muster_api::kind::COLLECTIONS;
use muster_server::db;
use muster_server::error::Error;
use serde_json::Value;
use sqlx::PgPool;

use super::{Found, Host, database};

/// Objects of a page.
const PAGE: &str = "200";
/// Most objects in a report.
const MOST: usize = 50;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let mut found = Vec::new();
    match database::connect(host).await {
        Ok(pool) => found.extend(find_secrets(&pool).await.unwrap_or_else(|error| {
            vec![Found::unknown(
                format!("stored secrets cannot be looked for: {error}"),
                "see the checks `database` and `schema`",
            )]
        })),
        // The database check reports the cause.
        Err(_) => found.push(Found::unknown(
            "stored secrets cannot be looked for",
            "see the check `database`",
        )),
    }
    match find_faults(host).await {
        Ok(faults) => found.extend(faults),
        Err(_) => found.push(Found::unknown(
            "the server's documents are unavailable",
            "see the checks `server` and `token`",
        )),
    }
    match found.is_empty() {
        true => vec![Found::ok(
            "every stored document is one that this version accepts, and no secret is readable",
        )],
        false => found,
    }
}

/// Lists objects whose stored document may show a secret.
async fn find_secrets(pool: &PgPool) -> Result<Vec<Found>, Error> {
    let rows = db::keys::list_readable_secrets(&mut *pool.acquire().await?).await?;
    let found = rows.into_iter().map(|row| {
        Found::fail(
            format!(
                "the stored document of the {} {} may show its secret to readers of the database and of backups",
                row.kind, row.name
            ),
            "write the object again with PUT and a new secret, and change the secret where it is used",
        )
    });
    Ok(found.collect())
}

/// Lists objects with faults in the stored spec.
async fn find_faults(host: &Host) -> Result<Vec<Found>, ClientError> {
    let mut found = Vec::new();
    for (kind, collection) in COLLECTIONS {
        let mut token: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE)];
            query.extend(token.as_deref().map(|token| ("page_token", token)));
            let page = host.client.get_value(&[collection], &query).await?;
            let items = page["items"].as_array().into_iter().flatten();
            found.extend(items.filter_map(|item| describe(kind, item)));
            token = page["next_page_token"].as_str().map(str::to_owned);
            if token.is_none() || found.len() >= MOST {
                break;
            }
        }
    }
    found.truncate(MOST);
    Ok(found)
}

/// Describes the first fault of an object, if any.
fn describe(kind: &str, item: &Value) -> Option<Found> {
    let fault = item["spec_faults"].as_array()?.first()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Found::warn(
        format!(
            "the {} {} was stored by an earlier version, and this version refuses its document at {}",
            kind.replace('_', " "),
            text(&item["name"]),
            text(&fault["pointer"])
        ),
        "write the object again with PUT and a valid spec; the object stays as stored until then",
    ))
}

//! Parts of kinds whose servers Muster calls: the URL, and the sealed secret.

use muster_core::ids::ObjectId;
use reqwest::Url;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::engine::orders::secret_place;
use crate::error::Error;

const LONGEST_URL: usize = 2000;

/// Parses a URL to be called, without user, password and fragment. The outbound policy decides later
/// whether the address may be called.
///
/// # Errors
/// The correction as a sentence. `bare` is the correction for a URL with a credential or a fragment.
pub(super) fn parse_url(text: &str, bare: &str) -> Result<Url, String> {
    if text.len() > LONGEST_URL {
        return Err(format!("At most {LONGEST_URL} bytes."));
    }
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let has_host = url.host_str().is_some_and(|host| !host.is_empty());
    match (url.scheme(), has_host, is_bare) {
        ("http" | "https", true, true) => Ok(url),
        ("http" | "https", true, false) => Err(bare.to_owned()),
        _ => Err("https://HOST/PATH".into()),
    }
}

/// Returns the keyed hash of an object's secret. `None` without a secret.
///
/// # Errors
/// When the database fails, or the secret cannot be opened.
pub(super) async fn hash_secret(
    app: &App,
    conn: &mut PgConnection,
    object: ObjectId,
) -> Result<Option<String>, Error> {
    let Some(sealed) = db::keys::find_secret(conn, object).await? else {
        return Ok(None);
    };
    let place = secret_place(object);
    let opened = app.keys.master.open(&place, &sealed);
    let secret = opened.map_err(Error::internal)?;
    Ok(Some(app.keys.master.keyed_hash(&place, &secret)))
}

//! Style, scripts and icon, embedded in the binary. Each URL contains a hash of the content, so
//! browsers cache the files for a year and never mix versions.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use http::header;
use rust_embed::RustEmbed;

use crate::error::Error;
use crate::http::extract::Path;

#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../web"]
struct Web;

/// URLs of the assets loaded by every page.
#[derive(Debug)]
pub(super) struct Urls {
    pub style: String,
    pub script: String,
    pub htmx: String,
    pub morph: String,
    pub icon: String,
}

/// Computed once per process. A development build reads changed files again at its next start.
pub(super) static URLS: LazyLock<Urls> = LazyLock::new(|| Urls {
    style: url("app.css"),
    script: url("app.js"),
    htmx: url("vendor/htmx/htmx.min.js"),
    morph: url("vendor/idiomorph/idiomorph-ext.min.js"),
    icon: url("icon.svg"),
});

fn url(path: &str) -> String {
    let version = Web::get(path).map(|file| hex::encode(&file.metadata.sha256_hash()[..8]));
    format!(
        "/assets/{}/{path}",
        version.unwrap_or_else(|| "missing".into())
    )
}

static TYPES: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    BTreeMap::from([
        ("css", "text/css; charset=utf-8"),
        ("js", "text/javascript; charset=utf-8"),
        ("svg", "image/svg+xml"),
    ])
});

/// Serves one asset. Returns `NotFound` for other types than style, script and picture, and for
/// another version than the binary's.
pub(super) async fn get_asset(
    Path((version, path)): Path<(String, String)>,
) -> Result<Response, Error> {
    let missing = || Error::NotFound("This file".into());
    let extension = path
        .rsplit_once('.')
        .map(|(_, extension)| extension)
        .unwrap_or_default();
    let content_type = TYPES.get(extension).ok_or_else(missing)?;
    let file = Web::get(&path).ok_or_else(missing)?;
    if hex::encode(&file.metadata.sha256_hash()[..8]) != version {
        return Err(missing());
    }
    let headers = [
        (header::CONTENT_TYPE, *content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, file.data.into_owned()).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_this_versions_files_of_known_types_are_served() {
        let current = URLS
            .style
            .strip_prefix("/assets/")
            .unwrap()
            .split_once('/')
            .unwrap();
        let get =
            |version: &str, path: &str| get_asset(Path((version.to_owned(), path.to_owned())));
        let served = get(current.0, current.1).await.unwrap();
        assert_eq!(
            served.headers()[header::CONTENT_TYPE],
            "text/css; charset=utf-8"
        );
        for (version, path) in [
            ("0", "app.css"),
            (current.0, "app.js"),
            (current.0, "../Cargo.toml"),
            ("x", "vendor/htmx/LICENSE"),
        ] {
            assert!(get(version, path).await.is_err(), "{version} {path}");
        }
        assert!(
            [&URLS.script, &URLS.htmx, &URLS.morph, &URLS.icon]
                .iter()
                .all(|url| !url.contains("missing"))
        );
    }
}

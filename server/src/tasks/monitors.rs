//! Asks the due monitors. One replica asks a monitor at a time.

use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use jiff::SignedDuration;
use muster_api::monitors::MonitorSpec;
use reqwest::Url;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::db;
use crate::db::monitors::AskedRow;
use crate::engine::orders::secret_place;
use crate::error::Error;
use crate::promql::{self, LONGEST_ANSWER};

const EVERY: Duration = Duration::from_secs(2);
/// Most monitors of a fleet, and most queries at a time.
pub const MOST: usize = 100;
/// Time until another replica asks after a lost answer. Longer than one HTTP call, and the shortest
/// interval of a monitor.
const LEASE: SignedDuration = SignedDuration::from_secs(15);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        let asked = cancel.run_until_cancelled(round(&app)).await;
        if let Some(Err(error)) = asked {
            tracing::warn!(error = ?error, "the monitors could not be asked; tried again shortly");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Asks the due monitors, and records the answers. Returns the number of monitors.
///
/// # Errors
/// When the database fails.
pub async fn round(app: &App) -> Result<usize, Error> {
    let now = app.clock.now();
    let most = i64::try_from(MOST).unwrap_or(i64::MAX);
    let mut conn = app.pool.acquire().await?;
    let due = db::monitors::take_due(&mut conn, now, now + LEASE, most).await?;
    drop(conn);
    let mut asking = JoinSet::new();
    for asked in due {
        let app = app.clone();
        asking.spawn(async move { ask(&app, &asked).await });
    }
    let asked: Result<Vec<()>, Error> = asking.join_all().await.into_iter().collect();
    Ok(asked?.len())
}

/// Asks one monitor.
async fn ask(app: &App, asked: &AskedRow) -> Result<(), Error> {
    let spec: MonitorSpec = serde_json::from_value(asked.spec.clone()).map_err(Error::internal)?;
    let sealed = db::keys::find_secret(&mut *app.pool.acquire().await?, asked.monitor).await?;
    let secret = match sealed {
        Some(sealed) => {
            let opened = app.keys.master.open(&secret_place(asked.monitor), &sealed);
            Some(opened.map_err(Error::internal)?)
        }
        None => None,
    };
    let url = Url::parse(&spec.url).map_err(Error::internal)?;
    let headers = build_headers(secret.as_deref())?;
    let form = promql::build_form(&spec.query);
    let url = promql::build_url(&url);
    let answer = app.outbound.read(&url, headers, form, LONGEST_ANSWER).await;
    let counted = answer.and_then(|(status, body)| promql::count_series(status, &body));
    let due_at = asked.asked_at.to_jiff() + SignedDuration::from_secs(i64::from(spec.interval_s));
    let mut conn = app.pool.acquire().await?;
    match counted {
        Ok(series) => {
            let series = i64::try_from(series).unwrap_or(i64::MAX);
            db::monitors::set_answer(&mut conn, asked, series, due_at).await
        }
        Err(problem) => db::monitors::set_missed(&mut conn, asked, &problem, due_at).await,
    }
}

fn build_headers(secret: Option<&[u8]>) -> Result<HeaderMap, Error> {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, form),
        (ACCEPT, HeaderValue::from_static("application/json")),
    ]);
    if let Some(secret) = secret {
        let mut value = HeaderValue::from_bytes(secret).map_err(Error::internal)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

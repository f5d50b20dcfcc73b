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
    // A slow server does not delay the queries to others.
    let mut asking = JoinSet::new();
    loop {
        match take(&app, MOST - asking.len().min(MOST)).await {
            Ok(due) => {
                for asked in due {
                    asking.spawn(ask_or_log(app.clone(), asked));
                }
            }
            Err(error) => {
                tracing::warn!(error = ?error, "the monitors could not be asked; tried again shortly");
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        while let Some(ended) = asking.try_join_next() {
            ended.expect("a query does not panic");
        }
    }
}

/// Asks the due monitors, and records the answers. Returns the number of monitors. Does one round of
/// the work of `run`.
///
/// # Errors
/// When the database fails.
pub async fn round(app: &App) -> Result<usize, Error> {
    let mut asking = JoinSet::new();
    for asked in take(app, MOST).await? {
        asking.spawn(ask_or_log(app.clone(), asked));
    }
    Ok(asking.join_all().await.len())
}

async fn take(app: &App, limit: usize) -> Result<Vec<AskedRow>, Error> {
    let now = app.clock.now();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut conn = app.pool.acquire().await?;
    db::monitors::take_due(&mut conn, now, now + LEASE, limit).await
}

async fn ask_or_log(app: App, asked: AskedRow) {
    if let Err(error) = ask(&app, &asked).await {
        tracing::warn!(monitor = %asked.monitor, error = ?error, "an answer of a monitor was not recorded; asked again shortly");
    }
}

/// Asks one monitor. A monitor that cannot be asked gives no answer.
async fn ask(app: &App, asked: &AskedRow) -> Result<(), Error> {
    let spec: Option<MonitorSpec> = serde_json::from_value(asked.spec.clone()).ok();
    let interval = spec.as_ref().map(|spec| i64::from(spec.interval_s));
    let interval = interval.map_or(LEASE, SignedDuration::from_secs);
    let counted = match &spec {
        Some(spec) => count(app, asked, spec).await,
        None => Err("the monitor cannot be read".to_owned()),
    };
    let due_at = asked.asked_at.to_jiff() + interval;
    let mut conn = app.pool.acquire().await?;
    match counted {
        Ok(series) => {
            let series = i64::try_from(series).unwrap_or(i64::MAX);
            db::monitors::set_answer(&mut conn, asked, series, due_at).await
        }
        Err(problem) => db::monitors::set_missed(&mut conn, asked, &problem, due_at).await,
    }
}

/// Sends the query, and counts the series of the answer.
///
/// # Errors
/// The reason of a missing answer, as a sentence for readers.
async fn count(app: &App, asked: &AskedRow, spec: &MonitorSpec) -> Result<u64, String> {
    let open = |sealed| app.keys.master.open(&secret_place(asked.monitor), sealed);
    let secret = match asked.secret.as_ref().map(open) {
        Some(Ok(secret)) => Some(secret),
        Some(Err(_)) => return Err("the secret cannot be opened".to_owned()),
        None => None,
    };
    let headers = build_headers(secret.as_deref()).ok_or("the secret is no header")?;
    let base = Url::parse(&spec.url).map_err(|_| "the URL cannot be read")?;
    let (url, form) = (promql::build_url(&base), promql::build_form(&spec.query));
    let answer = app.outbound.read(&url, headers, form, LONGEST_ANSWER).await;
    let (status, body) = answer?;
    promql::count_series(status, &body)
}

/// `None`: the secret is no value of a header.
fn build_headers(secret: Option<&[u8]>) -> Option<HeaderMap> {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, form),
        (ACCEPT, HeaderValue::from_static("application/json")),
    ]);
    if let Some(secret) = secret {
        let mut value = HeaderValue::from_bytes(secret).ok()?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Some(headers)
}

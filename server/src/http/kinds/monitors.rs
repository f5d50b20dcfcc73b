//! Monitors: allowed URLs and queries, and the last answers.

use http::HeaderValue;
use jiff::SignedDuration;
use muster_api::kind::Kind as _;
use muster_api::monitors::{MonitorSpec, MonitorStatus};
use muster_core::values::Secret;
use reqwest::Url;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::Declared;
use crate::http::kinds::calls;
use crate::tasks::monitors::MOST;

const LONGEST_QUERY: usize = 4000;
const LONGEST_TEXT: usize = 1000;
const LONGEST_SECRET: usize = 4000;

impl Declared for MonitorSpec {
    const HAS_SECRET: bool = true;

    fn faults(&self) -> Vec<Fault> {
        let range = |pointer: &str, detail: String| fault(pointer, "out_of_range", detail);
        let mut faults = Vec::new();
        if let Err(why) = parse_base(&self.url) {
            faults.push(fault("/spec/url", "invalid_url", why));
        }
        if self.query.trim().is_empty() || self.query.len() > LONGEST_QUERY {
            faults.push(range("/spec/query", format!("1 to {LONGEST_QUERY} bytes.")));
        }
        if !(15..=600).contains(&self.interval_s) {
            faults.push(range("/spec/interval_s", "15 to 600 seconds.".into()));
        }
        let text = self.description.as_deref().unwrap_or_default();
        if text.chars().count() > LONGEST_TEXT {
            let detail = format!("At most {LONGEST_TEXT} characters.");
            faults.push(fault("/spec/description", "too_long", detail));
        }
        if self
            .secret
            .as_ref()
            .is_some_and(|secret| !is_header(secret))
        {
            let detail = format!(
                "The header Authorization, such as `Bearer TOKEN`: ASCII, at most {LONGEST_SECRET} bytes."
            );
            faults.push(fault("/spec/secret", "invalid_secret", detail));
        }
        faults
    }

    fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Another URL or query forgets the answers. A secret belongs to its URL: another URL removes the
    /// secret, and the same write may set another.
    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let differs =
            |member: &str| before.is_none_or(|before| before.spec[member] != row.spec[member]);
        if differs("url") {
            db::keys::remove_secret(conn, row.id).await?;
        }
        if differs("url") || differs("query") {
            db::monitors::restart(conn, row.id).await?;
        }
        Ok(())
    }

    async fn written(app: &App, conn: &mut PgConnection, row: &ObjectRow) -> Result<(), Error> {
        let spec: Self = document::stored(row)?;
        let url = parse_base(&spec.url)
            .map_err(|why| Error::unprocessable("/spec/url", "invalid_url", why))?;
        let refused = |why| Error::unprocessable("/spec/url", "address_refused", why);
        app.outbound.check(&url).map_err(refused)?;
        let most = i64::try_from(MOST).unwrap_or(i64::MAX);
        if db::objects::count(conn, Self::KIND).await? > most {
            let detail = format!("At most {MOST} monitors are possible.");
            return Err(Error::conflict("too_many", detail));
        }
        db::monitors::ask_soon(conn, row.id).await
    }

    async fn status(
        app: &App,
        conn: &mut PgConnection,
        row: &ObjectRow,
    ) -> Result<MonitorStatus, Error> {
        let Some(answers) = db::monitors::find_answers(conn, row.id).await? else {
            return Ok(MonitorStatus::default());
        };
        let spec: Self = document::stored(row)?;
        let interval = SignedDuration::from_secs(i64::from(spec.interval_s));
        let hash = calls::hash_secret(app, conn, row.id).await?;
        let state = answers.answers().find_state(interval, app.clock.now());
        Ok(MonitorStatus {
            state,
            since: answers.since(state),
            series: answers.series,
            answered_at: answers.answered_at.map(|at| at.to_jiff()),
            missed: answers.missed,
            problem: answers.problem,
            secret_set: hash.is_some(),
            secret_hash: hash,
        })
    }
}

/// Parses the base URL of a monitor: the path of the query follows.
fn parse_base(text: &str) -> Result<Url, String> {
    let bare = "No user, password, query or fragment: a credential is the secret.";
    let url = calls::parse_url(text, bare)?;
    match url.query() {
        None => Ok(url),
        Some(_) => Err(bare.to_owned()),
    }
}

/// Whether a secret is a scheme and credentials, as RFC 9110 (11.6.2) writes the header.
fn is_header(secret: &Secret) -> bool {
    let text = secret.reveal();
    let parts = text.split_once(' ');
    let is_complete =
        parts.is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.trim().is_empty());
    is_complete
        && text.len() <= LONGEST_SECRET
        && text.is_ascii()
        && HeaderValue::from_str(text).is_ok()
}

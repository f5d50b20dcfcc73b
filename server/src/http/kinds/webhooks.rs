//! Webhooks: allowed URLs, delivered events, and status.

use muster_api::kind::Kind as _;
use muster_api::webhooks::{WebhookSpec, WebhookState, WebhookStatus};
use muster_core::values::Secret;
use reqwest::Url;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, Reference};
use crate::http::kinds::calls;
use crate::intents::references::Table;
use crate::tasks::webhooks::MOST;
use crate::webhooks;

const LONGEST_TEXT: usize = 1000;
const TOPICS: usize = 50;

impl Declared for WebhookSpec {
    const HAS_SECRET: bool = true;
    const REFERENCES: Table = &[("/spec/site", "site")];

    fn references(&self) -> Vec<Reference<'_>> {
        self.site
            .iter()
            .map(|site| Reference::new("/spec/site", "site", site))
            .collect()
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Err(why) = parse_url(&self.url) {
            faults.push(fault("/spec/url", "invalid_url", why));
        }
        if !(1..=TOPICS).contains(&self.topics.len()) {
            faults.push(fault(
                "/spec/topics",
                "out_of_range",
                format!("1 to {TOPICS}"),
            ));
        }
        for (at, topic) in self.topics.iter().enumerate() {
            if let Some(detail) = webhooks::topic_fault(topic) {
                faults.push(fault(format!("/spec/topics/{at}"), "invalid_topic", detail));
            }
        }
        if self
            .description
            .as_ref()
            .is_some_and(|text| text.chars().count() > LONGEST_TEXT)
        {
            faults.push(fault(
                "/spec/description",
                "too_long",
                format!("At most {LONGEST_TEXT} characters."),
            ));
        }
        if let Some(Err(why)) = self
            .secret
            .as_ref()
            .map(|secret| webhooks::secrets(secret.reveal()))
        {
            faults.push(fault("/spec/secret", "invalid_secret", why));
        }
        faults
    }

    fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Starts deliveries at the end of the history, or resumes at the former position, because the
    /// change may have repaired the cause of a stop.
    async fn written(app: &App, conn: &mut PgConnection, row: &ObjectRow) -> Result<(), Error> {
        let spec: Self = document::stored(row)?;
        let url = parse_url(&spec.url)
            .map_err(|why| Error::unprocessable("/spec/url", "invalid_url", why))?;
        let refused = |why| Error::unprocessable("/spec/url", "address_refused", why);
        app.outbound.check(&url).map_err(refused)?;
        if db::keys::find_secret(conn, row.id).await?.is_none() {
            return Err(Error::unprocessable(
                "/spec/secret",
                "required",
                "The receiver needs the secret to verify the sender.",
            ));
        }
        let most = i64::try_from(MOST).unwrap_or(i64::MAX);
        if db::objects::count(conn, Self::KIND).await? > most {
            return Err(Error::conflict(
                "too_many",
                format!("At most {MOST} webhooks are possible, because each has its own sender."),
            ));
        }
        db::webhooks::start(conn, row.id, app.clock.now()).await
    }

    async fn status(
        app: &App,
        conn: &mut PgConnection,
        row: &ObjectRow,
    ) -> Result<WebhookStatus, Error> {
        let Some(state) = db::webhooks::find_state(conn, row.id).await? else {
            return Ok(WebhookStatus::default());
        };
        let spec: Self = document::stored(row)?;
        let enabled = spec.enabled.unwrap_or(true);
        let word = match (enabled, &state.stopped_because, state.attempts) {
            (false, _, _) => WebhookState::Disabled,
            (true, Some(_), _) => WebhookState::Stopped,
            (true, None, 0) => WebhookState::Active,
            (true, None, _) => WebhookState::Failing,
        };
        let hash = calls::hash_secret(app, conn, row.id).await?;
        Ok(WebhookStatus {
            state: word,
            because: state.stopped_because.or(state.last_error),
            delivered_seq: state.seq,
            attempts: state.attempts,
            failing_since: state.failing_since.map(|at| at.to_jiff()),
            next_attempt_at: (word == WebhookState::Failing).then(|| state.due_at.to_jiff()),
            secret_set: hash.is_some(),
            secret_hash: hash,
        })
    }
}

fn parse_url(text: &str) -> Result<Url, String> {
    let bare = "No user, password or fragment: deliveries are signed with the secret.";
    calls::parse_url(text, bare)
}

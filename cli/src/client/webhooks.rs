//! `muster webhook`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use muster_api::client::Precondition;
use muster_api::object::Draft;
use muster_api::webhooks::{Delivery, WebhookSpec};
use muster_core::values::{Name, Secret};
use serde_json::json;
use uuid::Uuid;

use super::kinds;
use super::output::{Column, Form};
use super::session::Session;

/// Interval and time limit for reading the log of a delivery; longer than one attempt.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 20;
/// The number of deliveries searched.
const RECENT: u32 = 200;

const DELIVERIES: &[Column] = &[
    Column::new("ID", "/id", Form::Text),
    Column::new("AGE", "/at", Form::Age),
    Column::new("EVENT", "/seq", Form::Text),
    Column::new("KIND", "/kind", Form::Text),
    Column::new("STATE", "/state", Form::State),
    Column::new("ATTEMPT", "/attempt", Form::Text),
    Column::new("STATUS", "/status", Form::Text),
    Column::new("MS", "/duration_ms", Form::Text),
    Column::new("ERROR", "/error", Form::Text),
];

/// Subcommands of webhooks, in addition to the subcommands of every kind.
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookVerb {
    /// Create a webhook. `muster apply` creates and changes webhooks from files
    Create {
        name: Name,
        /// https://HOST/PATH
        #[arg(long)]
        url: String,
        /// Kind of events: node.advanced, node.*, or *. Repeatable
        #[arg(long = "topic", required = true)]
        topics: Vec<String>,
        /// Limit the webhook to a site
        #[arg(long)]
        site: Option<String>,
        /// Description for people
        #[arg(long)]
        description: Option<String>,
        /// File with the signing secret, whsec_ and base64. Default: a generated secret, printed
        /// once
        #[arg(long)]
        secret_file: Option<PathBuf>,
    },
    /// Send a ping, and print the result
    Test { name: String },
    /// List deliveries, newest first
    Deliveries {
        name: String,
        /// Maximum number of deliveries
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Send the event of a delivery again, and print the result
    Redeliver { name: String, delivery: Uuid },
    /// Resume a stopped webhook at its last position
    Resume { name: String },
}

pub(super) async fn run(session: &Session, verb: WebhookVerb) -> anyhow::Result<()> {
    let client = &session.client;
    match verb {
        WebhookVerb::Create {
            name,
            url,
            topics,
            site,
            description,
            secret_file,
        } => {
            let made = secret_file
                .is_none()
                .then(|| format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())));
            let secret = match (&made, &secret_file) {
                (Some(made), _) => made.clone(),
                (None, Some(file)) => {
                    let text = std::fs::read_to_string(file)
                        .with_context(|| format!("read {}", file.display()))?;
                    text.trim().to_owned()
                }
                (None, None) => String::new(),
            };
            let secret = Some(Secret::new(secret));
            let spec = WebhookSpec {
                url,
                topics,
                site,
                enabled: None,
                description,
                secret,
            };
            client
                .put(name.as_str(), &Draft::new(spec), Precondition::Absent)
                .await?;
            let told = json!({ "name": name, "secret": made });
            session
                .output
                .print_lines(&told, || made.into_iter().collect())?;
            crate::printing::ensure_read("the webhook with its secret")
        }
        WebhookVerb::Test { name } => {
            let asked = client.test_webhook(&name).await?;
            went(session, &name, asked).await
        }
        WebhookVerb::Redeliver { name, delivery } => {
            let asked = client.redeliver(&name, delivery).await?;
            went(session, &name, asked).await
        }
        WebhookVerb::Deliveries { name, limit } => {
            let page = client.deliveries(&name, limit).await?;
            session
                .output
                .list_of(&page.items, DELIVERIES, session.clock.now())
        }
        WebhookVerb::Resume { name } => {
            let one = client.resume_webhook(&name).await?;
            session.output.one(
                &serde_json::to_value(&one)?,
                kinds::columns("webhook"),
                session.clock.now(),
            )
        }
    }
}

/// Waits for the attempt of a requested delivery, and prints the result. A rejected delivery is a
/// failure.
async fn went(session: &Session, webhook: &str, asked: Delivery) -> anyhow::Result<()> {
    let mut latest = asked;
    for _ in 0..LOOKS {
        let page = session.client.deliveries(webhook, RECENT).await?;
        latest = page
            .items
            .into_iter()
            .find(|one| one.id == latest.id)
            .unwrap_or(latest);
        if latest.state != "queued" {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    session.output.one(
        &serde_json::to_value(&latest)?,
        DELIVERIES,
        session.clock.now(),
    )?;
    match latest.state.as_str() {
        "delivered" => Ok(()),
        "queued" => anyhow::bail!(
            "not sent within {LOOKS} s. Check that a server runs, then see `muster webhook deliveries {webhook}`"
        ),
        _ => anyhow::bail!("it was not taken: {}", latest.error.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        verb: WebhookVerb,
    }

    #[test]
    fn a_webhook_needs_a_topic_and_takes_many() {
        let line = |words: &str| Line::try_parse_from(words.split(' '));
        assert!(line("w create ops --url https://a/").is_err());
        let two =
            line("w create ops --url https://a/ --topic node.* --topic claim.created").unwrap();
        assert!(
            matches!(two.verb, WebhookVerb::Create { topics, .. } if topics == ["node.*", "claim.created"])
        );
        assert!(line("w redeliver ops not-an-id").is_err());
    }
}

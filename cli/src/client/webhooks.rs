//! `muster webhook`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use muster_api::client::Precondition;
use muster_api::object::{Draft, Object};
use muster_api::webhooks::{Delivery, WebhookSpec, WebhookStatus};
use muster_core::values::{Name, Secret};
use serde_json::json;
use uuid::Uuid;

use super::Session;
use super::output::{Rows, age};

/// How often the log is asked how a delivery went, and for how long: longer than one attempt.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 20;
/// Deliveries that are looked through for one.
const RECENT: u32 = 200;

/// What can be done with webhooks.
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookVerb {
    /// List webhooks and how they stand.
    List,
    /// Show one.
    Get { name: String },
    /// Make one. `muster apply` makes, changes and reads them from files.
    Create {
        name: Name,
        /// https://HOST/PATH
        #[arg(long)]
        url: String,
        /// A kind of events: node.advanced, node.*, or *. May be repeated.
        #[arg(long = "topic", required = true)]
        topics: Vec<String>,
        /// Only what lies in this site.
        #[arg(long)]
        site: Option<String>,
        /// For people.
        #[arg(long)]
        description: Option<String>,
        /// Holds the secret that deliveries are signed with, whsec_ and base64; without it one is made and printed, this once.
        #[arg(long)]
        secret_file: Option<PathBuf>,
    },
    /// Remove one.
    Delete { name: String },
    /// Send a ping and say how it went.
    Test { name: String },
    /// What was sent, newest first.
    Deliveries {
        name: String,
        /// How many.
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Send the event of a delivery once more and say how it went.
    Redeliver { name: String, delivery: Uuid },
    /// Let one that was given up go on where it stopped.
    Resume { name: String },
}

pub(super) async fn run(session: &Session, verb: WebhookVerb) -> anyhow::Result<()> {
    let client = &session.client;
    match verb {
        WebhookVerb::List => {
            let all = client.list_all::<WebhookSpec>(None).await?;
            session.output.print(&all, || table(session, &all))
        }
        WebhookVerb::Get { name } => {
            let one = client.get::<WebhookSpec>(&name).await?;
            session.output.print(&one, || table(session, std::slice::from_ref(&one)))
        }
        WebhookVerb::Create { name, url, topics, site, description, secret_file } => {
            let made = secret_file.is_none().then(|| format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())));
            let secret = match (&made, &secret_file) {
                (Some(made), _) => made.clone(),
                (None, Some(file)) => {
                    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
                    text.trim().to_owned()
                }
                (None, None) => String::new(),
            };
            let secret = Some(Secret::new(secret));
            let spec = WebhookSpec { url, topics, site, enabled: None, description, secret };
            client.put(name.as_str(), &Draft::new(spec), Precondition::Absent).await?;
            let told = json!({ "name": name, "secret": made });
            session.output.print_lines(&told, || made.into_iter().collect())
        }
        WebhookVerb::Delete { name } => {
            let one = client.get::<WebhookSpec>(&name).await?;
            client.delete::<WebhookSpec>(&name, one.generation).await?;
            println!("webhook {name} removed");
            Ok(())
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
            session.output.print(&page.items, || log(session, &page.items))
        }
        WebhookVerb::Resume { name } => {
            let one = client.resume_webhook(&name).await?;
            session.output.print(&one, || table(session, std::slice::from_ref(&one)))
        }
    }
}

/// Waits until a delivery that was asked for was tried, and prints how it went; one that was not taken is a failure.
async fn went(session: &Session, webhook: &str, asked: Delivery) -> anyhow::Result<()> {
    let mut latest = asked;
    for _ in 0..LOOKS {
        let page = session.client.deliveries(webhook, RECENT).await?;
        latest = page.items.into_iter().find(|one| one.id == latest.id).unwrap_or(latest);
        if latest.state != "queued" {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    session.output.print(&latest, || log(session, std::slice::from_ref(&latest)))?;
    match latest.state.as_str() {
        "delivered" => Ok(()),
        "queued" => anyhow::bail!(
            "it was not sent within {LOOKS} s: does a server run? `muster webhook deliveries {webhook}` tells"
        ),
        _ => anyhow::bail!("it was not taken: {}", latest.error.unwrap_or_default()),
    }
}

fn table(session: &Session, webhooks: &[Object<WebhookSpec, WebhookStatus>]) -> Rows<7> {
    let now = session.clock.now();
    let row = |one: &Object<WebhookSpec, WebhookStatus>| {
        let (spec, status) = (&one.spec, &one.status);
        [
            one.name.to_string(),
            status.state.as_str().to_owned(),
            age(now, status.failing_since),
            status.delivered_seq.to_string(),
            spec.topics.join(","),
            spec.url.clone(),
            status.because.clone().unwrap_or_default(),
        ]
    };
    Rows {
        headings: ["NAME", "STATE", "FAILING", "UP TO", "TOPICS", "URL", "BECAUSE"],
        rows: webhooks.iter().map(row).collect(),
        wide_from: 7,
    }
}

fn log(session: &Session, deliveries: &[Delivery]) -> Rows<9> {
    let now = session.clock.now();
    let row = |one: &Delivery| {
        let number = |value: Option<i32>| value.map(|number| number.to_string()).unwrap_or_default();
        [
            one.id.to_string(),
            age(now, Some(one.at)),
            one.seq.map(|seq| seq.to_string()).unwrap_or_default(),
            one.kind.clone(),
            one.state.clone(),
            one.attempt.to_string(),
            number(one.status),
            number(one.duration_ms),
            one.error.clone().unwrap_or_default(),
        ]
    };
    Rows {
        headings: ["ID", "AGE", "EVENT", "KIND", "STATE", "ATTEMPT", "STATUS", "MS", "ERROR"],
        rows: deliveries.iter().map(row).collect(),
        wide_from: 9,
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
        let two = line("w create ops --url https://a/ --topic node.* --topic claim.created").unwrap();
        assert!(matches!(two.verb, WebhookVerb::Create { topics, .. } if topics == ["node.*", "claim.created"]));
        assert!(line("w redeliver ops not-an-id").is_err());
    }
}

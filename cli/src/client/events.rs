//! `muster event`, `muster node events`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::output::clean;
use super::session::Session;

/// Pause before a retry with an unreachable server.
const AWAY: Duration = Duration::from_secs(1);

/// Subcommands of the history.
#[derive(Debug, Subcommand)]
pub(crate) enum EventVerb {
    /// List events, oldest first
    List {
        /// Only events of this node
        #[arg(long)]
        node: Option<String>,
        #[command(flatten)]
        topics: Topics,
        #[command(flatten)]
        reading: Reading,
    },
    /// Follow new events, or all events after --after
    Follow {
        /// Only events of this node
        #[arg(long)]
        node: Option<String>,
        #[command(flatten)]
        topics: Topics,
        /// Sequence number to start after. Default: the latest event
        #[arg(long)]
        after: Option<i64>,
    },
}

/// The kinds of events.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Topics {
    /// Kinds of events, separated by commas: `node.advanced`, `claim.*`
    #[arg(long, value_name = "TOPICS")]
    topics: Option<String>,
}

/// Start and end of the list.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Sequence number to start after
    #[arg(long, default_value_t = 0)]
    after: i64,
    /// Maximum number of events. Default: all
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "follow")]
    limit: Option<u32>,
    /// Follow new events
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn run(session: &Session, verb: EventVerb) -> anyhow::Result<()> {
    match verb {
        EventVerb::List {
            node,
            topics,
            reading,
        } => read(session, node.as_deref(), &topics, &reading).await,
        EventVerb::Follow {
            node,
            topics,
            after,
        } => {
            let after = match after {
                Some(after) => after,
                None => latest(session).await?,
            };
            let reading = Reading {
                after,
                limit: None,
                follow: true,
            };
            read(session, node.as_deref(), &topics, &reading).await
        }
    }
}

/// Returns the newest sequence number by binary search, because the history has no route for its
/// end.
async fn latest(session: &Session) -> anyhow::Result<i64> {
    let after = async |seq: i64| match session.client.events(seq, &[("limit", "1")]).await {
        Ok(events) => Ok(!events.items.is_empty()),
        // Beyond the end, as after a restored database.
        Err(error) if error.status() == Some(410) => Ok(false),
        Err(error) => Err(error),
    };
    let (mut low, mut high) = (0, 1024);
    while after(high).await? {
        (low, high) = (high, high.saturating_mul(2));
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match after(middle).await? {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

/// Prints events of all kinds, and follows on request.
pub(super) async fn show(
    session: &Session,
    node: Option<&str>,
    reading: &Reading,
) -> anyhow::Result<()> {
    read(session, node, &Topics::default(), reading).await
}

/// The same for given kinds. While following, an unreachable server is retried.
async fn read(
    session: &Session,
    node: Option<&str>,
    topics: &Topics,
    reading: &Reading,
) -> anyhow::Result<()> {
    let mut after = reading.after;
    let mut left = reading.limit.unwrap_or(u32::MAX);
    loop {
        let limit = left.min(1000).to_string();
        let mut query = vec![
            ("limit", limit.as_str()),
            ("wait", if reading.follow { "30s" } else { "0s" }),
        ];
        query.extend(node.map(|node| ("node", node)));
        query.extend(topics.topics.as_deref().map(|topics| ("topics", topics)));
        let events = match session.client.events(after, &query).await {
            Ok(events) => events,
            Err(error) if reading.follow && error.away() => {
                tokio::time::sleep(AWAY).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for event in &events.items {
            match session.output.is_table() {
                true => {
                    let at = event.at.strftime("%F %T");
                    print_line!(
                        "{:>8} {at}  {:<16} {}",
                        event.seq,
                        clean(&event.actor),
                        clean(&event.summary)
                    );
                }
                false => print_line!("{}", serde_json::to_string(event)?),
            }
        }
        left = left.saturating_sub(u32::try_from(events.items.len()).unwrap_or(u32::MAX));
        // An empty page with a next number covers events hidden from the reader.
        let over = events.items.is_empty() && events.last_seq <= after;
        if left == 0 || (over && !reading.follow) || crate::printing::is_reader_gone() {
            return Ok(());
        }
        after = events.last_seq;
    }
}

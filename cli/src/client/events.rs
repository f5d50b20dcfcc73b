//! `muster event`, `muster node events`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::output::clean;
use super::session::Session;

/// Pause before a server that is away is asked again.
const AWAY: Duration = Duration::from_secs(1);

/// What can be read of the history.
#[derive(Debug, Subcommand)]
pub(crate) enum EventVerb {
    /// List events, oldest first.
    List {
        /// Only those of this node.
        #[arg(long)]
        node: Option<String>,
        #[command(flatten)]
        topics: Topics,
        #[command(flatten)]
        reading: Reading,
    },
    /// Print events as they come, from now on; or from --after on.
    Follow {
        /// Only those of this node.
        #[arg(long)]
        node: Option<String>,
        #[command(flatten)]
        topics: Topics,
        /// The sequence number of the last event seen; the latest one without it.
        #[arg(long)]
        after: Option<i64>,
    },
}

/// Which kinds.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Topics {
    /// Only events of these kinds: `node.advanced`, `claim.*`. Several with commas.
    #[arg(long, value_name = "TOPICS")]
    topics: Option<String>,
}

/// Where to begin and where to stop.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The sequence number of the last event seen.
    #[arg(long, default_value_t = 0)]
    after: i64,
    /// At most so many; all of them without it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "follow")]
    limit: Option<u32>,
    /// Go on as events come.
    #[arg(short, long)]
    follow: bool,
}

pub(super) async fn run(session: &Session, verb: EventVerb) -> anyhow::Result<()> {
    match verb {
        EventVerb::List {
            node,
            topics,
            reading,
        } => read(session, (node.as_deref(), &topics), &reading).await,
        EventVerb::Follow {
            node,
            topics,
            after,
        } => {
            let after = match after {
                Some(after) => after,
                None => latest(session).await?,
            };
            read(
                session,
                (node.as_deref(), &topics),
                &Reading {
                    after,
                    limit: None,
                    follow: true,
                },
            )
            .await
        }
    }
}

/// The newest sequence number, found by halving: the history may be long, and its end has no route of its own.
async fn latest(session: &Session) -> anyhow::Result<i64> {
    let after = async |seq: i64| match session.client.events(seq, &[("limit", "1")]).await {
        Ok(events) => Ok(!events.items.is_empty()),
        // Beyond the end, where a reader stands whose database was put back.
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

/// Prints events, of all kinds, and goes on where that is wanted.
pub(super) async fn show(
    session: &Session,
    node: Option<&str>,
    reading: &Reading,
) -> anyhow::Result<()> {
    read(session, (node, &Topics::default()), reading).await
}

/// The same of some kinds. A server that is away for a moment is waited for where it goes on.
async fn read(
    session: &Session,
    (node, topics): (Option<&str>, &Topics),
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
                    println!(
                        "{:>8} {at}  {:<16} {}",
                        event.seq,
                        clean(&event.actor),
                        clean(&event.summary)
                    );
                }
                false => println!("{}", serde_json::to_string(event)?),
            }
        }
        left = left.saturating_sub(u32::try_from(events.items.len()).unwrap_or(u32::MAX));
        // A page without events that leads on is of a stretch in which nothing was this reader's.
        let over = events.items.is_empty() && events.last_seq <= after;
        if left == 0 || (over && !reading.follow) {
            return Ok(());
        }
        after = events.last_seq;
    }
}

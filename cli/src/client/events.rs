//! `muster event`.

use clap::Subcommand;

use super::Session;
use super::output::clean;

/// What can be read of the history.
#[derive(Debug, Subcommand)]
pub(crate) enum EventVerb {
    /// List events, oldest first.
    List {
        /// The sequence number of the last event seen.
        #[arg(long, default_value_t = 0)]
        after: i64,
        #[arg(long)]
        node: Option<String>,
        /// Go on as events come.
        #[arg(short, long)]
        follow: bool,
    },
}

pub(super) async fn run(session: &Session, verb: EventVerb) -> anyhow::Result<()> {
    let EventVerb::List { mut after, node, follow } = verb;
    loop {
        let mut query = vec![("limit", "1000"), ("wait", if follow { "30s" } else { "0s" })];
        query.extend(node.as_deref().map(|node| ("node", node)));
        let events = session.client.events(after, &query).await?;
        for event in &events.items {
            match session.output.is_table() {
                true => {
                    let at = event.at.strftime("%F %T");
                    println!("{:>8} {at}  {:<16} {}", event.seq, clean(&event.actor), clean(&event.summary));
                }
                false => println!("{}", serde_json::to_string(event)?),
            }
        }
        after = events.last_seq;
        if events.items.is_empty() && !follow {
            return Ok(());
        }
    }
}

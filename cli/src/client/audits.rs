//! `muster audit head`: the newest seal, from the server. `muster audit verify` reads the database.

use clap::Subcommand;
use serde_json::json;

use super::session::Session;

/// Subcommands for the seals of the history.
#[derive(Debug, Subcommand)]
pub(crate) enum HeadVerb {
    /// Show the newest seal. A stored copy proves later that the history up to the seal is
    /// unchanged
    Head {
        /// Print a line for `muster audit verify --anchors`. Empty before the first seal
        #[arg(long)]
        anchor: bool,
    },
}

pub(super) async fn run(session: &Session, verb: HeadVerb) -> anyhow::Result<()> {
    let HeadVerb::Head { anchor } = verb;
    let head = session.client.audit_head().await?;
    if anchor {
        if let Some(at) = head.sealed_at {
            let line = json!({ "number": head.number, "last_seq": head.last_seq, "hash": head.hash, "at": at });
            print_line!("{line}");
        }
        return Ok(());
    }
    session.output.print_lines(&head, || match head.sealed_at {
        Some(at) => vec![
            format!(
                "seal {} of {at:.0}, over every event up to {}",
                head.number, head.last_seq
            ),
            format!("hash {}", head.hash),
        ],
        None => vec!["no seal exists yet".to_owned()],
    })
}

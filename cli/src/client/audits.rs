//! `muster audit head`: the newest seal, from the server. `muster audit verify` reads the database itself.

use clap::Subcommand;
use serde_json::json;

use super::session::Session;

/// What the server tells of the history's seals.
#[derive(Debug, Subcommand)]
pub(crate) enum HeadVerb {
    /// Show the newest seal: whoever keeps it can show later that nothing up to it was changed.
    Head {
        /// As a line that `muster audit verify --anchors` takes; nothing before anything was sealed.
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
            println!("{line}");
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
        None => vec!["nothing is sealed yet".to_owned()],
    })
}

//! `muster node console`.

use std::io::Write as _;
use std::time::Duration;

use super::Session;
use super::output::clean;

const LOOK: Duration = Duration::from_secs(1);

/// Prints what is kept of a node's serial console, and goes on when it is followed. A server that is away for a moment is waited for.
pub(super) async fn show(session: &Session, node: &str, follow: bool) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let log = match session.client.node_console(node, after).await {
            Ok(log) => log,
            Err(error) if follow && after.is_some() && error.away() => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut out = std::io::stdout().lock();
        for chunk in &log.items {
            match session.output.is_table() {
                // A console ends its lines with CR LF; what would move the cursor or colour the terminal stays out.
                true => write!(out, "{}", clean(&chunk.text.replace('\r', "")))?,
                false => writeln!(out, "{}", serde_json::to_string(chunk)?)?,
            }
        }
        out.flush()?;
        drop(out);
        after = Some(log.last_id);
        match (follow, log.items.is_empty()) {
            (false, _) => return Ok(()),
            (true, true) => tokio::time::sleep(LOOK).await,
            (true, false) => {}
        }
    }
}

//! `muster node console`.

use std::time::Duration;

use muster_core::consoles::Plain;

use super::session::Session;

const LOOK: Duration = Duration::from_secs(1);

/// Prints the stored output of a node's serial console, and follows new output on request. An
/// unreachable server is retried.
pub(super) async fn show(session: &Session, node: &str, follow: bool) -> anyhow::Result<()> {
    let mut after = None;
    let mut plain = Plain::default();
    loop {
        let log = match session.client.node_console(node, after).await {
            Ok(log) => log,
            Err(error) if follow && after.is_some() && error.away() => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for chunk in &log.items {
            match session.output.is_table() {
                // Control sequences for the terminal are removed.
                true => print_text!("{}", plain.feed(&chunk.text)),
                false => print_line!("{}", serde_json::to_string(chunk)?),
            }
        }
        after = Some(log.last_id);
        match (follow, log.items.is_empty()) {
            (false, _) => return Ok(()),
            (true, _) if crate::printing::is_reader_gone() => return Ok(()),
            (true, true) => tokio::time::sleep(LOOK).await,
            (true, false) => {}
        }
    }
}

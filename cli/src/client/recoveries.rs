//! `muster node recoveries`, `muster node stop-recovery`, `muster breaker`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use muster_api::recoveries::Recovery;
use serde_json::json;
use uuid::Uuid;

use super::progress::sentence;
use super::session::Session;

/// Subcommands of breakers.
#[derive(Debug, Subcommand)]
pub(crate) enum BreakerVerb {
    /// Reset a breaker: automatic recoveries of this failure continue
    Reset { id: Uuid },
}

pub(super) async fn run(session: &Session, verb: BreakerVerb) -> anyhow::Result<()> {
    let BreakerVerb::Reset { id } = verb;
    let breaker = session.client.reset_breaker(id).await?;
    session.output.print_lines(&breaker, || {
        vec![format!(
            "the breaker of {} is {}",
            breaker.signature, breaker.state
        )]
    })
}

pub(super) async fn list(session: &Session, node: &str) -> anyhow::Result<()> {
    let page = session.client.node_recoveries(node).await?;
    session
        .output
        .print_lines(&page.items, || page.items.iter().flat_map(lines).collect())
}

/// Saves a report for the maker of a part. Existing files are never overwritten.
pub(super) async fn save(
    session: &Session,
    node: &str,
    out: Option<PathBuf>,
) -> anyhow::Result<()> {
    let out = out.unwrap_or_else(|| PathBuf::from(format!("rma-{node}.tar.zst")));
    let bytes = session.client.node_rma(node).await?;
    let place = out.display().to_string();
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&out)
        .context(place.clone())?;
    file.write_all(&bytes).context(place.clone())?;
    session
        .output
        .print_lines(&json!({ "file": place, "bytes": bytes.len() }), || {
            vec![place.clone()]
        })
}

/// Stops a recovery after the current rung.
pub(super) async fn stop(session: &Session, node: &str) -> anyhow::Result<()> {
    let page = session.client.node_recoveries(node).await?;
    let open = page.items.iter().find(|recovery| recovery.ended.is_none());
    let open = open.with_context(|| format!("{node} has no recovery in progress"))?;
    let operation = open
        .operation
        .with_context(|| format!("{node} has not begun; try again shortly"))?;
    let operation = session.client.cancel_operation(operation).await?;
    session
        .output
        .print_lines(&operation, || vec![sentence(&operation)])
}

fn lines(recovery: &Recovery) -> Vec<String> {
    let stands = recovery.ended.as_deref().unwrap_or("under way");
    let head = format!(
        "{}  {stands}  {}: {}",
        recovery.begun_at.strftime("%F %T"),
        recovery.signature,
        recovery.because
    );
    let rung = |(at, rung): (usize, &String)| match recovery.tried.get(at) {
        Some(tried) => {
            let why = tried
                .why
                .as_deref()
                .map(|why| format!(": {why}"))
                .unwrap_or_default();
            format!("  {rung:<17} {}{why}", tried.outcome)
        }
        None => format!("  {rung:<17} not tried"),
    };
    std::iter::once(head)
        .chain(recovery.rungs.iter().enumerate().map(rung))
        .collect()
}

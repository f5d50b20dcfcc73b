//! Serial console output of nodes. The output comes from untrusted machines, so sizes are bounded
//! and control characters without use on a console are removed, and so are secrets.

use axum::extract::State;
use http::StatusCode;
use muster_core::consoles::{self, CHUNK_BYTES};
use muster_core::wire::consoles::{ConsoleChunk, ConsoleReport};

use super::Agent;
use super::redaction::redact_chunks;
use crate::app::App;
use crate::db;
use crate::error::Error;
use crate::http::extract::Json;

/// The largest number of chunks stored from one call. Agents send smaller batches.
const MAX_BATCH: usize = 1000;

pub(super) async fn report(
    State(app): State<App>,
    agent: Agent,
    Json(report): Json<ConsoleReport>,
) -> Result<StatusCode, Error> {
    let chunks = report
        .chunks
        .into_iter()
        .take(MAX_BATCH)
        .filter_map(keep_storable);
    let chunks = redact_chunks(chunks.collect());
    let mut tx = app.pool.begin().await?;
    // The lock on the agent's row is held to the end of the transaction, so that writers to one
    // console are ordered.
    agent.fence_alone(&mut tx, report.epoch, &app).await?;
    db::consoles::append(&mut tx, agent.site, &chunks).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

fn keep_storable(mut chunk: ConsoleChunk) -> Option<ConsoleChunk> {
    chunk
        .text
        .truncate(chunk.text.floor_char_boundary(CHUNK_BYTES));
    chunk.text = consoles::filter_text(&chunk.text);
    (!chunk.text.is_empty()).then_some(chunk)
}

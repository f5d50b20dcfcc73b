//! Records the serial consoles of the nodes of the site. The console is often the only evidence
//! when a kernel hangs. The recorder only reads, and other work never waits for it. A flooding
//! console or an unreachable server costs the oldest text, and a line on the tape reports the loss.

mod line; // The connection to a console
mod tape; // Console text queued for the server

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::clock::Clock;
use muster_core::ids::NodeId;
use muster_core::out_of_band::may_connect;
use muster_core::wire::calls::{ConsoleTarget, SiteConfig};
use muster_core::wire::consoles::ConsoleChunk;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::tape::Tape;
use crate::work::agent::Agent;
use crate::work::backoff::Backoff;

/// Pause between two calls. A booting machine writes all the time, and a single call per second
/// reports the text of all consoles.
const GATHER: Duration = Duration::from_secs(1);
/// Limits of a call. The server accepts 1000 chunks and 32 MiB.
const BATCH_CHUNKS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Records the consoles named by the configuration until the sender of `configs` is dropped.
pub(crate) async fn record(agent: Arc<Agent>, mut configs: watch::Receiver<Option<SiteConfig>>) {
    let mut lines = Lines::default();
    let mut backoff = Backoff::new(MAX_PAUSE);
    loop {
        let wanted = configs.borrow_and_update().as_ref().map(list_wanted);
        lines.follow(wanted.unwrap_or_default(), &agent.clock);
        tokio::select! {
            changed = configs.changed() => match changed {
                Ok(()) => continue,
                Err(_closed) => return,
            },
            () = tokio::time::sleep(GATHER) => {}
        }
        lines.tell(&agent, &mut backoff).await;
    }
}

/// A console of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    target: ConsoleTarget,
    /// Whether the address is inside of the networks of the site's consoles.
    inside: bool,
}

fn list_wanted(config: &SiteConfig) -> Vec<Wanted> {
    let judge = |target: &ConsoleTarget| Wanted {
        target: *target,
        inside: may_connect(&config.console_networks, target.address),
    };
    config.consoles.iter().map(judge).collect()
}

/// The consoles currently recorded.
#[derive(Debug, Default)]
struct Lines {
    lines: BTreeMap<NodeId, Line>,
    /// The last node of the previous call. The next call starts after this node, so that a flooding
    /// console cannot block the others.
    last: Option<NodeId>,
}

#[derive(Debug)]
struct Line {
    wanted: Wanted,
    tape: Arc<Tape>,
    _reader: AbortOnDropHandle<()>,
}

/// The content of a call, and the reported part of each tape.
#[derive(Debug, Default)]
struct Batch {
    chunks: Vec<ConsoleChunk>,
    bytes: usize,
    reports: Vec<(NodeId, tape::Report)>,
}

/// Reads a console until the future is dropped. A console outside of the networks is not read, and
/// the tape tells.
async fn record_line(wanted: Wanted, tape: Arc<Tape>) {
    match wanted.inside {
        true => line::read(wanted.target, tape).await,
        false => tape.note(&format!(
            "the console at {} is outside of the networks of the site's consoles, and is not read",
            wanted.target.address
        )),
    }
}

impl Lines {
    /// Records exactly these consoles. A console with a new address keeps the text not yet
    /// reported.
    fn follow(&mut self, wanted: Vec<Wanted>, clock: &Clock) {
        let all: BTreeMap<NodeId, Wanted> = wanted
            .into_iter()
            .map(|wanted| (wanted.target.node, wanted))
            .collect();
        self.lines.retain(|node, _| all.contains_key(node));
        for (node, wanted) in all {
            let line = self.lines.get(&node);
            if line.is_some_and(|line| line.wanted == wanted) {
                continue;
            }
            let tape = line.map_or_else(
                || Arc::new(Tape::new(clock.clone())),
                |line| Arc::clone(&line.tape),
            );
            #[expect(
                clippy::disallowed_methods,
                reason = "the line owns its reader, which ends when the line is dropped"
            )]
            let reader = tokio::spawn(record_line(wanted, Arc::clone(&tape)));
            self.lines.insert(
                node,
                Line {
                    wanted,
                    tape,
                    _reader: AbortOnDropHandle::new(reader),
                },
            );
        }
    }

    /// Reports new console text to the server. After a retryable failure the text stays on the
    /// tapes.
    async fn tell(&mut self, agent: &Agent, backoff: &mut Backoff) {
        loop {
            let Batch {
                chunks,
                bytes,
                reports,
            } = self.batch();
            if chunks.is_empty() {
                return;
            }
            let full = bytes >= BATCH_BYTES || chunks.len() >= BATCH_CHUNKS;
            match agent.server.report_consoles(chunks).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    agent.heed(&error);
                    if error.retryable() {
                        tracing::debug!(%error, "console text not reported: the server is unreachable; the text is kept and sent later");
                        return backoff.pause().await;
                    }
                    tracing::warn!(%error, bytes, "console text rejected by the server and dropped; report the error to the maintainers");
                }
            }
            for (node, report) in &reports {
                if let Some(line) = self.lines.get(node) {
                    line.tape.told(report);
                }
            }
            self.last = reports.last().map(|(node, _)| *node);
            if !full {
                return;
            }
        }
    }

    fn batch(&self) -> Batch {
        let mut batch = Batch::default();
        let after = self
            .lines
            .iter()
            .filter(|(node, _)| Some(**node) > self.last);
        let rest = self
            .lines
            .iter()
            .filter(|(node, _)| Some(**node) <= self.last);
        for (node, line) in after.chain(rest) {
            let (chunks, bytes) = (
                BATCH_CHUNKS - batch.chunks.len(),
                BATCH_BYTES.saturating_sub(batch.bytes),
            );
            if chunks == 0 || bytes == 0 {
                break;
            }
            let (report, told) = line.tape.report(chunks, bytes);
            if told.is_empty() {
                continue;
            }
            batch.bytes += told.iter().map(|(_, text)| text.len()).sum::<usize>();
            batch
                .chunks
                .extend(told.into_iter().map(|(at, text)| ConsoleChunk {
                    node: *node,
                    at,
                    text,
                }));
            batch.reports.push((*node, report));
        }
        batch
    }
}

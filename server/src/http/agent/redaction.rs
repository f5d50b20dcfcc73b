//! Removes secrets from the texts of agents before storage. An agent of this version removes the
//! secrets of consoles and logs too, and sees texts without cuts between calls.

use std::collections::BTreeMap;

use muster_core::ids::NodeId;
use muster_core::redact::{Redactor, Stream, redact};
use muster_core::wire::calls::{LogLine, RenewJob, ReportOutcome};
use muster_core::wire::consoles::ConsoleChunk;
use muster_core::wire::node::Progress;

use crate::error::Error;

/// Returns the report of a running job without secrets.
pub(super) fn redact_renewal(call: RenewJob) -> RenewJob {
    let mut redactor = Redactor::default();
    let log = call.log.into_iter().map(|line| LogLine {
        at: line.at,
        text: redactor.redact(&line.text),
    });
    RenewJob {
        log: log.collect(),
        waiting_for: call.waiting_for.map(|text| redact(&text)),
        progress: call.progress.map(|progress| Progress {
            message: redact(&progress.message),
            ..progress
        }),
        ..call
    }
}

/// Returns the report of an ended job without secrets. The evidence of a whole run is large: a
/// blocking thread keeps other requests running.
pub(super) async fn redact_outcome(report: ReportOutcome) -> Result<ReportOutcome, Error> {
    let redacted = tokio::task::spawn_blocking(move || ReportOutcome {
        outcome: report.outcome.redacted(),
        ..report
    });
    redacted.await.map_err(Error::internal)
}

/// The text of a node within a report.
#[derive(Debug, Default)]
struct Console {
    stream: Stream,
    /// Index of the node's latest chunk.
    latest: usize,
}

/// Returns the chunks of a report without secrets. An emptied chunk is left out.
pub(super) fn redact_chunks(mut chunks: Vec<ConsoleChunk>) -> Vec<ConsoleChunk> {
    let mut consoles: BTreeMap<NodeId, Console> = BTreeMap::new();
    for (index, chunk) in chunks.iter_mut().enumerate() {
        let console = consoles.entry(chunk.node).or_default();
        chunk.text = console.stream.feed(&chunk.text) + &console.stream.settle();
        console.latest = index;
    }
    for mut console in consoles.into_values() {
        chunks[console.latest]
            .text
            .push_str(&console.stream.finish());
    }
    chunks.retain(|chunk| !chunk.text.is_empty());
    chunks
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::wire::node::{Failure, FailureCode};
    use muster_core::wire::result::Outcome;

    use super::*;

    #[test]
    fn texts_of_a_job_are_stored_without_secrets() {
        let line = |text: &str| LogLine {
            at: Timestamp::UNIX_EPOCH,
            text: text.to_owned(),
        };
        let call = RenewJob {
            epoch: 1,
            attempt: 1,
            progress: None,
            log: vec![
                line("login by password=calvin, 3 disks"),
                line("-----BEGIN PRIVATE KEY-----"),
                line("MC4CAQAw"),
                line("-----END PRIVATE KEY-----"),
                line("done"),
            ],
            waiting_for: Some("SSH on n1 (token=abc)".to_owned()),
        };
        let kept = redact_renewal(call);
        let texts: Vec<_> = kept.log.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "login by password=[removed], 3 disks",
                "[removed]",
                "[removed]",
                "[removed]",
                "done",
            ]
        );
        assert_eq!(
            kept.waiting_for.as_deref(),
            Some("SSH on n1 (token=[removed]")
        );
    }

    #[tokio::test]
    async fn the_reason_of_a_failure_is_stored_without_secrets() {
        let failure = Failure::fatal(FailureCode::AgentBug, "GET https://root:calvin@10.0.0.1/x");
        let report = ReportOutcome {
            epoch: 1,
            attempt: 1,
            outcome: Outcome::Failed { failure },
        };
        let kept = redact_outcome(report).await.unwrap();
        let Outcome::Failed { failure } = kept.outcome else {
            panic!("the job failed");
        };
        assert_eq!(failure.message, "GET https://root:[removed]@10.0.0.1/x");
    }

    #[test]
    fn consoles_are_read_apart_and_across_chunks() {
        let (one, other) = (NodeId::new(), NodeId::new());
        let chunk = |node: NodeId, text: &str| ConsoleChunk {
            node,
            at: Timestamp::UNIX_EPOCH,
            text: text.to_owned(),
        };
        let kept = redact_chunks(vec![
            chunk(one, "muster.nonce=00"),
            chunk(other, "11 is no secret"),
            chunk(one, "11"),
            chunk(one, "22 quiet"),
        ]);
        let texts: Vec<_> = kept.iter().map(|chunk| chunk.text.as_str()).collect();
        assert_eq!(
            texts,
            ["muster.nonce=[removed]", "11 is no secret", " quiet"]
        );
    }
}

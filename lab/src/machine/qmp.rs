//! QEMU's control protocol (docs/interop/qmp-spec). Each line is a JSON document. QEMU sends a
//! greeting, the client sends `qmp_capabilities`, then QEMU answers commands in order, with events
//! in between.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// Maximum length of an answer in bytes.
const MAX_LINE: u64 = 1 << 20;
/// Time limit for an answer; a slower QEMU counts as stopped or stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type Request = (Value, oneshot::Sender<Result<Value, String>>);

/// A control connection to a QEMU process.
#[derive(Debug)]
pub(crate) struct Qmp {
    requests: mpsc::Sender<Request>,
    reader: JoinHandle<Option<String>>,
    /// Notified when the guest's CPUs were stopped for a reason other than a shutdown.
    stopped: Arc<Notify>,
}

impl Qmp {
    /// Connects: starts the reader and leaves the negotiation mode of the protocol.
    pub(crate) async fn connect(stream: UnixStream) -> Result<Self, String> {
        let (read, write) = stream.into_split();
        let (requests, queue) = mpsc::channel(8);
        let stopped = Arc::new(Notify::new());
        #[expect(clippy::disallowed_methods, reason = "the connection owns its reader")]
        let reader = tokio::spawn(converse(
            BufReader::new(read),
            write,
            queue,
            Arc::clone(&stopped),
        ));
        let qmp = Self {
            requests,
            reader,
            stopped,
        };
        qmp.execute("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Runs a command; returns QEMU's answer or the text of the error.
    pub(crate) async fn execute(&self, command: &str, arguments: Value) -> Result<Value, String> {
        let (reply, answer) = oneshot::channel();
        let request = json!({"execute": command, "arguments": arguments});
        self.requests
            .send((request, reply))
            .await
            .map_err(|_| "QEMU has closed its control socket".to_owned())?;
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("QEMU has closed its control socket".to_owned()),
            Err(_) => Err(format!(
                "QEMU did not answer {command} in {ANSWER_TIMEOUT:?}"
            )),
        }
    }

    /// Waits until QEMU reports that the CPUs of a running guest were stopped.
    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }

    /// Returns the reason for the shutdown in QEMU's own words (`guest-reset`, `guest-shutdown`,
    /// ...), if QEMU gave a reason. Call after QEMU has ended.
    pub(crate) async fn shutdown_reason(self) -> Option<String> {
        let Self {
            requests, reader, ..
        } = self;
        let abort = reader.abort_handle();
        let reason = tokio::time::timeout(ANSWER_TIMEOUT, reader).await;
        abort.abort();
        drop(requests);
        reason.ok().and_then(Result::ok).flatten()
    }
}

/// Sends requests and reads lines until QEMU closes the connection; returns the reason of the last
/// SHUTDOWN event.
async fn converse(
    mut lines: BufReader<OwnedReadHalf>,
    mut write: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Request>,
    stopped: Arc<Notify>,
) -> Option<String> {
    let mut reason = None;
    let mut waiting: std::collections::VecDeque<oneshot::Sender<Result<Value, String>>> =
        Default::default();
    let mut line = Vec::new();
    loop {
        let mut limited = (&mut lines).take(MAX_LINE);
        tokio::select! {
            // `read_until` keeps the bytes read so far in `line` when the other branch completes
            // first.
            read = limited.read_until(b'\n', &mut line) => {
                if !matches!(read, Ok(read) if read > 0) || line.last() != Some(&b'\n') {
                    return reason;
                }
                let message: Value = serde_json::from_slice(&line).unwrap_or_default();
                line.clear();
                if message["event"] == "SHUTDOWN" {
                    reason = message["data"]["reason"].as_str().map(str::to_owned);
                } else if message["event"] == "STOP" && reason.is_none() {
                    stopped.notify_one();
                } else if let Some(answer) = message.get("return") {
                    // An error only means that the caller stopped waiting.
                    let _ = waiting.pop_front().map(|reply| reply.send(Ok(answer.clone())));
                } else if let Some(error) = message.get("error") {
                    let said = error["desc"].as_str().unwrap_or("unknown error").to_owned();
                    let _ = waiting.pop_front().map(|reply| reply.send(Err(said)));
                }
            }
            Some((request, reply)) = queue.recv() => {
                waiting.push_back(reply);
                if write.write_all(format!("{request}\n").as_bytes()).await.is_err() {
                    return reason;
                }
            }
        }
    }
}

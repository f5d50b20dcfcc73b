//! Shows the progress of every node. A terminal has a fixed line per node; a pipe gets a new line
//! after each change.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use muster_api::client::Client;
use muster_api::nodes::{NodeSpec, NodeStatus};

const POLL: Duration = Duration::from_secs(1);

/// The last seen status of each node, by name.
pub(super) type Fleet = BTreeMap<String, NodeStatus>;

/// The progress display of a run. Several acts may wait at the same time.
pub(super) struct Watch {
    bars: Option<MultiProgress>,
    shown: Mutex<BTreeMap<String, Shown>>,
    started: Instant,
}

/// The last line shown of a node, and on a terminal the fixed line.
#[derive(Debug, Default)]
struct Shown {
    line: String,
    bar: Option<ProgressBar>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let bars = std::io::stdout().is_terminal().then(MultiProgress::new);
        Self {
            bars,
            shown: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Returns the time since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints a line about the current act of the run, with the elapsed seconds.
    pub(super) fn say(&self, text: &str) {
        let line = format!("[{:>4} s] {text}", self.started.elapsed().as_secs());
        match &self.bars {
            Some(multi) => multi.println(line).ok(),
            None => {
                println!("{line}");
                None
            }
        };
    }

    /// Polls the nodes each second until `done` returns true. Fails when `done` returns an error,
    /// or after `limit`, with the last seen line of each node.
    pub(super) async fn until(
        &self,
        client: &Client,
        what: &str,
        limit: Duration,
        mut done: impl AsyncFnMut(&Fleet) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            // The server may be down for a moment on purpose. Only the deadline counts.
            if let Ok(nodes) = client.list_all::<NodeSpec>(None).await {
                let fleet: Fleet = nodes
                    .into_iter()
                    .map(|node| (node.name.to_string(), node.status))
                    .collect();
                self.show(&fleet);
                if done(&fleet).await? {
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                bail!(
                    "{what}: not within {} s; last seen: {:?}",
                    limit.as_secs(),
                    self.last_seen()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn show(&self, fleet: &Fleet) {
        let mut shown = self.shown();
        for (name, status) in fleet {
            let line = format!("{:<13} {}", status.state, describe(status));
            let node = shown.entry(name.clone()).or_default();
            if node.line == line {
                continue;
            }
            match &self.bars {
                Some(multi) => {
                    let bar = node.bar.get_or_insert_with(|| add_bar(multi, name));
                    bar.set_message(line.clone());
                }
                None => self.say(&format!("{name}: {line}")),
            }
            node.line = line;
        }
    }

    fn last_seen(&self) -> BTreeMap<String, String> {
        let shown = self.shown();
        shown
            .iter()
            .map(|(name, node)| (name.clone(), node.line.clone()))
            .collect()
    }

    fn shown(&self) -> MutexGuard<'_, BTreeMap<String, Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add_bar(multi: &MultiProgress, name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {prefix:<4} {elapsed:>5} {wide_msg}");
    let bar = multi
        .add(ProgressBar::new_spinner())
        .with_prefix(name.to_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

fn describe(status: &NodeStatus) -> String {
    match (
        status.state.as_str(),
        &status.reason,
        &status.why.waiting_for,
    ) {
        ("quarantined" | "failed", Some(reason), _) => reason.clone(),
        (_, _, Some(waiting)) => waiting.clone(),
        _ => String::new(),
    }
}

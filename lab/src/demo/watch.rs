//! Shows the progress of every node. A terminal has a fixed line per node; a pipe gets a new line
//! after each change.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use muster_api::client::Client;
use muster_api::nodes::{NodeSpec, NodeStatus};

const POLL: Duration = Duration::from_secs(1);

/// The last seen status of each node, by name.
pub(super) type Fleet = BTreeMap<String, NodeStatus>;

/// The progress display of a run.
pub(super) struct Watch {
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
    shown: BTreeMap<String, String>,
    started: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        let bars = std::io::stdout()
            .is_terminal()
            .then(|| (MultiProgress::new(), BTreeMap::new()));
        Self {
            bars,
            shown: BTreeMap::new(),
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
            Some((multi, _)) => multi.println(line).ok(),
            None => {
                println!("{line}");
                None
            }
        };
    }

    /// Polls the nodes each second until `done` returns true. Fails when `done` returns an error,
    /// or after `limit`, with the last seen line of each node.
    pub(super) async fn until(
        &mut self,
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
                    self.shown
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn show(&mut self, fleet: &Fleet) {
        for (name, status) in fleet {
            let line = format!("{:<13} {}", status.state, describe(status));
            if self.shown.get(name) == Some(&line) {
                continue;
            }
            match &mut self.bars {
                Some((multi, bars)) => bar(multi, bars, name).set_message(line.clone()),
                None => self.say(&format!("{name}: {line}")),
            }
            self.shown.insert(name.clone(), line);
        }
    }
}

fn bar<'a>(
    multi: &MultiProgress,
    bars: &'a mut BTreeMap<String, ProgressBar>,
    name: &str,
) -> &'a ProgressBar {
    bars.entry(name.to_owned()).or_insert_with(|| {
        let style = ProgressStyle::with_template("{spinner} {prefix:<4} {elapsed:>5} {wide_msg}");
        let bar = multi
            .add(ProgressBar::new_spinner())
            .with_prefix(name.to_owned());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    })
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

//! Signs of trouble that halt a rollout: alerts of monitoring, monitors, and regressions of gates.

use jiff::{SignedDuration, Timestamp};
use muster_api::monitors::MonitorSpec;
use muster_api::rollouts::{RolloutSignal, SignalKind};
use muster_core::rollout::{HaltWhen, MonitorState, RolloutPolicy, Silent};
use serde::Deserialize as _;
use sqlx::PgConnection;

use super::regressions;
use crate::db;
use crate::db::alerts::FiringAlert;
use crate::db::monitors::NamedRow;
use crate::db::rollouts::RolloutRow;
use crate::error::Error;

/// The signals of a rollout's policy: alerts, then monitors, then regressions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    pub list: Vec<RolloutSignal>,
    /// A changed node is compared at the next tick.
    is_pending: bool,
}

impl Signals {
    /// Loads the signals. A monitor that was removed is unknown.
    ///
    /// # Errors
    /// When the database fails.
    pub(super) async fn load(
        conn: &mut PgConnection,
        rollout: &RolloutRow,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let (alerts, monitors) = list_names(&rollout.policy);
        let mut signals = Vec::new();
        if !alerts.is_empty() {
            let firing = db::alerts::list_firing(conn, rollout.id, &alerts).await?;
            signals.extend(alerts.into_iter().map(|name| {
                let alert = firing.iter().find(|alert| alert.name == name);
                describe_alert(name, alert)
            }));
        }
        if !monitors.is_empty() {
            let rows = db::monitors::list_named(conn, &monitors).await?;
            signals.extend(monitors.into_iter().map(|name| {
                let row = rows.iter().find(|row| row.name == name);
                describe_monitor(name, row, now)
            }));
        }
        let mut is_pending = false;
        for (_, limit) in regressions::list_limits(&rollout.policy) {
            let (signal, pends) = regressions::describe(conn, rollout, limit).await?;
            is_pending |= pends;
            signals.push(signal);
        }
        let list = signals;
        Ok(Self { list, is_pending })
    }

    /// Lists the signals that halt the rollout, as sentences.
    pub(super) fn list_halts(&self) -> Vec<String> {
        let halts = self.list.iter().filter(|signal| is_halting(signal.state));
        halts.map(|signal| signal.sentence.clone()).collect()
    }

    /// Lists the signals without a present answer, as sentences.
    pub(super) fn list_unknown(&self) -> Vec<String> {
        let is_unknown = |signal: &&RolloutSignal| signal.state == MonitorState::Unknown;
        let unknown = self.list.iter().filter(is_unknown);
        unknown.map(|signal| signal.sentence.clone()).collect()
    }

    /// Returns whether no signal keeps a node from being taken.
    pub(super) fn allow_start(&self) -> bool {
        let is_quiet = |signal: &RolloutSignal| signal.state == MonitorState::Quiet;
        self.list.iter().all(is_quiet)
    }

    /// Returns a signal without a present answer. Regressions come first: they need a person.
    pub(super) fn find_unknown(&self) -> Option<Silent> {
        let is_unknown = |signal: &&RolloutSignal| signal.state == MonitorState::Unknown;
        let unknown = self.list.iter().rev().find(is_unknown)?;
        let name = unknown.name.clone();
        Some(match unknown.kind {
            SignalKind::Regression => Silent::Gate {
                name,
                is_pending: self.is_pending,
            },
            SignalKind::Alert | SignalKind::Monitor => Silent::Monitor(name),
        })
    }
}

/// Returns whether a state halts the rollout.
fn is_halting(state: MonitorState) -> bool {
    match state {
        MonitorState::Firing | MonitorState::Silent => true,
        MonitorState::Quiet | MonitorState::Unknown => false,
    }
}

/// Returns the names of the alerts and of the monitors of a policy.
pub(super) fn list_names(policy: &RolloutPolicy) -> (Vec<String>, Vec<String>) {
    let (mut alerts, mut monitors) = (Vec::new(), Vec::new());
    for signal in &policy.halt_when {
        match signal {
            HaltWhen::Alert(name) => alerts.push(name.clone()),
            HaltWhen::Monitor(name) => monitors.push(name.clone()),
            HaltWhen::Regression(_) => {}
        }
    }
    (alerts, monitors)
}

/// Describes an alert. The sentence names no node: a reader of the rollout may be no reader of the node.
fn describe_alert(name: String, firing: Option<&FiringAlert>) -> RolloutSignal {
    let (state, sentence) = match firing {
        Some(alert) => {
            let nodes = count(alert.nodes, "node", "nodes");
            let since = alert.since.to_jiff();
            let sentence = format!("alert {name} fires on {nodes} since {since:.0}");
            (MonitorState::Firing, sentence)
        }
        None => (
            MonitorState::Quiet,
            format!("alert {name} fires on no node of the rollout"),
        ),
    };
    RolloutSignal {
        kind: SignalKind::Alert,
        name,
        state,
        sentence,
    }
}

fn describe_monitor(name: String, row: Option<&NamedRow>, now: Timestamp) -> RolloutSignal {
    let spec = row.and_then(|row| MonitorSpec::deserialize(&row.spec).ok());
    let (state, sentence) = match row.zip(spec) {
        Some((row, spec)) => {
            let interval = SignedDuration::from_secs(i64::from(spec.interval_s));
            let state = row.answers.answers().find_state(interval, now);
            (state, describe_answers(row, state))
        }
        None => (
            MonitorState::Unknown,
            format!("monitor {name} was removed, or cannot be read"),
        ),
    };
    RolloutSignal {
        kind: SignalKind::Monitor,
        name,
        state,
        sentence,
    }
}

fn describe_answers(row: &NamedRow, state: MonitorState) -> String {
    let NamedRow { name, answers, .. } = row;
    let since = match answers.since(state) {
        Some(at) => format!(" since {at:.0}"),
        None => String::new(),
    };
    let problem = answers.problem.as_deref().unwrap_or_default();
    match state {
        MonitorState::Quiet => format!("monitor {name} is quiet{since}"),
        MonitorState::Firing => {
            let series = count(answers.series.unwrap_or_default(), "series", "series");
            format!("monitor {name} fires{since}: {series}")
        }
        MonitorState::Silent => {
            format!("monitor {name} has given no answer{since}: {problem}")
        }
        MonitorState::Unknown if !problem.is_empty() => {
            format!("monitor {name} gave no answer: {problem}")
        }
        MonitorState::Unknown => format!("monitor {name} has no present answer yet"),
    }
}

fn count(number: i64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

//! `muster rollout adjust`.

use std::path::PathBuf;

use clap::Args;
use muster_api::rollouts::{AdjustRollout, Rollout};
use muster_core::rollout::{Amount, HaltWhen, Regression};
use serde_json::{Map, Value, json};

use super::read_json;
use super::regression::parse_regression;
use crate::client::session::Session;

/// The rollout, the changes and the reason.
#[derive(Args, Debug)]
pub(crate) struct AdjustArgs {
    rollout: String,
    /// Nodes changing at the same time: a number, or a percentage of the planned nodes
    #[arg(long, value_name = "NODES")]
    max_changing: Option<Amount>,
    /// Nodes waiting for their jobs at the same time
    #[arg(long, value_name = "NODES")]
    max_waiting: Option<Amount>,
    /// Nodes running their gates at the same time
    #[arg(long, value_name = "NODES")]
    max_validating: Option<Amount>,
    /// Failed nodes tolerated over the whole run, in place of count and percentage
    #[arg(long, value_name = "COUNT")]
    failures: Option<u32>,
    /// Date by which every node is to be visited, in RFC 3339
    #[arg(long, value_name = "TIME")]
    visit_by: Option<jiff::Timestamp>,
    /// Maintenance window, in addition to the windows of site and pool
    #[arg(long, value_name = "NAME")]
    maintenance_window: Option<String>,
    /// Alert that halts the rollout, in place of the present signals. Repeatable
    #[arg(long, value_name = "ALERT")]
    halt_on_alert: Vec<String>,
    /// Monitor that halts the rollout, in place of the present signals. Repeatable
    #[arg(long, value_name = "MONITOR")]
    halt_on_monitor: Vec<String>,
    /// Largest tolerated loss of a gate's value on a changed node, in place of the present signals. Repeatable
    #[arg(long, value_name = "GATE/METRIC=PERCENT", value_parser = parse_regression)]
    halt_on_regression: Vec<Regression>,
    /// File with changes to the policy, as a JSON merge patch: `null` removes a member
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "max_changing", "max_waiting", "max_validating", "failures", "visit_by", "maintenance_window",
        "halt_on_alert", "halt_on_monitor", "halt_on_regression",
    ])]
    policy: Option<PathBuf>,
    /// Reason, recorded in the history
    #[arg(long)]
    reason: String,
}

/// Changes the policy of an open rollout.
pub(super) async fn adjust(session: &Session, args: AdjustArgs) -> anyhow::Result<Rollout> {
    let policy = match &args.policy {
        Some(path) => read_json(path)?,
        None => list_changes(&args),
    };
    anyhow::ensure!(
        !policy.is_empty(),
        "no change is named: see muster rollout adjust --help"
    );
    let body = AdjustRollout {
        policy,
        reason: args.reason,
    };
    let client = &session.client;
    Ok(client.steer_rollout(&args.rollout, "adjust", &body).await?)
}

/// Returns the signals of the options, if any.
fn list_signals(args: &AdjustArgs) -> Option<Vec<HaltWhen>> {
    let alerts = args.halt_on_alert.iter().cloned().map(HaltWhen::Alert);
    let monitors = args.halt_on_monitor.iter().cloned();
    let monitors = monitors.map(HaltWhen::Monitor);
    let regressions = args.halt_on_regression.iter().cloned();
    let regressions = regressions.map(HaltWhen::Regression);
    let signals: Vec<HaltWhen> = alerts.chain(monitors).chain(regressions).collect();
    (!signals.is_empty()).then_some(signals)
}

/// Returns the merge patch of the options.
fn list_changes(args: &AdjustArgs) -> Map<String, Value> {
    let object = |members: Vec<(&str, Option<Value>)>| -> Map<String, Value> {
        let given = members.into_iter();
        let given = given.filter_map(|(member, value)| Some((member.to_owned(), value?)));
        given.collect()
    };
    let nested = |members| {
        let object = object(members);
        (!object.is_empty()).then_some(Value::Object(object))
    };
    let amount = |amount: Option<Amount>| amount.map(|amount| json!(amount));
    object(vec![
        (
            "budgets",
            nested(vec![
                ("max_changing", amount(args.max_changing)),
                ("max_waiting", amount(args.max_waiting)),
                ("max_validating", amount(args.max_validating)),
            ]),
        ),
        (
            "failure_budget",
            args.failures
                .map(|count| json!({ "count": count, "percent": null })),
        ),
        ("visit_by", args.visit_by.map(|at| json!(at))),
        (
            "maintenance_window",
            args.maintenance_window.as_ref().map(|name| json!(name)),
        ),
        (
            "halt_when",
            list_signals(args).map(|signals| json!(signals)),
        ),
    ])
}

//! Values of gates that are worse after the change of a node than before.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use muster_api::rollouts::{NodeComparison, RolloutSignal, SignalKind};
use muster_core::gates::{Op, Suite};
use muster_core::ids::{NodeId, ObjectId};
use muster_core::rollout::{HaltWhen, NotCompared, Regression, RolloutPolicy, is_comparable};
use sqlx::PgConnection;

use crate::db;
use crate::db::rollout_comparisons::{Asked, ComparisonRow, CountedRow};
use crate::db::rollouts::RolloutRow;
use crate::document::fault;
use crate::error::Error;

/// Most nodes that are compared in one tick, by signal. The next tick compares the rest.
const MOST: i64 = 500;
/// The code of a gate or a metric that the suite does not have.
const NOT_FOUND: &str = "not_found";

/// Lists the regressions of a policy with their places.
pub(super) fn list_limits(policy: &RolloutPolicy) -> impl Iterator<Item = (usize, &Regression)> {
    let signals = policy.halt_when.iter().enumerate();
    signals.filter_map(|(at, signal)| match signal {
        HaltWhen::Regression(limit) => Some((at, limit)),
        HaltWhen::Alert(_) | HaltWhen::Monitor(_) => None,
    })
}

/// Compares the changed nodes without a comparison; all nodes, or one whose change has ended.
///
/// # Errors
/// When the database fails.
pub(super) async fn compare_changed(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    node: Option<NodeId>,
) -> Result<(), Error> {
    if list_limits(&rollout.policy).next().is_none() {
        return Ok(());
    }
    let suite = db::specs::find_suite_of(conn, rollout.pool).await?;
    let suite = suite.as_ref().map(name_version).unwrap_or_default();
    for (_, limit) in list_limits(&rollout.policy) {
        let asked = Asked {
            rollout: rollout.id,
            limit,
            suite: &suite,
        };
        let nodes = db::rollout_comparisons::lock_due(conn, asked, node, MOST).await?;
        for row in db::rollout_comparisons::list_due(conn, asked, &nodes).await? {
            let of = row.node;
            let found = row.compare(&limit.metric);
            let found = found.as_ref().map_err(|problem| *problem);
            db::rollout_comparisons::write(conn, asked, of, found).await?;
        }
    }
    Ok(())
}

/// Returns the name and version of a suite, as runs have them.
fn name_version(suite: &Suite) -> String {
    format!("{} {}", suite.name, suite.version)
}

/// Checks that each regression can be measured: a gate of the pool's suite compares the metric with a
/// limit, and a node of the pool has a result. Those of the policy before stay as they are.
///
/// # Errors
/// 422 with the places of the policy.
pub(super) async fn check(
    conn: &mut PgConnection,
    pool: ObjectId,
    policy: &RolloutPolicy,
    before: &RolloutPolicy,
) -> Result<(), Error> {
    let is_known = |limit: &Regression| {
        list_limits(before).any(|(_, known)| name_limit(known) == name_limit(limit))
    };
    if list_limits(policy).next().is_none() {
        return Ok(());
    }
    let suite = db::specs::find_suite_of(conn, pool).await?;
    let mut faults = Vec::new();
    for (at, limit) in list_limits(policy) {
        let place = |member: &str| format!("/policy/halt_when/{at}/regression/{member}");
        match find_metric(suite.as_ref(), limit) {
            Ok(()) if is_known(limit) => continue,
            Ok(()) => {}
            // The suite may have changed since.
            Err((_, NOT_FOUND, _)) if is_known(limit) => continue,
            Err((member, code, detail)) => {
                faults.push(fault(place(member), code, detail));
                continue;
            }
        }
        let Some(suite) = &suite else { continue };
        let version = name_version(suite);
        if !db::rollout_comparisons::has_result(conn, pool, &limit.gate, &version).await? {
            let detail = format!(
                "No node of the pool has a passed result of {} with the suite {version}. A converge of a node gives one: muster node converge.",
                limit.gate
            );
            faults.push(fault(place("gate"), "no_result", detail));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Error::Unprocessable(faults)),
    }
}

/// Returns gate and metric.
fn name_limit(limit: &Regression) -> String {
    format!("{}/{}", limit.gate, limit.metric)
}

/// Finds the metric in the suite.
///
/// # Errors
/// The wrong member with a code and a sentence.
fn find_metric(
    suite: Option<&Suite>,
    limit: &Regression,
) -> Result<(), (&'static str, &'static str, String)> {
    let Some(suite) = suite else {
        return Err(("gate", NOT_FOUND, "The pool has no suite.".to_owned()));
    };
    let Some(gate) = suite.gates.iter().find(|gate| gate.id == limit.gate) else {
        let detail = format!("The suite {} has no gate {:?}.", suite.name, limit.gate);
        return Err(("gate", NOT_FOUND, detail));
    };
    let comparable = gate
        .criteria
        .iter()
        .filter(|criterion| is_comparable(criterion.op));
    let known: BTreeSet<&str> = comparable
        .clone()
        .map(|criterion| criterion.metric.as_str())
        .collect();
    let mut of_metric = comparable.filter(|criterion| criterion.metric == limit.metric);
    let Some(first) = of_metric.next() else {
        let known: Vec<&str> = known.into_iter().collect();
        let detail = match known.is_empty() {
            true => format!("The gate {} has no limit >= or <=.", gate.id),
            false => format!("The gate {} has limits for: {}.", gate.id, known.join(", ")),
        };
        return Err(("metric", NOT_FOUND, detail));
    };
    let rises = std::iter::once(first)
        .chain(of_metric)
        .any(|one| one.op == Op::AtMost);
    match limit.percent < 100 || rises {
        true => Ok(()),
        false => {
            let detail =
                "A value with a limit >= can lose at most 100 percent: write less than 100.";
            Err(("percent", "out_of_range", detail.to_owned()))
        }
    }
}

/// Describes the signal of a regression. The second value: a changed node is compared at the next tick.
///
/// # Errors
/// When the database fails.
pub(super) async fn describe(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    limit: &Regression,
) -> Result<(RolloutSignal, bool), Error> {
    let counted = db::rollout_comparisons::count(conn, rollout.id, limit).await?;
    let signal = RolloutSignal {
        kind: SignalKind::Regression,
        name: name_limit(limit),
        state: counted.comparisons().find_state(limit),
        sentence: describe_limit(limit, &counted),
    };
    Ok((signal, counted.pending > 0))
}

/// The sentence names no node: a reader of the rollout may be no reader of the node.
fn describe_limit(limit: &Regression, counted: &CountedRow) -> String {
    let Regression { gate, metric, .. } = limit;
    let CountedRow {
        changed,
        pending,
        unmatched,
        compared,
        worse,
        ..
    } = counted;
    if *changed == 0 && *worse == 0 {
        return format!("{gate}: no node has changed, so {metric} is not compared yet");
    }
    let mut parts = Vec::new();
    if *compared > 0 || *worse > 0 {
        let percent = limit.percent;
        parts.push(format!(
            "{metric} is worse by more than {percent} % on {worse} of {compared} compared nodes"
        ));
    }
    if let Some(worst) = counted.worst.filter(|worst| *worst > 0.0) {
        parts.push(format!("the largest loss is {} %", format_value(worst)));
    }
    if *pending > 0 {
        parts.push(format!(
            "{metric} is not compared yet on {pending} of {changed} changed nodes"
        ));
    }
    if *unmatched > 0 {
        parts.push(format!(
            "{metric} cannot be compared on {unmatched} of {changed} changed nodes"
        ));
    }
    format!("{gate}: {}", parts.join("; "))
}

/// Returns a value with at most three decimals.
fn format_value(value: f64) -> String {
    match value.abs() < 1e15 {
        true => {
            let text = format!("{value:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        false => format!("{value:e}"),
    }
}

/// Lists the comparisons of a rollout's nodes, for the regressions of the policy.
///
/// # Errors
/// When the database fails.
pub(super) async fn list(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
) -> Result<BTreeMap<NodeId, Vec<NodeComparison>>, Error> {
    let mut nodes: BTreeMap<NodeId, Vec<NodeComparison>> = BTreeMap::new();
    if list_limits(&rollout.policy).next().is_none() {
        return Ok(nodes);
    }
    for row in db::rollout_comparisons::list(conn, rollout.id).await? {
        let is_of = |limit: &Regression| limit.gate == row.gate && limit.metric == row.metric;
        let mut limits = list_limits(&rollout.policy);
        if let Some((_, limit)) = limits.find(|(_, limit)| is_of(limit)) {
            nodes.entry(row.node).or_default().push(render(row, limit));
        }
    }
    Ok(nodes)
}

fn render(row: ComparisonRow, limit: &Regression) -> NodeComparison {
    NodeComparison {
        is_worse: row.loss.is_some_and(|loss| loss > f64::from(limit.percent)),
        sentence: tell_node(&row),
        gate: row.gate,
        metric: row.metric,
        entity: row.entity.filter(|entity| !entity.is_empty()),
        before: row.before,
        after: row.after,
        unit: row.unit,
        loss_percent: row.loss,
        problem: row.problem,
    }
}

fn tell_node(row: &ComparisonRow) -> String {
    let ComparisonRow { gate, metric, .. } = row;
    let entity = match row.entity.as_deref().unwrap_or_default() {
        "" => String::new(),
        entity => format!(" of {entity}"),
    };
    match (row.before, row.after, row.loss) {
        (Some(before), Some(after), Some(loss)) => {
            let unit = row.unit.as_deref().unwrap_or_default();
            let percent = format_value(loss.abs());
            let change = match loss.partial_cmp(&0.0) {
                Some(Ordering::Greater) => format!("{percent} % worse"),
                Some(Ordering::Less) => format!("{percent} % better"),
                Some(Ordering::Equal) | None => "unchanged".to_owned(),
            };
            let (before, after) = (format_value(before), format_value(after));
            format!("{gate}: {metric}{entity} was {before} and is {after} {unit} ({change})")
        }
        _ => {
            let why = match row.problem {
                Some(NotCompared::NoResultAfter) => {
                    "the gate has no passed result since the change"
                }
                Some(NotCompared::NoResultBefore) => {
                    "no earlier result has the same suite, hardware and firmware"
                }
                Some(NotCompared::NoCommonValue) => "the results have other values",
                Some(NotCompared::Unreadable) | None => "a stored result cannot be read",
            };
            format!("{gate}: {metric} is not compared: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_the_numbers() {
        let limit = Regression {
            gate: "gpu.burn".to_owned(),
            metric: "gpu.gflops".to_owned(),
            percent: 5,
            nodes: 1,
        };
        let counted = |changed, pending, compared, worse, worst| CountedRow {
            changed,
            pending,
            unmatched: changed - pending - compared,
            compared,
            worse,
            worst,
        };
        let table = [
            (
                counted(0, 0, 0, 0, None),
                "gpu.burn: no node has changed, so gpu.gflops is not compared yet",
            ),
            (
                counted(3, 0, 3, 0, Some(-1.0)),
                "gpu.burn: gpu.gflops is worse by more than 5 % on 0 of 3 compared nodes",
            ),
            (
                counted(3, 0, 2, 1, Some(8.6444)),
                "gpu.burn: gpu.gflops is worse by more than 5 % on 1 of 2 compared nodes; the largest loss is 8.644 %; gpu.gflops cannot be compared on 1 of 3 changed nodes",
            ),
            (
                counted(2, 1, 0, 0, None),
                "gpu.burn: gpu.gflops is not compared yet on 1 of 2 changed nodes; gpu.gflops cannot be compared on 1 of 2 changed nodes",
            ),
        ];
        for (counted, sentence) in table {
            assert_eq!(describe_limit(&limit, &counted), sentence);
        }
    }

    #[test]
    fn a_value_has_three_decimals() {
        let table = [
            (55.300_000_000_000_01, "55.3"),
            (200.0, "200"),
            (0.0004, "0"),
            (1e308, "1e308"),
        ];
        for (value, text) in table {
            assert_eq!(format_value(value), text);
        }
    }

    #[test]
    fn a_node_is_told_with_both_values() {
        let row = ComparisonRow {
            node: NodeId::new(),
            gate: "gpu.burn".to_owned(),
            metric: "gpu.gflops".to_owned(),
            entity: Some("GPU 3".to_owned()),
            before: Some(350_000.0),
            after: Some(319_900.5),
            unit: Some("Gflop/s".to_owned()),
            loss: Some(8.6),
            problem: None,
        };
        assert_eq!(
            tell_node(&row),
            "gpu.burn: gpu.gflops of GPU 3 was 350000 and is 319900.5 Gflop/s (8.6 % worse)"
        );
        let none = ComparisonRow {
            entity: None,
            before: None,
            after: None,
            unit: None,
            loss: None,
            problem: Some(NotCompared::NoResultBefore),
            ..row
        };
        assert_eq!(
            tell_node(&none),
            "gpu.burn: gpu.gflops is not compared: no earlier result has the same suite, hardware and firmware"
        );
    }
}

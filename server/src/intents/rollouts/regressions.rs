//! Values of gates that are worse after the change of a node than before.

use std::collections::BTreeMap;

use muster_api::rollouts::{NodeComparison, RolloutSignal, SignalKind};
use muster_core::gates::Suite;
use muster_core::ids::{NodeId, ObjectId};
use muster_core::rollout::{HaltWhen, NotCompared, Regression, RolloutPolicy, is_comparable};
use sqlx::PgConnection;

use crate::db;
use crate::db::rollout_comparisons::{ComparisonRow, CountedRow};
use crate::db::rollouts::RolloutRow;
use crate::document::fault;
use crate::error::Error;

/// Most nodes that are compared in one tick, by signal. The next tick compares the rest.
const MOST: i64 = 500;

/// Lists the regressions of a policy with their places.
pub(super) fn list_limits(policy: &RolloutPolicy) -> impl Iterator<Item = (usize, &Regression)> {
    let signals = policy.halt_when.iter().enumerate();
    signals.filter_map(|(at, signal)| match signal {
        HaltWhen::Regression(limit) => Some((at, limit)),
        HaltWhen::Alert(_) | HaltWhen::Monitor(_) => None,
    })
}

/// Compares the nodes whose change has ended since the last tick.
///
/// # Errors
/// When the database fails.
pub(super) async fn compare_changed(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
) -> Result<(), Error> {
    for (_, limit) in list_limits(&rollout.policy) {
        let due = db::rollout_comparisons::list_due(conn, rollout.id, limit, MOST).await?;
        for row in due {
            let found = row.compare(&limit.metric);
            let found = found.as_ref().map_err(|problem| *problem);
            db::rollout_comparisons::write(conn, rollout.id, limit, &row, found).await?;
        }
    }
    Ok(())
}

/// Checks that each regression can be measured: a gate of the pool's suite compares the metric with a
/// limit, and a node of the pool has a result.
///
/// # Errors
/// 422 with the places of the policy.
pub(super) async fn check(
    conn: &mut PgConnection,
    pool: ObjectId,
    policy: &RolloutPolicy,
) -> Result<(), Error> {
    if list_limits(policy).next().is_none() {
        return Ok(());
    }
    let suite = db::specs::find_suite_of(conn, pool).await?;
    let mut faults = Vec::new();
    for (at, limit) in list_limits(policy) {
        let place = |member: &str| format!("/policy/halt_when/{at}/regression/{member}");
        if let Err((member, detail)) = find_metric(suite.as_ref(), limit) {
            faults.push(fault(place(member), "not_found", detail));
            continue;
        }
        let Some(suite) = &suite else { continue };
        let version = format!("{} {}", suite.name, suite.version);
        if !db::rollout_comparisons::has_result(conn, pool, &limit.gate, &version).await? {
            let detail = format!(
                "No node of the pool has a result of {} with the suite {version}. Run the gates of a node first.",
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

/// Finds the metric in the suite.
///
/// # Errors
/// The wrong member, with a sentence.
fn find_metric(suite: Option<&Suite>, limit: &Regression) -> Result<(), (&'static str, String)> {
    let Some(suite) = suite else {
        return Err(("gate", "The pool has no suite.".to_owned()));
    };
    let Some(gate) = suite.gates.iter().find(|gate| gate.id == limit.gate) else {
        let detail = format!("The suite {} has no gate {:?}.", suite.name, limit.gate);
        return Err(("gate", detail));
    };
    let comparable = gate
        .criteria
        .iter()
        .filter(|criterion| is_comparable(criterion.op));
    let mut metrics: Vec<&str> = comparable
        .map(|criterion| criterion.metric.as_str())
        .collect();
    metrics.dedup();
    match metrics.as_slice() {
        known if known.contains(&limit.metric.as_str()) => Ok(()),
        [] => {
            let detail = format!("The gate {} has no limit >= or <=.", gate.id);
            Err(("metric", detail))
        }
        known => {
            let detail = format!("The gate {} has limits for: {}.", gate.id, known.join(", "));
            Err(("metric", detail))
        }
    }
}

/// Describes the signal of a regression.
///
/// # Errors
/// When the database fails.
pub(super) async fn describe(
    conn: &mut PgConnection,
    rollout: &RolloutRow,
    limit: &Regression,
) -> Result<RolloutSignal, Error> {
    let counted = db::rollout_comparisons::count(conn, rollout.id, limit).await?;
    Ok(RolloutSignal {
        kind: SignalKind::Regression,
        name: limit.gate.clone(),
        state: counted.comparisons().find_state(limit),
        sentence: tell(limit, &counted),
    })
}

/// The sentence names no node: a reader of the rollout may be no reader of the node.
fn tell(limit: &Regression, counted: &CountedRow) -> String {
    let Regression {
        gate,
        metric,
        percent,
        ..
    } = limit;
    let CountedRow {
        changed,
        compared,
        worse,
        ..
    } = counted;
    if *changed == 0 {
        return format!("{gate}: no node has changed, so {metric} is not compared yet");
    }
    let worst = match counted.worst {
        Some(worst) if worst > 0.0 => format!("; the largest loss is {worst:.1} %"),
        Some(_) | None => String::new(),
    };
    let left = match changed - compared {
        0 => String::new(),
        left => format!("; {left} of {changed} changed nodes cannot be compared"),
    };
    format!(
        "{gate}: {metric} is worse by more than {percent} % on {worse} of {compared} compared nodes{worst}{left}"
    )
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
        if list_limits(&rollout.policy).any(|(_, limit)| is_of(limit)) {
            nodes.entry(row.node).or_default().push(render(row));
        }
    }
    Ok(nodes)
}

fn render(row: ComparisonRow) -> NodeComparison {
    NodeComparison {
        sentence: tell_node(&row),
        gate: row.gate,
        metric: row.metric,
        entity: row.entity.filter(|entity| !entity.is_empty()),
        before: row.before,
        after: row.after,
        unit: row.unit,
        loss_percent: row.loss,
        problem: row.problem.map(|problem| problem.to_string()),
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
            let change = match loss > 0.0 {
                true => format!("{loss:.1} % worse"),
                false => format!("{:.1} % better", loss.abs()),
            };
            format!("{gate}: {metric}{entity} was {before} and is {after} {unit} ({change})")
        }
        _ => {
            let why = match row.problem {
                Some(NotCompared::NoResultAfter) => "the gate has no result from the change",
                Some(NotCompared::NoResultBefore) => {
                    "no earlier result has the same suite and the same hardware"
                }
                Some(NotCompared::NoCommonValue) | None => "the results have no common value",
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
        let counted = |changed, compared, worse, worst| CountedRow {
            changed,
            looked_at: changed,
            compared,
            worse,
            worst,
        };
        let table = [
            (
                counted(0, 0, 0, None),
                "gpu.burn: no node has changed, so gpu.gflops is not compared yet",
            ),
            (
                counted(3, 3, 0, Some(-1.0)),
                "gpu.burn: gpu.gflops is worse by more than 5 % on 0 of 3 compared nodes",
            ),
            (
                counted(3, 2, 1, Some(8.64)),
                "gpu.burn: gpu.gflops is worse by more than 5 % on 1 of 2 compared nodes; the largest loss is 8.6 %; 1 of 3 changed nodes cannot be compared",
            ),
        ];
        for (counted, sentence) in table {
            assert_eq!(tell(&limit, &counted), sentence);
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
            "gpu.burn: gpu.gflops is not compared: no earlier result has the same suite and the same hardware"
        );
    }
}

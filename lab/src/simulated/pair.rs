//! Measurements between two simulated machines; the rack's fabric determines the result in each
//! direction.

use jiff::Timestamp;
use muster_core::gates::{GateResult, Verdict, Waived};
use muster_core::wire::job::Job;
use muster_core::wire::pair::{PairOrder, PairWay};
use muster_core::wire::result::JobResult;
use uuid::Uuid;

use super::agent::{Agent, Bad};
use super::habits::What;
use super::machine::node_program::make_result;

impl Agent {
    /// Runs each gate in each direction. Results are kept in memory only, so an interrupted attempt
    /// measures again.
    pub(super) async fn pair(&self, job: &Job, order: &PairOrder) -> Result<JobResult, Bad> {
        let [one, other] = &order.ends;
        assert!(
            !one.plan.in_use && !other.plan.in_use,
            "they are held, or nothing is measured"
        );
        let mut ways = Vec::new();
        for (asks, listens) in [(one, other), (other, one)] {
            assert!(
                asks.plan.variables.contains_key("peer_address"),
                "{} is not told where to ask",
                asks.name
            );
            self.takes(job, What::Gates).await?;
            self.step()?;
            let mut rack = self.rack();
            rack.fabric
                .asked
                .push((asks.name.clone(), listens.name.clone()));
            let verdict = if rack.fabric.is_slow(&asks.name, &listens.name) {
                Verdict::Fail
            } else {
                Verdict::Pass
            };
            let waived = rack.fabric.waives.then(nobodys);
            let results = asks.plan.suite.gates.iter().map(|gate| GateResult {
                waived: waived.clone(),
                ..make_result(gate, verdict)
            });
            let results = results.collect();
            ways.push(PairWay {
                from: asks.node,
                to: listens.node,
                results,
                fingerprint: None,
            });
        }
        Ok(JobResult::Paired { ways })
    }
}

/// A forged waiver without a requester and without an approver.
fn nobodys() -> Waived {
    let nobody = String::new;
    Waived {
        waiver: Uuid::nil(),
        requested_by: nobody(),
        agreed_by: nobody(),
        reason: nobody(),
        until: Timestamp::MAX,
    }
}

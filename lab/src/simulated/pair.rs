//! Two simulated machines that measure each other: what each way says is the fabric's.

use muster_core::gates::Verdict;
use muster_core::wire::agent::{Job, JobResult};
use muster_core::wire::pair::{PairOrder, PairWay};

use super::agent::{Agent, Bad};
use super::habits::What;
use super::machine::result;

impl Agent {
    /// Each gate, each way. Nothing is kept: an attempt that died is done again.
    pub(super) async fn pair(&self, job: &Job, order: &PairOrder) -> Result<JobResult, Bad> {
        let [one, other] = &order.ends;
        assert!(!one.plan.in_use && !other.plan.in_use, "they are held, or nothing is measured");
        let mut ways = Vec::new();
        for (asks, listens) in [(one, other), (other, one)] {
            assert!(asks.plan.variables.contains_key("peer_address"), "{} is not told where to ask", asks.name);
            self.takes(job, What::Gates).await?;
            self.step()?;
            let mut rack = self.rack();
            rack.fabric.asked.push((asks.name.clone(), listens.name.clone()));
            let verdict = if rack.fabric.is_slow(&asks.name, &listens.name) { Verdict::Fail } else { Verdict::Pass };
            let results = asks.plan.suite.gates.iter().map(|gate| result(gate, verdict)).collect();
            ways.push(PairWay { from: asks.node, to: listens.node, results, fingerprint: None });
        }
        Ok(JobResult::Paired { ways })
    }
}

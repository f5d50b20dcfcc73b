//! Units that no budget can ever admit: found before the start, because such a unit would wait for
//! ever.

use jiff::Timestamp;

use super::amount::{Amount, count_nodes};
use super::faults::Fault;
use super::fleet::{Fleet, Mark, Member, Node};
use super::ledger::{Exhausted, Ledger};
use super::policy::RolloutPolicy;
use super::units::{Unit, Units};
use crate::effects::Effect;

/// Returns every budget that is smaller than a unit of the rollout: the waiting and changing slots
/// of the policy, and the budgets of the pool and of each domain. Empty if each unit can be admitted.
pub fn find_unit_faults(policy: &RolloutPolicy, fleet: &Fleet, now: Timestamp) -> Vec<Fault> {
    let ledger = Ledger::open(&fleet.budget, fleet.members(), now);
    let slots = [
        ("budgets/max_waiting", policy.budgets.max_waiting),
        ("budgets/max_changing", policy.budgets.max_changing),
    ];
    let mut faults = Vec::new();
    for unit in Units::find(fleet).iter() {
        // A skipped or failed node may be retried with the rest of the unit.
        let is_left = |node: &&Node| node.effect != Effect::None && node.stage.mark() != Mark::Done;
        let nodes = unit.nodes.iter().copied().filter(is_left);
        let members: Vec<&Member> = nodes.map(|node| &node.member).collect();
        let size = u32::try_from(members.len()).unwrap_or(u32::MAX);
        if size < 2 {
            continue;
        }
        for (pointer, amount) in slots {
            if let Some(max) = find_too_small(amount, size, fleet) {
                faults.push(fault(pointer.to_owned(), unit, size, max));
            }
        }
        if let Err(refusal) = ledger.check_size(&members) {
            let (pointer, size) = match refusal.of {
                Exhausted::Pool => ("max_unavailable".to_owned(), size),
                Exhausted::Domain { id, axis: _ } => {
                    let inside = members.iter().filter(|member| member.domains.contains(&id));
                    let inside = u32::try_from(inside.count()).unwrap_or(u32::MAX);
                    (format!("domains/{id}/max_unavailable"), inside)
                }
            };
            faults.push(fault(pointer, unit, size, refusal.max));
        }
    }
    faults
}

/// Returns the amount in nodes if the amount is smaller than a unit.
fn find_too_small(amount: Amount, size: u32, fleet: &Fleet) -> Option<u32> {
    let max = amount.of(fleet.planned);
    (max < size).then_some(max)
}

fn fault(pointer: String, unit: &Unit<'_>, size: u32, max: u32) -> Fault {
    let detail = format!(
        "Unit {} has {} changed together, and {pointer} is {}. Raise the limit to {size}.",
        unit.id,
        count_nodes(size),
        count_nodes(max),
    );
    Fault::new(pointer, "unit_too_large", detail)
}

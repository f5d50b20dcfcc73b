//! A playbook that drains, waits, changes, tests and returns each node, by the documented rules of
//! Ansible. With the strategy `linear` (the default) a batch of `serial` hosts begins each task
//! together, and `max_fail_percentage` ends the play after a batch with more failed hosts. With the
//! strategy `host_pinned` a host that ends makes room for the next one; `max_fail_percentage` is not
//! supported there.

use std::collections::VecDeque;

use super::cluster::{CHANGE_S, Cluster, Door, GATES_S, Outcome};

/// The value of `max_fail_percentage`.
const MAX_FAIL_PERCENT: usize = 5;

/// Runs the playbook with `serial: [1, most]`: a first host alone, then batches.
///
/// # Errors
/// When the run takes more than a year.
pub(crate) fn run_linear(mut cluster: Cluster, most: usize) -> anyhow::Result<Outcome> {
    let (mut done, mut broken) = (0, 0);
    let all: Vec<usize> = (0..cluster.machines.len()).collect();
    let (first, others) = all.split_at(1);
    for batch in std::iter::once(first).chain(others.chunks(most)) {
        for &host in batch {
            cluster.machines[host].door = Door::Closed;
        }
        while batch
            .iter()
            .any(|host| cluster.machines[*host].job.is_some())
        {
            advance(&mut cluster)?;
        }
        let ends = cluster.now + CHANGE_S + GATES_S;
        while cluster.now < ends {
            advance(&mut cluster)?;
        }
        let mut failed = 0;
        for &host in batch {
            let machine = &mut cluster.machines[host];
            match machine.is_faulty {
                true => failed += 1,
                false => machine.door = Door::Open,
            }
        }
        broken += failed;
        done += batch.len() - failed;
        if failed * 100 > MAX_FAIL_PERCENT * batch.len() {
            break;
        }
    }
    Ok(cluster.outcome(done, broken))
}

/// Runs the playbook with the strategy `host_pinned` and `most` forks.
///
/// # Errors
/// When the run takes more than a year.
pub(crate) fn run_host_pinned(mut cluster: Cluster, most: usize) -> anyhow::Result<Outcome> {
    let (mut done, mut broken) = (0, 0);
    let mut open: VecDeque<usize> = (0..cluster.machines.len()).collect();
    // The hosts under way, with the end of the change once it has begun.
    let mut hosts: Vec<(usize, Option<u64>)> = Vec::new();
    loop {
        hosts.retain(|(host, end)| {
            let is_under_way = end.is_none_or(|end| end > cluster.now);
            if !is_under_way {
                let machine = &mut cluster.machines[*host];
                match machine.is_faulty {
                    true => broken += 1,
                    false => {
                        machine.door = Door::Open;
                        done += 1;
                    }
                }
            }
            is_under_way
        });
        while hosts.len() < most
            && let Some(host) = open.pop_front()
        {
            cluster.machines[host].door = Door::Closed;
            hosts.push((host, None));
        }
        if hosts.is_empty() {
            return Ok(cluster.outcome(done, broken));
        }
        for (host, end) in &mut hosts {
            if end.is_none() && cluster.machines[*host].job.is_none() {
                *end = Some(cluster.now + CHANGE_S + GATES_S);
            }
        }
        advance(&mut cluster)?;
    }
}

fn advance(cluster: &mut Cluster) -> anyhow::Result<()> {
    anyhow::ensure!(cluster.advance(), "the playbook takes more than a year");
    Ok(())
}

//! A playbook that drains, waits, changes, tests and returns the nodes. Modelled after the
//! documentation of Ansible: `serial` takes the hosts in batches, and the next batch begins when the
//! batch before has ended. The strategy `linear` begins a task when each host of the batch has ended
//! the task before. `max_fail_percentage` ends the play when more hosts of a batch have failed.

use super::cluster::{CHANGE_S, Cluster, Door, GATES_S, Outcome};

/// The value of `max_fail_percentage`.
const MAX_FAIL_PERCENT: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    Linear,
    /// Each host goes on by itself, within its batch.
    Free,
}

/// Runs the playbook over all nodes in batches of `serial`.
///
/// # Errors
/// When the run takes more than a year.
pub(crate) fn run(
    mut cluster: Cluster,
    serial: usize,
    strategy: Strategy,
) -> anyhow::Result<Outcome> {
    let (mut done, mut broken) = (0, 0);
    let all: Vec<usize> = (0..cluster.machines.len()).collect();
    for batch in all.chunks(serial) {
        for &host in batch {
            cluster.machines[host].door = Door::Closed;
        }
        let mut ends: Vec<Option<u64>> = vec![None; batch.len()];
        let mut is_open = vec![true; batch.len()];
        while is_open.contains(&true) {
            let is_idle = |host: &usize| cluster.machines[*host].job.is_none();
            let all_idle = batch.iter().all(is_idle);
            for ((host, end), is_open) in batch.iter().zip(&mut ends).zip(&mut is_open) {
                let begins = match strategy {
                    Strategy::Linear => all_idle,
                    Strategy::Free => cluster.machines[*host].job.is_none(),
                };
                if end.is_none() && begins {
                    *end = Some(cluster.now + CHANGE_S + GATES_S);
                }
                if *is_open && end.is_some_and(|end| end <= cluster.now) {
                    *is_open = false;
                    let machine = &mut cluster.machines[*host];
                    match machine.is_faulty {
                        true => broken += 1,
                        false => {
                            machine.door = Door::Open;
                            done += 1;
                        }
                    }
                }
            }
            anyhow::ensure!(cluster.advance(), "the playbook takes more than a year");
        }
        let is_faulty = |host: &&usize| cluster.machines[**host].is_faulty;
        let failed = batch.iter().filter(is_faulty).count();
        if failed * 100 > MAX_FAIL_PERCENT * batch.len() {
            break;
        }
    }
    Ok(cluster.outcome(done, broken))
}

//! The rules of a run of pairs: valid requests, measurable suites, and the choice of nodes. The
//! rules read no database.

use std::collections::BTreeMap;

use muster_api::pairs::{MOST, RunPairs};
use muster_core::gates::{Gate, Suite};
use muster_core::ids::{NodeId, ObjectId};
use muster_core::lifecycle::state::State as NodeState;
use muster_core::lifecycle::steps::Step;

use crate::db::pairs::ends::Candidate;
use crate::error::Error;

/// The number of left-out nodes listed by a run.
const LISTED: usize = 200;
const WITHIN_S: std::ops::RangeInclusive<u32> = 300..=43_200;
/// The variables of gates a request may set. The order sets all others.
const VARIABLES: [&str; 1] = ["rdma_device"];
/// The longest value of a variable, in bytes.
const LONGEST_VALUE: usize = 64;
/// The time of a pair beside its gates, in each direction: two log-ins, and the start of the tools.
/// Seconds.
const MARGIN_S: u64 = 300;

/// Checks the members of a request.
pub(crate) fn check_request(body: &RunPairs) -> Result<(), Error> {
    let wrong =
        |pointer: &str, detail: String| Err(Error::unprocessable(pointer, "out_of_range", detail));
    if body.most.is_some_and(|most| !(2..=MOST).contains(&most)) {
        return wrong("/most", format!("2 to {MOST} nodes."));
    }
    if body.nodes.len() > MOST as usize {
        return wrong("/nodes", format!("At most {MOST} nodes."));
    }
    if body
        .within_s
        .is_some_and(|within| !WITHIN_S.contains(&within))
    {
        return wrong(
            "/within_s",
            format!("{} to {} seconds.", WITHIN_S.start(), WITHIN_S.end()),
        );
    }
    for (word, value) in &body.variables {
        check_variable(word, value)?;
    }
    Ok(())
}

/// Checks the reason of an override of the disruption budget.
pub(crate) fn check_override(reason: &str) -> Result<(), Error> {
    match reason.trim().len() {
        1..=1000 => Ok(()),
        _ => {
            let detail = "A reason of 1 to 1000 bytes.".to_owned();
            Err(Error::unprocessable(
                "/override_budget",
                "out_of_range",
                detail,
            ))
        }
    }
}

/// Checks a variable of a gate's command. The value becomes an argument of a tool, so the first
/// character must not make the argument an option.
fn check_variable(word: &str, value: &str) -> Result<(), Error> {
    let wrong = |detail: String| {
        let pointer = format!("/variables/{word}");
        Err(Error::unprocessable(pointer, "out_of_range", detail))
    };
    if !VARIABLES.contains(&word) {
        return wrong(format!("Only {} can be given.", VARIABLES.join(", ")));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    let begins = value
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    if !(begins && value.len() <= LONGEST_VALUE && value.chars().all(plain)) {
        return wrong("Letters, digits, and _ . : - behind the first.".to_owned());
    }
    Ok(())
}

/// Keeps the pair gates of a suite.
///
/// # Errors
/// 422 where the suite has no pair gate, or where both directions take longer than one step.
pub(crate) fn keep_pair_gates(mut suite: Suite, name: &str) -> Result<Suite, Error> {
    let wrong = |code, detail: String| Error::unprocessable("/suite", code, detail);
    suite.gates.retain(|gate| gate.peer.is_some());
    if suite.gates.is_empty() {
        return Err(wrong(
            "no_pair_gate",
            format!("{name} has no gate with a peer: the suite measures no pair of nodes."),
        ));
    }
    let runs = |gate: &Gate| u64::from(gate.retries) + 1;
    let longest = |gate: &Gate| {
        (gate.timeout_s + gate.peer.as_ref().map_or(0, |peer| peer.ready_s)) * runs(gate)
    };
    let once: u64 = suite.gates.iter().map(longest).sum();
    if once * 2 + MARGIN_S > Step::Pair.timeout_s() {
        let detail = format!(
            "One pair could take {} s, and has {} s.",
            once * 2 + MARGIN_S,
            Step::Pair.timeout_s()
        );
        return Err(wrong("too_long", detail));
    }
    Ok(suite)
}

/// The nodes taking part in a run, and the left-out nodes with the reason.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    pub taken: Vec<(NodeId, &'a str)>,
    pub left: Vec<(NodeId, &'a str, String)>,
    /// The number of idle nodes above the limit of the run.
    pub beyond: usize,
}

impl<'a> Selection<'a> {
    /// Selects idle nodes of one site, because an agent reaches only its own site. The chosen site
    /// has the most idle nodes; among equal sites the first wins.
    pub(crate) fn of(candidates: &'a [Candidate], most: usize) -> Self {
        let mut sites: BTreeMap<ObjectId, usize> = BTreeMap::new();
        for one in candidates.iter().filter(|one| describe_busy(one).is_none()) {
            *sites.entry(one.site).or_default() += 1;
        }
        let largest = sites.values().max().copied().unwrap_or(0);
        let site = candidates
            .iter()
            .find(|one| sites.get(&one.site) == Some(&largest));
        let mut selection = Self::default();
        for one in candidates {
            let elsewhere = site.filter(|site| site.site != one.site);
            let why = describe_busy(one).or_else(|| {
                elsewhere.map(|site| {
                    format!(
                        "it is at site {}, and this run measures {}",
                        one.site_name, site.site_name
                    )
                })
            });
            match why {
                Some(why) if selection.left.len() < LISTED => {
                    selection.left.push((one.id, &one.name, why))
                }
                Some(_) => {}
                None if selection.taken.len() < most => selection.taken.push((one.id, &one.name)),
                None => selection.beyond += 1,
            }
        }
        selection
    }
}

/// Describes why a node is not idle; `None` for an idle node.
fn describe_busy(one: &Candidate) -> Option<String> {
    match one {
        _ if one.releasing => Some("it is being released".to_owned()),
        _ if one.state != NodeState::InService => Some(format!("it is {}", one.state)),
        _ if one.protected => Some("it is protected: no jobs are drained".to_owned()),
        _ if one.held => {
            Some("another run has not returned the node to the scheduler yet".to_owned())
        }
        // The drain belongs to another person or program, and ends by their decision.
        Candidate { out: Some(out), .. } => Some(format!("its scheduler shows it {out}")),
        Candidate {
            action: Some(action),
            ..
        } => Some(format!("it was asked to {action}")),
        _ if one.busy => Some("a job of its own is under way".to_owned()),
        _ if !one.installed => Some("no installed system of it is known".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use muster_core::lifecycle::state::Action;
    use uuid::Uuid;

    use super::*;

    fn candidate(number: u128, site: u128) -> Candidate {
        Candidate {
            id: NodeId(Uuid::from_u128(number)),
            name: format!("n{number}"),
            site: ObjectId(Uuid::from_u128(site)),
            site_name: format!("s{site}"),
            state: NodeState::InService,
            action: None,
            protected: false,
            releasing: false,
            installed: true,
            busy: false,
            held: false,
            out: None,
        }
    }

    #[test]
    fn who_is_not_idle_is_left_out_and_says_why() {
        type Break = (&'static str, fn(&mut Candidate));
        let breaks: [Break; 8] = [
            ("released", |one| one.releasing = true),
            ("it is draining", |one| one.state = NodeState::Draining),
            ("protected", |one| one.protected = true),
            ("returned the node", |one| one.held = true),
            ("shows it drained: fan 3", |one| {
                one.out = Some("drained: fan 3".into())
            }),
            ("asked to sweep", |one| one.action = Some(Action::Sweep)),
            ("under way", |one| one.busy = true),
            ("no installed system", |one| one.installed = false),
        ];
        for (told, break_it) in breaks {
            let mut all = vec![candidate(1, 1), candidate(2, 1), candidate(3, 1)];
            break_it(&mut all[1]);
            let chosen = Selection::of(&all, 64);
            assert_eq!(
                chosen
                    .taken
                    .iter()
                    .map(|(_, name)| *name)
                    .collect::<Vec<_>>(),
                ["n1", "n3"],
                "{told}"
            );
            assert!(
                chosen.left.len() == 1 && chosen.left[0].2.contains(told),
                "{:?}",
                chosen.left
            );
        }
    }

    #[test]
    fn a_run_is_of_one_site_and_of_so_many_nodes() {
        let mut all: Vec<Candidate> = (1..=2).map(|number| candidate(number, 1)).collect();
        all.extend((3..=7).map(|number| candidate(number, 2)));
        let chosen = Selection::of(&all, 4);
        assert_eq!(
            chosen
                .taken
                .iter()
                .map(|(_, name)| *name)
                .collect::<Vec<_>>(),
            ["n3", "n4", "n5", "n6"]
        );
        assert_eq!((chosen.beyond, chosen.left.len()), (1, 2));
        assert_eq!(
            chosen.left[0].2,
            "it is at site s1, and this run measures s2"
        );
        // Nodes that are not idle do not count for the size of a site.
        for one in &mut all[2..6] {
            one.busy = true;
        }
        assert_eq!(Selection::of(&all, 4).taken.len(), 2);
    }

    #[test]
    fn what_is_given_for_a_word_is_no_option_and_no_other_word() {
        let given = |word: &str, value: &str| RunPairs {
            suite: "pairs".into(),
            variables: [(word.to_owned(), value.to_owned())].into(),
            ..RunPairs::default()
        };
        assert!(check_request(&given("rdma_device", "mlx5_0")).is_ok());
        for (word, value) in [
            ("rdma_device", "-d"),
            ("rdma_device", ""),
            ("rdma_device", "a b"),
            ("peer_address", "10.0.0.1"),
        ] {
            assert!(
                check_request(&given(word, value)).is_err(),
                "{word}={value}"
            );
        }
        assert!(
            check_request(&RunPairs {
                most: Some(1),
                ..given("rdma_device", "mlx5_0")
            })
            .is_err()
        );
        assert!(
            check_request(&RunPairs {
                within_s: Some(299),
                ..given("rdma_device", "mlx5_0")
            })
            .is_err()
        );
    }
}

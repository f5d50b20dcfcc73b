//! The bounds hold for any failure at any time.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use proptest::prelude::*;

use super::*;
use crate::wire::node::Failure;

fn cause(signature: &str) -> Cause {
    Cause {
        signature: signature.into(),
        what: "it failed".into(),
        answers: true,
        asked: false,
        action: None,
    }
}

fn policy(per_node: u32) -> RecoveryPolicy {
    RecoveryPolicy {
        rungs: BY_HAND.to_vec(),
        per_node,
        ..RecoveryPolicy::none()
    }
}

#[test]
fn a_policy_climbs_and_is_bounded() {
    assert!(policy(2).faults().is_empty() && RecoveryPolicy::none().faults().is_empty());
    let wrong = |rungs: &[Rung]| {
        RecoveryPolicy {
            rungs: rungs.to_vec(),
            ..policy(2)
        }
        .faults()
    };
    assert_eq!(wrong(&[Rung::Reboot, Rung::Collect])[0].0, "rungs");
    assert_eq!(
        wrong(&[Rung::Reboot, Rung::Reboot])[0].0,
        "rungs",
        "each once"
    );
    assert_eq!(policy(0).faults()[0].0, "per_node");
    assert_eq!(policy(11).faults()[0].0, "per_node");
    assert_eq!(
        RecoveryPolicy {
            within_h: 0,
            ..policy(1)
        }
        .faults()[0]
            .0,
        "within_h"
    );
    let said = "{\"rungs\":[\"collect\",\"restart_services\",\"power_cycle\",\"rma\"]}";
    let read: RecoveryPolicy = serde_json::from_str(said).unwrap();
    assert_eq!(
        (read.rungs.len(), read.per_node, read.within_h),
        (4, 2, 168)
    );
}

#[test]
fn what_a_failure_has_in_common_with_others_is_its_signature() {
    let failure = |code: &str| Failure {
        code: code.into(),
        message: "m".into(),
        retryable: true,
    };
    let of =
        |code| Cause::step("sweep", &failure(code)).map(|cause| (cause.signature, cause.answers));
    assert_eq!(of("stuck"), Some(("step:sweep".to_owned(), true)));
    assert_eq!(
        of("ssh_unreachable"),
        Some(("unreachable".to_owned(), false))
    );
    for nobodys in [
        "not_declared",
        "bad_suite",
        "suite_gone",
        "node_protocol",
        "server_away",
        "bmc_credentials",
    ] {
        assert_eq!(of(nobodys), None, "{nobodys}: no rung mends it");
    }
}

#[test]
fn each_bound_says_what_it_is() {
    let fleet = Out {
        held: 60,
        ..Out::default()
    };
    let pool = Out {
        held: 6,
        ..Out::default()
    };
    let seen = Seen {
        fleet,
        pool,
        ..Seen::default()
    };
    let begin = |seen| may_begin(&policy(2), &cause("gate:x"), seen);
    assert_eq!(begin(seen), Ok(()));
    let fleet = |fleet| {
        begin(Seen {
            fleet: Out { held: 60, ..fleet },
            ..seen
        })
    };
    assert!(
        matches!(fleet(Out { same_way: 3, ..Out::default() }), Err(Hold::Fleet(why)) if why.contains("gate:x"))
    );
    assert_eq!(
        fleet(Out {
            same_way: 2,
            unmended: 5,
            ..Out::default()
        }),
        Ok(())
    );
    // Failures a day apart, in sequence: as many nodes are out in the end.
    assert!(
        matches!(fleet(Out { unmended: 6, ..Out::default() }), Err(Hold::Fleet(why)) if why.contains("the week"))
    );
    assert!(matches!(
        fleet(Out {
            open: true,
            ..Out::default()
        }),
        Err(Hold::Fleet(_))
    ));
    // A few nodes of a large fleet may be all nodes of a small pool.
    let of_pool = |pool| {
        begin(Seen {
            pool: Out { held: 6, ..pool },
            ..seen
        })
    };
    assert!(
        matches!(of_pool(Out { same_way: 2, ..Out::default() }), Err(Hold::Pool(why)) if why.contains("of its pool"))
    );
    assert!(matches!(
        of_pool(Out {
            unmended: 3,
            ..Out::default()
        }),
        Err(Hold::Pool(_))
    ));
    assert!(
        matches!(of_pool(Out { open: true, ..Out::default() }), Err(Hold::Pool(why)) if why.contains("open for its pool"))
    );
    assert!(
        matches!(begin(Seen { on_node: 2, ..seen }), Err(Hold::Node(why)) if why.contains("2 times within 168"))
    );
    assert!(matches!(
        begin(Seen {
            under_way: 3,
            ..seen
        }),
        Err(Hold::Later(_))
    ));
    let open = Out {
        open: true,
        ..seen.fleet
    };
    assert!(matches!(
        may_go_on(
            &cause("gate:x"),
            Seen {
                fleet: open,
                ..seen
            }
        ),
        Err(Hold::Fleet(_))
    ));
    assert!(matches!(
        may_go_on(&cause("gate:x"), Seen { pool: open, ..seen }),
        Err(Hold::Pool(_))
    ));
    let many = Out {
        same_way: 9,
        unmended: 9,
        held: 6,
        open: false,
    };
    let busy = Seen {
        on_node: 9,
        under_way: 9,
        fleet: many,
        pool: many,
    };
    assert_eq!(
        may_go_on(&cause("gate:x"), busy),
        Ok(()),
        "what has begun is not stopped by others that begin"
    );
    let asked = Cause::asked(Some("look at it"));
    let worst = Out {
        same_way: 99,
        unmended: 99,
        held: 1,
        open: true,
    };
    let worst = Seen {
        on_node: 99,
        under_way: 99,
        fleet: worst,
        pool: worst,
    };
    assert_eq!(
        (
            may_begin(&policy(1), &asked, worst),
            may_go_on(&asked, worst)
        ),
        (Ok(()), Ok(()))
    );
}

/// A repeatedly failing node of the fleet.
#[derive(Clone, Debug)]
struct Failing {
    node: usize,
    signature: usize,
    after_s: i64,
}

fn failing() -> impl Strategy<Value = Vec<Failing>> {
    let one = (0..60_usize, 0..3_usize, 0..1800_i64);
    proptest::collection::vec(
        one.prop_map(|(node, signature, after_s)| Failing {
            node,
            signature,
            after_s,
        }),
        1..200,
    )
}

proptest! {
    /// Nodes fail in any order. In every order, three bounds hold: the breaker's limit per hour and
    /// signature, the policy's limit per node, and the limit of concurrent recoveries.
    #[test]
    fn no_order_of_failures_takes_out_the_fleet(fleet in 1..60_u32, lasts_s in 1..7200_i64, heals: bool, failures in failing()) {
        let policy = policy(2);
        let (mut now, mut begun): (i64, Vec<(i64, usize, usize)>) = (0, Vec::new());
        for Failing { node, signature, after_s } in failures {
            now += after_s;
            let node = node % fleet as usize;
            let busy: Vec<usize> = begun.iter().filter(|(at, ..)| at + lasts_s > now).map(|(_, node, _)| *node).collect();
            if busy.contains(&node) {
                continue;
            }
            let distinct = |of: &dyn Fn(&(i64, usize, usize)) -> bool| {
                let others: std::collections::BTreeSet<usize> =
                    begun.iter().filter(|one| one.1 != node && of(one)).map(|one| one.1).collect();
                u32::try_from(others.len()).unwrap()
            };
            let seen = Seen {
                on_node: u32::try_from(begun.iter().filter(|(at, of, _)| *of == node && at + 168 * 3600 > now).count()).unwrap(),
                under_way: u32::try_from(busy.len()).unwrap(),
                fleet: Out {
                    same_way: distinct(&|(at, _, of)| *of == signature && at + WINDOW_S > now),
                    unmended: distinct(&|(at, _, of)| *of == signature && at + UNMENDED_S > now && !heals),
                    held: fleet - u32::try_from(busy.len()).unwrap(),
                    open: false,
                },
                // All nodes belong to a single pool.
                pool: Out { held: fleet, ..Out::default() },
            };
            if may_begin(&policy, &cause(&signature.to_string()), seen).is_ok() {
                begun.push((now, node, signature));
            }
            let of_this = begun.iter().filter(|(at, _, of)| *of == signature && at + WINDOW_S > now);
            let nodes: std::collections::BTreeSet<usize> = of_this.map(|one| one.1).collect();
            prop_assert!(nodes.len() as u32 <= most(fleet));
            // Nodes without a successful ladder stay out. In a small fleet the limit is the hourly
            // limit plus 1.
            let of_this = begun.iter().filter(|(at, _, of)| *of == signature && at + UNMENDED_S > now);
            let nodes: std::collections::BTreeSet<usize> = of_this.map(|one| one.1).collect();
            prop_assert!(heals || nodes.len() as u32 <= most_unmended(fleet));
            prop_assert!(begun.iter().filter(|(at, ..)| at + lasts_s > now).count() as u32 <= most(fleet));
            prop_assert!(begun.iter().filter(|(at, of, _)| *of == node && at + 168 * 3600 > now).count() <= 2);
        }
    }
}

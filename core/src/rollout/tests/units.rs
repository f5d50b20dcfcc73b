//! Units: nodes changed together, or not at all.

use super::*;

/// A fleet whose first nodes are in a whole domain without a limit.
fn with_unit(count: usize, in_unit: usize) -> Fleet {
    let mut fleet = fleet(count);
    fleet.budget.domains = vec![whole("nvl:1", 1000)];
    for node in &mut fleet.nodes[..in_unit] {
        node.member.domains = ["nvl:1".to_owned()].into();
    }
    fleet
}

fn sentence(plan: &Plan, number: usize) -> String {
    let rule = plan.placements[number].why.as_ref();
    rule.map(Rule::to_string).unwrap_or_default()
}

#[test]
fn a_unit_is_closed_only_if_the_ledger_admits_every_node() {
    let mut fleet = with_unit(4, 3);
    fleet.budget.max_unavailable = Amount::Count(2);
    let plan_small = plan(&policy(), &fleet, start());
    assert_eq!(closed(&plan_small), [id(3)], "the single node fits");
    assert_eq!(
        sentence(&plan_small, 0),
        "unit nvl:1 needs 3 nodes: the pool has 1 of 4 nodes out, and 2 may be out at a time"
    );
    assert_eq!(
        plan_small.placements[0].why.as_ref().unwrap().waits_for(),
        WaitsFor::Slot
    );
    fleet.budget.max_unavailable = Amount::Count(3);
    let plan_large = plan(&policy(), &fleet, start());
    assert_eq!(closed(&plan_large), [0, 1, 2].map(id));
    let unit = plan_large.actions[0].unit.as_deref();
    assert_eq!(unit, Some("nvl:1"), "an executor closes the unit at once");
    // The domain's own budget, with a node lost.
    fleet.budget.max_unavailable = Amount::Count(1000);
    fleet.budget.domains = vec![whole("nvl:1", 3)];
    fleet.neighbours.push(Member {
        domains: ["nvl:1".to_owned()].into(),
        service: Service::Out,
        ..member(9)
    });
    assert_eq!(closed(&plan(&policy(), &fleet, start())), [id(3)]);
}

#[test]
fn a_unit_is_closed_only_if_the_changing_slots_admit_every_node() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(3);
    let mut fleet = with_unit(4, 3);
    fleet.nodes[3] = staged(3, Stage::Changing(Change::Working));
    let held = plan(&policy, &fleet, start());
    assert_eq!(closed(&held), []);
    assert_eq!(
        sentence(&held, 0),
        "unit nvl:1 needs 3 nodes: every slot for changing nodes is in use: 1 of 3"
    );
    fleet.nodes[3] = done(3);
    assert_eq!(closed(&plan(&policy, &fleet, start())).len(), 3);
}

#[test]
fn a_node_of_the_unit_that_is_out_takes_no_slot_of_the_ledger() {
    let mut fleet = with_unit(3, 3);
    fleet.budget.max_unavailable = Amount::Count(3);
    fleet.nodes[1] = Node {
        member: Member {
            service: Service::Out,
            ..fleet.nodes[1].member.clone()
        },
        ..fleet.nodes[1].clone()
    };
    let plan = plan(&policy(), &fleet, start());
    let takes_slot = |action: &Action| {
        matches!(
            action.act,
            Act::Close {
                takes_slot: true,
                ..
            }
        )
    };
    let slots: Vec<bool> = plan.actions.iter().map(takes_slot).collect();
    assert_eq!(slots, [true, false, true]);
}

#[test]
fn an_unchangeable_node_keeps_its_unit_and_is_named_with_the_remedy() {
    type Set = fn(&mut Node);
    let cases: [(Set, &str, WaitsFor); 6] = [
        (
            |node| node.stage = Stage::Skipped,
            "n2 was skipped: retry n2, or skip the whole unit",
            WaitsFor::Person,
        ),
        (
            |node| node.stage = Stage::Failed,
            "n2 has failed: retry n2, or skip the whole unit",
            WaitsFor::Person,
        ),
        (
            |node| node.condition.held = true,
            "n2 cannot start: the claim is on hold; release the hold, or skip the whole unit",
            WaitsFor::Person,
        ),
        (
            |node| node.condition.protected = true,
            "n2 cannot start: the node is protected from a reboot; lift the protection, or skip the whole unit",
            WaitsFor::Person,
        ),
        (
            |node| node.condition.busy = Some("recovery".to_owned()),
            "n2 cannot start: another operation has the node: recovery",
            WaitsFor::Progress,
        ),
        (
            |node| node.effect = Effect::Wipe,
            "n2 was skipped: retry n2, or skip the whole unit",
            WaitsFor::Person,
        ),
    ];
    for (set, wanted, waits_for) in cases {
        let mut fleet = with_unit(4, 3);
        set(&mut fleet.nodes[2]);
        let held = plan(&policy(), &fleet, start());
        assert_eq!(closed(&held), [id(3)], "{wanted}");
        let rule = held.placements[0].why.as_ref().unwrap();
        assert_eq!(
            rule.to_string(),
            format!("unit nvl:1 is changed together, and {wanted}")
        );
        assert_eq!(rule.waits_for(), waits_for, "{wanted}");
        // A waiting node of the unit is given back.
        fleet.nodes[0].stage = Stage::Waiting;
        assert_eq!(acts(&plan(&policy(), &fleet, start()), 0), ["give_back"]);
    }
}

#[test]
fn a_node_that_needs_no_change_or_is_out_for_good_keeps_no_unit() {
    let mut fleet = with_unit(6, 6);
    fleet.nodes[0].effect = Effect::None;
    fleet.nodes[5].effect = Effect::None;
    fleet.nodes[5].stage = Stage::Skipped;
    fleet.nodes[1] = Node {
        member: Member {
            domains: fleet.nodes[1].member.domains.clone(),
            service: Service::Out,
            ..member(1)
        },
        ..staged(1, Stage::Failed)
    };
    fleet.nodes[2].stage = Stage::Done { changed: true };
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&plan, 0), closed(&plan)),
        (vec!["finish"], vec![id(3), id(4)])
    );
}

#[test]
fn a_unit_waits_for_its_jobs_as_a_whole() {
    let mut fleet = with_unit(3, 3);
    fleet.nodes[1].jobs = job_for("7", 600);
    let waits = plan(&policy(), &fleet, start());
    let acts: Vec<_> = waits
        .actions
        .iter()
        .map(|action| action.act.code())
        .collect();
    assert_eq!(acts, ["wait"; 3]);
    assert_eq!(
        waits.actions[0].because.to_string(),
        "unit nvl:1 is changed together, and n1 cannot start: job 7 of alice ends by \
         2026-11-26T18:00:00Z"
    );
    for node in &mut fleet.nodes {
        node.stage = Stage::Waiting;
    }
    let later = plan(&policy(), &fleet, start());
    assert!(later.actions.is_empty(), "{later:?}");
    assert_eq!(
        (why(&later, 0), why(&later, 1)),
        (Some("unit"), Some("job"))
    );
    let end = start() + minutes(590);
    assert_eq!(closed(&plan(&policy(), &fleet, end)).len(), 3);
    // The waiting slots admit the whole unit or none.
    let mut policy = policy();
    policy.budgets.max_waiting = Amount::Count(2);
    for node in &mut fleet.nodes {
        node.stage = Stage::NotBegun;
    }
    let full = plan(&policy, &fleet, start());
    assert!(full.actions.is_empty(), "{full:?}");
    assert_eq!(why(&full, 0), Some("unit_limit"));
}

#[test]
fn a_drain_deadline_skips_or_requeues_the_whole_unit() {
    for (then, act) in [
        (AfterDeadline::Skip, "skip"),
        (AfterDeadline::Requeue, "close"),
    ] {
        let drain = DrainPolicy::Deadline {
            after_s: 3600,
            then,
        };
        let policy = RolloutPolicy { drain, ..policy() };
        let mut fleet = with_unit(2, 2);
        fleet.nodes[1].jobs = Jobs::Known(vec![job("7", None)]);
        for node in &mut fleet.nodes {
            node.stage = Stage::Waiting;
        }
        let plan = plan(&policy, &fleet, start() + minutes(60));
        assert_eq!((acts(&plan, 0), acts(&plan, 1)), (vec![act], vec![act]));
    }
}

#[test]
fn a_unit_that_waits_for_a_person_holds_no_waiting_slot() {
    let mut policy = policy();
    policy.budgets.max_waiting = Amount::Count(1);
    policy.drain = DrainPolicy::Deadline {
        after_s: 60,
        then: AfterDeadline::Ask,
    };
    let mut fleet = with_unit(3, 2);
    fleet.nodes[0].stage = Stage::Waiting;
    fleet.nodes[1].stage = Stage::Waiting;
    fleet.nodes[1].jobs = job_for("7", 600);
    fleet.nodes[2].jobs = job_for("8", 600);
    let plan = plan(&policy, &fleet, start() + minutes(2));
    assert_eq!(
        (why(&plan, 0), why(&plan, 1), acts(&plan, 2)),
        (Some("unit"), Some("drain_deadline"), vec!["wait"])
    );
}

/// The number of nodes that begin together, for twelve nodes in units of three.
fn sizes_of_waves(waves: &[u32]) -> Vec<usize> {
    let canary = Canary {
        count: Some(1),
        nodes: Vec::new(),
        soak_s: 1800,
    };
    let policy = RolloutPolicy {
        canary: Some(canary),
        waves: Waves::Sizes(waves.iter().copied().map(Amount::Count).collect()),
        ..policy()
    };
    let mut fleet = fleet(12);
    fleet.budget.domains = ["a", "b", "c", "d"].map(|id| whole(id, 1000)).into();
    for (number, node) in fleet.nodes.iter_mut().enumerate() {
        node.member.domains = [["a", "b", "c", "d"][number / 3].to_owned()].into();
    }
    let mut now = start();
    let mut sizes = Vec::new();
    loop {
        let begun = closed(&plan(&policy, &fleet, now));
        if begun.is_empty() {
            return sizes;
        }
        let is_begun = |node: &Node| begun.contains(&node.member.node);
        for node in fleet.nodes.iter_mut().filter(|node| is_begun(node)) {
            node.stage = Stage::Changing(Change::Working);
        }
        let open = plan(&policy, &fleet, now);
        assert_eq!(closed(&open), [], "the wave is open after {sizes:?}");
        for node in fleet.nodes.iter_mut().filter(|node| is_begun(node)) {
            node.stage = Stage::Done { changed: true };
            node.since = now;
        }
        if sizes.is_empty() {
            let soak = plan(&policy, &fleet, now);
            assert_eq!(soak.binding.map(|rule| rule.code()), Some("soak"));
            now += minutes(30);
        }
        sizes.push(begun.len());
    }
}

#[test]
fn a_canary_or_a_wave_smaller_than_a_unit_admits_a_whole_unit() {
    assert_eq!(sizes_of_waves(&[1, 6]), [3, 3, 6]);
    // The second unit is larger than the rest of a wave of 5, and waits for the next wave.
    assert_eq!(sizes_of_waves(&[1, 5]), [3, 3, 3, 3]);
}

#[test]
fn a_failed_canary_of_a_whole_unit_halts() {
    let canary = Canary {
        count: Some(1),
        nodes: Vec::new(),
        soak_s: 0,
    };
    let policy = RolloutPolicy {
        canary: Some(canary),
        ..policy()
    };
    let mut fleet = with_unit(4, 2);
    fleet.nodes[0].stage = Stage::Done { changed: true };
    fleet.nodes[1].stage = Stage::Failed;
    let verdict = |policy: &RolloutPolicy| plan(policy, &fleet, start()).verdict;
    let halt = Verdict::Halt(HaltReason::Canary {
        node: "n1".to_owned(),
    });
    assert_eq!(verdict(&policy), halt);
    let named = Canary {
        count: None,
        nodes: vec!["n0".to_owned()],
        soak_s: 0,
    };
    let policy = RolloutPolicy {
        canary: Some(named),
        ..policy
    };
    assert_eq!(
        verdict(&policy),
        halt,
        "the unit of a named node is the canary"
    );
    let first = plan(&policy, &with_unit(4, 2), start());
    assert_eq!(closed(&first), [id(0), id(1)]);
}

#[test]
fn no_change_of_a_unit_starts_before_the_last_node_is_drained() {
    let mut fleet = with_unit(2, 2);
    let unit = |number, change| Node {
        member: Member {
            domains: ["nvl:1".to_owned()].into(),
            service: Service::Taken,
            ..member(number)
        },
        ..staged(number, Stage::Changing(change))
    };
    fleet.nodes[0] = unit(0, Change::Drained);
    fleet.nodes[1] = unit(1, Change::Draining);
    let drains = plan(&policy(), &fleet, start());
    assert!(drains.actions.is_empty(), "{drains:?}");
    assert_eq!(
        sentence(&drains, 0),
        "unit nvl:1 is changed together, and n1 still drains"
    );
    fleet.nodes[1] = unit(1, Change::Drained);
    let changes = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&changes, 0), acts(&changes, 1)),
        (vec!["change"], vec!["change"])
    );
    // A crash between both orders: the second goes on.
    fleet.nodes[1] = unit(1, Change::Working);
    assert_eq!(acts(&plan(&policy(), &fleet, start()), 0), ["change"]);
}

#[test]
fn an_unchanged_unit_is_given_back_whole() {
    let unit = |number, change| Node {
        member: Member {
            domains: ["nvl:1".to_owned()].into(),
            service: Service::Taken,
            ..member(number)
        },
        ..staged(number, Stage::Changing(change))
    };
    let failed = Change::DrainFailed {
        why: "timeout".to_owned(),
    };
    for change in [failed, Change::DrainCancelled] {
        let mut fleet = with_unit(2, 2);
        fleet.nodes[0] = unit(0, Change::Drained);
        fleet.nodes[1] = unit(1, change);
        assert_eq!(acts(&plan(&policy(), &fleet, start()), 0), ["give_back"]);
    }
    let mut fleet = with_unit(3, 3);
    fleet.nodes[0] = unit(0, Change::Drained);
    fleet.nodes[1] = unit(1, Change::Draining);
    fleet.nodes[1].condition.held = true;
    let held = plan(&policy(), &fleet, start());
    let given: Vec<_> = (0..3).map(|number| acts(&held, number)).collect();
    assert_eq!(given, [vec!["give_back"], vec!["give_back"], vec![]]);
    assert_eq!(why(&held, 2), Some("unit"));
}

#[test]
fn a_partly_closed_unit_is_completed_or_given_back() {
    let mut fleet = with_unit(4, 3);
    fleet.nodes[0].stage = Stage::Changing(Change::Draining);
    fleet.nodes[0].member.service = Service::Taken;
    let completes = plan(&policy(), &fleet, start());
    assert_eq!(closed(&completes), [1, 2, 3].map(id));
    fleet.budget.max_unavailable = Amount::Count(2);
    let returns = plan(&policy(), &fleet, start());
    assert_eq!(
        (acts(&returns, 0), closed(&returns)),
        (vec!["give_back"], vec![id(3)])
    );
    fleet.budget.max_unavailable = Amount::Count(1000);
    fleet.nodes[2].jobs = job_for("7", 600);
    assert_eq!(acts(&plan(&policy(), &fleet, start()), 0), ["give_back"]);
}

#[test]
fn whole_domains_with_a_common_node_are_a_single_unit() {
    let mut fleet = fleet(5);
    fleet.budget.domains = vec![whole("a", 1000), whole("b", 1000), domain("c", 1000)];
    for (number, domains) in [(0, vec!["a"]), (1, vec!["b", "c"]), (2, vec!["a", "b"])] {
        let domains = domains.into_iter().map(str::to_owned);
        fleet.nodes[number].member.domains = domains.collect();
    }
    fleet.nodes[3].member.domains = ["c".to_owned()].into();
    fleet.nodes[0].condition.held = true;
    let plan = plan(&policy(), &fleet, start());
    assert_eq!(closed(&plan), [id(3), id(4)]);
    assert!(sentence(&plan, 1).starts_with("unit a+b is changed together, and n0"));
}

#[test]
fn the_effective_concurrency_counts_units_as_a_whole() {
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Count(3);
    let mut fleet = fleet(4);
    fleet.budget.domains = vec![whole("a", 1000), whole("b", 1000)];
    for (number, node) in fleet.nodes.iter_mut().enumerate() {
        node.member.domains = [["a", "b"][number / 2].to_owned()].into();
        node.jobs = job_for("7", 600);
    }
    let plan = plan(&policy, &fleet, start());
    assert_eq!((plan.concurrency.now, plan.concurrency.max), (0, 2));
    assert_eq!(plan.concurrency.bound_by.unwrap().code(), "unit_limit");
}

#[test]
fn a_budget_smaller_than_a_unit_is_a_fault_before_the_start() {
    let faults = |policy: &RolloutPolicy, fleet: &Fleet| {
        let faults = find_unit_faults(policy, fleet, start());
        let pointers = faults.iter().map(|fault| fault.pointer.clone());
        pointers.collect::<Vec<String>>()
    };
    let mut fleet = with_unit(8, 3);
    // A node lost today may return, and a failed node may be retried.
    fleet.nodes[1].stage = Stage::Failed;
    fleet.nodes[0].member.service = Service::Out;
    fleet.nodes[7].member.service = Service::Out;
    fleet.budget.max_unavailable = Amount::Count(3);
    assert_eq!(faults(&policy(), &fleet), [""; 0]);
    fleet.budget.max_unavailable = Amount::Percent(25);
    assert_eq!(faults(&policy(), &fleet), ["max_unavailable"]);
    fleet.budget.max_unavailable = Amount::Count(3);
    fleet.budget.domains = vec![whole("nvl:1", 2)];
    assert_eq!(faults(&policy(), &fleet), ["domains/nvl:1/max_unavailable"]);
    fleet.budget.domains = vec![whole("nvl:1", 3)];
    let mut policy = policy();
    policy.budgets.max_changing = Amount::Percent(25);
    policy.budgets.max_waiting = Amount::Count(2);
    assert_eq!(
        faults(&policy, &fleet),
        ["budgets/max_waiting", "budgets/max_changing"]
    );
    let detail = &find_unit_faults(&policy, &fleet, start())[0].detail;
    assert_eq!(
        detail,
        "Unit nvl:1 has 3 nodes changed together, and budgets/max_waiting is 2 nodes. Raise the limit to 3."
    );
}

#[test]
fn a_unit_kept_back_is_no_part_of_the_effective_concurrency() {
    let mut fleet = with_unit(3, 2);
    fleet.nodes[1].stage = Stage::Skipped;
    let plan = plan(&policy(), &fleet, start());
    assert_eq!((closed(&plan), plan.concurrency.max), (vec![id(2)], 1));
}

#[test]
fn a_unit_admitted_in_part_counts_whole_to_the_wave() {
    let mut policy = policy();
    policy.waves = Waves::Sizes(vec![Amount::Count(3)]);
    policy.budgets.max_waiting = Amount::Count(1);
    let mut fleet = with_unit(5, 3);
    fleet.nodes[0].stage = Stage::Waiting;
    for node in &mut fleet.nodes[..3] {
        node.jobs = job_for("7", 600);
    }
    let plan = plan(&policy, &fleet, start());
    assert!(plan.actions.is_empty(), "{plan:?}");
    assert_eq!(
        (why(&plan, 1), why(&plan, 3)),
        (Some("unit_limit"), Some("wave"))
    );
}

#[test]
fn a_monitor_without_an_answer_gives_no_drained_unit_back() {
    let mut fleet = with_unit(2, 2);
    fleet.silent = Some(Silent::Monitor("errors".to_owned()));
    fleet.nodes[0] = staged(0, Stage::Changing(Change::Drained));
    fleet.nodes[1] = staged(1, Stage::Changing(Change::Draining));
    for node in &mut fleet.nodes {
        node.member.domains = ["nvl:1".to_owned()].into();
    }
    let drains = plan(&policy(), &fleet, start());
    assert_eq!([0, 1].map(|node| acts(&drains, node).len()), [0, 0]);
    fleet.nodes[1].stage = Stage::Changing(Change::Drained);
    let drained = plan(&policy(), &fleet, start());
    assert_eq!(
        [0, 1].map(|node| acts(&drained, node)),
        [["change"], ["change"]]
    );
}

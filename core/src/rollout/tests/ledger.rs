//! The ledger: which members count, and which budget refuses.

use super::*;

fn budget(max: Amount, domains: &[(&str, u32)]) -> Budget {
    Budget {
        max_unavailable: max,
        domains: domains.iter().map(|(id, max)| domain(id, *max)).collect(),
    }
}

fn in_domains(number: usize, domains: &[&str]) -> Member {
    Member {
        domains: domains.iter().map(|&id| id.to_owned()).collect(),
        ..member(number)
    }
}

#[test]
fn a_refusal_names_the_budget_with_its_numbers() {
    let members = [
        in_domains(0, &["a", "b"]),
        in_domains(1, &["b"]),
        Member {
            service: Service::Out,
            ..in_domains(2, &["b"])
        },
    ];
    let ledger = Ledger::open(
        &budget(Amount::Count(3), &[("a", 1), ("b", 1)]),
        &members,
        start(),
    );
    let refusal = ledger.check(&members[0]).unwrap_err();
    let wanted = Refusal {
        of: Exhausted::Domain {
            id: "b".to_owned(),
            axis: "rack".to_owned(),
        },
        out: 1,
        max: 1,
        counted: 3,
    };
    assert_eq!((refusal.code(), refusal), ("domain_budget", wanted));
    let ledger = Ledger::open(&budget(Amount::Count(1), &[]), &members, start());
    let refusal = ledger.check(&members[1]).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the pool has 1 of 3 nodes out, and 1 may be out at a time"
    );
}

#[test]
fn joiners_are_not_out_and_no_part_of_a_percentage() {
    let mut members: Vec<Member> = (0..10).map(member).collect();
    for member in &mut members[..6] {
        member.service = Service::Joining;
    }
    // 50% of the four members that were in service.
    let mut ledger = Ledger::open(&budget(Amount::Percent(50), &[]), &members, start());
    assert_eq!(ledger.take(&members[0]), Ok(Slot::NotNeeded));
    assert_eq!(ledger.take(&members[6]), Ok(Slot::Taken));
    assert_eq!(ledger.take(&members[7]), Ok(Slot::Taken));
    assert!(ledger.take(&members[8]).is_err());
}

#[test]
fn a_node_that_is_out_takes_no_slot_and_a_taken_node_no_second() {
    let members = [
        member(0),
        Member {
            service: Service::Out,
            ..member(1)
        },
        member(2),
    ];
    let mut ledger = Ledger::open(&budget(Amount::Count(2), &[]), &members, start());
    for (number, wanted) in [(1, Slot::NotNeeded), (0, Slot::Taken), (0, Slot::NotNeeded)] {
        assert_eq!(ledger.take(&members[number]), Ok(wanted), "{number}");
    }
    assert!(ledger.take(&members[2]).is_err());
}

#[test]
fn a_written_off_node_is_not_counted_until_its_date() {
    let until = start() + minutes(60);
    let off = |service| Member {
        service,
        written_off_until: Some(until),
        ..member(0)
    };
    let max = budget(Amount::Count(1), &[]);
    let check = |first: Member, now| {
        let members = [first, member(1)];
        Ledger::open(&max, &members, now).check(&members[1]).is_ok()
    };
    assert!(check(off(Service::Out), start()) && check(off(Service::Unknown), start()));
    assert!(!check(off(Service::Out), until), "the date has passed");
    assert!(
        !check(off(Service::Taken), start()),
        "our own act counts in any case"
    );
    // A serving node takes a slot, written off or not.
    let members = [off(Service::Serving), member(1)];
    let mut ledger = Ledger::open(&max, &members, start());
    assert_eq!(ledger.take(&members[0]), Ok(Slot::Taken));
    assert!(ledger.take(&members[1]).is_err());
}

#[test]
fn a_node_of_another_pool_counts_in_its_domains_only() {
    let other = Member {
        in_pool: false,
        service: Service::Out,
        ..in_domains(1, &["a"])
    };
    let members = [in_domains(0, &["a"]), other, member(2)];
    let ledger = Ledger::open(&budget(Amount::Count(1), &[("a", 1)]), &members, start());
    assert_eq!(
        ledger.check(&members[0]).unwrap_err().code(),
        "domain_budget"
    );
    assert_eq!(ledger.check(&members[2]), Ok(Slot::Taken));
}

#[test]
fn a_refused_take_leaves_every_account_unchanged() {
    let members = [
        in_domains(0, &["a", "b"]),
        in_domains(1, &["a"]),
        Member {
            service: Service::Out,
            ..in_domains(2, &["b"])
        },
    ];
    let mut ledger = Ledger::open(
        &budget(Amount::Count(2), &[("a", 1), ("b", 1)]),
        &members,
        start(),
    );
    assert!(ledger.take(&members[0]).is_err(), "b is used up");
    assert_eq!(ledger.take(&members[1]), Ok(Slot::Taken));
}

#[test]
fn a_node_listed_twice_counts_once_and_undeclared_domains_set_no_limit() {
    let down = Member {
        service: Service::Out,
        ..member(0)
    };
    let members = [down.clone(), down, in_domains(1, &["gone"])];
    let ledger = Ledger::open(&budget(Amount::Count(2), &[]), &members, start());
    assert_eq!(ledger.check(&members[2]), Ok(Slot::Taken));
}

#[test]
fn losses_beyond_the_budget_stop_every_voluntary_act() {
    let mut members: Vec<Member> = (0..6).map(member).collect();
    for member in &mut members[..5] {
        member.service = Service::Unknown;
    }
    let ledger = Ledger::open(&budget(Amount::Count(2), &[]), &members, start());
    let refusal = ledger.check(&members[5]).unwrap_err();
    assert_eq!((refusal.out, refusal.max), (5, 2));
}

#[test]
fn all_members_are_taken_or_none_and_the_numbers_are_from_before() {
    let members = [
        in_domains(0, &["a"]),
        in_domains(1, &["a"]),
        Member {
            service: Service::Out,
            ..in_domains(2, &["a"])
        },
        in_domains(3, &["b"]),
    ];
    let of = |numbers: &[usize]| -> Vec<&Member> {
        let members = numbers.iter().map(|number| &members[*number]);
        members.collect()
    };
    let open = |pool, a| {
        let budget = budget(Amount::Count(pool), &[("a", a), ("b", 1)]);
        Ledger::open(&budget, &members, start())
    };
    let mut ledger = open(4, 2);
    let refusal = ledger.take_all(&of(&[3, 0, 1])).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the failure domain a has 1 of 3 nodes out, and 2 may be out at a time"
    );
    assert_eq!(ledger.check(&members[3]), Ok(Slot::Taken), "none was taken");
    assert_eq!(
        open(2, 3).take_all(&of(&[0, 1])).unwrap_err().code(),
        "pool_budget"
    );
    // A member that is out takes no slot, and a member named twice a single slot.
    let mut ledger = open(3, 3);
    assert_eq!(
        ledger.take_all(&of(&[2, 0, 1, 0])),
        Ok(vec![
            Slot::NotNeeded,
            Slot::Taken,
            Slot::Taken,
            Slot::NotNeeded
        ])
    );
    assert!(ledger.take(&members[3]).is_err(), "the pool is used up");
}

#[test]
fn serving_members_without_a_row_count_in_the_pool_alone() {
    let members = [in_domains(0, &["a"]), in_domains(1, &["a"])];
    let mut budget = budget(Amount::Percent(10), &[("a", 1)]);
    budget.domains[0].max_unavailable = Amount::Percent(50);
    let open = |serving| Ledger::open_beside(&budget, &members, serving, start());
    // 10% of two members is at least 1; of all twenty members, 2.
    assert_eq!(open(0).pool().max, 1);
    let mut ledger = open(18);
    let account = |counted, max| Account {
        counted,
        out: 0,
        max,
    };
    assert_eq!(ledger.pool(), account(20, 2));
    assert_eq!(ledger.domain("a"), Some(account(2, 1)));
    assert_eq!(ledger.take(&members[0]), Ok(Slot::Taken));
    assert_eq!(
        ledger.take(&members[1]).unwrap_err().code(),
        "domain_budget"
    );
}

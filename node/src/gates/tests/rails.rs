//! The rails' rate as the shipped gates hold it: a recording, edited to a node of eight rails with a slower adapter beside them.

use muster_core::gates::Verdict;

use super::dcgm::{shipped, verdict};
use super::recordings::fixture;

/// `ibstat` of a node with these ports, each an adapter of its own: state, physical state, rate.
fn answer(ports: &[(&str, &str, u32)]) -> String {
    let recorded = fixture("ibstat-mlx5-documented.txt");
    let adapter = recorded.split("CA '").nth(1).expect("an adapter");
    let one = |(at, (state, physical, rate)): (usize, &(&str, &str, u32))| {
        let told =
            adapter.replacen("mlx5_0", &format!("mlx5_{at}"), 1).replacen("Rate: 400", &format!("Rate: {rate}"), 1);
        let told = told.replacen("State: Active", &format!("State: {state}"), 1);
        format!("CA '{}", told.replacen("LinkUp", physical, 1))
    };
    ports.iter().enumerate().map(one).collect()
}

#[test]
fn a_rail_below_its_rate_is_not_admitted_whatever_stands_beside_it() {
    let up = ("Active", "LinkUp", 400);
    let storage = ("Active", "LinkUp", 100);
    let with = |eighth| answer(&[up, up, up, eighth, up, up, up, up, storage]);
    for suite in ["admit", "sweep", "deep", "fabric"] {
        let gate = shipped(suite, "ib.rate");
        assert!(gate.required && !gate.shadow, "{suite}");
        assert_eq!(verdict(&gate, 0, &with(up)), Verdict::Pass, "{suite}");
        assert_eq!(verdict(&gate, 0, &with(("Active", "LinkUp", 100))), Verdict::Fail, "{suite}: trained down");
        assert_eq!(verdict(&gate, 0, &with(("Active", "LinkUp", 200))), Verdict::Fail, "{suite}: half the rate");
        assert_eq!(verdict(&gate, 0, &with(("Initializing", "LinkUp", 400))), Verdict::Fail, "{suite}: not active");
        assert_eq!(verdict(&gate, 0, &answer(&[up; 7])), Verdict::Error, "{suite}: one is missing");
        assert_eq!(verdict(&gate, 0, ""), Verdict::Error, "{suite}: no adapter");
    }
}

//! The rails' number, rate and PCIe links as the shipped gates hold them: a recording, edited to a node of eight rails with another adapter beside them.

use muster_core::facts::{Facts, PciDevice};
use muster_core::gates::{PROFILES, Shipped, Verdict};
use muster_core::wire::node::GatePlan;

use super::bench::{plan, run};
use super::dcgm::{shipped, verdict};
use super::recordings::fixture;
use crate::gates::parsers::{Answer, parse};

/// `ibstat` of a node with these ports, each an adapter of its own: state, physical state, rate.
fn answer(ports: &[(&str, &str, u32)]) -> String {
    let recorded = fixture("ibstat-mlx5-documented.txt");
    let adapter = recorded.split("CA '").nth(1).expect("an adapter");
    let one = |(at, (state, physical, rate)): (usize, &(&str, &str, u32))| {
        let told = adapter
            .replacen("mlx5_0", &format!("mlx5_{at}"), 1)
            .replacen("Rate: 400", &format!("Rate: {rate}"), 1);
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
        assert_eq!(
            verdict(&gate, 0, &with(("Active", "LinkUp", 100))),
            Verdict::Fail,
            "{suite}: trained down"
        );
        assert_eq!(
            verdict(&gate, 0, &with(("Active", "LinkUp", 200))),
            Verdict::Fail,
            "{suite}: half the rate"
        );
        assert_eq!(
            verdict(&gate, 0, &with(("Initializing", "LinkUp", 400))),
            Verdict::Fail,
            "{suite}: not active"
        );
        assert_eq!(
            verdict(&gate, 0, &answer(&[up; 7])),
            Verdict::Error,
            "{suite}: one is missing"
        );
        assert_eq!(verdict(&gate, 0, ""), Verdict::Error, "{suite}: no adapter");
    }
}

/// The same, with some of the ports of RoCE.
fn mixed(ports: &[(&str, &str, u32)], ethernet: &[usize]) -> String {
    let told = answer(ports);
    let one = |(at, adapter): (usize, &str)| match ethernet.contains(&at) {
        true => format!(
            "CA '{}",
            adapter.replace("Link layer: InfiniBand", "Link layer: Ethernet")
        ),
        false => format!("CA '{adapter}"),
    };
    told.split("CA '").skip(1).enumerate().map(one).collect()
}

#[test]
fn a_port_of_another_link_layer_stands_in_for_no_rail() {
    let (up, slow, down) = (
        ("Active", "LinkUp", 400),
        ("Active", "LinkUp", 200),
        ("Down", "Polling", 10),
    );
    let rails = |last| vec![up, up, up, up, up, up, up, last];
    let beside = |last, port| [rails(last), vec![port]].concat();
    for suite in [
        "admit",
        "smoke",
        "sweep",
        "deep",
        "fabric",
        "admit-amd",
        "smoke-amd",
        "sweep-amd",
    ] {
        let verdicts = |text: &str| {
            let of = |id| verdict(&shipped(suite, id), 0, text);
            (of("ib.ports"), of("ib.rate"))
        };
        let (pass, fail) = (Verdict::Pass, Verdict::Fail);
        // InfiniBand with an Ethernet port that is as fast, and the other way round.
        let (ninth, eight) = (&[8][..], &[0, 1, 2, 3, 4, 5, 6, 7][..]);
        for ethernet in [ninth, eight] {
            assert_eq!(
                verdicts(&mixed(&beside(up, up), ethernet)),
                (pass, pass),
                "{suite}"
            );
            assert_eq!(
                verdicts(&mixed(&beside(slow, up), ethernet)),
                (pass, fail),
                "{suite}: a rail trained down"
            );
            let (ports, rate) = verdicts(&mixed(&beside(down, up), ethernet));
            assert_eq!(
                (ports, rate),
                (fail, Verdict::Error),
                "{suite}: a rail is down"
            );
        }
        // More ports of the other layer than rails, which are slower, and one that is faster than any rail.
        let many = [rails(up), vec![("Active", "LinkUp", 25); 10]].concat();
        assert_eq!(
            verdicts(&mixed(&many, &[8, 9, 10, 11, 12, 13, 14, 15, 16, 17])),
            (pass, pass),
            "{suite}"
        );
        let faster = beside(up, ("Active", "LinkUp", 800));
        assert_eq!(verdicts(&mixed(&faster, ninth)), (pass, pass), "{suite}");
    }
}

#[test]
fn of_two_ports_as_fast_the_rails_are_told() {
    let up = ("Active", "LinkUp", 400);
    let text = mixed(&[up, up, ("Active", "LinkUp", 200), up], &[0]);
    let reading = parse(
        "ibstat",
        &Answer {
            exit: 0,
            text: &text,
            messages: "",
            serial: None,
        },
    )
    .expect("a reading");
    let told: Vec<&str> = reading
        .samples
        .iter()
        .filter(|sample| sample.metric == "ib.active_rate")
        .map(|sample| sample.entity.as_str())
        .collect();
    assert_eq!(told, ["mlx5_1/1", "mlx5_3/1", "mlx5_2/1"]);
}

#[test]
fn a_rail_at_an_older_pcie_generation_is_told_behind_gpus_that_are_not() {
    let link = |at: usize, class: &str, speed: &str| PciDevice {
        address: format!("0000:{at:02x}:00.0"),
        class: class.into(),
        link_width: Some(16),
        link_speed: Some(format!("{speed} GT/s PCIe")),
        ..PciDevice::default()
    };
    // Eight GPUs at full speed, eight rails, and an onboard card.
    let node = |last: &str| {
        let speeds = [
            "32.0", "32.0", "32.0", "32.0", "32.0", "32.0", "32.0", last, "8.0",
        ];
        let rails = speeds
            .iter()
            .enumerate()
            .map(|(at, speed)| link(16 + at, "020700", speed));
        Facts {
            pci: (0..8)
                .map(|at| link(at, "030200", "32.0"))
                .chain(rails)
                .collect(),
            ..Facts::default()
        }
    };
    for (suite, model) in [
        ("admit", "hgx-h100-80g"),
        ("sweep", "hgx-b200"),
        ("deep", "hgx-h200-141g"),
        ("admit-amd", "mi300x"),
    ] {
        let profile = toml::from_str(Shipped::find(PROFILES, model).expect("a profile").text)
            .expect("the shipped profile");
        let plan = GatePlan {
            profile,
            ..plan(vec![shipped(suite, "pcie.rail_speed")])
        };
        let verdict = |last: &str| run(&plan, &node(last)).expect("results")[0].verdict;
        assert_eq!(
            (verdict("32.0"), verdict("16.0")),
            (Verdict::Pass, Verdict::Fail),
            "{suite} on {model}"
        );
    }
}

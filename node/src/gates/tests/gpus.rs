//! What nvidia-smi says of GPUs, as the shipped gates hold it: the recording of two, edited to what other models say.

use muster_core::facts::Facts;
use muster_core::gates::{Gate, Mode, PROFILES, Reference, Shipped, Verdict, assess};
use muster_core::profiles::HardwareProfile;

use super::dcgm::{shipped, verdict};
use super::recordings::fixture;
use crate::gates::parsers::{Answer, parse};
use crate::gates::verdict::{weigh_report, weigh_unread};

/// The NVLink domain of a tray, as one says it.
const DOMAIN: &str = "00000001-0000-0000-0000-000000000001";
const RECORDING: &str = "nvidia-smi-590.44.01-2xa5000-v13.xml";

/// A gate as it ships, of the recording's two GPUs.
fn of_two(suite: &str, id: &str) -> Gate {
    Gate {
        count: Some("2".into()),
        ..shipped(suite, id)
    }
}

#[test]
fn a_gpu_whose_link_is_slow_under_load_is_told() {
    let loaded = fixture(RECORDING);
    let gate = of_two("admit", "gpu.pcie_load");
    let at = |generation: u32| {
        loaded.replace(
            "<current_link_gen>1<",
            &format!("<current_link_gen>{generation}<"),
        )
    };
    assert_eq!(
        (verdict(&gate, 0, &at(5)), verdict(&gate, 0, &at(4))),
        (Verdict::Pass, Verdict::Fail)
    );
}

#[test]
fn a_storm_of_corrected_errors_is_told() {
    let (sram, dram) = ("<sram_correctable>N/A<", "<dram_correctable>N/A<");
    let told = |in_sram: u32, in_dram: u32| {
        let counted = fixture(RECORDING)
            .replace(sram, "<sram_correctable>0<")
            .replace(dram, "<dram_correctable>0<");
        let counted = counted.replacen(
            "<sram_correctable>0<",
            &format!("<sram_correctable>{in_sram}<"),
            1,
        );
        counted.replacen(
            "<dram_correctable>0<",
            &format!("<dram_correctable>{in_dram}<"),
            1,
        )
    };
    for suite in ["admit", "sweep", "deep"] {
        let gate = of_two(suite, "gpu.ecc_corrected");
        assert_eq!(
            verdict(&gate, 0, &told(10_000, 20_000_000)),
            Verdict::Pass,
            "{suite}"
        );
        assert_eq!(
            verdict(&gate, 0, &told(10_001, 0)),
            Verdict::Fail,
            "{suite}"
        );
        assert_eq!(
            verdict(&gate, 0, &told(0, 20_000_001)),
            Verdict::Fail,
            "{suite}"
        );
    }
}

fn tray() -> HardwareProfile {
    let profile = Shipped::find(PROFILES, "gb200-tray")
        .expect("a profile")
        .text;
    toml::from_str(profile).expect("the shipped profile")
}

/// What a gate makes of an answer on a tray of GB200.
fn on_a_tray(gate: &Gate, text: &str) -> Verdict {
    let profile = tray();
    let (facts, variables) = (Facts::default(), [].into());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    let reading = parse(
        "nvidia-smi-xml",
        &Answer {
            exit: 0,
            text,
            messages: "",
            serial: None,
        },
    )
    .expect("a reading");
    let assessment = assess(gate, &reading.samples, &reference);
    weigh_report(
        &reading.faults,
        &reading.gaps,
        weigh_unread(gate, &reading.unread, assessment),
    )
    .verdict
}

#[test]
fn memory_beyond_repair_keeps_a_tray_out() {
    let profile = tray();
    let told = |word: &str| {
        fixture(RECORDING).replace(
            "unrepairable_memory>N/A<",
            &format!("unrepairable_memory>{word}<"),
        )
    };
    for suite in ["admit", "sweep", "deep"] {
        let gate = of_two(suite, "gpu.unrepairable");
        assert_eq!(
            (gate.mode(Some(&profile)), gate.mode(None)),
            (Mode::Required, Mode::Shadow),
            "{suite}"
        );
        assert_eq!(
            (
                on_a_tray(&gate, &told("No")),
                on_a_tray(&gate, &told("Yes"))
            ),
            (Verdict::Pass, Verdict::Fail)
        );
    }
}

#[test]
fn a_tray_outside_its_nvlink_domain_is_not_admitted() {
    let alone = "<state>N/A</state>\n\t\t\t<status>N/A</status>";
    let recorded = fixture(RECORDING);
    assert_eq!(
        recorded.matches(alone).count(),
        2,
        "the recording has its place"
    );
    let fabric = |clique: &str, cluster: &str| {
        format!(
            "<state>Completed</state><status>Success</status><cliqueId>{clique}</cliqueId><clusterUuid>{cluster}</clusterUuid>\
             <health><summary>Healthy</summary><bandwidth>Full</bandwidth><route_unhealthy>False</route_unhealthy>\
             <access_timeout_recovery>False</access_timeout_recovery></health>"
        )
    };
    // The first of the two.
    let told = |clique: &str, cluster: &str| {
        recorded
            .replacen(alone, &fabric(clique, cluster), 1)
            .replacen(alone, &fabric("2", DOMAIN), 1)
    };
    let none = "00000000-0000-0000-0000-000000000000";
    for suite in ["admit", "smoke", "sweep", "deep"] {
        let gate = of_two(suite, "gpu.fabric_health");
        assert_eq!(
            on_a_tray(&gate, &told("2", DOMAIN)),
            Verdict::Pass,
            "{suite}"
        );
        assert_eq!(on_a_tray(&gate, &told("0", none)), Verdict::Fail, "{suite}");
        assert_eq!(
            on_a_tray(&gate, &told("N/A", "N/A")),
            Verdict::Error,
            "{suite}"
        );
    }
    let clique = of_two("admit", "gpu.fabric_clique");
    assert_eq!(
        (
            on_a_tray(&clique, &told("2", DOMAIN)),
            on_a_tray(&clique, &told("0", DOMAIN))
        ),
        (Verdict::Pass, Verdict::Fail)
    );
}

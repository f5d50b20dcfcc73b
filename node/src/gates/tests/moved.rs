//! Values that moved between versions of a tool, and values that a version or a device does not
//! tell. A value with a criterion is read, or is an error. Other values make no answer unreadable.

use std::collections::BTreeMap;

use muster_core::facts::Facts;
use muster_core::gates::{Assessment, Gate, Limit, PROFILES, Reference, Shipped, Verdict, assess};
use muster_core::profiles::HardwareProfile;

use super::bench::gate;
use super::dcgm;
use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse};
use crate::gates::verdict::{weigh_report, weigh_unread};

const NO_SELFTEST: &str = "smartctl-7.4-nvme-no-selftest-log.json";
const NO_HEALTH: &str = "smartctl-7.4-nvme-no-health-log.json";
const SAS: &str = "smartctl-7.4-sas-documented.json";
const TEXT_610: &str = "nvidia-smi-610.57.04-rtx2080s-q-shortened.txt";
const XML_610: &str = "nvidia-smi-610.57.04-2xa5000-documented.xml";
const MI250: &str = "rocm-smi-6.3.6-mi250-shortened.json";
const ROCM_7: &str = "amd-smi-rocm7-documented.json";
const FDR10: &str = "ibstat-fdr10-documented.txt";

fn read(parser: &str, exit: i32, text: &str) -> Result<Reading, String> {
    parse(
        parser,
        &Answer {
            exit,
            text,
            messages: "",
            serial: None,
        },
    )
}

fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

/// A gate that asks the node, or its one entity, for a metric.
fn asking(parser: &str, metric: &str, unit: &str) -> Gate {
    gate(&format!(
        "id = \"g\"\nstage = \"inventory\"\ntimeout_s = 1\nargv = [\"t\"]\nparser = {parser:?}\ncount = \">=1\"\n\
         criteria = [{{ metric = {metric:?}, op = \">=\", limit = 0, unit = {unit:?} }}]"
    ))
}

fn judge(gate: &Gate, reading: &Reading) -> Assessment {
    let profile = Shipped::find(PROFILES, "hgx-h100-80g").expect("a profile");
    let profile: HardwareProfile = toml::from_str(profile.text).expect("the shipped profile");
    let (facts, variables) = (Facts::default(), BTreeMap::new());
    let reference = Reference {
        profile: &profile,
        facts: &facts,
        stack: None,
        variables: &variables,
    };
    let assessment = assess(gate, &reading.samples, &reference);
    weigh_report(
        &reading.faults,
        &reading.gaps,
        weigh_unread(gate, &reading.unread, assessment),
    )
}

/// The gate of admission over the answer for one disk.
fn of_disk(exit: i32, text: &str) -> Verdict {
    let gate = Gate {
        each: None,
        count: None,
        ..dcgm::shipped("admit", "disk.smart")
    };
    match read("smartctl", exit, text) {
        Ok(reading) => judge(&gate, &reading).verdict,
        Err(_) => Verdict::Error,
    }
}

#[test]
fn a_disk_without_a_log_of_self_tests_is_read() {
    let text = fixture(NO_SELFTEST);
    assert_eq!(of_disk(4, &text), Verdict::Pass);
    let notes = read("smartctl", 4, &text).expect("a reading").notes;
    assert!(
        notes[0].starts_with("Read Self-test Log failed"),
        "{notes:?}"
    );
    // The disk calls itself failing beside the refused command.
    let failing = changed(&text, "\"exit_status\": 4", "\"exit_status\": 12");
    assert_eq!(of_disk(12, &failing), Verdict::Fail);
    let unjudged = changed(&failing, "\"smart_status\"", "\"smart_state\"");
    assert_eq!(of_disk(12, &unjudged), Verdict::Fail);
    // Bits of a disk that was not opened.
    for exit in [1, 2, 5, 6] {
        let status = format!("\"exit_status\": {exit}");
        let unopened = changed(&text, "\"exit_status\": 4", &status);
        assert!(read("smartctl", exit, &unopened).is_err(), "{exit}");
    }
    // A value that is asked for is missing.
    let without = changed(&text, "\"media_errors\"", "\"media\"");
    assert_eq!(of_disk(4, &without), Verdict::Error);
    let without = changed(&text, "\"temperature\": 39,\n  \"available", "\"available");
    assert_eq!(of_disk(4, &without), Verdict::Pass);
}

#[test]
fn a_disk_without_its_health_log_is_an_error() {
    let text = fixture(NO_HEALTH);
    assert_eq!(of_disk(4, &text), Verdict::Error);
    let why = read("smartctl", 4, &text).expect_err("no health");
    assert!(
        why.contains("Read NVMe SMART/Health Information failed"),
        "{why}"
    );
    // The same disk, and the log alone is missing.
    let text = changed(
        &fixture(NO_SELFTEST),
        "\"nvme_smart_health_information_log\"",
        "\"nvme_log\"",
    );
    assert_eq!(of_disk(4, &text), Verdict::Error);
}

#[test]
fn a_sas_disk_is_read() {
    let text = fixture(SAS);
    let sata = Gate {
        each: None,
        count: None,
        ..dcgm::shipped("admit", "disk.sata")
    };
    let told = |exit, text: &str| read("smartctl", exit, text).expect("a reading");
    assert_eq!(judge(&sata, &told(0, &text)).verdict, Verdict::Pass);
    // smartctl 7.0 to 7.2 name the firmware otherwise.
    let former = told(0, &changed(&text, "\"scsi_revision\"", "\"revision\""));
    assert_eq!(former.versions["firmware"], "A0B1");

    let exception = |asc: u8| {
        let status = format!(
            "\"passed\": false, \"scsi\": {{ \"asc\": {asc}, \"ascq\": 16, \"ie_string\": \"HARDWARE IMPENDING FAILURE\" }}"
        );
        let text = changed(&text, "\"passed\": true", &status);
        changed(&text, "\"exit_status\": 0", "\"exit_status\": 8")
    };
    let failing = told(8, &exception(0x5d));
    let of = |reading: &Reading, metric| reading.number(metric, "");
    assert_eq!(of(&failing, "smart.failing"), Some(1.0));
    assert_eq!(of(&failing, "smart.prefail"), Some(1.0));
    assert_eq!(judge(&sata, &failing).verdict, Verdict::Fail);
    assert!(failing.notes[0].contains("IMPENDING FAILURE (asc 0x5d, ascq 0x10)"));
    // A warning, such as a high temperature, predicts no failure.
    let warning = told(8, &exception(0x0b));
    assert_eq!(of(&warning, "smart.prefail"), Some(0.0));
    assert_eq!(of(&warning, "smart.failing"), Some(1.0));

    // Errors of reading alone say nothing about writing.
    let errors = asking("smartctl", "smart.media_errors", "errors");
    assert_eq!(judge(&errors, &told(0, &text)).verdict, Verdict::Pass);
    let half = told(0, &changed(&text, "\"write\": {", "\"other\": {"));
    assert_eq!(of(&half, "smart.media_errors"), None);
    let half = judge(&errors, &half);
    assert_eq!(half.verdict, Verdict::Error);
    assert!(half.reason.contains("have no write"), "{}", half.reason);
    let verified = changed(
        &text,
        "\"write\": {",
        "\"verify\": { \"total_uncorrected_errors\": 4 }, \"write\": {",
    );
    assert_eq!(of(&told(0, &verified), "smart.media_errors"), Some(7.0));
}

#[test]
fn limits_of_driver_610_are_read_where_they_moved() {
    let text = fixture(XML_610);
    let mut gate = dcgm::shipped("sweep", "gpu.throttle_now");
    gate.count = Some("2".to_owned());
    for criterion in &mut gate.criteria {
        if criterion.metric == "gpu.power_limit" {
            criterion.limit = Limit::Number(230.0);
        }
    }
    let told = |text: &str| read("nvidia-smi-xml", 0, text).expect("a reading");
    assert_eq!(judge(&gate, &told(&text)).verdict, Verdict::Pass);
    // The driver may keep the former place: the new place counts.
    let both = text.replace(
        "<gpu_ceiling_power_limit>",
        "<current_power_limit>100.00 W</current_power_limit><gpu_ceiling_power_limit>",
    );
    assert_eq!(told(&both), told(&text));
    let low = text.replace("<current_power_limit>230.00", "<current_power_limit>200.00");
    assert_eq!(judge(&gate, &told(&low)).verdict, Verdict::Fail);
    let none = text.replace(
        "<current_power_limit>230.00 W<",
        "<current_power_limit>high<",
    );
    let none = judge(&gate, &told(&none));
    assert_eq!(none.verdict, Verdict::Error);
    assert!(none.reason.contains("drivers: 610"), "{}", none.reason);
}

#[test]
fn versions_of_driver_610_are_read_without_their_remarks() {
    let text = fixture(TEXT_610);
    let word = |reading: &Reading, metric: &str| {
        let mut samples = reading.samples.iter();
        let sample = samples.find(|sample| sample.metric == metric);
        sample.map(|sample| sample.value.clone())
    };
    let told = |text: &str| read("nvidia-smi-text", 0, text);
    let version = |version: &str| Some(Limit::Text(version.to_owned()));
    let reading = told(&text).expect("a reading");
    assert_eq!(word(&reading, "gpu.driver"), version("610.57.04"));
    assert_eq!(word(&reading, "gpu.cuda"), version("13.3"));
    // Either name alone.
    for (from, to) in [
        ("\nKMD Version", "\nOther"),
        ("\nDriver Version", "\nOther"),
    ] {
        let one = told(&changed(&text, from, to)).expect("a reading");
        assert_eq!(word(&one, "gpu.driver"), version("610.57.04"), "{from}");
    }
    // Two versions.
    let driver = changed(&text, ": 610.57.04\n", ": 610.57.05\n");
    assert!(told(&driver).is_err_and(|why| why.contains("610.57.05")));
    let cuda = told(&changed(&text, ": 13.3\n", ": 13.4\n")).expect("a reading");
    assert_eq!(word(&cuda, "gpu.cuda"), None);
    assert_eq!(cuda.unread[0].metric, "gpu.cuda");
}

#[test]
fn a_card_of_rocm_tells_what_it_has() {
    let text = fixture(MI250);
    let told = |text: &str| read("rocm-smi", 0, text).expect("a reading");
    let first = "0000:c1:00.0";
    let reading = told(&text);
    assert_eq!(reading.number("gpu.count", ""), Some(2.0));
    assert_eq!(reading.number("gpu.power_draw", first), Some(36.0));
    assert_eq!(reading.number("gpu.power_draw", "0000:c2:00.0"), None);
    // A driver of the kernel has the kernel's version; some have none.
    let kernel = told(&changed(&text, "\"6.3.6\"", "\"7.0.0-14-generic\""));
    assert_eq!(kernel.versions["driver"], "7.0.0-14-generic");
    assert_eq!(kernel.samples, reading.samples);
    let without = told(&changed(&text, "\"Driver version\"", "\"Other\""));
    assert_eq!(without.samples, reading.samples);

    let power = asking("rocm-smi", "gpu.power_draw", "W");
    let memory = asking("rocm-smi", "gpu.memory_total", "MiB");
    for odd in ["Unknown", "-1", "N/A (", "", "36.0 W"] {
        let odd_text = changed(&text, "\"36.0\"", &format!("{odd:?}"));
        let reading = told(&odd_text);
        assert_eq!(reading.number("gpu.power_draw", first), None, "{odd}");
        assert_eq!(judge(&power, &reading).verdict, Verdict::Error, "{odd}");
        assert_eq!(judge(&memory, &reading).verdict, Verdict::Pass, "{odd}");
    }
    let link = told(&changed(&text, "\"0 (16.0GT/s x16)\"", "\"0 (16.0 x16)\""));
    let unread: Vec<&str> = link.unread.iter().map(|unread| unread.metric).collect();
    assert_eq!(unread, ["gpu.pcie_speed", "gpu.pcie_width"]);
    // A card without an address is no card.
    let text = changed(
        &text,
        "\"PCI Bus\": \"0000:C1:00.0\"",
        "\"PCI Bus\": \"N/A\"",
    );
    assert!(read("rocm-smi", 0, &text).is_err());
}

#[test]
fn a_gpu_of_rocm_7_may_have_no_link_and_no_counters() {
    let text = fixture(ROCM_7);
    let told = |text: &str| read("amd-smi", 0, text).expect("a reading");
    let reading = told(&text);
    assert_eq!(reading.number("gpu.pcie_width", "GPU 0"), Some(16.0));
    assert_eq!(reading.number("gpu.pcie_width", "GPU 1"), None);
    assert!(reading.unread.is_empty(), "{:?}", reading.unread);
    let power = asking("amd-smi", "gpu.power_draw", "W");
    let memory = asking("amd-smi", "gpu.memory_total", "MiB");
    for (from, to) in [
        ("\"W\"", "\"mW\""),
        ("\"socket_power\"", "\"power\""),
        ("137", "\"x\""),
    ] {
        let reading = told(&changed(&text, from, to));
        assert_eq!(judge(&power, &reading).verdict, Verdict::Error, "{to}");
        assert_eq!(judge(&memory, &reading).verdict, Verdict::Pass, "{to}");
    }
    for (from, to) in [("\"gpu\": 1", "\"gpu\": 2"), ("\"gpu\": 1", "\"g\": 1")] {
        assert!(
            read("amd-smi", 0, &changed(&text, from, to)).is_err(),
            "{to}"
        );
    }
}

#[test]
fn a_link_of_fdr10_is_read() {
    let text = fixture(FDR10);
    let told = |text: &str| read("ibstat", 0, text).expect("a reading");
    assert_eq!(told(&text).number("ib.rate", "mlx5_0/1"), Some(40.0));
    let rates = ["ib.rate", "ib.active_rate"].map(|metric| asking("ibstat", metric, "Gb/s"));
    let ports = asking("ibstat", "ib.ports_active", "ports");
    for rate in [
        "40 (FDR11)",
        "40(FDR10)",
        "(FDR10)",
        "fast",
        "40 (FDR10) (FDR10)",
    ] {
        let reading = told(&changed(&text, "40 (FDR10)", rate));
        assert_eq!(reading.number("ib.rate", "mlx5_0/1"), None, "{rate}");
        for gate in &rates {
            assert_eq!(judge(gate, &reading).verdict, Verdict::Error, "{rate}");
        }
        assert_eq!(judge(&ports, &reading).verdict, Verdict::Pass, "{rate}");
        assert_eq!(reading.number("ib.ports_active", ""), Some(1.0), "{rate}");
    }
    // A switch is no adapter.
    let switch = text.replace("iWARP RNIC", "Switch");
    assert!(read("ibstat", 0, &switch).is_err());
}

#[test]
fn a_diagnostic_of_dcgm_4_5_is_read() {
    let text = fixture("dcgmi-4.2.3-gb10-r2-skips.json");
    let former = read("dcgm-diag", 226, &text).expect("a reading");
    let info = text.find("\"info\": [").expect("a line of info") + "\"info\": ".len();
    let end = info + text[info..].find(']').expect("its end") + 1;
    let newer = format!("{}\"one line\"{}", &text[..info], &text[end..]);
    let newer = changed(&newer, "\"4.2.3\"", "\"4.5.0\"");
    let reading = read("dcgm-diag", 226, &newer).expect("a reading");
    assert_eq!(reading.samples, former.samples);
    assert_eq!(reading.versions["dcgm"], "4.5.0");
}

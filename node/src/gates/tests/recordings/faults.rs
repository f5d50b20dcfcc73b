//! Faults of GPUs, links and burn-ins. The faults have no recording, and stand in the text of a
//! recording in the place of the healthy words.

use muster_core::gates::Limit;

use super::{FRYER, TOPO, fixture, read};
use crate::gates::parsers::Reading;

#[test]
fn bad_news_of_gpus_is_read_as_such() {
    let xml = fixture("nvidia-smi-590.44.01-2xa5000-v13.xml");
    let hot = xml
        .replacen("hw_slowdown>Not Active", "hw_slowdown>Active", 1)
        .replacen("pending>No<", "pending>Yes<", 1);
    let reading = read("nvidia-smi-xml", &hot).expect("a reading");
    assert_eq!(
        reading.number("gpu.throttle_hw_slowdown", "0000:81:00.0"),
        Some(1.0)
    );
    assert_eq!(
        reading.number("gpu.throttle_hw_slowdown", "0000:c1:00.0"),
        Some(0.0)
    );
    assert!(
        read(
            "nvidia-smi-xml",
            &xml.replacen("hw_slowdown>Not Active", "hw_slowdown>Perhaps", 1)
        )
        .is_err()
    );
    assert!(read("nvidia-smi-xml", &xml.replacen("13 C", "Unknown Error", 1)).is_err());
    let narrow = xml.replacen("current_link_width>16x", "current_link_width>8x", 1);
    assert_eq!(
        read("nvidia-smi-xml", &narrow)
            .expect("a reading")
            .number("gpu.pcie_width_lost", "0000:81:00.0"),
        Some(8.0)
    );

    let csv =
        "pci.bus_id, driver_version\n00000000:01:00.0, 590.48.01\n00000000:02:00.0, 590.48.01\n";
    assert_eq!(
        read("nvidia-smi-csv", csv)
            .expect("two GPUs")
            .number("gpu.count", ""),
        Some(2.0)
    );
    assert!(
        read(
            "nvidia-smi-csv",
            &csv.replacen("590.48.01\n00", "535.54.03\n00", 1)
        )
        .is_err(),
        "two drivers at once"
    );

    let json = fixture("nccl-tests-json-documented.json");
    let wrong = json
        .replacen("\"nwrong\": 0.0", "\"nwrong\": 3.0", 1)
        .replace("\"count\": 0,", "\"count\": 3,");
    assert!(
        read("nccl-tests-json", &wrong).is_err(),
        "three are out of bounds and it is okay"
    );
    let told = wrong.replacen("\"okay\": \"true\"", "\"okay\": \"false\"", 1);
    assert_eq!(
        read("nccl-tests-json", &told)
            .expect("a failure")
            .number("nccl.wrong", ""),
        Some(3.0)
    );
}

/// The text of a sample, `None` for a number.
fn word<'a>(reading: &'a Reading, metric: &str, entity: &str) -> Option<&'a str> {
    let sample = reading
        .samples
        .iter()
        .find(|sample| sample.metric == metric && sample.entity == entity)?;
    match &sample.value {
        Limit::Text(word) => Some(word),
        Limit::Number(_) => None,
    }
}

/// The words of the driver for GB200, branch 580, in the place of the recording of version 13.
#[test]
fn bad_news_of_a_fabric_beyond_the_board_is_read_as_such() {
    let xml = fixture("nvidia-smi-590.44.01-2xa5000-v13.xml");
    let (alone, gpu) = (
        "<state>N/A</state>\n\t\t\t<status>N/A</status>",
        "0000:81:00.0",
    );
    let told = "<state>Completed</state><status>Success</status><health><summary>Healthy</summary><bandwidth>Full</bandwidth>\
                <route_unhealthy>False</route_unhealthy><access_timeout_recovery>False</access_timeout_recovery>\
                <incorrect_configuration>N/A</incorrect_configuration></health>";
    assert!(xml.contains(alone), "the recording has its place");
    let well = xml.replace(alone, told);
    let reading = read("nvidia-smi-xml", &well).expect("a reading");
    assert_eq!(word(&reading, "gpu.fabric_health", gpu), Some("Healthy"));
    assert_eq!(word(&reading, "gpu.fabric_bandwidth", gpu), Some("Full"));
    assert_eq!(reading.number("gpu.fabric_route_unhealthy", gpu), Some(0.0));
    let bad = well.replacen("Full", "Degraded", 1).replacen(
        "route_unhealthy>False",
        "route_unhealthy>True",
        1,
    );
    let reading = read("nvidia-smi-xml", &bad).expect("a reading");
    assert_eq!(
        word(&reading, "gpu.fabric_bandwidth", gpu),
        Some("Degraded")
    );
    assert_eq!(reading.number("gpu.fabric_route_unhealthy", gpu), Some(1.0));
    assert_eq!(
        word(&reading, "gpu.fabric_bandwidth", "0000:c1:00.0"),
        Some("Full")
    );
    assert!(
        read(
            "nvidia-smi-xml",
            &well.replacen("recovery>False", "recovery>Maybe", 1)
        )
        .is_err()
    );
    let silent = read("nvidia-smi-xml", &xml).expect("a reading");
    assert_eq!(
        word(&silent, "gpu.fabric_health", gpu),
        None,
        "a board without such a fabric says nothing"
    );
}

#[test]
fn bad_news_of_links_and_burn_ins_is_read_as_such() {
    let lost: String = fixture(TOPO).replace("GPU0\t X \tNV12\tNV12", "GPU0\t X \tNV12\tNODE");
    let lost = lost.replace("GPU2\tNV12\tNV12\t X", "GPU2\tNODE\tNV12\t X");
    let reading = read("nvidia-smi-topo", &lost).expect("a board with a lost link");
    let of = |metric, gpu| reading.number(metric, gpu);
    assert_eq!(
        (
            of("topo.nvlinks", "GPU 0"),
            of("topo.gpus_by_nvlink", "GPU 2")
        ),
        (Some(0.0), Some(2.0))
    );
    assert_eq!(
        (
            of("topo.nvlinks", "GPU 1"),
            of("topo.gpus_by_nvlink", "GPU 1")
        ),
        (Some(12.0), Some(3.0))
    );
    let underlined = fixture(TOPO).replace(
        "GPU0\tGPU1\tGPU2\tGPU3\tNIC0",
        "\u{1b}[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0",
    );
    let underlined = underlined.replace("GPU NUMA ID\n", "GPU NUMA ID\u{1b}[0m\n");
    assert_eq!(
        read("nvidia-smi-topo", &underlined),
        read("nvidia-smi-topo", &fixture(TOPO))
    );
    let newer = fixture("dcgmproftester-documented.txt")
        .replace("252917.0", "2.53e+05")
        .replace("0:0[", "0:0 [");
    assert_eq!(
        read("dcgmproftester", &newer)
            .expect("DCGM 4")
            .number("proftester.reports", "GPU 0"),
        Some(5.0)
    );
    let hot = fixture(FRYER).replacen("Thermal HW: false", "Thermal HW: true", 1);
    assert_eq!(
        read("gpu-fryer", &hot)
            .expect("a reading")
            .number("fryer.throttled", "GPU 0"),
        Some(1.0)
    );
}

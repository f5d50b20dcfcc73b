//! The exact values of each recording. `fixtures/read/` holds every value, and `GOLDEN=write` writes the folder for review. Recordings without an answer
//! give the reason.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use std::path::PathBuf;

use muster_core::gates::{Limit, Parser, Sample};

use crate::gates::parsers::{Answer, Reading, parse};

/// An answer of a tool.
pub(super) struct Recording {
    pub(super) parser: &'static str,
    pub(super) file: &'static str,
    pub(super) exit: i32,
    /// The file with its stderr.
    pub(super) messages: Option<&'static str>,
    /// The text with the version or the kind of document, and a text of another version or kind. `None` for an answer without both.
    pub(super) version: Option<(&'static str, &'static str)>,
}

const fn of(
    parser: &'static str,
    file: &'static str,
    version: (&'static str, &'static str),
) -> Recording {
    Recording {
        parser,
        file,
        exit: 0,
        messages: None,
        version: Some(version),
    }
}

/// Readable answers, of healthy and of faulty nodes.
#[rustfmt::skip]
pub(super) const RECORDINGS: &[Recording] = &[
    of("nvidia-smi-xml", "nvidia-smi-590.44.01-2xa5000-v13.xml", ("device_v13", "device_v14")),
    of("nvidia-smi-text", "nvidia-smi-590.48.01-h100-q.txt", ("NVSMI LOG", "NVSMI DIARY")),
    of("nvidia-smi-csv", "nvidia-smi-590.48.01-h100-load.csv", ("pci.bus_id", "pci.bus_name")),
    of("nvidia-smi-nvlink", "nvidia-smi-590.48.01-h100-nvlink.txt", ("UUID", "NAME")),
    of("nvidia-smi-nvlink", "nvidia-smi-a100-nvlink.txt", ("UUID", "NAME")),
    of("dcgm-diag", "dcgmi-4.2.3-gb10-r1.json", ("\"4.2.3\"", "\"5.0.0\"")),
    of("dcgm-diag", "dcgmi-4.2.3-gb10-r2-skips.json", ("DCGM Diagnostic", "DCGM GPU Diagnostic")),
    of("dcgm-diag-v3", "nvvs-3.1.0-8gpus-documented.json", ("DCGM GPU Diagnostic", "DCGM Diagnostic")),
    of("nvbandwidth", "nvbandwidth-0.5-1gpu.json", ("\"v0.5\"", "\"v1.0\"")),
    of("nccl-tests", "nccl-tests-2.16.2-8xa100.txt", ("#wrong", "error")),
    of("nccl-tests-json", "nccl-tests-json-documented.json", ("\"version\": 2", "\"version\": 4")),
    of("gpu-burn", "gpu-burn-rtx-a400.txt", ("Gflop/s", "Tflop/s")),
    of("gpu-burn", "gpu-burn-t4-faulty.txt", ("Gflop/s", "Tflop/s")),
    of("gpu-burn", "gpu-burn-16gpus-faulty.txt", ("Gflop/s", "Tflop/s")),
    of("gpu-burn", "gpu-burn-2gpus-documented.txt", ("Gflop/s", "Tflop/s")),
    of("rocm-smi", "rocm-smi-6.0.2-4xmi100.json", ("\"Driver version\": \"6", "\"Driver version\": \"9")),
    of("amd-smi", "amd-smi-navi23-shortened.json", ("mem_usage", "memory")),
    of("perftest", "ib_write_bw-4.5.txt", ("average[Gb/sec]", "average[MB/sec]")),
    of("perftest", "ib_write_lat-4.5.txt", ("[usec]", "[nsec]")),
    of("perftest-json", "ib_write_bw-json-documented.json", ("RDMA_Write_BW_Test", "RDMA_Write_MR_Test")),
    of("perftest-json", "ib_write_lat-json-documented.json", ("RDMA_Write_Latency_Test", "RDMA_Write_FS_Test")),
    of("ibstat", "ibstat-44.0-rxe.txt", ("Active", "Alive")),
    of("ibstat", "ibstat-mlx5-documented.txt", ("Polling", "Waiting")),
    of("perfquery", "perfquery-switch-port.txt", ("Port extended counters", "Port optional counters")),
    of("lshw", "lshw-02.19-vm.json", ("\"class\" : \"system\"", "\"class\" : \"bus\"")),
    of("kernel-log", "dmesg-clean.txt", ("[14333", "{14333")),
    of("kernel-log", "dmesg-xid-119.txt", ("[Sun", "{Sun")),
    of("kernel-log", "kernel-log-documented.txt", ("[  812", "{  812")),
    of("fio", "fio-3.33-write-verify.json", ("fio-3.33", "fio-4.0")),
    of("fio", "fio-3.33-randwrite.json", ("fio-3.33", "fio-4.0")),
    of("stressapptest", "stressapptest-1.0.6.txt", ("revision 1.0", "revision 2.0")),
    Recording { messages: Some("stress-ng-0.15.06.txt"), ..of("stress-ng", "stress-ng-0.15.06.yaml", ("0.15.06", "1.0.0")) },
    of("iperf3", "iperf3-3.12.json", ("iperf 3.12", "iperf 4.0")),
    of("smartctl", "smartctl-7.1-nvme-good.json", ("smart_status", "smart_state")),
    Recording { exit: 8, ..of("smartctl", "smartctl-7.3-nvme-failing.json", ("smart_status", "smart_state")) },
    of("smartctl", "smartctl-7.3-ata-good.json", ("smart_status", "smart_state")),
    of("nvme-smart-log", "nvme-smart-log-2.3-failing.json", ("avail_spare", "spare")),
    of("nvidia-smi-topo", "nvidia-smi-580.105.08-4xa100-topo.txt", ("NUMA Affinity", "NUMA Distance")),
    of("gpu-fryer", "gpu-fryer-2gpus-documented.txt", ("Gflops/s (", "Tflops/s (")),
    of("gpu-fryer", "gpu-fryer-1.2.0-h200.txt", ("Gflops/s (", "Tflops/s (")),
    of("gpu-fryer", "gpu-fryer-1.2.0-h100.txt", ("Gflops/s (", "Tflops/s (")),
    of("dcgmproftester", "dcgmproftester-documented.txt", ("gflops)", "gops)")),
    of("df", "df-9.1-space.txt", ("1024-blocks", "512-blocks")),
    of("df", "df-9.1-inodes.txt", ("IUse%", "IUsed%")),
    of("ipmitool-sdr", "ipmitool-1.8.19-sdr.txt", ("| ok ", "| fine ")),
    of("ipmitool-sdr", "ipmitool-1.8.19-sdr-failing.txt", ("| lnr ", "| low ")),
    of("mdstat", "mdstat-raid1-degraded.txt", ("active raid", "active level")),
    of("mdstat", "mdstat-raid1-mended.txt", ("active raid", "active level")),
    of("mdadm-detail", "mdadm-raid1-degraded.txt", ("Version : 1.2", "Version : 2.0")),
    of("nvidia-smi-xml", "nvidia-smi-580.159.04-h200-v13.xml", ("device_v13", "device_v14")),
    of("nvidia-smi-text", "nvidia-smi-580.159.04-h200-q.txt", ("NVSMI LOG", "NVSMI DIARY")),
    of("nvbandwidth", "nvbandwidth-0.8-h200.json", ("\"v0.8\"", "\"v1.0\"")),
    of("nccl-tests", "nccl-tests-2.19.6-h200.txt", ("#wrong", "error")),
    of("gpu-burn", "gpu-burn-3ead140-h200.txt", ("Gflop/s", "Tflop/s")),
    of("nvidia-smi-topo", "nvidia-smi-580.159.04-h200-topo.txt", ("NUMA Affinity", "NUMA Distance")),
    of("nvidia-smi-xml", "nvidia-smi-580.159.04-h100-v13.xml", ("device_v13", "device_v14")),
];

pub(super) fn fixture(file: &str) -> String {
    let path = folder().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

impl Recording {
    pub(super) fn text(&self) -> String {
        fixture(self.file)
    }

    pub(super) fn messages(&self) -> String {
        self.messages.map(fixture).unwrap_or_default()
    }

    /// Reads a text as an answer of this tool.
    pub(super) fn read(&self, text: &str) -> Result<Reading, String> {
        let messages = self.messages();
        parse(
            self.parser,
            &Answer {
                exit: self.exit,
                text,
                messages: &messages,
                serial: None,
            },
        )
    }
}

/// `metric@entity = value unit`, a line each, then versions and notes.
fn shown(parser: &Parser, reading: &Reading) -> String {
    let line = |sample: &Sample| {
        let at = if sample.entity.is_empty() {
            String::new()
        } else {
            format!("@{}", sample.entity)
        };
        let value = match &sample.value {
            Limit::Number(number) => {
                format!(
                    "{} {}",
                    (number * 1e3).round() / 1e3,
                    parser.unit(sample.metric).unwrap_or("?")
                )
            }
            Limit::Text(text) => format!("{text:?}"),
        };
        format!("{}{at} = {value}\n", sample.metric)
    };
    let mut text: String = reading.samples.iter().map(line).collect();
    text.extend(
        reading
            .versions
            .iter()
            .map(|(program, version)| format!("version {program} {version}\n")),
    );
    text.extend(reading.notes.iter().map(|note| format!("note {note}\n")));
    text
}

#[test]
fn every_recording_reads_as_it_is_written_down() {
    let mut differing = Vec::new();
    for recording in RECORDINGS {
        let reading = recording
            .read(&recording.text())
            .unwrap_or_else(|why| panic!("{}: {why}", recording.file));
        let parser = Parser::find(recording.parser).expect("a listed parser");
        let found = shown(parser, &reading);
        let stem = recording
            .file
            .rsplit_once('.')
            .map_or(recording.file, |(stem, _)| stem);
        let path = folder().join("read").join(format!("{stem}.txt"));
        if std::env::var("GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::create_dir_all(folder().join("read")).expect("a folder");
            std::fs::write(&path, &found).expect("a writable file");
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != found {
            differing.push(format!("{}:\n{found}", recording.file));
        }
    }
    assert!(
        differing.is_empty(),
        "GOLDEN=write writes them for review:\n{}",
        differing.join("\n")
    );
}

#[test]
fn what_a_parser_gives_is_listed_for_what_it_is_given_for() {
    for recording in RECORDINGS {
        let parser = Parser::find(recording.parser).expect("a listed parser");
        for sample in recording
            .read(&recording.text())
            .expect("a reading")
            .samples
        {
            let metric = parser
                .metrics
                .iter()
                .find(|metric| metric.name == sample.metric);
            let metric = metric.unwrap_or_else(|| panic!("{} is not listed", sample.metric));
            assert_eq!(
                metric.per.is_empty(),
                sample.entity.is_empty(),
                "{} of {:?}",
                sample.metric,
                sample.entity
            );
            let is_text = matches!(sample.value, Limit::Text(_));
            assert_eq!(
                is_text,
                metric.unit == muster_core::gates::TEXT,
                "{}",
                sample.metric
            );
        }
    }
}

#[test]
fn every_parser_has_a_recording_unless_it_says_so() {
    for parser in Parser::all().filter(|parser| !parser.builtin) {
        let files = RECORDINGS
            .iter()
            .filter(|recording| recording.parser == parser.name)
            .map(|recording| recording.file);
        let files: Vec<&str> = files.collect();
        assert!(!files.is_empty(), "{} is never read in a test", parser.name);
        let real = files
            .iter()
            .any(|file| !file.contains("documented") && !file.contains("shortened"));
        assert_eq!(real, !parser.experimental, "{}: {files:?}", parser.name);
    }
}

const TOPO: &str = "nvidia-smi-580.105.08-4xa100-topo.txt";
const FRYER: &str = "gpu-fryer-2gpus-documented.txt";

/// A matrix with a lost link in the row of one GPU, and without the loss in the row of the other.
fn one_way() -> String {
    fixture(TOPO).replacen("GPU0\t X \tNV12\tNV12", "GPU0\t X \tNV12\tNODE", 1)
}

/// The output of gpu-fryer with issue 10: an idle GPU counts as healthy.
fn idle_fryer() -> String {
    let idle = "GPU #1:      0 Gflops/s (min: 18446744073.71, max: 0.00, dev: 0.00)";
    fixture(FRYER).replace(
        "GPU #1:  51127 Gflops/s (min: 50577.53, max: 51677.05, dev: 51127.29)",
        idle,
    )
}

#[test]
fn what_is_no_answer_says_why() {
    let table: [(&str, i32, &str, &str); 23] = [
        (
            "nvidia-smi-xml",
            0,
            &fixture("nvidia-smi-535.54.03-a100-mig-v12.xml"),
            "4 GPUs are attached, it tells of 1",
        ),
        (
            "nvidia-smi-xml",
            15,
            &fixture("nvidia-smi-590.44.01-2xa5000-v13.xml"),
            "nvidia-smi failed",
        ),
        (
            "nvidia-smi-nvlink",
            0,
            "NVML: Unable to retrieve NVLink information as all links are inactive\n",
            "not understood",
        ),
        (
            "gpu-burn",
            0,
            &fixture("gpu-burn-8xv100-idle.txt"),
            "GPU 0 computed nothing",
        ),
        ("ibstat", 0, "", "its output is empty"),
        (
            "dcgm-diag",
            0,
            &fixture("nvvs-3.1.0-8gpus-documented.json"),
            "DCGM Diagnostic",
        ),
        (
            "dcgm-diag-v3",
            0,
            &fixture("dcgmi-4.2.3-gb10-r1.json"),
            "DCGM GPU Diagnostic",
        ),
        (
            "dcgm-diag",
            226,
            &fixture("dcgmi-4.2.3-gb10-r2-skips.json").replace("Fail", "Pass"),
            "exit status",
        ),
        (
            "nccl-tests",
            3,
            &fixture("nccl-tests-2.16.2-8xa100.txt"),
            "exit status",
        ),
        (
            "perftest",
            0,
            &fixture("ib_write_bw-4.5.txt").replace("Gb/sec", "MB/sec"),
            "--report_gbits",
        ),
        // Measured on a guest, with a CPU shared by six guests and the note "Correlation coefficient r^2: 0.775872 < 0.9".
        (
            "perftest",
            0,
            &fixture("ib_write_bw-4.5.txt").replace("0.30 ", "0.00 "),
            "measured no rate",
        ),
        (
            "perftest-json",
            0,
            &fixture("ib_write_bw-json-documented.json").replace("399.61", "47637.0"),
            "--report_gbits",
        ),
        (
            "kernel-log",
            1,
            &fixture("dmesg-clean.txt"),
            "the log was not read",
        ),
        (
            "nvidia-smi-topo",
            0,
            &one_way(),
            "GPU0 and GPU2 reach each other differently",
        ),
        (
            "nvidia-smi-topo",
            0,
            &fixture(TOPO).replace("Legend:\n\n  X ", "  X "),
            "no legend",
        ),
        (
            "gpu-fryer",
            0,
            &fixture(FRYER).replace("All GPUs seem", "Nobody seems"),
            "last word",
        ),
        ("gpu-fryer", 1, &fixture(FRYER), "last word"),
        ("gpu-fryer", 0, &idle_fryer(), "GPU 1 computed nothing"),
        (
            "dcgmproftester",
            0,
            "Worker 0:0[1007]: Fp32EngineActive: target max, dcgm 0\n",
            "not understood",
        ),
        (
            "dcgmproftester",
            0,
            &fixture("dcgmproftester-documented.txt").replace("Skipping Unwatch", "Skipping Watch"),
            "its end",
        ),
        (
            "df",
            0,
            "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 100 50 50 90% /\n",
            "not understood",
        ),
        (
            "mdstat",
            0,
            "Personalities : [raid1] \nmd0 : active raid1 sda[0]\n      8 blocks [2/2] [U_]\nunused devices: <none>\n",
            "go with",
        ),
        (
            "mdstat",
            0,
            "Personalities : [raid1] \nmd0 : active raid1 sda[0]\n      8 blocks [2/1] [U_]\n",
            "begin and end",
        ),
    ];
    for (parser, exit, text, wanted) in table {
        let why = parse(
            parser,
            &Answer {
                exit,
                text,
                messages: "",
                serial: None,
            },
        )
        .expect_err(parser);
        assert!(why.contains(wanted), "{parser}: {why}");
    }
    // The same document, complete and of version 12, is an answer.
    let alone = fixture("nvidia-smi-535.54.03-a100-mig-v12.xml")
        .replace("<attached_gpus>4", "<attached_gpus>1");
    let reading = parse(
        "nvidia-smi-xml",
        &Answer {
            exit: 0,
            text: &alone,
            messages: "",
            serial: None,
        },
    )
    .expect("one GPU");
    assert_eq!(
        reading.number("gpu.memory_total", "0000:01:00.0"),
        Some(81_920.0)
    );
    assert_eq!(
        reading.number("gpu.ecc_uncorrected_volatile", "0000:01:00.0"),
        Some(0.0)
    );
    assert_eq!(
        reading.number("gpu.remapped_rows_pending", "0000:01:00.0"),
        None,
        "with MIG it does not tell"
    );
}

fn read(parser: &str, text: &str) -> Result<Reading, String> {
    parse(
        parser,
        &Answer {
            exit: 0,
            text,
            messages: "",
            serial: None,
        },
    )
}

// Faults without a recording, in the place of the tool.

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

#[test]
fn bad_news_of_arrays_is_read_as_such() {
    let stopped = "Personalities : [raid1] \nmd127 : inactive sda[0](S)\n      8 blocks super 1.2\n\nunused devices: <none>\n";
    let reading = read("mdstat", stopped).expect("an array that does not run");
    assert_eq!(
        (
            reading.number("raid.inactive", "md127"),
            reading.number("raid.devices_missing", "md127")
        ),
        (Some(1.0), None)
    );

    let short = "/dev/md0:\n           Version : 1.2\n        Raid Level : raid0\n     Total Devices : 1\n\n             State : inactive\n   \
                 Working Devices : 1\n\n    Number   Major   Minor   RaidDevice\n\n       -       8       48        -        /dev/sdd\n";
    let reading = read("mdadm-detail", short).expect("an array that does not run");
    assert_eq!(
        (
            reading.number("raid.inactive", "md0"),
            reading.number("raid.devices_missing", "md0")
        ),
        (Some(1.0), None)
    );
    let rebuilding = fixture("mdadm-raid1-degraded.txt")
        .replace("clean, degraded", "clean, degraded, recovering");
    assert_eq!(
        read("mdadm-detail", &rebuilding)
            .expect("a reading")
            .number("raid.rebuilding", "md0"),
        Some(1.0)
    );
    assert!(
        read("mdadm-detail", &rebuilding.replace("degraded, ", "")).is_err(),
        "one of two devices, and not degraded"
    );
}

/// The output of the kernel and mdadm for a mirror of Intel VROC. The container never runs; a stopped array in the container is a fault.
#[test]
fn the_container_of_an_array_is_none_itself() {
    let text = "Personalities : [raid1] \nmd126 : active raid1 nvme0n1[1] nvme1n1[0]\n      5201 blocks super external:/md127/0 [2/2] [UU]\n      \n\
                md127 : inactive nvme0n1[1](S) nvme1n1[0](S)\n      10402 blocks super external:imsm\n       \nunused devices: <none>\n";
    let reading = read("mdstat", text).expect("an array");
    let of = |metric, array| reading.number(metric, array);
    assert_eq!(
        (
            of("raid.arrays", ""),
            of("raid.inactive", "md126"),
            of("raid.inactive", "md127")
        ),
        (Some(1.0), Some(0.0), None)
    );
    assert_eq!(read("mdstat", &text.replace("imsm", "ddf")), Ok(reading));
    // An array in the container, an array without mdmon, and unknown metadata.
    for metadata in [
        "external:/md128/0",
        "external:-md128/0",
        "external:new",
        "1.2",
    ] {
        let reading = read("mdstat", &text.replace("external:imsm", metadata)).expect("two arrays");
        let found = (
            reading.number("raid.arrays", ""),
            reading.number("raid.inactive", "md127"),
        );
        assert_eq!(found, (Some(2.0), Some(1.0)), "{metadata}");
    }

    let plain = fixture("mdadm-raid1-degraded.txt");
    let held = plain.replace(
        "           Version : 1.2",
        "         Container : /dev/md/imsm0, member 0",
    );
    assert_eq!(read("mdadm-detail", &held), read("mdadm-detail", &plain));
    assert!(
        read("mdadm-detail", &held.replace(", member 0", "")).is_err(),
        "a container of nothing known"
    );
    assert!(
        read("mdadm-detail", &held.replace("Container", "Contained")).is_err(),
        "neither of the two"
    );
}

#[test]
fn bad_news_of_hosts_is_read_as_such() {
    let log = "[    1.000000] a message\n  of two lines\n[    2.000000] another\n";
    assert_eq!(
        read("kernel-log", log)
            .expect("a log")
            .number("kernel.lines", ""),
        Some(2.0)
    );
    assert!(
        read("kernel-log", "  of two lines\n[    2.000000] another\n").is_err(),
        "the rest of nothing"
    );

    let host = r#"[{"id":"h","class":"system","children":[{"id":"cpu:0","class":"processor"},{"id":"cpu:1","class":"processor","disabled":true},
        {"id":"memory","class":"memory","description":"System Memory","size":1073741824,"children":[
            {"id":"bank:0","class":"memory","size":1073741824},{"id":"bank:1","class":"memory","description":"[empty]"}]},
        {"id":"network:0","class":"network","claimed":false},{"id":"network:1","class":"network","logicalname":"eth0"}]}]"#;
    let reading = read("lshw", host).expect("a machine");
    let counts = [
        "host.processors",
        "host.memory_modules",
        "host.memory_slots_empty",
        "host.nics",
        "host.unclaimed",
        "host.memory",
    ];
    assert_eq!(
        counts.map(|metric| reading.number(metric, "")),
        [1.0, 1.0, 1.0, 1.0, 1.0, 1024.0].map(Some)
    );
}

/// Numbers of the published descriptions of these runs, apart from the written files.
#[test]
fn recordings_read_as_people_read_them() {
    let table: [(usize, &str, &str, f64); 12] = [
        (0, "gpu.memory_used", "0000:c1:00.0", 17_253.0),
        (1, "gpu.memory_total", "0000:00:09.0", 81_559.0),
        (1, "gpu.pcie_replays", "0000:00:09.0", 9.0),
        (1, "gpu.temperature_margin", "0000:00:09.0", 46.0),
        (2, "gpu.power_draw", "0000:00:09.0", 625.68),
        (3, "nvlink.links_active", "GPU 0", 18.0),
        (3, "nvlink.link_speed", "GPU 0", 26.562),
        (8, "nvbandwidth.host_to_device", "GPU 0", 12.3964),
        (9, "nccl.bus_bandwidth_avg", "", 210.99),
        (9, "nccl.bus_bandwidth_last", "", 231.70),
        (15, "gpu.memory_total", "0000:83:00.0", 32_752.0),
        (17, "rdma.bandwidth", "65536 B", 0.30),
    ];
    for (which, metric, entity, wanted) in table {
        let recording = &RECORDINGS[which];
        let reading = recording.read(&recording.text()).expect("a reading");
        let found = reading
            .number(metric, entity)
            .unwrap_or_else(|| panic!("{}: {metric}", recording.file));
        assert!(
            (found - wanted).abs() < 0.001,
            "{}: {metric} is {found}, not {wanted}",
            recording.file
        );
    }
}

//! The exact values of each recording. `fixtures/read/` holds every value, and `GOLDEN=write`
//! writes the folder for review. Recordings without an answer give the reason.

mod faults; // Faults of GPUs, links and burn-ins
mod hosts; // Faults of arrays and hosts
mod refused; // Reasons of texts without an answer

use std::path::PathBuf;

use muster_core::gates::{Limit, Parser, Sample};

use crate::gates::parsers::{Answer, Reading, parse_whole as parse};

/// An answer of a tool.
pub(super) struct Recording {
    pub(super) parser: &'static str,
    pub(super) file: &'static str,
    pub(super) exit: i32,
    /// The file with the stderr.
    pub(super) messages: Option<&'static str>,
    /// The text with the version or the kind of document, and a text of a different version or
    /// kind. `None` for an answer without both.
    pub(super) version: Option<(&'static str, &'static str)>,
}

/// A recording with exit status 0 and an empty stderr.
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

const TOPO: &str = "nvidia-smi-580.105.08-4xa100-topo.txt";
const FRYER: &str = "gpu-fryer-2gpus-documented.txt";

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
    of("rocm-smi", "rocm-smi-6.0.2-4xmi100.json", ("PCI Bus", "PCI Slot")),
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
    Recording { exit: 8, ..of("smartctl", "smartctl-7.3-nvme-failing.json", ("json_format_version", "json_version")) },
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
    Recording { exit: 4, ..of("smartctl", "smartctl-7.4-nvme-no-selftest-log.json", ("smart_status", "smart_state")) },
    of("smartctl", "smartctl-7.4-sas-documented.json", ("smart_status", "smart_state")),
    of("nvidia-smi-text", "nvidia-smi-610.57.04-rtx2080s-q-shortened.txt", ("NVSMI LOG", "NVSMI DIARY")),
    of("nvidia-smi-xml", "nvidia-smi-610.57.04-2xa5000-documented.xml", ("device_v13", "device_v14")),
    of("rocm-smi", "rocm-smi-6.3.6-mi250-shortened.json", ("PCI Bus", "PCI Slot")),
    of("amd-smi", "amd-smi-rocm7-documented.json", ("mem_usage", "memory")),
    of("ibstat", "ibstat-fdr10-documented.txt", ("Active", "Alive")),
    of("kernel-log", "kernel-log-amdgpu-errevent-documented.txt", ("[ 8390", "{ 8390")),
    of("kernel-log", "kernel-log-nvrm-reset-documented.txt", ("[373871", "{373871")),
    of("kernel-log", "kernel-log-oops-documented.txt", ("[  100", "{  100")),
    of("kernel-log", "kernel-log-xfs-shutdown-documented.txt", ("[ 5120", "{ 5120")),
    of("kernel-log", "kernel-log-journal-documented.txt", ("[367813", "{367813")),
    of("kernel-log", "kernel-log-loop-documented.txt", ("[  183", "{  183")),
    of("ipmitool-sdr", "ipmitool-sdr-drive-fault-documented.txt", ("| ok ", "| fine ")),
    Recording { exit: 1, ..of("nccl-tests", "nccl-tests-many-wrong-documented.txt", ("#wrong", "error")) },
    of("nccl-tests", "nccl-tests-warn-documented.txt", ("#wrong", "error")),
    of("dcgm-diag", "dcgmi-4.5.0-memory-alloc-documented.json", ("\"4.5.0\"", "\"5.0.0\"")),
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

    /// Reads a text as an answer of the tool.
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

/// Reads a text as the answer of a tool with exit status 0.
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

/// A line `metric@entity = value unit` for each sample, then versions, notes, faults and gaps.
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
    text.extend(
        reading
            .faults
            .iter()
            .map(|fault| format!("fault {fault}\n")),
    );
    text.extend(reading.gaps.iter().map(|gap| format!("not tested {gap}\n")));
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

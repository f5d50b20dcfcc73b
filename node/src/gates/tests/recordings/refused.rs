//! Texts without an answer: the parser returns the reason.

use super::{FRYER, TOPO, fixture, read};
use crate::gates::parsers::{Answer, parse};

/// The parser, the exit status, the text, and words of the reason.
type Refused<'a> = (&'a str, i32, &'a str, &'a str);

/// Parses the text, and looks for the words in the reason.
fn refuse((parser, exit, text, wanted): Refused<'_>) {
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

#[test]
fn what_is_no_answer_says_why() {
    refuse_nvidia_smi();
    refuse_diagnostics();
    refuse_networks();
    refuse_hosts();
    // A complete document of version 12 is an answer.
    let alone = fixture("nvidia-smi-535.54.03-a100-mig-v12.xml")
        .replace("<attached_gpus>4", "<attached_gpus>1");
    let reading = read("nvidia-smi-xml", &alone).expect("one GPU");
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

/// Returns the exit status and the stdout of a call, from a recording of several calls.
fn called<'a>(recording: &'a str, command: &str) -> (i32, &'a str) {
    let head = format!("$ {command}\nexit: ");
    let (_, rest) = recording.split_once(&head).expect(command);
    let (exit, rest) = rest.split_once("\nstdout:\n").expect("its stdout");
    let (stdout, _) = rest.split_once("stderr:\n").expect("its stderr");
    (exit.parse().expect("a status"), stdout)
}

/// nvidia-smi writes its reason to stdout, and leaves stderr empty.
#[test]
fn a_reason_on_stdout_is_told_where_stderr_is_empty() {
    let no_module = fixture("nvidia-smi-550.163.01-no-module.txt");
    let no_library = fixture("nvidia-smi-550.163.01-no-library.txt");
    let csv =
        "nvidia-smi --query-gpu=pci.bus_id,name,serial,memory.total --format=csv,noheader,nounits";
    let driver = "nvidia-smi failed: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.";
    let library =
        "nvidia-smi failed: NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.";
    for (parser, recording, command, wanted) in [
        ("nvidia-smi-xml", &no_module, "nvidia-smi -q -x", driver),
        ("nvidia-smi-text", &no_module, "nvidia-smi -q", driver),
        ("nvidia-smi-csv", &no_module, csv, driver),
        ("nvidia-smi-topo", &no_module, "nvidia-smi topo -m", driver),
        (
            "nvidia-smi-nvlink",
            &no_module,
            "nvidia-smi nvlink -s",
            driver,
        ),
        ("nvidia-smi-xml", &no_library, "nvidia-smi -q -x", library),
    ] {
        let (exit, text) = called(recording, command);
        let answer = Answer {
            exit,
            text,
            messages: "",
            serial: None,
        };
        let why = parse(parser, &answer).expect_err(parser);
        assert!(why.starts_with(wanted), "{parser}: {why}");
        assert!(
            why.len() < 150 && !why.contains("Please also try"),
            "the first line: {why}"
        );
        let messages = "on stderr\n";
        let why = parse(parser, &Answer { messages, ..answer }).expect_err(parser);
        assert_eq!(why, "nvidia-smi failed: on stderr");
    }
    let answer = Answer {
        exit: 9,
        text: "\n\u{1b}[31mno driver\u{1b}[0m\nmore\n",
        messages: "\n",
        serial: None,
    };
    let why = parse("nvidia-smi-text", &answer).expect_err("no answer");
    assert_eq!(why, "nvidia-smi failed: [31mno driver[0m");
    for (text, wanted) in [
        (
            "Version 1\nError: no device\nit failed\n",
            "Error: no device",
        ),
        ("{\n  [\nno device\n", "no device"),
        ("{\n", ""),
    ] {
        let why = parse("nvidia-smi-text", &Answer { text, ..answer }).expect_err(text);
        assert_eq!(why, format!("nvidia-smi failed: {wanted}"));
    }
}

/// A matrix with a lost link: the row of GPU 0 shows the loss, the row of GPU 2 shows none.
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

/// Answers of nvidia-smi.
fn refuse_nvidia_smi() {
    let table: [Refused<'_>; 4] = [
        (
            "nvidia-smi-xml",
            0,
            &fixture("nvidia-smi-535.54.03-a100-mig-v12.xml"),
            "4 GPUs are attached, it tells of 1",
        ),
        (
            "nvidia-smi-xml",
            255,
            &fixture("nvidia-smi-590.44.01-2xa5000-v13.xml"),
            "nvidia-smi failed",
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
    ];
    table.into_iter().for_each(refuse);
}

/// Diagnostics and burn-ins of GPUs.
fn refuse_diagnostics() {
    let table: [Refused<'_>; 9] = [
        (
            "gpu-burn",
            0,
            &fixture("gpu-burn-8xv100-idle.txt"),
            "GPU 0 computed nothing",
        ),
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
    ];
    table.into_iter().for_each(refuse);
}

/// Ports, and measurements between GPUs or nodes.
fn refuse_networks() {
    let table: [Refused<'_>; 5] = [
        ("ibstat", 0, "", "its output is empty"),
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
        // Measured on a guest, with a CPU shared by six guests and the note
        // "Correlation coefficient r^2: 0.775872 < 0.9".
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
    ];
    table.into_iter().for_each(refuse);
}

/// The log, file systems and arrays of a host.
fn refuse_hosts() {
    let table: [Refused<'_>; 4] = [
        (
            "kernel-log",
            1,
            &fixture("dmesg-clean.txt"),
            "the log was not read",
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
    table.into_iter().for_each(refuse);
}

//! Tests the limits of parsers: the largest accepted answer and the next larger, both halves of
//! conditions, and sums of several numbers. A run of mutants (CONTRIBUTING.md) found these gaps in
//! the tests of recordings.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse_whole as parse};

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

/// Returns a recording with a single change.
fn changed(file: &str, from: &str, to: &str) -> String {
    let text = fixture(file);
    assert!(text.contains(from), "{file}: {from}");
    text.replacen(from, to, 1)
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

fn csv(gpus: usize) -> String {
    format!(
        "pci.bus_id\n{}",
        lines(gpus, |gpu| format!(
            "{:04x}:{:02x}:00.0\n",
            gpu >> 8,
            gpu & 0xff
        ))
    )
}

fn smi_text(gpus: usize) -> String {
    let gpu = |gpu: usize| {
        format!(
            "GPU {:08X}:{:02X}:00.0\n    Product Name : A\n",
            gpu >> 8,
            gpu & 0xff
        )
    };
    format!(
        "==============NVSMI LOG==============\nDriver Version : 590.48.01\nAttached GPUs : {gpus}\n{}",
        lines(gpus, gpu)
    )
}

fn smi_xml(gpus: usize) -> String {
    let gpu = |gpu: usize| {
        format!(
            "<gpu id=\"{:08X}:{:02X}:00.0\"></gpu>",
            gpu >> 8,
            gpu & 0xff
        )
    };
    format!(
        "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log>\
         <driver_version>590.48.01</driver_version><attached_gpus>{gpus}</attached_gpus>{}</nvidia_smi_log>\n",
        lines(gpus, gpu)
    )
}

fn fryer(gpus: usize) -> String {
    let result = |gpu: usize| {
        format!(
            "GPU #{gpu}: 50 Gflops/s (min: 49.00, max: 51.00, dev: 50.00)\nTemperature: 48.83°C (min: 47.00, max: 50.00)\n\
             Throttling HW: false, Thermal SW: false, Thermal HW: false\n"
        )
    };
    format!(
        "{}{}All GPUs seem healthy\n",
        lines(gpus, |gpu| format!("Detected GPU #{gpu}: x\n")),
        lines(gpus, result)
    )
}

fn burn(gpus: usize) -> String {
    let each = |piece: &str| vec![piece; gpus].join(" - ");
    format!(
        "100.0%  proc'd: {}   errors: {}   temps: {}\nTested {gpus} GPUs:\n{}",
        each("405 (100 Gflop/s)"),
        each("0"),
        each("50 C"),
        lines(gpus, |gpu| format!("\tGPU {gpu}: OK\n"))
    )
}

fn proftester(gpus: usize) -> String {
    let of = |gpu: usize| {
        format!(
            "Worker {gpu}:0[1004]: x (250.5 gflops)\nWorker {gpu}:0[1004]: Message: Bus ID 0 mapped to cuda device ID 0\n"
        )
    };
    format!(
        "{}Skipping UnwatchFields() since DCGM validation is disabled\n",
        lines(gpus, of)
    )
}

fn bandwidth(gpus: usize) -> String {
    let cells = vec!["\"12.3964\""; gpus].join(",");
    changed("nvbandwidth-0.5-1gpu.json", "\"12.3964\"", &cells)
}

fn ibstat(adapters: usize, ports: usize) -> String {
    let port = |port: usize| {
        format!(
            "\tPort {}:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 100\n\t\tLink layer: InfiniBand\n",
            port + 1
        )
    };
    lines(adapters, |adapter| {
        format!(
            "CA 'a{adapter}'\n\tNumber of ports: {ports}\n{}",
            lines(ports, port)
        )
    })
}

fn df(mounts: usize) -> String {
    let line = |mount: usize| format!("a 100 50 50 50% /{mount}\n");
    format!(
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n{}",
        lines(mounts, line)
    )
}

fn mdstat(arrays: usize) -> String {
    let array = |array: usize| {
        format!("md{array} : active raid1 sda[0] sdb[1]\n      8 blocks [2/2] [UU]\n")
    };
    format!(
        "Personalities : [raid1] \n{}unused devices: <none>\n",
        lines(arrays, array)
    )
}

fn mdadm(arrays: usize) -> String {
    let one = fixture("mdadm-raid1-degraded.txt");
    lines(arrays, |array| {
        one.replace("/dev/md0:", &format!("/dev/md{array}:")) + "\n"
    })
}

fn lshw(devices: usize, depth: usize) -> String {
    let leaves = vec!["{\"id\":\"cpu\",\"class\":\"processor\"}"; devices - depth - 1].join(",");
    let memory = "{\"id\":\"memory\",\"class\":\"memory\",\"description\":\"System Memory\",\"size\":1048576}";
    let nested = (1..depth).fold(memory.to_owned(), |inner, _| {
        format!("{{\"id\":\"bus\",\"class\":\"bus\",\"children\":[{inner}]}}")
    });
    format!("{{\"id\":\"a\",\"class\":\"system\",\"children\":[{nested},{leaves}]}}")
}

#[test]
fn the_largest_answer_is_read_and_one_that_is_larger_is_not() {
    type Make<'a> = &'a dyn Fn(usize) -> String;
    let table: [(&str, Make<'_>, usize, &str); 15] = [
        ("nvidia-smi-csv", &csv, 256, "gpu.count"),
        ("nvidia-smi-text", &smi_text, 256, "gpu.count"),
        ("nvidia-smi-xml", &smi_xml, 256, "gpu.count"),
        ("gpu-fryer", &fryer, 256, "fryer.gpus"),
        ("gpu-burn", &burn, 256, "burn.gpus"),
        ("dcgmproftester", &proftester, 256, "proftester.gpus"),
        ("nvbandwidth", &bandwidth, 256, ""),
        (
            "ibstat",
            &|adapters| ibstat(adapters, 1),
            128,
            "ib.adapters",
        ),
        ("ibstat", &|ports| ibstat(1, ports), 64, "ib.ports"),
        ("df", &df, 1000, "fs.count"),
        ("mdstat", &mdstat, 512, "raid.arrays"),
        ("mdadm-detail", &mdadm, 512, "raid.arrays"),
        ("lshw", &|devices| lshw(devices, 1), 20_000, ""),
        ("lshw", &|depth| lshw(100, depth), 32, ""),
        (
            "nccl-tests",
            &|sizes| nccl(sizes, 0, 0),
            10_000,
            "nccl.sizes",
        ),
    ];
    for (parser, make, most, metric) in table {
        for count in [3, most] {
            let reading = read(parser, 0, &make(count))
                .unwrap_or_else(|why| panic!("{parser}: {count}: {why}"));
            let wanted = (!metric.is_empty()).then_some(count as f64);
            assert_eq!(reading.number(metric, ""), wanted, "{parser}: {count}");
        }
        assert!(
            read(parser, 0, &make(most + 1)).is_err(),
            "{parser}: more than {most} are read"
        );
        // mdstat accepts zero arrays.
        if !metric.is_empty() && parser != "mdstat" {
            assert!(
                read(parser, 0, &make(0)).is_err(),
                "{parser}: none are read"
            );
        }
    }
}

/// Returns a table of sizes, a mebibyte apart, with wrong values in the first row.
fn nccl(sizes: usize, out_of_place: usize, in_place: usize) -> String {
    let recording = fixture("nccl-tests-2.16.2-8xa100.txt");
    let first = recording.find("    33554432 ").expect("a row");
    let last = recording.find("# Out of bounds").expect("the end");
    let row = |at: usize| {
        let (out, inner) = if at == 0 {
            (out_of_place, in_place)
        } else {
            (0, 0)
        };
        format!(
            "{} 8 float sum -1 1.0 2.0 3.0 {out} 1.0 2.0 4.0 {inner}\n",
            (at + 1) << 20
        )
    };
    let wrong = out_of_place + in_place;
    let said = format!("{wrong} {}", if wrong == 0 { "OK" } else { "FAILED" });
    let head = recording[..first].replace(
        "minBytes 33554432 maxBytes 1073741824 step: 2(factor)",
        &format!(
            "minBytes 1048576 maxBytes {} step: 1048576(bytes)",
            sizes << 20
        ),
    );
    format!(
        "{head}{}{}",
        lines(sizes, row),
        recording[last..].replace("0 OK", &said)
    )
}

#[test]
fn sums_and_steps_are_of_all_their_parts() {
    let wrong = read("nccl-tests", 1, &nccl(3, 4, 3)).expect("a failure");
    assert_eq!(
        (
            wrong.number("nccl.wrong", ""),
            wrong.number("nccl.out_of_bounds", "")
        ),
        (Some(7.0), Some(7.0))
    );
    assert!(
        read("nccl-tests", 0, &nccl(3, 4, 3).replace("7 FAILED", "0 OK")).is_err(),
        "wrong values and none of them"
    );
    let good = nccl(3, 0, 0);
    let said = "minBytes 1048576 maxBytes 3145728 step: 1048576(bytes)";
    for (steps, sizes) in [
        (
            "minBytes 1048576 maxBytes 4194303 step: 1048576(bytes)",
            Some(3.0),
        ),
        (
            "minBytes 1048576 maxBytes 4194304 step: 1048576(bytes)",
            None,
        ),
        ("minBytes 1048576 maxBytes 3145728 step: 2(factor)", None),
        (
            "minBytes 1048576 maxBytes 4194304 step: 2(factor)",
            Some(3.0),
        ),
        ("minBytes 0 maxBytes 3145728 step: 1048576(bytes)", None),
        (
            "minBytes 3145728 maxBytes 1048576 step: 1048576(bytes)",
            None,
        ),
        ("minBytes 1048576 maxBytes 3145728 step: 1(factor)", None),
        ("minBytes 1048576 maxBytes 3145728 step: 0(bytes)", None),
    ] {
        let reading = read("nccl-tests", 0, &good.replace(said, steps)).ok();
        assert_eq!(
            reading.and_then(|reading| reading.number("nccl.sizes", "")),
            sizes,
            "{steps}"
        );
    }
    let one = nccl(1, 0, 0);
    for steps in [
        "maxBytes 1048576 step: 2(factor)",
        "maxBytes 9999999 step: 0(bytes)",
    ] {
        let text = one.replace("maxBytes 1048576 step: 1048576(bytes)", steps);
        assert_eq!(
            read("nccl-tests", 0, &text)
                .expect("one size")
                .number("nccl.sizes", ""),
            Some(1.0),
            "{steps}"
        );
    }
    assert!(
        read("nccl-tests", 0, &good.replace("\n2097152 ", "\n1048576 ")).is_err(),
        "the same size twice"
    );
    assert!(
        read("nccl-tests", 0, &good.replace("\n1048576 ", "\n0 ")).is_err(),
        "a message of no size"
    );

    let two = fixture("nvbandwidth-0.5-1gpu.json").replacen("\"Passed\"", "\"Failed\"", 2);
    let reading = read("nvbandwidth", 1, &two).expect("two failures");
    assert_eq!(reading.number("nvbandwidth.failed", ""), Some(2.0));
    assert!(
        read("nvbandwidth", 1, &fixture("nvbandwidth-0.5-1gpu.json")).is_err(),
        "a failure and no test of it"
    );

    let busy = "[2/1] [U_]\n      [==>..]  recovery = 12.6% (1/8) finish=1min\n      bitmap: 0/1 pages [0KB], 65536KB chunk";
    let rebuilding = read(
        "mdstat",
        0,
        &changed("mdstat-raid1-degraded.txt", "[2/1] [U_]", busy),
    )
    .expect("an array");
    assert_eq!(rebuilding.number("raid.rebuilding", "md0"), Some(1.0));
    let named = read(
        "mdadm-detail",
        0,
        &changed("mdadm-raid1-degraded.txt", "/dev/sda1", "/dev/a : b"),
    )
    .expect("an array");
    assert_eq!(named.number("raid.devices_missing", "md0"), Some(1.0));
}

#[test]
fn a_port_in_any_state_but_the_good_one_is_not_active() {
    let good = ibstat(1, 2);
    assert_eq!(
        read("ibstat", 0, &good)
            .expect("two ports")
            .number("ib.ports_active", ""),
        Some(2.0)
    );
    for (from, to) in [
        ("Physical state: LinkUp", "Physical state: PhyTest"),
        ("Physical state: LinkUp", "Physical state: No state change"),
        ("Physical state: LinkUp", "Physical state: ???"),
        ("State: Active", "State: ???"),
    ] {
        let reading = read("ibstat", 0, &good.replacen(from, to, 1))
            .unwrap_or_else(|why| panic!("{to}: {why}"));
        let counts = ["ib.ports", "ib.ports_active"].map(|metric| reading.number(metric, ""));
        assert_eq!(counts, [Some(2.0), Some(1.0)], "{to}");
    }
}

#[test]
fn half_of_a_condition_is_enough_to_refuse() {
    let name = |word: &str| format!("pci.bus_id, name\n0000:01:00.0, {word}\n");
    assert!(read("nvidia-smi-csv", 0, &name("A100")).is_ok());
    let csv = "pci.bus_id, count\n0000:01:00.0, 2\n".to_owned();
    let fryer = |from: &str, to: &str| changed("gpu-fryer-2gpus-documented.txt", from, to);
    let array = |from: &str, to: &str| changed("mdadm-raid1-degraded.txt", from, to);
    let last = "GPU #1:  51127 Gflops/s (min: 50577.53, max: 51677.05, dev: 51127.29)";
    let table = [
        ("nvidia-smi-csv", name("")),
        ("nvidia-smi-csv", name("ERR!")),
        (
            "nvidia-smi-csv",
            "pci.bus_id, name, name\n0000:01:00.0, A, A\n".into(),
        ),
        ("nvidia-smi-csv", csv),
        (
            "nvidia-smi-text",
            smi_text(2).replace("Attached GPUs : 2", "Attached GPUs : 3"),
        ),
        ("nvidia-smi-text", smi_text(2).replace("01:00.0", "00:00.0")),
        (
            "nvidia-smi-xml",
            smi_xml(2).replace("<attached_gpus>2", "<attached_gpus>3"),
        ),
        ("nvidia-smi-xml", smi_xml(2).replace("01:00.0", "00:00.0")),
        (
            "gpu-fryer",
            fryer(
                last,
                "GPU #1:  0 Gflops/s (min: 0.00, max: 5.00, dev: 0.00)",
            ),
        ),
        (
            "gpu-fryer",
            fryer(
                last,
                "GPU #1:  51127 Gflops/s (min: 51128.53, max: 51677.05, dev: 51127.29)",
            ),
        ),
        (
            "gpu-fryer",
            fryer(
                last,
                "GPU #1:  51127 Gflops/s (min: 50577.53, max: 51126.05, dev: 51127.29)",
            ),
        ),
        (
            "gpu-fryer",
            fryer(
                last,
                "GPU #1:  51129 Gflops/s (min: 50577.53, max: 51677.05, dev: 51127.29)",
            ),
        ),
        (
            "gpu-fryer",
            fryer("48.50°C (min: 48.00", "48.50°C (min: 48.60"),
        ),
        (
            "gpu-fryer",
            fryer(
                "48.50°C (min: 48.00, max: 49.00",
                "48.50°C (min: 48.00, max: 48.40",
            ),
        ),
        ("ibstat", ibstat(1, 1).replace("'a0'", "''")),
        ("ibstat", ibstat(2, 1).replace("'a1'", "'a0'")),
        ("ibstat", ibstat(1, 2).replace("Port 2", "Port 1")),
        ("ibstat", ibstat(1, 2).replace("ports: 2", "ports: 3")),
        ("df", df(2).replace("/1", "/0")),
        (
            "df",
            df(2).replace("a 100 50 50 50% /1", "a 100 101 0 100% /1"),
        ),
        (
            "df",
            df(2).replace("a 100 50 50 50% /1", "a 100 0 101 0% /1"),
        ),
        ("df", df(2).replace("/1", "1")),
        ("mdstat", mdstat(2).replace("md1", "md0")),
        ("mdadm-detail", mdadm(2).replace("md1", "md0")),
        (
            "mdadm-detail",
            changed(
                "mdadm-raid1-degraded.txt",
                "Raid Level : raid1",
                "Raid Level : raid7",
            ),
        ),
        (
            "mdadm-detail",
            array("State : clean, degraded", "State : clean"),
        ),
        (
            "mdadm-detail",
            array("Spare Devices : 0", "Spare Devices : 1"),
        ),
        (
            "mdadm-detail",
            array("Failed Devices : 0", "Failed Devices : 1"),
        ),
        ("mdadm-detail", array("active sync", "sync")),
        (
            "mdadm-detail",
            array("Raid Devices : 2", "Raid Devices : 0"),
        ),
        ("mdstat", mdstat(2).replacen("[2/2] [UU]", "[2/1] [UU]", 1)),
        ("mdstat", mdstat(2).replacen("[2/2] [UU]", "[3/2] [UU]", 1)),
        ("mdstat", mdstat(2).replacen("[2/2] [UU]", "[2/2] [U_]", 1)),
        ("mdstat", mdstat(2).replacen("[2/2] [UU]", "[UU]", 1)),
        (
            "mdstat",
            mdstat(2).replacen("active raid1", "active raid0", 1),
        ),
        (
            "rocm-smi",
            changed("rocm-smi-6.0.2-4xmi100.json", "\"card3\"", "\"card0\""),
        ),
        (
            "rocm-smi",
            changed(
                "rocm-smi-6.0.2-4xmi100.json",
                "\"GPU use (%)\"",
                "\"VRAM Total Memory (B)\"",
            ),
        ),
        (
            "amd-smi",
            changed("amd-smi-navi23-shortened.json", "\"MB\"", "\"GB\""),
        ),
        (
            "perftest-json",
            changed("ib_write_bw-json-documented.json", "7620000", "0"),
        ),
        (
            "perftest-json",
            changed("ib_write_bw-json-documented.json", "65536", "0").replace("399.61", "0"),
        ),
        ("gpu-burn", burn(2).replace("100.0%", "99.9%")),
        ("gpu-burn", burn(2).replacen("405 (", "0 (", 1)),
        ("gpu-burn", burn(2).replacen("errors: 0", "errors: 1", 1)),
        ("gpu-burn", burn(2).replace("GPU 1: OK", "GPU 2: OK")),
        (
            "dcgmproftester",
            proftester(2).replace("Worker 1:0", "Worker 1:1"),
        ),
        ("dcgmproftester", proftester(2).replace("250.5", "0")),
        (
            "dcgmproftester",
            proftester(2).replacen("Bus ID 0", "Bus 0", 1),
        ),
        (
            "nvbandwidth",
            changed("nvbandwidth-0.5-1gpu.json", "\"12.3964\"", ""),
        ),
    ];
    for (parser, text) in table {
        assert!(read(parser, 0, &text).is_err(), "{parser}: {text}");
    }
    // The parser reports the first of two equally full file systems.
    assert_eq!(
        read("df", 0, &df(2)).expect("two").notes,
        ["/0 is the fullest: 50 %"]
    );
}

//! Programs of gates: a program of the parser, or a program of the image, and no other.

use crate::gates::*;

/// A gate that writes to a disk with the arguments.
fn gate(parser: &str, argv: &[&str]) -> Gate {
    let text = format!(
        "id = \"a\"\ntitle = \"t\"\nstage = \"node\"\nparser = {parser:?}\ntimeout_s = 9\nfinding = \"f\"\ncriteria = []\n\
         needs = [\"drained\", \"gpus_idle\"]\n\
         effects = [\"writes_disk\", \"cpu_load\", \"memory_load\", \"gpu_load\", \"network_load\"]\n"
    );
    Gate {
        argv: argv.iter().map(ToString::to_string).collect(),
        ..toml::from_str(&text).expect("a gate")
    }
}

#[track_caller]
fn allows(parser: &str, argv: &[&str]) {
    assert_eq!(lint_program(&gate(parser, argv)), [""; 0], "{argv:?}");
}

#[track_caller]
fn refuses(parser: &str, argv: &[&str], why: &str) {
    let told = lint_program(&gate(parser, argv));
    let is_told = told.iter().any(|told| told.contains(why));
    assert!(is_told, "{argv:?}: {why}: {told:?}");
}

/// Each of these programs was accepted before the rule, and ran as root.
#[test]
fn a_program_is_one_of_the_parser_by_the_bare_name() {
    allows("fio", &["fio", "--name=a", "--filename=${scratch}/a"]);
    for argv in [
        &["sh", "-c", "id"][..],
        &["/usr/bin/env", "sh"],
        &["python3", "-c", "import os"],
        &["busybox", "sh", "-c", "x"],
        &["setsid", "sh", "-c", "blkdiscard -f /dev/nvme0n1"],
        &["blkdiscard", "-f", "/dev/nvme0n1"],
        &["dd", "if=/dev/zero", "of=/dev/sda"],
        &["perl", "-e", "x"],
        &["systemd-run", "--pipe", "sh", "-c", "x"],
        &["cat", "/etc/shadow"],
        &["smartctl", "-a", "/dev/sda"],
        // Neither by another folder nor by a variable.
        &["/usr/bin/fio"],
        &["./fio"],
        &["${scratch}/fio"],
        &[""],
        &["mpirun", "fio"],
    ] {
        refuses("fio", argv, "is no program of parser fio");
    }
}

#[test]
fn a_program_of_the_image_lies_in_one_folder() {
    let own = format!("{PROGRAMS_FOLDER}/check-fans");
    allows("fio", &[&own, "--any", "/etc/hostname", "${hostname}"]);
    for name in ["", ".", "..", "a/b", "../../bin/sh", "a b", "${hostname}"] {
        let path = format!("{PROGRAMS_FOLDER}/{name}");
        refuses("fio", &[&path], "is no program of the image");
    }
    for path in ["/usr/libexec/muster/gates2/a", "/usr/libexec/muster/gates"] {
        refuses("fio", &[path], "is no program of parser fio");
    }
}

#[test]
fn an_argument_runs_no_program_and_names_no_foreign_file() {
    let disk = "--filename=${scratch}/a";
    for argument in [
        "--exec_prerun=id",
        "--exec_prer=id",
        "--ioengine=exec",
        "--ioengine=external:/tmp/a.so",
        "--ioengine=/tmp/a.so",
        "--filename=/dev/nvme0n1",
        "--filename=${each}",
        "--filename=${scratch}/a:/dev/sda",
        "--filename=${scratch}/../../etc/passwd",
        "--filename=${each}/data",
        "--filename=${each}/.muster-/../data",
        "--output=/etc/cron.d/a",
        "--write_bw_log=/etc/a",
        "--server",
        "/etc/jobs.fio",
        "jobs.fio",
        "--name",
        "--size=${scratch}",
        "--",
        "-",
    ] {
        refuses("fio", &["fio", disk, argument], "fio");
    }
    allows("fio", &["fio", disk, "--ioengine=psync", "--rw", "write"]);
    allows("fio", &["fio", "--filename=${each}/.muster-${hostname}"]);
    for (parser, allowed, refused) in [
        (
            "mdstat",
            &["cat", "/proc/mdstat"][..],
            &["cat", "/etc/shadow"][..],
        ),
        (
            "mdstat",
            &["cat", "/proc/mdstat"],
            &["cat", "/proc/mdstat", "/etc/shadow"],
        ),
        ("kernel-log", &["dmesg", "-T"], &["dmesg", "-C"]),
        ("kernel-log", &["dmesg"], &["dmesg", "-F", "/etc/shadow"]),
        (
            "kernel-log",
            &["journalctl", "-k", "--no-pager"],
            &["journalctl", "-b"],
        ),
        (
            "smartctl",
            &["smartctl", "-a", "${each}"],
            &["smartctl", "-s", "security-freeze", "${each}"],
        ),
        (
            "smartctl",
            &["smartctl", "-l", "error", "/dev/sda"],
            &["smartctl", "-l", "scterc,1,1", "/dev/sda"],
        ),
        // Options with one dash are not joined.
        (
            "smartctl",
            &["smartctl", "-H", "-i", "/dev/sda"],
            &["smartctl", "-Hi", "/dev/sda"],
        ),
        (
            "smartctl",
            &["smartctl", "-a", "/dev/disk/by-id/a"],
            &["smartctl", "-a", "/dev/../etc/a"],
        ),
        (
            "nvme-smart-log",
            &["nvme", "smart-log", "-o", "json", "/dev/nvme0"],
            &["nvme", "format", "/dev/nvme0"],
        ),
        (
            "mdadm-detail",
            &["mdadm", "--detail", "/dev/md0"],
            &["mdadm", "--zero-superblock", "/dev/sda"],
        ),
        (
            "ipmitool-sdr",
            &["ipmitool", "sdr", "elist"],
            &["ipmitool", "chassis", "power", "off"],
        ),
        (
            "stressapptest",
            &["stressapptest", "-s", "5", "-W"],
            &["stressapptest", "-d", "/dev/sda"],
        ),
        (
            "stress-ng",
            &["stress-ng", "--cpu", "0", "-Y", "${scratch}/a.yaml"],
            &["stress-ng", "--cpu", "0", "-Y", "/etc/a.yaml"],
        ),
        (
            "stress-ng",
            &["stress-ng", "--vm", "1"],
            &["stress-ng", "--job", "a"],
        ),
        (
            "iperf3",
            &["iperf3", "--client", "${agent_address}"],
            &["iperf3", "-c", "h", "-F", "/etc/shadow"],
        ),
        (
            "nvidia-smi-xml",
            &["nvidia-smi", "-q", "-x"],
            &["nvidia-smi", "-q", "-x", "-f", "/etc/a"],
        ),
        (
            "nvidia-smi-text",
            &["nvidia-smi", "-q"],
            &["nvidia-smi", "-r"],
        ),
        (
            "dcgm-diag",
            &["dcgmi", "diag", "-r", "3", "-j"],
            &["dcgmi", "diag", "-r", "3", "-p", "eud.a=b"],
        ),
        (
            "dcgm-diag",
            &[
                "dcgmi",
                "diag",
                "-r",
                "3",
                "-p",
                "diagnostic.test_duration=60;pcie.test_pinned=true",
            ],
            &["dcgmi", "diag", "-r", "3", "-p", "pcie.a=1;cpu_eud.a=b"],
        ),
        (
            "gpu-fryer",
            &["gpu-fryer", "60"],
            &["gpu-fryer", "--nvml-lib-path", "/tmp/a.so"],
        ),
        ("lshw", &["lshw", "-json"], &["lshw", "-dump", "/etc/a"]),
        ("perfquery", &["perfquery", "-x"], &["perfquery", "-R"]),
        (
            "rocm-smi",
            &["rocm-smi", "-a", "--json"],
            &["rocm-smi", "--gpureset", "-d", "0"],
        ),
    ] {
        allows(parser, allowed);
        refuses(parser, refused, refused[0]);
    }
}

#[test]
fn a_launcher_starts_a_program_of_the_parser_alone() {
    let perf = ["all_reduce_perf", "-b", "8G"];
    let mpirun = |options: &[&'static str], program: &[&'static str]| {
        [&["mpirun"][..], options, program].concat()
    };
    let options = ["--allow-run-as-root", "--host", "${address}:8", "-np", "8"];
    allows("nccl-tests", &mpirun(&options, &perf));
    for argv in [
        mpirun(&[], &["sh", "-c", "id"]),
        mpirun(&["-x", "LD_PRELOAD=/tmp/a.so"], &perf),
        mpirun(&["--mca", "plm_rsh_agent", "/tmp/a"], &perf),
        mpirun(&["--host", "/etc/hosts"], &perf),
        mpirun(&["--host"], &[]),
        // A host of a list is an argument of ssh, and a lone colon begins another program.
        mpirun(&["--host", "a,-oProxyCommand=id"], &perf),
        mpirun(
            &options,
            &["all_reduce_perf", "-b", ":", "-d", "sh", "-c", "id"],
        ),
        mpirun(&options, &[]),
        mpirun(&["-np", "1", "mpirun"], &perf),
        mpirun(&options, &["all_reduce_perf", ":", "sh"]),
    ] {
        assert!(
            !lint_program(&gate("nccl-tests", &argv)).is_empty(),
            "{argv:?}"
        );
    }
    refuses("fio", &["mpirun", "fio"], "is no program of parser fio");
}

#[test]
fn a_variable_loads_no_library() {
    let with = |name: &str, value: &str| {
        let mut gate = gate("nccl-tests", &["all_reduce_perf"]);
        gate.env.insert(name.into(), value.into());
        lint_program(&gate)
    };
    assert_eq!(with("NCCL_P2P_DISABLE", "1"), [""; 0]);
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "NCCL_NET_PLUGIN"] {
        assert!(with(name, "1")[0].contains("may name a program"), "{name}");
    }
    assert!(with("NCCL_ALGO", "/tmp/a")[0].contains("no path"));
}

#[test]
fn the_effects_of_a_program_are_named_by_the_gate() {
    for (parser, argv, effect) in [
        ("fio", &["fio"][..], "writes_disk"),
        ("stress-ng", &["stress-ng", "--cpu", "0"], "cpu_load"),
        ("stressapptest", &["stressapptest"], "memory_load"),
        ("gpu-burn", &["gpu_burn", "60"], "gpu_load"),
        ("dcgm-diag", &["dcgmi", "diag", "-r", "2", "-j"], "gpu_load"),
        ("iperf3", &["iperf3", "--client", "h"], "network_load"),
    ] {
        allows(parser, argv);
        let silent = Gate {
            effects: Vec::new(),
            ..gate(parser, argv)
        };
        let told = lint_program(&silent).join(" ");
        assert!(
            told.contains(&format!("needs the effect {effect}")),
            "{told}"
        );
    }
    let beside_jobs = Gate {
        effects: Vec::new(),
        ..gate("dcgm-diag", &["dcgmi", "diag", "-r", "1", "-j"])
    };
    assert_eq!(lint_program(&beside_jobs), [""; 0]);
}

#[test]
fn a_gate_from_before_the_rule_is_held_to_the_older_rule() {
    let criterion = "metric = \"fio.error\"\nop = \"==\"\nlimit = 0\nunit = \"errno\"\n";
    let mut old = gate("fio", &["setsid", "fio"]);
    old.criteria = vec![toml::from_str(criterion).expect("a criterion")];
    let mut suite = Suite {
        name: "s".into(),
        version: "1".into(),
        gates: vec![old.clone()],
    };
    assert_eq!(lint(&suite).len(), 1, "{:?}", lint(&suite));
    let is_old = |gate: &Gate| gate.id == old.id;
    assert_eq!(lint_accepted(&suite, is_old), [""; 0]);
    suite.gates.push(Gate {
        id: "b".into(),
        ..old.clone()
    });
    assert_eq!(lint_accepted(&suite, is_old).len(), 1);
    suite.gates[0].argv = vec!["/bin/sh".into()];
    let told = lint_accepted(&suite, is_old).join(" ");
    assert!(told.contains("a: argv must not start a shell"), "{told}");
}

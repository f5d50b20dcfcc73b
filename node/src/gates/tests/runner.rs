//! Tests of the gate runner with real programs and real processes.

#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use muster_core::facts::{Cpu, Facts, Memory, PciDevice};
use muster_core::firmware::Compared;
use muster_core::gates::{Gate, Limit, Mode, Verdict};
use muster_core::profiles::GatePolicy;
use muster_core::stacks::ConvergePlan;
use muster_core::wire::node::FailureCode;

use super::bench::{gate, nvme, plan, profile, run, run_in, shipped};
use crate::gates::chosen;

const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");

/// Makes a gate. The tool of the gate prints a recording.
fn recorded(id: &str, stage: &str, text: &str) -> Gate {
    let mut gate = gate(&format!(
        "id = \"{id}\"\nstage = \"{stage}\"\nparser = \"stressapptest\"\ntimeout_s = 5\nargv = [\"printf\", \"%s\"]\n\
         criteria = [{{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }}]\n"
    ));
    gate.argv.push(text.replace("${", ""));
    gate
}

fn shipped_gate(id: &str) -> Gate {
    shipped()
        .gates
        .into_iter()
        .find(|gate| gate.id == id)
        .expect("a shipped gate")
}

#[test]
fn stages_run_in_order_and_stop_at_the_first_that_does_not_pass() {
    let broken = recorded("b", "gpu", "nothing");
    let mut optional = recorded("c", "inventory", "nothing");
    optional.shadow = true;
    let plan = plan(vec![
        recorded("d", "node", SAT),
        broken,
        recorded("a", "inventory", SAT),
        optional,
        recorded("e", "gpu", SAT),
    ]);
    let results = run(&plan, &Facts::default()).expect("results");
    let told: Vec<(&str, Verdict)> = results
        .iter()
        .map(|result| (result.gate.as_str(), result.verdict))
        .collect();
    use Verdict::{Error, Pass, Skipped};
    assert_eq!(
        told,
        [
            ("a", Pass),
            ("c", Error),
            ("b", Error),
            ("e", Pass),
            ("d", Skipped)
        ]
    );
    assert!(
        results[4].reason.contains("gate b"),
        "{}",
        results[4].reason
    );
    assert_eq!(
        (
            results[0].evidence.exit,
            results[0].evidence.versions["stressapptest"].as_str()
        ),
        (Some(0), "1.0.6")
    );
}

#[test]
fn a_hung_tool_is_killed_with_its_children_and_judged_as_the_gate_says() {
    let mut hung = recorded("hung", "node", "");
    // The tool starts a child, and the runner kills the whole process group. No other process
    // sleeps for the same number of seconds.
    let seconds = format!("{}.5", 100_000 + std::process::id());
    hung.argv = ["timeout", "--foreground", &seconds, "sleep", &seconds]
        .map(String::from)
        .to_vec();
    hung.timeout_s = 1;
    let mut fault = hung.clone();
    (fault.id, fault.on_timeout) = ("fault".into(), muster_core::gates::OnTimeout::Fail);
    let results = run(&plan(vec![hung, fault]), &Facts::default()).expect("results");
    for (result, verdict) in results.iter().zip([Verdict::Error, Verdict::Fail]) {
        assert_eq!(result.verdict, verdict, "{}", result.reason);
        assert!(
            result.reason.contains("did not end within 1 s"),
            "{}",
            result.reason
        );
    }
    let ours = format!("sleep\0{seconds}\0");
    let left = || {
        std::fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter(|entry| {
                std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| line == ours.as_bytes())
            })
            .count()
    };
    // A killed process ends when the kernel schedules the process again.
    let deadline = Instant::now() + Duration::from_secs(60);
    while left() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), 0, "no child outlives its gate");
}

/// Waits for SIGKILL under a tracer. While the tracer lives, the killed process stays, like a
/// process that hangs in the kernel.
const UNDYING: &str = r#"
import ctypes, os, sys, time
libc, me = ctypes.CDLL(None), os.getpid()
libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, whoever
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    traced = libc.ptrace(0x4206, me, 0, 0)  # PTRACE_SEIZE
    os.write(tell, b'+' if traced == 0 else b'-')
    [os.close(own) for own in (1, 2)]
    for _ in range(600):
        if os.path.exists(sys.argv[1]): break
        time.sleep(.1)
    os._exit(0)
print(os.read(ready, 1).decode(), flush=True)
time.sleep(60)
"#;

#[test]
fn a_tool_that_cannot_be_killed_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let over = dir.path().join("over");
    let mut undying = recorded("undying", "node", "");
    // The options shorten the start of Python, so the tracer has most of the gate's time.
    undying.argv = [
        "python3",
        "-I",
        "-S",
        "-c",
        UNDYING,
        over.to_str().expect("a path"),
    ]
    .map(String::from)
    .to_vec();
    undying.timeout_s = 3;
    undying.on_timeout = muster_core::gates::OnTimeout::Fail;
    // The next gate still runs.
    let results = run(
        &plan(vec![undying, recorded("after", "node", SAT)]),
        &Facts::default(),
    )
    .expect("results");
    std::fs::write(&over, "").expect("a file");
    assert_eq!(results[0].evidence.stdout, "+", "it is traced");
    assert_eq!(results[0].verdict, Verdict::Fail, "{}", results[0].reason);
    assert!(
        results[0].reason.contains("cannot be killed"),
        "{}",
        results[0].reason
    );
    assert_eq!(results[1].verdict, Verdict::Pass, "{}", results[1].reason);
}

#[test]
fn a_tool_that_is_missing_crashes_or_floods_is_an_error() {
    let mut missing = recorded("missing", "node", "");
    missing.argv = vec!["no-such-tool".into()];
    let mut crashed = recorded("crashed", "node", "");
    crashed.argv = ["timeout", "--signal=KILL", "0.1", "sleep", "9"]
        .map(String::from)
        .to_vec();
    let mut flood = recorded("flood", "node", "");
    flood.argv = ["head", "-c", "9000000", "/dev/zero"]
        .map(String::from)
        .to_vec();
    let mut silent = recorded("silent", "node", "");
    silent.argv = vec!["true".into()];
    let results = run(
        &plan(vec![missing, crashed, flood, silent]),
        &Facts::default(),
    )
    .expect("results");
    for (result, reason) in
        results
            .iter()
            .zip(["not installed", "signal 9", "more than", "no line"])
    {
        assert_eq!(result.verdict, Verdict::Error, "{result:?}");
        assert!(result.reason.contains(reason), "{}", result.reason);
        assert!(result.evidence.stdout.len() <= 64 << 10);
    }
}

#[test]
fn a_log_of_eight_mib_is_read_and_no_other_answer_that_long() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    std::fs::write(
        &log,
        "[    0.000000] Linux version 6.1.0-31-amd64\n".repeat(200_000),
    )
    .expect("a file");
    let mut reads = shipped()
        .gates
        .into_iter()
        .find(|gate| gate.parser == "kernel-log")
        .expect("a shipped gate");
    reads.argv = vec!["cat".into(), log.to_str().expect("a path").into()];
    let other = Gate {
        argv: reads.argv.clone(),
        stage: reads.stage,
        ..recorded("other", "node", "")
    };
    let results = run(&plan(vec![reads, other]), &Facts::default()).expect("results");
    assert_eq!(results[0].verdict, Verdict::Pass, "{}", results[0].reason);
    assert!(
        results[1].verdict == Verdict::Error && results[1].reason.contains("more than"),
        "{}",
        results[1].reason
    );
}

#[test]
fn a_gate_for_each_disk_asks_every_disk() {
    let mut smart = shipped_gate("disk.smart");
    // The tool prints the same answer for every disk, and reads no disk.
    let answer =
        include_str!("../../../fixtures/smartctl-7.1-nvme-good.json").replace("test serial", "S1");
    smart.argv = vec!["printf".into(), "%.0s%s".into(), "${each}".into(), answer];
    let facts = |serials: &[Option<&str>]| Facts {
        disks: serials
            .iter()
            .map(|serial| nvme("nvme0n1", *serial))
            .collect(),
        ..Facts::default()
    };
    let verdict = |serials: &[Option<&str>]| {
        let results = run(&plan(vec![smart.clone()]), &facts(serials)).expect("results");
        (
            results[0].verdict,
            results[0].reason.clone(),
            results[0]
                .measured
                .first()
                .map(|measured| measured.entity.clone()),
        )
    };
    assert_eq!(
        verdict(&[Some("S1")]),
        (Verdict::Pass, verdict(&[Some("S1")]).1, Some("S1".into()))
    );
    // The evidence holds the command with values instead of placeholders. A person can run the
    // command again.
    let kept = run(&plan(vec![smart.clone()]), &facts(&[Some("S1")]))
        .expect("results")
        .remove(0)
        .evidence;
    assert_eq!(kept.argv[2], "/dev/nvme0n1");
    assert!(
        kept.stdout
            .starts_with("== S1: /usr/libexec/muster/gates/printf %.0s%s /dev/nvme0n1 "),
        "{}",
        kept.stdout
    );
    for (serials, why) in [
        (vec![], "0 on this node"),
        (vec![None], "no serial"),
        (vec![Some("S1"), Some("S2")], "told of S1"),
    ] {
        let (verdict, reason, _) = verdict(&serials);
        assert_eq!(verdict, Verdict::Error, "{reason}");
        assert!(reason.contains(why), "{reason}");
    }
}

#[test]
fn facts_and_links_are_held_against_the_profile() {
    let link = |address: &str, width, max| PciDevice {
        address: address.into(),
        class: "010802".into(),
        link_width: Some(width),
        link_width_max: Some(max),
        link_speed: Some("2.5 GT/s PCIe".into()),
        ..PciDevice::default()
    };
    let mut facts = Facts {
        cpus: vec![Cpu { cores: 1, threads: 1, ..Cpu::default() }],
        memory: Memory { total_bytes: 1900 << 20, ..Memory::default() },
        disks: vec![nvme("nvme0n1", Some("ROOT1")), nvme("nvme1n1", Some("DATA1"))],
        nics: vec![serde_json::from_str(r#"{"name":"e","mac":"52:54:00:00:00:01","driver":null,"pci_address":null,"speed_mbps":null,"link_up":true}"#).expect("a NIC")],
        pci: vec![link("0000:01:00.0", 1, 1), link("0000:02:00.0", 1, 1)],
        ..Facts::default()
    };
    let plan = plan(vec![
        shipped_gate("inventory.facts"),
        shipped_gate("pcie.width"),
    ]);
    let verdicts = |facts: &Facts| {
        run(&plan, facts)
            .expect("results")
            .iter()
            .map(|result| result.verdict)
            .collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&facts), [Verdict::Pass, Verdict::Pass]);
    facts.memory.total_bytes = 1 << 30;
    facts.pci[1].link_width_max = Some(4);
    assert_eq!(verdicts(&facts), [Verdict::Fail, Verdict::Fail]);
    facts.pci.pop();
    assert_eq!(
        verdicts(&facts)[1],
        Verdict::Error,
        "a device that is gone is not a good link"
    );
}

#[test]
fn software_is_held_against_the_stack() {
    let node = "0197b0f2-9a3c-7000-8000-000000000000";
    let digest = muster_core::values::Digest::of(b"");
    let stack: ConvergePlan = serde_json::from_value(serde_json::json!({
        "lock": digest, "repository": "http://a/b", "absent": ["nouveau-tools"], "files": [], "sysctl": {}, "modules_load": [],
        "packages": [{"name": "munge", "version": "0.5", "arch": "amd64", "size": 1, "sha256": digest, "filename": "munge.deb"}],
        "modules_blacklist": [], "kernel_args": ["iommu=pt"], "limits": [], "services": [], "principal": "muster:a:1", "user_ca": "a b",
        "marker": {"protocol": 1, "node": node, "claim": node, "epoch": 1, "image": digest},
    }))
    .expect("a stack");
    let mut plan = plan(vec![
        shipped_gate("software.packages"),
        shipped_gate("software.kernel"),
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    let verdicts = |plan: &_| {
        let results = run_in(folder.path(), plan, &Facts::default()).expect("results");
        results
            .iter()
            .map(|result| (result.verdict, result.reason.clone()))
            .collect::<Vec<_>>()
    };
    assert!(
        verdicts(&plan)
            .iter()
            .all(|(verdict, _)| *verdict == Verdict::Error),
        "no stack, no dpkg, no pass"
    );

    let package = |name: &str, version: &str| {
        format!(
            "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
        )
    };
    let kernel = package("linux-image-6.1.0-40-amd64", "6.1");
    plan.stack = Some(stack);
    write("proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    write("proc/sys/kernel/tainted", "0\n");
    write("proc/cmdline", "root=/dev/nvme0n1p2 iommu=pt\n");
    write(
        "var/lib/dpkg/status",
        &format!("{}{kernel}", package("munge", "0.5")),
    );
    assert!(
        verdicts(&plan)
            .iter()
            .all(|(verdict, _)| *verdict == Verdict::Pass),
        "{:?}",
        verdicts(&plan)
    );

    write(
        "var/lib/dpkg/status",
        &format!(
            "{}{}{kernel}",
            package("munge", "0.6"),
            package("nouveau-tools", "1")
        ),
    );
    write("proc/sys/kernel/osrelease", "6.1.0-39-amd64\n");
    write("proc/cmdline", "quiet\n");
    write("proc/sys/kernel/tainted", "4096\n");
    let told = verdicts(&plan);
    assert!(
        told.iter().all(|(verdict, _)| *verdict == Verdict::Fail),
        "{told:?}"
    );
    assert!(
        told[0].1.contains("munge is 0.6, wanted 0.5")
            && told[0].1.contains("nouveau-tools is installed"),
        "{}",
        told[0].1
    );
    assert!(
        told[1]
            .1
            .contains("kernel 6.1.0-39-amd64 runs, 6.1.0-40-amd64 is installed"),
        "{}",
        told[1].1
    );

    // A stack with an older kernel requires the older kernel, although a newer kernel is installed.
    write("proc/cmdline", "root=/dev/nvme0n1p2 iommu=pt\n");
    write("proc/sys/kernel/tainted", "0\n");
    let packages = &mut plan.stack.as_mut().expect("a stack").packages;
    let former = muster_core::stacks::LockedPackage {
        name: "linux-image-6.1.0-39-amd64".into(),
        ..packages[0].clone()
    };
    packages.push(former);
    assert_eq!(
        verdicts(&plan)[1].0,
        Verdict::Pass,
        "{}",
        verdicts(&plan)[1].1
    );
    write("proc/sys/kernel/osrelease", "6.1.0-40-amd64\n");
    assert!(
        verdicts(&plan)[1]
            .1
            .contains("6.1.0-39-amd64 is the stack's"),
        "{}",
        verdicts(&plan)[1].1
    );
}

#[test]
fn firmware_is_held_against_what_the_bmc_said() {
    let one = |item: &str, wanted: &str, found: Option<&str>| Compared {
        item: item.into(),
        wanted: wanted.into(),
        found: found.map(str::to_owned),
    };
    let right = one("firmware bmc", "1.74", Some("1.74"));
    let wrong = one("bios SriovGlobalEnable", "Enabled", Some("Disabled"));
    let unknown = one("firmware nvswitch", "1.0", None);
    let judged = |firmware: Option<Vec<Compared>>, mode: Option<Mode>| {
        let mut plan = plan(vec![shipped_gate("software.firmware")]);
        plan.firmware = firmware;
        let policy = mode.map(|mode| {
            (
                "software.firmware".to_owned(),
                GatePolicy {
                    mode,
                    because: "no BMC".into(),
                },
            )
        });
        plan.profile.gates.extend(policy);
        let result = run(&plan, &Facts::default()).expect("results").remove(0);
        (result.verdict, result.reason)
    };
    assert_eq!(judged(Some(vec![right.clone()]), None).0, Verdict::Pass);
    assert_eq!(
        judged(Some(vec![]), None).0,
        Verdict::Pass,
        "its stack wants nothing"
    );
    assert_eq!(
        judged(None, None).0,
        Verdict::Error,
        "nobody said what is wanted"
    );
    let (verdict, told) = judged(Some(vec![right.clone(), wrong, unknown.clone()]), None);
    assert_eq!(verdict, Verdict::Fail, "{told}");
    assert!(
        told.contains("bios SriovGlobalEnable is Disabled, wanted Enabled"),
        "{told}"
    );
    assert!(
        told.contains("firmware nvswitch is unknown, wanted 1.0"),
        "{told}"
    );
    assert_eq!(
        judged(Some(vec![right, unknown.clone()]), None).0,
        Verdict::Error,
        "unknown is no pass"
    );
    // Without a known value the verdict is an error, unless the profile makes the gate optional.
    assert_eq!(judged(Some(vec![unknown.clone()]), None).0, Verdict::Error);
    let (verdict, told) = judged(Some(vec![unknown]), Some(Mode::Optional));
    assert_eq!(verdict, Verdict::Skipped, "{told}");
    assert!(told.contains("no required value is known"), "{told}");
}

#[test]
fn the_clock_is_held_against_the_agents() {
    let serve = |skew_ms: i64, pauses_ms: [u64; 3]| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let thread = std::thread::spawn(move || {
            for (pause_ms, stream) in pauses_ms.into_iter().zip(listener.incoming()) {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 4096]);
                let now = muster_core::clock::Clock::System.now().as_millisecond() + skew_ms;
                let body = format!("{{\"unix_ms\":{now}}}");
                std::thread::sleep(Duration::from_millis(pause_ms));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream
                    .write_all((head + &body).as_bytes())
                    .expect("an answer");
            }
        });
        (format!("http://{address}"), thread)
    };
    let mut plan = plan(vec![shipped_gate("software.clock")]);
    for (skew_ms, wanted) in [
        (0, Verdict::Pass),
        (-60_000, Verdict::Fail),
        (3_600_000, Verdict::Fail),
    ] {
        let (url, thread) = serve(skew_ms, [0; 3]);
        plan.variables.insert("agent_url".into(), url);
        let results = run(&plan, &Facts::default()).expect("results");
        assert_eq!(
            results[0].verdict, wanted,
            "{skew_ms}: {}",
            results[0].reason
        );
        thread.join().expect("three answers");
    }
    // A slow answer adds the delay to the clock error, in milliseconds. The fastest of three
    // answers counts. The pauses of the other two answers limit the time of the fastest answer.
    for (pauses_ms, least, others) in [([100; 3], 90.0, 200.0), ([300, 0, 300], 0.0, 600.0)] {
        let (url, thread) = serve(0, pauses_ms);
        plan.variables.insert("agent_url".into(), url);
        let started = Instant::now();
        let results = run(&plan, &Facts::default()).expect("results");
        let most = started.elapsed().as_secs_f64() * 1e3 - others;
        let Limit::Number(off) = results[0].measured[0].value else {
            panic!("{results:?}")
        };
        // The agent sends the time in whole milliseconds.
        assert!(
            (least..most + 2.0).contains(&off),
            "{off} ms of {most} ms after {pauses_ms:?}"
        );
        thread.join().expect("three answers");
    }
    // No server listens at the address after the last answer.
    assert_eq!(
        run(&plan, &Facts::default()).expect("results")[0].verdict,
        Verdict::Error
    );
}

#[test]
fn a_suite_that_the_linter_refuses_is_not_run() {
    let mut bad = recorded("a", "node", SAT);
    bad.criteria.clear();
    assert_eq!(
        run(&plan(vec![bad]), &Facts::default())
            .expect_err("refused")
            .code,
        FailureCode::BadSuite
    );
    let mut unknown = plan(vec![recorded("a", "node", SAT)]);
    unknown.only = vec!["b".into()];
    assert_eq!(
        run(&unknown, &Facts::default()).expect_err("refused").code,
        FailureCode::BadSuite
    );
    assert_eq!(profile().model, "virtual-node");
}

/// As root, each of these programs could erase a disk or read a secret.
#[test]
fn a_program_of_no_parser_is_refused_but_for_a_gate_from_before_the_rule() {
    for argv in [
        &["setsid", "sh", "-c", "id"][..],
        &["blkdiscard", "-f", "/dev/nvme0n1"],
        &["cat", "/etc/shadow"],
        &["/usr/bin/stressapptest"],
    ] {
        let mut gate = recorded("a", "node", SAT);
        gate.argv = argv.iter().map(ToString::to_string).collect();
        let mut plan = plan(vec![gate]);
        let refused = chosen(&plan).expect_err("refused");
        assert_eq!(refused.code, FailureCode::BadSuite, "{argv:?}");
        assert!(refused.message.contains(argv[0]), "{}", refused.message);
        plan.set_former_gates(&["a"]);
        assert_eq!(chosen(&plan).expect("accepted before").len(), 1);
        // A server without the rule has accepted the suite.
        plan.variables.clear();
        assert_eq!(chosen(&plan).expect("an earlier server").len(), 1);
    }
    let mut allowed = recorded("a", "node", SAT);
    allowed.argv = vec!["/usr/libexec/muster/gates/site-check".into()];
    assert_eq!(chosen(&plan(vec![allowed])).expect("allowed").len(), 1);
}

//! Needs of gates, retries after an error, evidence, and the blocks between stages.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::facts::Facts;
use muster_core::gates::{Evidence, Gate, GateResult, Limit, Need, SideEffect, Stage, Verdict};
use muster_core::wire::node::GatePlan;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bench::{TestBench, gate, plan, run_in, run_within};
use crate::gates::call::{Stop, classify_error};
use crate::machine::Machine;
use crate::tool::{Ceiling, Guard, ToolError};

const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");

fn of_memory(id: &str, stage: &str, argv: &[&str]) -> Gate {
    let mut gate = gate(&format!(
        "id = \"{id}\"\nstage = \"{stage}\"\nparser = \"stressapptest\"\ntimeout_s = 5\nargv = [\"true\"]\n\
         criteria = [{{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }}]\n"
    ));
    gate.argv = argv.iter().map(ToString::to_string).collect();
    gate
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

/// A tool without output in the first run, and with this text afterwards. A file counts the runs.
fn stutterer(folder: &Path, text: &str) -> String {
    let tool = folder.join("stutter");
    let script =
        "#!/bin/sh\necho run >> $0.runs\ntest $(wc -l < $0.runs) -gt 1 && cat $0.text\ntrue\n";
    std::fs::write(&tool, script).expect("a script");
    std::fs::write(folder.join("stutter.text"), text).expect("its text");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    tool.to_string_lossy().into_owned()
}

/// A tool of these lines, with the recording in the same folder.
fn script(folder: &Path, lines: &str) -> String {
    write(folder, "tool.text", SAT);
    write(folder, "tool", &format!("#!/bin/sh\n{lines}\n"));
    let tool = folder.join("tool");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    tool.to_string_lossy().into_owned()
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("stutter.runs"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn only(folder: &Path, gate: Gate) -> GateResult {
    run_in(folder, &plan(vec![gate]), &Facts::default())
        .expect("results")
        .remove(0)
}

#[test]
fn leftover_processes_are_killed_or_void_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = script(folder.path(), "sleep 60 &\necho $! > $0.left\ncat $0.text");
    assert_eq!(
        only(folder.path(), of_memory("a", "node", &[&tool])).verdict,
        Verdict::Pass
    );
    let left = std::fs::read_to_string(folder.path().join("tool.left")).expect("its number");
    // A killed process ends when the kernel runs the process next, and may stay unreaped.
    let file = format!("/proc/{}/stat", left.trim());
    let stat = || std::fs::read_to_string(&file).unwrap_or_default();
    let is_gone = || stat().is_empty() || stat().contains(") Z ");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_gone() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_gone(), "{}", stat());

    // A process outside of the group is a daemon, and may still write. The tool ends once the
    // daemon has left the group.
    let tool = script(
        folder.path(),
        "setsid sh -c 'echo $$ > $0.daemon; exec sleep 60' $0 2>/dev/null &\n\
         until [ -s $0.daemon ]; do sleep 0.02; done\ncat $0.text",
    );
    let open = only(folder.path(), of_memory("a", "node", &[&tool]));
    let daemon = std::fs::read_to_string(folder.path().join("tool.daemon")).expect("its number");
    let daemon = daemon.trim().parse().expect("a number");
    kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("a daemon");
    assert_eq!(open.verdict, Verdict::Error);
    assert!(
        open.reason
            .contains("left behind still holds its output open"),
        "{}",
        open.reason
    );
}

#[test]
fn an_error_is_tried_again_as_often_as_the_gate_says_and_a_failure_never() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = stutterer(folder.path(), SAT);
    let once = only(folder.path(), of_memory("a", "node", &[&tool]));
    assert_eq!(
        (once.verdict, once.former.len(), runs(folder.path())),
        (Verdict::Error, 0, 1)
    );

    let folder = tempfile::tempdir().expect("a folder");
    let tool = stutterer(folder.path(), SAT);
    let again = only(
        folder.path(),
        Gate {
            retries: 3,
            ..of_memory("a", "node", &[&tool])
        },
    );
    assert_eq!(
        (again.verdict, again.former.len(), runs(folder.path())),
        (Verdict::Pass, 1, 2)
    );
    assert!(
        again.former[0].contains("stressapptest"),
        "{:?}",
        again.former
    );

    let folder = tempfile::tempdir().expect("a folder");
    let mut missed = of_memory("a", "node", &["printf", "%s", SAT]);
    missed.criteria[0].limit = Limit::Number(7.0);
    let failed = only(
        folder.path(),
        Gate {
            retries: 3,
            ..missed
        },
    );
    assert_eq!(
        (failed.verdict, failed.former.len()),
        (Verdict::Fail, 0),
        "what was measured stays measured"
    );
    let missing = only(
        folder.path(),
        Gate {
            retries: 3,
            ..of_memory("a", "node", &["no-such-tool"])
        },
    );
    assert_eq!(
        (missing.verdict, missing.former.len()),
        (Verdict::Error, 0),
        "nobody installs it meanwhile"
    );
}

/// A memory gate with an impossible limit.
fn missed(argv: &[&str], settle_s: u64) -> Gate {
    let mut gate = Gate {
        settle_s,
        ..of_memory("a", "node", argv)
    };
    gate.criteria[0].limit = Limit::Number(7.0);
    gate
}

#[test]
fn what_is_not_up_yet_after_a_boot_is_measured_again_until_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "proc/uptime", "100.50 200.00\n");
    let tool = stutterer(folder.path(), SAT);
    let up = only(
        folder.path(),
        Gate {
            settle_s: 300,
            ..of_memory("a", "node", &[&tool])
        },
    );
    assert_eq!(
        (up.verdict, up.former.len(), runs(folder.path())),
        (Verdict::Pass, 1, 2),
        "{}",
        up.reason
    );
}

#[test]
fn what_is_missed_when_its_time_to_settle_is_over_is_missed() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "proc/uptime", "300.00 200.00\n");
    let over = only(folder.path(), missed(&["printf", "%s", SAT], 300));
    assert_eq!((over.verdict, over.former.len()), (Verdict::Fail, 0));
    // The second reading follows.
    write(folder.path(), "proc/uptime", "299.50 200.00\n");
    let uptime = folder.path().join("proc/uptime").display().to_string();
    let tool = script(
        folder.path(),
        &format!("test -e $0.once && echo 302.10 1 > {uptime}\ntouch $0.once\ncat $0.text"),
    );
    let over = only(folder.path(), missed(&[&tool], 300));
    assert_eq!(
        (over.verdict, over.former.len()),
        (Verdict::Fail, 1),
        "{}",
        over.reason
    );
}

#[test]
fn what_had_no_time_to_settle_has_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "proc/uptime", "12.00 20.00\n");
    let plan = plan(vec![missed(&["printf", "%s", SAT], 300)]);
    let result = run_within(folder.path(), &plan, Duration::from_secs(1))
        .expect("results")
        .remove(0);
    assert_eq!(result.verdict, Verdict::Error);
    assert!(
        result
            .reason
            .ends_with("; measured 12 s after boot, within the settle time of 300 s"),
        "{}",
        result.reason
    );
}

#[test]
fn a_gate_is_skipped_with_the_reason_where_its_needs_do_not_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "proc/1/comm", "systemd\n");
    let needs = |needs: &[Need]| Gate {
        needs: needs.to_vec(),
        ..of_memory("a", "node", &["printf", "%s", SAT])
    };
    let said = |gate: Gate, in_use: bool| {
        let mut plan = plan(vec![gate]);
        plan.in_use = in_use;
        let result = run_in(folder.path(), &plan, &Facts::default())
            .expect("results")
            .remove(0);
        (result.verdict, result.reason)
    };
    assert_eq!(
        said(needs(&[Need::Drained, Need::GpusIdle]), false).0,
        Verdict::Pass
    );
    let (verdict, reason) = said(needs(&[Need::Drained]), true);
    assert!(
        verdict == Verdict::Skipped && reason.contains("jobs may run on this node"),
        "{reason}"
    );
    let (verdict, reason) = said(
        Gate {
            arch: vec!["arm64".into()],
            ..needs(&[])
        },
        false,
    );
    assert!(
        verdict == Verdict::Skipped && reason.contains("supports arm64; this node is amd64"),
        "{reason}"
    );

    let hold = |pid: &str, comm: &str| {
        write(folder.path(), &format!("proc/{pid}/comm"), comm);
        std::fs::create_dir_all(folder.path().join(format!("proc/{pid}/fd"))).expect("a folder");
        symlink(
            "/dev/nvidia0",
            folder.path().join(format!("proc/{pid}/fd/7")),
        )
        .expect("a link");
    };
    hold("50", "nvidia-persiste\n");
    assert_eq!(
        said(needs(&[Need::GpusIdle]), true).0,
        Verdict::Pass,
        "a service of the driver uses none"
    );
    hold("51", "python3\n");
    let (verdict, reason) = said(needs(&[Need::GpusIdle]), true);
    assert!(
        verdict == Verdict::Skipped
            && reason.contains("process 51 (python3) holds /dev/nvidia0 open"),
        "{reason}"
    );
}

/// The order for a protected node, or for a node with jobs, may name gates with effects.
#[test]
fn a_gate_that_writes_runs_on_a_drained_and_unprotected_node_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |id: &str, effect: SideEffect| Gate {
        effects: vec![effect],
        needs: vec![Need::Drained],
        ..of_memory(id, "node", &["printf", "%s", SAT])
    };
    let gates = vec![
        of_memory("reads", "node", &["printf", "%s", SAT]),
        with("loads", SideEffect::MemoryLoad),
        with("writes", SideEffect::WritesDisk),
    ];
    let run = |change: &dyn Fn(&mut GatePlan)| {
        let mut plan = plan(gates.clone());
        change(&mut plan);
        let results = run_in(folder.path(), &plan, &Facts::default()).expect("results");
        let verdicts: Vec<Verdict> = results.iter().map(|result| result.verdict).collect();
        (verdicts, results[2].reason.clone())
    };
    use Verdict::{Pass, Skipped};
    assert_eq!(run(&|_| ()).0, [Pass, Pass, Pass]);
    assert_eq!(run(&|plan| plan.in_use = true).0, [Pass, Skipped, Skipped]);
    let (verdicts, reason) = run(&|plan| plan.protected = true);
    assert_eq!(verdicts, [Pass, Pass, Skipped]);
    assert!(reason.contains("the node is protected"), "{reason}");
    // The effects of a gate from before the rule of programs are unknown.
    let former = |plan: &mut GatePlan| plan.set_former_gates(&["reads"]);
    assert_eq!(run(&former).0, [Pass, Pass, Pass]);
    let guarded = |plan: &mut GatePlan| {
        former(plan);
        plan.protected = true;
    };
    assert_eq!(run(&guarded).0, [Skipped, Pass, Skipped]);
}

#[test]
fn a_tool_leaves_its_stray_files_in_the_scratch_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = folder.path().join("told");
    let lines = format!("pwd > {}\necho x > stray\ncat $0.text", told.display());
    let tool = script(folder.path(), &lines);
    let result = only(folder.path(), of_memory("a", "node", &[&tool]));
    assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
    let place = std::fs::read_to_string(&told).expect("the working folder");
    let scratch = folder.path().join("var/lib/muster/gates");
    assert!(Path::new(place.trim()).starts_with(&scratch), "{place}");
    let left = std::fs::read_dir(&scratch).expect("a folder").count();
    assert_eq!(left, 0, "removed after the gate");
}

/// Debian's gpu-burn forks without end on a node without a GPU.
#[test]
fn gpu_burn_starts_only_where_the_driver_lists_a_gpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut burn = gate(
        "id = \"a\"\nstage = \"node\"\nparser = \"gpu-burn\"\ntimeout_s = 5\nargv = [\"true\"]\nrequired = false\n\
         criteria = [{ metric = \"burn.faulty\", op = \"==\", limit = 0, unit = \"GPUs\" }]\n",
    );
    let lines = "echo $1 >> $0.calls\n[ \"$1\" != -l ] || { cat $0.listed; exit; }\necho run >> $0.runs\nexit 1";
    burn.argv = vec![script(folder.path(), lines)];
    let is_called = || folder.path().join("tool.calls").exists();
    let is_started = || folder.path().join("tool.runs").exists();
    let skipped = only(folder.path(), burn.clone());
    assert!(
        skipped.verdict == Verdict::Skipped && skipped.reason.contains("lists no GPU"),
        "{}",
        skipped.reason
    );
    // A driver without GPUs has an empty folder.
    let gpus = folder.path().join("proc/driver/nvidia/gpus");
    std::fs::create_dir_all(&gpus).expect("a folder");
    let required = only(
        folder.path(),
        Gate {
            required: true,
            ..burn.clone()
        },
    );
    assert_eq!(required.verdict, Verdict::Error, "{}", required.reason);
    assert!(!is_called());
    std::fs::create_dir(gpus.join("0000:1b:00.0")).expect("a folder");
    // The driver lists the GPU, and CUDA does not reach it.
    let skipped = only(folder.path(), burn.clone());
    assert!(
        skipped.verdict == Verdict::Skipped && skipped.reason.contains("gpu_burn -l failed: "),
        "{}",
        skipped.reason
    );
    // A version without the option burns.
    write(folder.path(), "tool.listed", "Burning for 10 seconds.\n");
    let skipped = only(folder.path(), burn.clone());
    assert!(
        skipped.reason.contains("does not know the option"),
        "{}",
        skipped.reason
    );
    assert!(is_called() && !is_started());
    let listed = "ID 0: NVIDIA H200, 150754MB\n";
    write(folder.path(), "tool.listed", listed);
    let ran = only(folder.path(), burn);
    assert_eq!(ran.verdict, Verdict::Error, "{}", ran.reason);
    assert!(is_started());
}

#[test]
fn a_missing_tool_skips_an_optional_gate_and_fails_a_required_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = of_memory("a", "node", &["no-such-tool"]);
    let mut unpinned = of_memory("a", "node", &["printf", "%s", SAT]);
    unpinned.criteria[0].limit = Limit::Text("profile:nobody.pinned".into());
    let nobody = of_memory("a", "node", &["printf", "${peer_address}"]);
    for (gate, why) in [
        (missing, "not installed"),
        (unpinned, "no threshold nobody.pinned"),
        (nobody, "no variable"),
    ] {
        let required = only(folder.path(), gate.clone());
        assert!(
            required.verdict == Verdict::Error && required.reason.contains(why),
            "{}",
            required.reason
        );
        let optional = only(
            folder.path(),
            Gate {
                required: false,
                ..gate.clone()
            },
        );
        assert!(
            optional.verdict == Verdict::Skipped && optional.reason.contains(why),
            "{}",
            optional.reason
        );
        assert!(!optional.required && !optional.shadow);
        assert!(
            only(
                folder.path(),
                Gate {
                    shadow: true,
                    ..gate
                }
            )
            .shadow
        );
    }
    let crashed = only(
        folder.path(),
        Gate {
            required: false,
            ..of_memory("a", "node", &["false"])
        },
    );
    assert_eq!(
        crashed.verdict,
        Verdict::Error,
        "a tool that is there and says nothing is no reason to skip"
    );
}

#[test]
fn neither_a_shadow_nor_a_waived_gate_keeps_the_next_stage_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = of_memory("broken", "inventory", &["false"]);
    let next = of_memory("next", "node", &["printf", "%s", SAT]);
    let last = |gate: Gate, waived: &[&str]| {
        let mut plan = plan(vec![gate, next.clone()]);
        plan.waived = waived.iter().map(ToString::to_string).collect();
        let results = run_in(folder.path(), &plan, &Facts::default()).expect("results");
        assert!(
            results.iter().all(|result| result.waived.is_none()),
            "that is the server's to say"
        );
        (results[0].verdict, results[1].verdict)
    };
    assert_eq!(
        last(broken.clone(), &[]),
        (Verdict::Error, Verdict::Skipped)
    );
    assert_eq!(
        last(broken.clone(), &["next"]),
        (Verdict::Error, Verdict::Skipped),
        "another gate is waived"
    );
    assert_eq!(
        last(broken.clone(), &["broken"]),
        (Verdict::Error, Verdict::Pass)
    );
    assert_eq!(
        last(
            Gate {
                shadow: true,
                ..broken
            },
            &[]
        ),
        (Verdict::Error, Verdict::Pass)
    );
}

/// The traces of a failed load tell the cause, and a reboot erases the traces.
#[test]
fn looks_after_a_load_run_although_the_load_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut load = of_memory("load", "gpu", &["false"]);
    load.effects = vec![SideEffect::MemoryLoad];
    load.needs = vec![Need::Drained];
    let mut again = load.clone();
    (again.id, again.stage) = ("again".into(), Stage::Soak);
    let after = of_memory("after", "soak", &["printf", "%s", SAT]);
    let verdicts = |load: &Gate, first: &[&str], in_use: bool| {
        let first = of_memory("first", "inventory", first);
        let gates = vec![first, load.clone(), again.clone(), after.clone()];
        let mut plan = plan(gates);
        plan.in_use = in_use;
        let results = run_in(folder.path(), &plan, &Facts::default()).expect("results");
        let verdicts = results.iter().map(|result| result.verdict);
        verdicts.skip(1).collect::<Vec<_>>()
    };
    use Verdict::{Error, Pass, Skipped};
    let good = ["printf", "%s", SAT];
    assert_eq!(verdicts(&load, &good, false), [Error, Skipped, Pass]);
    assert_eq!(
        verdicts(&load, &good, true),
        [Skipped; 3],
        "beside jobs no load ran"
    );
    assert_eq!(
        verdicts(&load, &["false"], false),
        [Skipped; 3],
        "no load ran"
    );
    load.argv = vec![script(folder.path(), "kill -9 $$")];
    assert_eq!(verdicts(&load, &good, false), [Error, Skipped, Pass]);
    load.argv = vec!["no-such-tool".into()];
    assert_eq!(
        verdicts(&load, &good, false),
        [Error, Skipped, Skipped],
        "no load ran"
    );
}

#[test]
fn evidence_holds_files_the_kernels_words_and_its_own_digest() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "proc/uptime", "100.50 200.00\n");
    let said = "6,1,5000000,-;long ago\n3,2,95000000,-;NVRM: Xid (PCI:0000:1b:00): 79\n SUBSYSTEM=pci\n6,3,101000000,-;now\n";
    write(folder.path(), "dev/kmsg", said);
    let mut gate = of_memory(
        "a",
        "node",
        &["cp", "--", "/etc/hostname", "${scratch}/notes"],
    );
    gate.keep = vec!["notes".into(), "never-written".into()];
    gate.env.insert("NCCL_DEBUG".into(), "WARN".into());
    let result = only(folder.path(), gate.clone());
    let evidence = &result.evidence;
    assert_eq!(
        evidence.kernel_log,
        "[95.000000] NVRM: Xid (PCI:0000:1b:00): 79\n[101.000000] now"
    );
    assert_eq!(evidence.files.keys().collect::<Vec<_>>(), ["notes"]);
    assert!(evidence.is_whole(), "{evidence:?}");
    gate.argv = vec!["printenv".into(), "NCCL_DEBUG".into()];
    assert_eq!(only(folder.path(), gate).evidence.stdout, "WARN");
}

/// As stress-ng from 0.15.08 on (stress-ng(1), `--stdout`): numbers go to a file, and messages to stdout in place of stderr.
#[test]
fn what_a_tool_says_beside_its_file_is_read_wherever_it_says_it() {
    let folder = tempfile::tempdir().expect("a folder");
    write(
        folder.path(),
        "good",
        include_str!("../../../fixtures/stress-ng-0.15.06.txt"),
    );
    let failed = "stress-ng: fail:  [7] cpu: matrixprod error detected\nstress-ng: info:  [7] unsuccessful run completed in 5.04s\n";
    write(folder.path(), "failed", failed);
    write(
        folder.path(),
        "yaml",
        include_str!("../../../fixtures/stress-ng-0.15.06.yaml"),
    );
    let mut gate = gate(
        "id = \"a\"\nstage = \"node\"\nparser = \"stress-ng\"\ntimeout_s = 5\nargv = [\"true\"]\noutput = \"stress.yaml\"\n\
         criteria = [{ metric = \"stress.failures\", op = \"==\", limit = 0, unit = \"failures\" }]\n",
    );
    for (says, verdict) in [
        ("cat good", Verdict::Pass),
        ("cat good >&2", Verdict::Pass),
        ("cat failed; exit 2", Verdict::Fail),
        ("cat failed >&2; exit 2", Verdict::Fail),
        ("cat failed", Verdict::Fail),
        ("true", Verdict::Error),
    ] {
        let tool = script(
            folder.path(),
            &format!("cd {}\ncat yaml > $1\n{says}", folder.path().display()),
        );
        gate.argv = vec![tool, "${scratch}/stress.yaml".into()];
        let result = only(folder.path(), gate.clone());
        assert_eq!(result.verdict, verdict, "{says}: {}", result.reason);
    }
}

/// A script in place of `muster-node exec-tool` ends at the limit, before a report.
#[test]
fn a_tool_that_reached_a_limit_is_not_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in [
        ("base/main/cgroup.kill", ""),
        ("base/cgroup.controllers", "memory pids\n"),
        ("base/cgroup.procs", ""),
        ("base/pids.max", "85"),
    ] {
        write(folder.path(), path, text);
    }
    let lines = "echo run >> $0.runs\necho max 1 > $2/pids.events";
    let shim = script(folder.path(), lines);
    let guard = Guard::below(&folder.path().join("base"), shim).expect("a delegated cgroup");
    let burn = Gate {
        retries: 3,
        ..of_memory("a", "node", &["true"])
    };
    let bench = TestBench {
        guard: Some(guard),
        ..TestBench::on(Machine::at(folder.path()))
    };
    let results = bench.run(&plan(vec![burn]));
    let result = results.expect("results").remove(0);
    assert_eq!((result.verdict, result.former.len()), (Verdict::Error, 0));
    let end = "/true exceeded its limit of 63 processes";
    assert!(result.reason.ends_with(end), "{}", result.reason);
    let runs = std::fs::read_to_string(folder.path().join("tool.runs")).expect("its runs");
    assert_eq!(runs, "run\n");
}

#[test]
fn a_tool_that_reached_a_limit_has_no_answer_and_its_output_is_kept() {
    let (gate, mut evidence) = (of_memory("a", "node", &["gpu_burn"]), Evidence::default());
    let error = ToolError::Limited {
        program: "gpu_burn".into(),
        ceiling: Ceiling::Processes(4096),
        stdout: b"Burning".to_vec(),
        stderr: b"no device".to_vec(),
    };
    let Stop::Limited(why) = classify_error(error, &gate, &mut evidence) else {
        panic!("a limit says no more of the node than an error");
    };
    assert_eq!(why, "gpu_burn exceeded its limit of 4096 processes");
    assert_eq!(
        (evidence.stdout.as_str(), evidence.stderr.as_str()),
        ("Burning", "no device")
    );
}

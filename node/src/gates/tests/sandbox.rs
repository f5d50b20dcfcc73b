//! The sandbox of a gate at the start of the gate's tool. `node/tests/sandbox.rs` has the sandbox
//! itself.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::gates::{Gate, GateResult, Verdict};

use super::bench::{TestBench, gate, plan};
use crate::machine::Machine;
use crate::tool::Guard;

const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");
/// Bytes of a report by `exec-tool`: a start, and a sandbox refused with EPERM.
const STARTED: &str = r"printf '\003' >&0";
const REFUSED: &str = r"printf '\004\001\000\000\000' >&0";

fn of_memory(more: &str) -> Gate {
    gate(&format!(
        "id = \"a\"\nstage = \"node\"\nparser = \"stressapptest\"\ntimeout_s = 5\nargv = [\"true\"]\n{more}\
         criteria = [{{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }}]\n"
    ))
}

/// A script in place of `muster-node exec-tool` reports, and prints a recording.
fn guard(folder: &Path, report: &str) -> Guard {
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    write("base/main/cgroup.kill", "");
    write("base/cgroup.controllers", "memory pids\n");
    write("base/cgroup.procs", "");
    write("shim.text", SAT);
    let lines = "echo \"$*\" >>$0.calls\ncat $0.text";
    write("shim", &format!("#!/bin/sh\n{report}\n{lines}\n"));
    let shim = folder.join("shim");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&shim, mode).expect("a mode");
    Guard::below(&folder.join("base"), shim).expect("a delegated cgroup")
}

/// Runs a gate, and returns the result with the words of the tool's start.
fn start(report: &str, gate: Gate, former: &[&str]) -> (GateResult, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = TestBench {
        guard: Some(guard(folder.path(), report)),
        ..TestBench::on(Machine::at(folder.path()))
    };
    let mut plan = plan(vec![gate]);
    plan.set_former_gates(former);
    let result = bench.run(&plan).expect("results").remove(0);
    let calls = std::fs::read_to_string(folder.path().join("shim.calls"));
    (result, calls.expect("a call"))
}

#[test]
fn a_tool_starts_in_the_sandbox_of_its_gate() {
    let drained = "needs = [\"drained\"]\n";
    for (more, words) in [
        (String::new(), " 65536 none hidden -- "),
        (
            format!("{drained}effects = [\"network_load\"]\n"),
            " 65536 host hidden -- ",
        ),
        (
            format!("{drained}effects = [\"writes_disk\"]\n"),
            " 65536 none write -- ",
        ),
    ] {
        let (result, calls) = start(STARTED, of_memory(&more), &[]);
        assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
        assert!(calls.contains(words), "{calls}");
    }
}

#[test]
fn a_gate_from_before_the_rule_of_programs_starts_without_a_sandbox() {
    let (result, calls) = start(STARTED, of_memory(""), &["a"]);
    assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
    assert!(calls.contains(" 65536 -- true"), "{calls}");
}

#[test]
fn a_gate_without_its_sandbox_has_no_answer() {
    let (result, _) = start(STARTED, of_memory(""), &[]);
    assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
    let (result, _) = start(REFUSED, of_memory(""), &[]);
    assert_eq!(result.verdict, Verdict::Error);
    let why = "the sandbox of the tool was not made: Operation not permitted";
    assert!(result.reason.contains(why), "{}", result.reason);
}

//! Tests of gates with `during`. Such a gate looks at the machine while the tools of other gates
//! load the machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::facts::Facts;
use muster_core::gates::{Gate, GateResult, Verdict};

use super::bench::{gate, plan, run_in};
use super::names::called;

/// Output of the real nvidia-smi for two idle A5000 GPUs.
const XML: &str = include_str!("../../../fixtures/nvidia-smi-590.44.01-2xa5000-v13.xml");
const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");

/// Shell functions: `more` waits for further looks of a kind, and `count` counts looks. The tool
/// records the kind of a look at the start of the look.
const MORE: &str = "count() { grep -cx $1 looks; }\n\
    more() { had=$(count $1); until [ $(count $1) -ge $((had + $2)) ]; do sleep 0.05; done; }\n";
/// The script of the throttle gate's tool. The file `burning` holds the process id of a load. The
/// second look waits for the end of the load.
const TOOL: &str = "look=cool\n[ -e hot ] && look=hot\n[ -e named ] && look=named\n\
    [ -e hangs ] && look=hangs\necho $look >> looks\n[ $look = hangs ] && sleep 30\n\
    if [ -e burning ] && [ $(wc -l < looks) -ge 2 ]; then\n\
    while kill -0 $(cat burning) 2>/dev/null; do sleep 0.05; done\nsleep 1\nfi\ncat $look.xml\n";

fn script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\ncd {}\n{text}", folder.display())).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path.to_string_lossy().into_owned()
}

/// Makes a gate for a load. The tool loads the machine with the script `how`, and then prints a
/// recording without errors.
fn burn(folder: &Path, how: &str) -> Gate {
    let mut gate = gate(
        "id = \"burn\"\nstage = \"gpu\"\nparser = \"stressapptest\"\ntimeout_s = 50\nargv = [\"true\"]\nneeds = [\"drained\", \"gpus_idle\"]\n\
         effects = [\"gpu_load\"]\nrequired = false\n\
         criteria = [{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }]\n",
    );
    std::fs::write(folder.join("sat"), SAT).expect("what it says");
    std::fs::write(folder.join("looks"), "").expect("no look yet");
    gate.argv = vec![script(folder, "burn", &format!("{MORE}{how}\ncat sat\n"))];
    gate
}

/// Makes the throttle gate. A file changes the answer of the tool while the file exists. With
/// `hot`, the first GPU is slowed down. With `named`, a process has an odd name. With `hangs`, the
/// tool hangs.
fn throttle(folder: &Path) -> Gate {
    let mut gate = gate(
        "id = \"throttle\"\nstage = \"soak\"\nparser = \"nvidia-smi-xml\"\ntimeout_s = 40\non_timeout = \"fail\"\ncount = \"2\"\nargv = [\"true\"]\n\
         needs = [\"drained\"]\nduring = { gates = [\"burn\", \"another\"], every_s = 1 }\n\
         criteria = [{ metric = \"gpu.throttle_hw_slowdown\", op = \"==\", limit = 0, unit = \"flags\" }]\n",
    );
    std::fs::write(folder.join("cool.xml"), XML).expect("an answer");
    std::fs::write(
        folder.join("hot.xml"),
        XML.replacen("hw_slowdown>Not Active", "hw_slowdown>Active", 1),
    )
    .expect("an answer");
    std::fs::write(folder.join("named.xml"), called(b"\xff && <y>")).expect("an answer");
    gate.argv = vec![script(folder, "nvidia-smi", TOOL)];
    gate
}

/// Returns the results of both gates, and the number of looks.
fn all(how: &str) -> (Vec<GateResult>, usize) {
    all_with(how, |_| ())
}

/// Returns the same values as `all`, after a change of the throttle gate.
fn all_with(how: &str, change: fn(&mut Gate)) -> (Vec<GateResult>, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("proc")).expect("a folder");
    let mut looked = throttle(folder.path());
    change(&mut looked);
    let plan = plan(vec![burn(folder.path(), how), looked]);
    let results = run_in(folder.path(), &plan, &Facts::default()).expect("results");
    let looks = std::fs::read_to_string(folder.path().join("looks"))
        .unwrap_or_default()
        .lines()
        .count();
    (results, looks)
}

#[test]
fn what_shows_only_under_load_fails_although_it_is_over_afterwards() {
    let (results, looks) = all("more cool 1; touch hot; more hot 1; rm hot; more cool 2");
    assert_eq!(
        results[0].verdict,
        Verdict::Pass,
        "the load itself saw nothing: {}",
        results[0].reason
    );
    let told = &results[1];
    assert_eq!(told.verdict, Verdict::Fail, "{}", told.reason);
    assert!(
        looks >= 3 && told.reason.contains("looks while burn ran, the worst"),
        "{looks}: {}",
        told.reason
    );
    assert!(
        told.evidence.stdout.contains("hw_slowdown>Active"),
        "the worst look is what is kept"
    );
    let slow = told
        .measured
        .iter()
        .find(|value| value.verdict == Verdict::Fail)
        .expect("a value");
    assert_eq!(
        (slow.metric.as_str(), slow.entity.as_str()),
        ("gpu.throttle_hw_slowdown", "0000:81:00.0")
    );

    // A look stays readable while a job gives a process an odd name.
    let (results, _) = all("more cool 1; touch named; more named 1; rm named; more cool 2");
    assert_eq!(results[1].verdict, Verdict::Pass, "{}", results[1].reason);
    assert!(
        results[1].reason.contains("looks while burn ran"),
        "{}",
        results[1].reason
    );
}

#[test]
fn without_a_load_or_with_too_few_looks_there_is_no_answer() {
    // The second look ends after the load. A third look would report a healthy GPU.
    let two = "until [ $(count cool) -ge 2 ]; do sleep 0.05; done";
    let (results, looks) = all(&format!("echo $$ > pid; mv pid burning; {two}"));
    assert!(
        results[1].verdict == Verdict::Error && results[1].reason.contains("fewer than 3"),
        "{}",
        results[1].reason
    );
    assert!(
        results[1].reason.contains("1 looks while burn ran"),
        "the second look is dropped: {}",
        results[1].reason
    );
    assert_eq!(looks, 2);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("proc")).expect("a folder");
    let mut missing = burn(folder.path(), "true");
    missing.argv = vec!["no-such-burner".into()];
    let results = run_in(
        folder.path(),
        &plan(vec![missing, throttle(folder.path())]),
        &Facts::default(),
    );
    let results = results.expect("results");
    assert_eq!(
        [results[0].verdict, results[1].verdict],
        [Verdict::Skipped, Verdict::Error]
    );
    assert!(
        results[1].reason.contains("none of burn, another ran"),
        "{}",
        results[1].reason
    );
}

#[test]
fn a_tool_that_hangs_under_load_is_the_fault_it_looks_for() {
    // The next look starts after the end of the hanging look.
    let how = "more cool 1; touch hangs; more hangs 1; rm hangs; more cool 1";
    let (results, _) = all_with(how, |gate| gate.timeout_s = 2);
    assert!(
        results[1].verdict == Verdict::Fail && results[1].reason.contains("did not end within 2 s"),
        "{}",
        results[1].reason
    );
}

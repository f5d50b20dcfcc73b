//! `muster-node gate` run by a person: exit codes, the report, the shipped suites in the binary,
//! and the gate of the documentation.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod programs; // Programs that an image ships for gates

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use muster_core::gates::{GateResult, Suite, Verdict, lint};
use serde_json::Value;

const SAT: &str = include_str!("../fixtures/stressapptest-1.0.6.txt");
/// Limits in MB/s: a limit met by the recording, and a limit above the recording.
const REACHED: u32 = 10;
const MISSED: u32 = 99_999_999;
const DOCUMENT: &str = include_str!("../../docs/gates.md");

fn muster_node(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster-node"));
    command
        .args(["gate"])
        .args(arguments)
        .current_dir(folder)
        .env("MUSTER_ROOT", folder)
        .output()
        .unwrap()
}

/// A suite with a single gate. The tool of the gate prints a recording.
fn suite(folder: &Path, recording: &str, limit: u32, more: &str) {
    std::fs::write(folder.join("answer"), recording).unwrap();
    let (tool, answer) = (programs::ship(folder, "cat"), folder.join("answer"));
    let text = format!(
        "name = \"t\"\nversion = \"1\"\n[[gates]]\nid = \"a\"\ntitle = \"t\"\nstage = \"node\"\nparser = \"stressapptest\"\ntimeout_s = 9\n\
         finding = \"Replace the module.\"\nargv = [{tool:?}, {answer:?}]\n\
         criteria = [{{ metric = \"memory.bandwidth\", op = \">=\", limit = {limit}, unit = \"MB/s\" }}]\n{more}"
    );
    std::fs::write(folder.join("suite.toml"), text).unwrap();
}

#[test]
fn exit_codes_separate_failure_no_answer_and_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = |more: &[&str]| {
        let ended = muster_node(
            folder,
            &[
                &["--suite", "suite.toml", "--profile", "virtual-node"],
                more,
            ]
            .concat(),
        );
        (
            ended.status.code().unwrap(),
            String::from_utf8(ended.stdout).unwrap(),
            String::from_utf8(ended.stderr).unwrap(),
        )
    };
    suite(folder, SAT, REACHED, "");
    let (code, table, _) = run(&[]);
    assert!(
        code == 0 && table.contains("t 1 on virtual-node: pass, 1 gates"),
        "{code} {table}"
    );
    suite(folder, SAT, MISSED, "");
    let (code, table, _) = run(&[]);
    assert!(
        code == 1
            && table.contains("Replace the module.")
            && table.contains("fail, 1 of 1 gates block"),
        "{code} {table}"
    );
    suite(folder, "", REACHED, "");
    assert_eq!(run(&[]).0, 2, "no answer");
    suite(folder, SAT, REACHED, "needs = [\"drained\"]\n");
    assert_eq!(run(&[]).0, 2, "it was not run, and it is required");
    assert_eq!(run(&["--drained"]).0, 0);
    suite(folder, SAT, MISSED, "");
    let document: Value = serde_json::from_str(&run(&["--json"]).1).unwrap();
    assert_eq!(document["results"][0]["finding"], "Replace the module.");
    suite(folder, SAT, MISSED, "shadow = true\n");
    assert_eq!(run(&[]).0, 0, "a shadow is only told");
    for more in [
        &["--only", "b"][..],
        &["--what"],
        &["--set", "x"],
        &["--suite", "no-such-suite"],
    ] {
        let (code, _, said) = run(more);
        assert!(code == 64 && !said.is_empty(), "{more:?}: {code} {said}");
    }
    suite(folder, SAT, REACHED, "retries = 9\n");
    let (code, _, said) = run(&[]);
    assert!(
        code == 64 && said.contains("at most 3 retries"),
        "{code} {said}"
    );
}

/// A program of the caller's own PATH would run as root.
#[test]
fn a_program_is_found_in_the_folders_of_the_node_and_not_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    suite(
        folder,
        SAT,
        REACHED,
        "needs = [\"drained\"]\neffects = [\"memory_load\"]\n",
    );
    let path = folder.join("suite.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (argv, answer) = ("argv = [", folder.join("answer"));
    let own = text.lines().find(|line| line.starts_with(argv)).unwrap();
    std::fs::write(&path, text.replace(own, "argv = [\"stressapptest\"]")).unwrap();
    let put = |place: &str, lines: &str| {
        let place = folder.join(place);
        std::fs::create_dir_all(&place).unwrap();
        let tool = place.join("stressapptest");
        std::fs::write(&tool, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let foreign = folder.join("foreign");
    put("evil", &format!("touch {}", foreign.display()));
    put("usr/local/bin", &format!("cat {}", answer.display()));
    let search = format!("{}:/usr/bin:/bin", folder.join("evil").display());
    let ended = Command::new(env!("CARGO_BIN_EXE_muster-node"))
        .args(["gate", "--suite", "suite.toml", "--profile", "virtual-node"])
        .arg("--drained")
        .current_dir(folder)
        .env("MUSTER_ROOT", folder)
        .env("PATH", search)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(!foreign.exists());
}

#[test]
fn a_suite_of_a_foreign_program_starts_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    suite(folder, SAT, REACHED, "");
    let path = folder.join("suite.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let own = text.lines().find(|line| line.starts_with("argv")).unwrap();
    let started = folder.join("started");
    let foreign = format!("argv = [\"setsid\", \"touch\", {started:?}]");
    std::fs::write(&path, text.replace(own, &foreign)).unwrap();
    let ended = muster_node(
        folder,
        &["--suite", "suite.toml", "--profile", "virtual-node"],
    );
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(
        ended.status.code() == Some(64) && said.contains("\"setsid\" is no program of parser"),
        "{said}"
    );
    assert!(!started.exists());
}

#[test]
fn missing_limits_of_the_tools_are_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    suite(folder, SAT, REACHED, "");
    let ended = muster_node(
        folder,
        &["--suite", "suite.toml", "--profile", "virtual-node"],
    );
    // A private root has no unit of systemd, so no cgroup either.
    let said = String::from_utf8(ended.stderr).unwrap();
    let named = said.matches("without a limit of processes and memory");
    assert_eq!(named.count(), 1, "{said}");
}

#[test]
fn the_document_is_whole_and_the_shipped_suites_are_in_the_binary() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    suite(folder, SAT, REACHED, "");
    let ended = muster_node(
        folder,
        &[
            "--suite",
            "suite.toml",
            "--profile",
            "virtual-node",
            "--json",
        ],
    );
    let document: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        (document["verdict"].as_str(), document["profile"].as_str()),
        (Some("pass"), Some("virtual-node"))
    );
    assert!(
        document["fingerprint"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    let result: GateResult = serde_json::from_value(document["results"][0].clone()).unwrap();
    assert_eq!(result.finding, "", "it passed");
    assert!(
        result.verdict == Verdict::Pass && result.evidence.is_whole(),
        "{result:?}"
    );

    let listed = muster_node(folder, &["--list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in [
        "admit",
        "smoke",
        "sweep",
        "deep",
        "fabric",
        "pairs",
        "hgx-h100-80g",
        "mi300x",
    ] {
        assert!(
            listed
                .lines()
                .any(|line| line.split_whitespace().nth(1) == Some(name)),
            "{name}: {listed}"
        );
    }
    // Without a GPU, the gate does not pass.
    let smoke = muster_node(
        folder,
        &[
            "--suite",
            "smoke",
            "--profile",
            "hgx-h100-80g",
            "--only",
            "gpu.inventory",
        ],
    );
    assert_ne!(smoke.status.code(), Some(0));
}

/// The blocks of a language in the documentation.
fn blocks(language: &str) -> Vec<&'static str> {
    let opened = format!("```{language}\n");
    DOCUMENT
        .split(opened.as_str())
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_gate_of_the_documentation_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = blocks("toml")[0];
    let mut suite: Suite = toml::from_str(text).unwrap();
    assert_eq!(lint(&suite), Vec::<String>::new());
    let own = text
        .lines()
        .skip_while(|line| *line != "[[gates]]")
        .take_while(|line| !line.starts_with("criteria"));
    assert!(own.count() <= 10, "it says ten lines");
    // The tool may be missing on the machine of the test: a recording answers.
    std::fs::write(folder.join("answer"), SAT).unwrap();
    suite.gates[0].argv = vec![
        programs::ship(folder, "cat"),
        folder.join("answer").to_string_lossy().into_owned(),
    ];
    std::fs::write(folder.join("mine.toml"), toml::to_string(&suite).unwrap()).unwrap();
    let ended = muster_node(
        folder,
        &[
            "--suite",
            "mine.toml",
            "--profile",
            "virtual-node",
            "--drained",
        ],
    );
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(
        ended.status.code() == Some(0) && said.contains("pass     mine.memory"),
        "{said}"
    );
}

#[test]
fn the_thresholds_of_the_documentation_are_sound() {
    let base = "model = \"m\"\nsockets = 1\ncores_per_socket = 1\nmemory_mib = 1\nschedulable_memory_mib = 1\npower_max_w = 1\n[root_disk]\n";
    for block in &blocks("toml")[2..] {
        let profile = toml::from_str(&format!("{base}{block}"))
            .unwrap_or_else(|error| panic!("{block}: {error}"));
        assert_eq!(muster_core::gates::lint_profile(&profile), []);
    }
    assert_eq!(blocks("toml").len(), 5);
}

#[test]
fn the_pair_of_the_documentation_is_sound() {
    let own = "name = \"s\"\nversion = \"1\"\n[[gates]]\nid = \"a\"\ntitle = \"t\"\nstage = \"pair\"\nparser = \"iperf3\"\ntimeout_s = 40\n\
               needs = [\"drained\"]\neffects = [\"network_load\"]\nfinding = \"f\"\n\
               criteria = [{ metric = \"network.received\", op = \">=\", limit = 1, unit = \"Gb/s\" }]\n";
    let suite: Suite = toml::from_str(&format!("{own}{}", blocks("toml")[1])).unwrap();
    assert!(suite.gates[0].peer.is_some());
    assert_eq!(lint(&suite), Vec::<String>::new());
}

//! Gates that ask the same share one answer while nothing changed, and gates that look at what grew ask twice.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use muster_core::facts::Facts;
use muster_core::gates::{Gate, GateResult, Need, SideEffect, Verdict};

use super::bench::{gate, plan, run_in};

const SAT: &str = include_str!("../../../fixtures/stressapptest-1.0.6.txt");
const PORT: &str = include_str!("../../../fixtures/perfquery-switch-port.txt");

/// A tool that prints `TOOL.1` the first time, `TOOL.2` the second, and so on, or else `TOOL.text`; its runs are counted beside it.
fn tool(folder: &Path) -> String {
    let tool = folder.join("tool");
    let script = "#!/bin/sh\necho run >> $0.runs\nn=$(wc -l < $0.runs)\nif [ -e $0.$n ]; then cat $0.$n; else cat $0.text; fi\n";
    std::fs::write(&tool, script).expect("a script");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    std::fs::write(folder.join("tool.text"), SAT).expect("what it says");
    tool.to_string_lossy().into_owned()
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("tool.runs"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn asking(id: &str, stage: &str, argv: &[&str]) -> Gate {
    let mut gate = gate(&format!(
        "id = \"{id}\"\nstage = \"{stage}\"\nparser = \"stressapptest\"\ntimeout_s = 5\nargv = [\"true\"]\n\
         criteria = [{{ metric = \"memory.incidents\", op = \"==\", limit = 0, unit = \"incidents\" }}]\n"
    ));
    gate.argv = argv.iter().map(ToString::to_string).collect();
    gate
}

fn all(folder: &Path, gates: Vec<Gate>) -> Vec<GateResult> {
    run_in(folder, &plan(gates), &Facts::default()).expect("results")
}

#[test]
fn gates_of_a_stage_with_the_same_call_share_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = tool(folder.path());
    let results = all(
        folder.path(),
        ["a", "b", "c"]
            .map(|id| asking(id, "inventory", &[&tool]))
            .to_vec(),
    );
    assert!(
        results.iter().all(|result| result.verdict == Verdict::Pass),
        "{results:?}"
    );
    assert_eq!(runs(folder.path()), 1);
    assert!(results.iter().all(
        |result| result.evidence.stdout.contains("Status: PASS") && result.evidence.is_whole()
    ));
}

#[test]
fn nothing_is_shared_that_may_have_changed() {
    let asked = |change: &dyn Fn(&str) -> Vec<Gate>| {
        let folder = tempfile::tempdir().expect("a folder");
        let tool = tool(folder.path());
        all(folder.path(), change(&tool));
        runs(folder.path())
    };
    let plain = |id: &str, tool: &str| asking(id, "inventory", &[tool]);
    assert_eq!(
        asked(&|tool| vec![plain("a", tool), asking("b", "gpu", &[tool])]),
        2,
        "another stage"
    );
    assert_eq!(
        asked(&|tool| vec![plain("a", tool), asking("b", "inventory", &[tool, "-x"])]),
        2,
        "another question"
    );
    let with = |id: &str, tool: &str| Gate {
        env: [("NCCL_DEBUG".into(), "WARN".into())].into(),
        ..plain(id, tool)
    };
    assert_eq!(
        asked(&|tool| vec![plain("a", tool), with("b", tool)]),
        2,
        "other variables"
    );
    let kept = |id: &str, tool: &str| Gate {
        keep: vec!["notes".into()],
        ..plain(id, tool)
    };
    assert_eq!(
        asked(&|tool| vec![kept("a", tool), kept("b", tool)]),
        2,
        "files are each gate's own"
    );
    let load = |tool: &str| Gate {
        effects: vec![SideEffect::CpuLoad],
        needs: vec![Need::Drained],
        ..asking("load", "inventory", &[tool, "load"])
    };
    assert_eq!(
        asked(&|tool| vec![plain("a", tool), load(tool), plain("b", tool)]),
        3,
        "a load lies between"
    );
    assert_eq!(
        asked(&|tool| vec![
            load(tool),
            Gate {
                id: "again".into(),
                ..load(tool)
            }
        ]),
        2,
        "loads are never shared"
    );
}

#[test]
fn an_answer_that_could_not_be_read_is_nobodys() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = tool(folder.path());
    std::fs::write(folder.path().join("tool.1"), "nothing of it").expect("a bad answer");
    let results = all(
        folder.path(),
        vec![
            asking("a", "inventory", &[&tool]),
            asking("b", "inventory", &[&tool]),
        ],
    );
    assert_eq!(
        [results[0].verdict, results[1].verdict],
        [Verdict::Error, Verdict::Pass]
    );
    assert_eq!(runs(folder.path()), 2);
}

fn counters(argv: &str) -> Gate {
    let mut gate = gate(
        "id = \"ib.counters\"\nstage = \"inventory\"\nparser = \"perfquery\"\ntimeout_s = 5\nwindow_s = 1\nargv = [\"true\"]\n\
         criteria = [{ metric = \"ib.link_downed\", op = \"==\", limit = 0, unit = \"events\" },\n\
                     { metric = \"ib.symbol_errors\", op = \"<=\", limit = 2, unit = \"errors\" }]\n",
    );
    gate.argv = vec![argv.to_owned()];
    gate
}

#[test]
fn only_what_grows_within_the_window_counts() {
    let dots = |name: &str, value: u32| {
        format!(
            "{name}:{}{value}\n",
            ".".repeat(40 - name.len() - value.to_string().len())
        )
    };
    let line = |name: &str| {
        PORT.lines()
            .find(|line| line.starts_with(name))
            .expect("a counter")
            .to_owned()
            + "\n"
    };
    let after = |link: u32, symbols: u32| {
        let port = PORT.replace(&line("LinkDownedCounter"), &dots("LinkDownedCounter", link));
        port.replace(
            &line("SymbolErrorCounter"),
            &dots("SymbolErrorCounter", symbols),
        )
    };
    let told = |first: String, second: String| {
        let folder = tempfile::tempdir().expect("a folder");
        let tool = tool(folder.path());
        std::fs::write(folder.path().join("tool.1"), first).expect("before");
        std::fs::write(folder.path().join("tool.2"), second).expect("after");
        let result = all(folder.path(), vec![counters(&tool)]).remove(0);
        assert!(
            result.verdict != Verdict::Pass || runs(folder.path()) == 2,
            "{result:?}"
        );
        (result.verdict, result.reason)
    };
    // The link went down before: that is another day's news.
    assert_eq!(told(after(3, 70), after(3, 72)).0, Verdict::Pass);
    let (verdict, reason) = told(after(3, 70), after(4, 70));
    assert!(
        verdict == Verdict::Fail
            && reason.contains("ib.link_downed")
            && reason.contains("is 1 events"),
        "{reason}"
    );
    assert_eq!(told(after(3, 70), after(3, 73)).0, Verdict::Fail);
    let (verdict, reason) = told(after(3, 70), after(0, 0));
    assert!(
        verdict == Verdict::Error && reason.contains("it was cleared meanwhile"),
        "{reason}"
    );
    assert_eq!(
        told(after(3, 70), after(3, 70).replace("Lid 2052", "Lid 2053")).0,
        Verdict::Error,
        "another port"
    );
    assert_eq!(told(after(3, 70), String::new()).0, Verdict::Error);
}

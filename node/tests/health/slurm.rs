//! The kernel's log, and drains of the node in Slurm.

use super::*;

#[test]
fn a_fault_in_the_kernels_log_is_told_until_slurm_took_it_and_not_again() {
    let node = Node::new();
    node.looks_at_the_log(
        "6,1,1000000,-;quiet\n3,2,2000000,-;NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n",
    );
    let slurm = |answers: &str| {
        node.program(
            "scontrol",
            &format!("echo '   State=IDLE ThreadsPerCore=1'\n{answers}"),
        )
    };
    let anew = ["--max-age", "0"];
    assert_eq!(
        (node.health(&anew).0, node.health(&anew).0),
        (1, 1),
        "an exit code tells nobody the reason"
    );
    slurm("exit 1");
    assert_eq!(
        (node.health(&["--drain"]).0, node.health(&["--drain"]).0),
        (1, 1),
        "its controller is away"
    );
    slurm("exit 0");
    let (code, said) = node.health(&["--drain"]);
    assert!(
        code == 1 && said.contains("kernel.xid_fatal is 1 events"),
        "{code} {said}"
    );
    let (code, said) = node.health(&anew);
    assert!(code == 0 && said.starts_with("pass"), "{code} {said}");
}

#[test]
fn an_overwritten_log_gives_no_answer_once() {
    let node = Node::new();
    node.looks_at_the_log("6,700,1000000,-;quiet\n");
    let strict = ["--strict", "--max-age", "0"];
    let (code, said) = node.health(&strict);
    assert!(
        code == 1 && said.starts_with("unknown"),
        "its beginning is gone: {code} {said}"
    );
    assert_eq!(node.health(&strict).0, 0, "and was told");
}

/// Returns the words of the last update in Slurm. Returns `None` without a new update.
fn written(node: &Node) -> Option<Vec<String>> {
    let told = node.path().join("told");
    let words = std::fs::read_to_string(&told)
        .ok()?
        .lines()
        .map(str::to_owned)
        .collect();
    std::fs::remove_file(&told).unwrap();
    Some(words)
}

/// Installs the program `scontrol`. The program shows the node in the given state, and accepts
/// every update.
fn shown(node: &Node, state: &str) {
    let show = format!(
        "if [ \"$1\" = show ]; then printf 'NodeName=n7 Arch=x86_64\\n   State={state}\\n'; exit; fi"
    );
    node.program(
        "scontrol",
        &format!(
            "{show}\nprintf '%s\\n' \"$@\" >{}",
            node.path().join("told").display()
        ),
    );
}

#[test]
fn a_health_check_drains_what_is_not_fit_by_its_name_in_slurm() {
    let node = Node::new();
    shown(&node, "IDLE ThreadsPerCore=1");
    node.answers(SAT, REACHED);
    assert_eq!(node.health(&["--drain"]).0, 0);
    assert_eq!(written(&node), None, "it is fit");
    node.answers(SAT, MISSED);
    assert_eq!(node.health(&["--drain"]).0, 1);
    let words = written(&node).unwrap();
    assert_eq!(words[..3], ["update", "NodeName=n7", "State=DRAIN"]);
    assert!(
        words[3].starts_with("Reason=muster: gate memory: memory.bandwidth") && words.len() == 4,
        "{words:?}"
    );
}

#[test]
fn a_foreign_drain_keeps_its_reason_and_ours_emits_no_event() {
    let node = Node::new();
    node.answers(SAT, MISSED);
    let with = |state: &str, reason: &str| {
        shown(
            &node,
            &format!("{state} ThreadsPerCore=1\\n   Reason={reason}"),
        )
    };
    for (state, reason, drained) in [
        (
            "IDLE+DRAIN",
            "replacing fan 3 [bob@2026-11-20T09:19:17]",
            false,
        ),
        ("DOWN", "broken fan [alice@2026-11-20T09:19:17]", false),
        (
            "IDLE+DRAIN",
            "muster: gate memory: another value [root@2026-11-20T09:19:17]",
            false,
        ),
        (
            "IDLE+DRAIN",
            "muster: gate other: x [root@2026-11-20T09:19:17]",
            false,
        ),
        (
            "IDLE+DRAIN",
            "muster: measured, back in a while [root@2026-11-20T09:19:17]",
            true,
        ),
        ("DOWN", "Not responding [slurm@2026-11-20T09:19:17]", true),
        (
            "IDLE",
            "of a drain that is over [bob@2026-11-20T09:19:17]",
            true,
        ),
    ] {
        with(state, reason);
        assert_eq!(
            node.health(&["--drain", "--max-age", "0"]).0,
            1,
            "{state} {reason}"
        );
        assert_eq!(written(&node).is_some(), drained, "{state} {reason}");
    }
    // The check does not update a node with an unreadable state.
    node.program(
        "scontrol",
        &format!(
            "[ \"$1\" = update ] && touch {}",
            node.path().join("told").display()
        ),
    );
    let (code, said) = node.health(&["--drain"]);
    assert!(
        code == 1 && said.contains("scontrol") && written(&node).is_none(),
        "{code} {said}"
    );
    shown(&node, "");
    let (code, said) = node.health(&["--drain"]);
    assert!(
        code == 1 && said.contains("not understood") && written(&node).is_none(),
        "{code} {said}"
    );
}

#[test]
fn a_fault_that_a_drain_of_somebody_else_hides_is_not_taken_as_told() {
    let node = Node::new();
    node.looks_at_the_log(
        "6,1,1000000,-;quiet\n3,2,2000000,-;NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n",
    );
    shown(
        &node,
        "IDLE+DRAIN ThreadsPerCore=1\\n   Reason=fans [bob@2026-11-20T09:19:17]",
    );
    for _ in 0..2 {
        let (code, said) = node.health(&["--drain"]);
        assert!(
            code == 1 && said.contains("for another reason and stays unchanged: fans"),
            "{code} {said}"
        );
    }
    shown(&node, "IDLE ThreadsPerCore=1");
    assert_eq!(
        node.health(&["--drain"]).0,
        1,
        "it serves again, and the fault is still there"
    );
    assert!(written(&node).unwrap()[3].starts_with("Reason=muster: gate kernel.new"));
}

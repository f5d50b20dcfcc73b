//! Operations of nodes: asked, waited for, planned.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::fleet;
use crate::muster::{Server, muster};

#[test]
fn nodes_are_asked_and_operations_waited_for() {
    let server = fleet();
    let done = server
        .muster(&[
            "node",
            "quarantine",
            "gpu-1",
            "--reason",
            "a fan rattles",
            "--wait",
            "-o",
            "json",
        ])
        .expect(0);
    assert_eq!(done.json()["state"], "succeeded");
    let lines = server.muster(&[
        "node",
        "quarantine",
        "gpu-2",
        "gpu-1",
        "--reason",
        "a fan rattles",
        "--wait",
    ]);
    // A node quarantined before does not stop the order for the second node.
    lines
        .expect(4)
        .says("gpu-1: ")
        .says("quarantine gpu-2: succeeded");
    server
        .muster(&["node", "why", "gpu-1"])
        .expect(0)
        .says("because a fan rattles");
    server
        .muster(&["node", "describe", "gpu-1"])
        .expect(0)
        .says("a fan rattles")
        .says("52:54:00:00:00:01");
    server
        .muster(&["node", "list", "--filter", "state=quarantined"])
        .expect(0)
        .says("gpu-1");
    assert_eq!(
        server
            .muster(&["node", "list", "-f", "state=in_service", "-o", "name"])
            .expect(0)
            .out,
        ""
    );
    server.muster(&["node", "get", "nobody"]).expect(3);
    let operations = server
        .muster(&["operation", "list", "--node", "gpu-1", "--json"])
        .expect(0)
        .json();
    assert_eq!(operations.as_array().unwrap().len(), 2);
    server
        .muster(&["event", "list", "--limit", "1", "--json"])
        .expect(0)
        .says("the local administrator admin was created on the host");
    server
        .muster(&["node", "events", "gpu-1"])
        .expect(0)
        .says("gpu-1 registered");
    watch_and_cancel(&server);
}

/// Starts an operation in a site without an agent. A timeout, Ctrl-C and a cancellation end the
/// watch.
fn watch_and_cancel(server: &Server) {
    let quiet = server
        .muster(&["node", "recover", "gpu-1", "-q", "-o", "name"])
        .expect(0);
    assert_eq!(quiet.err, "");

    // No agent takes the job.
    let id = quiet.out.trim();
    let late = server
        .muster(&["operation", "watch", id, "--timeout", "1s"])
        .expect(8);
    let late = late.says(&format!("To go on watching: muster operation watch {id}"));
    assert!(
        late.err.contains("waits for the site's agent"),
        "progress is told in lines: {}",
        late.err
    );
    interrupted(server, id);
    server.muster(&["operation", "cancel", id]).expect(0);
    server
        .muster(&["operation", "watch", id, "--timeout", "60s"])
        .expect(9)
        .says("cancelled");
}

/// Ctrl-C ends the watch, and the program prints the command to continue.
fn interrupted(server: &Server, id: &str) {
    let mut command = muster(server.dir.path(), &["operation", "watch", id]);
    command
        .env("MUSTER_SERVER", &server.url)
        .env("MUSTER_TOKEN", server.token());
    let mut child = command
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    assert!(first.contains("waits for"), "{first}");
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let rest: Vec<String> = told.map_while(Result::ok).collect();
    assert!(
        rest.iter()
            .any(|line| line.contains(&format!("muster operation watch {id}"))),
        "{rest:?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn what_cannot_be_taken_back_is_planned_first() {
    let server = fleet();
    let reason = ["--reason", "a fan rattles"];
    let plan = |arguments: &[&str]| server.muster(&[arguments, &reason, &["--plan"]].concat());
    plan(&["node", "quarantine", "gpu-1"])
        .expect(0)
        .says("effect: ");
    assert_eq!(
        server
            .muster(&["operation", "list", "--node", "gpu-1", "-o", "name"])
            .expect(0)
            .out
            .lines()
            .count(),
        1
    );
    server
        .muster(&[&["node", "quarantine", "gpu-1", "--wait"][..], &reason].concat())
        .expect(0);
    plan(&["node", "wipe", "gpu-1"])
        .expect(0)
        .says("effect: wipe")
        .says("gpu-1: ");
    plan(&["node", "retire", "gpu-1"])
        .expect(0)
        .says("effect: ");
    let both = plan(&["node", "wipe", "gpu-1", "gpu-2"]).expect(0);
    let refused = both
        .out
        .lines()
        .find(|line| line.starts_with("gpu-2"))
        .unwrap();
    assert!(
        refused.contains("wipe is possible in") && both.out.contains("NODE"),
        "{}",
        both.out
    );
    plan(&["node", "wipe", "gpu-2"])
        .expect(4)
        .says("wipe is possible in");
    plan(&["node", "replace-parts", "gpu-1", "--part", "disk:A=B"])
        .expect(2)
        .says("never had");
    server
        .muster(&["node", "wipe", "gpu-1", "--plan", "--wait"])
        .expect(2);
    let node = server
        .muster(&["node", "get", "gpu-1", "-o", "json"])
        .expect(0)
        .json();
    assert_eq!(node["status"]["state"], "quarantined");
    assert_eq!(
        server
            .muster(&["operation", "list", "--node", "gpu-1", "-o", "name"])
            .expect(0)
            .out
            .lines()
            .count(),
        2
    );
    server
        .muster(&["claim", "release", "none", "--plan"])
        .expect(3);
    server
        .muster(&["rack", "delete", "r1", "--plan"])
        .expect(0)
        .says("could be removed");
    server.muster(&["rack", "get", "r1"]).expect(0);
}

#[test]
fn records_of_a_node_are_held_and_released() {
    let server = fleet();
    let hold = ["node", "hold-records", "gpu-1", "--reason", "case 7"];
    server
        .muster(&hold)
        .expect(0)
        .says("the records of gpu-1 are kept since")
        .says("case 7");
    let release = ["node", "release-records", "gpu-1", "--reason", "it is over"];
    server
        .muster(&release)
        .expect(0)
        .says("old records of gpu-1 are removed again");
    server.muster(&release).expect(3);
}

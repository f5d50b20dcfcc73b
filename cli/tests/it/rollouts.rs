//! Disruption budgets and rollouts, as a person types the commands, against the server's own tasks.

use crate::machines::Fleet;

/// Two claims in service, and a published revision 2.
fn serving() -> Fleet {
    let fleet = Fleet::start(2);
    let made = fleet.muster("claim create --pool gpu --count 2 --wait -q");
    made.expect(0);
    let stack = fleet.muster("stack get base -o json").expect(0).json();
    let mut spec = stack["spec"].clone();
    spec["version"] = "2".into();
    spec["kernel_args"] = serde_json::json!(["iommu=pt"]);
    let text = serde_json::json!({ "kind": "stack", "name": "base", "spec": spec });
    fleet
        .server
        .typed(&["apply", "-f", "-", "-q"], &text.to_string())
        .expect(0);
    fleet
}

#[test]
fn a_rollout_is_planned_started_watched_and_halted() {
    let fleet = serving();
    let policy = fleet.server.dir.path().join("policy.json");
    let text = r#"{"canary": {"count": 1, "soak_s": 0}, "failure_budget": {"count": 0}}"#;
    std::fs::write(&policy, text).unwrap();
    let plan = format!("rollout plan gpu --policy {} --revision", policy.display());

    let planned = fleet.muster(&format!("{plan} 2 --halt-on-alert Fabric"));
    let planned = planned.expect(0).out;
    let start = planned
        .lines()
        .find_map(|line| line.strip_prefix("start it with: muster "))
        .unwrap_or_else(|| panic!("{planned}"));
    assert!(planned.contains("gpu-1: planned to revision 2 of gpu, 2 nodes planned"));
    assert!(planned.contains("stops at the 1st failure over the whole run; 0 so far"));
    let wrong = start.replace("sha256:", "sha256:0");
    fleet.muster(&wrong).expect(4);
    let started = fleet.muster(start).expect(0).out;
    assert!(started.contains("gpu-1: running"), "{started}");
    let shown = fleet.muster("rollout show gpu-1 -o json").expect(0).json();
    let alerts = serde_json::json!([{ "alert": "Fabric" }]);
    assert_eq!(shown["policy"]["halt_when"], alerts);
    let watched = fleet.muster("rollout watch gpu-1").expect(0).out;
    let last = watched.lines().last().unwrap();
    assert!(
        last.starts_with("gpu-1 done [####################] 2 done"),
        "{watched}"
    );
    let running = "claim list -o json";
    let claims = fleet.muster(running).expect(0).json();
    for claim in claims.as_array().unwrap() {
        assert_eq!(claim["status"]["running_revision"], 2, "{claim}");
    }

    // The way back is halted before the second node, skipped there, and resumed to the end.
    fleet.muster(&format!("{plan} 1")).expect(0);
    fleet.muster("rollout start gpu-2 --yes").expect(0);
    let halted = fleet.muster("rollout halt gpu-2 --reason lunch").expect(0);
    assert!(halted.out.contains("gpu-2: halted"), "{}", halted.out);
    let watched = fleet.muster("rollout watch gpu-2");
    assert_ne!(watched.code, 0, "{}", watched.out);
    assert!(watched.out.contains("lunch"), "{}", watched.out);
    let adjust = "rollout adjust gpu-2 --reason careful";
    let options =
        "--max-changing 1 --failures 2 --halt-on-alert Fabric --halt-on-alert Disk -o json";
    let adjusted = fleet
        .muster(&format!("{adjust} {options}"))
        .expect(0)
        .json();
    assert_eq!(adjusted["policy"]["budgets"]["max_changing"], 1);
    let count = serde_json::json!({ "count": 2 });
    assert_eq!(adjusted["policy"]["failure_budget"], count);
    let alerts = serde_json::json!([{ "alert": "Fabric" }, { "alert": "Disk" }]);
    assert_eq!(adjusted["policy"]["halt_when"], alerts);
    let unknown = fleet.muster(&format!("{adjust} --halt-on-monitor nope"));
    let told = "There is no monitor called \"nope\".";
    assert!(unknown.err.contains(told), "{}", unknown.err);
    let early = fleet.muster("rollout requeue gpu-2 n2 --reason now");
    assert!(early.err.contains("n2 is not_begun"), "{}", early.err);
    let nothing = fleet.muster(adjust);
    assert!(
        nothing.err.contains("no change is named"),
        "{}",
        nothing.err
    );
    let fixed = fleet.muster(&format!("{adjust} --policy {}", policy.display()));
    assert!(fixed.err.contains("fixed by the plan"), "{}", fixed.err);
    fleet.muster("rollout skip gpu-2 n2 --reason later");
    fleet
        .muster("rollout promote gpu-2 --reason known")
        .expect(0);
    fleet.muster("rollout resume gpu-2 --reason back").expect(0);
    fleet.muster("rollout watch gpu-2").expect(0);
    let listed = fleet.muster("rollout list --pool gpu").expect(0).out;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let shown = fleet.muster("rollout show gpu-2").expect(0).out;
    assert!(
        shown.contains("gpu-2: done to revision 1 of gpu"),
        "{shown}"
    );
    let late = fleet.muster("rollout retry gpu-2 n2 --reason now");
    assert!(late.err.contains("gpu-2 is done"), "{}", late.err);
}

#[test]
fn a_request_beyond_the_budget_waits_and_says_so() {
    let fleet = serving();
    let budget = fleet.muster("pool budget gpu").expect(0).out;
    assert_eq!(
        budget,
        "pool gpu: 0 of 2 nodes out, 1 may be out (max_unavailable 10%)\n"
    );
    let maintain = "node maintain n1 --reason fan --wait -q";
    fleet.muster(maintain).expect(0);
    fleet.muster("node drain n2").expect(0);
    fleet.until("node list --filter state=maintenance", 1);
    let why = fleet.muster("node why n2").expect(0).out;
    let full = "the pool has 1 of 2 nodes out, and 1 may be out at a time";
    assert!(why.contains(full), "{why}");
    let budget = fleet.muster("pool budget gpu").expect(0).out;
    let waiting = budget.lines().last().unwrap();
    assert!(waiting.starts_with("waiting  n2 "), "{budget}");
    assert!(waiting.contains(full), "{budget}");
    let claim = fleet.value("node get n1", "/status/claim");
    let written_off = fleet.muster(&format!("claim write-off {claim} --for 1d --reason RMA"));
    let written_off = written_off.expect(0).out;
    let told = "n1 does not count against disruption budgets until ";
    assert!(written_off.starts_with(told), "{written_off}");
    fleet.until("node list --filter state=maintenance", 2);
    fleet
        .muster(&format!("claim write-off {claim} --end --reason back"))
        .expect(0);
    let budget = fleet.muster("pool budget gpu").expect(0).out;
    assert!(budget.starts_with("pool gpu: 2 of 2 nodes out, 1 may be out"));
}

//! Suites and profiles as they come with Muster, from the program onto a server and into a pool: docs/gates.md, typed.

use serde_json::json;

use crate::machines::Fleet;
use crate::muster::{file, folder, muster, run};

#[test]
fn what_comes_with_muster_is_shown_as_it_is_written() {
    let home = folder();
    let typed = |arguments: &[&str]| run(&mut muster(home.path(), arguments), "");
    assert_eq!(
        typed(&["gate", "show", "smoke"]).expect(0).out,
        file("suites/smoke.toml")
    );
    assert_eq!(
        typed(&["gate", "show", "hgx-h100-80g"]).expect(0).out,
        file("suites/profiles/hgx-h100-80g.toml")
    );
    assert_eq!(
        typed(&["gate", "show", "smoke", "--json"]).expect(0).json()["name"],
        "smoke"
    );
    typed(&["gate", "show", "smok"])
        .expect(3)
        .says("there are admit");
}

#[test]
fn a_shipped_suite_and_profile_are_brought_to_a_pool() {
    let fleet = Fleet::start(0);
    fleet
        .muster("suite set admit --file shipped:admit")
        .expect(0)
        .says("suite admit created");
    fleet
        .muster("suite set admit --file shipped:admit")
        .expect(0)
        .says("unchanged");
    fleet
        .muster("hardware_profile set hgx-h100-80g --file shipped:hgx-h100-80g")
        .expect(0)
        .says("created");
    fleet
        .muster("apply --file shipped:sweep --file shipped:smoke --yes")
        .expect(0)
        .says("suite sweep created");
    let pool = "pool set gpu --spec suite=admit --spec health.smoke=smoke --spec health.sweep=sweep --spec profile=hgx-h100-80g";
    fleet.muster(pool).expect(0).says("pool gpu changed");
    let read = fleet.muster("suite get admit --json").expect(0).json();
    assert_eq!(
        (&read["spec"]["name"], &read["spec"]["gates"][0]["id"]),
        (&json!("admit"), &json!("inventory.facts"))
    );

    // One's own, from what was shown.
    let path = fleet.server.dir.path().join("ours.toml");
    let ours =
        file("suites/profiles/hgx-h100-80g.toml").replacen("power_max_w = ", "power_max_w = 1", 1);
    std::fs::write(&path, &ours).unwrap();
    let path = path.display().to_string();
    fleet
        .muster(&format!("apply --file {path} --yes"))
        .expect(0)
        .says("hardware_profile ours created");
    fleet
        .muster(&format!("hardware_profile set ours --file {path}"))
        .expect(0)
        .says("unchanged");
    std::fs::write(&path, "colour = \"red\"\n").unwrap();
    fleet
        .muster(&format!("apply --file {path} --yes"))
        .expect(2)
        .says("neither a suite");
    std::fs::write(&path, "colour = red\n").unwrap();
    fleet
        .muster(&format!("suite set ours --file {path}"))
        .expect(1)
        .says("ours.toml");
    fleet
        .muster("suite set admit --file shipped:admitt")
        .expect(3)
        .says("there are admit");
}

/// Recordings of the real tools, held against the gates that come with Muster.
#[test]
fn a_kept_answer_is_held_against_a_gate() {
    let home = folder();
    let fixture = |name: &str| format!("{}/../node/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let of = [
        "gate",
        "try",
        "--suite",
        "admit",
        "--profile",
        "hgx-h100-80g",
        "--only",
    ];
    let tried = |gate: &str, more: &[&str]| {
        run(
            &mut muster(home.path(), &[&of[..], &[gate], more].concat()),
            "",
        )
    };
    let good = fixture("smartctl-7.1-nvme-good.json");
    tried("disk.smart", &[&good])
        .expect(0)
        .says("disk.smart: pass")
        .says("smart.critical_warning");
    let read = tried("disk.smart", &[&good, "--json"]).expect(0).json();
    assert!(
        read["verdict"] == "pass" && !read["measured"].as_array().unwrap().is_empty(),
        "{read}"
    );
    // An A100's links at 25 GB/s are not an H100's.
    let slow = tried("gpu.nvlink", &[&fixture("nvidia-smi-a100-nvlink.txt")]).expect(1);
    slow.says("fail   nvlink.link_speed")
        .says("would end with fail");
    tried("disk.smrt", &[&good]).expect(3).says("disk.smart");
    tried("node.profile", &[&good]).expect(3);
    tried("inventory.facts", &[&good])
        .expect(1)
        .says("measures by itself");
    tried("disk.smart", &[&fixture("nowhere.json")])
        .expect(1)
        .says("nowhere.json");
    run(
        &mut muster(home.path(), &["gate", "parse", "facts", &good]),
        "",
    )
    .expect(1)
    .says("measures by itself");
}

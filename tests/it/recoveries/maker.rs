//! What a node's maker wants to see, in one download.

use muster_core::gates::Verdict;
use serde_json::{Value, json};

use super::{serving, watched};
use crate::simulated::World;

/// What an agent read of the node's BMC, and what it brought of it when a job failed.
async fn its_bmc_says(world: &World) {
    let inventory = json!({ "firmware": [{ "id": "bmc", "name": "Manager.FirmwareVersion", "version": "1.74" }],
        "bios": { "NumaNodesPerSocket": 4 }, "unread": ["the firmware inventory: it lists none"] });
    sqlx::query("INSERT INTO bmc_inventories (node_id, first_seen, last_seen, inventory) SELECT id, now(), now(), $1 FROM nodes")
        .bind(inventory)
        .execute(&world.server.app.pool)
        .await
        .unwrap();
    for (minute, text) in [
        "BMC event log, 2026-01-05T07:59:30Z: Critical: PSU 2 lost its input",
        "BMC event log, without a time: OK: root logged in from 10.78.0.1, password=calvin",
        "BMC sensors: 40 read, 1 not OK; 312 W drawn",
        "BMC sensor Fan 3: 0 RPM, Critical",
        "the BMC's event log cannot be read: 10.78.0.1 did not answer",
    ]
    .iter()
    .enumerate()
    {
        sqlx::query("INSERT INTO job_logs (job_id, attempt, at, text) SELECT max(id::text)::uuid, 1, now() + make_interval(mins => $2), $1 FROM jobs")
            .bind(text)
            .bind(i32::try_from(minute).unwrap())
            .execute(&world.server.app.pool)
            .await
            .unwrap();
    }
}

fn holds_what_its_bmc_said(bmc: &str, log: &str) {
    let bmc: Value = serde_json::from_str(bmc).unwrap();
    assert_eq!(
        (
            &bmc["firmware"][0]["version"],
            &bmc["bios_attributes"]["NumaNodesPerSocket"]
        ),
        (&json!("1.74"), &json!(4))
    );
    assert_eq!(
        (&bmc["could_not_be_read"][0], &bmc["log_lines"]),
        (&json!("the firmware inventory: it lists none"), &json!(4))
    );
    let said = [
        "PSU 2 lost",
        "root logged in from [address], password=[removed]",
        "312 W drawn",
        "Fan 3: 0 RPM, Critical",
    ];
    let places: Vec<_> = said.iter().map(|word| log.find(word)).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "oldest first: {log}"
    );
    assert_eq!(log.lines().count(), 4, "{log}");
}

#[tokio::test]
async fn one_download_says_what_its_maker_asks() {
    let mut world = serving(1, watched(&["reboot", "rma"])).await;
    world.machine("n1", |machine| machine.turns.clear());
    world.gates("n1", &[Verdict::Fail, Verdict::Fail]);
    world.ask("n1", "sweep").await.expect(202);
    world.settle().await;
    let said = "kernel: NVRM: Xid 79\nBMC login password=calvin\n";
    sqlx::query(
        "INSERT INTO console_chunks (node_id, id, at, text) SELECT id, 1, now(), $1 FROM nodes",
    )
    .bind(said)
    .execute(&world.server.app.pool)
    .await
    .unwrap();
    its_bmc_says(&world).await;
    let url = world.server.listen().await;
    let token = world
        .admin
        .token
        .clone()
        .map(muster_core::values::Secret::new);
    let client = muster_api::client::Client::new(&url, token).unwrap();
    let packed = client.node_rma("n1").await.unwrap();
    let archive = zstd::decode_all(packed.as_slice()).unwrap();

    // Any tar opens it.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rma.tar"), &archive).unwrap();
    let opened = std::process::Command::new("tar")
        .args(["-xf", "rma.tar"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(opened.status.success(), "{opened:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let manifest = read("MANIFEST");
    let mut files = 0;
    for line in manifest.lines() {
        let (digest, name) = line.split_once("  ").unwrap();
        assert_eq!(
            muster_core::values::Digest::of(read(name).as_bytes()).to_string(),
            digest,
            "{name}"
        );
        files += 1;
    }
    assert!(files >= 8, "{manifest}");
    let parts: Value = serde_json::from_str(&read("components.json")).unwrap();
    assert!(
        parts
            .as_array()
            .unwrap()
            .iter()
            .any(|part| part["serial"] == "ROOT-n1"),
        "{parts}"
    );
    assert!(
        read("recoveries.json").contains("\"spent\"")
            && read("timeline.txt").contains("recovery.started")
    );
    let run = std::fs::read_dir(folder.path().join("gate-runs"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let newest = run
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .min()
        .unwrap();
    let newest: Value = serde_json::from_str(&std::fs::read_to_string(newest).unwrap()).unwrap();
    assert_eq!(
        (
            newest["verdict"].as_str(),
            newest["results"][0]["gate"].as_str()
        ),
        (Some("fail"), Some("node.profile"))
    );
    holds_what_its_bmc_said(&read("bmc.json"), &read("bmc-log.txt"));
    // Not what somebody typed, and not how to reach it.
    assert_eq!(
        read("console.txt"),
        "kernel: NVRM: Xid 79\nBMC login password=[removed]\n"
    );
    let text = String::from_utf8_lossy(&archive);
    for secret in ["calvin", "10.78.0.1", "ssh-ed25519"] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert_eq!(world.admin.get("/v1/nodes/nobody/rma").await.status, 404);
    world.check().await;
}

//! Objects of every noun: written, listed, planned, removed.

use serde_json::json;

use super::fleet;
use crate::muster::Server;

#[test]
fn objects_are_created_changed_listed_and_removed_by_every_noun_alike() {
    let server = fleet();
    change_rack(&server);
    create_racks(&server);
    list_racks(&server);
    show_racks(&server);
    server
        .muster(&["rack", "delete", "r3", "--dry-run"])
        .expect(0)
        .says("could be removed");
    server
        .muster(&["rack", "delete", "r2", "r3"])
        .expect(0)
        .says("rack r3 removed");
    server.muster(&["rack", "get", "r3"]).expect(3);
    server
        .muster(&["site", "delete", "lab"])
        .expect(4)
        .says("referred to");
    server.muster(&["tower", "list"]).expect(2);
}

/// Changes a rack, and has wrong changes refused.
fn change_rack(server: &Server) {
    server
        .muster(&["site", "create", "lab"])
        .expect(4)
        .says("exists");
    server
        .muster(&["rack", "set", "r1", "--spec", "units=42"])
        .expect(0)
        .says("unchanged");
    server
        .muster(&["rack", "set", "r1", "--spec", "units=48", "--label", "row="])
        .expect(0)
        .says("changed");
    let rack = server
        .muster(&["rack", "get", "r1", "-o", "json"])
        .expect(0)
        .json();
    assert_eq!(
        (
            &rack["spec"]["units"],
            &rack["spec"]["site"],
            &rack["labels"]
        ),
        (&json!(48), &json!("lab"), &json!({}))
    );
    server
        .muster(&["rack", "set", "r1", "--spec", "colour=red"])
        .expect(2)
        .says("/spec/colour");
}

/// Creates two racks after a dry run.
fn create_racks(server: &Server) {
    // A dry run creates no rack.
    let tried = [
        "rack",
        "create",
        "r9",
        "--spec",
        "site=lab",
        "--spec",
        "units=1",
        "--spec",
        "power_budget_w=1",
        "--dry-run",
    ];
    server.muster(&tried).expect(0).says("would be created");
    server.muster(&["rack", "get", "r9"]).expect(3);
    for name in ["r2", "r3"] {
        let spec = [
            "--spec",
            "site=lab",
            "--spec",
            "units=42",
            "--spec",
            "power_budget_w=1000",
            "--label",
            "row=b",
        ];
        server
            .muster(&[&["rack", "create", name][..], &spec].concat())
            .expect(0);
    }
}

/// Lists racks by names, filters and limits.
fn list_racks(server: &Server) {
    // Nouns as in documents, as in paths, and with dashes.
    assert_eq!(
        server.muster(&["rack", "list", "-o", "name"]).expect(0).out,
        "r1\nr2\nr3\n"
    );
    assert_eq!(
        server
            .muster(&["racks", "list", "-o", "name", "--limit", "2"])
            .expect(0)
            .out,
        "r1\nr2\n"
    );
    assert_eq!(
        server
            .muster(&["rack", "list", "-o", "name", "--sort=-name", "--limit", "1"])
            .expect(0)
            .out,
        "r3\n"
    );
    assert_eq!(
        server
            .muster(&["rack", "list", "-o", "name", "--filter", "label.row=b"])
            .expect(0)
            .out,
        "r2\nr3\n"
    );
    server
        .muster(&["hardware-profile", "list"])
        .expect(0)
        .says("no hardware profiles fit");
    server
        .muster(&["rack", "list", "--sort", "units"])
        .expect(2)
        .says("sort");
}

/// Shows racks in every form.
fn show_racks(server: &Server) {
    let cut = server
        .muster(&[
            "rack",
            "list",
            "--fields",
            "spec.units",
            "--json",
            "--limit",
            "1",
        ])
        .expect(0)
        .json();
    assert_eq!(
        (&cut[0]["spec"], cut[0].get("created_at")),
        (&json!({ "units": 48 }), None)
    );
    server
        .muster(&["rack", "list", "--fields", "spec.units"])
        .expect(0)
        .says("SPEC.UNITS");
    server
        .muster(&["rack", "list", "-o", "wide"])
        .expect(0)
        .says("ID");
    let yaml = server
        .muster(&["rack", "get", "r2", "-o", "yaml"])
        .expect(0);
    assert!(yaml.out.contains("power_budget_w: 1000\n"), "{}", yaml.out);
    let whole = server.muster(&["rack", "describe", "r1"]).expect(0).out;
    assert!(
        whole.starts_with("rack r1\n") && whole.contains("power_budget_w       20000"),
        "{whole}"
    );
}

#[test]
fn a_plan_is_shown_and_what_is_applied_is_told() {
    let server = fleet();
    let wanted = "kind: rack\nname: r1\nspec: {site: lab, units: 48, power_budget_w: 20000}\n---\nkind: rack\nname: r2\nspec: {site: lab, units: 42, power_budget_w: 1}";
    server
        .typed(&["plan", "-f", "-"], wanted)
        .expect(0)
        .says("CHANGE")
        .says("r2");
    server.muster(&["rack", "get", "r2"]).expect(3);
    let done = server
        .typed(&["apply", "-f", "-", "-o", "json"], wanted)
        .expect(0)
        .json();
    assert_eq!(
        done,
        json!([{ "kind": "rack", "name": "r1", "done": "changed" }, { "kind": "rack", "name": "r2", "done": "created" }])
    );
    server
        .typed(&["apply", "-f", "-"], wanted)
        .expect(0)
        .says("rack r1 unchanged");
    server
        .typed(&["apply", "-f", "-"], "kind: tower\nname: x\nspec: {}")
        .expect(2)
        .says("is no kind");
    // All objects or none, also without a question.
    let half = "kind: site\nname: other\nspec: {}\n---\nkind: rack\nname: r3\nspec: {site: other, units: 48}";
    let refused = server.typed(&["apply", "--yes", "-f", "-"], half).expect(2);
    refused
        .says("power_budget_w")
        .says("1 of 2 objects cannot be written; no object was written");
    server.muster(&["site", "get", "other"]).expect(3);
}

#[test]
fn an_array_in_the_place_of_a_deep_object_is_refused_with_a_pointer() {
    let server = fleet();
    let node = "
kind: node
name: gpu-3
spec:
  site: lab
  power: {redfish: {bmc: [10.78.0.1, bmc]}}
  macs: [{mac: '52:54:00:00:00:03', subnet: prov}]
";
    let addresses = json!(["storage_address"]);
    let vlan = json!({ "id": 120, "over": "first", "addresses": [addresses] });
    let interface = json!({ "is": { "boot": true } });
    let spec = json!({ "interfaces": { "first": interface }, "vlans": { "storage": vlan } });
    let profile = json!({ "kind": "network_profile", "name": "bonded", "spec": spec }).to_string();
    let address = "/spec/vlans/storage/addresses/0 ";
    let suite = r#"
name = "smoke"
version = "1"
[[gates]]
id = "node.profile"
title = "Facts fit the profile"
stage = "inventory"
timeout_s = 30
parser = "facts"
criteria = [["profile.misses", "==", 0, "misses"]]
finding = "The machine is not what was bought."
"#;
    for (file, text, pointer) in [
        ("node.yaml", node, "/spec/power/redfish/bmc "),
        ("profile.json", profile.as_str(), address),
        ("smoke.toml", suite, "/spec/gates/0/criteria/0 "),
    ] {
        let path = server.dir.path().join(file);
        std::fs::write(&path, text).unwrap();
        server
            .muster(&["apply", "--yes", "-f", path.to_str().unwrap()])
            .expect(2)
            .says(pointer)
            .says("no object was written");
    }
    for written in [
        ["node", "get", "gpu-3"],
        ["network_profile", "get", "bonded"],
        ["suite", "get", "smoke"],
    ] {
        server.muster(&written).expect(3);
    }
}

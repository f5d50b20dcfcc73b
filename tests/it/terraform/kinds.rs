//! Every resource: created, unchanged, changed, imported and destroyed.

use crate::support::fleet;
use crate::support::server::Server;

use super::Terraform;

const SECRET: &str = "canary-2b91";
/// The secret of the webhook, in the form of Standard Webhooks.
const SIGNING: &str = "whsec_Y2FuYXJ5IG9mIGEgd2ViaG9vaywgMzIgYnl0ZXM=";

/// One resource of each kind, as written by a person. [`fleet`] replaces the words in capitals.
const FLEET: &str = r#"
resource "muster_site" "lab" {
  name = "lab"
  spec = { bmc_networks = ["10.78.0.0/24"] }
}
resource "muster_rack" "r1" {
  name   = "r1"
  labels = { row = "a" }
  spec   = { site = muster_site.lab.name, units = 42, power_budget_w = 20000 }
}
resource "muster_subnet" "prov" {
  name = "prov"
  spec = { site = muster_site.lab.name, network = "10.77.0.0/24", agent_address = "10.77.0.1", mode = "authoritative" }
}
resource "muster_hardware_profile" "virtual" {
  name = "virtual"
  spec = {
    model = "virtual", sockets = 1, cores_per_socket = 2, memory_mib = 1800, schedulable_memory_mib = 1500
    root_disk = { serial_prefix = "ROOT" }, power_max_w = 300
    thresholds = { "network.iperf3_gbps" = { value = 9.4, unit = "Gbit/s", provenance = "measured", source = "24 nodes" } }
    deadlines_s = { imaging = 3600 }
  }
}
resource "muster_network_profile" "bonded" {
  name = "bonded"
  spec = {
    interfaces = { first = { is = { boot = true }, mtu = 9000 } }
    vlans      = { storage = { id = 120, over = "first", addresses = [{ label = "storage" }] } }
  }
}
resource "muster_maintenance_window" "nights" {
  name = "nights"
  spec = {
    time_zone = "Europe/Zurich"
    weekly    = [{ days = ["mon", "tue"], start = "22:00:00", length_min = 360 }]
    freezes   = [{ first = "2026-12-19", last = "2027-01-03", reason = "end of the year" }]
  }
}
resource "muster_monitor" "errors" {
  name           = "errors"
  spec           = { url = "https://prometheus.example.org/", query = "sum(rate(gpu_errors_total[5m])) > 0" }
  secret         = "Bearer a-token-of-prometheus"
  secret_version = "first"
}
resource "muster_signing_key" "release" {
  name = "release"
  spec = { public_key = "RWT+gSwS86tM5upKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs", description = "in the safe" }
}
resource "muster_credential" "bmc" {
  name           = "bmc"
  spec           = { purpose = "bmc", user = "root" }
  secret         = "SECRET"
  secret_version = "1"
}
resource "muster_image" "debian" {
  name = "debian-12"
  spec = {
    name = "debian-12", version = "1", os = "debian", os_version = "12", arch = "amd64", kernel = "6.1.0-1-amd64"
    digest = "IMAGE_DIGEST", size = 1000, raw_digest = "RAW_DIGEST", raw_size = 4000
    packages = [{ name = "bash", version = "5.2", arch = "amd64" }], partitions = { esp = 1, root = 2 }
  }
}
resource "muster_stack" "base" {
  name = "base"
  spec = {
    version = "1", image = muster_image.debian.name, packages = { chrony = "4.3-2" }, absent = []
    lock = { image_digest = muster_image.debian.spec.digest, arch = "amd64", packages = [] }
    files = [{ path = "/etc/motd", mode = "0644", content = [{ text = "hello " }, { value = "hostname" }] }]
  }
}
resource "muster_suite" "smoke" {
  name = "smoke"
  spec = {
    name = "smoke", version = "1"
    gates = [{
      id = "node.profile", title = "Facts fit the profile", stage = "inventory", timeout_s = 30, parser = "facts"
      criteria = [{ metric = "profile.misses", op = "==", limit = 0, unit = "misses" }]
      finding  = "The machine is not what was bought."
    }]
  }
}
resource "muster_cluster" "slurm" {
  name = "slurm"
  spec = {
    kind = "slurm", site = muster_site.lab.name, conf = "/etc/slurm/slurm.conf", include_dir = "/etc/slurm"
    partition = "gpu", address = "10.77.0.1"
  }
}
resource "muster_pool" "gpu" {
  name = "gpu"
  spec = {
    image = muster_image.debian.name, stack = muster_stack.base.name, suite = muster_suite.smoke.name
    cluster = muster_cluster.slurm.name
  }
}
resource "muster_node" "n1" {
  name   = "n1"
  labels = { gpu = "h200" }
  spec = {
    site = muster_site.lab.name, rack = muster_rack.r1.name, rack_unit = 1, accept = false
    profile = muster_hardware_profile.virtual.name
    power   = { redfish = { bmc = { address = "10.78.0.1", credential = muster_credential.bmc.name } } }
    macs    = [{ mac = "52:54:00:00:00:01", subnet = muster_subnet.prov.name }]
  }
  timeouts = { delete = "30s" }
}
resource "muster_role_binding" "infra" {
  name = "infra"
  spec = { subject = "group:infra", role = "operator", scope = { site = muster_site.lab.name } }
}
resource "muster_webhook" "ops" {
  name           = "ops"
  spec           = { url = "https://hooks.example.org/muster", topics = ["node.*"], site = muster_site.lab.name }
  secret         = "SIGNING"
  secret_version = "one"
}
resource "muster_token" "ci" {
  name        = "ci"
  spec        = { role = "viewer", scope = { site = muster_site.lab.name }, expires_in_s = 86400, releases_per_hour = 5 }
  secret_file = "ci.token"
}
output "address" {
  value = muster_node.n1.status.addresses[0].address
}
"#;

pub(super) fn fleet() -> String {
    let words = [
        ("SECRET", SECRET.to_owned()),
        ("SIGNING", SIGNING.to_owned()),
        ("IMAGE_DIGEST", fleet::digest("image")),
        ("RAW_DIGEST", fleet::digest("raw")),
    ];
    words
        .into_iter()
        .fold(FLEET.to_owned(), |text, (word, value)| {
            text.replace(word, &value)
        })
}

/// The declared objects after [`changed`]: the kind, the name of the resource, and the name of the object.
const DECLARED: [(&str, &str, &str); 18] = [
    ("site", "lab", "lab"),
    ("rack", "r1", "r1"),
    ("subnet", "prov", "prov"),
    ("hardware_profile", "virtual", "virtual"),
    ("network_profile", "bonded", "bonded"),
    ("maintenance_window", "nights", "nights"),
    ("monitor", "errors", "errors"),
    ("signing_key", "release", "release"),
    ("credential", "bmc", "bmc"),
    ("image", "debian", "debian-12"),
    ("stack", "base", "base"),
    ("suite", "smoke", "smoke"),
    ("cluster", "slurm", "slurm"),
    ("pool", "gpu", "gpu"),
    ("node", "n1", "n1"),
    ("role_binding", "infra", "infra"),
    ("webhook", "ops", "ops"),
    ("token", "ci", "ci-2"),
];

/// The same resources with a change in each.
fn changed() -> String {
    let mut text = fleet();
    for (from, to) in [
        (
            "name = \"lab\"\n",
            "name   = \"lab\"\n  labels = { region = \"north\" }\n",
        ),
        ("units = 42", "units = 48"),
        (
            "agent_address = \"10.77.0.1\", mode",
            "agent_address = \"10.77.0.254\", mode",
        ),
        ("value = 9.4", "value = 9.25"),
        ("mtu = 9000", "mtu = 8000"),
        ("length_min = 360", "length_min = 300"),
        ("[5m])) > 0", "[5m])) > 1"),
        ("in the safe", "in another safe"),
        ("secret_version = \"1\"", "secret_version = \"2\""),
        ("version = \"5.2\"", "version = \"5.3\""),
        (
            "version = \"1\", image = muster",
            "version = \"2\", image = muster",
        ),
        (
            "name = \"smoke\", version = \"1\"",
            "name = \"smoke\", version = \"2\"",
        ),
        ("partition = \"gpu\"", "partition = \"big\""),
        (
            "cluster = muster_cluster.slurm.name\n",
            "cluster = muster_cluster.slurm.name, undo_window_s = 60, replicas = 2\n",
        ),
        ("gpu = \"h200\"", "gpu = \"h100\""),
        ("role = \"operator\", scope", "role = \"automation\", scope"),
        (
            "topics = [\"node.*\"]",
            "topics = [\"node.*\", \"claim.*\"]",
        ),
        ("name        = \"ci\"", "name        = \"ci-2\""),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    }
    text.replace(SECRET, &format!("{SECRET}-2"))
}

/// Both data sources of each kind: the object with a name, and the number of objects.
pub(super) fn sources() -> String {
    let source = |(kind, resource, name): (&str, &str, &str)| {
        let many = format!("{kind}s");
        format!(
            "data \"muster_{kind}\" \"one\" {{\n  name = muster_{kind}.{resource}.id\n}}\n\
             data \"muster_{many}\" \"many\" {{\n  depends_on = [muster_{kind}.{resource}]\n}}\n\
             output \"{kind}\" {{\n  value = {{ one = data.muster_{kind}.one.id == muster_{kind}.{resource}.id ? \"{name}\" : \"\",\
             many = length(data.muster_{many}.many.items) }}\n}}\n"
        )
    };
    DECLARED.map(source).concat()
}

#[tokio::test]
async fn every_resource_is_made_left_alone_changed_imported_and_destroyed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let terraform = Terraform::start(&server).await;
    terraform.write(&fleet());
    let logged = terraform
        .run_logged(&["apply", "-auto-approve"])
        .await
        .expect(0);
    let mut printed = logged.says("18 added, 0 changed, 0 destroyed").text;
    assert!(printed.contains("[TRACE]"), "everything is logged");
    printed += &terraform.plan().await.expect(0).says("No changes.").text;
    let hash =
        admin.get("/v1/credentials/bmc").await.expect(200).body["status"]["secret_hash"].clone();

    terraform.write(&changed());
    // Another name is another token.
    printed += &terraform
        .apply()
        .await
        .expect(0)
        .says("1 added, 17 changed, 1 destroyed")
        .text;
    printed += &terraform.plan().await.expect(0).says("No changes.").text;
    assert_eq!(admin.get("/v1/racks/r1").await.body["spec"]["units"], 48);
    assert_ne!(
        admin.get("/v1/credentials/bmc").await.body["status"]["secret_hash"],
        hash,
        "the other secret was sent"
    );

    terraform.write(&changed().replace("role = \"viewer\"", "role = \"operator\""));
    printed += &terraform
        .plan()
        .await
        .expect(1)
        .says("the name of a token is used once")
        .text;
    terraform.write(&changed());

    let imported = terraform.beside();
    let blocks = DECLARED.map(|(kind, name, id)| {
        format!("import {{\n  to = muster_{kind}.{name}\n  id = \"{id}\"\n}}\n")
    });
    imported.write(&format!("{}{}{}", changed(), blocks.concat(), sources()));
    printed += &imported
        .apply()
        .await
        .expect(0)
        .says("18 imported, 0 added, 0 changed, 0 destroyed")
        .text;
    printed += &imported.plan().await.expect(0).says("No changes.").text;
    let read = imported.run(&["output", "-json"]).await.expect(0).text;
    let read: serde_json::Value = serde_json::from_str(&read[read.find('{').unwrap()..]).unwrap();
    for (kind, _, name) in DECLARED {
        // Two more tokens are of the test.
        let many = if kind == "token" { 3 } else { 1 };
        assert_eq!(
            read[kind]["value"],
            serde_json::json!({ "one": name, "many": many }),
            "{kind}"
        );
    }

    let token = std::fs::read_to_string(terraform.path("ci.token")).unwrap();
    assert!(token.starts_with("mst_"), "the token is in its file");
    admin.get("/v1/racks").await.expect(200);
    let bearer = server.with(Some(token.clone()));
    bearer.get("/v1/sites/lab").await.expect(200);
    bearer.get("/v1/webhooks").await.expect(403);
    let own = terraform.token().to_owned();
    for text in [printed, terraform.state(), imported.state()] {
        let secrets = [SECRET, SIGNING, &token, &own];
        assert!(
            !text.is_empty() && !secrets.iter().any(|secret| text.contains(secret)),
            "a secret: {text}"
        );
    }

    terraform.destroy().await.expect(0).says("18 destroyed");
    for (_, collection) in muster_api::kind::COLLECTIONS {
        let left = admin
            .get(&format!("/v1/{collection}"))
            .await
            .expect(200)
            .body["items"]
            .clone();
        assert_eq!(left, serde_json::json!([]), "{collection}");
    }
    server.with(Some(token)).get("/v1/racks").await.expect(401);
    imported
        .plan()
        .await
        .expect(2)
        .says("18 to add, 0 to change, 0 to destroy");
}

#[tokio::test]
async fn a_refusal_is_shown_where_the_mistake_is() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let terraform = Terraform::start(&server).await;
    admin
        .put("/v1/sites/lab", &serde_json::json!({ "spec": {} }))
        .await
        .expect(201);
    terraform.write("resource \"muster_rack\" \"r1\" {\n  name = \"r1\"\n  spec = { site = \"lab\", units = 42, power_budget_w = 1, colour = \"red\" }\n}\n");
    drop(terraform.plan().await);
    let rack = |site: &str, units: u32| {
        format!(
            "resource \"muster_rack\" \"r1\" {{\n  name = \"r1\"\n  spec = {{\n    site = \"{site}\"\n    units = {units}\n    power_budget_w = 1\n  }}\n}}\n"
        )
    };
    terraform.write(&rack("nowhere", 42));
    terraform
        .apply()
        .await
        .expect(1)
        .says("on main.tf line 10")
        .says("/spec/site: There is no site called \"nowhere\"");
    terraform.write(&rack("lab", 42));
    terraform.apply().await.expect(0);
    terraform.write(&rack("lab", 90));
    terraform
        .apply()
        .await
        .expect(1)
        .says("on main.tf line 10")
        .says("/spec/units");
    terraform.write(&rack("lab", 42));
    terraform.plan().await.expect(0).says("No changes.");

    // Another person changes the rack between plan and apply.
    terraform.write(&rack("lab", 44));
    terraform.run(&["plan", "-out=saved"]).await.expect(0);
    admin
        .patch(
            "/v1/racks/r1",
            &serde_json::json!({ "labels": { "row": "b" } }),
        )
        .await
        .expect(200);
    terraform
        .run(&["apply", "-input=false", "saved"])
        .await
        .expect(1)
        .says("stale_generation");
    terraform
        .apply()
        .await
        .expect(0)
        .says("0 added, 1 changed, 0 destroyed");
    admin
        .send(reqwest::Method::DELETE, "/v1/racks/r1", Vec::new())
        .await
        .expect(428);
    admin.expecting(3).delete("/v1/racks/r1").await.expect(204);
    terraform
        .plan()
        .await
        .expect(2)
        .says("1 to add, 0 to change, 0 to destroy");

    // An object made by another person is not taken over.
    let other = serde_json::json!({ "spec": { "site": "lab", "units": 10, "power_budget_w": 1 } });
    admin.put("/v1/racks/r1", &other).await.expect(201);
    terraform
        .apply()
        .await
        .expect(1)
        .says("There is one with this name and other content");
}

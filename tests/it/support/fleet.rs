//! A small fleet for tests: available nodes, and all objects required by a claim.

use muster_core::signatures::SecretKey;
use serde_json::{Value, json};

use super::server::{Caller, Server};

/// Returns the digest of a text, for documents that need any valid digest.
pub(crate) fn digest(of: &str) -> String {
    muster_core::values::Digest::of(of.as_bytes()).to_string()
}

/// The networks of the BMCs and consoles of [`node`]. A site without them takes no new address.
pub(crate) const BMC_NETWORK: &str = "10.78.0.0/24";
pub(crate) const CONSOLE_NETWORK: &str = "10.78.1.0/24";

/// Returns a site with networks of BMCs and consoles.
pub(crate) fn site() -> Value {
    json!({ "spec": { "bmc_networks": [BMC_NETWORK], "console_networks": [CONSOLE_NETWORK] } })
}

pub(crate) fn rack() -> Value {
    json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": 20_000 } })
}

pub(crate) fn subnet() -> Value {
    json!({ "spec": { "site": "lab", "network": "10.77.0.0/24", "agent_address": "10.77.0.1", "mode": "authoritative" } })
}

pub(crate) fn profile() -> Value {
    json!({ "spec": {
        "model": "virtual", "sockets": 1, "cores_per_socket": 2, "memory_mib": 1800, "schedulable_memory_mib": 1500,
        "root_disk": { "serial_prefix": "ROOT" }, "power_max_w": 300,
    }})
}

/// Returns a window of four nights a week, with a freeze at the end of the year.
pub(crate) fn maintenance_window() -> Value {
    json!({ "spec": {
        "time_zone": "Europe/Zurich",
        "weekly": [{ "days": ["mon", "tue", "wed", "thu"], "start": "22:00:00", "length_min": 360 }],
        "freezes": [{ "first": "2026-12-19", "last": "2027-01-03", "reason": "end of the year" }],
    }})
}

/// Returns a monitor of a server that does not exist.
pub(crate) fn monitor() -> Value {
    json!({ "spec": {
        "url": "https://prometheus.example.org/", "query": "sum(rate(gpu_errors_total[5m])) > 0",
        "secret": "Bearer a-token-of-prometheus",
    }})
}

/// Returns the public key of [`release_key`].
pub(crate) fn signing_key() -> Value {
    json!({ "spec": { "public_key": release_key().public().to_string() } })
}

/// Returns the private key of a release owner.
pub(crate) fn release_key() -> SecretKey {
    SecretKey::from_seed(&[7; 32])
}

/// Returns a profile that fits every node of [`node`]: the profile uses only the boot interface.
pub(crate) fn network_profile() -> Value {
    json!({ "spec": {
        "interfaces": { "first": { "is": { "boot": true }, "mtu": 9000 } },
        "vlans": { "storage": { "id": 120, "over": "first", "addresses": [{ "beside": { "subnet": "prov", "network": "10.79.0.0/24" } }] } },
    }})
}

pub(crate) fn image() -> Value {
    json!({ "spec": {
        "name": "debian-12", "version": "1", "os": "debian", "os_version": "12", "arch": "amd64", "digest": digest("image"),
        "size": 1000, "raw_digest": digest("raw"), "raw_size": 4000, "kernel": "6.1.0-1-amd64", "packages": [],
        "partitions": { "esp": 1, "root": 2 },
    }})
}

pub(crate) fn stack() -> Value {
    json!({ "spec": {
        "version": "1", "image": "debian-12", "packages": { "chrony": "4.3-2" },
        "lock": { "image_digest": digest("image"), "arch": "amd64", "packages": [] },
    }})
}

/// Returns the shipped suite, reduced to one gate.
pub(crate) fn suite() -> Value {
    json!({ "spec": { "name": "smoke", "version": "1", "gates": [{
        "id": "node.profile", "title": "Facts fit the profile", "stage": "inventory", "timeout_s": 30, "parser": "facts",
        "criteria": [{ "metric": "profile.misses", "op": "==", "limit": 0, "unit": "misses" }],
        "finding": "The machine is not what was bought.",
    }]}})
}

pub(crate) fn cluster() -> Value {
    json!({ "spec": {
        "kind": "slurm", "site": "lab", "conf": "/etc/slurm/slurm.conf", "include_dir": "/etc/slurm", "partition": "gpu",
        "address": "10.77.0.1",
    }})
}

/// Returns a pool without a limit of nodes out of service; `disruption/` tests the limit.
pub(crate) fn pool() -> Value {
    json!({ "spec": {
        "image": "debian-12", "stack": "base", "suite": "smoke", "cluster": "slurm", "max_unavailable": "100%",
    }})
}

/// Returns a node of the rack `r1`. MAC and addresses are derived from the number.
pub(crate) fn node(number: u8) -> Value {
    json!({ "labels": { "parity": if number.is_multiple_of(2) { "even" } else { "odd" } }, "spec": {
        "site": "lab", "rack": "r1", "rack_unit": 1, "profile": "virtual",
        "power": { "redfish": { "bmc": { "address": format!("10.78.0.{number}"), "credential": "bmc" } } },
        "macs": [{ "mac": format!("52:54:00:00:00:{number:02x}"), "subnet": "prov", "address": format!("10.77.0.{}", 10 + number) }],
    }})
}

/// Declares all objects required by a node.
pub(crate) async fn declare(admin: &Caller) {
    for (path, body) in [
        ("/v1/sites/lab", site()),
        ("/v1/racks/r1", rack()),
        ("/v1/subnets/prov", subnet()),
        ("/v1/hardware_profiles/virtual", profile()),
        ("/v1/network_profiles/bonded", network_profile()),
        ("/v1/maintenance_windows/nights", maintenance_window()),
        (
            "/v1/credentials/bmc",
            json!({ "spec": { "purpose": "bmc", "user": "root", "secret": "calvin" } }),
        ),
        ("/v1/images/debian-12", image()),
        ("/v1/stacks/base", stack()),
        ("/v1/clusters/slurm", cluster()),
    ] {
        admin.put(path, &body).await.expect(201);
    }
}

/// Declares the objects of [`declare`], a suite and a pool.
pub(crate) async fn declare_pool(admin: &Caller) {
    declare(admin).await;
    admin.put("/v1/suites/smoke", &suite()).await.expect(201);
    admin.put("/v1/pools/gpu", &pool()).await.expect(201);
}

/// Registers nodes `n1`… and sets the state reached by an inspection. The tests of the engine cover
/// the inspection.
pub(crate) async fn available(server: &Server, admin: &Caller, count: u8) {
    for number in 1..=count {
        admin
            .put(&format!("/v1/nodes/n{number}"), &node(number))
            .await
            .expect(201);
    }
    arrive(server).await;
}

/// Sets every node to the state reached by an inspection, and ends all open operations.
pub(crate) async fn arrive(server: &Server) {
    for statement in [
        "UPDATE nodes SET state = 'available', wish = NULL, operation_id = NULL",
        "UPDATE operations SET state = 'succeeded', finished_at = now() WHERE finished_at IS NULL",
    ] {
        sqlx::query(statement)
            .execute(&server.app.pool)
            .await
            .unwrap();
    }
}

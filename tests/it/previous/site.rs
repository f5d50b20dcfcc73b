//! A site in a network of its own: today's server in this process behind real sockets, an agent of either version as a process, and a machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use muster_core::clock::Clock;
use muster_core::values::Digest;
use muster_server::{engine, tasks};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::machine::{self, Machine};
use super::wire::Wire;
use super::{network, programs};
use crate::support::fleet;
use crate::support::postgres;
use crate::support::server::{Caller, Server};

/// Longer than any stage takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(100);

/// The version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Before,
    Today,
}

/// The site.
pub(crate) struct Site {
    pub(crate) server: Server,
    pub(crate) admin: Caller,
    pub(crate) wire: Wire,
    pub(crate) agent: Agent,
    machine: Machine,
    _stopped_with_it: DropGuard,
}

/// An agent: its process, and its host's folder.
pub(crate) struct Agent {
    pub(crate) dir: TempDir,
    version: Version,
    url: String,
    process: Child,
}

impl Site {
    /// Declares everything that a node needs, enrols the agent, and starts it. `live` is the version of the live image's muster-node; the agent brings
    /// yesterday's onto installed systems.
    pub(crate) async fn start(agent: Version, live: Version) -> Self {
        rustls::crypto::aws_lc_rs::default_provider()
            .install_default()
            .ok();
        let live = match live {
            Version::Before => programs::muster_node(),
            Version::Today => programs::TODAY.into(),
        };
        let machine = Machine::start(&live);
        let clock = Clock::following(Clock::System);
        let server = Server::on(postgres::database().await, clock).await;
        tasks::clock::follow(&server.app).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(engine::run(server.app.clone(), stop.clone()));
        tokio::spawn(tasks::run(server.app.clone(), stop.clone()));
        let wire = Wire::open(&server.app).await;
        let admin = server.admin().await;
        let dir = tempfile::tempdir().unwrap();
        declare(&admin, dir.path()).await;
        let enrolled = admin
            .post("/v1/sites/lab/agents", &json!({ "name": "a1" }))
            .await
            .expect(201);
        std::fs::write(
            dir.path().join("token"),
            enrolled.body["token"].as_str().unwrap(),
        )
        .unwrap();
        prepare_host(dir.path());
        let process = start_agent(agent, &wire.url, dir.path());
        Self {
            server,
            admin,
            agent: Agent {
                dir,
                version: agent,
                url: wire.url.clone(),
                process,
            },
            wire,
            machine,
            _stopped_with_it: stop.drop_guard(),
        }
    }

    /// Registers the node; the server has it inspected.
    pub(crate) async fn register(&self) {
        let bmc = json!({ "address": network::BMC, "credential": "bmc" });
        let (serial, uuid) = (&self.machine.serial, self.machine.uuid);
        let node = json!({ "spec": {
            "serial": serial, "smbios_uuid": uuid, "site": "lab", "rack": "r1", "rack_unit": 1, "profile": "virtual", "power": { "redfish": { "bmc": bmc } },
            "macs": [{ "mac": machine::NIC, "subnet": "prov", "address": network::NODE }],
            "console": { "tcp": { "address": network::BMC, "port": 7001 } },
        }});
        self.admin.put("/v1/nodes/n1", &node).await.expect(201);
    }

    /// Asks for an action on the node; returns the id of its operation.
    pub(crate) async fn ask(&self, action: &str) -> String {
        let path = format!("/v1/nodes/n1/actions/{action}");
        let body = match action {
            "run-gates" => json!({ "suite": "smoke" }),
            _ => json!({ "reason": "test" }),
        };
        let asked = self.admin.post(&path, &body).await;
        asked.expect(202).body["id"].as_str().unwrap().to_owned()
    }

    /// Asks for an action, and waits until it succeeded.
    pub(crate) async fn done(&self, action: &str) {
        let operation = self.ask(action).await;
        self.succeeded(&operation).await;
    }

    /// Waits until an operation succeeded.
    pub(crate) async fn succeeded(&self, operation: &str) {
        let path = format!("/v1/operations/{operation}");
        self.until(&format!("operation {operation}"), async || {
            let body = self.admin.get(&path).await.expect(200).body;
            let state = body["state"].as_str().unwrap().to_owned();
            assert!(
                !["failed", "cancelled"].contains(&state.as_str()),
                "{body:#}"
            );
            state == "succeeded"
        })
        .await;
    }

    /// Waits until the node is in a state.
    pub(crate) async fn state(&self, wanted: &str) {
        self.until(wanted, async || {
            let node = self.admin.get("/v1/nodes/n1").await.expect(200).body;
            let state = node["status"]["state"].as_str().unwrap().to_owned();
            let stuck = ["failed", "quarantined"].contains(&state.as_str()) && state != wanted;
            assert!(!stuck, "{node:#}");
            state == wanted
        })
        .await;
    }

    /// Polls until the look succeeds.
    pub(crate) async fn until(&self, what: &str, mut seen: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !seen().await {
            if begun.elapsed() > PATIENCE {
                let why = self.admin.get("/v1/nodes/n1/why").await.text;
                panic!("{what} does not come: {why}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Runs a query of one text column.
    pub(crate) async fn sql(&self, query: &'static str) -> Vec<String> {
        sqlx::query_scalar(query)
            .fetch_all(&self.server.app.pool)
            .await
            .unwrap()
    }
}

impl Agent {
    /// Kills the process and starts another one on the same host.
    pub(crate) async fn restart(&mut self) {
        self.process.kill().await.unwrap();
        self.process = start_agent(self.version, &self.url, self.dir.path());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let calls = self.wire.look(|notes| format!("{:?}", notes.calls));
            println!(
                "calls: {calls}\nagent:\n{}\nsshd:\n{}",
                self.agent.log(),
                self.machine.log()
            );
        }
    }
}

/// The agent's process, which ends with this one.
fn start_agent(version: Version, url: &str, dir: &Path) -> Child {
    let at = |name: &str| dir.join(name).display().to_string();
    let (token, data, loaders) = (at("token"), at("data"), at("loaders"));
    let node = programs::muster_node().display().to_string();
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    match version {
        Version::Before => command
            .arg(programs::muster())
            .args([
                "agent",
                "--server",
                url,
                "--token-file",
                &token,
                "--data-dir",
                &data,
            ])
            .args(["--ipxe-dir", &loaders, "--muster-node", &node]),
        Version::Today => command
            .arg(programs::TODAY)
            .args(["agent", url, &token, &data, &loaders, &node]),
    };
    let log = std::fs::File::options()
        .append(true)
        .create(true)
        .open(dir.join("log"))
        .unwrap();
    command
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", at("scheduler")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Writes boot loaders, and the programs of a scheduler.
fn prepare_host(dir: &Path) {
    for folder in ["loaders", "scheduler", "slurm"] {
        std::fs::create_dir(dir.join(folder)).unwrap();
    }
    for loader in ["undionly.kpxe", "snponly.efi", "muster.ipxe"] {
        std::fs::write(dir.join("loaders").join(loader), loader).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/previous/scheduler.sh");
    for program in ["scontrol", "sinfo", "squeue"] {
        std::os::unix::fs::symlink(&script, dir.join("scheduler").join(program)).unwrap();
    }
}

/// Declares everything that a node needs, and uploads the blobs.
async fn declare(admin: &Caller, host: &Path) {
    let (kernel, initrd) = (blob(admin, b"kernel").await, blob(admin, b"initrd").await);
    let raw = disk_image(host);
    let packed = zstd::encode_all(&raw[..], 1).unwrap();
    let image = json!({
        "name": "debian-12", "version": "1", "os": "debian", "os_version": "12", "arch": "amd64", "digest": blob(admin, &packed).await,
        "size": packed.len(), "raw_digest": Digest::of(&raw), "raw_size": raw.len(), "kernel": "6.1.0-1-amd64", "packages": [],
        "partitions": { "esp": 1, "root": 2 },
    });
    let bios = json!([{ "source": "guide", "attributes": { "SriovGlobalEnable": "Enabled" } }]);
    let lock = json!({ "image_digest": Digest::of(&packed), "arch": "amd64", "packages": [], "bios": bios });
    let bundle = blob(admin, br#"{"files":{}}"#).await;
    let profile = json!({
        "model": "virtual", "sockets": 1, "cores_per_socket": 1, "memory_mib": 1800, "schedulable_memory_mib": 1500,
        "root_disk": { "serial_prefix": "ROOT" }, "power_max_w": 300,
    });
    let mut suite = fleet::suite()["spec"].clone();
    suite["gates"][0]["after_reboot"] = json!(true);
    let slurm = host.join("slurm");
    let (user, secret) = machine::ACCOUNT;
    for (path, spec) in [
        (
            "sites/lab",
            json!({
                "live": { "kernel": kernel, "initrd": initrd },
                "bmc_networks": [fleet::BMC_NETWORK], "console_networks": [fleet::BMC_NETWORK],
            }),
        ),
        ("racks/r1", fleet::rack()["spec"].clone()),
        ("subnets/prov", fleet::subnet()["spec"].clone()),
        ("hardware_profiles/virtual", profile),
        (
            "credentials/bmc",
            json!({ "purpose": "bmc", "user": user, "secret": secret }),
        ),
        ("images/debian-12", image),
        (
            "stacks/base",
            json!({ "version": "1", "image": "debian-12", "packages": {}, "bios": bios, "bundle": bundle, "lock": lock }),
        ),
        ("suites/smoke", suite),
        (
            "clusters/slurm",
            json!({
                "kind": "slurm", "site": "lab", "conf": slurm.join("slurm.conf"), "include_dir": slurm, "partition": "gpu", "address": network::AGENT,
            }),
        ),
        (
            "pools/gpu",
            json!({ "image": "debian-12", "stack": "base", "suite": "smoke", "cluster": "slurm", "undo_window_s": 0 }),
        ),
    ] {
        admin
            .put(&format!("/v1/{path}"), &json!({ "spec": spec }))
            .await
            .expect(201);
    }
}

async fn blob(admin: &Caller, bytes: &[u8]) -> Value {
    let digest = Digest::of(bytes);
    let path = format!("/v1/blobs/sha256/{}", digest.hex());
    let reply = admin.send(Method::PUT, &path, bytes.to_vec()).await;
    assert!([200, 201, 204].contains(&reply.status), "{}", reply.text);
    json!(digest)
}

/// Makes a small disk image: boot sector, EFI system partition, root partition.
fn disk_image(dir: &Path) -> Vec<u8> {
    let path: PathBuf = dir.join("image.raw");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let made = std::process::Command::new("sgdisk")
        .args(["-n", "1:2048:10239", "-t", "1:ef00", "-n", "2:10240:0"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    std::fs::read(&path).unwrap()
}

//! A server with simulated machines. The agent of the site runs in this process, with the real agents' protocol.

use std::time::{Duration, Instant};

use muster_core::values::Mac;
use muster_lab::fleet::worker::{self, WorkerOptions};
use muster_lab::simulated::habits::Habits;
use muster_lab::simulated::keep::Keep;
use muster_lab::simulated::machine::Machine;
use muster_lab::simulated::rack::Rack;

use crate::muster::{Said, Server, muster, run};

/// A boot takes a fifth of a second.
const HABITS: Habits = Habits {
    seed: 7,
    speed: 1500.0,
    failures: 0.0,
    job_s: 0.0,
};
const PATIENCE: Duration = Duration::from_secs(120);

/// The kinds needed by a claim. Digests are placeholders, because no blob is fetched.
const KINDS: &str = r#"
kind: site
name: lab
spec: {live: {kernel: "DIGEST", initrd: "DIGEST"}, bmc_networks: [10.78.0.0/24]}
---
kind: rack
name: r1
spec: {site: lab, units: 42, power_budget_w: 42000}
---
kind: subnet
name: prov
spec: {site: lab, network: 10.77.0.0/24, agent_address: 10.77.0.1, mode: authoritative}
---
kind: hardware_profile
name: virtual
spec: {model: virtual, sockets: 1, cores_per_socket: 2, memory_mib: 1800, schedulable_memory_mib: 1500, root_disk: {serial_prefix: ROOT}, power_max_w: 300}
---
kind: credential
name: bmc
spec: {purpose: bmc, user: root, secret: calvin}
---
kind: image
name: debian-12
spec: {name: debian-12, version: "1", os: debian, os_version: "12", arch: amd64, digest: "DIGEST", size: 1000, raw_digest: "DIGEST", raw_size: 4000,
       kernel: 6.1.0-1-amd64, packages: [], partitions: {esp: 1, root: 2}}
---
kind: stack
name: base
spec: {version: "1", image: debian-12, packages: {chrony: 4.3-2}, bundle: "DIGEST", lock: {image_digest: "DIGEST", arch: amd64, packages: []}}
---
kind: suite
name: smoke
spec:
  name: smoke
  version: "1"
  gates: [{id: node.profile, title: Facts fit the profile, stage: inventory, timeout_s: 30, parser: facts, finding: The machine is not what was bought.,
           criteria: [{metric: profile.misses, op: ==, limit: 0, unit: misses}]}]
---
kind: cluster
name: slurm
spec: {kind: slurm, site: lab, conf: /etc/slurm/slurm.conf, include_dir: /etc/slurm, partition: gpu, address: 10.77.0.1}
---
kind: pool
name: gpu
spec: {image: debian-12, stack: base, suite: smoke, cluster: slurm}
"#;

/// A server, and the simulated machines of the nodes.
pub(crate) struct Fleet {
    pub(crate) server: Server,
    /// The runtime of the agent. The agent ends when the runtime is dropped.
    runtime: tokio::runtime::Runtime,
    agent: tokio::task::AbortHandle,
}

impl Fleet {
    /// Declares the nodes `n1`… and waits until all are available.
    pub(crate) fn start(count: u8) -> Self {
        let server = Server::start();
        let digest = muster_core::values::Digest::of(b"anything").to_string();
        server
            .typed(
                &["apply", "-f", "-", "-q"],
                &KINDS.replace("DIGEST", &digest),
            )
            .expect(0);
        let machines = server.dir.path().join("machines");
        let machine = |number| Machine::new(format!("n{number}"), mac(number)).with(HABITS);
        Keep::create(&machines, &Rack::of((1..=count).map(machine))).unwrap();
        let enrolled = server
            .muster(&["agent", "enrol", "lab", "a1", "-o", "json"])
            .expect(0)
            .json();
        let token_file = server.dir.path().join("agent-token");
        std::fs::write(&token_file, enrolled["token"].as_str().unwrap()).unwrap();
        std::fs::write(
            server.dir.path().join("agent-token.authority"),
            enrolled["authority"].as_str().unwrap(),
        )
        .unwrap();
        let options = WorkerOptions {
            server: server.agent_url.clone(),
            token_file,
            machines,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let agent = runtime
            .spawn(async move { worker::run(options).await.unwrap() })
            .abort_handle();
        let fleet = Self {
            server,
            runtime,
            agent,
        };
        for number in 1..=count {
            let node = format!(
                "{{site: lab, rack: r1, profile: virtual, power: {{redfish: {{bmc: {{address: 10.78.0.{number}, credential: bmc}}}}}},
                  macs: [{{mac: '{}', subnet: prov, address: 10.77.0.{}}}]}}",
                mac(number),
                10 + number,
            );
            fleet
                .server
                .typed(
                    &["node", "create", &format!("n{number}"), "-q", "-f", "-"],
                    &node,
                )
                .expect(0);
        }
        fleet.until("node list --filter state=available", count.into());
        fleet
    }

    /// Ends the agent. No job runs on the machines afterwards.
    pub(crate) fn stop(&self) {
        self.agent.abort();
    }

    /// Runs a statement in the database, in place of a report by an agent. At least one row changes.
    pub(crate) fn sql(&self, statement: &'static str) {
        use sqlx::{Connection as _, PgConnection};
        self.runtime.block_on(async {
            let mut conn = PgConnection::connect(&self.server.database("muster"))
                .await
                .unwrap();
            assert!(
                sqlx::query(statement)
                    .execute(&mut conn)
                    .await
                    .unwrap()
                    .rows_affected()
                    > 0,
                "{statement}"
            );
        });
    }

    pub(crate) fn muster(&self, line: &str) -> Said {
        self.server.muster(&line.split(' ').collect::<Vec<_>>())
    }

    /// Repeats a list until the number of entries is reached.
    pub(crate) fn until(&self, line: &str, count: usize) {
        let begun = Instant::now();
        loop {
            let said = self.muster(&format!("{line} -o name"));
            if said.code == 0 && said.out.lines().count() == count {
                return;
            }
            let nodes = || self.muster("node list").out;
            assert!(
                begun.elapsed() < PATIENCE,
                "{line}: {}{}\n{}",
                said.out,
                said.err,
                nodes()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns a member of the JSON document printed by a command.
    pub(crate) fn value(&self, line: &str, pointer: &str) -> String {
        let value = self.muster(&format!("{line} -o json")).expect(0).json();
        let value = value
            .pointer(pointer)
            .unwrap_or_else(|| panic!("no {pointer} in {value}"));
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    }

    /// Runs `muster` as another user, with a token created on the server's host.
    pub(crate) fn muster_as(&self, name: &str, line: &str) -> Said {
        let (home, database) = (self.server.dir.path(), self.server.database("muster"));
        let key = home.join("data/master.key").display().to_string();
        let made = [
            "admin",
            "token",
            "--name",
            name,
            "--database-url",
            &database,
            "--key-file",
            &key,
        ];
        let token = home.join(format!("token-of-{name}"));
        if !token.exists() {
            std::fs::write(&token, run(&mut muster(home, &made), "").expect(0).out).unwrap();
        }
        let mut command = muster(home, &line.split(' ').collect::<Vec<_>>());
        command
            .env("MUSTER_SERVER", &self.server.url)
            .env("MUSTER_TOKEN_FILE", token);
        run(&mut command, "")
    }
}

fn mac(number: u8) -> Mac {
    Mac([0x52, 0x54, 0, 0, 0, number])
}

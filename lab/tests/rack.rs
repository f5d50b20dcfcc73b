//! Tests of a whole rack with real parts: namespace, taps, QEMU, firmware, and a BMC over TLS. The
//! tests need root and the QEMU packages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::too_many_lines, reason = "a scenario reads in one piece")]

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use muster_lab::control::{Act, DiskAnswer, DiskQuery, LabClient};
use muster_lab::machine::PowerState;
use muster_lab::machine::console::CONSOLE_LOG;
use muster_lab::machine::oracle::{Cause, Happening};
use muster_lab::plan::{AccelPlan, RackPlan, console_address};
use muster_lab::{Rack, rack};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// The time limit of a wait. A healthy run is much faster.
const LIMIT: Duration = Duration::from_secs(120);
const SYSTEM: &str = "redfish/v1/Systems/1";

/// Controls a machine through the BMC, and sets real faults. The closed rack leaves no namespace
/// and no process in the system.
#[tokio::test]
async fn a_machine_is_powered_through_its_bmc_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = RackPlan {
        accel: AccelPlan::Tcg,
        ..RackPlan::reference()
    };
    plan.machines.remove(0);
    let rack = Rack::start(dir.path(), plan).await.unwrap();
    let slot = rack.slot("n2").unwrap();
    let bmc = slot.bmc.as_ref().unwrap();
    let (user, password) = bmc.credentials();

    // The BMC is inside the namespace. A forwarder connects the test with the BMC.
    let door = rack
        .forward(SocketAddr::from(([127, 0, 0, 1], 0)), bmc.address)
        .unwrap();
    let http = Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .timeout(LIMIT)
        .build()
        .unwrap();
    let url = |path: &str| format!("https://{}/{path}", door.address);
    let reset = |kind: &'static str| {
        let request = http
            .post(url(&format!("{SYSTEM}/Actions/ComputerSystem.Reset")))
            .json(&json!({"ResetType": kind}));
        request.basic_auth(&user, Some(password.reveal())).send()
    };
    let console = rack
        .forward(
            SocketAddr::from(([127, 0, 0, 1], 0)),
            console_address(0).into(),
        )
        .unwrap();
    let mut console = TcpStream::connect(console.address).await.unwrap();
    assert_eq!(reset("On").await.unwrap().status(), StatusCode::NO_CONTENT);
    slot.machine
        .wait_for_power(PowerState::On, LIMIT)
        .await
        .unwrap();
    let system = http
        .get(url(SYSTEM))
        .basic_auth(&user, Some(password.reveal()))
        .send()
        .await
        .unwrap();
    assert_eq!(system.json::<Value>().await.unwrap()["PowerState"], "On");
    let log = slot.machine.dir.join(CONSOLE_LOG);
    wait_for_text(&log, "SeaBIOS").await;
    wait_for_text(&log, "starting execution...ok").await;
    let mut seen = vec![0; 64];
    tokio::time::timeout(LIMIT, console.read_exact(&mut seen))
        .await
        .unwrap()
        .unwrap();
    assert!(
        std::fs::read(&log).unwrap().starts_with(&seen),
        "the terminal server gives the same bytes"
    );

    // The control socket serves the same rack to other processes.
    let lab = LabClient::new(dir.path()).unwrap();
    let warning = |serial: &str| Act::SetNvmeWarning {
        serial: serial.to_owned(),
        warning: 4,
    };
    lab.act("n2", &warning("MUSTER-NVME-A-2")).await.unwrap();
    assert!(
        lab.act("n2", &warning("MUSTER-DECOY-2")).await.is_err(),
        "the decoy has no SMART log"
    );
    lab.act("n2", &Act::SetLink { up: false }).await.unwrap();
    lab.act("n2", &Act::Wedge).await.unwrap();
    assert!(
        lab.read_disk(
            "n2",
            "MUSTER-NVME-A-2",
            &DiskQuery::Sample { seed: 1, count: 1 }
        )
        .await
        .is_err(),
        "it runs"
    );
    assert_eq!(
        reset("ForceOff").await.unwrap().status(),
        StatusCode::NO_CONTENT
    );
    slot.machine
        .wait_for_power(PowerState::Off, LIMIT)
        .await
        .unwrap();
    let sample = lab
        .read_disk(
            "n2",
            "MUSTER-NVME-A-2",
            &DiskQuery::Sample { seed: 1, count: 64 },
        )
        .await
        .unwrap();
    assert!(
        matches!(sample, DiskAnswer::Blocks { blocks } if blocks.len() == 64 && blocks.iter().all(|block| block.zero))
    );
    let oracle = lab.oracle("n2").await.unwrap();
    let power: Vec<&Happening> = oracle
        .iter()
        .map(|entry| &entry.what)
        .filter(|what| !matches!(what, Happening::Fault { .. }))
        .collect();
    assert!(
        matches!(power[..], [Happening::PowerOn { .. }, Happening::PowerOff]),
        "{power:?}"
    );
    assert!(matches!(&oracle[0].cause, Cause::Bmc { reset, .. } if reset == "On"));

    // A machine without a BMC has a power button.
    lab.act("n3", &Act::PressButton).await.unwrap();
    assert_eq!(lab.machine("n3").await.unwrap().power, PowerState::On);
    let namespace = Path::new("/run/netns").join(rack.netns.name());
    assert!(namespace.exists());
    rack.close().await.unwrap();
    assert!(!namespace.exists());
    assert_eq!(processes_of(dir.path()), Vec::<String>::new());
}

/// A later `clean` removes the processes and the namespace of a killed lab. While the lab runs,
/// `clean` refuses the directory.
#[tokio::test]
async fn what_a_killed_lab_left_is_cleaned() {
    let mut lab = LabProcess::start();
    lab.press_button().await;
    let refusal = rack::clean(&lab.rack_dir()).unwrap_err().to_string();
    assert!(refusal.contains("in use"), "{refusal}");
    lab.kill();
    let cleaned = rack::clean(&lab.rack_dir()).unwrap();
    assert_eq!(cleaned.processes, 1);
    assert!(
        !Path::new("/run/netns")
            .join(cleaned.netns.unwrap())
            .exists()
    );
    assert_eq!(processes_of(&lab.rack_dir()), Vec::<String>::new());
}

#[tokio::test]
async fn a_failed_assertion_leaves_no_lab() {
    let mut lab = LabProcess::start();
    lab.press_button().await;
    let (namespace, rack_dir) = (lab.namespace(), lab.rack_dir());
    assert!(namespace.exists());
    assert_eq!(processes_of(&rack_dir).len(), 1, "QEMU");
    let failed = std::panic::catch_unwind(AssertUnwindSafe(move || {
        assert!(!lab.namespace().exists(), "a failed assertion");
    }));
    assert!(failed.is_err());
    assert!(!namespace.exists());
    assert_eq!(processes_of(&rack_dir), Vec::<String>::new());
}

/// A lab in a process of its own. Dropping the value, also by a failed assertion, ends the process
/// and removes processes and namespace of the rack. A [`Rack`] in the test's own process does the
/// same.
struct LabProcess {
    child: Child,
    dir: TempDir,
}

impl LabProcess {
    /// Starts a lab with the machine `n3`.
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plan = dir.path().join("plan.json");
        let machines = RackPlan::reference().machines.split_off(2);
        let accel = AccelPlan::Tcg;
        let written = serde_json::to_vec(&RackPlan { accel, machines }).unwrap();
        std::fs::write(&plan, written).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_muster-lab"))
            .arg("up")
            .arg(dir.path().join("rack"))
            .arg("--plan")
            .arg(plan)
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn rack_dir(&self) -> PathBuf {
        self.dir.path().join("rack")
    }

    /// Waits until the lab answers, and starts the machine.
    async fn press_button(&mut self) {
        let client = LabClient::new(&self.rack_dir()).unwrap();
        let begun = Instant::now();
        loop {
            match client.machines().await {
                Ok(machines) if machines.len() == 1 => break,
                seen => {
                    let ended = self.child.try_wait().unwrap();
                    assert_eq!(ended, None, "the lab ended: {seen:?}");
                    assert!(begun.elapsed() < LIMIT, "{seen:?}");
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        client.act("n3", &Act::PressButton).await.unwrap();
    }

    /// Returns the namespace named by the lab's own record.
    fn namespace(&self) -> PathBuf {
        let record = std::fs::read(self.rack_dir().join("lease.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        Path::new("/run/netns").join(record["netns"].as_str().unwrap())
    }

    /// Kills the lab, and waits for its end.
    fn kill(&mut self) {
        // An error only means that the process ended in between.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        self.kill();
        if let Err(error) = rack::clean(&self.rack_dir()) {
            eprintln!("the lab left something behind: {error}");
        }
    }
}

async fn wait_for_text(path: &Path, text: &str) {
    let appeared = || {
        let log = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&log).contains(text)
    };
    let begun = Instant::now();
    while !appeared() {
        assert!(begun.elapsed() < LIMIT, "no {text:?} in {}", path.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the processes with a working directory below `dir`. Every QEMU works in the directory of
/// its machine.
fn processes_of(dir: &Path) -> Vec<String> {
    let pids = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let inside =
        |path: &PathBuf| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
    pids.filter(inside)
        .map(|path| path.display().to_string())
        .collect()
}

//! Tests of the agent's Redfish client against the lab's BMC. The client and the BMC were written
//! separately. The tests cover firmware and BIOS settings.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_agent::bmc::{BmcError, Bmcs, Limits, Reset, TaskState};
use muster_core::clock::Clock;
use muster_core::firmware::{BiosValue, BmcInventory};
use muster_core::ids::JobId;
use muster_core::wire::bmc::BmcTarget;
use muster_lab::bmc::Bmc;
use muster_lab::bmc::faults::{Fault, FaultKind};
use muster_lab::error::LabError;
use muster_lab::machine::Machine;
use muster_lab::machine::launch::{Answer, Boot, Exit, Guest, GuestAct, Launcher};
use muster_lab::plan::{BmcPlan, RackPlan};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

/// The time limit of a wait. A healthy run is much faster.
const LIMIT: Duration = Duration::from_secs(60);

/// Launches guests. A guest runs until the power is removed.
#[derive(Debug)]
struct Guests;

impl Launcher for Guests {
    fn launch(&self, _: Boot) -> BoxFuture<'_, Result<Guest, LabError>> {
        let (acts, mut queue) = mpsc::channel::<(GuestAct, oneshot::Sender<Answer>)>(8);
        let (ended, exit) = watch::channel(None);
        tokio::spawn(async move {
            while let Some((act, done)) = queue.recv().await {
                if act == GuestAct::Kill {
                    ended.send_replace(Some(Exit::Lost("killed".into())));
                }
                done.send(Ok(json!({}))).ok();
            }
        });
        async move {
            Ok(Guest {
                pid: None,
                acts,
                exit,
            })
        }
        .boxed()
    }
}

struct Bench {
    lab: Bmc,
    bmc: muster_agent::bmc::Bmc,
    _dir: tempfile::TempDir,
}

async fn bench() -> Bench {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let dir = tempfile::tempdir().unwrap();
    let machine = RackPlan::reference().machines.remove(0);
    let plan = BmcPlan {
        reset_delay_ms: 20,
        ..machine.bmc.clone().unwrap()
    };
    let machine = Machine::new(
        machine,
        dir.path().to_owned(),
        Arc::new(Guests),
        Clock::System,
    )
    .unwrap();
    let lab = Bmc::start(
        machine,
        &plan,
        TcpListener::bind("127.0.0.1:0").unwrap(),
        None,
    )
    .unwrap();
    let (user, password) = lab.credentials();
    let (address, port) = (lab.address.ip(), lab.address.port());
    let target = BmcTarget {
        address,
        port,
        user,
        password,
        certificate: Some(lab.fingerprint),
        system: None,
        also: None,
        machine: None,
        bmc_networks: vec!["127.0.0.0/8".parse().unwrap()],
    };
    let soon = Duration::from_millis(10);
    let limits = Limits {
        spacing: soon,
        poll: soon,
        ask_again: soon,
        settle: soon * 10,
        ..Limits::default()
    };
    let bmc = Bmcs::new(limits).open(&target, JobId::new()).unwrap();
    Bench {
        lab,
        bmc,
        _dir: dir,
    }
}

impl Bench {
    async fn version(&self, id: &str) -> String {
        self.bmc.inventory().await.unwrap().find(id)[0]
            .version
            .clone()
    }

    /// Reads the inventory until a condition is met.
    async fn until(&self, right: impl Fn(&BmcInventory) -> bool) {
        let met = async {
            while !right(&self.bmc.inventory().await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(LIMIT, met).await.is_err() {
            panic!("it stays {:?}", self.bmc.inventory().await);
        }
    }

    /// Starts an update. Returns the task of the update.
    async fn start_update(&self, image: &str) -> String {
        let started = self.bmc.update(image, &["BMC".into()]).await;
        started.unwrap().expect("a task to follow")
    }

    /// Updates the firmware, and follows the task to the end. Returns the last state and the
    /// messages.
    async fn update(&self, image: &str) -> (TaskState, String) {
        let task = self.start_update(image).await;
        let ended = async {
            loop {
                let view = self.bmc.task(&task).await.unwrap();
                if view.state != TaskState::Running {
                    break (view.state, view.said.join("; "));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::time::timeout(LIMIT, ended).await;
        ended.expect("the task ends")
    }
}

/// Serves an image over HTTP, as the site does. Returns the URL.
async fn image(component: &'static str, version: &'static str) -> String {
    let text = json!({ "component": component, "version": version }).to_string();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(move || async move { text });
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/boot/v1/blob/sha256/00")
}

#[tokio::test]
async fn the_inventory_is_read_whole_and_a_busy_bmc_is_asked_again() {
    let bench = bench().await;
    bench.lab.inject(
        Fault::next(1, FaultKind::Status503 { retry_after_s: 1 }).at("/redfish/v1/Systems/1/Bios"),
    );
    let seen = bench.bmc.inventory().await.unwrap();
    let ids: Vec<&str> = seen.firmware.iter().map(|seen| seen.id.as_str()).collect();
    assert_eq!(ids, ["bios", "bmc", "BIOS", "BMC"]);
    assert_eq!(
        (seen.bios["NumaNodesPerSocket"].clone(), seen.unread.len()),
        (BiosValue::Number(1), 0),
        "{seen:?}"
    );
    // An unreadable part stays unknown, and the inventory contains all other parts.
    bench.lab.inject(
        Fault::always(FaultKind::Status503 { retry_after_s: 1 }).at("/redfish/v1/UpdateService"),
    );
    let seen = bench.bmc.inventory().await.unwrap();
    let ids: Vec<&str> = seen.firmware.iter().map(|seen| seen.id.as_str()).collect();
    assert_eq!(ids, ["bios", "bmc"], "{seen:?}");
    assert!(
        seen.unread
            .iter()
            .any(|why| why.starts_with("the firmware inventory")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn settings_are_pending_until_a_restart_and_one_that_drops_them_is_caught() {
    let bench = bench().await;
    let wanted: BTreeMap<String, BiosValue> = [
        (
            "SriovGlobalEnable".to_owned(),
            BiosValue::Text("Enabled".into()),
        ),
        ("NumaNodesPerSocket".to_owned(), BiosValue::Number(4)),
    ]
    .into();
    bench.bmc.set_bios(&wanted).await.unwrap();
    assert_eq!(
        bench.bmc.inventory().await.unwrap().bios["NumaNodesPerSocket"],
        BiosValue::Number(1)
    );
    bench.bmc.reset(Reset::On).await.unwrap();
    bench
        .until(|seen| {
            wanted
                .iter()
                .all(|(name, value)| seen.bios.get(name) == Some(value))
        })
        .await;
    bench.lab.inject(Fault::next(1, FaultKind::SettingsDropped));
    let dropped = [("TurboMode".to_owned(), BiosValue::Flag(false))].into();
    let error = bench.bmc.set_bios(&dropped).await.unwrap_err();
    assert!(
        matches!(&error, BmcError::NothingHappened { seen, .. } if seen == "TurboMode as true"),
        "{error}"
    );
    let unknown = [("Nothing".to_owned(), BiosValue::Number(1))].into();
    assert!(matches!(
        bench.bmc.set_bios(&unknown).await,
        Err(BmcError::Unsupported { .. })
    ));
}

#[tokio::test]
async fn updates_are_followed_to_their_end_however_they_end() {
    let bench = bench().await;
    let newer = image("BMC", "2.0.0").await;
    assert_eq!(bench.update(&newer).await.0, TaskState::Done);
    assert_eq!(bench.version("bmc").await, "2.0.0");
    let bios = image("BIOS", "OVMF 2099.01").await;
    assert_eq!(bench.update(&bios).await.0, TaskState::Done);
    assert_ne!(
        bench.version("bios").await,
        "OVMF 2099.01",
        "after a restart"
    );
    bench.bmc.reset(Reset::On).await.unwrap();
    bench
        .until(|seen| seen.find("bios")[0].version == "OVMF 2099.01")
        .await;

    let next = image("BMC", "3.0.0").await;
    bench.lab.inject(Fault::next(1, FaultKind::UpdateFails));
    let (state, said) = bench.update(&next).await;
    assert_eq!(
        (state, said.contains("signature")),
        (TaskState::Failed, true),
        "{said}"
    );
    bench
        .lab
        .inject(Fault::next(1, FaultKind::UpdateChangesNothing));
    assert_eq!(bench.update(&next).await.0, TaskState::Done);
    assert_eq!(bench.version("bmc").await, "2.0.0");
    assert_eq!(bench.bmc.running_tasks().await.unwrap(), [] as [&str; 0]);
    bench.lab.inject(Fault::next(1, FaultKind::UpdateNeverEnds));
    let endless = bench.start_update(&next).await;
    // Other updates end in a fifth of a second.
    for _ in 0..50 {
        let view = bench.bmc.task(&endless).await.unwrap();
        assert_eq!(view.state, TaskState::Running);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        bench.bmc.running_tasks().await.unwrap().len(),
        1,
        "a successor finds it"
    );
    assert!(
        matches!(
            bench.bmc.update(&next, &[]).await,
            Err(BmcError::Busy { .. })
        ),
        "one at a time"
    );
}

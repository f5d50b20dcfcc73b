//! The BMC over real TLS, with a fake guest behind a real machine.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use muster_core::values::Secret;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use super::Bmc;
use super::faults::{Fault, FaultKind, Garbage};
use crate::machine::fake::{self, FakeLauncher};
use crate::machine::firmware::BootOrder;
use crate::machine::launch::Exit;
use crate::machine::oracle::Happening;
use crate::machine::{Machine, PowerState};
use crate::plan::BmcPlan;

const SYSTEM: &str = "/redfish/v1/Systems/1";
const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
/// The bound of a wait. No healthy run comes near the bound.
const LIMIT: Duration = Duration::from_secs(60);

struct Bench {
    bmc: Bmc,
    machine: Arc<Machine>,
    launcher: Arc<FakeLauncher>,
    plan: BmcPlan,
    http: Client,
    dir: tempfile::TempDir,
}

/// The reference rack's UEFI machine, without its namespace.
async fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let (machine, launcher) = fake::machine(dir.path(), 0);
    let plan = BmcPlan {
        reset_delay_ms: 20,
        ..machine.plan.bmc.clone().unwrap()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bmc = Bmc::start(Arc::clone(&machine), &plan, listener, None).unwrap();
    let http = Client::builder()
        .danger_accept_invalid_certs(true)
        .no_proxy()
        .timeout(LIMIT)
        .build()
        .unwrap();
    Bench {
        bmc,
        machine,
        launcher,
        plan,
        http,
        dir,
    }
}

impl Bench {
    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("https://{}{path}", self.bmc.address))
    }

    fn authorised(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request(method, path)
            .basic_auth(&self.plan.user, Some(self.plan.password.reveal()))
    }

    async fn get(&self, path: &str) -> Value {
        self.authorised(Method::GET, path)
            .send()
            .await
            .unwrap()
            .error_for_status()
            .unwrap()
            .json()
            .await
            .unwrap()
    }

    async fn write(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let response = self
            .authorised(method, path)
            .json(&body)
            .send()
            .await
            .unwrap();
        let status = response.status();
        (
            status,
            serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default(),
        )
    }

    async fn reset(&self, kind: &str) -> StatusCode {
        self.write(Method::POST, RESET, json!({"ResetType": kind}))
            .await
            .0
    }

    async fn becomes(&self, power: PowerState) {
        self.machine.wait_for_power(power, LIMIT).await.unwrap();
    }
}

async fn until(what: &str, met: impl Fn() -> bool) {
    let met = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, met).await.expect(what);
}

#[tokio::test]
async fn every_link_leads_somewhere_and_nothing_is_open_but_the_root() {
    let bench = bench().await;
    let mut queue = vec!["/redfish/v1".to_owned()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(path) = queue.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let body = bench.get(&path).await;
        collect_links(&body, &mut queue);
        let open = bench
            .request(Method::GET, &path)
            .send()
            .await
            .unwrap()
            .status();
        assert_eq!(
            open == StatusCode::OK,
            path == "/redfish/v1",
            "{path}: {open}"
        );
    }
    assert!(seen.len() > 35, "{seen:?}");
}

fn collect_links(value: &Value, queue: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str().filter(|_| key == "@odata.id") {
                    Some(path) => queue.push(
                        path.split('#')
                            .next()
                            .unwrap_or(path)
                            .trim_end_matches('/')
                            .to_owned(),
                    ),
                    None => collect_links(value, queue),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_links(item, queue)),
        _ => {}
    }
}

#[tokio::test]
async fn a_one_time_override_boots_the_network_once() {
    let bench = bench().await;
    let patch = json!({"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe", "BootSourceOverrideMode": "UEFI"}});
    assert_eq!(
        bench.write(Method::PATCH, SYSTEM, patch).await.0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        bench.get(SYSTEM).await["Boot"]["BootSourceOverrideEnabled"],
        "Once"
    );
    let starting = bench.launcher.starting.lock().await;
    assert_eq!(bench.reset("On").await, StatusCode::NO_CONTENT);
    assert_eq!(
        bench.get(SYSTEM).await["PowerState"],
        "Off",
        "the answer comes before the power"
    );
    drop(starting);
    bench.becomes(PowerState::On).await;
    assert_eq!(
        bench.get(SYSTEM).await["Boot"]["BootSourceOverrideTarget"],
        "None"
    );
    let watts =
        bench.get("/redfish/v1/Chassis/1/Power").await["PowerControl"][0]["PowerConsumedWatts"]
            .as_u64();
    assert!(watts.unwrap() > 100);

    // The guest reboots by itself: the override is used up.
    bench.launcher.guest_exits(Exit::Reset);
    let mut entries = bench.machine.subscribe();
    while !matches!(entries.recv().await.unwrap().what, Happening::Reboot { .. }) {}
    bench.becomes(PowerState::On).await;
    assert_eq!(bench.reset("PowerCycle").await, StatusCode::NO_CONTENT);
    while !matches!(
        entries.recv().await.unwrap().what,
        Happening::PowerOn { .. }
    ) {}
    let orders: Vec<BootOrder> = bench
        .launcher
        .boots
        .lock()
        .unwrap()
        .iter()
        .map(|boot| boot.order)
        .collect();
    assert_eq!(orders[..2], [BootOrder::NetworkFirst, BootOrder::Own]);
    assert_eq!(
        bench.reset("GracefulShutdown").await,
        StatusCode::NO_CONTENT
    );
    bench.becomes(PowerState::Off).await;
    assert_eq!(bench.reset("ForceRestart").await, StatusCode::CONFLICT);
    let log = bench
        .get("/redfish/v1/Managers/1/LogServices/EventLog/Entries")
        .await;
    let text = log["Members"].to_string();
    assert!(
        text.contains("PowerOn") && text.contains("BootOverride") && text.contains("Reset"),
        "{text}"
    );
}

#[tokio::test]
async fn a_machine_that_a_reset_leaves_off_is_so_once() {
    let bench = bench().await;
    bench.reset("On").await;
    bench.becomes(PowerState::On).await;
    bench.machine.stay_off_once().await;
    bench.launcher.guest_exits(Exit::Reset);
    bench.becomes(PowerState::Off).await;
    bench.reset("On").await;
    bench.becomes(PowerState::On).await;
    let mut entries = bench.machine.subscribe();
    bench.launcher.guest_exits(Exit::Reset);
    assert!(matches!(
        entries.recv().await.unwrap().what,
        Happening::Reboot { .. }
    ));
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_message_and_change_nothing() {
    let bench = bench().await;
    let before = bench.get(SYSTEM).await;
    for (method, path, body, status, id) in [
        (
            Method::POST,
            RESET,
            json!({"ResetType": "Nmi"}),
            400,
            "PropertyValueNotInList",
        ),
        (Method::POST, RESET, json!({}), 400, "PropertyMissing"),
        (
            Method::PATCH,
            SYSTEM,
            json!({"Boot": {"BootSourceOverrideTarget": "Bogus"}}),
            400,
            "PropertyValueNotInList",
        ),
        (
            Method::PATCH,
            SYSTEM,
            json!({"Boot": {"BootSourceOverrideMode": "Legacy"}}),
            400,
            "PropertyValueNotInList",
        ),
        (
            Method::PATCH,
            SYSTEM,
            json!({"SerialNumber": "x"}),
            400,
            "PropertyNotWritable",
        ),
        (Method::POST, SYSTEM, json!({}), 405, "OperationNotAllowed"),
        (
            Method::PATCH,
            "/redfish/v1/Nothing",
            json!({}),
            404,
            "ResourceMissingAtURI",
        ),
        (
            Method::PATCH,
            "/redfish/v1/AccountService/Accounts/1",
            json!({"Password": "short"}),
            400,
            "PropertyValueFormatError",
        ),
    ] {
        let (seen, answer) = bench.write(method, path, body).await;
        assert_eq!(seen.as_u16(), status, "{path}: {answer}");
        assert_eq!(
            answer["error"]["@Message.ExtendedInfo"][0]["MessageId"],
            format!("Base.1.13.{id}"),
            "{path}"
        );
    }
    let stale = bench
        .authorised(Method::PATCH, SYSTEM)
        .header("if-match", "W/\"0\"")
        .json(&json!({"Boot": {}}))
        .send()
        .await
        .unwrap();
    assert_eq!(stale.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(bench.get(SYSTEM).await, before);
}

#[tokio::test]
async fn a_session_ends_by_deletion_and_a_password_outlives_the_bmc() {
    let bench = bench().await;
    let login = json!({"UserName": bench.plan.user, "Password": bench.plan.password.reveal()});
    let response = bench
        .request(Method::POST, "/redfish/v1/SessionService/Sessions")
        .json(&login)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let token = response.headers()["x-auth-token"]
        .to_str()
        .unwrap()
        .to_owned();
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let with_token = |method, path: &str| {
        bench
            .request(method, path)
            .header("x-auth-token", &token)
            .send()
    };
    assert_eq!(
        with_token(Method::GET, SYSTEM).await.unwrap().status(),
        StatusCode::OK
    );
    assert_eq!(
        with_token(Method::DELETE, &location)
            .await
            .unwrap()
            .status(),
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        with_token(Method::GET, SYSTEM).await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );

    let change = json!({"Password": "a new long password"});
    assert_eq!(
        bench
            .write(
                Method::PATCH,
                "/redfish/v1/AccountService/Accounts/1",
                change
            )
            .await
            .0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(bench.bmc.credentials().1.reveal(), "a new long password");
    let fingerprint = bench.bmc.fingerprint;
    let Bench {
        bmc,
        machine,
        plan,
        dir: _dir,
        ..
    } = bench;
    drop(bmc);
    let again = Bmc::start(
        machine,
        &plan,
        TcpListener::bind("127.0.0.1:0").unwrap(),
        None,
    )
    .unwrap();
    assert_eq!(again.credentials().1.reveal(), "a new long password");
    assert_eq!(
        again.fingerprint, fingerprint,
        "the certificate can be pinned"
    );
}

#[tokio::test]
async fn faults_do_what_they_say() {
    let bench = bench().await;
    let get = || bench.authorised(Method::GET, SYSTEM).send();

    bench.bmc.inject(Fault::next(1, FaultKind::Hang));
    let mut hangs = Box::pin(get());
    tokio::select! {
        answer = &mut hangs => panic!("{answer:?}"),
        () = until("the fault is used up", || bench.bmc.faults().is_empty()) => {}
    }
    let hangs = tokio::time::timeout(Duration::from_millis(500), hangs).await;
    assert!(hangs.is_err(), "{hangs:?}");
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::Status503 { retry_after_s: 7 }));
    let busy = get().await.unwrap();
    assert_eq!(
        (
            busy.status(),
            busy.headers()["retry-after"].to_str().unwrap()
        ),
        (StatusCode::SERVICE_UNAVAILABLE, "7")
    );
    for shape in [Garbage::BadJson, Garbage::Truncated, Garbage::Deep] {
        bench
            .bmc
            .inject(Fault::next(1, FaultKind::Garbage { shape }));
        let answer = get().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.json::<Value>().await.is_err(), "{shape:?}");
    }
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::Slow { ms: 150 }));
    let asked = std::time::Instant::now();
    assert_eq!(get().await.unwrap().status(), StatusCode::OK);
    assert!(asked.elapsed() >= Duration::from_millis(150));

    bench
        .bmc
        .inject(Fault::next(1, FaultKind::AcceptedNothingHappens));
    assert_eq!(bench.reset("On").await, StatusCode::NO_CONTENT);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.machine.boots(), 0);
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::LostReply).on("POST"));
    assert_eq!(get().await.unwrap().status(), StatusCode::OK);
    assert!(
        bench
            .authorised(Method::POST, RESET)
            .json(&json!({"ResetType": "On"}))
            .send()
            .await
            .is_err()
    );
    bench.becomes(PowerState::On).await;
    assert_eq!(
        bench.machine.boots(),
        1,
        "done once, though nobody was told"
    );
    assert!(bench.bmc.faults().is_empty());
}

#[tokio::test]
async fn a_changed_password_locks_out_who_keeps_trying() {
    let bench = bench().await;
    bench.bmc.inject(Fault::always(FaultKind::PasswordChanged));
    for _ in 0..bench.plan.lockout_threshold {
        assert_eq!(
            bench
                .authorised(Method::GET, SYSTEM)
                .send()
                .await
                .unwrap()
                .status(),
            StatusCode::UNAUTHORIZED
        );
    }
    bench.bmc.clear_faults();
    assert_eq!(bench.bmc.lockouts(), 1);
    let locked = bench
        .authorised(Method::GET, SYSTEM)
        .send()
        .await
        .unwrap()
        .status();
    assert_eq!(
        locked,
        StatusCode::UNAUTHORIZED,
        "the right password does not help a locked account"
    );
    assert!(
        bench
            .bmc
            .events()
            .iter()
            .any(|event| event.message_id.ends_with("LoginFailed"))
    );
    // Secrets print as dots everywhere.
    assert!(!format!("{:?}", bench.bmc).contains(Secret::reveal(&bench.plan.password)));
}

const SETTINGS: &str = "/redfish/v1/Systems/1/Bios/Settings";
const UPDATE: &str = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate";

/// Serves an image, as the site's agent does.
async fn image(component: &str, version: &str) -> String {
    let text = json!({"component": component, "version": version}).to_string();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/image", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(move || async move { text });
    tokio::spawn(async move { axum::serve(listener, router).await });
    uri
}

impl Bench {
    /// Updates, and follows the task to its end.
    async fn update(&self, uri: &str) -> Value {
        let body = json!({"ImageURI": uri, "TransferProtocol": "HTTP"});
        let (status, task) = self.write(Method::POST, UPDATE, body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{task}");
        let path = task["@odata.id"].as_str().unwrap();
        let ended = async {
            loop {
                let task = self.get(path).await;
                if task["TaskState"] != "Running" {
                    break task;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ended = tokio::time::timeout(LIMIT, ended).await;
        ended.expect("the update ends")
    }

    async fn version(&self, id: &str) -> String {
        let member = self
            .get(&format!("/redfish/v1/UpdateService/FirmwareInventory/{id}"))
            .await;
        member["Version"].as_str().unwrap().to_owned()
    }

    async fn set(&self, attributes: Value) -> StatusCode {
        self.write(Method::PATCH, SETTINGS, json!({"Attributes": attributes}))
            .await
            .0
    }

    async fn attribute(&self, name: &str) -> Value {
        self.get("/redfish/v1/Systems/1/Bios").await["Attributes"][name].clone()
    }

    /// Boots, and waits until the BMC has seen the boot.
    async fn boot(&self) {
        let seen = self.bmc.events().len();
        self.reset(if self.machine.power() == PowerState::On {
            "ForceRestart"
        } else {
            "On"
        })
        .await;
        let booted = |event: &super::Event| {
            event.message_id.ends_with("PowerOn") || event.message_id.ends_with(".Reset")
        };
        until("the machine boots", || {
            self.bmc.events()[seen..].iter().any(booted)
        })
        .await;
    }
}

#[tokio::test]
async fn settings_hold_after_a_boot_and_outlive_the_bmc() {
    let bench = bench().await;
    assert_eq!(
        bench
            .set(json!({"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": 4}))
            .await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        bench.get(SETTINGS).await["Attributes"]["SriovGlobalEnable"],
        "Enabled",
        "pending"
    );
    assert_eq!(
        bench.attribute("SriovGlobalEnable").await,
        "Disabled",
        "not before the boot"
    );
    assert_eq!(
        bench.set(json!({"Nothing": 1})).await,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        bench.set(json!({"TurboMode": "on"})).await,
        StatusCode::BAD_REQUEST,
        "another type"
    );
    bench.boot().await;
    assert_eq!(bench.attribute("SriovGlobalEnable").await, "Enabled");
    bench.bmc.inject(Fault::next(1, FaultKind::SettingsDropped));
    assert_eq!(
        bench.set(json!({"TurboMode": false})).await,
        StatusCode::NO_CONTENT
    );
    bench.boot().await;
    assert_eq!(
        bench.attribute("TurboMode").await,
        true,
        "it was taken, and dropped"
    );
    assert!(bench.bmc.faults().is_empty());
    let Bench {
        bmc,
        machine,
        plan,
        http,
        launcher,
        dir,
    } = bench;
    drop(bmc);
    let bmc = Bmc::start(
        Arc::clone(&machine),
        &plan,
        TcpListener::bind("127.0.0.1:0").unwrap(),
        None,
    )
    .unwrap();
    let again = Bench {
        bmc,
        machine,
        plan,
        http,
        launcher,
        dir,
    };
    assert_eq!(again.attribute("NumaNodesPerSocket").await, 4);
}

#[tokio::test]
async fn an_update_is_fetched_followed_and_held_and_fails_as_it_is_told() {
    let bench = bench().await;
    let bmc = image("BMC", "2.0.0").await;
    assert_eq!(bench.update(&bmc).await["TaskState"], "Completed");
    assert_eq!(
        bench.version("BMC").await,
        "2.0.0",
        "the BMC's own holds at once"
    );
    assert_eq!(
        bench.get("/redfish/v1/Managers/1").await["FirmwareVersion"],
        "2.0.0"
    );
    let bios = image("BIOS", "OVMF 2099.01").await;
    assert_eq!(bench.update(&bios).await["TaskState"], "Completed");
    assert_eq!(bench.version("BIOS").await, "OVMF 2022.11");
    bench.boot().await;
    assert_eq!(
        bench.get(SYSTEM).await["BiosVersion"],
        "OVMF 2099.01",
        "the BIOS's after a boot"
    );

    let newer = image("BMC", "3.0.0").await;
    bench.bmc.inject(Fault::next(1, FaultKind::UpdateFails));
    let failed = bench.update(&newer).await;
    assert_eq!(
        (failed["TaskState"].as_str(), failed["TaskStatus"].as_str()),
        (Some("Exception"), Some("Critical"))
    );
    assert!(
        failed["Messages"][0]["Message"]
            .as_str()
            .unwrap()
            .contains("signature"),
        "{failed}"
    );
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::UpdateChangesNothing));
    assert_eq!(bench.update(&newer).await["TaskState"], "Completed");
    assert_eq!(bench.version("BMC").await, "2.0.0");
    let gpu = image("GPU", "1").await;
    assert_eq!(
        bench.update(&gpu).await["TaskState"],
        "Exception",
        "there is none"
    );
    assert_eq!(
        bench.update("http://127.0.0.1:9/none").await["TaskState"],
        "Exception"
    );

    bench.bmc.inject(Fault::next(1, FaultKind::UpdateNeverEnds));
    let body = json!({"ImageURI": newer, "TransferProtocol": "HTTP"});
    let (_, task) = bench.write(Method::POST, UPDATE, body.clone()).await;
    until("the fault is used up", || bench.bmc.faults().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        bench.get(task["@odata.id"].as_str().unwrap()).await["TaskState"],
        "Running"
    );
    assert_eq!(
        bench.write(Method::POST, UPDATE, body).await.0,
        StatusCode::SERVICE_UNAVAILABLE,
        "one at a time"
    );
}

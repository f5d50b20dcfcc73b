//! Settings of the BIOS, and updates of the firmware.

use super::*;

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
        let booted = |event: &crate::bmc::Event| {
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

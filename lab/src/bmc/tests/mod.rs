//! The BMC over real TLS, with a fake guest behind a real machine.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

mod access; // Links, requests, sessions, passwords
mod firmware; // Settings and updates
mod power; // Boots, power, injected faults

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

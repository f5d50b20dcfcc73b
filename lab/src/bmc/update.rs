//! Firmware updates and BIOS settings with real effect. An update fetches the image from its URI
//! and reports progress as a task. BIOS settings apply at the next boot. Staged versions, pending
//! settings and tasks survive a restart of the lab.
//!
//! An image of this lab is JSON, `{"component": "BMC", "version": "2.0.0"}`. A BMC image applies at
//! once, a BIOS image at the next boot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Service;
use super::faults::FaultKind;
use super::interface::{boot_mode, factory_bios};
use super::reply::collection;
use super::reply::{self, Reply, error};

const UPDATES: &str = "/redfish/v1/UpdateService";
const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const TASKS: &str = "/redfish/v1/TaskService/Tasks";
const BIOS: &str = "/redfish/v1/Systems/1/Bios";
/// The BMC firmware version of a new machine.
const FACTORY: &str = "1.0.0";
/// Maximum size of an image, in bytes.
const MAX_IMAGE: usize = 64 << 10;
const FETCH: Duration = Duration::from_secs(10);
/// Time between two progress steps of ten percent.
const TENTH: Duration = Duration::from_millis(20);
/// Number of kept tasks; a new task removes the oldest.
const KEPT: usize = 20;

/// The state changed by updates and settings since the factory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Hardware {
    /// Current versions, by id in the firmware inventory.
    versions: BTreeMap<String, String>,
    /// Versions that apply at the next boot.
    staged: BTreeMap<String, String>,
    settings: BTreeMap<String, Value>,
    pending: BTreeMap<String, Value>,
    tasks: Vec<Task>,
    updates: u32,
}

/// The task of an update: state, progress in percent, and message.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    id: u32,
    state: String,
    percent: u32,
    message: String,
}

/// The content of an image: a component and its new version.
#[derive(Debug, Deserialize)]
struct Image {
    component: String,
    version: String,
}

impl Hardware {
    /// Ends the updates interrupted by a restart: a task still in `Running` becomes `Exception`.
    pub(crate) fn wake(mut self) -> Self {
        for task in self.tasks.iter_mut().filter(|task| task.state == "Running") {
            (task.state, task.message) = (
                "Exception".into(),
                "The service was restarted during the update.".into(),
            );
        }
        self
    }

    /// Applies staged versions and pending settings, as a boot does.
    pub(crate) fn boot(&mut self) {
        self.versions.append(&mut self.staged);
        self.settings.append(&mut self.pending);
    }

    /// Returns the current value of an attribute changed since the factory; `None` means unchanged.
    pub(crate) fn setting(&self, attribute: &str) -> Option<Value> {
        self.settings.get(attribute).cloned()
    }

    fn task(&mut self, id: u32) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }
}

/// Returns the current version of a component, or the factory version.
pub(crate) fn version(service: &Service, id: &str) -> String {
    let known = service.memory().hardware().versions.get(id).cloned();
    known.unwrap_or_else(|| {
        if id == "BIOS" {
            factory_bios(service).to_owned()
        } else {
            FACTORY.to_owned()
        }
    })
}

/// The resource at a path below `/redfish/v1/UpdateService`.
pub(crate) fn updates(service: &Service, segments: &[&str]) -> Option<Value> {
    match segments {
        [] => Some(json!({
            "@odata.id": UPDATES,
            "@odata.type": "#UpdateService.v1_11_0.UpdateService",
            "Id": "UpdateService",
            "Name": "Update Service",
            "ServiceEnabled": true,
            "FirmwareInventory": {"@odata.id": INVENTORY},
            "Actions": {"#UpdateService.SimpleUpdate": {
                "target": format!("{UPDATES}/Actions/UpdateService.SimpleUpdate"),
                "TransferProtocol@Redfish.AllowableValues": ["HTTP"],
            }},
        })),
        ["FirmwareInventory"] => Some(collection(
            INVENTORY,
            "SoftwareInventory",
            &["BIOS".into(), "BMC".into()],
        )),
        ["FirmwareInventory", id @ ("BIOS" | "BMC")] => Some(json!({
            "@odata.id": format!("{INVENTORY}/{id}"),
            "@odata.type": "#SoftwareInventory.v1_7_0.SoftwareInventory",
            "Id": id,
            "Name": format!("{id} firmware"),
            "Version": version(service, id),
            "Updateable": true,
        })),
        _ => None,
    }
}

/// The resource at a path below `/redfish/v1/TaskService/Tasks`.
pub(crate) fn tasks(service: &Service, segments: &[&str]) -> Option<Value> {
    let memory = service.memory();
    let known = &memory.hardware().tasks;
    match segments {
        [] => Some(collection(
            TASKS,
            "Task",
            &known
                .iter()
                .map(|task| task.id.to_string())
                .collect::<Vec<_>>(),
        )),
        [id] => known
            .iter()
            .find(|task| task.id.to_string() == *id)
            .map(task),
        _ => None,
    }
}

fn task(
    Task {
        id,
        state,
        percent,
        message,
    }: &Task,
) -> Value {
    let status = if state == "Exception" {
        "Critical"
    } else {
        "OK"
    };
    json!({
        "@odata.id": format!("{TASKS}/{id}"),
        "@odata.type": "#Task.v1_7_1.Task",
        "Id": id.to_string(),
        "Name": "Firmware update",
        "TaskState": state,
        "TaskStatus": status,
        "PercentComplete": percent,
        "Messages": [{"MessageId": "Update.1.0.Update", "Message": message, "Severity": status}],
    })
}

/// The BIOS resources: the current attributes, and under `Settings` the attributes of the next
/// boot.
pub(crate) fn bios(service: &Service, segments: &[&str]) -> Option<Value> {
    let hardware = service.memory().hardware().clone();
    let mut attributes: BTreeMap<String, Value> = settable().into();
    attributes.extend(hardware.settings);
    let settings = format!("{BIOS}/Settings");
    match segments {
        [] => {
            attributes.insert("BootMode".into(), json!(boot_mode(service)));
            Some(json!({
                "@odata.id": BIOS,
                "@odata.type": "#Bios.v1_2_0.Bios",
                "Id": "Bios",
                "Name": "BIOS Settings",
                "Attributes": attributes,
                "@Redfish.Settings": {
                    "@odata.type": "#Settings.v1_3_5.Settings",
                    "SettingsObject": {"@odata.id": settings},
                    "SupportedApplyTimes": ["OnReset"],
                },
            }))
        }
        ["Settings"] => {
            attributes.extend(hardware.pending);
            Some(json!({
                "@odata.id": settings,
                "@odata.type": "#Bios.v1_2_0.Bios",
                "Id": "Settings",
                "Name": "BIOS Settings of the next boot",
                "Attributes": attributes,
            }))
        }
        _ => None,
    }
}

/// The writable BIOS attributes with the factory values.
fn settable() -> [(String, Value); 3] {
    [
        ("NumaNodesPerSocket", json!(1)),
        ("SriovGlobalEnable", json!("Disabled")),
        ("TurboMode", json!(true)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// Stores settings for the next boot; rejects an unknown attribute or a value of another type.
pub(crate) fn patch_settings(service: &Service, document: &Value) -> Reply {
    let Some(wanted) = document["Attributes"].as_object() else {
        return reply::missing("Attributes");
    };
    for (name, value) in wanted {
        let known = settable().into_iter().find(|(known, _)| known == name);
        let Some((_, known)) = known else {
            return reply::not_writable(name);
        };
        if std::mem::discriminant(&known) != std::mem::discriminant(value) {
            return reply::not_in_list(name, value);
        }
    }
    if service.faults.take_inside(&FaultKind::SettingsDropped) {
        return Reply::no_content();
    }
    let mut memory = service.memory();
    memory.change(|hardware| {
        hardware.pending.extend(
            wanted
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    });
    Reply::no_content()
}

/// Starts an update. Answers 202 at once with the location of the task, or 503 while another update
/// runs.
pub(crate) fn simple_update(service: &Arc<Service>, document: &Value) -> Reply {
    let Some(uri) = document["ImageURI"].as_str() else {
        return reply::missing("ImageURI");
    };
    if !uri.starts_with("http://") {
        return reply::not_in_list("ImageURI", &document["ImageURI"]);
    }
    let id = {
        let mut memory = service.memory();
        if memory
            .hardware()
            .tasks
            .iter()
            .any(|task| task.state == "Running")
        {
            let text = "Another update is in progress.";
            return error(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceTemporarilyUnavailable",
                text,
                "Wait for its task.",
            );
        }
        memory.change(|hardware| {
            hardware.updates += 1;
            let (id, message) = (hardware.updates, "The update is in progress.".into());
            hardware.tasks.push(Task {
                id,
                state: "Running".into(),
                percent: 0,
                message,
            });
            let extra = hardware.tasks.len().saturating_sub(KEPT);
            hardware.tasks.drain(..extra);
            id
        })
    };
    let (working, uri) = (Arc::clone(service), uri.to_owned());
    #[expect(
        clippy::disallowed_methods,
        reason = "the task in the list of the update service records the end of the update"
    )]
    tokio::spawn(async move { run(&working, id, &uri).await });
    let location = format!("{TASKS}/{id}");
    let body = json!({"@odata.id": location, "@odata.type": "#Task.v1_7_1.Task", "Id": id.to_string(), "TaskState": "New"});
    Reply {
        status: StatusCode::ACCEPTED,
        headers: vec![("location", location)],
        body: Some(body),
    }
}

/// Runs an update to its end and records the progress in the task.
async fn run(service: &Arc<Service>, id: u32, uri: &str) {
    let faults = &service.faults;
    let ended = match fetched(service, uri).await {
        Err(why) => Err(why),
        Ok(_) if faults.take_inside(&FaultKind::UpdateNeverEnds) => {
            return set(service, id, "Running", 40, "The update is in progress.");
        }
        Ok(_) if faults.take_inside(&FaultKind::UpdateFails) => {
            Err("The image's signature is not valid.".to_owned())
        }
        Ok(image) => {
            for tenth in 1..10 {
                set(
                    service,
                    id,
                    "Running",
                    tenth * 10,
                    "The update is in progress.",
                );
                tokio::time::sleep(TENTH).await;
            }
            if !faults.take_inside(&FaultKind::UpdateChangesNothing) {
                service.memory().change(|hardware| {
                    let held = if image.component == "BIOS" {
                        &mut hardware.staged
                    } else {
                        &mut hardware.versions
                    };
                    held.insert(image.component.clone(), image.version.clone());
                });
            }
            Ok(())
        }
    };
    match ended {
        Ok(()) => {
            set(service, id, "Completed", 100, "The update is complete.");
            service.log(
                "OK",
                "Updated",
                format!("The firmware was updated (task {id})."),
            );
        }
        Err(why) => {
            set(service, id, "Exception", 100, &why);
            service.log(
                "Critical",
                "UpdateFailed",
                format!("The firmware update failed (task {id}): {why}"),
            );
        }
    }
}

fn set(service: &Service, id: u32, state: &str, percent: u32, message: &str) {
    service.memory().change(|hardware| {
        if let Some(task) = hardware.task(id) {
            (task.state, task.percent, task.message) = (state.into(), percent, message.into());
        }
    });
}

/// Fetches the image from the BMC's own network namespace, if it differs from the lab's. A socket
/// belongs to the namespace of the thread that makes the socket.
async fn fetched(service: &Service, uri: &str) -> Result<Image, String> {
    let Some(netns) = service.netns.clone() else {
        return fetch(uri).await;
    };
    let uri = uri.to_owned();
    let within = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime
            .map_err(|error| format!("no runtime: {error}"))?
            .block_on(fetch(&uri))
    };
    let thread = tokio::task::spawn_blocking(move || netns.within(within)).await;
    let entered = thread.map_err(|error| format!("the fetch ended: {error}"))?;
    entered.map_err(|error| error.to_string())?
}

/// Fetches and parses the image; fails if the image is too large, malformed or for an unknown
/// component.
async fn fetch(uri: &str) -> Result<Image, String> {
    let said = |error: reqwest::Error| format!("The image could not be fetched: {error}");
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(FETCH)
        .build()
        .map_err(said)?;
    let mut response = client
        .get(uri)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(said)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(said)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_IMAGE {
            return Err("The image is too large.".into());
        }
    }
    let image: Image =
        serde_json::from_slice(&bytes).map_err(|_| "The image is not one for this machine.")?;
    match image.component.as_str() {
        "BIOS" | "BMC" => Ok(image),
        _ => Err(format!("This machine has no {}.", image.component)),
    }
}

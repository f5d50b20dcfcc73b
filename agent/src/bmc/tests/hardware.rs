//! The update service, tasks and BIOS of the fake BMC.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

const SERVICE: &str = "/redfish/v1/UpdateService";
const LIST: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const TASKS: &str = "/redfish/v1/TaskService/Tasks";
const BIOS: &str = "/redfish/v1/Systems/1/Bios";

/// Behaviour of updates and settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    TaskFails,
    TaskNeverEnds,
    /// The task succeeds without a change.
    Unchanged,
    /// Status 503 for the first reads of a task.
    BusyMeanwhile,
    /// Settings are accepted and never become pending.
    SettingsDropped,
    /// Settings become pending and are lost after the restart.
    SettingsLost,
    /// The update service rejects a list of targets.
    NoTargets,
    /// The task is gone as soon as the update is made.
    Forgets,
    /// As `Forgets`, and the list of tasks is refused.
    ForgetsUnlisted,
    /// The task is gone, and no update was made.
    ForgetsUndone,
    /// Settings are refused and become pending.
    SettingsRefused,
}

/// State of the fake and the received requests.
#[derive(Debug)]
pub(crate) struct Hardware {
    pub(crate) versions: BTreeMap<&'static str, String>,
    pub(crate) bios: Map<String, Value>,
    pub(crate) mood: Mood,
    /// Component and version installed by the next update.
    pub(crate) brings: (&'static str, &'static str),
    /// Bodies of the requested updates.
    pub(crate) updates: Vec<Value>,
    /// Bodies of the requested settings.
    pub(crate) settings: Vec<Value>,
    /// Lists include their members on request. `expand_fails` announces the feature and fails on
    /// use.
    pub(crate) expands: bool,
    pub(crate) expand_fails: bool,
    /// A running update, started by another client.
    pub(crate) runs: bool,
    pending: Map<String, Value>,
    staged: BTreeMap<&'static str, String>,
    looks: u32,
}

impl Hardware {
    pub(crate) fn new() -> Self {
        let versions = [("BIOS", "2.1"), ("BMC", "1.0")]
            .map(|(id, version)| (id, version.to_owned()))
            .into();
        let bios = json!({"Sriov": "Disabled", "Nps": 1})
            .as_object()
            .unwrap()
            .clone();
        Self {
            versions,
            bios,
            mood: Mood::Well,
            brings: ("BMC", "1.1"),
            updates: Vec::new(),
            settings: Vec::new(),
            expands: false,
            expand_fails: false,
            runs: false,
            pending: Map::new(),
            staged: BTreeMap::new(),
            looks: 0,
        }
    }

    pub(super) fn has(path: &str) -> bool {
        [SERVICE, "/redfish/v1/TaskService", BIOS]
            .iter()
            .any(|prefix| path.starts_with(prefix))
    }

    /// Returns the members for the service root.
    pub(super) fn root(&self) -> Value {
        json!({"UpdateService": {"@odata.id": SERVICE}, "Tasks": {"@odata.id": "/redfish/v1/TaskService"},
            "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": self.expands}}})
    }

    /// Applies staged versions and pending settings, as a restart does.
    pub(super) fn boot(&mut self) {
        self.versions.append(&mut self.staged);
        let mut pending = std::mem::take(&mut self.pending);
        if self.mood != Mood::SettingsLost {
            self.bios.append(&mut pending);
        }
    }

    pub(crate) fn serve(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        match (method, path) {
            ("GET", SERVICE) => (
                200,
                json!({"FirmwareInventory": {"@odata.id": LIST}, "Actions": {"#UpdateService.SimpleUpdate": {
                    "target": format!("{SERVICE}/Actions/UpdateService.SimpleUpdate"), "TransferProtocol@Redfish.AllowableValues": ["HTTP"]}}}),
            ),
            ("GET", LIST) => self.list(),
            ("GET", "/redfish/v1/TaskService") => (200, json!({"Tasks": {"@odata.id": TASKS}})),
            ("GET", TASKS) if self.mood == Mood::ForgetsUnlisted => (404, Value::Null),
            ("GET", TASKS) => (
                200,
                json!({"Members": [{"@odata.id": format!("{TASKS}/1")}]}),
            ),
            ("GET", path) if path.starts_with(TASKS) => self.task(),
            ("GET", BIOS) => (
                200,
                json!({"Attributes": self.bios, "@Redfish.Settings": {"SettingsObject": {"@odata.id": format!("{BIOS}/Settings")},
                    "SupportedApplyTimes": ["OnReset"]}}),
            ),
            ("GET", path) if path.starts_with(BIOS) => {
                let mut shown = self.bios.clone();
                shown.extend(self.pending.clone());
                (200, json!({"Attributes": shown}))
            }
            ("PATCH", path) if path.starts_with(BIOS) => {
                self.settings.push(body.clone());
                if self.mood != Mood::SettingsDropped {
                    self.pending
                        .extend(body["Attributes"].as_object().unwrap().clone());
                }
                match self.mood {
                    Mood::SettingsRefused => (
                        400,
                        json!({"error": {"message": "The value depends on another attribute."}}),
                    ),
                    _ => (200, json!({})),
                }
            }
            ("POST", _) if self.mood == Mood::NoTargets && !body["Targets"].is_null() => (
                400,
                json!({"error": {"message": "Targets is not supported."}}),
            ),
            ("POST", _) => {
                self.updates.push(body.clone());
                (self.runs, self.looks) = (true, 0);
                (
                    202,
                    json!({"@odata.id": format!("{TASKS}/1"), "TaskState": "New"}),
                )
            }
            ("GET", path) => match self
                .versions
                .iter()
                .find(|(id, _)| path.ends_with(&format!("/{id}")))
            {
                Some((id, version)) => (200, member(id, version)),
                None => (404, json!({"error": {"message": "no such resource"}})),
            },
            _ => (405, Value::Null),
        }
    }

    fn list(&self) -> (u16, Value) {
        let members =
            self.versions
                .iter()
                .map(|(id, version)| match self.expands && !self.expand_fails {
                    true => member(id, version),
                    false => json!({"@odata.id": format!("{LIST}/{id}")}),
                });
        (200, json!({"Members": members.collect::<Vec<_>>()}))
    }

    /// Returns the task, finished at the third read.
    fn task(&mut self) -> (u16, Value) {
        self.looks += 1;
        let running = json!({"TaskState": "Running", "PercentComplete": self.looks.min(3) * 30});
        match self.mood {
            _ if !self.runs => (200, json!({"TaskState": "Completed", "TaskStatus": "OK"})),
            Mood::BusyMeanwhile if self.looks < 3 => {
                (503, json!({"error": {"message": "The BMC restarts."}}))
            }
            Mood::Forgets | Mood::ForgetsUnlisted | Mood::ForgetsUndone if self.looks > 1 => {
                self.runs = false;
                let (id, version) = self.brings;
                if self.mood != Mood::ForgetsUndone {
                    self.versions.insert(id, version.to_owned());
                }
                (404, json!({"error": {"message": "no such resource"}}))
            }
            Mood::TaskNeverEnds => (200, running),
            _ if self.looks < 3 => (200, running),
            Mood::TaskFails => {
                self.runs = false;
                let message = "The image's signature is not valid.";
                (
                    200,
                    json!({"TaskState": "Exception", "TaskStatus": "Critical", "Messages": [{"Message": message}]}),
                )
            }
            _ => {
                self.runs = false;
                let (id, version) = self.brings;
                match self.mood {
                    Mood::Unchanged => None,
                    _ if id == "BIOS" => self.staged.insert(id, version.to_owned()),
                    _ => self.versions.insert(id, version.to_owned()),
                };
                (200, json!({"TaskState": "Completed", "TaskStatus": "OK"}))
            }
        }
    }
}

fn member(id: &str, version: &str) -> Value {
    json!({"@odata.id": format!("{LIST}/{id}"), "Id": id, "Name": format!("{id} firmware"), "Version": version})
}

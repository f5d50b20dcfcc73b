//! The fake's update service, its tasks and its BIOS.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

const SERVICE: &str = "/redfish/v1/UpdateService";
const LIST: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const TASKS: &str = "/redfish/v1/TaskService/Tasks";
const BIOS: &str = "/redfish/v1/Systems/1/Bios";

/// How its updates and settings go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    TaskFails,
    TaskNeverEnds,
    /// The task is done, and nothing changed.
    Unchanged,
    /// 503 for the first looks at a task.
    BusyMeanwhile,
    /// Settings are taken, and never pending.
    SettingsDropped,
    /// Settings are shown as pending, and are not there after the restart.
    SettingsLost,
    /// It refuses to be told which part.
    NoTargets,
}

/// What it has, and what it was told.
#[derive(Debug)]
pub(crate) struct Hardware {
    pub(crate) versions: BTreeMap<&'static str, String>,
    pub(crate) bios: Map<String, Value>,
    pub(crate) mood: Mood,
    /// What the next update brings.
    pub(crate) brings: (&'static str, &'static str),
    /// Bodies of the updates that were asked for.
    pub(crate) updates: Vec<Value>,
    /// Bodies of the settings that were asked for.
    pub(crate) settings: Vec<Value>,
    /// Lists come with their members where that is asked for; and it says so, and cannot.
    pub(crate) expands: bool,
    pub(crate) expand_fails: bool,
    /// An update that runs, by somebody.
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

    /// What the service root says of it.
    pub(super) fn root(&self) -> Value {
        json!({"UpdateService": {"@odata.id": SERVICE}, "Tasks": {"@odata.id": "/redfish/v1/TaskService"},
            "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": self.expands}}})
    }

    /// What a restart brings into force.
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
                (200, json!({}))
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

    /// Done at the third look.
    fn task(&mut self) -> (u16, Value) {
        self.looks += 1;
        let running = json!({"TaskState": "Running", "PercentComplete": self.looks.min(3) * 30});
        match self.mood {
            _ if !self.runs => (200, json!({"TaskState": "Completed", "TaskStatus": "OK"})),
            Mood::BusyMeanwhile if self.looks < 3 => {
                (503, json!({"error": {"message": "The BMC restarts."}}))
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

//! Firmware updates and BIOS settings by Redfish (DSP0268 `UpdateService.SimpleUpdate`, `Task`,
//! `Bios` with `@Redfish.Settings`). An accepted request proves no change: the caller reads the
//! result back.

use std::collections::BTreeMap;

use muster_core::firmware::BiosValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::client::Redfish;
use super::links::{bare, link};
use crate::bmc::error::{BmcError, shortened};
use crate::bmc::view::{TaskState, TaskView};

/// Maximum number of task messages reported.
const MESSAGES: usize = 5;
/// Maximum number of tasks searched for a running task, latest first.
const TASKS: usize = 10;

impl Redfish {
    /// Sets BIOS attributes for the next boot. Waits until the attributes read back as pending, if
    /// the BMC reports pending values. Returns the refusal of a BMC that made the change all the
    /// same.
    pub(in crate::bmc) async fn set_bios(
        &self,
        wanted: &BTreeMap<String, BiosValue>,
    ) -> Result<Option<BmcError>, BmcError> {
        let _alone = self.writer().await;
        let system = self.get(self.system_path().await?).await?;
        let bios = match &system["Bios"] {
            Value::Null => {
                return Err(BmcError::Unsupported {
                    what: "its system names no BIOS".into(),
                });
            }
            bios => self.get(&link(bios)?).await?,
        };
        let offered = &bios["@Redfish.Settings"];
        let settings = match &offered["SettingsObject"] {
            Value::Null => {
                return Err(BmcError::Unsupported {
                    what: "its BIOS takes no settings by Redfish".into(),
                });
            }
            settings => link(settings)?,
        };
        match self.patch(&settings, &settings_body(wanted, offered)).await {
            Ok(()) => self.wait_pending(&settings, wanted).await.map(|()| None),
            Err(error) if error.is_refusal() || matches!(error, BmcError::Garbage { .. }) => {
                let shown = match self.get(&settings).await {
                    Ok(document) => document["Attributes"].clone(),
                    Err(_) => Value::Null,
                };
                let is_set = wanted.keys().all(|name| shown.get(name).is_some())
                    && dropped(wanted, &shown).is_none();
                is_set.then_some(Some(error.clone())).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the settings object shows the values, if it shows any.
    async fn wait_pending(
        &self,
        settings: &str,
        wanted: &BTreeMap<String, BiosValue>,
    ) -> Result<(), BmcError> {
        let started = Instant::now();
        loop {
            // Some BMCs report the pending values here, some the current values, some no values.
            let shown = match self.get(settings).await {
                Ok(document) => document["Attributes"].clone(),
                Err(error) if error.is_refusal() => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(seen) = dropped(wanted, &shown) else {
                return Ok(());
            };
            let waited = started.elapsed();
            if waited >= self.limits().settle {
                return Err(BmcError::NothingHappened {
                    call: "the change of BIOS settings".into(),
                    waited,
                    seen,
                });
            }
            tokio::time::sleep(self.limits().poll).await;
        }
    }

    /// Starts an update and returns the task to follow, if the BMC names a task. For a BMC that
    /// refuses a list of parts, the image alone selects the part.
    pub(in crate::bmc) async fn update(
        &self,
        image: &str,
        parts: &[String],
    ) -> Result<Option<String>, BmcError> {
        let _alone = self.writer().await;
        let root = self.get("/redfish/v1").await?;
        let service = match &root["UpdateService"] {
            Value::Null => {
                return Err(BmcError::Unsupported {
                    what: "it has no update service".into(),
                });
            }
            service => self.get(&link(service)?).await?,
        };
        let action = &service["Actions"]["#UpdateService.SimpleUpdate"];
        let target = match &action["target"] {
            Value::Null => {
                return Err(BmcError::Unsupported {
                    what: "it fetches no images (SimpleUpdate)".into(),
                });
            }
            target => link(&json!({ "@odata.id": target }))?,
        };
        let protocols = action["TransferProtocol@Redfish.AllowableValues"].as_array();
        if protocols.is_some_and(|offered| !offered.iter().any(|offer| offer == "HTTP")) {
            return Err(BmcError::Unsupported {
                what: "it fetches no images by HTTP".into(),
            });
        }
        let plain = json!({ "ImageURI": image, "TransferProtocol": "HTTP" });
        let list = service["FirmwareInventory"]["@odata.id"].as_str();
        let list = bare(list.unwrap_or_default());
        if parts.is_empty() || list.is_empty() {
            return self.begin(&target, &plain).await;
        }
        let targets: Vec<String> = parts.iter().map(|part| format!("{list}/{part}")).collect();
        let mut aimed = plain.clone();
        aimed["Targets"] = json!(targets);
        match self.begin(&target, &aimed).await {
            Err(BmcError::Unsupported { .. }) => self.begin(&target, &plain).await,
            answer => answer,
        }
    }

    /// Reads the progress of a task.
    pub(in crate::bmc) async fn task(&self, path: &str) -> Result<TaskView, BmcError> {
        match self.get_task(path).await {
            Ok(Ok(document)) => Ok(view(&document)),
            // iLO deletes a task when the task ends (ironcore-dev/metal-operator issue 668),
            // OpenBMC when the BMC restarts (ibm-openbmc/dev issue 3197).
            Ok(Err(said)) => Ok(TaskView {
                state: TaskState::Gone,
                percent: None,
                said: vec![said],
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns the running tasks among the latest tasks, an empty list for a BMC without tasks.
    pub(in crate::bmc) async fn running_tasks(&self) -> Result<Vec<String>, BmcError> {
        let root = self.get("/redfish/v1").await?;
        let service = match &root["Tasks"] {
            Value::Null => return Ok(Vec::new()),
            service => self.get(&link(service)?).await?,
        };
        let Ok(list) = link(&service["Tasks"]) else {
            return Ok(Vec::new());
        };
        let mut running = Vec::new();
        for path in self.members(&list).await?.into_iter().rev().take(TASKS) {
            if self.task(&path).await?.state == TaskState::Running {
                running.push(path);
            }
        }
        Ok(running)
    }
}

/// Returns the request body for BIOS settings. Includes the apply time if the BMC offers one.
fn settings_body(wanted: &BTreeMap<String, BiosValue>, offered: &Value) -> Value {
    let attributes: Map<String, Value> = wanted
        .iter()
        .map(|(name, value)| {
            (
                name.clone(),
                serde_json::to_value(value).unwrap_or_default(),
            )
        })
        .collect();
    let mut body = json!({ "Attributes": attributes });
    let times = offered["SupportedApplyTimes"].as_array();
    if times.is_some_and(|times| times.iter().any(|time| time == "OnReset")) {
        let kind = "#Settings.v1_1_0.PreferredApplyTime";
        body["@Redfish.SettingsApplyTime"] = json!({ "@odata.type": kind, "ApplyTime": "OnReset" });
    }
    body
}

/// Returns the settings reported with another value than requested. Returns `None` when every
/// reported value matches.
fn dropped(wanted: &BTreeMap<String, BiosValue>, shown: &Value) -> Option<String> {
    let other = wanted.iter().filter_map(|(name, value)| {
        let seen: BiosValue = serde_json::from_value(shown.get(name)?.clone()).ok()?;
        (!seen.means(value)).then(|| shortened(&format!("{name} as {seen}")))
    });
    let other: Vec<String> = other.take(MESSAGES).collect();
    (!other.is_empty()).then(|| other.join(", "))
}

/// Returns the state of a task or of a monitor answer. A monitor answers with an empty body after
/// the end of the task.
fn view(document: &Value) -> TaskView {
    let state = match document["TaskState"].as_str() {
        Some("Completed") => match document["TaskStatus"].as_str() {
            Some("Critical") => TaskState::Failed,
            Some(_) | None => TaskState::Done,
        },
        Some("Exception" | "Killed" | "Cancelled" | "Interrupted") => TaskState::Failed,
        Some("Pending" | "Suspended") => TaskState::Waits,
        Some(_) => TaskState::Running,
        None if document["error"].is_object() => TaskState::Failed,
        // A task that shows no state is no proof of an end. A monitor shows the result instead.
        None if is_task(document) => TaskState::Running,
        None => TaskState::Done,
    };
    let messages = document["Messages"]
        .as_array()
        .or(document["error"]["@Message.ExtendedInfo"].as_array());
    let messages = messages.map_or(&[][..], Vec::as_slice).iter();
    let said = messages.filter_map(|message| {
        message["Message"]
            .as_str()
            .or(message["MessageId"].as_str())
    });
    // The latest messages explain the result.
    let said: Vec<String> = said.map(shortened).collect();
    let from = said.len().saturating_sub(MESSAGES);
    TaskView {
        state,
        percent: document["PercentComplete"]
            .as_u64()
            .map(|percent| percent.min(100)),
        said: said[from..].to_vec(),
    }
}

fn is_task(document: &Value) -> bool {
    let kind = document["@odata.type"].as_str();
    kind.is_some_and(|kind| kind.starts_with("#Task."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_done_only_when_it_says_so_and_its_messages_are_kept() {
        let failed = json!({"TaskState": "Exception", "TaskStatus": "Critical", "PercentComplete": 300,
            "Messages": [{"MessageId": "Update.1.0.TransferFailed", "Message": "Transfer of image failed.\n"}, {"MessageId": "x"}]});
        let told = view(&failed);
        assert_eq!((told.state, told.percent), (TaskState::Failed, Some(100)));
        assert_eq!(told.said, ["Transfer of image failed. ", "x"]);
        for (document, state) in [
            (
                json!({"TaskState": "Completed", "TaskStatus": "OK"}),
                TaskState::Done,
            ),
            (
                json!({"TaskState": "Completed", "TaskStatus": "Critical"}),
                TaskState::Failed,
            ),
            (json!({"TaskState": "Pending"}), TaskState::Waits),
            (json!({"TaskState": "New"}), TaskState::Running),
            (json!({"TaskState": "Verifying"}), TaskState::Running),
            (
                json!({"@odata.type": "#Task.v1_7_4.Task", "Id": "7"}),
                TaskState::Running,
            ),
            (json!({"Id": "result of a monitor"}), TaskState::Done),
            (Value::Null, TaskState::Done),
            (
                json!({"error": {"@Message.ExtendedInfo": [{"Message": "no"}]}}),
                TaskState::Failed,
            ),
        ] {
            assert_eq!(view(&document).state, state, "{document}");
        }
    }

    #[test]
    fn settings_say_when_they_hold_where_that_is_offered() {
        let wanted: BTreeMap<String, BiosValue> = [
            ("Sriov".to_owned(), BiosValue::Text("Enabled".into())),
            ("Nps".to_owned(), BiosValue::Number(4)),
        ]
        .into();
        let body = settings_body(
            &wanted,
            &json!({"SupportedApplyTimes": ["OnReset", "InMaintenanceWindowOnReset"]}),
        );
        assert_eq!(body["Attributes"], json!({"Nps": 4, "Sriov": "Enabled"}));
        assert_eq!(body["@Redfish.SettingsApplyTime"]["ApplyTime"], "OnReset");
        assert_eq!(
            settings_body(&wanted, &json!({})).as_object().map(Map::len),
            Some(1)
        );
        assert_eq!(
            dropped(&wanted, &json!({"Sriov": "Enabled"})),
            None,
            "what is not shown is not known"
        );
        assert_eq!(
            dropped(&wanted, &json!({"Sriov": "Disabled", "Nps": "4"})).as_deref(),
            Some("Sriov as Disabled")
        );
        assert_eq!(dropped(&wanted, &Value::Null), None);
    }
}

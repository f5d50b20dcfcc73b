//! The non-volatile memory of a BMC in `bmc.json`: accounts, event log, firmware versions and
//! settings.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use muster_core::values::Secret;
use serde::{Deserialize, Serialize};

use super::update::Hardware;
use crate::error::{LabError, io};
use crate::files::write_atomically;
use crate::plan::BmcPlan;

/// Maximum number of entries in the event log; a new entry removes the oldest.
const MAX_EVENTS: usize = 500;

/// A user account of the BMC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) id: u32,
    pub(crate) user: String,
    pub(crate) password: Secret,
    pub(crate) role: String,
    pub(crate) enabled: bool,
}

/// An entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event; counts from 1 over the life of the BMC.
    pub id: u64,
    /// When the event happened.
    pub created: Timestamp,
    /// Redfish severity: `OK`, `Warning` or `Critical`.
    pub severity: String,
    /// The kind of event, as a Redfish message id.
    pub message_id: String,
    /// The text for a person.
    pub message: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    accounts: Vec<Account>,
    events: Vec<Event>,
    next_event: u64,
    #[serde(default)]
    hardware: Hardware,
}

/// The memory of a BMC and the path of its file.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    contents: Contents,
}

impl Memory {
    /// Reads the state left by an earlier run, or starts with the factory state.
    pub(crate) fn open(dir: &Path, plan: &BmcPlan) -> Result<Self, LabError> {
        let path = dir.join("bmc.json");
        let mut contents: Contents = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|e| LabError::Plan(format!("{}: {e}", path.display())))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Contents {
                accounts: vec![Account {
                    id: 1,
                    user: plan.user.clone(),
                    password: plan.password.clone(),
                    role: "Administrator".to_owned(),
                    enabled: true,
                }],
                events: Vec::new(),
                next_event: 1,
                hardware: Hardware::default(),
            },
            Err(error) => return Err(io(format!("read {}", path.display()))(error)),
        };
        contents.hardware = contents.hardware.wake();
        Ok(Self { path, contents })
    }

    /// Returns the accounts.
    pub(crate) fn accounts(&self) -> &[Account] {
        &self.contents.accounts
    }

    /// Changes the password of an account; returns false when the account does not exist.
    pub(crate) fn set_password(&mut self, id: u32, password: Secret) -> Result<bool, LabError> {
        let Some(account) = self
            .contents
            .accounts
            .iter_mut()
            .find(|account| account.id == id)
        else {
            return Ok(false);
        };
        account.password = password;
        write_atomically(&self.path, &self.contents).map(|()| true)
    }

    /// Returns the event log, oldest first.
    pub(crate) fn events(&self) -> &[Event] {
        &self.contents.events
    }

    /// Returns the firmware versions and settings changed since the factory.
    pub(crate) fn hardware(&self) -> &Hardware {
        &self.contents.hardware
    }

    /// Changes the firmware state and saves the file.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Hardware) -> T) -> T {
        let changed = change(&mut self.contents.hardware);
        self.save();
        changed
    }

    /// Adds an event to the log and saves the file.
    pub(crate) fn log(
        &mut self,
        created: Timestamp,
        severity: &str,
        message_id: &str,
        message: String,
    ) {
        let id = self.contents.next_event;
        self.contents.next_event += 1;
        let (severity, message_id) = (severity.to_owned(), format!("MusterLab.1.0.{message_id}"));
        if self.contents.events.len() == MAX_EVENTS {
            self.contents.events.remove(0);
        }
        self.contents.events.push(Event {
            id,
            created,
            severity,
            message_id,
            message,
        });
        self.save();
    }

    /// Empties the event log; event ids continue from the last value.
    pub(crate) fn clear_events(&mut self) {
        self.contents.events.clear();
        self.save();
    }

    fn save(&self) {
        if let Err(error) = write_atomically(&self.path, &self.contents) {
            tracing::error!(path = %self.path.display(), %error, "a BMC's memory could not be written");
        }
    }
}

//! Writes accepted by the BMC: log in, power, boot override, accounts and updates. A power reset is
//! answered at once and happens a little later, as on a real BMC.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use muster_core::values::Secret;
use serde_json::{Value, json};

use super::access::{log_failure, require};
use super::interface::boot_mode;
use super::reply::{self, Reply, error};
use super::systems::{BOOT_TARGETS, RESET_TYPES};
use super::{Service, services, update};
use crate::error::LabError;
use crate::machine::firmware::{BootOverride, OverrideEnabled, OverrideTarget};
use crate::machine::oracle::Cause;
use crate::machine::{Machine, PowerState};

/// How long the BMC answers 503 after a manager reset.
const RESTART: Duration = Duration::from_secs(3);

/// A write request: the method, the JSON document and the user.
pub(crate) struct Act<'a> {
    pub(crate) service: &'a Arc<Service>,
    /// The logged-in account; `None` only for the login request.
    pub(crate) user: Option<String>,
    pub(crate) method: &'a Method,
    pub(crate) document: Value,
    /// Whether to reject every credential, as after a password change made without the client.
    pub(crate) all_wrong: bool,
}

impl Act<'_> {
    /// Performs the write; returns `None` if the path and method allow no write.
    pub(crate) async fn perform(&self, segments: &[&str]) -> Option<Reply> {
        match (self.method, segments) {
            (&Method::POST, ["v1", "SessionService", "Sessions"]) => Some(self.log_in()),
            (&Method::DELETE, ["v1", "SessionService", "Sessions", id]) => Some(self.log_out(id)),
            (&Method::PATCH, ["v1", "Systems", "1"]) => Some(self.patch_system()),
            (&Method::POST, ["v1", "Systems", "1", "Actions", "ComputerSystem.Reset"]) => {
                Some(self.reset_system())
            }
            (&Method::POST, ["v1", "Managers", "1", "Actions", "Manager.Reset"]) => {
                Some(self.reset_manager())
            }
            (
                &Method::POST,
                [
                    "v1",
                    "Managers" | "Systems",
                    "1",
                    "LogServices",
                    "EventLog",
                    "Actions",
                    "LogService.ClearLog",
                ],
            ) => {
                self.service.memory().clear_events();
                Some(Reply::no_content())
            }
            (&Method::PATCH, ["v1", "AccountService", "Accounts", id]) => {
                Some(self.patch_account(id))
            }
            (&Method::PATCH, ["v1", "Systems", "1", "Bios", "Settings"]) => {
                Some(update::patch_settings(self.service, &self.document))
            }
            (
                &Method::POST,
                [
                    "v1",
                    "UpdateService",
                    "Actions",
                    "UpdateService.SimpleUpdate",
                ],
            ) => Some(update::simple_update(self.service, &self.document)),
            _ => None,
        }
    }

    fn text(&self, property: &str) -> Option<&str> {
        self.document.get(property).and_then(Value::as_str)
    }

    fn log_in(&self) -> Reply {
        let Some(user) = self.text("UserName") else {
            return reply::missing("UserName");
        };
        let Some(password) = self.text("Password") else {
            return reply::missing("Password");
        };
        let attempt = {
            let memory = self.service.memory();
            self.service
                .access()
                .log_in(user, password, memory.accounts(), self.all_wrong)
        };
        log_failure(self.service, &attempt);
        match require(attempt) {
            Ok(user) => {
                let (id, token) = self.service.access().start_session(&user);
                let location = format!("/redfish/v1/SessionService/Sessions/{id}");
                Reply::created(&location, services::session(id, &user)).with("x-auth-token", token)
            }
            Err(refusal) => refusal,
        }
    }

    fn log_out(&self, id: &str) -> Reply {
        match id
            .parse()
            .is_ok_and(|id| self.service.access().end_session(id))
        {
            true => Reply::no_content(),
            false => reply::not_found(id),
        }
    }

    fn patch_system(&self) -> Reply {
        let Some(fields) = self.document.as_object() else {
            return reply::missing("Boot");
        };
        if let Some(other) = fields.keys().find(|key| *key != "Boot") {
            return reply::not_writable(other);
        }
        let Some(boot) = fields.get("Boot").and_then(Value::as_object) else {
            return reply::missing("Boot");
        };
        let mut wanted = self.service.machine.boot_override();
        for (property, value) in boot {
            let refused = || reply::not_in_list(property, value);
            match property.as_str() {
                "BootSourceOverrideEnabled" => {
                    match serde_json::from_value::<OverrideEnabled>(value.clone()) {
                        Ok(enabled) => wanted.enabled = enabled,
                        Err(_) => return refused(),
                    }
                }
                "BootSourceOverrideTarget"
                    if value
                        .as_str()
                        .is_some_and(|target| BOOT_TARGETS.contains(&target)) =>
                {
                    match serde_json::from_value::<OverrideTarget>(value.clone()) {
                        Ok(target) => wanted.target = target,
                        Err(_) => return refused(),
                    }
                }
                "BootSourceOverrideMode" if *value == json!(boot_mode(self.service)) => {}
                "BootSourceOverrideTarget" | "BootSourceOverrideMode" => return refused(),
                _ => return reply::not_writable(property),
            }
        }
        self.set_override(wanted)
    }

    fn set_override(&self, mut wanted: BootOverride) -> Reply {
        if wanted.enabled == OverrideEnabled::Disabled {
            wanted.target = OverrideTarget::None;
        }
        if let Err(error) = self.service.machine.set_boot_override(wanted) {
            return reply::internal(&error.to_string());
        }
        let by = self.user.as_deref().unwrap_or_default();
        let message = format!(
            "Boot override set to {:?} {:?} by {by}.",
            wanted.enabled, wanted.target
        );
        self.service.log("OK", "BootOverride", message);
        Reply::no_content()
    }

    fn reset_system(&self) -> Reply {
        let Some(reset) = self.document.get("ResetType") else {
            return reply::missing("ResetType");
        };
        let known = RESET_TYPES
            .iter()
            .find(|known| reset.as_str() == Some(**known));
        let Some(&reset) = known else {
            return reply::not_in_list("ResetType", reset);
        };
        let needs_power = matches!(
            reset,
            "GracefulShutdown" | "GracefulRestart" | "ForceRestart"
        );
        if needs_power && self.service.machine.power() == PowerState::Off {
            return reply::conflict("The system is powered off.");
        }
        let user = self.user.clone().unwrap_or_default();
        let cause = Cause::Bmc {
            user,
            reset: reset.to_owned(),
        };
        let (service, delay) = (
            Arc::clone(self.service),
            Duration::from_millis(self.service.plan.reset_delay_ms),
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "the machine owns a reset that began, and its lock serialises resets"
        )]
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Err(error) = change_power(&service.machine, reset, cause).await {
                service.log(
                    "Critical",
                    "ResetFailed",
                    format!("{reset} failed: {error}"),
                );
            }
        });
        Reply::no_content()
    }

    fn reset_manager(&self) -> Reply {
        *self
            .service
            .restarting_until
            .lock()
            .expect("no holder panics") = Some(Instant::now() + RESTART);
        self.service
            .log("OK", "ManagerReset", "The manager was reset.");
        Reply::no_content()
    }

    fn patch_account(&self, id: &str) -> Reply {
        let Some(fields) = self.document.as_object() else {
            return reply::missing("Password");
        };
        if let Some(other) = fields.keys().find(|key| *key != "Password") {
            return reply::not_writable(other);
        }
        let Some(password) = self.text("Password") else {
            return reply::missing("Password");
        };
        if !(8..=64).contains(&password.len()) {
            let text = "The password has fewer than 8 or more than 64 characters.";
            return error(
                StatusCode::BAD_REQUEST,
                "PropertyValueFormatError",
                text,
                "Choose another password.",
            );
        }
        let Ok(number) = id.parse() else {
            return reply::not_found(id);
        };
        let changed = self
            .service
            .memory()
            .set_password(number, Secret::new(password));
        match changed {
            Ok(true) => self.account_changed(number),
            Ok(false) => reply::not_found(id),
            Err(error) => reply::internal(&error.to_string()),
        }
    }

    fn account_changed(&self, id: u32) -> Reply {
        let user = {
            let memory = self.service.memory();
            memory
                .accounts()
                .iter()
                .find(|account| account.id == id)
                .map(|account| account.user.clone())
        };
        let user = user.unwrap_or_default();
        self.service.access().end_sessions_of(&user);
        self.service.log(
            "OK",
            "PasswordChanged",
            format!("The password of {user:?} was changed."),
        );
        Reply::no_content()
    }
}

async fn change_power(machine: &Arc<Machine>, reset: &str, cause: Cause) -> Result<(), LabError> {
    match reset {
        "On" => machine.power_on(cause).await,
        "ForceOff" => machine.power_off(cause).await,
        "GracefulShutdown" => machine.shut_down(cause).await,
        "GracefulRestart" => machine.restart_gracefully(cause).await,
        "ForceRestart" => machine.reset(cause).await,
        "PowerCycle" => machine.power_cycle(cause).await,
        _ => machine.press_button(cause).await,
    }
}

//! The service root and the services beside the hardware: sessions, accounts, updates and tasks.

use serde_json::{Value, json};

use super::enclosure::uuid;
use super::memory::Account;
use super::reply::collection;
use super::{Service, update};

const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const ROLE: &str = "/redfish/v1/AccountService/Roles/Administrator";

/// The service root, readable without login.
pub(crate) fn root(service: &Service) -> Value {
    let link = |name: &str| json!({"@odata.id": format!("/redfish/v1/{name}")});
    json!({
        "@odata.id": "/redfish/v1/",
        "@odata.type": "#ServiceRoot.v1_13_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.15.0",
        "UUID": uuid(service),
        "Vendor": service.machine.plan.manufacturer,
        "Product": "Muster Lab BMC",
        "Systems": link("Systems"),
        "Chassis": link("Chassis"),
        "Managers": link("Managers"),
        "SessionService": link("SessionService"),
        "AccountService": link("AccountService"),
        "UpdateService": link("UpdateService"),
        "Tasks": link("TaskService"),
        "Links": {"Sessions": {"@odata.id": SESSIONS}},
    })
}

/// The resource at any other path below `/redfish/v1`.
pub(crate) fn resource(service: &Service, segments: &[&str]) -> Option<Value> {
    match segments {
        ["SessionService", rest @ ..] => session_resource(service, rest),
        ["AccountService", rest @ ..] => account_resource(service, rest),
        ["UpdateService", rest @ ..] => update::updates(service, rest),
        ["TaskService"] => Some(json!({
            "@odata.id": "/redfish/v1/TaskService",
            "@odata.type": "#TaskService.v1_2_0.TaskService",
            "Id": "TaskService",
            "Name": "Task Service",
            "ServiceEnabled": true,
            "Tasks": {"@odata.id": "/redfish/v1/TaskService/Tasks"},
        })),
        ["TaskService", "Tasks", rest @ ..] => update::tasks(service, rest),
        _ => None,
    }
}

fn session_resource(service: &Service, segments: &[&str]) -> Option<Value> {
    match segments {
        [] => Some(json!({
            "@odata.id": "/redfish/v1/SessionService",
            "@odata.type": "#SessionService.v1_1_8.SessionService",
            "Id": "SessionService",
            "Name": "Session Service",
            "ServiceEnabled": true,
            "SessionTimeout": 300,
            "Sessions": {"@odata.id": SESSIONS},
        })),
        ["Sessions"] => {
            let ids: Vec<String> = service
                .access()
                .sessions()
                .iter()
                .map(|session| session.id.to_string())
                .collect();
            Some(collection(SESSIONS, "Session", &ids))
        }
        ["Sessions", id] => {
            let mut access = service.access();
            let found = access
                .sessions()
                .iter()
                .find(|session| session.id.to_string() == *id)?;
            Some(session(found.id, &found.user))
        }
        _ => None,
    }
}

fn account_resource(service: &Service, segments: &[&str]) -> Option<Value> {
    match segments {
        [] => Some(account_service(service)),
        ["Accounts"] => {
            let ids: Vec<String> = service
                .memory()
                .accounts()
                .iter()
                .map(|account| account.id.to_string())
                .collect();
            Some(collection(ACCOUNTS, "ManagerAccount", &ids))
        }
        ["Accounts", id] => service
            .memory()
            .accounts()
            .iter()
            .find(|account| account.id.to_string() == *id)
            .map(account),
        ["Roles"] => Some(collection(
            "/redfish/v1/AccountService/Roles",
            "Role",
            &["Administrator".to_owned()],
        )),
        ["Roles", "Administrator"] => Some(json!({
            "@odata.id": ROLE,
            "@odata.type": "#Role.v1_3_1.Role",
            "Id": "Administrator",
            "Name": "Administrator",
            "RoleId": "Administrator",
            "IsPredefined": true,
            "AssignedPrivileges": ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"],
        })),
        _ => None,
    }
}

/// A session resource, without the session token.
pub(crate) fn session(id: u64, user: &str) -> Value {
    json!({
        "@odata.id": format!("{SESSIONS}/{id}"),
        "@odata.type": "#Session.v1_5_0.Session",
        "Id": id.to_string(),
        "Name": "Session",
        "UserName": user,
    })
}

fn account_service(service: &Service) -> Value {
    json!({
        "@odata.id": "/redfish/v1/AccountService",
        "@odata.type": "#AccountService.v1_12_0.AccountService",
        "Id": "AccountService",
        "Name": "Account Service",
        "ServiceEnabled": true,
        "MinPasswordLength": 8,
        "MaxPasswordLength": 64,
        "AccountLockoutThreshold": service.plan.lockout_threshold,
        "AccountLockoutDuration": service.plan.lockout_s,
        "Accounts": {"@odata.id": ACCOUNTS},
        "Roles": {"@odata.id": "/redfish/v1/AccountService/Roles"},
    })
}

/// An account resource; the password always reads as null.
fn account(account: &Account) -> Value {
    json!({
        "@odata.id": format!("{ACCOUNTS}/{}", account.id),
        "@odata.type": "#ManagerAccount.v1_9_0.ManagerAccount",
        "Id": account.id.to_string(),
        "Name": "User Account",
        "UserName": account.user,
        "Password": null,
        "RoleId": account.role,
        "Enabled": account.enabled,
        "Links": {"Role": {"@odata.id": ROLE}},
    })
}

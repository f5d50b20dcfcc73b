//! Changes the login account of the agent (DMTF DSP2046, AccountService and ManagerAccount).

use muster_core::values::Secret;
use serde_json::{Value, json};

use super::client::Redfish;
use super::links::link;
use crate::bmc::error::BmcError;

impl Redfish {
    /// Changes the password of the account used for login.
    pub(in crate::bmc) async fn set_password(&self, password: &Secret) -> Result<(), BmcError> {
        let _alone = self.writer().await;
        let account = self.account().await?;
        self.patch(&account, &json!({ "Password": password.reveal() }))
            .await
    }

    /// Returns the path of the login account. The account is found by name, because each BMC
    /// assigns its own ids.
    async fn account(&self) -> Result<String, BmcError> {
        let none = || BmcError::Unsupported {
            what: "this BMC has no account service".into(),
        };
        let service = match &self.get("/redfish/v1").await?["AccountService"] {
            Value::Null => return Err(none()),
            service => link(service)?,
        };
        let accounts = match self.get(&service).await {
            Ok(service) => link(&service["Accounts"])?,
            Err(BmcError::Unsupported { .. }) => return Err(none()),
            Err(error) => return Err(error),
        };
        // An operator's account may not read the others.
        let mut unread = None;
        for path in self.members(&accounts).await? {
            match self.get(&path).await {
                Ok(account) if account["UserName"].as_str() == Some(self.user()) => {
                    return Ok(path);
                }
                Ok(_) => {}
                Err(error) if error.is_refusal() => unread = Some(error),
                Err(error) => return Err(error),
            }
        }
        let mut what = "its account service does not list the account we log in with".to_owned();
        if let Some(error) = unread {
            what = format!("{what}, and does not show each account: {error}");
        }
        Err(BmcError::Unsupported { what })
    }
}

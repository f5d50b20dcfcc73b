//! The account that an agent logs in with (IPMI 2.0, sections 22.28 to 22.30).

use muster_core::values::Secret;

use super::Ipmi;
use crate::bmc::error::{BmcError, shortened};

impl Ipmi {
    /// Changes the password of the account used for login. `ipmitool` reads the command from
    /// standard input, because every user of the machine can read the arguments of a process.
    pub(in crate::bmc) async fn set_password(&self, password: &Secret) -> Result<(), BmcError> {
        let _alone = self.writer().await;
        let tool = &self.inner.tool;
        let said = tool.run_unseen(&Secret::new("user list")).await?;
        let user = &tool.target.user;
        let id = account(&said, user).ok_or_else(|| BmcError::Unsupported {
            what: format!("its list of users has no {user:?}: {:?}", shortened(&said)),
        })?;
        tool.run_unseen(&Secret::new(format!(
            "user set password {id} {}",
            password.reveal()
        )))
        .await
        .map(drop)
    }
}

/// Returns the number of a user in the output of `user list`. The second column is the user name.
fn account(said: &str, user: &str) -> Option<u8> {
    said.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let id = words.next()?.parse().ok()?;
        (words.next()? == user).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name() {
        let said = "ID  Name\t     Callin  Link Auth\tIPMI Msg   Channel Priv Limit\n\
                    1                    true    false      false      NO ACCESS\n\
                    2   admin            true    true       true       ADMINISTRATOR\n\
                    3   admin2           true    true       true       OPERATOR\n";
        assert_eq!(
            (account(said, "admin"), account(said, "admin2")),
            (Some(2), Some(3))
        );
        assert_eq!((account(said, "root"), account("", "admin")), (None, None));
    }
}

//! Calls about agents, tokens and people: the callers of the API.

use http::Method;
use muster_core::values::Name;

use super::{Client, ClientError, Precondition};
use crate::agents::{Agent, EnrolAgent, EnrolledAgent};
use crate::object::Page;
use crate::tokens::{CreateToken, CreatedToken, FIRST, Token};
use crate::users::User;

impl Client {
    /// Enrols an agent. The response is the only place where the token is shown.
    ///
    /// # Errors
    /// 409 when the name is taken; see [`ClientError`].
    pub async fn enrol_agent(&self, site: &str, name: &Name) -> Result<EnrolledAgent, ClientError> {
        let body = EnrolAgent { name: name.clone() };
        self.fetch(
            self.request(Method::POST, &["sites", site, "agents"])
                .json(&body),
        )
        .await
    }

    /// Lists the agents of a site.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_agents(&self, site: &str) -> Result<Page<Agent>, ClientError> {
        self.whole(&["sites", site, "agents"], &[]).await
    }

    /// Returns one agent of a site, by name or id.
    ///
    /// # Errors
    /// 404 for an unknown agent; see [`ClientError`].
    pub async fn agent(&self, site: &str, agent: &str) -> Result<Agent, ClientError> {
        self.fetch(self.request(Method::GET, &["sites", site, "agents", agent]))
            .await
    }

    /// Removes exactly this generation of an agent. The agent's certificates become invalid at
    /// once.
    ///
    /// # Errors
    /// 412 when another agent was enrolled under the same name; see [`ClientError`].
    pub async fn remove_agent(
        &self,
        site: &str,
        agent: &str,
        generation: i64,
    ) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["sites", site, "agents", agent]);
        self.perform(Precondition::Generation(generation).apply(request))
            .await
    }

    /// Creates a token. The response is the only place where the secret is shown.
    ///
    /// # Errors
    /// 409 when the name is taken; see [`ClientError`].
    pub async fn create_token(&self, token: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.fetch(self.request(Method::POST, &["tokens"]).json(token))
            .await
    }

    /// Lists the tokens, without secrets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_tokens(&self) -> Result<Page<Token>, ClientError> {
        self.whole(&["tokens"], &[]).await
    }

    /// Revokes a token at once, by name or id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_token(&self, token: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["tokens", token]);
        self.perform(Precondition::Generation(FIRST).apply(request))
            .await
    }

    /// Applies `disable`, `enable` or `unlock` to a person, by name or id.
    ///
    /// # Errors
    /// 409 for the caller's own account; see [`ClientError`].
    pub async fn act_on_user(&self, user: &str, action: &str) -> Result<User, ClientError> {
        self.fetch(self.request(Method::POST, &["users", user, "actions", action]))
            .await
    }
}

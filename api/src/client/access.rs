//! Agents, tokens and people: who may call.

use http::Method;
use muster_core::values::Name;

use super::{Client, ClientError, Precondition};
use crate::agents::{Agent, EnrolAgent, EnrolledAgent};
use crate::object::Page;
use crate::tokens::{CreateToken, CreatedToken, FIRST, Token};
use crate::users::User;

impl Client {
    /// Enrols an agent; its token is in this answer and nowhere else.
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

    /// The agents of a site.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_agents(&self, site: &str) -> Result<Page<Agent>, ClientError> {
        self.whole(&["sites", site, "agents"], &[]).await
    }

    /// One agent of a site, by name or id.
    ///
    /// # Errors
    /// 404 when there is none; see [`ClientError`].
    pub async fn agent(&self, site: &str, agent: &str) -> Result<Agent, ClientError> {
        self.fetch(self.request(Method::GET, &["sites", site, "agents", agent]))
            .await
    }

    /// Removes an agent, of this generation; its certificates end at once.
    ///
    /// # Errors
    /// 412 when another one was enrolled under its name; see [`ClientError`].
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

    /// Makes a token; its secret is in this answer and nowhere else.
    ///
    /// # Errors
    /// 409 when the name is taken; see [`ClientError`].
    pub async fn create_token(&self, token: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.fetch(self.request(Method::POST, &["tokens"]).json(token))
            .await
    }

    /// Tokens without their secrets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_tokens(&self) -> Result<Page<Token>, ClientError> {
        self.whole(&["tokens"], &[]).await
    }

    /// Ends a token, by name or id, at once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn revoke_token(&self, token: &str) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["tokens", token]);
        self.perform(Precondition::Generation(FIRST).apply(request))
            .await
    }

    /// Says `disable` or `enable` of a person, by name or id.
    ///
    /// # Errors
    /// 409 of oneself; see [`ClientError`].
    pub async fn act_on_user(&self, user: &str, action: &str) -> Result<User, ClientError> {
        self.fetch(self.request(Method::POST, &["users", user, "actions", action]))
            .await
    }
}

//! Calls about rollouts.

use http::Method;
use serde::Serialize;

use super::{Client, ClientError};
use crate::object::Page;
use crate::rollouts::{PlanRollout, Rollout, StartRollout};

impl Client {
    /// Returns the newest rollouts, of all pools or of one.
    ///
    /// # Errors
    /// 404 for an unknown pool; see [`ClientError`].
    pub async fn rollouts(&self, pool: Option<&str>) -> Result<Page<Rollout>, ClientError> {
        let pool = pool.map(|pool| ("pool", pool.to_owned()));
        let request = self.request(Method::GET, &["rollouts"]);
        self.fetch(request.query(&pool.into_iter().collect::<Vec<_>>()))
            .await
    }

    /// Returns one rollout with its nodes.
    ///
    /// # Errors
    /// 404 for an unknown rollout; see [`ClientError`].
    pub async fn rollout(&self, rollout: &str) -> Result<Rollout, ClientError> {
        self.fetch(self.request(Method::GET, &["rollouts", rollout]))
            .await
    }

    /// Plans a rollout.
    ///
    /// # Errors
    /// 409 where no node needs a change; see [`ClientError`].
    pub async fn plan_rollout(&self, body: &PlanRollout) -> Result<Rollout, ClientError> {
        self.fetch(self.request(Method::POST, &["rollouts"]).json(body))
            .await
    }

    /// Starts a planned rollout.
    ///
    /// # Errors
    /// 409 where the fleet has changed since the plan; see [`ClientError`].
    pub async fn start_rollout(
        &self,
        rollout: &str,
        body: &StartRollout,
    ) -> Result<Rollout, ClientError> {
        self.steer_rollout(rollout, "start", body).await
    }

    /// Requests another act on a rollout: `halt`, `resume`, `promote`, `adjust`, `skip`,
    /// `retry` or `requeue`.
    ///
    /// # Errors
    /// 409 where the state of the rollout does not allow the act; see [`ClientError`].
    pub async fn steer_rollout(
        &self,
        rollout: &str,
        act: &str,
        body: &impl Serialize,
    ) -> Result<Rollout, ClientError> {
        let path = ["rollouts", rollout, "actions", act];
        self.fetch(self.request(Method::POST, &path).json(body))
            .await
    }
}

//! Calls about pair runs of a pool.

use http::Method;
use uuid::Uuid;

use super::{Client, ClientError};
use crate::nodes::NodePlan;
use crate::object::Page;
use crate::operations::Operation;
use crate::pairs::{PairRun, RunPairs};

impl Client {
    /// Starts a pair run: measures idle nodes of a pool against each other.
    ///
    /// # Errors
    /// 409 during another pair run of the pool; 422 when the suite has no pair gate; see
    /// [`ClientError`].
    pub async fn run_pairs(&self, pool: &str, body: &RunPairs) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["pools", pool, "actions", "run-pairs"])
                .json(body),
        )
        .await
    }

    /// Returns the effect of [`Client::run_pairs`] with this body, without a run.
    ///
    /// # Errors
    /// As [`Client::run_pairs`].
    pub async fn plan_pairs(&self, pool: &str, body: &RunPairs) -> Result<NodePlan, ClientError> {
        let request = self.request(Method::POST, &["pools", pool, "actions", "run-pairs"]);
        self.fetch(request.query(&[("dry_run", "true")]).json(body))
            .await
    }

    /// Returns the latest pair runs of a pool, newest first.
    ///
    /// # Errors
    /// 404 for an unknown pool; see [`ClientError`].
    pub async fn pair_runs(&self, pool: &str) -> Result<Page<PairRun>, ClientError> {
        self.fetch(self.request(Method::GET, &["pools", pool, "pair-runs"]))
            .await
    }

    /// Returns one run, with the measurements of each pair.
    ///
    /// # Errors
    /// 404 for an unknown run; see [`ClientError`].
    pub async fn pair_run(&self, pool: &str, run: Uuid) -> Result<PairRun, ClientError> {
        self.fetch(self.request(Method::GET, &["pools", pool, "pair-runs", &run.to_string()]))
            .await
    }
}

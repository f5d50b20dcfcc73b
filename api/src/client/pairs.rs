//! What is asked of pools beside their documents.

use http::Method;
use uuid::Uuid;

use super::{Client, ClientError};
use crate::nodes::NodePlan;
use crate::object::Page;
use crate::operations::Operation;
use crate::pairs::{PairRun, RunPairs};

impl Client {
    /// Measures idle nodes of a pool against each other.
    ///
    /// # Errors
    /// 409 while its pairs are being measured already; 422 when the suite has no pair gate; see [`ClientError`].
    pub async fn run_pairs(&self, pool: &str, body: &RunPairs) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["pools", pool, "actions", "run-pairs"])
                .json(body),
        )
        .await
    }

    /// What [`Client::run_pairs`] with this body would do.
    ///
    /// # Errors
    /// As [`Client::run_pairs`].
    pub async fn plan_pairs(&self, pool: &str, body: &RunPairs) -> Result<NodePlan, ClientError> {
        let request = self.request(Method::POST, &["pools", pool, "actions", "run-pairs"]);
        self.fetch(request.query(&[("dry_run", "true")]).json(body))
            .await
    }

    /// The newest runs of a pool's pairs, newest first.
    ///
    /// # Errors
    /// 404 when there is no such pool; see [`ClientError`].
    pub async fn pair_runs(&self, pool: &str) -> Result<Page<PairRun>, ClientError> {
        self.fetch(self.request(Method::GET, &["pools", pool, "pair-runs"]))
            .await
    }

    /// One run, with what each pair measured.
    ///
    /// # Errors
    /// 404 when there is no such run; see [`ClientError`].
    pub async fn pair_run(&self, pool: &str, run: Uuid) -> Result<PairRun, ClientError> {
        self.fetch(self.request(Method::GET, &["pools", pool, "pair-runs", &run.to_string()]))
            .await
    }
}

//! Calls about the revisions of a pool.

use http::Method;

use super::{Client, ClientError};
use crate::claims::Claim;
use crate::object::Page;
use crate::revisions::{ChooseRevision, PoolRevision, RevisionDiff};

impl Client {
    /// Returns the revisions of a pool, newest first.
    ///
    /// # Errors
    /// 404 for an unknown pool; see [`ClientError`].
    pub async fn pool_revisions(&self, pool: &str) -> Result<Page<PoolRevision>, ClientError> {
        self.fetch(self.request(Method::GET, &["pools", pool, "revisions"]))
            .await
    }

    /// Returns the differences between two revisions. `from`: the present revision if absent.
    ///
    /// # Errors
    /// 404 for an unknown pool or revision; see [`ClientError`].
    pub async fn diff_revisions(
        &self,
        pool: &str,
        to: i32,
        from: Option<i32>,
    ) -> Result<RevisionDiff, ClientError> {
        let number = to.to_string();
        let request = self.request(Method::GET, &["pools", pool, "revisions", &number, "diff"]);
        let from = from.map(|from| ("from", from.to_string()));
        self.fetch(request.query(&from.into_iter().collect::<Vec<_>>()))
            .await
    }

    /// Assigns a revision to all claims of the pool made from now on.
    ///
    /// # Errors
    /// 404 for an unknown pool or revision; see [`ClientError`].
    pub async fn promote_revision(
        &self,
        pool: &str,
        body: &ChooseRevision,
    ) -> Result<PoolRevision, ClientError> {
        let path = ["pools", pool, "actions", "promote-revision"];
        self.fetch(self.request(Method::POST, &path).json(body))
            .await
    }

    /// Assigns a revision to a claim. The node changes with the next converge or reinstall.
    ///
    /// # Errors
    /// 409 while the node changes, or when the rules refuse the stack on the node; see
    /// [`ClientError`].
    pub async fn assign_revision(
        &self,
        claim: &str,
        body: &ChooseRevision,
    ) -> Result<Claim, ClientError> {
        let path = ["claims", claim, "actions", "assign-revision"];
        self.fetch(self.request(Method::POST, &path).json(body))
            .await
    }
}

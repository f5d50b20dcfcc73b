//! The calls that only one kind has.

use std::path::Path;
use std::time::Duration;

use http::Method;
use muster_core::values::Digest;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::io::ReaderStream;
use uuid::Uuid;

use super::{Client, ClientError, Precondition};
use crate::approvals::Approval;
use crate::audit::AuditHead;
use crate::break_glass::BreakGlass;
use crate::cautions::{CautionStatus, ConfirmCaution};
use crate::events::Events;
use crate::gate_runs::GateRun;
use crate::nodes::{
    AdoptNode, Component, ConsoleLog, MatchNode, MoveNode, NodeAction, NodeFacts, NodePlan,
    RenameNode, ReplaceParts, Timeline, Why,
};
use crate::object::Page;
use crate::operations::{Operation, OperationLog};
use crate::plans::{MakePlan, Plan};
use crate::racks::Cabling;
use crate::recoveries::{Breaker, Recovery};
use crate::stacks::NodeDrift;
use crate::tokens::FIRST;
use crate::waivers::{CreateWaiver, Waiver};

/// How long one long poll lasts.
const POLL: Duration = Duration::from_secs(30);
/// Pause before a server that is away is asked again.
const AWAY: Duration = Duration::from_secs(1);
/// An upload may take this long: 100 GB at 30 MB/s.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);

impl Client {
    /// Asks a node for an action: `accept`, `inspect`, `drain`…
    ///
    /// # Errors
    /// 409 when its state does not allow it; see [`ClientError`].
    pub async fn node_action(
        &self,
        node: &str,
        action: &str,
        reason: Option<&str>,
    ) -> Result<Operation, ClientError> {
        let body = NodeAction {
            reason: reason.map(str::to_owned),
            ..NodeAction::default()
        };
        self.act_on_node(node, action, &body, Precondition::None)
            .await
    }

    /// The same with all that an action may say; what erases a disk needs the generation of the node as it was read.
    ///
    /// # Errors
    /// 409 when its state does not allow it, 412 when it was changed since; see [`ClientError`].
    pub async fn act_on_node(
        &self,
        node: &str,
        action: &str,
        body: &NodeAction,
        precondition: Precondition,
    ) -> Result<Operation, ClientError> {
        let request = self.request(Method::POST, &["nodes", node, "actions", action]);
        self.fetch(precondition.apply(request).json(body)).await
    }

    /// Hands a node to a person, until a time or until somebody says so.
    ///
    /// # Errors
    /// 409 when its state does not allow it; see [`ClientError`].
    pub async fn maintain_node(
        &self,
        node: &str,
        body: &NodeAction,
    ) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "maintain"])
                .json(body),
        )
        .await
    }

    /// Says which parts of a node were replaced; it is inspected.
    ///
    /// # Errors
    /// 422 when the node never had such a part; see [`ClientError`].
    pub async fn replace_parts(
        &self,
        node: &str,
        body: &ReplaceParts,
    ) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "replace-parts"])
                .json(body),
        )
        .await
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// 409 while it is claimed or when the name is taken; see [`ClientError`].
    pub async fn rename_node(
        &self,
        node: &str,
        body: &RenameNode,
    ) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "rename"])
                .json(body),
        )
        .await
    }

    /// Binds a discovered machine, as it was read, to the node that was declared for it.
    ///
    /// # Errors
    /// 409 where one of the two is not to be touched; see [`ClientError`].
    pub async fn match_node(
        &self,
        machine: &str,
        generation: i64,
        body: &MatchNode,
    ) -> Result<Operation, ClientError> {
        let request = self.request(Method::POST, &["nodes", machine, "actions", "match"]);
        self.fetch(
            Precondition::Generation(generation)
                .apply(request)
                .json(body),
        )
        .await
    }

    /// Puts a node into another rack or unit.
    ///
    /// # Errors
    /// 409 when the rack cannot feed it; see [`ClientError`].
    pub async fn move_node(&self, node: &str, body: &MoveNode) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "move"])
                .json(body),
        )
        .await
    }

    /// Takes a machine that runs already into service.
    ///
    /// # Errors
    /// 409 when it is not discovered; see [`ClientError`].
    pub async fn adopt_node(&self, node: &str, body: &AdoptNode) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "adopt"])
                .json(body),
        )
        .await
    }

    /// What `adopt`, `match`, `rename` or `move` with this body would do.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn plan_node(
        &self,
        node: &str,
        action: &str,
        body: &impl Serialize,
    ) -> Result<NodePlan, ClientError> {
        let request = self.request(Method::POST, &["nodes", node, "actions", action]);
        self.fetch(request.query(&[("dry_run", "true")]).json(body))
            .await
    }

    /// What writing these objects would do.
    ///
    /// # Errors
    /// 422 for a kind that does not exist; see [`ClientError`].
    pub async fn plan(&self, objects: &MakePlan) -> Result<Plan, ClientError> {
        self.fetch(self.request(Method::POST, &["plan"]).json(objects))
            .await
    }

    /// The parts of a node, those that are in it and those that were.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_components(&self, node: &str) -> Result<Page<Component>, ClientError> {
        self.whole(&["nodes", node, "components"], &[]).await
    }

    /// Where the declared cables of a rack were found.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rack_cabling(&self, rack: &str) -> Result<Cabling, ClientError> {
        self.fetch(self.request(Method::GET, &["racks", rack, "cabling"]))
            .await
    }

    /// Where the declared cables of a node were found.
    ///
    /// # Errors
    /// 404 when it stands in no rack; see [`ClientError`].
    pub async fn node_cabling(&self, node: &str) -> Result<Cabling, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "cabling"]))
            .await
    }

    /// Everywhere a serial was seen, where it was seen last first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn components(&self, serial: &str) -> Result<Page<Component>, ClientError> {
        let mut found: Page<Component> = self.whole(&["components"], &[("serial", serial)]).await?;
        found
            .items
            .sort_by_key(|component| std::cmp::Reverse(component.last_seen));
        Ok(found)
    }

    /// What inspection saw, latest first by source.
    ///
    /// # Errors
    /// 404 while nothing was observed; see [`ClientError`].
    pub async fn node_facts(&self, node: &str) -> Result<NodeFacts, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "facts"]))
            .await
    }

    /// A node held against its stack, as it was seen last.
    ///
    /// # Errors
    /// 404 while it was never looked at; see [`ClientError`].
    pub async fn node_drift(&self, node: &str) -> Result<NodeDrift, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "drift"]))
            .await
    }

    /// What is kept of a node's serial console, oldest first: at most 1000 chunks after the chunk with id `after`, or the latest ones.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_console(
        &self,
        node: &str,
        after: Option<i64>,
    ) -> Result<ConsoleLog, ClientError> {
        let query: Vec<(&str, i64)> = after.map(|id| ("after", id)).into_iter().collect();
        self.fetch(
            self.request(Method::GET, &["nodes", node, "console"])
                .query(&query),
        )
        .await
    }

    /// Why a node is not moving.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_why(&self, node: &str) -> Result<Why, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "why"]))
            .await
    }

    /// What led a node to where it is, oldest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_timeline(&self, node: &str) -> Result<Timeline, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "timeline"]))
            .await
    }

    /// The latest runs of suites on a node, newest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_gate_runs(&self, node: &str) -> Result<Page<GateRun>, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "gate-runs"]))
            .await
    }

    /// Whether the fleet is in caution mode, and why.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn caution(&self) -> Result<CautionStatus, ClientError> {
        self.fetch(self.request(Method::GET, &["caution"])).await
    }

    /// The newest seal of the history.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn audit_head(&self) -> Result<AuditHead, ClientError> {
        self.fetch(self.request(Method::GET, &["audit"])).await
    }

    /// Whether the local administrator may sign in.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn break_glass(&self) -> Result<BreakGlass, ClientError> {
        self.fetch(self.request(Method::GET, &["break-glass"]))
            .await
    }

    /// Ends caution mode.
    ///
    /// # Errors
    /// 409 when another caution holds; see [`ClientError`].
    pub async fn confirm_caution(
        &self,
        request: &ConfirmCaution,
    ) -> Result<CautionStatus, ClientError> {
        self.fetch(
            self.request(Method::POST, &["caution", "confirm"])
                .json(request),
        )
        .await
    }

    /// What waits for a second person.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_approvals(&self) -> Result<Page<Approval>, ClientError> {
        self.whole(&["approvals"], &[]).await
    }

    /// Says `approve` or `deny` to what another person asked for.
    ///
    /// # Errors
    /// 403 to whoever asked, 409 when it is decided; see [`ClientError`].
    pub async fn decide_approval(&self, id: Uuid, word: &str) -> Result<Approval, ClientError> {
        self.fetch(self.request(Method::POST, &["approvals", &id.to_string(), word]))
            .await
    }

    /// The request as it would stand if it were agreed to; nothing is begun.
    ///
    /// # Errors
    /// As [`Client::decide_approval`] with `approve`: what would refuse it.
    pub async fn plan_approval(&self, id: Uuid) -> Result<Approval, ClientError> {
        let request = self.request(Method::POST, &["approvals", &id.to_string(), "approve"]);
        self.fetch(request.query(&[("dry_run", "true")])).await
    }

    /// Asks to let a gate count as passed; a second person agrees to it.
    ///
    /// # Errors
    /// 404 when there is no such place, 422 without a reason or an end; see [`ClientError`].
    pub async fn create_waiver(&self, request: &CreateWaiver) -> Result<Waiver, ClientError> {
        self.fetch(self.request(Method::POST, &["waivers"]).json(request))
            .await
    }

    /// Ends a waiver before its time.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn end_waiver(&self, id: Uuid) -> Result<Waiver, ClientError> {
        let request = self.request(Method::DELETE, &["waivers", &id.to_string()]);
        self.fetch(Precondition::Generation(FIRST).apply(request))
            .await
    }

    /// What was tried on a node that failed, newest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_recoveries(&self, node: &str) -> Result<Page<Recovery>, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "recoveries"]))
            .await
    }

    /// All that is known of a node, for the maker of a part: a tar archive, compressed with zstd.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_rma(&self, node: &str) -> Result<Vec<u8>, ClientError> {
        self.fetch_bytes(self.request(Method::GET, &["nodes", node, "rma"]))
            .await
    }

    /// Closes a breaker that is open.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reset_breaker(&self, id: Uuid) -> Result<Breaker, ClientError> {
        self.fetch(self.request(Method::POST, &["breakers", &id.to_string(), "reset"]))
            .await
    }

    /// An operation as it stands.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn operation(&self, id: Uuid) -> Result<Operation, ClientError> {
        self.fetch(self.request(Method::GET, &["operations", &id.to_string()]))
            .await
    }

    /// Operations, newest first: `limit`, `page_token`, `node`, `state`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_operations(
        &self,
        query: &[(&str, &str)],
    ) -> Result<Page<Operation>, ClientError> {
        self.fetch(self.request(Method::GET, &["operations"]).query(query))
            .await
    }

    /// Waits by long polls until the operation is done, however it ends. A server that is away is asked again until `timeout` has passed.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`] with what the operation waits for; otherwise see [`ClientError`].
    pub async fn wait_operation(
        &self,
        id: Uuid,
        timeout: Duration,
    ) -> Result<Operation, ClientError> {
        let deadline = Instant::now() + timeout;
        let mut last = "nothing was heard of it".to_owned();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::TimedOut(format!(
                    "operation {id} is not done after {} s: {last}",
                    timeout.as_secs()
                )));
            }
            let wait = format!("{}s", left.min(POLL).as_secs().max(1));
            let request = self
                .request(Method::GET, &["operations", &id.to_string()])
                .query(&[("wait", &wait)]);
            match self.fetch::<Operation>(request).await {
                Ok(operation) if operation.done => return Ok(operation),
                Ok(operation) => last = operation.progress.message,
                Err(error) if error.away() => {
                    last = error.to_string();
                    tokio::time::sleep(AWAY.min(left)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks an operation to stop; what it leaves behind is in its message.
    ///
    /// # Errors
    /// 409 when it is done already; see [`ClientError`].
    pub async fn cancel_operation(&self, id: Uuid) -> Result<Operation, ClientError> {
        self.fetch(self.request(Method::POST, &["operations", &id.to_string(), "cancel"]))
            .await
    }

    /// Log lines after the line with id `after`, at most 1000.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn operation_log(&self, id: Uuid, after: i64) -> Result<OperationLog, ClientError> {
        let request = self.request(Method::GET, &["operations", &id.to_string(), "log"]);
        self.fetch(request.query(&[("after", after)])).await
    }

    /// Events after `after`, oldest first: `limit`, `node`, `wait`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, after: i64, query: &[(&str, &str)]) -> Result<Events, ClientError> {
        let request = self
            .request(Method::GET, &["events"])
            .query(&[("after", after)]);
        self.fetch(request.query(query)).await
    }

    /// Whether the server holds a blob.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn has_blob(&self, digest: Digest) -> Result<bool, ClientError> {
        match self
            .perform(self.request(Method::HEAD, &["blobs", "sha256", &digest.hex()]))
            .await
        {
            Ok(()) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Uploads a file as the blob it must be; nothing is sent when the server has it.
    ///
    /// # Errors
    /// 422 when the bytes are not the digest's; see [`ClientError`].
    pub async fn upload_blob(&self, digest: Digest, path: &Path) -> Result<(), ClientError> {
        if self.has_blob(digest).await? {
            return Ok(());
        }
        let unreadable = |source| ClientError::File {
            path: path.display().to_string(),
            source,
        };
        let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let length = file.metadata().await.map_err(unreadable)?.len();
        let request = self
            .request(Method::PUT, &["blobs", "sha256", &digest.hex()])
            .timeout(UPLOAD_TIMEOUT)
            .header("content-type", "application/octet-stream")
            .header("content-length", length)
            .body(reqwest::Body::wrap_stream(ReaderStream::with_capacity(
                file,
                256 << 10,
            )));
        self.perform(request).await
    }
}

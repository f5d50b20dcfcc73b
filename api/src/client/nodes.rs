//! Calls about nodes: actions, and reads of parts, facts and history.

use http::Method;
use serde::Serialize;

use super::{Client, ClientError, Precondition};
use crate::gate_runs::GateRun;
use crate::holds::{HoldRecords, NodeHold};
use crate::nodes::{
    AdoptNode, Component, ConsoleLog, MatchNode, MoveNode, NodeAction, NodeFacts, NodePlan,
    RenameNode, ReplaceParts, Timeline, Why,
};
use crate::object::Page;
use crate::operations::Operation;
use crate::racks::Cabling;
use crate::recoveries::Recovery;
use crate::stacks::NodeDrift;
use crate::tokens::FIRST;

impl Client {
    /// Requests an action of a node: `accept`, `inspect`, `drain`…
    ///
    /// # Errors
    /// 409 when the node's state does not allow the action; see [`ClientError`].
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

    /// Requests an action with every field that an action may have. An action that erases a disk
    /// needs the generation of the node as the caller read it.
    ///
    /// # Errors
    /// 409 when the node's state does not allow the action, 412 when the node changed since; see
    /// [`ClientError`].
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

    /// Puts a node into maintenance, until a given time or until a person ends the maintenance.
    ///
    /// # Errors
    /// 409 when the node's state does not allow the action; see [`ClientError`].
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

    /// Records the replaced parts of a node, and inspects the node.
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

    /// Puts a node under a legal hold.
    ///
    /// # Errors
    /// 409 for a discovered machine that no person has acted on; see [`ClientError`].
    pub async fn hold_records(
        &self,
        node: &str,
        body: &HoldRecords,
    ) -> Result<NodeHold, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "hold"])
                .json(body),
        )
        .await
    }

    /// Ends the legal hold of a node.
    ///
    /// # Errors
    /// 404 for a node without a hold; see [`ClientError`].
    pub async fn release_records(&self, node: &str, reason: &str) -> Result<(), ClientError> {
        let request = self
            .request(Method::DELETE, &["nodes", node, "hold"])
            .query(&[("reason", reason)]);
        self.perform(Precondition::Generation(FIRST).apply(request))
            .await
    }

    /// Renames a node.
    ///
    /// # Errors
    /// 409 while the node is claimed or when the name is taken; see [`ClientError`].
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

    /// Binds a discovered machine of a given generation to the node that was declared for the
    /// machine.
    ///
    /// # Errors
    /// 409 where the state of the machine or of the node does not allow a match; see
    /// [`ClientError`].
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

    /// Moves a node to another rack or unit.
    ///
    /// # Errors
    /// 409 when the rack has too little power for the node; see [`ClientError`].
    pub async fn move_node(&self, node: &str, body: &MoveNode) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "move"])
                .json(body),
        )
        .await
    }

    /// Adopts a running machine into service.
    ///
    /// # Errors
    /// 409 when the machine is not discovered; see [`ClientError`].
    pub async fn adopt_node(&self, node: &str, body: &AdoptNode) -> Result<Operation, ClientError> {
        self.fetch(
            self.request(Method::POST, &["nodes", node, "actions", "adopt"])
                .json(body),
        )
        .await
    }

    /// Returns the effects of `adopt`, `match`, `rename` or `move` with this body, without a
    /// change.
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

    /// Lists the present and the former parts of a node.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_components(&self, node: &str) -> Result<Page<Component>, ClientError> {
        self.whole(&["nodes", node, "components"], &[]).await
    }

    /// Lists all nodes in which a serial was observed, the latest first.
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

    /// Returns the observed places of the declared cables of a node.
    ///
    /// # Errors
    /// 404 when the node has no rack; see [`ClientError`].
    pub async fn node_cabling(&self, node: &str) -> Result<Cabling, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "cabling"]))
            .await
    }

    /// Returns the facts of a node by source, the latest first.
    ///
    /// # Errors
    /// 404 before the first inspection; see [`ClientError`].
    pub async fn node_facts(&self, node: &str) -> Result<NodeFacts, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "facts"]))
            .await
    }

    /// Returns the latest comparison of a node with its stack.
    ///
    /// # Errors
    /// 404 before the first comparison; see [`ClientError`].
    pub async fn node_drift(&self, node: &str) -> Result<NodeDrift, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "drift"]))
            .await
    }

    /// Returns the kept output of a node's serial console, the oldest first: at most 1000 chunks
    /// after chunk `after`, or the latest chunks.
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

    /// Explains why a node is not moving.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_why(&self, node: &str) -> Result<Why, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "why"]))
            .await
    }

    /// Lists the events that led a node to its state, the oldest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_timeline(&self, node: &str) -> Result<Timeline, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "timeline"]))
            .await
    }

    /// Lists the latest gate runs on a node, the newest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_gate_runs(&self, node: &str) -> Result<Page<GateRun>, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "gate-runs"]))
            .await
    }

    /// Lists the recoveries of a node, the newest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_recoveries(&self, node: &str) -> Result<Page<Recovery>, ClientError> {
        self.fetch(self.request(Method::GET, &["nodes", node, "recoveries"]))
            .await
    }

    /// Returns all evidence about a node for the maker of a part: a tar archive, compressed with
    /// zstd.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn node_rma(&self, node: &str) -> Result<Vec<u8>, ClientError> {
        self.fetch_bytes(self.request(Method::GET, &["nodes", node, "rma"]))
            .await
    }
}

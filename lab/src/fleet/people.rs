//! The operators of the fleet: claims available nodes, releases nodes in service, and recovers
//! failed nodes. A refused request is harmless. The history shows the node's state, and a request
//! still due is sent again.

use futures::StreamExt as _;
use muster_api::claims::{ClaimSpec, CreateClaim};
use muster_api::client::{Client, ClientError, Precondition};
use muster_api::nodes::{NodeAction, NodeSpec, NodeStatus};

use super::SITE;
use super::follow::{Want, Wanted};

/// Most concurrent requests.
const AT_ONCE: usize = 8;
/// The reason given with each requested action.
const REASON: &str = "a rehearsal";

pub(super) struct People {
    client: Client,
}

impl People {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends the requests. Refusals are logged as warnings.
    pub(super) async fn act(&self, wants: Vec<Want>) {
        let acts = futures::stream::iter(wants).map(|want| async move {
            match self.ask(&want).await {
                // The node changed its state in the meantime, or a response was lost.
                Err(error) if error.away() || matches!(error.status(), Some(404 | 409 | 412)) => {}
                Err(error) => {
                    tracing::warn!(node = want.node, ?want.what, %error, "a person was refused")
                }
                Ok(()) => {}
            }
        });
        acts.buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    async fn ask(&self, want: &Want) -> Result<(), ClientError> {
        let node = want.node.as_str();
        match want.what {
            Wanted::Claim => {
                let spec = ClaimSpec::new(SITE, Some(node.to_owned()), None);
                let name = node
                    .parse()
                    .map_err(|_| ClientError::Usage(format!("{node} cannot be a claim's name")))?;
                self.client
                    .create_claim(&CreateClaim {
                        name: Some(name),
                        spec,
                    })
                    .await
                    .map(drop)
            }
            // An unchanged claim keeps its first generation.
            Wanted::Release => self.client.delete_claim(node, 1).await.map(drop),
            Wanted::LeaveQuarantine => {
                let seen = self.client.get::<NodeSpec>(node).await?;
                match needs_wipe(&seen.status) {
                    true => self.wipe(node, seen.generation).await,
                    false => self.request(node, "recover").await,
                }
            }
            Wanted::Ask(action) => self.request(node, action).await,
        }
    }

    /// Requests a wipe. A destructive request names the generation of the node just read.
    async fn wipe(&self, node: &str, generation: i64) -> Result<(), ClientError> {
        let body = NodeAction {
            reason: Some(REASON.into()),
            ..NodeAction::default()
        };
        let seen = Precondition::Generation(generation);
        self.client
            .act_on_node(node, "wipe", &body, seen)
            .await
            .map(drop)
    }

    async fn request(&self, node: &str, action: &str) -> Result<(), ClientError> {
        self.client
            .node_action(node, action, Some(REASON))
            .await
            .map(drop)
    }
}

/// Returns whether disks of a quarantined node may hold data of a former user. The data of the claim
/// holding the node may stay.
fn needs_wipe(status: &NodeStatus) -> bool {
    let mut conditions = status.conditions.iter();
    let is_unsanitised =
        conditions.any(|known| known.condition == "unsanitised" && known.value == "true");
    is_unsanitised && status.claim.is_none()
}

#[cfg(test)]
mod tests {
    use muster_api::nodes::Condition;

    use super::*;

    #[test]
    fn a_node_is_wiped_by_its_condition_and_only_without_a_claim() {
        let of = |value: &str, claim: Option<&str>| NodeStatus {
            reason: Some("unsanitised: a former reason".into()),
            claim: claim.map(str::to_owned),
            conditions: vec![Condition {
                condition: "unsanitised".into(),
                value: value.into(),
                since: None,
            }],
            ..NodeStatus::default()
        };
        assert!(needs_wipe(&of("true", None)));
        assert!(!needs_wipe(&of("true", Some("training"))));
        assert!(!needs_wipe(&of("false", None)));
        assert!(!needs_wipe(&NodeStatus::default()));
    }
}

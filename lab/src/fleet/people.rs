//! The operators of the fleet: claims available nodes, releases nodes in service, and recovers
//! failed nodes. A refused request is harmless. The history shows the node's state, and a request
//! still due is sent again.

use futures::StreamExt as _;
use muster_api::claims::{ClaimSpec, CreateClaim};
use muster_api::client::{Client, ClientError, Precondition};
use muster_api::nodes::{NodeAction, NodeSpec};

use super::SITE;
use super::follow::{Want, Wanted};

/// Most concurrent requests.
const AT_ONCE: usize = 8;

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
            // A destructive request names the generation of the node just read.
            Wanted::Ask("wipe") => {
                let seen =
                    Precondition::Generation(self.client.get::<NodeSpec>(node).await?.generation);
                let body = NodeAction {
                    reason: Some("a rehearsal".into()),
                    ..NodeAction::default()
                };
                self.client
                    .act_on_node(node, "wipe", &body, seen)
                    .await
                    .map(drop)
            }
            Wanted::Ask(action) => self
                .client
                .node_action(node, action, Some("a rehearsal"))
                .await
                .map(drop),
        }
    }
}

//! A separate type for each kind of id, so that a node's id can never be passed in place of a
//! claim's. All ids are UUIDv7.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Returns a new id; ids sort by creation time.
            #[expect(clippy::new_without_default, reason = "an id is made on purpose, never by default")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    )+};
}

ids! {
    /// A server: BMC, NICs, disks, GPUs.
    NodeId,
    /// A declared object: site, rack, subnet, profile, image, stack, suite, cluster, pool,
    /// credential.
    ObjectId,
    /// The binding of a node to a pool.
    ClaimId,
    /// The documents installed on nodes of a pool, as of one change.
    RevisionId,
    /// A rollout of a pool.
    RolloutId,
    /// A long-running request.
    OperationId,
    /// A unit of work leased to an agent.
    JobId,
    /// Permission for a single action on a node.
    PermitId,
    /// A row of the append-only history.
    EventId,
    /// The process acting for a site.
    AgentId,
    /// A run of a suite on a node.
    GateRunId,
    /// An API token.
    TokenId,
    /// A person.
    UserId,
}

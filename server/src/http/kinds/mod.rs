//! Rules of each declared kind beside the shared contract: references, checks, secrets, status.

mod calls;
mod clusters;
mod credentials;
mod dependents;
mod fits;
mod hardware_profiles;
mod images;
mod maintenance_windows;
mod monitors;
mod network_profiles;
mod networks;
pub(super) mod pools;
mod racks;
mod residents;
mod role_bindings;
mod signatures;
mod signing_keys;
mod sites;
mod stacks;
mod subnets;
mod suites;
mod webhooks;

use muster_api::access::RoleBindingSpec;
use muster_api::claims::ClaimSpec;
use muster_api::credentials::CredentialSpec;
use muster_api::kind::Kind as _;
use muster_api::monitors::MonitorSpec;
use muster_api::nodes::NodeSpec;
use muster_api::pools::PoolSpec;
use muster_api::racks::RackSpec;
use muster_api::signing_keys::SigningKeySpec;
use muster_api::sites::SiteSpec;
use muster_api::subnets::SubnetSpec;
use muster_api::webhooks::WebhookSpec;
use muster_core::clusters::ClusterSpec;
use muster_core::gates::Suite;
use muster_core::images::ImageManifest;
use muster_core::network::NetworkProfile;
use muster_core::profiles::HardwareProfile;
use muster_core::rollout::MaintenanceWindow;
use muster_core::stacks::StackSpec;
use utoipa_axum::router::OpenApiRouter;

use super::declared::{Declared, routes};
use crate::app::App;
use crate::intents::claims::create;
use crate::intents::nodes::resolve;
use crate::intents::references::Table;

/// Lists the possible references of each kind with a collection.
pub(super) fn list_references() -> Vec<(&'static str, Table)> {
    fn of<K: Declared>() -> (&'static str, Table) {
        (K::KIND, K::REFERENCES)
    }
    vec![
        of::<SiteSpec>(),
        of::<RackSpec>(),
        of::<SubnetSpec>(),
        of::<HardwareProfile>(),
        of::<NetworkProfile>(),
        of::<MaintenanceWindow>(),
        of::<MonitorSpec>(),
        of::<CredentialSpec>(),
        of::<SigningKeySpec>(),
        of::<ImageManifest>(),
        of::<StackSpec>(),
        of::<Suite>(),
        of::<ClusterSpec>(),
        of::<PoolSpec>(),
        of::<RoleBindingSpec>(),
        of::<WebhookSpec>(),
        (NodeSpec::KIND, resolve::REFERENCES),
        (ClaimSpec::KIND, create::REFERENCES),
    ]
}

/// The routes of all declared kinds.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .merge(routes::<SiteSpec>())
        .merge(routes::<RackSpec>())
        .merge(routes::<SubnetSpec>())
        .merge(routes::<HardwareProfile>())
        .merge(routes::<NetworkProfile>())
        .merge(routes::<MaintenanceWindow>())
        .merge(routes::<MonitorSpec>())
        .merge(routes::<CredentialSpec>())
        .merge(routes::<SigningKeySpec>())
        .merge(routes::<ImageManifest>())
        .merge(routes::<StackSpec>())
        .merge(routes::<Suite>())
        .merge(routes::<ClusterSpec>())
        .merge(routes::<PoolSpec>())
        .merge(routes::<RoleBindingSpec>())
        .merge(routes::<WebhookSpec>())
}

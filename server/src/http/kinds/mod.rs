//! Rules of each declared kind beside the shared contract: references, checks, secrets, status.

mod calls;
mod clusters;
mod credentials;
mod fits;
mod hardware_profiles;
mod images;
mod maintenance_windows;
mod monitors;
mod network_profiles;
pub(super) mod pools;
mod racks;
mod role_bindings;
mod sites;
mod stacks;
mod subnets;
mod suites;
mod webhooks;

use muster_api::access::RoleBindingSpec;
use muster_api::credentials::CredentialSpec;
use muster_api::monitors::MonitorSpec;
use muster_api::pools::PoolSpec;
use muster_api::racks::RackSpec;
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

use super::declared::routes;
use crate::app::App;

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
        .merge(routes::<ImageManifest>())
        .merge(routes::<StackSpec>())
        .merge(routes::<Suite>())
        .merge(routes::<ClusterSpec>())
        .merge(routes::<PoolSpec>())
        .merge(routes::<RoleBindingSpec>())
        .merge(routes::<WebhookSpec>())
}

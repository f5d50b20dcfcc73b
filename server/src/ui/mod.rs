//! The console: pages rendered by the server, readable and usable without scripts. A page is a
//! struct next to its handler, with strings ready for display. Templates loop and match but never
//! compute. Every action of a page calls the same function as the REST handlers.

mod agents; // Agents of the sites
mod approvals; // Approvals by a second person, and the undo of a release
mod assets; // Style, scripts and icon: embedded, named by content hash
mod caution; // Caution mode, above every page
mod chips; // Shape, colour and word of states and verdicts
mod claims; // Pools, and the nodes bound to pools
mod events; // The history
mod fleet; // The first page
mod format; // Times, durations and sizes as text for people
mod frame; // The frame of every page
mod jobs; // Logs of steps
mod live; // The stream of changes that makes pages reload
mod nodes; // The list of nodes, and one node
mod operations; // Operations: requested work
mod pairs; // The form for pair measurements of a pool
mod pools; // A pool, and the pool's pair measurements
pub mod problems; // Errors as pages with advice
mod provider_logout; // Logout tokens of the identity provider
mod racks; // Elevations and power
mod replace; // The form for moving a claim to another node
mod rollouts; // Rollouts, and the revisions of a pool
mod sign_in; // Sessions
mod stacks; // Stacks, with driver, packages and pools
mod users; // People, and the form for disabling a person
mod webhooks; // Webhooks and deliveries

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;
use crate::auth::needs::need;

/// Largest body of a form, in bytes. A form contains a few short fields.
const FORM_BODY: usize = 16 * 1024;

/// Returns the routes of all pages, with the state applied. The HTTP router merges these routes and
/// adds the common headers.
pub fn router(app: App) -> Router {
    pages()
        .merge(pool_pages())
        .merge(forms())
        .merge(sessions())
        .layer(axum::extract::DefaultBodyLimit::max(FORM_BODY))
        .with_state(app)
}

/// The pages, and the stream of changes.
fn pages() -> Router<App> {
    Router::new()
        .route("/", get(fleet::show_fleet).layer(need("fleet.read", "any")))
        .route(
            "/nodes",
            get(nodes::list::list_nodes).layer(need("fleet.read", "any")),
        )
        .route(
            "/nodes/{node}",
            get(nodes::show_node).layer(need("fleet.read", "node={node}")),
        )
        .route(
            "/nodes/{node}/console",
            get(nodes::console::show_console).layer(need("node.console", "node={node}")),
        )
        .route(
            "/operations",
            get(operations::list_operations).layer(need("fleet.read", "any")),
        )
        .route(
            "/operations/{operation}",
            get(operations::show_operation).layer(need("fleet.read", "operation={operation}")),
        )
        .route(
            "/jobs/{job}/log",
            get(jobs::show_log).layer(need("node.evidence", "job={job}")),
        )
        .route(
            "/racks",
            get(racks::list_racks).layer(need("fleet.read", "any")),
        )
        .route(
            "/claims",
            get(claims::list_claims).layer(need("fleet.read", "any")),
        )
        .route(
            "/events",
            get(events::list_events).layer(need("fleet.read", "any")),
        )
        .route(
            "/agents",
            get(agents::list_agents).layer(need("fleet.read", "any")),
        )
        .route(
            "/users",
            get(users::list_users).layer(need("user.read", "fleet")),
        )
        .route(
            "/webhooks",
            get(webhooks::list_webhooks).layer(need("webhook.read", "fleet")),
        )
        .route(
            "/ui/events",
            get(live::stream_changes).layer(need("fleet.read", "any")),
        )
}

/// The pages about pools, stacks and rollouts.
fn pool_pages() -> Router<App> {
    Router::new()
        .route(
            "/pools/{pool}",
            get(pools::show_pool).layer(need("fleet.read", "pool={pool}")),
        )
        .route(
            "/stacks",
            get(stacks::list::list_stacks).layer(need("fleet.read", "any")),
        )
        // A stack has no place: as in the API, every reader of the fleet may see every stack.
        .route(
            "/stacks/{stack}",
            get(stacks::page::show_stack).layer(need("fleet.read", "any")),
        )
        .route(
            "/rollouts",
            get(rollouts::list::list_rollouts).layer(need("fleet.read", "any")),
        )
        .route(
            "/rollouts/{rollout}",
            get(rollouts::page::show_rollout).layer(need("fleet.read", "rollout={rollout}")),
        )
}

/// The forms of the pages.
fn forms() -> Router<App> {
    Router::new()
        .route(
            "/ui/nodes/{node}/adopt",
            post(nodes::adopt::adopt_node).layer(need("node.adopt", "node={node}")),
        )
        .route(
            "/ui/nodes/{node}/parts",
            post(nodes::parts::replace_part).layer(need("node.replace-parts", "node={node}")),
        )
        .route(
            "/ui/nodes/{node}/actions/{action}",
            post(nodes::actions::act_on_node).layer(need("node.{action}", "node={node}")),
        )
        .route(
            "/ui/approvals/{approval}/{word}",
            post(approvals::decide_approval).layer(need("approval.decide", "approval={approval}")),
        )
        .route(
            "/ui/claims/{claim}/replace",
            post(replace::replace_claim).layer(need("claim.release", "claim={claim}")),
        )
        .route(
            "/ui/pools/{pool}/pairs",
            post(pairs::measure_pairs).layer(need("pool.run-pairs", "pool={pool}")),
        )
        .route(
            "/ui/pools/{pool}/rollouts",
            post(rollouts::plan::plan_rollout).layer(need("rollout.plan", "pool={pool}")),
        )
        .route(
            "/ui/rollouts/{rollout}/halt",
            post(rollouts::acts::halt_rollout).layer(need("rollout.halt", "rollout={rollout}")),
        )
        .route(
            "/ui/rollouts/{rollout}/acts/{word}",
            post(rollouts::acts::act_on_rollout).layer(need("rollout.start", "rollout={rollout}")),
        )
        .route(
            "/ui/claims/{claim}/undo",
            post(approvals::undo_release).layer(need("claim.release", "claim={claim}")),
        )
        .route(
            "/ui/users/{user}/{word}",
            post(users::decide_user).layer(need("user.disable", "fleet")),
        )
        .route(
            "/ui/caution/{id}/confirm",
            post(caution::confirm).layer(need("caution.confirm", "fleet")),
        )
}

/// Sign-in, sign-out and assets, open to every visitor.
fn sessions() -> Router<App> {
    Router::new()
        .route(
            "/sign-in",
            get(sign_in::show_sign_in).post(sign_in::sign_in),
        )
        .route("/sign-in/oidc", get(sign_in::begin_vouched))
        .route("/sign-in/oidc/callback", get(sign_in::finish_vouched))
        .route("/sign-in/oidc/logout", post(provider_logout::end_logins))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/assets/{version}/{*path}", get(assets::get_asset))
}

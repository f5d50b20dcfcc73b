//! The console: pages rendered here, readable and usable without script. A page is a struct beside its handler with ready strings;
//! templates loop and match, never compute. Whatever a page can do, the REST handlers do for it.

mod agents; // The processes that act for sites
mod approvals; // A second person, and the way back
mod assets; // Style, script, icon: embedded, named by their content
mod caution; // Caution mode, above every page
mod chips; // Shape, colour and word of states and verdicts
mod claims; // Pools, and the nodes bound to them
mod events; // The history
mod fleet; // The first page
mod format; // Times, durations, sizes, as people read them
mod frame; // What surrounds every page
mod jobs; // Logs of steps
mod live; // Says what changed, so that pages fetch themselves anew
mod nodes; // The list, and one node
mod operations; // What was asked for
mod pairs; // The form by which nodes of a pool measure each other
mod pools; // One pool, and how its nodes measure each other
pub mod problems; // Errors as pages that say what to do
mod racks; // Elevations and power
mod replace; // Another node for a claim
mod sign_in; // Sessions
mod users; // People, and whom an administrator keeps out
mod webhooks; // Who is told what happens

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;

/// A form has a reason in it, nothing large.
const FORM_BODY: usize = 16 * 1024;

/// Every page, with its state applied; merged by the HTTP router, which adds the headers that hold for all answers.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/", get(fleet::show_fleet))
        .route("/nodes", get(nodes::list::list_nodes))
        .route("/nodes/{node}", get(nodes::show_node))
        .route("/nodes/{node}/console", get(nodes::console::show_console))
        .route("/ui/nodes/{node}/adopt", post(nodes::adopt::adopt_node))
        .route("/ui/nodes/{node}/parts", post(nodes::parts::replace_part))
        .route(
            "/ui/nodes/{node}/actions/{wish}",
            post(nodes::actions::act_on_node),
        )
        .route("/operations", get(operations::list_operations))
        .route("/operations/{operation}", get(operations::show_operation))
        .route("/jobs/{job}/log", get(jobs::show_log))
        .route("/racks", get(racks::list_racks))
        .route("/claims", get(claims::list_claims))
        .route("/pools/{pool}", get(pools::show_pool))
        .route("/events", get(events::list_events))
        .route("/agents", get(agents::list_agents))
        .route("/users", get(users::list_users))
        .route("/webhooks", get(webhooks::list_webhooks))
        .route(
            "/ui/approvals/{approval}/{word}",
            post(approvals::decide_approval),
        )
        .route("/ui/claims/{claim}/replace", post(replace::replace_claim))
        .route("/ui/pools/{pool}/pairs", post(pairs::measure_pairs))
        .route("/ui/claims/{claim}/undo", post(approvals::undo_release))
        .route("/ui/users/{user}/{word}", post(users::decide_user))
        .route("/ui/caution/{id}/confirm", post(caution::confirm))
        .route(
            "/sign-in",
            get(sign_in::show_sign_in).post(sign_in::sign_in),
        )
        .route("/sign-in/oidc", get(sign_in::begin_vouched))
        .route("/sign-in/oidc/callback", get(sign_in::finish_vouched))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/ui/events", get(live::stream_changes))
        .route("/assets/{version}/{*path}", get(assets::get_asset))
        .layer(axum::extract::DefaultBodyLimit::max(FORM_BODY))
        .with_state(app)
}

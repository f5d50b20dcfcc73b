//! Pages for people, on the same database functions as the REST calls.

use axum::Router;

use crate::app::App;

/// The routes of the pages.
pub fn router(app: App) -> Router {
    Router::new().with_state(app)
}

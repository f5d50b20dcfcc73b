//! The route for deleting a claim, which releases its node.

use axum::extract::State;
use muster_api::operations::Operation;
use muster_api::problem::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Actor;
use crate::error::Error;
use crate::http::extract::{Path, Query};
use crate::intents::answer::Answer;
use crate::intents::claims::disks::Disks;
use crate::intents::claims::release::submit;
use crate::intents::preconditions::Preconditions;

/// Options of a release.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ReleaseQuery {
    /// Erases the disks immediately, without the window for undoing the release.
    erase_now: bool,
}

/// Releases the node of a claim.
///
/// A repeated call leads to the same operation. With `erase_now`, a repeated call ends the undo
/// window. To end an undo window needs `approval.decide` for the pool, or a second person.
/// `If-Match: *` is refused: send the ETag that was read.
#[utoipa::path(delete, path = "/v1/claims/{claim}",
    extensions(("x-muster-access" = json!({ "verb": "claim.release", "place": "claim={claim}" }))),
    tag = "claims",
    params(("claim", description = "Name or id"), ("If-Match" = String, Header), ReleaseQuery), responses(
    (status = 202, description = "The operation of the release", body = Operation),
    (status = 409, description = "The node is protected, or the claim has ended. With the code `second_person`, a second person must approve, and Link leads to the approval",
        body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_claim(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    Query(query): Query<ReleaseQuery>,
    preconditions: Preconditions,
) -> Result<Answer, Error> {
    let disks = if query.erase_now {
        Disks::ErasedNow
    } else {
        Disks::Kept
    };
    submit(&app, &actor, &key, preconditions, disks)
        .await
        .map(|(_, answer)| answer)
}

//! Adds the revisions missed by servers of the version before, during a rolling upgrade.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::intents::revisions;

const EVERY: Duration = Duration::from_secs(60);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = revisions::catch_up(&app).await {
            tracing::warn!(error = ?error, "missing revisions could not be added; tried again in a minute");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

//! Seals the rows written by servers of the version before, during a rolling upgrade.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::auth::seals::adopt;

const EVERY: Duration = Duration::from_secs(30);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = adopt::seal_late(&app).await {
            tracing::warn!(error = ?error, "rows without a seal could not be sealed; tried again shortly");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

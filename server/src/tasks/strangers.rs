//! Sums up the minutes with many unknown machines, for sites without a further sighting.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::engine::strangers;

const EVERY: Duration = Duration::from_secs(20);

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = strangers::end_minutes(&app).await {
            tracing::warn!(error = ?error, "the minutes of unknown machines were not summed up; tried again shortly");
        }
    }
}

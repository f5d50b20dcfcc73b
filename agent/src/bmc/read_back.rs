//! Reads a changed boot override back, because a success answer of a BMC proves no change.

use tokio::time::Instant;

use super::error::BmcError;
use super::pace::Limits;
use super::view::{BootOnce, BootOverride};

/// Reads the override until the next boot goes to the target, or until [`Limits::settle`] is over.
/// The inner `Err` is the error for an ignored change.
pub(super) async fn read_back<F: Future<Output = Result<BootOverride, BmcError>>>(
    limits: Limits,
    boot: BootOnce,
    read: impl Fn() -> F,
) -> Result<Result<BootOverride, BmcError>, BmcError> {
    let started = Instant::now();
    loop {
        let seen = read().await?;
        let waited = started.elapsed();
        if boot.holds(&seen) {
            return Ok(Ok(seen));
        }
        if waited >= limits.settle {
            let call = "the change of the boot override".into();
            return Ok(Err(BmcError::NothingHappened {
                call,
                waited,
                seen: seen.to_string(),
            }));
        }
        tokio::time::sleep(limits.poll).await;
    }
}

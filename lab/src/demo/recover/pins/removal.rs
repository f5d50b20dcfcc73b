//! The way back to the revision without the packages. The published stack is a later version, and
//! the revision keeps a full copy of the former stack.

use anyhow::ensure;

use super::super::super::rollouts::Target;
use super::super::cast::Cast;
use super::super::packages::{all_of, read_versions};
use super::node::{NODE, list_rollouts, show_differences, wait_until_done};

/// Rolls out the revision without the packages. Checks that all parts of the later stack are gone.
pub(super) async fn remove_packages(cast: &mut Cast<'_>, revision: i32) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "7. the pool goes back to revision {revision}, without the packages"
    ));
    show_differences(cast, revision).await?;
    let name = list_rollouts(cast).start(Target::to(revision)).await?;
    wait_until_done(cast, &name).await?;
    let found = read_versions(cast, NODE).await?;
    ensure!(found == all_of("absent"), "packages are left: {found:?}");
    let left = cast
        .veteran(NODE)?
        .run(&["ls /usr/bin/unattended-upgrade /etc/nccl.conf 2>/dev/null || true"])
        .await?;
    ensure!(left.trim().is_empty(), "files are left: {left}");
    cast.serves(NODE).await
}

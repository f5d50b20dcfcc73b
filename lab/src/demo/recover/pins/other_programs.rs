//! A foreign repository offers a newer version. apt and unattended-upgrades may take packages from
//! every repository, and change none of the five.

use std::path::Path;

use anyhow::{Context, ensure};

use super::super::cast::Cast;
use super::super::packages::check_versions;
use super::super::tuple;
use super::node::NODE;

/// The versions in the foreign repository.
const OFFERED: [&str; 2] = ["1.0", "3.0"];
/// Path of the repository on the machine.
const REPOSITORY: &str = "/root/foreign";
/// The version that must stay.
const KEPT: &str = "2.0";
/// The ways of apt to the newer version.
const WAYS: [&str; 4] = [
    "upgrade",
    "dist-upgrade",
    "install drv-fabric",
    "install --only-upgrade drv-meta",
];

/// Offers the newer version to apt and unattended-upgrades. Checks the versions after every try.
pub(super) async fn offer_newer(cast: &Cast<'_>, work: &Path) -> anyhow::Result<()> {
    cast.watch.say(
        "3. a foreign repository has 3.0; apt and unattended-upgrades may use every repository",
    );
    add_repository(cast, work).await?;
    let veteran = cast.veteran(NODE)?;
    let unpinned = "apt-get -s -o Dir::Etc::PreferencesParts=/dev/null dist-upgrade";
    let planned = veteran.run(&[unpinned]).await?;
    ensure!(
        planned.contains("Inst drv-meta [2.0] (3.0"),
        "apt would change no package even without the pins: {planned}"
    );
    for way in WAYS {
        veteran
            .run(&[&format!("DEBIAN_FRONTEND=noninteractive apt-get -y {way}")])
            .await?;
        check_versions(cast, NODE, KEPT)
            .await
            .with_context(|| format!("apt-get {way}"))?;
    }
    let said = veteran
        .run(&["unattended-upgrade -v --no-minimal-upgrade-steps 2>&1"])
        .await?;
    println!("{}", said.trim_end());
    check_versions(cast, NODE, KEPT)
        .await
        .context("unattended-upgrade")
}

/// Adds the repository to the machine, for apt and for unattended-upgrades.
async fn add_repository(cast: &Cast<'_>, work: &Path) -> anyhow::Result<()> {
    let folder = work.join("foreign");
    tuple::repository(&folder, &OFFERED).await?;
    let veteran = cast.veteran(NODE)?;
    veteran.give(&folder, REPOSITORY).await?;
    let source = format!("deb [trusted=yes] file:{REPOSITORY} /");
    veteran
        .run(&[&format!(
            "echo '{source}' >/etc/apt/sources.list.d/foreign.list"
        )])
        .await?;
    let everywhere = "Unattended-Upgrade::Origins-Pattern { \"site=*\"; \"origin=*\"; };";
    veteran
        .run(&[&format!(
            "echo '{everywhere}' >/etc/apt/apt.conf.d/99everywhere"
        )])
        .await?;
    veteran.run(&["apt-get -q update"]).await.map(drop)
}

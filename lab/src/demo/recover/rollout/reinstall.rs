//! A new image for a single node: a rollout with reinstalls writes the disk of the canary anew, and
//! skips the rest of the pool.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use muster_api::client::Precondition;
use serde_json::json;
use tokio::process::Command;

use super::super::super::artifacts::digest;
use super::super::super::declare::{put, upload};
use super::super::super::rollouts::{Ending, Target};
use super::super::super::veteran::{edit_root, finished};
use super::super::cast::Cast;
use super::super::declare::{PARTITION, POOL};
use super::super::driver::{self, Draft, publish};
use super::super::tuple::TUPLE;
use super::{DemoOptions, list_turns};

/// Name of the new image, and of the stack locked against it.
const NAME: &str = "next";
/// Marker file in `/etc` of the new image.
const MARKER: &str = "next-image";
/// The reinstalled node.
const NODE: &str = "n1";

/// Runs the rollout, and checks that only [`NODE`] has the new image.
pub(super) async fn run(
    options: &DemoOptions,
    cast: &mut Cast<'_>,
    work: &Path,
) -> anyhow::Result<()> {
    cast.watch.say(&format!(
        "7. {NODE} gets another image, and all other nodes are skipped"
    ));
    let manifest = build_image(options, cast, work).await?;
    let draft = Draft {
        name: NAME,
        image: Some(&manifest),
        ..Draft::of_version("2.0")
    };
    let stack = driver::lock(options, cast, work, draft).await?;
    publish(cast, NAME, &stack).await?;
    let client = cast.programs.client();
    let pool = json!({ "spec": { "image": NAME, "stack": NAME } });
    client
        .patch_value(&["pools", POOL], &[], &pool, Precondition::None)
        .await?;
    let rollouts = list_turns(cast, work);
    let target = Target {
        canary: &[NODE],
        allow: "reinstall",
        ..Target::to(rollouts.newest_revision().await?)
    };
    let name = rollouts.start(target).await?;
    for other in cast.nodes().iter().filter(|node| *node != NODE) {
        let skip = ["rollout", "skip", &name, other];
        cast.programs
            .cli(&skip, &["--reason", "keeps its image"])
            .await?;
    }
    rollouts.wait(&name, Ending::Done).await?;
    cast.serves(NODE).await?;
    check_system(cast, stack.version).await?;
    for other in cast.nodes().iter().filter(|node| *node != NODE) {
        let present = cast.veteran(other)?.run(&["ls", "/etc"]).await?;
        ensure!(
            !present.lines().any(|file| file == MARKER),
            "{other} has the new image"
        );
    }
    Ok(())
}

/// Builds and uploads an image with one file more than the reference image. Returns the path of the
/// manifest.
async fn build_image(
    options: &DemoOptions,
    cast: &Cast<'_>,
    work: &Path,
) -> anyhow::Result<PathBuf> {
    let (raw, image) = (work.join("next.raw"), work.join("next.raw.zst"));
    let mut unpack = Command::new("zstd");
    unpack.args(["-q", "-d", "-f", "--sparse"]);
    unpack.arg(options.artifacts.image()).arg("-o").arg(&raw);
    finished("zstd", unpack.kill_on_drop(true)).await?;
    let marker = work.join("marker");
    std::fs::write(&marker, "next\n")?;
    edit_root(&raw, &format!("write {} /etc/{MARKER}\n", marker.display())).await?;
    let mut pack = Command::new("zstd");
    pack.args(["-q", "-3", "-T0", "-f"]);
    pack.arg(&raw).arg("-o").arg(&image);
    finished("zstd", pack.kill_on_drop(true)).await?;
    let mut manifest = options.artifacts.image_manifest()?;
    NAME.clone_into(&mut manifest.name);
    manifest.raw_digest = digest(&raw)?;
    manifest.size = std::fs::metadata(&image)?.len();
    let client = cast.programs.client();
    manifest.digest = upload(client, &image).await?;
    std::fs::remove_file(&raw)?;
    let path = work.join("next.json");
    std::fs::write(&path, serde_json::to_vec(&manifest)?)?;
    put(client, "images", NAME, serde_json::to_value(manifest)?).await?;
    Ok(path)
}

/// Reads the marker and the five packages by a job, because the login of the former system is gone.
async fn check_system(cast: &Cast<'_>, version: &str) -> anyhow::Result<()> {
    let read = format!("cat /etc/{MARKER}; dpkg-query -W -f '${{Version}}\\n' 'drv-*'");
    let job = ["-p", PARTITION, "-D", "/", "-w", NODE, "sh", "-c", &read];
    let shown = cast.slurm.srun(&job).await?;
    let expected: Vec<&str> = std::iter::once("next")
        .chain(TUPLE.iter().map(|_| version))
        .collect();
    let found: Vec<&str> = shown.lines().collect();
    ensure!(
        found == expected,
        "{NODE} has not the new image with its packages: {shown}"
    );
    Ok(())
}

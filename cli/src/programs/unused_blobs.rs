//! `muster admin unused-blobs`: the stored blobs without a use, before a server removes them.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use muster_server::tasks::retention::blobs::{UnusedBlob, list_unused};

use super::host::{Act, Host};
use super::retention::UnusedBlobsArgs;

/// The blobs of the server, and the grace time.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UnusedArgs {
    /// Directory of the blobs, as of the servers
    #[arg(long, default_value = "/var/lib/muster")]
    data_dir: PathBuf,
    #[command(flatten)]
    keep: UnusedBlobsArgs,
}

/// Prints the unused blobs, and changes no file.
///
/// # Errors
/// When a document or bundle is unreadable, the folder is missing, or the database fails.
pub(super) async fn list(host: &Host, args: &UnusedArgs) -> anyhow::Result<()> {
    let folder = args.data_dir.join("blobs");
    anyhow::ensure!(
        folder.join("sha256").is_dir(),
        "{} has no blobs: name the data directory of the servers with --data-dir",
        args.data_dir.display()
    );
    let Act { mut tx, .. } = host.begin().await?;
    let unused = list_unused(&mut tx, &folder).await?;
    let bytes: u64 = unused.iter().map(|blob| blob.bytes).sum();
    for blob in &unused {
        let (digest, size) = (blob.digest, blob.bytes);
        let end = describe_end(blob, args.keep.keep_unused_blobs_days);
        print_line!("{digest} {size} bytes, {end}");
    }
    print_line!("{} unused blobs, {bytes} bytes", unused.len());
    Ok(())
}

fn describe_end(blob: &UnusedBlob, days: u32) -> String {
    let Some(since) = blob.since else {
        return "noted by the next round of a server".to_owned();
    };
    let keep = SignedDuration::from_hours(24 * i64::from(days));
    let end = since.checked_add(keep).unwrap_or(Timestamp::MAX);
    format!("unused since {since:.0}, removed after {end:.0}")
}

//! Measures how muster-node streams an image from HTTP to a disk: the byte transfer of the job
//! `write-image`, on any file or device. Usage: `write-image URL DISK`, with the image's
//! `wire::node::WriteImage` without `url` on standard input.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_core::ids::NodeId;
use muster_core::wire::node::{Failure, Marker, WriteImage};
use muster_node::disk::{marker, stream, table};
use muster_node::job::JobContext;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(disk)) = (arguments.next(), arguments.next()) else {
        bail!("usage: write-image URL DISK")
    };
    let image: WriteImage =
        serde_json::from_reader(std::io::stdin()).context("the image's description")?;
    let image = WriteImage { url, ..image };
    let disk = File::options()
        .read(true)
        .write(true)
        .open(&disk)
        .with_context(|| disk.clone())?;
    write(&image, &disk).map_err(|failure| anyhow::anyhow!("{}: {}", failure.code, failure.message))
}

fn write(image: &WriteImage, disk: &File) -> Result<(), Failure> {
    let cx = JobContext::foreground(Duration::from_secs(600));
    let marker = Marker {
        protocol: 1,
        node: NodeId::new(),
        claim: image.claim,
        epoch: 1,
        image: image.digest,
    };
    let sector = marker::encode(&marker)?;
    let held = stream::write(&cx, image, disk, &sector)?;
    table::place(disk, &held, &sector)?;
    table::commit(disk, &held)
}

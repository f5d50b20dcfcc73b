//! `muster stack lock`: resolves a stack over an image into its lock and its bundle, with the distribution's own resolver and no package state
//! but the image's. What nodes will install is decided here and nowhere else.

mod apt; // The resolver, in a root of its own
mod bundle; // The flat repository, as blobs
mod index; // Debian control stanzas
mod lock; // From wanted packages to the whole closure
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use muster_core::images::ImageManifest;
use muster_core::stacks::{StackLock, StackSpec};
use muster_core::values::Digest;

/// What can be done with a stack before it is published.
#[derive(Debug, Subcommand)]
pub(crate) enum StackVerb {
    /// Resolve a stack's packages over an image into its lock and bundle.
    Lock(LockArgs),
}

/// What a lock is made from, and where it goes.
#[derive(Args, Debug)]
pub(crate) struct LockArgs {
    /// The stack as its author wrote it.
    #[arg(long)]
    stack: PathBuf,
    /// The image's manifest.
    #[arg(long)]
    image: PathBuf,
    /// The image's /var/lib/dpkg/status. Without it the state is put together from the manifest and the package index.
    #[arg(long)]
    status: Option<PathBuf>,
    /// Take the newest version of every package and write it into the stack. Without it every package must have an exact version.
    #[arg(long)]
    update: bool,
    /// A Debian mirror to use instead of the host's own apt sources.
    #[arg(long, env = "MIRROR")]
    mirror: Option<String>,
    /// The keyring that signs the mirror.
    #[arg(long, env = "KEYRING", default_value = "/usr/share/keyrings/debian-archive-keyring.gpg")]
    keyring: PathBuf,
    /// apt's index and downloads, kept for the next time.
    #[arg(long, default_value = ".cache/stack/apt")]
    cache: PathBuf,
    /// Where the bundle's blobs go: `<dir>/sha256/<hex>`.
    #[arg(long)]
    blobs: PathBuf,
    /// Where the stack with exact versions, lock and bundle goes: what is published.
    #[arg(long)]
    out: PathBuf,
}

/// Does what was asked.
///
/// # Errors
/// In words for the person at the terminal; nothing is written to `out` then.
pub(crate) async fn run(verb: StackVerb) -> anyhow::Result<()> {
    match verb {
        StackVerb::Lock(args) => {
            let locked = lock_stack(&args).await?;
            let lock = locked.lock.as_ref().context("a locked stack has a lock")?;
            let bytes: u64 = lock.packages.iter().map(|package| package.size).sum();
            println!("lock    {}\npackages {} ({} MB)", lock.digest(), lock.packages.len(), bytes / 1_000_000);
            println!("stack   {}", args.out.display());
            Ok(())
        }
    }
}

/// Makes lock and bundle and writes the stack that has them.
async fn lock_stack(args: &LockArgs) -> anyhow::Result<StackSpec> {
    let mut spec: StackSpec = toml::from_str(&read(&args.stack)?).with_context(|| args.stack.display().to_string())?;
    let image: ImageManifest =
        serde_json::from_str(&read(&args.image)?).with_context(|| args.image.display().to_string())?;
    if spec.image != image.name {
        bail!("the stack lies over image {:?}, the manifest is of {:?}", spec.image, image.name);
    }
    let sources = apt::sources(&image, args.mirror.as_deref(), &args.keyring).await?;
    let apt = apt::PrivateApt::prepare(&args.cache, &image.arch, &sources).await?;
    let index = index::read_lists(&apt.lists())?;
    let status = match &args.status {
        Some(path) => read(path)?,
        None => index::status_of(&image, &index),
    };
    apt.set_status(&status)?;
    spec.packages = lock::exact(&spec.packages, args.update, &apt).await?;
    let resolved = lock::resolve(&spec.packages, &spec.absent, &image, &apt, &index).await?;
    apt.download(&spec.packages, &spec.absent).await?;
    let bundle = bundle::write(&resolved, &apt, &args.blobs)?;
    spec.lock =
        Some(StackLock { image_digest: image.digest, arch: image.arch.clone(), packages: lock::packages(&resolved) });
    spec.bundle = Some(bundle);
    let text = toml::to_string(&spec).context("a stack is TOML")?;
    replace(&args.out, &mut text.as_bytes())?;
    Ok(spec)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a file whole or not at all.
fn replace(path: &Path, content: &mut impl std::io::Read) -> anyhow::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let name = path.file_name().context("a file has a name")?.to_string_lossy();
    let fresh = parent.join(format!(".{name}.{}", std::process::id()));
    let written = std::fs::File::create(&fresh).and_then(|mut file| {
        std::io::copy(content, &mut file)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    });
    written.inspect_err(|_| drop(std::fs::remove_file(&fresh))).with_context(|| path.display().to_string())
}

/// Packages by name, with the version each must have.
type Versions = BTreeMap<String, String>;

/// A file of the bundle and its blob.
type Files = BTreeMap<String, Digest>;

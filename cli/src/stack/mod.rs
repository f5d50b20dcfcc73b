//! `muster stack`. `lock` resolves a stack over an image into its lock and its bundle, with the distribution's own resolver and no package state
//! but the image's: what nodes will install is decided here and nowhere else. Verbs that ask a server are in `client/stacks.rs`.

mod apt; // The resolver, in a root of its own
mod bundle; // The flat repository, as blobs
mod index; // Debian control stanzas
pub(crate) mod lint; // What is wrong with a stack, with the line
mod lock; // From wanted packages to the whole closure
mod origins; // Which repository each package came from
mod recorded; // A package index that was written down
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use muster_core::images::ImageManifest;
use muster_core::stacks::rules::{Subject, refusal};
use muster_core::stacks::{StackLock, StackPart, StackSpec};
use muster_core::values::Digest;

use crate::client::output::Output;

/// What can be done with a stack.
#[derive(Debug, Subcommand)]
pub(crate) enum StackVerb {
    /// Say everything that is wrong with a stack, and what cannot be judged.
    Lint(LintArgs),
    /// Resolve a stack's packages over an image into its lock and bundle.
    Lock(LockArgs),
    /// Show what one stack has and another has not, and what a node pays to change.
    Diff(DiffArgs),
    /// Upload a locked stack's bundle and publish the stack under a name.
    Publish(PublishArgs),
    /// Look at a node in service, and say what its stack would change there.
    Plan(PlanArgs),
    /// Show how nodes differ from their stacks, as they were seen last.
    Drift(DriftArgs),
}

/// What to lint.
#[derive(Args, Debug)]
pub(crate) struct LintArgs {
    /// The stack, locked or not.
    pub(crate) stack: PathBuf,
    /// The manifest of its image: kernel, packages and release are then judged too.
    #[arg(long)]
    pub(crate) image: Option<PathBuf>,
    /// A part that is added first, such as stacks/parts/nfs.toml. May be repeated.
    #[arg(long, value_name = "PART")]
    pub(crate) with: Vec<PathBuf>,
}

/// What to compare: files, or names of published stacks.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// A file, or the name of a published stack.
    pub(crate) before: String,
    /// A file, or the name of a published stack.
    pub(crate) after: String,
}

/// What to publish.
#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    pub(crate) name: String,
    /// The locked stack.
    pub(crate) stack: PathBuf,
    /// Where `muster stack lock` put the bundle's blobs.
    #[arg(long)]
    pub(crate) blobs: PathBuf,
    /// Say whether it would be taken, and what it costs which nodes; upload and write nothing.
    #[arg(long, visible_alias = "plan")]
    pub(crate) dry_run: bool,
    /// Do not ask before the pools that name it ask for it. Nobody is asked where nobody can answer.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// What to plan.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// Name or id of a node in service.
    pub(crate) node: String,
    /// How long to wait for the look.
    #[arg(long, default_value = "10m", value_parser = crate::duration::parse_duration)]
    pub(crate) timeout: std::time::Duration,
}

/// Whose drift to show.
#[derive(Args, Debug)]
pub(crate) struct DriftArgs {
    /// Names or ids; every node in service without one.
    #[arg(value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Look again first, and wait for it.
    #[arg(long, requires = "nodes")]
    pub(crate) look: bool,
    /// How long to wait for the look.
    #[arg(long, default_value = "10m", value_parser = crate::duration::parse_duration, requires = "look")]
    pub(crate) timeout: std::time::Duration,
}

/// What a lock is made from, and where it goes.
#[derive(Args, Debug)]
pub(crate) struct LockArgs {
    /// The stack as its author wrote it.
    #[arg(long)]
    stack: PathBuf,
    /// A part that is added to it first, such as stacks/parts/nfs.toml: what comes of it is whole. May be repeated.
    #[arg(long, value_name = "PART")]
    with: Vec<PathBuf>,
    /// The image's manifest.
    #[arg(long)]
    image: PathBuf,
    /// The image's /var/lib/dpkg/status. Without it the state is put together from the manifest and the package index.
    #[arg(long)]
    status: Option<PathBuf>,
    /// Take the newest version of every package and write it into the stack. Without it every package must have an exact version.
    #[arg(long)]
    update: bool,
    /// Take the newest version only of packages whose version is `*`, and keep the exact ones.
    #[arg(long, conflicts_with = "update")]
    open: bool,
    /// A mirror to use instead of the host's own apt sources, or a whole source line as `deb [signed-by=…] URL SUITE …`. May be repeated.
    #[arg(long, env = "MIRROR", value_delimiter = '|')]
    mirror: Vec<String>,
    /// A repository beside these, such as a site's own with its drivers: as a whole source line, or a mirror's address. May be repeated.
    #[arg(long, value_name = "REPOSITORY", conflicts_with = "recorded")]
    also: Vec<String>,
    /// Resolve against a package index that was written down, for repositories that cannot be reached from here. There are no packages then: exact
    /// versions come of it, and no lock and no bundle. May be repeated.
    #[arg(long, conflicts_with = "mirror", value_name = "INDEX")]
    recorded: Vec<PathBuf>,
    /// The keyring that signs the mirror, which must be there; Debian's own, or the keys of the host's apt, where none is named.
    #[arg(long, env = "KEYRING")]
    keyring: Option<PathBuf>,
    /// apt's index and downloads, kept for the next time.
    #[arg(long, default_value = ".cache/stack/apt")]
    cache: PathBuf,
    /// Where the bundle's blobs go: `<dir>/sha256/<hex>`.
    #[arg(long, required_unless_present = "recorded")]
    blobs: Option<PathBuf>,
    /// A firmware image that the stack names by its digest; it goes into the bundle. May be repeated.
    #[arg(long, value_name = "FILE")]
    firmware: Vec<PathBuf>,
    /// Where the stack with exact versions, lock and bundle goes: what is published.
    #[arg(long)]
    out: PathBuf,
}

/// Whether a verb needs no server.
pub(crate) fn is_offline(verb: &StackVerb) -> bool {
    match verb {
        StackVerb::Lint(_) | StackVerb::Lock(_) => true,
        StackVerb::Diff(args) => [&args.before, &args.after]
            .into_iter()
            .all(|given| is_file(given)),
        StackVerb::Publish(_) | StackVerb::Plan(_) | StackVerb::Drift(_) => false,
    }
}

/// Whether what was given is a file; otherwise it is a name.
pub(crate) fn is_file(given: &str) -> bool {
    given.ends_with(".toml") || given.contains('/')
}

/// Does what was asked, where that needs no server.
///
/// # Errors
/// In words for the person at the terminal; nothing is written to `out` then.
pub(crate) async fn run(verb: StackVerb, output: Output) -> anyhow::Result<()> {
    match verb {
        StackVerb::Lint(args) => lint::run(&args, output),
        StackVerb::Diff(args) => {
            let (before, after) = (
                parse(Path::new(&args.before))?,
                parse(Path::new(&args.after))?,
            );
            lint::show_diff(&before, &after, output)
        }
        StackVerb::Lock(args) => {
            let locked = lock_stack(&args).await?;
            output.print_lines(&locked.lock, || told(&locked, &args.out))
        }
        StackVerb::Publish(_) | StackVerb::Plan(_) | StackVerb::Drift(_) => {
            bail!("this verb asks a server")
        }
    }
}

fn told(locked: &StackSpec, out: &Path) -> Vec<String> {
    let written = format!("stack   {}", out.display());
    let Some(lock) = &locked.lock else {
        let many = locked.packages.len();
        return vec![
            format!("{many} packages have exact versions, by a recorded index: no lock, no bundle"),
            written,
        ];
    };
    let bytes: u64 = lock.packages.iter().map(|package| package.size).sum();
    let packages = format!(
        "packages {} ({} MB)",
        lock.packages.len(),
        bytes / 1_000_000
    );
    vec![format!("lock    {}", lock.digest()), packages, written]
}

/// A stack from its file.
///
/// # Errors
/// With the line that is wrong.
pub(crate) fn parse(path: &Path) -> anyhow::Result<StackSpec> {
    toml::from_str(&read(path)?).with_context(|| path.display().to_string())
}

/// A stack with the parts that are added to it, in their order.
///
/// # Errors
/// With the part, and what it says differently.
pub(crate) fn with_parts(stack: StackSpec, parts: &[PathBuf]) -> anyhow::Result<StackSpec> {
    parts.iter().try_fold(stack, |stack, path| {
        let part: StackPart =
            toml::from_str(&read(path)?).with_context(|| path.display().to_string())?;
        stack
            .with(part)
            .map_err(|conflicts| anyhow!("{}: {}", path.display(), conflicts.join("; ")))
    })
}

/// An image's manifest.
pub(crate) fn manifest(path: &Path) -> anyhow::Result<ImageManifest> {
    serde_json::from_str(&read(path)?).with_context(|| path.display().to_string())
}

/// Makes lock and bundle and writes the stack that has them.
async fn lock_stack(args: &LockArgs) -> anyhow::Result<StackSpec> {
    let mut spec = with_parts(parse(&args.stack)?, &args.with)?;
    let image = manifest(&args.image)?;
    if spec.image != image.name {
        bail!(
            "the stack lies over image {:?}, the manifest is of {:?}",
            spec.image,
            image.name
        );
    }
    let sources = match args.recorded.is_empty() {
        false => recorded::repository(&args.recorded, &args.cache)?,
        true => apt::sources(&image, &args.mirror, &args.also, args.keyring.as_deref()).await?,
    };
    let apt = apt::PrivateApt::prepare(&args.cache, &image.arch, &sources).await?;
    let index = index::read_lists(&apt.lists())?;
    let status = match &args.status {
        Some(path) => read(path)?,
        None => index::status_of(&image, &index),
    };
    apt.set_status(&status)?;
    let choice = match (args.update, args.open) {
        (true, _) => lock::Choice::Newest,
        (false, true) => lock::Choice::Open,
        (false, false) => lock::Choice::Exact,
    };
    spec.packages = lock::exact(&spec.packages, choice, &apt).await?;
    let absent = lock::known(&spec.absent, &status, &index);
    let resolved = lock::resolve(&spec.packages, &absent, &image, &apt, &index).await?;
    (spec.lock, spec.bundle) = (None, None);
    let packages = lock::packages(&resolved);
    let (firmware, bios) = (spec.firmware.clone(), spec.bios.clone());
    let repositories = origins::of(&resolved, &apt).await?;
    let lock = StackLock {
        image_digest: image.digest,
        arch: image.arch.clone(),
        packages,
        firmware,
        bios,
        repositories,
    };
    let judged = StackSpec {
        lock: Some(lock.clone()),
        ..spec.clone()
    };
    if let Some(why) = refusal(Subject {
        stack: &judged,
        image: Some(&image),
        facts: None,
    }) {
        bail!("what it resolves to cannot work: {why}");
    }
    match (args.recorded.is_empty(), &args.blobs) {
        // Of a recorded index neither size nor digest is true: no node may be told them.
        (false, _) => {}
        (true, Some(blobs)) => {
            bundle::discard_stale(&resolved, &apt)?;
            apt.download(&spec.packages, &absent).await?;
            let images = bundle::images(&spec, &args.firmware, blobs)?;
            spec.bundle = Some(bundle::write(&resolved, images, &apt, blobs)?);
            spec.lock = Some(lock);
        }
        (true, None) => bail!("--blobs says where the bundle goes"),
    }
    let text = toml::to_string(&spec).context("a stack is TOML")?;
    replace(&args.out, &mut text.as_bytes())?;
    Ok(spec)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a file whole or not at all.
fn replace(path: &Path, content: &mut impl std::io::Read) -> anyhow::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let name = path
        .file_name()
        .context("a file has a name")?
        .to_string_lossy();
    let fresh = parent.join(format!(".{name}.{}", std::process::id()));
    let written = std::fs::File::create(&fresh).and_then(|mut file| {
        std::io::copy(content, &mut file)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    });
    written
        .inspect_err(|_| drop(std::fs::remove_file(&fresh)))
        .with_context(|| path.display().to_string())
}

/// Packages by name, with the version each must have.
type Versions = BTreeMap<String, String>;

/// A file of the bundle and its blob.
type Files = BTreeMap<String, Digest>;

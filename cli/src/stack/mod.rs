//! `muster stack`. `lock` resolves a stack over an image into its lock and its bundle, with the
//! distribution's own resolver and only the image's package
//! state: the installed packages are decided here. Subcommands with a server are in
//! `client/stacks.rs`.

mod apt; // The resolver, with a separate root
mod bundle; // The flat repository, as blobs
mod components; // Components of Debian's archive missing in the sources
mod index; // Debian control stanzas
pub(crate) mod lint; // Problems of a stack, with lines
mod lock; // From wanted packages to the whole closure
mod origins; // The repository of each package
mod pins; // Versions that apt prefers
mod recorded; // A recorded package index
pub(crate) mod show; // Size, effect and driver of a stack
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use muster_core::clock::Clock;
use muster_core::images::ImageManifest;
use muster_core::stacks::rules::{Subject, refusal};
use muster_core::stacks::{StackLock, StackPart, StackSpec};
use muster_core::values::Digest;

use crate::client::output::Output;

/// Subcommands of stacks.
#[derive(Debug, Subcommand)]
pub(crate) enum StackVerb {
    /// Check a stack, and list checks that are impossible
    Lint(LintArgs),
    /// Resolve a stack's packages over an image into its lock and bundle
    Lock(LockArgs),
    /// Show the size of a stack, the effect on a node, and the known facts of the driver
    Show(ShowArgs),
    /// Show the differences between two stacks, and the cost of the change for a node
    Diff(DiffArgs),
    /// Upload a locked stack's bundle, and publish the stack under a name
    Publish(PublishArgs),
    /// Show the changes a stack would make on a node in service
    Plan(PlanArgs),
    /// Show the latest known drift of nodes from their stacks
    Drift(DriftArgs),
}

/// The stack to check.
#[derive(Args, Debug)]
pub(crate) struct LintArgs {
    /// The stack, locked or not
    pub(crate) stack: PathBuf,
    /// Manifest of the stack's image; kernel, packages and release are then checked too
    #[arg(long)]
    pub(crate) image: Option<PathBuf>,
    /// Part to add first, such as stacks/parts/nfs.toml. Repeatable
    #[arg(long, value_name = "PART")]
    pub(crate) with: Vec<PathBuf>,
}

/// The stack to show: a file, or the name of a published stack.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// File, or name of a published stack
    pub(crate) stack: String,
}

/// The stacks to compare: files, or names of published stacks.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// File, or name of a published stack
    pub(crate) before: String,
    /// File, or name of a published stack
    pub(crate) after: String,
}

/// The stack to publish.
#[derive(Args, Debug)]
pub(crate) struct PublishArgs {
    pub(crate) name: String,
    /// The locked stack
    pub(crate) stack: PathBuf,
    /// Directory of the bundle's blobs, written by `muster stack lock`
    #[arg(long)]
    pub(crate) blobs: PathBuf,
    /// Show acceptance and the cost for each node; upload and write nothing
    #[arg(long, visible_alias = "plan")]
    pub(crate) dry_run: bool,
    /// Skip the confirmation for pools using the stack. Scripts without a terminal are never asked
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// The node to compare.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// Name or id of a node in service
    pub(crate) node: String,
    /// Time limit for the comparison
    #[arg(long, default_value = "10m", value_parser = crate::duration::parse_duration)]
    pub(crate) timeout: std::time::Duration,
}

/// The nodes to show.
#[derive(Args, Debug)]
pub(crate) struct DriftArgs {
    /// Names or ids. Default: every node in service
    #[arg(value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// Compare again first, and wait for the result
    #[arg(long, requires = "nodes")]
    pub(crate) look: bool,
    /// Time limit for the comparison
    #[arg(long, default_value = "10m", value_parser = crate::duration::parse_duration, requires = "look")]
    pub(crate) timeout: std::time::Duration,
}

/// The input and output of a lock.
#[derive(Args, Debug)]
pub(crate) struct LockArgs {
    /// The stack as written by its author
    #[arg(long)]
    stack: PathBuf,
    /// Part to add first, such as stacks/parts/nfs.toml. The output contains the part. Repeatable
    #[arg(long, value_name = "PART")]
    with: Vec<PathBuf>,
    /// Manifest of the image
    #[arg(long)]
    image: PathBuf,
    /// The image's /var/lib/dpkg/status. Default: a state built from the manifest and the package
    /// index
    #[arg(long)]
    status: Option<PathBuf>,
    /// Write the newest version of every package into the stack. Without this option every package
    /// needs an exact version
    #[arg(long)]
    update: bool,
    /// Write the newest version of packages with the version `*` into the stack, and keep the exact
    /// versions
    #[arg(long, conflicts_with = "update")]
    open: bool,
    /// An earlier output, whose packages keep their versions. Packages with an exact version in the
    /// stack take this version, and so do packages that they need in one version alone
    #[arg(long, value_name = "LOCKED", conflicts_with = "update")]
    keep: Option<PathBuf>,
    /// Mirror in place of the host's own apt sources, or a complete source line `deb [signed-by=…]
    /// URL SUITE …`. Repeatable
    #[arg(long, env = "MIRROR", value_delimiter = '|')]
    mirror: Vec<String>,
    /// Additional repository, such as a site's own with drivers: a complete source line, or the
    /// address of a mirror. Repeatable
    #[arg(long, value_name = "REPOSITORY", conflicts_with = "recorded")]
    also: Vec<String>,
    /// Recorded package index of an unreachable repository. Only exact versions are resolved then,
    /// without lock and bundle. Repeatable
    #[arg(long, conflicts_with = "mirror", value_name = "INDEX")]
    recorded: Vec<PathBuf>,
    /// Keyring with the mirror's signing key. Default: Debian's keys, or the keys of the host's apt
    #[arg(long, env = "KEYRING")]
    keyring: Option<PathBuf>,
    /// Directory of apt's index and downloads, kept for the next run
    #[arg(long, default_value = ".cache/stack/apt")]
    cache: PathBuf,
    /// Directory of the bundle's blobs: `<dir>/sha256/<hex>`
    #[arg(long, required_unless_present = "recorded")]
    blobs: Option<PathBuf>,
    /// Firmware image named in the stack by its digest; becomes a part of the bundle. Repeatable
    #[arg(long, value_name = "FILE")]
    firmware: Vec<PathBuf>,
    /// Output: the stack with exact versions, lock and bundle, ready for publication
    #[arg(long)]
    out: PathBuf,
}

/// Returns whether the subcommand needs no server.
pub(crate) fn is_offline(verb: &StackVerb) -> bool {
    match verb {
        StackVerb::Lint(_) | StackVerb::Lock(_) => true,
        StackVerb::Show(args) => is_file(&args.stack),
        StackVerb::Diff(args) => [&args.before, &args.after]
            .into_iter()
            .all(|given| is_file(given)),
        StackVerb::Publish(_) | StackVerb::Plan(_) | StackVerb::Drift(_) => false,
    }
}

/// Returns whether the argument is a file; otherwise the argument is a name.
pub(crate) fn is_file(given: &str) -> bool {
    given.ends_with(".toml") || given.contains('/')
}

/// Executes a subcommand without a server.
///
/// # Errors
/// A message for the person at the terminal; `out` is then unchanged.
pub(crate) async fn run(verb: StackVerb, output: Output) -> anyhow::Result<()> {
    match verb {
        StackVerb::Lint(args) => lint::run(&args, output),
        StackVerb::Show(args) => {
            let stack = parse(Path::new(&args.stack))?;
            show::print_summary(&stack, Clock::System.now(), output)
        }
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

/// Reads a stack from its file.
///
/// # Errors
/// With the wrong line.
pub(crate) fn parse(path: &Path) -> anyhow::Result<StackSpec> {
    toml::from_str(&read(path)?).with_context(|| path.display().to_string())
}

/// Reads a stack with its parts, in order.
///
/// # Errors
/// With the part, and the conflicting values.
pub(crate) fn with_parts(stack: StackSpec, parts: &[PathBuf]) -> anyhow::Result<StackSpec> {
    parts.iter().try_fold(stack, |stack, path| {
        let part: StackPart =
            toml::from_str(&read(path)?).with_context(|| path.display().to_string())?;
        stack
            .with(part)
            .map_err(|conflicts| anyhow!("{}: {}", path.display(), conflicts.join("; ")))
    })
}

/// Reads the manifest of an image.
pub(crate) fn manifest(path: &Path) -> anyhow::Result<ImageManifest> {
    serde_json::from_str(&read(path)?).with_context(|| path.display().to_string())
}

impl LockArgs {
    /// Returns apt's source lines.
    async fn list_sources(&self, image: &ImageManifest) -> anyhow::Result<String> {
        match self.recorded.is_empty() {
            false => recorded::repository(&self.recorded, &self.cache),
            true => {
                let keyring = self.keyring.as_deref();
                apt::sources(image, &self.mirror, &self.also, keyring).await
            }
        }
    }

    /// Returns the packages of the former lock whose versions stay.
    fn list_kept(&self, spec: &StackSpec) -> anyhow::Result<Versions> {
        let Some(path) = &self.keep else {
            return Ok(Versions::new());
        };
        let kept = pins::list_kept(&parse(path)?, &spec.packages);
        kept.with_context(|| path.display().to_string())
    }

    /// Returns the packages with an exact version that the run keeps.
    fn list_declared(&self, packages: &Versions) -> Versions {
        let is_kept = |version: &str| !self.update && version != "*";
        let kept = packages.iter().filter(|(_, version)| is_kept(version));
        kept.map(|(name, version)| (name.clone(), version.clone()))
            .collect()
    }

    fn choose_versions(&self) -> lock::Choice {
        match (self.update, self.open) {
            (true, _) => lock::Choice::Newest,
            (false, true) => lock::Choice::Open,
            (false, false) => lock::Choice::Exact,
        }
    }
}

/// Builds lock and bundle, and writes the stack with both.
async fn lock_stack(args: &LockArgs) -> anyhow::Result<StackSpec> {
    let mut spec = with_parts(parse(&args.stack)?, &args.with)?;
    let image = manifest(&args.image)?;
    if spec.image != image.name {
        bail!(
            "the stack is for image {:?}, but the manifest is for image {:?}",
            spec.image,
            image.name
        );
    }
    let sources = args.list_sources(&image).await?;
    let apt = apt::PrivateApt::prepare(&args.cache, &image.arch, &sources).await?;
    let index = index::read_lists(&apt.lists())?;
    let status = match &args.status {
        Some(path) => read(path)?,
        None => index::status_of(&image, &index),
    };
    apt.set_status(&status)?;
    let lacking = components::describe_lacking(&sources, apt::find_suite(&image));
    lock::check_offered(&spec.packages, &status, &index, &lacking)?;
    let kept = args.list_kept(&spec)?;
    // An open package follows the exact version of another part of the tuple.
    let declared = args.list_declared(&spec.packages);
    let pins = pins::Pins::new(kept, &declared, &image.arch, &index);
    apt.set_preferences(&pins::render(&pins.list())?)?;
    spec.packages = lock::exact(&spec.packages, args.choose_versions(), &apt).await?;
    let pins = pins::Pins::new(pins.list_kept(), &spec.packages, &image.arch, &index);
    apt.set_preferences(&pins::render(&pins.list())?)?;
    let absent = lock::known(&spec.absent, &status, &index);
    let resolved = lock::resolve(&spec.packages, &absent, &image, &apt, &index).await;
    let resolved = resolved.map_err(|error| add_components(error, &lacking));
    let resolved = resolved.with_context(|| pins.advise())?;
    pins.check_kept(&image, &resolved)?;
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
    check_rules(&spec, &lock, &image)?;
    match (args.recorded.is_empty(), &args.blobs) {
        // Sizes and digests of a recorded index are placeholders and must never reach a node.
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

/// Adds the options for missing components to apt's reason.
fn add_components(error: anyhow::Error, lacking: &str) -> anyhow::Error {
    match lacking.is_empty() {
        true => error,
        false => anyhow!(
            "{error:#}; if a package above is unknown to the sources: they lack components of Debian's archive: add {lacking}"
        ),
    }
}

/// Checks the resolved stack against the rules.
fn check_rules(spec: &StackSpec, lock: &StackLock, image: &ImageManifest) -> anyhow::Result<()> {
    let judged = StackSpec {
        lock: Some(lock.clone()),
        ..spec.clone()
    };
    let subject = Subject {
        stack: &judged,
        image: Some(image),
        facts: None,
    };
    match refusal(subject) {
        None => Ok(()),
        Some(why) => bail!("the resolved stack cannot work: {why}"),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a file atomically.
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

/// Packages by name, with the required version.
type Versions = BTreeMap<String, String>;

/// A file of the bundle with its blob.
type Files = BTreeMap<String, Digest>;

//! `muster image key` and `muster image sign`: keys of release owners, and signatures of manifests,
//! without a server.

mod key_file; // A private key in a file of the owner alone

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use muster_core::images::ImageManifest;
use muster_core::signatures::{SecretKey, describe_image, describe_live};
use muster_core::values::Digest;
use serde_json::json;

use crate::client::output::Output;

/// The largest manifest in bytes.
const LONGEST: u64 = 16 << 20;

/// Subcommands of images beside the shared verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// Make a key pair for signatures of images: the private key in FILE, the public key in
    /// FILE.pub
    Key(KeyArgs),
    /// Sign the manifest of an image: write the signature into the manifest, and beside the
    /// manifest the signed text with a detached signature for minisign
    Sign(SignArgs),
    /// Sign a live image: print the signature for `spec.live.signature` of a site
    SignLive(SignLiveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// File for the private key, of mode 0600. An existing file is not replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Manifest of the image in JSON, as the build writes it
    #[arg(value_name = "MANIFEST")]
    manifest: PathBuf,
    /// File with the private key, as `muster image key` writes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File for the signed manifest (default: MANIFEST)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SignLiveArgs {
    /// Kernel of the live image: `vmlinuz` of the build
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,
    /// Initrd of the live image: `initrd.zst` of the build
    #[arg(long, value_name = "FILE")]
    initrd: PathBuf,
    /// File with the private key, as `muster image key` writes it
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

/// Executes the subcommand.
///
/// # Errors
/// When a file cannot be read or written, or has another content.
pub(crate) fn run(output: Output, verb: &ImageVerb) -> anyhow::Result<()> {
    match verb {
        ImageVerb::Key(args) => make_key(output, args),
        ImageVerb::Sign(args) => sign_manifest(output, args),
        ImageVerb::SignLive(args) => sign_live(output, args),
    }
}

fn make_key(output: Output, args: &KeyArgs) -> anyhow::Result<()> {
    let key = SecretKey::from_seed(&rand::random::<[u8; 32]>());
    key_file::write_key(&args.out, &key)?;
    let public = add_suffix(&args.out, ".pub");
    write_file(&public, &key.public().render_file())?;
    let made = json!({ "public_key": key.public().to_string() });
    output.print_lines(&made, || {
        vec![
            format!("public key   {}", key.public()),
            format!("private key  {}", args.out.display()),
        ]
    })
}

fn sign_manifest(output: Output, args: &SignArgs) -> anyhow::Result<()> {
    let key = key_file::read_key(&args.key)?;
    let text = read_file(&args.manifest)?;
    let mut manifest: ImageManifest =
        serde_json::from_str(&text).with_context(|| args.manifest.display().to_string())?;
    let statement = describe_image(&manifest);
    let signature = key.sign(&statement);
    manifest.signature = Some(signature.clone());
    let out = args.out.as_ref().unwrap_or(&args.manifest);
    let comment = format!("image {} {}", manifest.name, manifest.version);
    let beside = add_suffix(out, ".statement");
    write_file(&beside, &statement)?;
    let detached = add_suffix(&beside, ".minisig");
    write_file(&detached, &key.sign_file(&statement, &comment))?;
    let signed = serde_json::to_string(&manifest).context("a manifest is JSON")?;
    write_file(out, &(signed + "\n"))?;
    let made = json!({ "signature": signature, "public_key": key.public().to_string() });
    output.print_lines(&made, || {
        vec![
            format!("signature    {signature}"),
            format!("public key   {}", key.public()),
            format!("manifest     {}", out.display()),
            format!("detached     {}", detached.display()),
        ]
    })
}

fn sign_live(output: Output, args: &SignLiveArgs) -> anyhow::Result<()> {
    let key = key_file::read_key(&args.key)?;
    let digest = |path: &Path| {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        anyhow::Ok(Digest::of(&bytes))
    };
    let (kernel, initrd) = (digest(&args.kernel)?, digest(&args.initrd)?);
    let signature = key.sign(&describe_live(kernel, initrd));
    let made = json!({ "kernel": kernel, "initrd": initrd, "signature": signature });
    output.print_lines(&made, || {
        vec![
            format!("kernel     {kernel}"),
            format!("initrd     {initrd}"),
            format!("signature  {signature}"),
        ]
    })
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    let named = || path.display().to_string();
    let size = std::fs::metadata(path).with_context(named)?.len();
    ensure!(
        size <= LONGEST,
        "{}: longer than {LONGEST} bytes",
        path.display()
    );
    std::fs::read_to_string(path).with_context(named)
}

/// Writes a file atomically.
fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = add_suffix(path, &format!(".{}", std::process::id()));
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::rename(&fresh, path))
        .inspect_err(|_| drop(std::fs::remove_file(&fresh)))
        .with_context(|| path.display().to_string())
}

fn add_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

//! `muster agent`: acts for one site.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_agent::boot::BootPorts;
use muster_agent::work::AgentOptions;
use muster_agent::work::identity::Entry;
use muster_core::clock::Clock;
use muster_core::signatures::PublicKey;
use muster_core::values::Secret;
use muster_server::http::listener::files::raise_limit;
use tokio_util::sync::CancellationToken;

/// Options of an agent.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The server's agent listener, such as `https://10.0.0.5:8081`. Any address works, because the
    /// server is identified by its certificate
    #[arg(long, env = "MUSTER_AGENT_SERVER")]
    pub server: String,
    /// File with the enrolment token. The token is used once; afterwards the agent has a
    /// certificate and renews the certificate. A different token starts a
    /// new enrolment
    #[arg(long, env = "MUSTER_AGENT_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Directory of the agent's key and certificate, blobs, and the latest site configuration
    #[arg(long, default_value = "/var/lib/muster-agent")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub loaders: Loaders,
}

/// Files sent to nodes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Loaders {
    /// Directory of Muster's iPXE: `undionly.kpxe` and `snponly.efi`
    #[arg(
        long,
        env = "MUSTER_IPXE_DIR",
        default_value = "/usr/share/muster/ipxe"
    )]
    pub ipxe_dir: PathBuf,
    /// The static muster-node for installed systems
    #[arg(
        long,
        env = "MUSTER_NODE_BINARY",
        default_value = "/usr/share/muster/muster-node"
    )]
    pub muster_node: PathBuf,
    /// Public key of a release owner, as printed by `muster image key`. With keys, nodes boot only
    /// live images signed by one of them
    #[arg(
        long,
        env = "MUSTER_LIVE_KEY",
        value_name = "KEY",
        value_delimiter = ','
    )]
    pub live_key: Vec<PublicKey>,
    /// Size of the cache of images and packages, in GiB. The blobs with the oldest use are removed
    /// first; blobs of running jobs stay. Default: 64, or half of the free
    /// space and the cached files together, if smaller
    #[arg(long, env = "MUSTER_BLOB_CACHE_GIB", value_name = "GIB",
        value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub blob_cache_gib: Option<u32>,
}

/// Runs until cancelled.
///
/// # Errors
/// When the agent cannot start, or another process took over the site.
pub(crate) async fn run(args: AgentArgs, cancel: CancellationToken) -> anyhow::Result<()> {
    let token = match &args.token_file {
        Some(file) => Some(read(file).await?),
        None => None,
    };
    let open_files = raise_limit();
    tracing::debug!(open_files, "limit of open files of the agent");
    let options = options(&args.server, token, args.data_dir, &args.loaders);
    Ok(muster_agent::work::run(options, cancel).await?)
}

async fn read(file: &Path) -> anyhow::Result<Secret> {
    let text = tokio::fs::read_to_string(file).await;
    Ok(Secret::new(
        text.with_context(|| format!("the token file {} cannot be read", file.display()))?
            .trim(),
    ))
}

/// Returns an agent's options with the ports required by firmware.
pub(crate) fn options(
    server: &str,
    token: Option<Secret>,
    data_dir: PathBuf,
    loaders: &Loaders,
) -> AgentOptions {
    AgentOptions {
        server_url: server.to_owned(),
        entry: Entry::Certificate { token },
        data_dir,
        ipxe_dir: loaders.ipxe_dir.clone(),
        muster_node: loaders.muster_node.clone(),
        blob_bytes: loaders.blob_cache_gib.map(|gib| u64::from(gib) << 30),
        live_keys: loaders.live_key.clone(),
        ports: BootPorts::default(),
        clock: Clock::System,
    }
}

//! `muster agent`: acts for one site.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_agent::boot::BootPorts;
use muster_agent::work::AgentOptions;
use muster_agent::work::identity::Entry;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use tokio_util::sync::CancellationToken;

/// Options of an agent.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The server's agent listener: `https://10.0.0.5:8081`, at whatever address: it is known by its certificate.
    #[arg(long, env = "MUSTER_AGENT_SERVER")]
    pub server: String,
    /// A file that holds the enrolment token and nothing else. It is used once; from then on the agent has a certificate, which it renews itself. Another
    /// token enrols anew.
    #[arg(long, env = "MUSTER_AGENT_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// The agent's key and certificate, blobs, and the last site configuration.
    #[arg(long, default_value = "/var/lib/muster-agent")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub loaders: Loaders,
}

/// What an agent hands to nodes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Loaders {
    /// Directory with Muster's iPXE: `undionly.kpxe` and `snponly.efi`.
    #[arg(
        long,
        env = "MUSTER_IPXE_DIR",
        default_value = "/usr/share/muster/ipxe"
    )]
    pub ipxe_dir: PathBuf,
    /// The static muster-node that installed systems get.
    #[arg(
        long,
        env = "MUSTER_NODE_BINARY",
        default_value = "/usr/share/muster/muster-node"
    )]
    pub muster_node: PathBuf,
}

/// Runs until cancelled.
///
/// # Errors
/// When it cannot start, or another process took over its site.
pub(crate) async fn run(args: AgentArgs, cancel: CancellationToken) -> anyhow::Result<()> {
    let token = match &args.token_file {
        Some(file) => Some(read(file).await?),
        None => None,
    };
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

/// An agent's options with the ports that firmware expects.
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
        ports: BootPorts::default(),
        clock: Clock::System,
    }
}

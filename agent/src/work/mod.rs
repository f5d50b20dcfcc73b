//! The main work of the agent: says hello to the server, follows the site configuration, leases
//! jobs, runs jobs and reports outcomes.
//!
//! All durable state is on the server. The local files only save work: the last site configuration,
//! blobs, and reported host keys.

pub mod agent; // State shared by all jobs
pub mod backoff; // Pauses between attempts
pub mod binary; // muster-node, as installed on nodes
pub mod client; // Client of the agent API
pub mod context; // Context of a job attempt
mod evidence; // BMC evidence of failed jobs
pub mod identity; // Key and certificate of the agent
pub mod job; // Runs a job from lease to outcome
mod jobs; // A file per kind of job
mod leases; // Leases and starts jobs
pub mod marks; // The latest event stored for the server
pub mod node_time; // Offset of a node's clock
pub mod reports; // Host keys reported by live images
mod reservations; // Results of changes of reservations, for the server
pub mod revocation; // Progress of a list of revoked keys
mod scheduler; // Reports nodes out of service to the server
mod sightings; // Reports sightings to the server
#[cfg(test)]
mod tests;
pub mod time_service; // Time for nodes from this host
pub mod voice; // Status and log of a running job

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use muster_core::clock::Clock;
use muster_core::signatures::PublicKey;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::{Hello, Sighting, SiteConfig, Welcome};
use muster_core::wire::node::SiteTrust;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use self::agent::{Agent, SILENT};
use self::backoff::Backoff;
use self::binary::NodeBinary;
use self::client::Client;
use self::client::error::CallError;
use self::client::server::Server;
use self::identity::{Entry, Identity};
use self::marks::Marks;
use self::reports::Reports;
use crate::blobs::{BlobCache, default_bound};
use crate::bmc::Bmcs;
use crate::boot::arm::ArmedBoots;
use crate::boot::loaders::IpxeBinaries;
use crate::boot::{BootOptions, BootPorts, BootServices};
use crate::cluster::Clusters;
use crate::consoles;
use crate::private;
use crate::ssh::kept::KeptSessions;

const SITE_POLL: Duration = Duration::from_secs(60);
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// Start options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Base URL of the server, without a path.
    pub server_url: String,
    /// The way the agent authenticates.
    pub entry: Entry,
    /// Directory for blobs, the last site configuration and reported host keys.
    pub data_dir: PathBuf,
    /// Directory with `undionly.kpxe`, `snponly.efi` and `muster.ipxe`.
    pub ipxe_dir: PathBuf,
    /// Path of the static muster-node executable for installed systems.
    pub muster_node: PathBuf,
    /// Size bound of the blob cache in bytes. `None`: see [`default_bound`].
    pub blob_bytes: Option<u64>,
    /// Public keys of release owners. With keys, nodes boot only live images signed by one of them.
    pub live_keys: Vec<PublicKey>,
    /// Ports of the boot services.
    pub ports: BootPorts,
    /// Local clock, corrected later by the time of the server.
    pub clock: Clock,
}

/// The reason why an agent ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{what}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error("the server does not accept this agent: {0}")]
    NotWelcome(CallError),
    #[error("the server speaks protocol {server}, this agent {PROTOCOL}")]
    Protocol { server: u32 },
    #[error("another agent process has taken over this site")]
    Superseded,
    #[error("a part of the agent ended unexpectedly: {0}")]
    Died(String),
}

/// Runs an agent until `cancel`. DHCP and local boot answer at once from the saved configuration,
/// with or without the server. Jobs start after the first contact with the server.
///
/// # Errors
/// [`AgentError`] when the agent cannot start or must stop.
pub async fn run(options: AgentOptions, cancel: CancellationToken) -> Result<(), AgentError> {
    let stop = cancel.child_token();
    let _stopped_on_every_way_out = stop.clone().drop_guard();
    private::close(&options.data_dir);
    let marks = Marks::open(&options.data_dir).map_err(io("data directory", &options.data_dir))?;
    let (client, identity) = enter(&options)?;
    let (node, ipxe) = load_programs(&options).await?;
    let clock = Clock::following(options.clock);
    let client = client.remembering(marks).setting(clock.clone());
    let reports = Reports::open(&options.data_dir)
        .map_err(io("reports", &options.data_dir.join("reports")))?;
    let blobs = open_cache(&options.data_dir, options.blob_bytes).await?;
    let (config, configs) = watch::channel(None);
    let (trust, trusts) = watch::channel(None);
    let (seen, sightings) = mpsc::channel(sightings::QUEUE);
    let boots = ArmedBoots::starting();
    let boot = BootOptions {
        data_dir: options.data_dir.clone(),
        blobs: blobs.clone(),
        ipxe,
        trust: trusts,
        clock: clock.clone(),
        contact: client.contact(),
        ports: options.ports,
    };
    let services = BootServices::start(boot, configs, boots.clone(), seen, stop.clone())
        .await
        .map_err(io("boot services", &options.data_dir))?;
    let Some(welcome) = stop
        .run_until_cancelled(hello(&client, &identity, &options.entry))
        .await
        .transpose()?
    else {
        services.stopped().await;
        return Ok(());
    };
    tracing::info!(
        site = welcome.site,
        epoch = welcome.epoch,
        "agent accepted by the server"
    );
    trust.send_replace(Some(trust_of(&welcome)));
    let agent = Arc::new(Agent {
        server: Server {
            client,
            epoch: welcome.epoch,
        },
        lease: Duration::from_secs(welcome.lease_s.max(6)),
        clock,
        node,
        boots,
        bmcs: Bmcs::default(),
        clusters: Clusters::default(),
        blobs,
        reports,
        live_keys: options.live_keys,
        silent: SILENT,
        sessions: KeptSessions::default(),
        superseded: CancellationToken::new(),
    });
    let ended = serve(&agent, identity, config, sightings, &stop).await;
    stop.cancel();
    services.stopped().await;
    ended
}

/// Loads the programs that nodes get from the agent.
async fn load_programs(options: &AgentOptions) -> Result<(NodeBinary, IpxeBinaries), AgentError> {
    let node = NodeBinary::load(&options.muster_node)
        .await
        .map_err(io("muster-node", &options.muster_node))?;
    let ipxe =
        IpxeBinaries::load(&options.ipxe_dir).map_err(io("boot loaders", &options.ipxe_dir))?;
    Ok((node, ipxe))
}

/// Opens the blob cache with its bound.
async fn open_cache(data_dir: &Path, bytes: Option<u64>) -> Result<BlobCache, AgentError> {
    let dir = data_dir.join("blobs");
    let blobs = BlobCache::at(dir.clone()).await;
    let blobs = blobs.map_err(io("blob cache", &dir))?;
    let bound = match bytes {
        Some(bytes) => bytes,
        None => default_bound(&dir.join("sha256")).map_err(io("disk of the blob cache", &dir))?,
    };
    Ok(blobs.with_bound(bound))
}

/// Runs all tasks needing the server.
async fn serve(
    agent: &Arc<Agent>,
    identity: Option<Arc<Identity>>,
    config: watch::Sender<Option<SiteConfig>>,
    seen: mpsc::Receiver<Sighting>,
    stop: &CancellationToken,
) -> Result<(), AgentError> {
    let work = stop.child_token();
    let mut tasks = JoinSet::new();
    let consoles = consoles::record(Arc::clone(agent), config.subscribe());
    tasks.spawn(in_background("consoles", &work, consoles));
    let serves = time_service::serve(config.subscribe());
    tasks.spawn(in_background("time", &work, serves));
    let follows = follow_site(Arc::clone(agent), config);
    tasks.spawn(in_background("site", &work, follows));
    let forwards = sightings::forward(Arc::clone(agent), seen);
    tasks.spawn(in_background("sightings", &work, forwards));
    let watches = scheduler::watch(Arc::clone(agent));
    tasks.spawn(in_background("scheduler", &work, watches));
    let leases = leases::run(Arc::clone(agent), work.clone());
    tasks.spawn(leases.instrument(span_of("leases")));
    let (sweeper, swept) = (Arc::clone(agent), work.clone());
    tasks.spawn(async move {
        swept
            .run_until_cancelled(sweeper.sessions.keep_swept())
            .await
            .unwrap_or_default()
    });
    if let Some(identity) = identity {
        let renewing = identity.keep_renewed(agent.server.client.clone(), agent.clock.clone());
        tasks.spawn(in_background("certificate", &work, renewing));
    }
    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = agent.superseded.cancelled() => Err(AgentError::Superseded),
        died = tasks.join_next() => Err(AgentError::Died(died.map_or_else(String::new, |end| format!("{end:?}")))),
    };
    work.cancel();
    while tasks.join_next().await.is_some() {}
    ended
}

/// Runs a background task until `work` is cancelled, inside the task's span.
fn in_background<R: Future>(
    task: &'static str,
    work: &CancellationToken,
    running: R,
) -> impl Future<Output = ()> + use<R> {
    let until_stopped = work.clone().run_until_cancelled_owned(running);
    until_stopped.map(drop).instrument(span_of(task))
}

/// Returns the span of a background task. A span at the level `error` is kept by every filter, so a
/// warning always names the task.
fn span_of(task: &'static str) -> Span {
    tracing::error_span!("task", task)
}

/// Builds the client for the server. The call sends no request.
fn enter(options: &AgentOptions) -> Result<(Client, Option<Arc<Identity>>), AgentError> {
    let (url, refused) = (&options.server_url, AgentError::NotWelcome);
    match &options.entry {
        Entry::Loopback { token } => Ok((Client::on_loopback(url, token).map_err(refused)?, None)),
        Entry::Certificate { token } => {
            let identity = Identity::open(&options.data_dir, token.as_ref());
            let identity =
                identity.map_err(io("this agent's key and certificate", &options.data_dir))?;
            let client = Client::new(url, identity.tls().map_err(refused)?).map_err(refused)?;
            identity.follow_authorities(&client).map_err(refused)?;
            Ok((client, Some(Arc::new(identity))))
        }
    }
}

/// Enrols the agent if needed and says hello, until the server answers.
async fn hello(
    client: &Client,
    identity: &Option<Arc<Identity>>,
    entry: &Entry,
) -> Result<Welcome, AgentError> {
    let instance = hex::encode(rand::random::<[u8; 16]>());
    let hello = Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        instance,
    };
    let mut backoff = Backoff::new(MAX_PAUSE);
    loop {
        let enrolled = match (identity, entry) {
            (Some(identity), Entry::Certificate { token: Some(token) }) => {
                identity.enrol(client, token).await
            }
            _ => Ok(()),
        };
        let welcome = match enrolled {
            Ok(()) => client.hello(&hello).await,
            Err(error) => Err(error),
        };
        match welcome {
            Ok(welcome) if welcome.protocol == PROTOCOL => return Ok(welcome),
            Ok(welcome) => {
                return Err(AgentError::Protocol {
                    server: welcome.protocol,
                });
            }
            Err(error) if error.retryable() => {
                tracing::warn!(%error, "server not reachable; retrying; check the server and the network")
            }
            Err(error) => return Err(AgentError::NotWelcome(error)),
        }
        backoff.pause().await;
    }
}

/// Follows the site configuration of the server. The boot services save each configuration on disk.
async fn follow_site(agent: Arc<Agent>, config: watch::Sender<Option<SiteConfig>>) {
    let mut backoff = Backoff::new(MAX_PAUSE);
    loop {
        let have = config
            .borrow()
            .as_ref()
            .map(|config: &SiteConfig| config.revision.clone());
        let asked = tokio::time::Instant::now();
        match agent.server.poll_site(have, SITE_POLL).await {
            Ok(Some(newer)) => {
                tracing::info!(
                    revision = newer.revision,
                    subnets = newer.subnets.len(),
                    "site configuration received"
                );
                config.send_replace(Some(newer));
                backoff.reset();
            }
            Ok(None) if asked.elapsed() >= Duration::from_secs(1) => backoff.reset(),
            Ok(None) => backoff.pause().await,
            Err(error) => {
                tracing::warn!(%error, "site configuration not received; retrying");
                agent.heed(&error);
                backoff.pause().await;
            }
        }
    }
}

/// Returns the keys for live images. The boot services set the address of each listener.
fn trust_of(welcome: &Welcome) -> SiteTrust {
    SiteTrust {
        protocol: PROTOCOL,
        permit_public_key: welcome.permit_public_key.clone(),
        user_ca: welcome.user_ca.clone(),
        agent_url: String::new(),
    }
}

fn io(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> AgentError {
    let what = format!("{what} ({})", path.display());
    move |source| AgentError::Io { what, source }
}

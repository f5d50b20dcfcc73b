//! `muster server`: one replica. Any number of replicas run on one Postgres.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use ipnet::IpNet;
use jiff::SignedDuration;
use muster_core::clock::Clock;
use muster_server::app::App;
use muster_server::http::agent::tls::AgentTls;
use muster_server::http::limits::Rates;
use muster_server::http::listener::files::{self, Shares};
use muster_server::http::listener::{self, Door};
use muster_server::keys::{Create, Keys, MasterKey};
use muster_server::outbound::policy::Policy;
use muster_server::outbound::{DEADLINE, Names, Outbound};
use muster_server::streams::Streams;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::migrate::{CONNECTIONS, Database};

/// Options of a replica.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub database: Database,
    #[command(flatten)]
    pub serve: Serve,
}

/// The listeners of a replica, and the place of the blobs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Serve {
    /// Address of API and console. A listener passed by the service manager (LISTEN_FDS) takes
    /// precedence.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Address of the agents' listener: TLS, with certificates of this installation's own
    /// authority.
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub agent_listen: SocketAddr,
    /// Directory of the blobs, shared by all replicas.
    #[arg(long, default_value = "/var/lib/muster")]
    pub data_dir: PathBuf,
    /// File for the seals of the history, one line each. Choose a file outside the control of the
    /// database's administrators. Default: `audit-anchors` in
    /// the data directory.
    #[arg(long, env = "MUSTER_AUDIT_ANCHORS")]
    pub audit_anchors: Option<PathBuf>,
    /// Network allowed for webhook receivers and for the servers of monitors, such as 10.20.0.0/16,
    /// also by plain http. Without this option only public addresses are reached, by https.
    /// Repeatable.
    #[arg(
        long,
        env = "MUSTER_WEBHOOK_ALLOW",
        value_delimiter = ',',
        value_name = "NETWORK"
    )]
    pub webhook_allow: Vec<IpNet>,
    /// Certificates (PEM) of additional authorities trusted for webhook receivers and for the servers of
    /// monitors.
    #[arg(long, env = "MUSTER_WEBHOOK_CA", value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
    #[command(flatten)]
    pub public: super::public::PublicArgs,
    #[command(flatten)]
    pub oidc: super::oidc::OidcArgs,
    #[command(flatten)]
    pub retention: super::retention::RetentionArgs,
    /// Master key: 32 random bytes (`head -c 32 /dev/urandom`), mode 0600, the same on all
    /// replicas. Without the key no secret can be read.
    #[arg(
        long,
        env = "MUSTER_KEY_FILE",
        default_value = "/etc/muster/master.key"
    )]
    pub key_file: PathBuf,
    /// The master key before, during a rotation (`muster admin rotate-master`). Both keys open
    /// secrets; the database says which one seals.
    #[arg(long, env = "MUSTER_FORMER_KEY_FILE", value_name = "FILE")]
    pub former_key_file: Option<PathBuf>,
    /// Lifetime of an agent's certificate in hours. Agents renew at half of the lifetime.
    #[arg(long, env = "MUSTER_AGENT_CERTIFICATE_HOURS", default_value_t = 168, value_parser = clap::value_parser!(u32).range(1..=8760))]
    pub agent_certificate_hours: u32,
}

/// Runs until cancelled.
///
/// # Errors
/// When the replica cannot start. The message names the remedy.
pub(crate) async fn run(args: ServerArgs, cancel: CancellationToken) -> anyhow::Result<()> {
    args.serve.public.check_early(args.serve.listen)?;
    let servers = args.database.servers()?;
    let pool = servers.connect(CONNECTIONS).await?;
    let app = build(&args.serve, pool.clone(), Create::Never).await?;
    let follow = async {
        servers.follow(pool, cancel.clone()).await;
        anyhow::Ok(())
    };
    tokio::try_join!(follow, serve(app, &args.serve, cancel.clone()))?;
    Ok(())
}

/// State shared by a replica's requests and tasks.
///
/// # Errors
/// When the schema is older than this version, or the key file is missing or wrong.
pub(crate) async fn build(args: &Serve, pool: PgPool, create_key: Create) -> anyhow::Result<App> {
    let migrated = muster_server::schema::migrate(&pool)
        .await
        .map_err(|error| anyhow::anyhow!("{}: {error}", muster_server::schema::explain(&error)))?;
    if migrated.newer > 0 {
        tracing::warn!(
            migrations = migrated.newer,
            "the schema is newer than this version: upgrade this replica as well"
        );
    }
    let blobs = args.data_dir.join("blobs");
    tokio::fs::create_dir_all(blobs.join("sha256"))
        .await
        .with_context(|| format!("create {}", blobs.display()))?;
    let clock = Clock::following(Clock::System);
    let former = args.former_key_file.as_deref();
    let master = MasterKey::load_both(&args.key_file, former, create_key)?;
    let mut keys = Keys::load(master, &pool, &clock).await?;
    keys.authorities = keys.authorities.lasting(SignedDuration::from_hours(
        args.agent_certificate_hours.into(),
    ));
    let app = App {
        pool,
        clock,
        keys: Arc::new(keys),
        outbound: Arc::new(outbound(args)?),
        anchors: Arc::new(
            args.audit_anchors
                .clone()
                .unwrap_or_else(|| args.data_dir.join("audit-anchors")),
        ),
        retention: args.retention.read(),
        oidc: args.oidc.provider()?.map(Arc::new),
        blobs: Arc::new(blobs),
        wake_engine: Arc::new(Notify::new()),
        wake_agents: Arc::new(Notify::new()),
        wake_sites: Arc::new(Notify::new()),
        streams: Streams::within(Shares::of(files::raise_limit()).public.share.most),
        wake_readers: Arc::new(watch::channel(0).0),
    };
    // Checked before the first decision.
    muster_server::tasks::clock::follow(&app)
        .await
        .context("ask the database for the time")?;
    muster_server::auth::seals::adopt::adopt_once(&app)
        .await
        .context("seal the rows of the version before")?;
    Ok(app)
}

/// Client for webhook receivers and for the servers of monitors.
fn outbound(args: &Serve) -> anyhow::Result<Outbound> {
    let outbound = Outbound::new(
        Policy {
            allowed: args.webhook_allow.clone(),
        },
        Names::System,
        DEADLINE,
    );
    let Some(path) = &args.webhook_ca else {
        return Ok(outbound);
    };
    let pem = std::fs::read(path).with_context(|| format!("--webhook-ca {}", path.display()))?;
    outbound
        .trusting(&pem)
        .with_context(|| format!("--webhook-ca {}", path.display()))
}

/// Serves both listeners and runs the engine and the tasks, until cancelled.
///
/// # Errors
/// When a listener cannot be opened.
pub(crate) async fn serve(app: App, args: &Serve, cancel: CancellationToken) -> anyhow::Result<()> {
    let shares = shares();
    let certificate = args.public.certificate()?;
    let public = match take_passed()? {
        Some(passed) => passed,
        None => listen(args.listen, "--listen").await?,
    };
    args.public.check(public.local_addr()?)?;
    let agents = listen(args.agent_listen, "--agent-listen").await?;
    tracing::info!(listen = %public.local_addr()?, agent_listen = %agents.local_addr()?, "serving");
    // Before the first reconcile pass, because the database may be an older copy.
    muster_server::tasks::marks::compare(&app).await?;
    let agent_tls = AgentTls::open(Arc::clone(&app.keys));
    let agent_tls = agent_tls.context("certify this server for its agents")?;
    let mut tasks = JoinSet::new();
    let door = match certificate {
        Some(certificate) => {
            let door = Door::People(certificate.acceptor()?);
            tasks.spawn(certificate.follow(cancel.clone()));
            door
        }
        None => Door::Plain,
    };
    let front = args.public.front();
    tasks.spawn(listener::serve_behind(
        public,
        door,
        muster_server::router::behind(app.clone(), Rates::default(), front.clone()),
        shares.public,
        front,
        cancel.clone(),
    ));
    tasks.spawn(listener::serve(
        agents,
        Door::Agents(agent_tls),
        muster_server::http::agent::router(app.clone()),
        shares.agents,
        cancel.clone(),
    ));
    tasks.spawn(muster_server::engine::run(app.clone(), cancel.clone()));
    tasks.spawn(muster_server::tasks::run(app, cancel.clone()));
    cancel.cancelled().await;
    // Long polls end with their connections, and no data is lost.
    let ended = async { while tasks.join_next().await.is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(5), ended)
        .await
        .ok();
    Ok(())
}

/// Limits of each listener, derived from the open-file limit of this process.
fn shares() -> Shares {
    let open_files = files::raise_limit();
    let shares = Shares::of(open_files);
    let (public, agents) = (shares.public.share, shares.agents.share);
    tracing::info!(
        open_files,
        public = public.most,
        public_of_a_source = public.of_a_source,
        agents = agents.most,
        agents_of_a_source = agents.of_a_source,
        "connections at once"
    );
    shares
}

/// Takes the listener passed by the service manager, if any.
fn take_passed() -> anyhow::Result<Option<TcpListener>> {
    let take = || -> std::io::Result<Option<TcpListener>> {
        let Some(passed) = listenfd::ListenFd::from_env().take_tcp_listener(0)? else {
            return Ok(None);
        };
        passed.set_nonblocking(true)?;
        TcpListener::from_std(passed).map(Some)
    };
    take().context(
        "take the listener passed by the service manager (LISTEN_FDS); pass a listening TCP \
         socket, or unset LISTEN_FDS and choose the address with --listen",
    )
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}; choose another address with {flag}"))
}

//! `muster dev`: server, agent and a private Postgres in one process, for a laptop, a lab and the
//! demo. The parts are the real parts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use jiff::SignedDuration;
use muster_core::values::Secret;
use muster_server::app::App;
use muster_server::db;
use muster_server::keys::{Create, MasterKey};
use tokio_util::sync::CancellationToken;

use super::agent::{Loaders, options};
use super::host::Host;
use super::migrate::Database;
use super::postgres::Postgres;
use super::server::{Serve, build, serve};
use super::{bootstrap, migrate};

/// Interval for enrolling the agent.
const ENROLS_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// Options of the all-in-one process.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    pub serve: Serve,
    #[command(flatten)]
    pub loaders: Loaders,
    /// Site of the agent. The agent starts after the site is declared; without this option no agent
    /// runs.
    #[arg(long)]
    pub site: Option<String>,
    /// Start only the private Postgres, for separately started programs.
    #[arg(long)]
    pub postgres_only: bool,
}

/// Runs until cancelled. The first run writes `token` (an API token) and `password` (of the user
/// admin) into the data directory, mode 0600.
///
/// # Errors
/// When a part cannot start.
pub(crate) async fn run(args: DevArgs, cancel: CancellationToken) -> anyhow::Result<()> {
    if !args.postgres_only {
        args.serve.public.check_early(args.serve.listen)?;
    }
    let dir = std::path::absolute(&args.serve.data_dir)?;
    make_private(&dir, nix::unistd::Uid::effective().is_root())
        .with_context(|| format!("create {}", dir.display()))?;
    let mut postgres = Postgres::start(&dir.join("postgres")).await?;
    let url = postgres.url();
    let ran = tokio::select! {
        ran = run_on(&url, args, &dir, cancel.clone()) => ran,
        ended = postgres.ended() => Err(anyhow::anyhow!("postgres ended: {ended:?}")),
    };
    postgres.stop().await;
    ran
}

/// Creates the data directory, closed for other users. As root, Postgres runs as another user and
/// must pass through, so other users may enter and not list. An existing directory without the
/// files of an earlier run keeps its mode, because the directory may have other uses.
fn make_private(dir: &Path, is_root: bool) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_ours = !dir.exists() || dir.join("password").exists();
    std::fs::create_dir_all(dir)?;
    if !is_ours {
        return Ok(());
    }
    let mode = if is_root { 0o711 } else { 0o700 };
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode))
}

/// Prints an address. The program goes on without a reader.
fn announce(text: &str) {
    print_line!("{text}");
}

async fn run_on(
    url: &str,
    args: DevArgs,
    dir: &Path,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let database = Database {
        database_url: url.to_owned(),
    };
    let pool = database.connect().await?;
    muster_server::schema::migrate(&pool)
        .await
        .map_err(|error| anyhow::anyhow!("{}: {error}", muster_server::schema::explain(&error)))?;
    if !dir.join("password").exists() {
        let password = hex_of::<9>();
        let master = MasterKey::load(&dir.join("master.key"), Create::WhenMissing)?;
        let host = Host::open(pool.clone(), master).await?;
        bootstrap::password(&host, "admin", Secret::new(password.clone())).await?;
        write_secret(&dir.join("password"), &password)?;
        let token = bootstrap::token(&host, &format!("dev-{}", hex_of::<4>())).await?;
        write_secret(&dir.join("token"), token.reveal())?;
    }
    if args.postgres_only {
        announce(url);
        cancel.cancelled().await;
        return Ok(());
    }
    announce(&format!(
        "{}://{} (user admin, password in {})",
        args.serve.public.scheme(),
        args.serve.listen,
        dir.join("password").display()
    ));
    let serving = Serve {
        key_file: dir.join("master.key"),
        ..args.serve.clone()
    };
    let app = build(
        &serving,
        migrate::Database::connect(&database).await?,
        Create::WhenMissing,
    )
    .await?;
    let agent = agent(app.clone(), args, dir.to_path_buf(), cancel.clone());
    tokio::try_join!(serve(app, &serving, cancel), agent)?;
    Ok(())
}

/// Starts the agent after the site is declared.
async fn agent(
    app: App,
    args: DevArgs,
    dir: PathBuf,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let Some(site) = args.site else { return Ok(()) };
    let token = loop {
        if let Some(token) = enrol(&app, &site).await? {
            break token;
        }
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    let server = format!("https://{}", args.serve.agent_listen);
    let options = options(&server, Some(token), dir.join("agent"), &args.loaders);
    Ok(muster_agent::work::run(options, cancel).await?)
}

/// Enrols this process as the site's agent. Returns `None` before the site is declared.
async fn enrol(app: &App, site: &str) -> anyhow::Result<Option<Secret>> {
    let mut tx = app.pool.begin().await?;
    let Some(site) = db::agents::find_site(&mut tx, site).await? else {
        return Ok(None);
    };
    db::agents::delete_dev(&mut tx, site).await?;
    let authority = app.keys.open_authorities(&mut tx).await?.current;
    let minted = muster_server::auth::tokens::mint_agent(authority.digest());
    let (now, name) = (app.clock.now(), format!("dev-{}", hex_of::<4>()));
    db::enrolments::insert(&mut tx, site, &name, &minted.hash, now, now + ENROLS_WITHIN).await?;
    tx.commit().await?;
    Ok(Some(minted.secret))
}

fn hex_of<const N: usize>() -> String {
    let bytes: [u8; N] = std::array::from_fn(|_| rand::random());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_secret(path: &Path, secret: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(secret.as_bytes()))
        .with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_data_directory_is_closed_and_another_directory_is_left() {
        let root = tempfile::tempdir().unwrap();
        let mode_of = |dir: &Path| std::fs::metadata(dir).unwrap().permissions().mode() & 0o7777;
        let open = |dir: &Path| {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let dir = root.path().join("dev");
        make_private(&dir, false).unwrap();
        assert_eq!(mode_of(&dir), 0o700);

        // Another directory, then the directory of an earlier version.
        open(&dir);
        make_private(&dir, false).unwrap();
        assert_eq!(mode_of(&dir), 0o755);
        std::fs::write(dir.join("password"), "secret").unwrap();
        make_private(&dir, false).unwrap();
        assert_eq!(mode_of(&dir), 0o700);
        make_private(&dir, true).unwrap();
        assert_eq!(mode_of(&dir), 0o711);
    }
}

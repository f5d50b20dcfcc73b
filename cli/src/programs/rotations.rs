//! `muster admin rotate-…` and `muster admin keys`: rotations of the server's keys.

use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use muster_server::db;
use muster_server::intents::rotations::events::Act;
use muster_server::intents::rotations::{master, report, signing};
use muster_server::keys::rings::RingKey;
use muster_server::keys::{Create, MASTER, MasterKey};

use super::host::{Host, HostArgs};

/// The rotation of the master key.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RotateMasterArgs {
    #[command(flatten)]
    pub host: HostArgs,
    /// The new master key: 32 random bytes, mode 0600, the same on all servers. Default: the key of
    /// --key-file, with the key before in --former-key-file
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
    /// End the rotation: the former key becomes useless. Refused while a secret or a running server
    /// needs the former key
    #[arg(long)]
    pub finish: bool,
}

impl RotateMasterArgs {
    /// Opens the host with the new key and the key before.
    async fn open(&self) -> anyhow::Result<Host> {
        let host = &self.host;
        let Some(new) = &self.new_key_file else {
            return host.open().await;
        };
        let key = MasterKey::load(new, Create::Never).context("--new-key-file")?;
        Host::open(host.database.connect().await?, key.holding(host.load()?)).await
    }
}

/// Begins, continues or ends a rotation of the master key.
///
/// # Errors
/// When a key file or the database fails, or the act is refused.
pub(crate) async fn rotate_master(args: &RotateMasterArgs) -> anyhow::Result<()> {
    let host = args.open().await?;
    match args.finish {
        true => finish_master(&host).await,
        false => begin_master(&host).await,
    }
}

async fn begin_master(host: &Host) -> anyhow::Result<()> {
    let key = &host.keys.master;
    let mut act = host.begin().await?;
    let begun = master::begin(&mut act.tx, key, told(host, act.now)).await?;
    act.tx.commit().await?;
    if !begun {
        print_line!("the rotation to the key {} goes on", key.newest_id());
    }
    let moved = master::wrap_all(host.pool(), key, act.now).await?;
    print_line!(
        "{moved} secrets and seals are moved to the key {}",
        key.newest_id()
    );
    print_line!(
        "both keys are valid; run the command again with --finish, {} s after the begin at the earliest",
        master::SETTLES.as_secs()
    );
    Ok(())
}

async fn finish_master(host: &Host) -> anyhow::Result<()> {
    let key = &host.keys.master;
    let mut act = host.begin().await?;
    let rotation = db::key_rotations::find(&mut act.tx, MASTER).await?;
    act.tx.commit().await?;
    if rotation.is_some() {
        master::wrap_all(host.pool(), key, act.now).await?;
    }
    let mut act = host.begin().await?;
    let former = master::finish(&mut act.tx, key, told(host, act.now)).await?;
    act.tx.commit().await?;
    print_line!(
        "the key {former} is ended: start each server without --former-key-file, then destroy the file with every copy"
    );
    Ok(())
}

/// The rotation of a key in the database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    pub host: HostArgs,
    /// End the rotation: the former key becomes useless. Refused while an agent or a node needs the
    /// former key
    #[arg(long)]
    pub finish: bool,
    /// Agent or node that loses the server's access at the end, as listed by `muster admin keys`.
    /// Repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "finish")]
    pub forget: Vec<String>,
}

/// Begins or ends a rotation of the SSH user CA, of the permit key or of the authority of agents.
///
/// # Errors
/// When the database fails, or the act is refused.
pub(crate) async fn rotate_ring(args: &RotateArgs, key: RingKey) -> anyhow::Result<()> {
    let host = args.host.open().await?;
    let master = &host.keys.master;
    let mut act = host.begin().await?;
    let told = told(&host, act.now);
    if args.finish {
        let former = signing::finish(&mut act.tx, master, key, &args.forget, told).await?;
        act.tx.commit().await?;
        print_line!("the key {former} is ended");
        return Ok(());
    }
    let begun = signing::begin(&mut act.tx, master, key, told).await?;
    act.tx.commit().await?;
    print_line!(
        "{}",
        if begun {
            "a new key is valid beside the former key"
        } else {
            "a rotation is under way"
        }
    );
    print_line!(
        "`muster admin keys` lists who still needs the former key; end the key with --finish"
    );
    Ok(())
}

/// Lists the server's keys and the rotations under way.
///
/// # Errors
/// When the database fails.
pub(crate) async fn list(host: &Host) -> anyhow::Result<()> {
    let mut act = host.begin().await?;
    let keys = report::list_keys(&mut act.tx, &host.keys.master).await?;
    let rotations = report::list_rotations(&mut act.tx, act.now).await?;
    let strays = report::list_strays(&mut act.tx).await?;
    act.tx.commit().await?;
    for key in &keys {
        match key.created_at {
            Some(at) => print_line!(
                "{}: {} days old, sealed by the master key {}",
                key.name,
                act.now.duration_since(at).as_hours() / 24,
                key.sealed_by
            ),
            None => print_line!("{}: {}", key.name, key.sealed_by),
        }
    }
    for stray in &strays {
        print_line!("under another master key than the servers': {stray}");
    }
    for rotation in &rotations {
        print_line!(
            "{} is rotated from {} to {} since {:.0}",
            rotation.key,
            rotation.former,
            rotation.next,
            rotation.begun_at
        );
        for need in &rotation.needs {
            print_line!("  needs the former key: {need}");
        }
        if rotation.needs.is_empty() {
            print_line!(
                "  the former key is no longer needed: muster admin {} --finish",
                rotation.command
            );
        }
    }
    Ok(())
}

fn told(host: &Host, now: Timestamp) -> Act<'_> {
    Act {
        actor: &host.actor,
        now,
    }
}

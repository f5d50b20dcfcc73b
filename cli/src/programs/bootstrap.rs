//! Acts of an administrator on the server's host, directly on the database. Each act needs the
//! master key, and is an event with the user and the host.

use anyhow::Context as _;
use jiff::SignedDuration;
use muster_core::values::Secret;
use muster_server::access::Armed;
use muster_server::auth::break_glass::{self, LocalAdmins};
use muster_server::auth::seals::{adopt, window, write};
use muster_server::auth::{passwords, tokens};
use muster_server::db;
use muster_server::db::events::NewEvent;
use muster_server::keys::rings::RingKey;
use muster_server::keys::{self, Forget};
use serde_json::json;

use super::host::{Act, Host, HostArgs, span, whoami};
use super::rotations::{self, RotateArgs, RotateMasterArgs};
use super::{legal_holds, row_seals, unused_blobs};

/// Lifetime of a token created here.
const TOKEN_LASTS: SignedDuration = SignedDuration::from_hours(24 * 90);

/// The act.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum AdminVerb {
    /// Create an API token with every permission, valid for 90 days, and print the token
    Token {
        #[command(flatten)]
        host: HostArgs,
        /// Name of the token in events
        #[arg(long, default_value = "bootstrap")]
        name: String,
    },
    /// Protect tokens by a new key. A token changes to the new key on its next use
    RotateTokenKey {
        #[command(flatten)]
        host: HostArgs,
        /// Refuse tokens unused since the last rotation
        #[arg(long)]
        forget: bool,
    },
    /// Change the master key. Start each server with both keys first (--key-file,
    /// --former-key-file). The command moves all secrets to the new key, and continues after a
    /// crash; a second act with --finish ends the former key
    RotateMaster(RotateMasterArgs),
    /// Change the authority of SSH certificates for nodes. Nodes take the new authority with the
    /// next converge, agents with a restart; a second act with --finish ends the former authority
    RotateSshCa(RotateArgs),
    /// Change the key that signs permits. Live images trust the new key after a restart of the
    /// agents and a boot; a second act with --finish ends the former key
    RotatePermit(RotateArgs),
    /// Change the authority of agents' certificates and of the agents' listener. Running agents
    /// take the new authority and a new certificate by themselves; a second act with --finish ends
    /// the former authority
    RotateAgentCa(RotateArgs),
    /// List the server's keys: age, rotations under way, and the servers, secrets, agents and nodes
    /// that still need a former key
    Keys {
        #[command(flatten)]
        host: HostArgs,
    },
    /// Revoke the tokens stored as plain hashes by earlier versions and unused since, with every
    /// token made with them
    ForgetPlainTokens {
        #[command(flatten)]
        host: HostArgs,
    },
    /// Print tokens, people, role bindings and the number of sessions without a valid seal. With
    /// --yes, seal the rows as stored, and end the time in which such rows count. Read the printed
    /// names first: each sealed row gets its rights
    SealRows {
        #[command(flatten)]
        host: HostArgs,
        #[command(flatten)]
        rows: row_seals::SealArgs,
    },
    /// Allow the local administrator to sign in for a limited time beside an identity provider
    Arm {
        #[command(flatten)]
        host: HostArgs,
        /// Duration, such as `1h` or `30m`; at most twelve hours
        #[arg(long = "for", default_value = "1h", value_parser = span)]
        lasts: SignedDuration,
        /// Reason, recorded in the history
        #[arg(long)]
        reason: String,
    },
    /// End the local administrator's access early
    Disarm {
        #[command(flatten)]
        host: HostArgs,
    },
    /// Put a node under a legal hold: records and events of the node stay at any age, and the node
    /// cannot be deleted
    HoldRecords {
        #[command(flatten)]
        host: HostArgs,
        /// Name of the node
        #[arg(long)]
        node: String,
        /// Reason, recorded in the history
        #[arg(long)]
        reason: String,
    },
    /// End the legal hold of a node
    ReleaseRecords {
        #[command(flatten)]
        host: HostArgs,
        /// Name of the node
        #[arg(long)]
        node: String,
        /// Reason, recorded in the history
        #[arg(long)]
        reason: String,
    },
    /// List the nodes under a legal hold
    ListHolds {
        #[command(flatten)]
        host: HostArgs,
    },
    /// List the stored blobs that no image, stack, site or revision names, with the time of their
    /// removal. The command changes no file
    UnusedBlobs {
        #[command(flatten)]
        host: HostArgs,
        #[command(flatten)]
        blobs: unused_blobs::UnusedArgs,
    },
    /// Set the password of a local administrator, read from standard input
    Password {
        #[command(flatten)]
        host: HostArgs,
        /// Name of the user
        #[arg(long, default_value = "admin")]
        user: String,
    },
}

/// Executes the subcommand.
///
/// # Errors
/// When the master key cannot be read, the database is unreachable or the name is taken.
pub(crate) async fn run(verb: AdminVerb) -> anyhow::Result<()> {
    match verb {
        AdminVerb::Token { host, name } => {
            let host = host.open().await?;
            let token = token(&host, &name).await?;
            print_line!("{}", token.reveal());
            crate::printing::ensure_read("the token")?;
            warn_of_unsealed(&host).await
        }
        AdminVerb::RotateTokenKey { host, forget } => {
            let forget = if forget { Forget::Yes } else { Forget::No };
            rotate(&host.open().await?, forget).await
        }
        AdminVerb::RotateMaster(args) => rotations::rotate_master(&args).await,
        AdminVerb::RotateSshCa(args) => rotations::rotate_ring(&args, RingKey::UserCa).await,
        AdminVerb::RotatePermit(args) => rotations::rotate_ring(&args, RingKey::Permit).await,
        AdminVerb::RotateAgentCa(args) => rotations::rotate_ring(&args, RingKey::AgentCa).await,
        AdminVerb::Keys { host } => rotations::list(&host.open().await?).await,
        AdminVerb::ForgetPlainTokens { host } => forget_plain_tokens(&host.open().await?).await,
        AdminVerb::SealRows { host, rows } => row_seals::seal(&host.open().await?, rows).await,
        AdminVerb::Arm {
            host,
            lasts,
            reason,
        } => arm(&host.open().await?, lasts, reason.trim()).await,
        AdminVerb::Disarm { host } => disarm(&host.open().await?).await,
        AdminVerb::HoldRecords { host, node, reason } => {
            legal_holds::hold(&host.open().await?, &node, reason.trim()).await
        }
        AdminVerb::ReleaseRecords { host, node, reason } => {
            legal_holds::release(&host.open().await?, &node, reason.trim()).await
        }
        AdminVerb::ListHolds { host } => legal_holds::list(&host.open().await?).await,
        AdminVerb::UnusedBlobs { host, blobs } => {
            unused_blobs::list(&host.open().await?, &blobs).await
        }
        AdminVerb::Password { host, user } => {
            let host = host.open().await?;
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .context("read the password")?;
            anyhow::ensure!(
                line.trim().len() >= 12,
                "a password has at least 12 characters"
            );
            password(&host, &user, Secret::new(line.trim())).await?;
            print_line!("{user} can sign in");
            Ok(())
        }
    }
}

/// Disarms the local administrator, by the database's clock.
async fn disarm(host: &Host) -> anyhow::Result<()> {
    let Act { mut tx, now } = host.begin().await?;
    let was = break_glass::disarm(&mut tx, &whoami()?, now).await?;
    tx.commit().await?;
    print_line!(
        "{}",
        if was {
            "the local administrator is disarmed"
        } else {
            "it was not armed"
        }
    );
    Ok(())
}

/// Arms the local administrator, by the database's clock.
async fn arm(host: &Host, lasts: SignedDuration, reason: &str) -> anyhow::Result<()> {
    let fits = (1..=break_glass::REASON).contains(&reason.len());
    anyhow::ensure!(fits, "say why, in at most {} bytes", break_glass::REASON);
    anyhow::ensure!(
        lasts.is_positive() && lasts <= break_glass::LONGEST,
        "for at most {:#}",
        break_glass::LONGEST
    );
    let Act { mut tx, now } = host.begin().await?;
    let armed = Armed {
        armed_at: now,
        until: now + lasts,
        by: whoami()?,
        reason: reason.to_owned(),
    };
    break_glass::arm(&mut tx, &host.keys.master, &armed).await?;
    let admins = break_glass::count_admins(&mut tx, &host.keys.master, now).await?;
    tx.commit().await?;
    let until = armed.until;
    match admins {
        LocalAdmins {
            ready: 0,
            refused: 0,
        } => print_line!(
            "armed until {until:.0}, but no enabled local administrator has a password: `muster admin password` makes one"
        ),
        // The arming stays: the sealed person may sign in without another one.
        LocalAdmins { ready: 0, refused } => anyhow::bail!(
            "armed until {until:.0}, but no login counts: {refused} local administrators have no valid seal. Run `muster doctor --only seals`, then `muster admin seal-rows`"
        ),
        LocalAdmins { .. } => print_line!("the local administrator may sign in until {until:.0}"),
    }
    Ok(())
}

/// Warns of refused rows, such as after a restore of a backup from before the seals.
async fn warn_of_unsealed(host: &Host) -> anyhow::Result<()> {
    let Act { mut tx, now } = host.begin().await?;
    let master = &host.keys.master;
    let is_open = window::find_end(&mut tx, master)
        .await?
        .is_some_and(|end| end > now);
    let unsealed = adopt::find_unsealed(&mut tx, master, now).await?;
    if !is_open && !unsealed.is_empty() {
        eprintln!(
            "muster: {} have no valid seal, and are refused: run `muster doctor --only seals`, then `muster admin seal-rows`",
            unsealed.describe()
        );
    }
    Ok(())
}

/// Switches to a new key for tokens.
async fn rotate(host: &Host, forget: Forget) -> anyhow::Result<()> {
    let Act { mut tx, now } = host.begin().await?;
    let forgotten = keys::rotate(&host.keys.master, &mut tx, forget, now).await?;
    let summary = format!(
        "the token key is changed; {forgotten} tokens unused since the last rotation are refused"
    );
    let event = NewEvent::new(now, &*host.actor, "token.key_rotated", summary.clone());
    db::events::insert(&mut tx, event).await?;
    tx.commit().await?;
    print_line!("{summary}");
    Ok(())
}

/// Revokes every token stored as a plain hash.
async fn forget_plain_tokens(host: &Host) -> anyhow::Result<()> {
    let Act { mut tx, now } = host.begin().await?;
    let mut names = Vec::new();
    loop {
        let plain = db::unarmed::list_plain(&mut tx, now).await?;
        if plain.is_empty() {
            break;
        }
        for token in plain {
            for ended in db::tokens::revoke(&mut tx, token.id, now).await? {
                let summary = format!(
                    "token {} revoked together with the plain hash of token {}",
                    ended.name, token.name
                );
                let event = NewEvent::new(now, &*host.actor, "token.revoked", summary)
                    .with(json!({ "token": ended.id }));
                db::events::insert(&mut tx, event).await?;
                names.push(ended.name);
            }
        }
    }
    tx.commit().await?;
    match names.is_empty() {
        true => print_line!("no valid token is stored as a plain hash"),
        false => print_line!("revoked: {}", names.join(", ")),
    }
    Ok(())
}

/// Creates a token with every permission.
///
/// # Errors
/// When the database is unreachable or the name is taken.
pub(crate) async fn token(host: &Host, name: &str) -> anyhow::Result<Secret> {
    let minted = tokens::mint(Some(&host.keys.tokens));
    let Act { mut tx, now } = host.begin().await?;
    let token = db::tokens::NewToken {
        id: minted.id,
        name: name.to_owned(),
        mac: minted.mac,
        role: "admin",
        created_at: now,
        expires_at: now + TOKEN_LASTS,
    };
    db::tokens::insert(&mut tx, &token).await?;
    write::seal_token(&mut tx, &host.keys.master, token.id).await?;
    let summary = format!("token {name} created with the role admin, on the host");
    let event = NewEvent::new(now, &*host.actor, "token.created", summary);
    db::events::insert(&mut tx, event.with(json!({ "token": token.id }))).await?;
    tx.commit().await?;
    Ok(minted.secret)
}

/// Creates a local administrator, or changes the password of an existing one, which ends all
/// sessions.
///
/// # Errors
/// When the database is unreachable, or the row of the person has no valid seal.
pub(crate) async fn password(host: &Host, user: &str, password: Secret) -> anyhow::Result<()> {
    let hash = passwords::hash(password).await?;
    let Act { mut tx, now } = host.begin().await?;
    let master = &host.keys.master;
    let (id, summary) = match db::users::find(&mut tx, user).await? {
        Some(known) => {
            // Another role or group, written by hand, would become valid with the new seal.
            anyhow::ensure!(
                write::is_sealed(&mut tx, master, known.id).await?,
                "the row of {user} has no valid seal: `muster doctor --only seals` lists such rows, and `muster admin seal-rows` seals such rows as they are"
            );
            db::users::set_password(&mut tx, known.id, &hash).await?;
            db::sign_ins::end_delays(&mut tx, &known.id.to_string()).await?;
            (
                known.id,
                format!("a new password of {user} was set on the host"),
            )
        }
        None => {
            let id = db::users::insert(&mut tx, user, &hash, "admin", now).await?;
            (
                id,
                format!("the local administrator {user} was created on the host"),
            )
        }
    };
    write::seal_user(&mut tx, master, id).await?;
    let event = NewEvent::new(now, &*host.actor, "user.password_set", summary);
    db::events::insert(&mut tx, event.with(json!({ "user": user }))).await?;
    Ok(tx.commit().await?)
}

//! The stack of a pool, resolved for one node: typed values and secrets are filled in, and the
//! bundle's address is known.

use anyhow::{Context, Error, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_core::stacks::language;
use muster_core::stacks::{ConvergePlan, FileItem, Part, PlannedFile};
use muster_core::wire::PROTOCOL;
use muster_core::wire::job::JobSpec;
use muster_core::wire::node::Marker;
use sqlx::PgConnection;

use super::bmc::secret_place;
use super::logins::{self, principal};
use super::sources::{Sources, boot_url};
use crate::db;
use crate::engine::compatibility::{self, Onto};

pub(super) async fn order_converge(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    allow(conn, s, Onto::System).await?;
    Ok(JobSpec::Converge {
        login: logins::installed(conn, s).await?,
        plan: plan(conn, s).await?,
    })
}

/// Builds the order for a dry run: compares the node with the stack, without changes.
pub(super) async fn order_drift(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<JobSpec> {
    let plan = ConvergePlan {
        dry_run: true,
        ..plan(conn, s).await?
    };
    Ok(JobSpec::Converge {
        login: logins::installed(conn, s).await?,
        plan,
    })
}

/// Rejects a stack incompatible with the node. Rules may be newer than the stack, and the hardware
/// is known only now.
pub(super) async fn allow(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    onto: Onto,
) -> anyhow::Result<()> {
    s.node.need_stack().map_err(Error::msg)?;
    match compatibility::refusal(conn, &s.node, onto).await? {
        None => Ok(()),
        Some(why) => bail!(why),
    }
}

/// Builds the converge plan of a node.
pub(super) async fn plan(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<ConvergePlan> {
    let stack = s.node.need_stack().map_err(Error::msg)?;
    let seen = match stack.when.is_empty() {
        true => None,
        false => db::facts::latest(conn, s.node.id).await?,
    };
    let stack = stack
        .for_node(seen.as_ref().map(|seen| &seen.facts))
        .map_err(Error::msg)?;
    let lock = stack
        .lock
        .as_ref()
        .context("the stack has no lock; make one with `muster stack lock`")?;
    let bundle = stack
        .bundle
        .context("the stack has no bundle; make one with `muster stack lock`")?;
    let image = s.node.need_image().map_err(Error::msg)?;
    if lock.image_digest != image.digest {
        bail!("the stack was locked against another image than the pool's; lock it again");
    }
    let mut files = Vec::with_capacity(stack.files.len());
    for item in &stack.all_files() {
        files.push(render_file(conn, s, item).await?);
    }
    Ok(ConvergePlan {
        lock: lock.digest(),
        repository: boot_url(s, &format!("bundle/{}", bundle.hex())),
        packages: lock.packages.clone(),
        absent: stack.absent.clone(),
        files,
        sysctl: stack.sysctl.clone(),
        modules_load: stack.modules_load.clone(),
        modules_blacklist: stack.modules_blacklist.clone(),
        kernel_args: stack.kernel_args.clone(),
        limits: stack.limits.clone(),
        services: stack.services.clone(),
        cdi: stack.needs_cdi_specification(),
        principal: principal(s),
        user_ca: s.keys.open_user_cas(conn).await?.lines()?,
        marker: Marker {
            protocol: PROTOCOL,
            node: s.node.id,
            claim: s.node.claim.context("the node is not claimed")?,
            epoch: s.node.epoch,
            image: image.digest,
        },
        dry_run: false,
    })
}

/// Returns the plan for gates: installed packages and settings, without the contents of files.
pub(super) fn without_contents(plan: ConvergePlan) -> ConvergePlan {
    ConvergePlan {
        files: Vec::new(),
        ..plan
    }
}

async fn render_file(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    item: &FileItem,
) -> anyhow::Result<PlannedFile> {
    let mut content = Vec::new();
    let mut secret = false;
    for part in &item.content {
        match part {
            Part::Text(text) => content.extend_from_slice(text.as_bytes()),
            Part::Value(name) => {
                content.extend_from_slice(find_value(conn, s, name).await?.as_bytes())
            }
            Part::Secret(name) => {
                secret = true;
                content.extend(reveal(conn, s, name).await?);
            }
        }
    }
    Ok(PlannedFile {
        path: item.path.clone(),
        mode: item.mode.clone(),
        owner: item.owner.clone(),
        group: item.group.clone(),
        content: STANDARD.encode(content),
        secret,
    })
}

/// Characters allowed besides letters and digits: enough for `10.0.0.5:/export` and
/// `10.0.0.5@o2ib:/fs`.
const LABEL_MARKS: &str = "._:/@,=+-[]";

/// Returns whether a label is one harmless word. A person with the right to label a node may have
/// no right to write the stack. In a unit, a script or a table, a space, a quote, `;`, `%` or `$`
/// could inject more than the author's intended word. A leading dash could inject an option.
fn is_one_word(label: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || LABEL_MARKS.contains(c);
    !label.starts_with('-') && label.chars().all(plain)
}

/// Returns a value of the node. A missing value is an error, because an empty word in a
/// configuration file has another meaning.
async fn find_value(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    name: &str,
) -> anyhow::Result<String> {
    let text = match name {
        "node_id" => s.node.id.to_string(),
        "rack" => s.node.rack.clone().with_context(|| {
            format!(
                "{} is in no rack, which a file of the stack names",
                s.node.name
            )
        })?,
        rail if rail.starts_with("rail:") => {
            let seen = db::facts::latest(conn, s.node.id)
                .await?
                .context("the node was never inspected")?;
            let number = rail
                .strip_prefix("rail:")
                .and_then(|number| number.parse().ok());
            let number =
                number.with_context(|| format!("{rail:?} is not a value that a file may name"))?;
            let found = language::rail(&seen.facts, number).map_err(|why| {
                anyhow!(
                    "{why}, or name the card of {} by a label: a file of the stack names {rail}",
                    s.node.name
                )
            })?;
            let card = found.with_context(|| {
                format!(
                    "{} has no {rail}, which a file of the stack names",
                    s.node.name
                )
            })?;
            card.name.clone()
        }
        "hostname" => s.node.name.clone(),
        "address" => s.wiring.address.to_string(),
        "agent_address" => s.agent_address.to_string(),
        "cluster_address" => {
            let cluster = s.node.cluster.as_ref();
            cluster
                .context("the pool names no cluster")?
                .address()
                .to_owned()
        }
        other => match other
            .strip_prefix("label:")
            .map(|label| &s.node.labels[label])
        {
            Some(serde_json::Value::String(text)) if is_one_word(text) => text.clone(),
            Some(serde_json::Value::String(_)) => bail!(
                "{other} of {} is not one word of letters, digits and {LABEL_MARKS}, and a file of the stack names it: change the label",
                s.node.name
            ),
            Some(_) => bail!(
                "{} has no label for {other}, which a file of the stack names",
                s.node.name
            ),
            None => bail!("{other:?} is not a value that a file may name"),
        },
    };
    match text.is_empty() || text.chars().any(char::is_control) {
        true => bail!(
            "{name} of {} is empty or no line, and a file of the stack names it",
            s.node.name
        ),
        false => Ok(text),
    }
}

async fn reveal(conn: &mut PgConnection, s: &Sources<'_>, name: &str) -> anyhow::Result<Vec<u8>> {
    let missing =
        || anyhow!("the stack names the credential {name}, which does not exist or has no secret");
    let credential = db::specs::find_credential(conn, name)
        .await?
        .ok_or_else(missing)?;
    let sealed = db::keys::find_secret(conn, credential)
        .await?
        .ok_or_else(missing)?;
    let secret = s.keys.master.open(&secret_place(credential), &sealed)?;
    match secret.strip_prefix(b"base64:") {
        Some(encoded) => STANDARD
            .decode(encoded.trim_ascii())
            .with_context(|| format!("the credential {name}")),
        None => Ok(secret),
    }
}

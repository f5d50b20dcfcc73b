//! Registration, change and removal of nodes. A write resolves the spec, checks the actor's
//! permissions, and writes the rows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::StatusCode;
use jiff::Timestamp;
use muster_api::nodes::NodeSpec;
use muster_api::object::Draft;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::Action;
use muster_core::remains::Identifiers;
use muster_core::values::{InvalidValue, Mac, Name};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::macs::MacRow;
use crate::db::nodes::{Content, LockedNode, Power};
use crate::document::{self, Document};
use crate::engine::{remains, strangers};
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::nodes::requests::{self, ActionRequest};
use crate::intents::nodes::resolve::{self, REFERENCES};
use crate::intents::nodes::view;
use crate::intents::nodes::{blockers, budgets};
use crate::intents::nodes::{networks, pins};
use crate::intents::preconditions::Preconditions;
use crate::intents::references::Referrer;
use crate::intents::writing;

/// Locks the node with this name or id.
pub(crate) async fn find(conn: &mut PgConnection, key: &str) -> Result<LockedNode, Error> {
    db::nodes::find_for_update(conn, key)
        .await?
        .ok_or_else(|| Error::NotFound(format!("node {key:?}")))
}

fn allow_unregistering(node: &LockedNode) -> Result<(), Error> {
    if node.protected {
        return Err(Error::conflict(
            "protected",
            format!("{} is protected; clear that first.", node.name),
        ));
    }
    if node.claimed {
        return Err(Error::conflict(
            "node_claimed",
            format!("{} is claimed; delete its claim first.", node.name),
        ));
    }
    match node.state.is_resting() {
        true => Ok(()),
        false => {
            let detail = format!("{} is {}; wait until that is over.", node.name, node.state);
            Err(Error::conflict("node_busy", detail))
        }
    }
}

/// Allows the deletion of a node with data on the disks only to callers with `node.retire`, because
/// pipelines have `node.write` too.
async fn allow_forgetting(
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
) -> Result<(), Error> {
    let sanitation = db::remains::find_sanitation(conn, node.id).await?;
    if !sanitation.unsanitised {
        return Ok(());
    }
    let key = node.id.to_string();
    let named = Named {
        kind: "node",
        key: &key,
    };
    match actor.need(conn, "node.retire", named).await {
        Err(Error::Forbidden(_)) => {
            let name = &node.name;
            let because = sanitation
                .reason
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            Err(Error::Forbidden(format!(
                "The disks of {name} may hold data{because}. Wipe the node first: `muster node wipe {name}`. \
                 A caller with `node.retire` may delete the node as it is."
            )))
        }
        other => other,
    }
}

/// The result of a write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub name: String,
    pub change: Change,
}

/// The effect of a write on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The node already matches the request.
    None,
    Replaced,
    Registered,
}

/// Answers a write with the node.
async fn answer(
    conn: &mut PgConnection,
    written: &Written,
    now: Timestamp,
) -> Result<Answer, Error> {
    let object = view::load_one(conn, &written.name, now).await?;
    let answer = Answer::ok(&object)?.etag(object.generation);
    Ok(match written.change {
        Change::None => answer,
        Change::Replaced => answer.location(object.link),
        Change::Registered => answer.status(StatusCode::CREATED).location(object.link),
    })
}

/// Registers or replaces a node inside the caller's transaction. The caller has locked `current`. A
/// new node is registered under the name `key`.
///
/// # Errors
/// The errors of the route `put_node`.
pub(crate) async fn write(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    key: &str,
    current: Option<LockedNode>,
    document: Document<Draft<NodeSpec>>,
) -> Result<Written, Error> {
    if let Some(node) = &current {
        allow_write(conn, actor, node).await?;
    }
    let (draft, mut raw) = document.into_parts();
    let spec = raw.get_mut("spec").map(Value::take).unwrap_or_default();
    if let Some(node) = current.as_ref().filter(|node| is_same(node, &draft, &spec)) {
        return Ok(Written {
            name: node.name.clone(),
            change: Change::None,
        });
    }
    let former = current.as_ref().map(|node| &node.spec);
    let referrer = Referrer::new(actor, "node.write", REFERENCES, former);
    let (mut content, macs) = resolve::resolve(conn, &referrer, draft, spec, former).await?;
    networks::allow_addresses(conn, former, &content.spec).await?;
    content.certificate = pins::find_accepted(former, &content.spec).map(|own| own.to_string());
    let mut before = Identifiers::default();
    if let Some(node) = &current {
        allow_replacing(conn, actor, node, &content, &macs).await?;
        before = remains::collect_declared(conn, node.id).await?;
    }
    let now = app.clock.now();
    yield_macs(conn, actor, key, current.as_ref(), &macs, now).await?;
    let (id, name) = persist(conn, key, current.as_ref(), &content, &macs, now).await?;
    allow_result(conn, actor, id, current.as_ref(), &content).await?;
    let (change, kind, verb) = match current {
        None => (Change::Registered, "node.registered", "registered"),
        Some(_) => (Change::Replaced, "node.changed", "changed"),
    };
    record(conn, app, actor, kind, id, &name, verb).await?;
    if let Some(former) = former {
        pins::record_changes(conn, app, actor, id, former, &content).await?;
    }
    remains::keep_former(conn, id, &before, now).await?;
    remains::merge(conn, id, actor.author(), now).await?;
    let accept = content.spec.get("accept");
    if change == Change::Registered && accept.is_none_or(|accept| accept == true) {
        request_accept(conn, app, actor, &name).await?;
    }
    Ok(Written { name, change })
}

/// Checks that the actor may write the stored node. The route has checked the same without a lock.
async fn allow_write(
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
) -> Result<(), Error> {
    let (kind, key) = ("node", node.name.as_str());
    actor.need(conn, "node.write", Named { kind, key }).await
}

/// Whether spec, labels and annotations already equal the stored ones.
fn is_same(node: &LockedNode, draft: &Draft<NodeSpec>, spec: &Value) -> bool {
    node.spec == *spec && node.labels.0 == draft.labels && node.annotations.0 == draft.annotations
}

/// Checks the change of a node before the rows are written. Lifting the protection of a node needs
/// a separate permission, so that a bulk write cannot lift protection by mistake. Another
/// certificate of the BMC needs the permission to change the BMC's password.
async fn allow_replacing(
    conn: &mut PgConnection,
    actor: &Actor,
    node: &LockedNode,
    content: &Content,
    macs: &[MacRow],
) -> Result<(), Error> {
    allow_change(conn, node, content, macs).await?;
    if let Some(rack) = content.spec["rack"].as_str() {
        blockers::refuse(&budgets::find_blockers(conn, node, rack).await?)?;
    }
    let key = node.id.to_string();
    let named = Named {
        kind: "node",
        key: &key,
    };
    if node.protected && !content.protected {
        actor.need(conn, "node.unprotect", named).await?;
    }
    if content.certificate.is_some() {
        actor.need(conn, "node.rotate-bmc", named).await?;
    }
    Ok(())
}

/// Rejects a change of site, MACs, addresses or profile of a claimed node, because the installed
/// system depends on these.
async fn allow_change(
    conn: &mut PgConnection,
    node: &LockedNode,
    content: &Content,
    macs: &[MacRow],
) -> Result<(), Error> {
    if !node.claimed || keeps_place(conn, node, content, macs).await? {
        return Ok(());
    }
    let detail = format!(
        "{} is claimed: its site, MACs, addresses and profile stay until it is released.",
        node.name
    );
    Err(Error::conflict("node_claimed", detail))
}

/// Whether site, MACs, addresses and profile stay. Where the stored spec is unreadable, the node's
/// own rows are compared.
async fn keeps_place(
    conn: &mut PgConnection,
    node: &LockedNode,
    content: &Content,
    macs: &[MacRow],
) -> Result<bool, Error> {
    let fixed = |spec: &Value| {
        let spec: NodeSpec = document::stored_spec(spec).ok()?;
        Some((spec.site, spec.macs, spec.profile))
    };
    if let Some(was) = fixed(&node.spec) {
        return Ok(fixed(&content.spec) == Some(was));
    }
    let had = db::macs::list(conn, &[node.id]).await?;
    let had: BTreeMap<Mac, Option<IpAddr>> =
        had.into_iter().map(|row| (row.mac, row.address)).collect();
    let leased = |row: &MacRow| (row.mac, row.lease.map(|(_, address)| address.into()));
    let has = macs.iter().map(leased).collect();
    Ok(node.site_id == content.site && node.profile_id == content.profile && had == has)
}

/// Takes the MACs of a declaration from machines that discovered themselves.
async fn yield_macs(
    conn: &mut PgConnection,
    actor: &Actor,
    key: &str,
    current: Option<&LockedNode>,
    macs: &[MacRow],
    now: Timestamp,
) -> Result<(), Error> {
    let macs: Vec<Mac> = macs.iter().map(|row| row.mac).collect();
    let own = current.map(|node| node.id);
    let name = current.map_or(key, |node| node.name.as_str());
    strangers::yield_macs(conn, &macs, own, actor.author(), name, now).await
}

/// Writes the rows of a node. Returns its id and name.
async fn persist(
    conn: &mut PgConnection,
    key: &str,
    current: Option<&LockedNode>,
    content: &Content,
    macs: &[MacRow],
    now: Timestamp,
) -> Result<(NodeId, String), Error> {
    let (id, name) = match current {
        Some(node) => {
            db::nodes::set_content(conn, node.id, content, now).await?;
            (node.id, node.name.clone())
        }
        None => {
            let wrong = |error: InvalidValue| Error::invalid("node", "invalid_name", error.why);
            let name: Name = key.parse().map_err(wrong)?;
            let id = NodeId::new();
            db::nodes::insert(conn, id, name.as_str(), content, now).await?;
            (id, name.to_string())
        }
    };
    db::macs::set(conn, id, macs).await?;
    Ok((id, name))
}

/// Checks the node as written. The actor needs the permission to write the node at the new place. A
/// new BMC receives a credential, so the actor also needs the permission to use credentials.
async fn allow_result(
    conn: &mut PgConnection,
    actor: &Actor,
    id: NodeId,
    before: Option<&LockedNode>,
    content: &Content,
) -> Result<(), Error> {
    let key = id.to_string();
    let named = Named {
        kind: "node",
        key: &key,
    };
    match before {
        Some(_) => actor.need_changed(conn, "node.write", named).await?,
        None => actor.need_created(conn, "node.write", named).await?,
    }
    let power = |spec: &Value| spec.get("power").cloned();
    if power(&content.spec) != before.and_then(|node| power(&node.spec))
        && !matches!(content.power, Power::Manual { .. })
    {
        actor.need_everywhere("credential.use")?;
    }
    Ok(())
}

/// Requests the acceptance of a newly registered node.
async fn request_accept(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    name: &str,
) -> Result<(), Error> {
    let node = db::nodes::find_for_update(conn, name)
        .await?
        .ok_or_else(|| Error::NotFound(name.to_owned()))?;
    let request = ActionRequest {
        action: Action::Accept,
        reason: None,
        until: None,
        suite: None,
        override_budget: None,
    };
    requests::write_action(conn, app, actor, &node, request)
        .await
        .map(drop)
}

async fn record(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    kind: &'static str,
    id: NodeId,
    name: &str,
    verb: &str,
) -> Result<(), Error> {
    let event = actor.event(app.clock.now(), kind, Some(id), format!("{name} {verb}"));
    db::events::insert(conn, event).await
}

/// Registers a node, or replaces its spec.
///
/// # Errors
/// 409, 412, 422.
pub(crate) async fn put(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
    document: Document<Draft<NodeSpec>>,
) -> Result<Answer, Error> {
    writing::write(app, actor, async |conn| {
        let current = db::nodes::find_for_update(conn, key).await?;
        preconditions.allow_write(current.as_ref().map(|node| node.generation))?;
        let written = write(app, conn, actor, key, current, document).await?;
        answer(conn, &written, app.clock.now()).await
    })
    .await
}

/// Changes parts of a node's spec.
///
/// # Errors
/// 404, 409, 412, 422.
pub(crate) async fn patch(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
    patch: &Value,
) -> Result<Answer, Error> {
    writing::write(app, actor, async |conn| {
        let current = find(conn, key).await?;
        preconditions.allow_write(Some(current.generation))?;
        let mut raw = json!({ "labels": current.labels, "annotations": current.annotations, "spec": current.spec });
        document::merge(&mut raw, patch);
        let document = Document::read(raw)?;
        let written = write(app, conn, actor, key, Some(current), document).await?;
        answer(conn, &written, app.clock.now()).await
    })
    .await
}

/// Unregisters a node. The remains of the node outlive the record.
///
/// # Errors
/// 403 when the disks may hold data and the actor must not retire nodes; 404, 409 when the node is
/// claimed or busy, 412, 428.
pub(crate) async fn unregister(
    app: &App,
    actor: &Actor,
    key: &str,
    preconditions: Preconditions,
) -> Result<(), Error> {
    writing::write(app, actor, async |conn| {
        let node = find(conn, key).await?;
        allow_write(conn, actor, &node).await?;
        preconditions.allow_removal(node.generation)?;
        allow_unregistering(&node)?;
        allow_forgetting(conn, actor, &node).await?;
        remains::keep(conn, node.id, app.clock.now()).await?;
        db::nodes::delete(conn, node.id).await?;
        record(
            conn,
            app,
            actor,
            "node.unregistered",
            node.id,
            &node.name,
            "unregistered",
        )
        .await
    })
    .await
}

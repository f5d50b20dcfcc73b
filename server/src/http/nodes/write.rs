//! Registering, changing and unregistering nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use muster_api::nodes::{NodeConsole, NodePower, NodeSpec};
use muster_api::object::Draft;
use muster_api::problem::Problem;
use muster_core::ids::NodeId;
use muster_core::lifecycle::state::{State as NodeState, Wish};
use muster_core::values::{InvalidValue, Mac, Name};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::actions::{self, Asked};
use super::{addresses, view};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::nodes::{Content, LockedNode, MacRow, Power};
use crate::db::objects::ObjectRow;
use crate::error::{Error, Fault};
use crate::http::answer::Answer;
use crate::http::declared::{fault, label_faults};
use crate::http::document::{self, Document};
use crate::http::extract::{Body, Path};
use crate::http::preconditions::Preconditions;
use crate::http::writing;

/// Longest user name of IPMI 2.0 (section 22.28).
const IPMI_USER_BYTES: usize = 16;

/// Registers a node, or replaces what is wanted of it.
#[utoipa::path(put, path = "/v1/nodes/{node}", tag = "nodes", params(("node", description = "Name, or the id of an existing node")),
    request_body = ref("#/components/schemas/NodeDraft"), responses(
    (status = 200, description = "Replaced, or as it was", body = ref("#/components/schemas/Node")),
    (status = 201, description = "Registered", body = ref("#/components/schemas/Node")),
    (status = 409, description = "A serial, MAC or address is taken, or the node is claimed", body = Problem, content_type = "application/problem+json"),
    (status = 412, description = "The precondition does not hold", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn put_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
    document: Document<Draft<NodeSpec>>,
) -> Result<Answer, Error> {
    writing::write(&app, &actor, async |conn| {
        let current = db::nodes::find_for_update(conn, &key).await?;
        preconditions.allow_write(current.as_ref().map(|node| node.generation))?;
        write(&app, conn, &actor, &key, current, document).await
    })
    .await
}

/// Applies a JSON merge patch (RFC 7396) to labels, annotations and spec.
#[utoipa::path(patch, path = "/v1/nodes/{node}", tag = "nodes", params(("node", description = "Name or id")),
    request_body(content = Value, content_type = "application/merge-patch+json"), responses(
    (status = 200, description = "Changed, or as it was", body = ref("#/components/schemas/Node")),
    (status = 412, description = "The precondition does not hold", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "It cannot be meant: pointers say where", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn patch_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
    Body(patch): Body,
) -> Result<Answer, Error> {
    writing::write(&app, &actor, async |conn| {
        let current = find(conn, &key).await?;
        preconditions.allow_write(Some(current.generation))?;
        let mut raw = json!({ "labels": current.labels, "annotations": current.annotations, "spec": current.spec });
        document::merge(&mut raw, &patch);
        let document = Document::read(raw)?;
        write(&app, conn, &actor, &key, Some(current), document).await
    })
    .await
}

/// Unregisters a node. Nothing happens to the machine.
#[utoipa::path(delete, path = "/v1/nodes/{node}", tag = "nodes", params(("node", description = "Name or id"), ("If-Match" = String, Header)), responses(
    (status = 204, description = "Unregistered"),
    (status = 409, description = "Claimed, protected, or being worked on", body = Problem, content_type = "application/problem+json"),
    (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete_node(
    State(app): State<App>,
    actor: Actor,
    Path(key): Path<String>,
    preconditions: Preconditions,
) -> Result<Response, Error> {
    writing::write(&app, &actor, async |conn| {
        let node = find(conn, &key).await?;
        preconditions.allow_removal(node.generation)?;
        allow_unregistering(&node)?;
        db::nodes::delete(conn, node.id).await?;
        record(
            conn,
            &app,
            &actor,
            "node.unregistered",
            (node.id, &node.name),
            "unregistered",
        )
        .await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn find(conn: &mut PgConnection, key: &str) -> Result<LockedNode, Error> {
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
    let state: NodeState = node.state.parse().map_err(Error::internal)?;
    match state.is_resting() {
        true => Ok(()),
        false => {
            let detail = format!("{} is {state}; wait until that is over.", node.name);
            Err(Error::conflict("node_busy", detail))
        }
    }
}

/// Creates or replaces inside the caller's transaction.
pub(in crate::http) async fn write(
    app: &App,
    conn: &mut PgConnection,
    actor: &Actor,
    key: &str,
    current: Option<LockedNode>,
    document: Document<Draft<NodeSpec>>,
) -> Result<Answer, Error> {
    let now = app.clock.now();
    let (draft, mut raw) = document.into_parts();
    let spec_as_written = raw.get_mut("spec").map(Value::take).unwrap_or_default();
    if let Some(node) = &current
        && node.spec == spec_as_written
        && node.labels.0 == draft.labels
        && node.annotations.0 == draft.annotations
    {
        let object = view::load_one(conn, key, now).await?;
        return Ok(Answer::ok(&object)?.etag(object.generation));
    }
    let id = current.as_ref().map_or_else(NodeId::new, |node| node.id);
    let (content, macs) = resolve(conn, draft, spec_as_written).await?;
    let (name, status) = match &current {
        Some(node) => {
            allow_change(conn, node, &content, &macs).await?;
            if node.protected && !content.protected {
                // Whoever may write nodes by the hundred cannot lift by mistake what keeps one from them.
                actor
                    .need(
                        conn,
                        "node.unprotect",
                        Named {
                            kind: "node",
                            key: &id.to_string(),
                        },
                    )
                    .await?;
            }
            db::nodes::set_content(conn, id, &content, now).await?;
            (node.name.clone(), StatusCode::OK)
        }
        None => {
            let wrong = |error: InvalidValue| Error::invalid("node", "invalid_name", error.why);
            let name: Name = key.parse().map_err(wrong)?;
            db::nodes::insert(conn, id, name.as_str(), &content, now).await?;
            (name.to_string(), StatusCode::CREATED)
        }
    };
    db::nodes::set_macs(conn, id, &macs).await?;
    // As it is now it must be theirs to write as well; and whoever chooses a BMC is shown the credential.
    actor
        .need(
            conn,
            "node.write",
            Named {
                kind: "node",
                key: &id.to_string(),
            },
        )
        .await?;
    let power = |spec: &Value| spec.get("power").cloned();
    if power(&content.spec) != current.as_ref().and_then(|node| power(&node.spec))
        && !matches!(content.power, Power::Manual { .. })
    {
        actor.need_everywhere("credential.use")?;
    }
    let (kind, verb) = match status {
        StatusCode::CREATED => ("node.registered", "registered"),
        _ => ("node.changed", "changed"),
    };
    record(conn, app, actor, kind, (id, &name), verb).await?;
    if current.is_none()
        && content
            .spec
            .get("accept")
            .is_none_or(|accept| accept == true)
    {
        let node = db::nodes::find_for_update(conn, &name)
            .await?
            .ok_or_else(|| Error::NotFound(name.clone()))?;
        let asked = Asked {
            wish: Wish::Accept,
            reason: None,
            until: None,
            suite: None,
        };
        actions::write_wish(conn, app, actor, &node, asked).await?;
    }
    let object = view::load_one(conn, &name, now).await?;
    Ok(Answer::ok(&object)?
        .etag(object.generation)
        .status(status)
        .location(object.link.clone()))
}

/// What must not change under a claim: the OS on the node was written for it.
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

/// Whether site, MACs, addresses and profile stay. A stored spec that cannot be read says nothing of them: the node's own rows are compared.
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
    let had = db::nodes::list_addresses(conn, &[node.id]).await?;
    let had: BTreeMap<Mac, Option<IpAddr>> =
        had.into_iter().map(|row| (row.mac, row.address)).collect();
    let leased = |row: &MacRow| (row.mac, row.lease.map(|(_, address)| address.into()));
    let has = macs.iter().map(leased).collect();
    Ok(node.site_id == content.site && node.profile_id == content.profile && had == has)
}

/// Finds what the spec names and reserves the addresses; everything wrong is told at once.
async fn resolve(
    conn: &mut PgConnection,
    draft: Draft<NodeSpec>,
    as_written: Value,
) -> Result<(Content, Vec<MacRow>), Error> {
    let spec = draft.spec;
    let mut faults = label_faults(&draft.labels, &draft.annotations);
    let site = target(conn, &mut faults, "/spec/site", "site", Some(&spec.site)).await?;
    let rack = target(
        conn,
        &mut faults,
        "/spec/rack",
        "rack",
        spec.rack.as_deref(),
    )
    .await?;
    let profile = target(
        conn,
        &mut faults,
        "/spec/profile",
        "hardware_profile",
        spec.profile.as_deref(),
    )
    .await?;
    check_place(&mut faults, &spec, rack.as_ref());
    let power = power(conn, &mut faults, &spec.power).await?;
    let macs = addresses::reserve(conn, &mut faults, &spec).await?;
    let (Some(site), Some(power), true) = (site, power, faults.is_empty()) else {
        return Err(Error::Unprocessable(faults));
    };
    let content = Content {
        labels: draft.labels,
        annotations: draft.annotations,
        spec: as_written,
        site: site.id,
        rack: rack.map(|row| row.id),
        rack_unit: spec.rack_unit.and_then(|unit| i32::try_from(unit).ok()),
        profile: profile.map(|row| row.id),
        serial: spec.serial,
        smbios_uuid: spec.smbios_uuid,
        power,
        console: spec
            .console
            .map(|NodeConsole::Tcp { address, port }| (address, port)),
        protected: spec.protected,
    };
    Ok((content, macs))
}

/// The object a member names; naming nothing is a fault, not naming is none.
pub(super) async fn target(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    pointer: &str,
    kind: &str,
    name: Option<&str>,
) -> Result<Option<ObjectRow>, Error> {
    let Some(name) = name else { return Ok(None) };
    let row = db::objects::find_for_reference(conn, kind, name).await?;
    if row.is_none() {
        faults.push(fault(
            pointer,
            "not_found",
            format!("There is no {kind} called {name:?}."),
        ));
    }
    Ok(row)
}

fn check_place(faults: &mut Vec<Fault>, spec: &NodeSpec, rack: Option<&ObjectRow>) {
    if let Some(rack) = rack {
        if rack.spec["site"] != spec.site.as_str() {
            faults.push(fault(
                "/spec/rack",
                "other_site",
                format!("{} stands in another site.", rack.name),
            ));
        }
        let units = rack.spec["units"].as_u64().unwrap_or(0);
        if spec
            .rack_unit
            .is_some_and(|unit| unit == 0 || u64::from(unit) > units)
        {
            faults.push(fault(
                "/spec/rack_unit",
                "out_of_range",
                format!("{} has the units 1 to {units}.", rack.name),
            ));
        }
    } else if spec.rack_unit.is_some() && spec.rack.is_none() {
        faults.push(fault(
            "/spec/rack_unit",
            "no_rack",
            "A unit without a rack.",
        ));
    }
    if matches!(spec.console, Some(NodeConsole::Tcp { port: 0, .. })) {
        faults.push(fault(
            "/spec/console/tcp/port",
            "out_of_range",
            "1 to 65535",
        ));
    }
    if spec
        .serial
        .as_deref()
        .is_some_and(|serial| !(1..=128).contains(&serial.len()))
    {
        faults.push(fault("/spec/serial", "out_of_range", "1 to 128 bytes"));
    }
}

async fn power(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    power: &NodePower,
) -> Result<Option<Power>, Error> {
    match power {
        NodePower::Redfish { bmc } => {
            let pointer = "/spec/power/redfish/bmc";
            let fits = |id: &str| {
                (1..=128).contains(&id.len())
                    && id.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
            };
            if bmc.system.as_deref().is_some_and(|id| !fits(id)) {
                let detail =
                    "The Id of a computer system: 1 to 128 printable characters, no slash.";
                faults.push(fault(format!("{pointer}/system"), "invalid", detail));
            }
            let credential =
                bmc_credential(conn, faults, pointer, &bmc.credential, bmc.port).await?;
            let (address, port, system) = (bmc.address, bmc.port, bmc.system.clone());
            Ok(credential.map(|row| Power::Redfish {
                address,
                port,
                credential: row.id,
                system,
            }))
        }
        NodePower::Ipmi { bmc } => {
            let pointer = "/spec/power/ipmi/bmc";
            let credential =
                bmc_credential(conn, faults, pointer, &bmc.credential, bmc.port).await?;
            let user = credential
                .as_ref()
                .and_then(|row| row.spec["user"].as_str());
            if user.is_some_and(|user| user.len() > IPMI_USER_BYTES) {
                let detail = format!(
                    "An IPMI user has at most {IPMI_USER_BYTES} bytes, and its password 20."
                );
                faults.push(fault(
                    format!("{pointer}/credential"),
                    "out_of_range",
                    detail,
                ));
            }
            let (address, port, firmware) = (bmc.address, bmc.port, bmc.firmware);
            Ok(credential.map(|row| Power::Ipmi {
                address,
                port,
                credential: row.id,
                firmware,
            }))
        }
        NodePower::Manual { person } => {
            if !(1..=200).contains(&person.len()) {
                faults.push(fault(
                    "/spec/power/manual/person",
                    "out_of_range",
                    "1 to 200 bytes",
                ));
            }
            Ok(Some(Power::Manual {
                person: person.clone(),
            }))
        }
    }
}

/// The credential that logs in to a BMC.
async fn bmc_credential(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    bmc: &str,
    name: &str,
    port: u16,
) -> Result<Option<ObjectRow>, Error> {
    if port == 0 {
        faults.push(fault(format!("{bmc}/port"), "out_of_range", "1 to 65535"));
    }
    let pointer = format!("{bmc}/credential");
    let credential = target(conn, faults, &pointer, "credential", Some(name)).await?;
    Ok(credential.filter(|row| {
        let fits = row.spec["purpose"] == "bmc";
        if !fits {
            faults.push(fault(
                &pointer,
                "wrong_purpose",
                "A credential whose purpose is bmc.",
            ));
        }
        fits
    }))
}

async fn record(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    kind: &'static str,
    (id, name): (NodeId, &str),
    verb: &str,
) -> Result<(), Error> {
    let event = actor.event(app.clock.now(), kind, Some(id), format!("{name} {verb}"));
    db::events::insert(conn, event).await
}

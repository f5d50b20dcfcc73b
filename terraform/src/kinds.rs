//! The table of all resources and data sources, with their particular properties. All other
//! properties are common to all kinds and follow from the API contract.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value as Json;

use crate::contract::{self, Member, Type};
use crate::value::state_of;

/// A kind of the API, as a resource and as two data sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Singular word, as in `muster_<word>`.
    pub(crate) word: &'static str,
    /// Plural word, as in `/v1/<collection>` and `muster_<collection>`.
    pub(crate) collection: &'static str,
    /// Name of the object's schema in the API's description.
    schema: &'static str,
    /// Parts changed only by replacing the object.
    pub(crate) fixed: Fixed,
    pub(crate) wait: Option<Wait>,
    /// Time limit for creating and destroying, unless `timeouts` sets another limit.
    pub(crate) patience: Duration,
}

/// Parts of a resource that cannot be changed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// No part. A new name renames the object.
    Nothing,
    Name,
    NameAndSpec,
    /// The name, and the spec except the listed members.
    NameAndSpecBut(&'static [&'static str]),
}

/// Work of the server after its response, which an apply can wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// JSON pointer to the node's state in the object.
    pub(crate) state: &'static str,
    pub(crate) until: Until,
}

/// Condition for the end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The state in the configuration's `wait_for`, or `none` by default. A node in a `stuck` state
    /// stays there until an operator acts.
    State { stuck: &'static [&'static str] },
    /// The server's own verdict in the object: `status.ready`, `status.stuck`.
    Ready,
}

/// Value of `wait_for` to skip the wait.
pub(crate) const NOTHING: &str = "none";

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const STUCK: &[&str] = &["failed", "quarantined", "maintenance", "retired"];

impl Wait {
    /// Returns whether the object has reached the goal.
    pub(crate) fn reached(&self, object: &Json, goal: &str) -> bool {
        match self.until {
            Until::State { .. } => goal == NOTHING || state_of(object, self.state) == goal,
            Until::Ready => object.pointer("/status/ready").and_then(Json::as_bool) == Some(true),
        }
    }

    /// Returns whether the object cannot reach the goal without an operator.
    pub(crate) fn is_stuck(&self, object: &Json) -> bool {
        match self.until {
            Until::State { stuck } => stuck.contains(&state_of(object, self.state)),
            Until::Ready => object.pointer("/status/stuck").and_then(Json::as_bool) == Some(true),
        }
    }
}

const fn declared(word: &'static str, collection: &'static str, schema: &'static str) -> Kind {
    Kind {
        word,
        collection,
        schema,
        fixed: Fixed::Name,
        wait: None,
        patience: MINUTE,
    }
}

/// All kinds.
pub(crate) const KINDS: [Kind; 19] = [
    declared("site", "sites", "Site"),
    declared("rack", "racks", "Rack"),
    declared("subnet", "subnets", "Subnet"),
    declared(
        "hardware_profile",
        "hardware_profiles",
        "HardwareProfileObject",
    ),
    declared(
        "network_profile",
        "network_profiles",
        "NetworkProfileObject",
    ),
    declared(
        "maintenance_window",
        "maintenance_windows",
        "MaintenanceWindowObject",
    ),
    declared("monitor", "monitors", "Monitor"),
    declared("credential", "credentials", "Credential"),
    declared("signing_key", "signing_keys", "SigningKey"),
    declared("image", "images", "Image"),
    declared("stack", "stacks", "Stack"),
    declared("suite", "suites", "SuiteObject"),
    declared("cluster", "clusters", "Cluster"),
    declared("pool", "pools", "Pool"),
    declared("role_binding", "role_bindings", "RoleBinding"),
    declared("webhook", "webhooks", "Webhook"),
    Kind {
        fixed: Fixed::Nothing,
        wait: Some(Wait {
            state: "/status/state",
            until: Until::State { stuck: STUCK },
        }),
        patience: HOUR,
        ..declared("node", "nodes", "Node")
    },
    Kind {
        fixed: Fixed::NameAndSpecBut(&["hold", "wait_for"]),
        wait: Some(Wait {
            state: "/status/node_state",
            until: Until::Ready,
        }),
        patience: HOUR.saturating_mul(2),
        ..declared("claim", "claims", "Claim")
    },
    Kind {
        fixed: Fixed::NameAndSpec,
        ..declared("token", "tokens", "Token")
    },
];

/// The answer behind a data source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    One(&'static Kind),
    Many(&'static Kind),
    NodeFacts,
    GateRuns,
    Operation,
}

/// Returns the kind of a resource by its type, such as `muster_rack`.
pub(crate) fn resource(type_name: &str) -> Option<&'static Kind> {
    let word = type_name.strip_prefix("muster_")?;
    KINDS.iter().find(|kind| kind.word == word)
}

/// Returns the kind of claims.
pub(crate) fn claim() -> &'static Kind {
    KINDS
        .iter()
        .find(|kind| kind.word == "claim")
        .expect("claims are one of the kinds")
}

/// Returns all data sources with their types.
pub(crate) fn sources() -> Vec<(String, Source)> {
    let singular = KINDS
        .iter()
        .map(|kind| (format!("muster_{}", kind.word), Source::One(kind)));
    let plural = KINDS
        .iter()
        .map(|kind| (format!("muster_{}", kind.collection), Source::Many(kind)));
    let others = [
        ("node_facts", Source::NodeFacts),
        ("gate_runs", Source::GateRuns),
        ("operation", Source::Operation),
    ];
    let others = others.map(|(word, source)| (format!("muster_{word}"), source));
    singular.chain(plural).chain(others).collect()
}

/// Returns the data source of a type.
pub(crate) fn source(type_name: &str) -> Option<Source> {
    sources()
        .into_iter()
        .find(|(name, _)| name == type_name)
        .map(|(_, source)| source)
}

static SHAPES: LazyLock<Vec<Type>> = LazyLock::new(|| KINDS.iter().map(read_shape).collect());

impl Kind {
    /// Returns the type of an object in API responses, without write-only members.
    pub(crate) fn shape(&self) -> &'static Type {
        let at = KINDS
            .iter()
            .position(|kind| kind.word == self.word)
            .expect("every kind is one of the table");
        &SHAPES[at]
    }

    /// Returns the type of `labels`, `annotations`, `spec` or `status`.
    pub(crate) fn part(&self, name: &str) -> &'static Type {
        &self.shape().member(name).expect("every object has it").of
    }

    /// Returns whether objects of the kind can be renamed.
    pub(crate) fn renames(&self) -> bool {
        self.fixed == Fixed::Nothing
    }

    /// Returns whether objects of the kind can carry labels.
    pub(crate) fn labelled(&self) -> bool {
        !matches!(self.word, "claim" | "token")
    }

    /// Returns whether the spec takes a secret. The API never returns the secret.
    pub(crate) fn takes_secret(&self) -> bool {
        matches!(self.word, "credential" | "monitor" | "webhook")
    }
}

fn read_shape(kind: &Kind) -> Type {
    let object = match kind.word {
        "token" => token(),
        _ => contract::schema(kind.schema),
    };
    let shown = [
        "id",
        "name",
        "labels",
        "annotations",
        "spec",
        "status",
        "generation",
        "created_at",
    ];
    let mut members: Vec<Member> = shown
        .iter()
        .filter_map(|name| object.member(name).cloned())
        .collect();
    for member in &mut members {
        if let (true, Type::Object(spec)) = (member.name == "spec", &mut member.of) {
            spec.retain(|member| !member.write_only);
        }
    }
    Type::Object(members)
}

/// Returns the type of a token in the form of every other object: requested values in the spec,
/// observed values in the status.
fn token() -> Type {
    // An optional member has a default, and the server returns the default. Terraform must
    // therefore require the member. The exception is `scope`, returned only when set.
    let asked = contract::schema("CreateToken");
    let asked = asked
        .members()
        .iter()
        .filter(|member| member.name != "name");
    let asked = asked
        .map(|member| Member {
            required: member.name != "scope",
            ..member.clone()
        })
        .collect();
    let known = [
        "id",
        "name",
        "role",
        "scope",
        "created_at",
        "releases_per_hour",
    ];
    let token = contract::schema("Token");
    let (shown, seen): (Vec<Member>, Vec<Member>) = token
        .members()
        .iter()
        .cloned()
        .partition(|member| known.contains(&member.name.as_str()));
    let mut members: Vec<Member> = shown
        .into_iter()
        .filter(|m| matches!(m.name.as_str(), "id" | "name" | "created_at"))
        .collect();
    members.push(Member::new(
        "spec",
        "What it may do, and for how long.",
        Type::Object(asked),
    ));
    members.push(Member::new(
        "status",
        "When it ends, and when it was used last.",
        Type::Object(seen),
    ));
    Type::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_with_a_collection_is_a_resource() {
        for (word, collection) in muster_api::kind::COLLECTIONS {
            let kind = resource(&format!("muster_{word}"))
                .unwrap_or_else(|| panic!("{word} is not a resource"));
            assert_eq!(kind.collection, collection);
        }
        assert!(resource("muster_tower").is_none());
    }

    #[test]
    fn every_shape_can_be_read_and_holds_no_secret() {
        for kind in &KINDS {
            let shape = kind.shape();
            assert!(
                shape.member("id").is_some() && shape.member("spec").is_some(),
                "{}",
                kind.word
            );
            assert!(shape.member("status").is_some(), "{}", kind.word);
            assert!(
                !kind
                    .part("spec")
                    .members()
                    .iter()
                    .any(|member| member.write_only),
                "{}",
                kind.word
            );
        }
        assert_eq!(sources().len(), 2 * KINDS.len() + 3);
    }
}

//! The table: every resource and data source, and what is particular to it. All else is the same for all, and follows from the contract.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value as Json;

use crate::contract::{self, Member, Type};
use crate::value::state_of;

/// A kind of the API, as a resource and as two data sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// As in `muster_<word>`.
    pub(crate) word: &'static str,
    /// As in `/v1/<collection>` and `muster_<collection>`.
    pub(crate) collection: &'static str,
    /// The object's schema in the API's description.
    schema: &'static str,
    /// What changes only by making another one, beside the name.
    pub(crate) fixed: Fixed,
    pub(crate) wait: Option<Wait>,
    /// How long creating and destroying may take, unless `timeouts` says otherwise.
    pub(crate) patience: Duration,
}

/// What of a resource cannot be changed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    /// Another name is a rename.
    Nothing,
    Name,
    NameAndSpec,
    /// All of the spec but these members.
    NameAndSpecBut(&'static [&'static str]),
}

/// Something that goes on after the API has answered, and can be waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Where in the object its node's state stands.
    pub(crate) state: &'static str,
    pub(crate) until: Until,
}

/// When a wait is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// As the configuration's `wait_for` says: a state, or `none`, which it is by default. Nothing goes on by itself from `stuck`.
    State { stuck: &'static [&'static str] },
    /// As the server says of the object: `status.ready`, `status.stuck`.
    Ready,
}

/// The `wait_for` that waits for nothing.
pub(crate) const NOTHING: &str = "none";

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const STUCK: &[&str] = &["failed", "quarantined", "maintenance", "retired"];

impl Wait {
    /// Whether what is waited for has happened.
    pub(crate) fn reached(&self, object: &Json, goal: &str) -> bool {
        match self.until {
            Until::State { .. } => goal == NOTHING || state_of(object, self.state) == goal,
            Until::Ready => object.pointer("/status/ready").and_then(Json::as_bool) == Some(true),
        }
    }

    /// Whether it will not happen by itself.
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

/// Every kind.
pub(crate) const KINDS: [Kind; 16] = [
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
    declared("credential", "credentials", "Credential"),
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

/// What a data source reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    One(&'static Kind),
    Many(&'static Kind),
    NodeFacts,
    GateRuns,
    Operation,
}

/// The kind of a resource by its type: `muster_rack`.
pub(crate) fn resource(type_name: &str) -> Option<&'static Kind> {
    let word = type_name.strip_prefix("muster_")?;
    KINDS.iter().find(|kind| kind.word == word)
}

/// The kind of claims.
pub(crate) fn claim() -> &'static Kind {
    KINDS
        .iter()
        .find(|kind| kind.word == "claim")
        .expect("claims are one of the kinds")
}

/// Every data source with its type.
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

/// The data source of a type.
pub(crate) fn source(type_name: &str) -> Option<Source> {
    sources()
        .into_iter()
        .find(|(name, _)| name == type_name)
        .map(|(_, source)| source)
}

static SHAPES: LazyLock<Vec<Type>> = LazyLock::new(|| KINDS.iter().map(read_shape).collect());

impl Kind {
    /// An object of the kind as the API answers it, without what it never answers.
    pub(crate) fn shape(&self) -> &'static Type {
        let at = KINDS
            .iter()
            .position(|kind| kind.word == self.word)
            .expect("every kind is one of the table");
        &SHAPES[at]
    }

    /// One of `labels`, `annotations`, `spec`, `status`.
    pub(crate) fn part(&self, name: &str) -> &'static Type {
        &self.shape().member(name).expect("every object has it").of
    }

    /// Whether its objects can be given another name.
    pub(crate) fn renames(&self) -> bool {
        self.fixed == Fixed::Nothing
    }

    /// Whether its objects can carry labels.
    pub(crate) fn labelled(&self) -> bool {
        !matches!(self.word, "claim" | "token")
    }

    /// Whether its spec takes a secret, which is never answered.
    pub(crate) fn takes_secret(&self) -> bool {
        matches!(self.word, "credential" | "webhook")
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

/// A token in the form that every other object has: what is asked for apart from what is observed.
fn token() -> Type {
    // What is optional there has a default that is answered, so Terraform must have said it; but for the scope, which is answered when there is one.
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

//! The kinds: verbs and columns. A new kind is a row here.

use jiff::Timestamp;
use serde_json::Value;

use super::{Can, Noun};
use crate::client::output::{Column, Form};

const DECLARED: &[Can] = &[Can::Pages, Can::Get, Can::Write, Can::Delete];
const NAME: Column = Column::new("NAME", "/name", Form::Text);
const AGE: Column = Column::new("AGE", "/created_at", Form::Age);
const ID: Column = Column::wide("ID", "/id", Form::Text);

/// Every kind with its own verbs or columns.
pub(super) const NOUNS: &[Noun] = &[
    Noun {
        kind: "node",
        collection: "nodes",
        about: "Nodes: list, inspect, request actions",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("STATE", "/status/state", Form::State),
            Column::new("FOR", "/status/entered_at", Form::Age),
            Column::new("POOL", "/status/pool", Form::Text),
            Column::new("RACK", "/spec/rack", Form::Text),
            Column::new(
                "WAITS FOR",
                "/status/why/waiting_for|/status/reason",
                Form::Text,
            ),
            Column::wide("ADDRESS", "/status/addresses/0/address", Form::Text),
            Column::wide("CLAIM", "/status/claim", Form::Text),
            Column::wide("SITE", "/spec/site", Form::Text),
            Column::wide("PROFILE", "/spec/profile", Form::Text),
            Column::wide("EPOCH", "/status/epoch", Form::Text),
        ],
    },
    Noun {
        kind: "claim",
        collection: "claims",
        about: "Claims: bind nodes to pools, release nodes",
        can: &[Can::Pages, Can::Get],
        parameters: &[("pool", "Only claims of this pool")],
        columns: &[
            NAME,
            Column::new("POOL", "/spec/pool", Form::Text),
            Column::new("NODE", "/status/node", Form::Text),
            Column::new("CLAIM", "/status/state", Form::State),
            Column::new("NODE STATE", "/status/node_state", Form::State),
            AGE,
            Column::wide("READY", "/status/ready", Form::Text),
            Column::wide("HELD", "/status/effective_hold", Form::Text),
            Column::wide("REPLICA", "/status/replica", Form::Text),
            Column::wide("REPLACED BY", "/status/replacement/node", Form::Text),
            Column::wide("UNDO UNTIL", "/status/undo_until", Form::Time),
            Column::wide("OPERATION", "/status/operation", Form::Text),
            Column::wide("EPOCH", "/status/epoch", Form::Text),
        ],
    },
    Noun {
        kind: "operation",
        collection: "operations",
        about: "Operations: requested work and its progress",
        can: &[Can::Pages],
        parameters: &[
            ("node", "Only operations of this node"),
            (
                "state",
                "queued, running, succeeded, failed, cancelled or unknown",
            ),
        ],
        columns: OPERATIONS,
    },
    Noun {
        kind: "pool",
        collection: "pools",
        about: "Pools: the desired state of a set of nodes",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("IMAGE", "/spec/image", Form::Text),
            Column::new("STACK", "/spec/stack", Form::Text),
            Column::new("SUITE", "/spec/suite", Form::Text),
            Column::new("CLUSTER", "/spec/cluster", Form::Text),
            Column::new("REPLICAS", "", Form::By(replicas)),
            AGE,
            Column::wide("LACKS", "/status/replicas/because", Form::Text),
            Column::wide("PROFILE", "/spec/profile", Form::Text),
            Column::wide("MAX OUT", "/spec/max_unavailable", Form::Text),
            Column::wide("ON CHANGE", "/status/effective_on_change", Form::Text),
            Column::wide("UNDO WINDOW", "/spec/undo_window_s", Form::Seconds),
            ID,
        ],
    },
    Noun {
        kind: "site",
        collection: "sites",
        about: "Sites: places with a separate provisioning network",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("LIVE KERNEL", "/spec/live/kernel", Form::Digest),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "rack",
        collection: "racks",
        about: "Racks: height, power budget, failure domain",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("SITE", "/spec/site", Form::Text),
            Column::new("UNITS", "/spec/units", Form::Text),
            Column::new("POWER BUDGET", "/spec/power_budget_w", Form::Watts),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "subnet",
        collection: "subnets",
        about: "Subnets: provisioning networks and their addresses",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("SITE", "/spec/site", Form::Text),
            Column::new("NETWORK", "/spec/network", Form::Text),
            Column::new("AGENT", "/spec/agent_address", Form::Text),
            Column::new("DHCP", "/spec/mode", Form::Text),
            AGE,
            Column::wide("GATEWAY", "/spec/gateway", Form::Text),
            Column::wide("FIRST", "/spec/dynamic_range/first", Form::Text),
            Column::wide("LAST", "/spec/dynamic_range/last", Form::Text),
            ID,
        ],
    },
    Noun {
        kind: "hardware_profile",
        collection: "hardware_profiles",
        about: "Hardware profiles: the required hardware of a model",
        can: DECLARED,
        parameters: &[],
        columns: super::PLAIN,
    },
    Noun {
        kind: "network_profile",
        collection: "network_profiles",
        about: "Network profiles: bonds, VLANs, MTU and addresses of installed nodes",
        can: DECLARED,
        parameters: &[],
        columns: super::PLAIN,
    },
    Noun {
        kind: "maintenance_window",
        collection: "maintenance_windows",
        about: "Maintenance windows: times at which rollouts may take nodes, and freeze dates",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("TIME ZONE", "/spec/time_zone", Form::Text),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "monitor",
        collection: "monitors",
        about: "Monitors: queries to Prometheus that halt rollouts",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("STATE", "/status/state", Form::State),
            Column::new("SINCE", "/status/since", Form::Age),
            Column::new("SERIES", "/status/series", Form::Text),
            Column::new("ANSWERED", "/status/answered_at", Form::Age),
            Column::new("MISSED", "/status/missed", Form::Text),
            Column::new("PROBLEM", "/status/problem", Form::Text),
            Column::wide("QUERY", "/spec/query", Form::Text),
            Column::wide("URL", "/spec/url", Form::Text),
            ID,
        ],
    },
    Noun {
        kind: "signing_key",
        collection: "signing_keys",
        about: "Signing keys: public keys of release owners, whose signatures of images are trusted",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("PUBLIC KEY", "/spec/public_key", Form::Text),
            Column::new("ENDS", "/spec/ends_at", Form::Time),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "image",
        collection: "images",
        about: "Images: disk images of operating systems",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("BLOB PRESENT", "/status/blob_present", Form::Text),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "stack",
        collection: "stacks",
        about: "Stacks: pinned packages over an image, locked before publication",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("LOCK", "/status/lock_digest", Form::Digest),
            Column::new("BUNDLE PRESENT", "/status/bundle_present", Form::Text),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "suite",
        collection: "suites",
        about: "Suites: the gates a node must pass",
        can: DECLARED,
        parameters: &[],
        columns: super::PLAIN,
    },
    Noun {
        kind: "cluster",
        collection: "clusters",
        about: "Clusters: schedulers for admitted nodes",
        can: DECLARED,
        parameters: &[],
        columns: &[NAME, Column::new("KIND", "/spec/kind", Form::Text), AGE, ID],
    },
    Noun {
        kind: "credential",
        collection: "credentials",
        about: "Credentials of BMCs, clusters, adoptions; never shown again",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("PURPOSE", "/spec/purpose", Form::Text),
            Column::new("USER", "/spec/user", Form::Text),
            Column::new("SET", "/status/set", Form::Text),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "role_binding",
        collection: "role_bindings",
        about: "Role bindings: the rights of people and groups",
        can: DECLARED,
        parameters: &[],
        columns: &[
            NAME,
            Column::new("ROLE", "/spec/role", Form::Text),
            Column::new("SUBJECT", "/spec/subject/name|/spec/subject", Form::Text),
            Column::new("SCOPE", "/spec/scope", Form::Scope),
            AGE,
            ID,
        ],
    },
    Noun {
        kind: "token",
        collection: "tokens",
        about: "Tokens of machines",
        can: &[Can::Pages, Can::Show],
        parameters: &[],
        columns: &[
            ID.narrow(),
            NAME,
            Column::new("ROLE", "/role", Form::Text),
            Column::new("STATE", "", Form::By(token_state)),
            Column::new("UNTIL", "/expires_at", Form::Day),
            Column::new("USED", "/last_used", Form::Age),
            Column::wide("SCOPE", "/scope", Form::Scope),
            Column::wide("RELEASES/H", "/releases_per_hour", Form::Text),
        ],
    },
    Noun {
        kind: "user",
        collection: "users",
        about: "People who have signed in: list, disable, enable",
        can: &[Can::Pages, Can::Show],
        parameters: &[],
        columns: &[
            NAME,
            Column::new("ROLE", "/role", Form::Text),
            Column::new("SEEN", "/last_seen", Form::Age),
            Column::new("KEPT OUT", "/disabled_at", Form::Day),
            Column::wide("BY", "/disabled_by", Form::Text),
            Column::wide("ISSUER", "/issuer", Form::Text),
            ID,
        ],
    },
    Noun {
        kind: "webhook",
        collection: "webhooks",
        about: "Webhooks: receivers of events, and deliveries",
        can: &[Can::Pages, Can::Get, Can::Delete],
        parameters: &[],
        columns: &[
            NAME,
            Column::new("STATE", "/status/state", Form::State),
            Column::new("FAILING", "/status/failing_since", Form::Age),
            Column::new("UP TO", "/status/delivered_seq", Form::Text),
            Column::new("TOPICS", "/spec/topics", Form::By(topics)),
            Column::new("URL", "/spec/url", Form::Text),
            Column::wide("BECAUSE", "/status/because", Form::Text),
            ID,
        ],
    },
    Noun {
        kind: "approval",
        collection: "approvals",
        about: "Approvals: requests waiting for a second person, such as releases and wipes beyond the hourly limit, and waivers",
        can: &[Can::Pages, Can::Show],
        parameters: &[],
        columns: &[
            ID.narrow(),
            Column::new("NODE", "/node", Form::Text),
            Column::new("WHAT", "", Form::By(asked_for)),
            Column::new("CLAIM", "/claim", Form::Text),
            Column::new("ASKED BY", "/requested_by", Form::Text),
            Column::new("AGE", "/requested_at", Form::Age),
            Column::new("BECAUSE", "/because", Form::Text),
            Column::wide("STATE", "/state", Form::State),
        ],
    },
    Noun {
        kind: "breaker",
        collection: "breakers",
        about: "Breakers: failures of many nodes at once, which stop automatic recoveries",
        can: &[Can::Pages],
        parameters: &[],
        columns: &[
            ID.narrow(),
            Column::new("SIGNATURE", "/signature", Form::Text),
            Column::new("STATE", "/state", Form::State),
            Column::new("AGE", "/opened_at", Form::Age),
            Column::new("BECAUSE", "/because", Form::Text),
            Column::wide("CLOSES", "/closes_at", Form::Time),
            Column::wide("CLOSED", "/closed_at", Form::Time),
            Column::wide("BY", "/closed_by", Form::Text),
        ],
    },
    Noun {
        kind: "waiver",
        collection: "waivers",
        about: "Waivers: failing gates counted as passed for a limited time, approved by a second person",
        can: &[Can::Pages, Can::Show],
        parameters: &[(
            "node",
            "Only waivers of this node, its rack, or the pool of its claim",
        )],
        columns: &[
            ID.narrow(),
            Column::new("GATE", "/gate", Form::Text),
            Column::new("WHERE", "/node|/rack|/pool", Form::Text),
            Column::new("STATE", "/state", Form::State),
            Column::new("UNTIL", "/until", Form::Time),
            Column::new("ASKED BY", "/requested_by", Form::Text),
            Column::new("DECIDED BY", "/decided_by", Form::Text),
            Column::new("REASON", "/reason", Form::Text),
            Column::wide("APPROVAL", "/approval", Form::Text),
        ],
    },
];

/// Of an operation.
const OPERATIONS: &[Column] = &[
    ID.narrow(),
    Column::new("KIND", "/kind", Form::Text),
    Column::new("NODE", "/target/name", Form::Text),
    Column::new("STATE", "/state", Form::State),
    AGE,
    Column::new("MESSAGE", "/error/message|/progress/message", Form::Text),
    Column::wide("ACTOR", "/actor", Form::Text),
    Column::wide("DEADLINE", "/deadline", Form::Time),
];

/// The request waiting for approval.
fn asked_for(approval: &Value, _: Timestamp) -> String {
    match (&approval["waiver"], approval["action"].as_str()) {
        (Value::Null, Some(action)) => action,
        (Value::Null, None) if approval["erase_now"] == true => "release, erase now",
        (Value::Null, None) => "release",
        _ => "waive",
    }
    .into()
}

/// Returns the share of a pool's replicas in service, such as `2/3`; empty without replicas.
fn replicas(pool: &Value, _: Timestamp) -> String {
    let replicas = &pool["status"]["replicas"];
    match (replicas["in_service"].as_u64(), replicas["wanted"].as_u64()) {
        (Some(serving), Some(wanted)) => format!("{serving}/{wanted}"),
        _ => String::new(),
    }
}

fn topics(webhook: &Value, _: Timestamp) -> String {
    let topics = webhook["spec"]["topics"].as_array().into_iter().flatten();
    topics
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

fn token_state(token: &Value, now: Timestamp) -> String {
    let over = token["expires_at"]
        .as_str()
        .and_then(|at| at.parse::<Timestamp>().ok())
        .is_none_or(|at| at <= now);
    match (&token["revoked_at"], over) {
        (Value::Null, false) => "valid",
        (Value::Null, true) => "over",
        _ => "revoked",
    }
    .into()
}

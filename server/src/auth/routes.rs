//! Needs of each route: a verb and a place. A route missing here is rejected for every caller.
//! `tests/it/access/expected.rs` checks all routes.

use http::Method;

use self::Where::{At, Everywhere, Somewhere};

/// The place at which the verb must be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Over the whole fleet.
    Everywhere,
    /// In any scope. The handler checks each object, or the result has no place. A list contains
    /// only objects in the reader's scope.
    Somewhere,
    /// At the object's place: the kind, and the path parameter with the object's name.
    At(&'static str, &'static str),
}

const NODE: Where = At("node", "node");

/// Method, path, verb, place. Methods: `R` for GET and HEAD, `W` for the others.
const ROUTES: [(char, &str, &str, Where); 98] = [
    // The verb is checked for each node of an alert.
    ('W', "/v1/alerts", "node.quarantine", Somewhere),
    ('R', "/v1/approvals", "fleet.read", Somewhere),
    (
        'R',
        "/v1/approvals/{approval}",
        "fleet.read",
        At("approval", "approval"),
    ),
    (
        'W',
        "/v1/approvals/{approval}/approve",
        "approval.decide",
        At("approval", "approval"),
    ),
    (
        'W',
        "/v1/approvals/{approval}/deny",
        "approval.decide",
        At("approval", "approval"),
    ),
    ('W', "/v1/blobs/sha256/{hex}", "blob.write", Everywhere),
    ('R', "/v1/blobs/sha256/{hex}", "fleet.read", Somewhere),
    ('R', "/v1/break-glass", "fleet.read", Somewhere),
    ('R', "/v1/breakers", "fleet.read", Everywhere),
    (
        'W',
        "/v1/breakers/{breaker}/reset",
        "breaker.reset",
        Everywhere,
    ),
    ('R', "/v1/caution", "fleet.read", Somewhere),
    ('W', "/v1/caution/confirm", "caution.confirm", Everywhere),
    ('R', "/v1/claims", "fleet.read", Somewhere),
    // The verb is checked for both ends, the node and the pool.
    ('W', "/v1/claims", "claim.create", Somewhere),
    (
        'R',
        "/v1/claims/{claim}",
        "fleet.read",
        At("claim", "claim"),
    ),
    (
        'W',
        "/v1/claims/{claim}",
        "claim.release",
        At("claim", "claim"),
    ),
    // The handler also checks `claim.create` at the replacement node.
    (
        'W',
        "/v1/claims/{claim}/actions/replace",
        "claim.release",
        At("claim", "claim"),
    ),
    (
        'W',
        "/v1/claims/{claim}/undo",
        "claim.release",
        At("claim", "claim"),
    ),
    ('R', "/v1/components", "fleet.read", Somewhere),
    ('R', "/v1/events", "fleet.read", Somewhere),
    ('R', "/v1/nodes", "fleet.read", Somewhere),
    ('R', "/v1/nodes/{node}", "fleet.read", NODE),
    ('W', "/v1/nodes/{node}", "node.write", NODE),
    ('W', "/v1/nodes/{node}/actions/adopt", "node.adopt", NODE),
    // The handler also checks the declared node.
    ('W', "/v1/nodes/{node}/actions/match", "node.match", NODE),
    ('W', "/v1/nodes/{node}/actions/move", "node.move", NODE),
    ('W', "/v1/nodes/{node}/actions/rename", "node.rename", NODE),
    (
        'W',
        "/v1/nodes/{node}/actions/replace-parts",
        "node.replace-parts",
        NODE,
    ),
    (
        'W',
        "/v1/nodes/{node}/actions/{action}",
        "node.{action}",
        NODE,
    ),
    ('R', "/v1/nodes/{node}/cabling", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/components", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/console", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/drift", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/events", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/facts", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/gate-runs", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/recoveries", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/rma", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/timeline", "fleet.read", NODE),
    ('R', "/v1/nodes/{node}/why", "fleet.read", NODE),
    ('R', "/v1/operations", "fleet.read", Somewhere),
    (
        'R',
        "/v1/operations/{id}",
        "fleet.read",
        At("operation", "id"),
    ),
    (
        'W',
        "/v1/operations/{id}/cancel",
        "operation.cancel",
        At("operation", "id"),
    ),
    (
        'R',
        "/v1/operations/{id}/log",
        "fleet.read",
        At("operation", "id"),
    ),
    (
        'W',
        "/v1/pools/{pool}/actions/run-pairs",
        "pool.run-pairs",
        At("pool", "pool"),
    ),
    (
        'R',
        "/v1/pools/{pool}/pair-runs",
        "fleet.read",
        At("pool", "pool"),
    ),
    (
        'R',
        "/v1/pools/{pool}/pair-runs/{run}",
        "fleet.read",
        At("pool", "pool"),
    ),
    ('R', "/v1/prometheus/targets", "fleet.read", Somewhere),
    ('R', "/metrics", "fleet.read", Everywhere),
    (
        'R',
        "/v1/racks/{rack}/cabling",
        "fleet.read",
        At("rack", "rack"),
    ),
    (
        'R',
        "/v1/sites/{site}/agents",
        "fleet.read",
        At("site", "site"),
    ),
    (
        'W',
        "/v1/sites/{site}/agents",
        "agent.enrol",
        At("site", "site"),
    ),
    (
        'R',
        "/v1/sites/{site}/agents/{agent}",
        "fleet.read",
        At("site", "site"),
    ),
    (
        'W',
        "/v1/sites/{site}/agents/{agent}",
        "agent.remove",
        At("site", "site"),
    ),
    // Tokens of other people need `token.read` and `token.revoke`.
    ('R', "/v1/tokens", "token.create", Somewhere),
    ('W', "/v1/tokens", "token.create", Somewhere),
    ('R', "/v1/tokens/{token}", "token.create", Somewhere),
    ('W', "/v1/tokens/{token}", "token.create", Somewhere),
    ('R', "/v1/users", "user.read", Everywhere),
    ('R', "/v1/users/{user}", "user.read", Everywhere),
    (
        'W',
        "/v1/users/{user}/actions/disable",
        "user.disable",
        Everywhere,
    ),
    (
        'W',
        "/v1/users/{user}/actions/enable",
        "user.disable",
        Everywhere,
    ),
    ('R', "/v1/audit", "audit.read", Everywhere),
    ('R', "/v1/waivers", "fleet.read", Everywhere),
    // The verb is checked at the waiver's node, rack or pool.
    ('W', "/v1/waivers", "waiver.create", Somewhere),
    (
        'R',
        "/v1/waivers/{waiver}",
        "fleet.read",
        At("waiver", "waiver"),
    ),
    (
        'W',
        "/v1/waivers/{waiver}",
        "waiver.create",
        At("waiver", "waiver"),
    ),
    ('R', "/v1/webhooks", "webhook.read", Everywhere),
    ('R', "/v1/webhooks/{name}", "webhook.read", Everywhere),
    (
        'R',
        "/v1/webhooks/{name}/deliveries",
        "webhook.read",
        Everywhere,
    ),
    (
        'W',
        "/v1/webhooks/{name}/actions/redeliver",
        "webhook.write",
        Everywhere,
    ),
    (
        'W',
        "/v1/webhooks/{name}/actions/resume",
        "webhook.write",
        Everywhere,
    ),
    (
        'W',
        "/v1/webhooks/{name}/actions/test",
        "webhook.write",
        Everywhere,
    ),
    // A plan writes no rows. Each object of a plan is checked like a write of the object.
    ('W', "/v1/plan", "fleet.read", Somewhere),
    // Pages.
    ('R', "/", "fleet.read", Somewhere),
    ('R', "/nodes", "fleet.read", Somewhere),
    ('R', "/nodes/{node}", "fleet.read", NODE),
    ('R', "/nodes/{node}/console", "fleet.read", NODE),
    ('W', "/ui/nodes/{node}/adopt", "node.adopt", NODE),
    ('W', "/ui/nodes/{node}/parts", "node.replace-parts", NODE),
    ('W', "/ui/nodes/{node}/actions/{wish}", "node.{wish}", NODE),
    ('R', "/operations", "fleet.read", Somewhere),
    (
        'R',
        "/operations/{operation}",
        "fleet.read",
        At("operation", "operation"),
    ),
    ('R', "/jobs/{job}/log", "fleet.read", At("job", "job")),
    ('R', "/racks", "fleet.read", Somewhere),
    ('R', "/claims", "fleet.read", Somewhere),
    ('R', "/pools/{pool}", "fleet.read", At("pool", "pool")),
    ('R', "/events", "fleet.read", Somewhere),
    ('R', "/agents", "fleet.read", Somewhere),
    ('R', "/users", "user.read", Everywhere),
    ('R', "/webhooks", "webhook.read", Everywhere),
    (
        'W',
        "/ui/approvals/{approval}/{word}",
        "approval.decide",
        At("approval", "approval"),
    ),
    (
        'W',
        "/ui/claims/{claim}/replace",
        "claim.release",
        At("claim", "claim"),
    ),
    (
        'W',
        "/ui/claims/{claim}/undo",
        "claim.release",
        At("claim", "claim"),
    ),
    (
        'W',
        "/ui/pools/{pool}/pairs",
        "pool.run-pairs",
        At("pool", "pool"),
    ),
    ('W', "/ui/users/{user}/{word}", "user.disable", Everywhere),
    (
        'W',
        "/ui/caution/{id}/confirm",
        "caution.confirm",
        Everywhere,
    ),
    ('R', "/ui/events", "fleet.read", Somewhere),
];

/// The declared kinds: collection, kind, and whether objects have a place. Objects without a place
/// are readable by every reader, and written by callers with the right over the whole fleet.
const DECLARED: [(&str, &str, bool); 13] = [
    ("sites", "site", true),
    ("racks", "rack", true),
    ("subnets", "subnet", true),
    ("clusters", "cluster", true),
    ("pools", "pool", true),
    ("hardware_profiles", "hardware_profile", false),
    ("network_profiles", "network_profile", false),
    ("images", "image", false),
    ("stacks", "stack", false),
    ("suites", "suite", false),
    ("credentials", "credential", false),
    ("role_bindings", "role_binding", false),
    ("webhooks", "webhook", false),
];

/// Returns whether objects of a declared kind have a place.
pub fn lies(kind: &str) -> bool {
    DECLARED
        .iter()
        .any(|(_, known, lies)| *known == kind && *lies)
}

/// Returns the needs of a request to a route. `None` for a route missing from the tables.
pub fn need(
    method: &Method,
    route: &str,
    parameters: &[(String, String)],
) -> Option<(String, Where)> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let wanted = if reads { 'R' } else { 'W' };
    if let Some((_, _, verb, whereabouts)) = ROUTES
        .iter()
        .find(|(of, path, ..)| *of == wanted && *path == route)
    {
        let value = |name: &str| {
            parameters
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        let verb = match *verb {
            "node.{action}" => format!("node.{}", value("action")?),
            "node.{wish}" => format!("node.{}", value("wish")?),
            fixed => fixed.to_owned(),
        };
        // The handler reports an unknown action.
        let known = muster_api::access::VERBS
            .iter()
            .any(|(known, _)| *known == verb);
        return Some((
            if known { verb } else { "fleet.read".to_owned() },
            *whereabouts,
        ));
    }
    let (collection, one) = match route.strip_prefix("/v1/")?.split_once('/') {
        Some((collection, "{name}")) => (collection, true),
        Some(_) => return None,
        None => (route.strip_prefix("/v1/")?, false),
    };
    let (_, kind, lies) = DECLARED
        .into_iter()
        .find(|(known, ..)| *known == collection)?;
    let verb = if reads {
        "fleet.read".to_owned()
    } else {
        format!("{kind}.write")
    };
    let whereabouts = match (one, lies, reads) {
        (true, true, _) => At(kind, "name"),
        (_, _, true) => Somewhere,
        (_, _, false) => Everywhere,
    };
    Some((verb, whereabouts))
}

//! The access rights of every route, stated a second time, independently of the server.

/// The place at which a route requires the verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The whole fleet.
    Fleet,
    /// Any scope.
    Any,
    /// The place of the object.
    Object,
    /// The place of the object named in the body.
    Body,
    /// The place of the object, and the whole fleet because of the named credential.
    ObjectByFleet,
}

/// The roles with access to each operation of the API: `g` guest, `v` viewer, `u` automation, `o`
/// operator, `r` release owner, `a` administrator. An operation missing here fails the test. Actions
/// named in the path of a node are listed in [`ACTIONS`].
pub(super) const EXPECTED: [(&str, Reach, &[&str]); 24] = [
    ("vruoa", Reach::Fleet, &["list_waivers", "list_breakers"]),
    // A plan leaves the database unchanged.
    ("vruoa", Reach::Any, &["make_plan"]),
    (
        "vruoa",
        Reach::Any,
        &[
            "list_approvals",
            "list_claims",
            "list_rollouts",
            "list_components",
            "list_events",
            "list_operations",
            "list_prometheus_targets",
            "list_sites",
            "list_racks",
            "list_subnets",
            "list_clusters",
            "list_pools",
            "head_blob",
            "get_break_glass",
            "list_nodes",
            "get_caution",
            "list_hardware_profiles",
            "get_hardware_profile",
            "list_network_profiles",
            "get_network_profile",
            "list_maintenance_windows",
            "get_maintenance_window",
            "list_monitors",
            "get_monitor",
            "list_signing_keys",
            "get_signing_key",
            "list_images",
            "get_image",
            "list_stacks",
            "get_stack",
            "list_suites",
            "get_suite",
            "list_credentials",
            "get_credential",
            "list_role_bindings",
            "get_role_binding",
        ],
    ),
    (
        "vruoa",
        Reach::Object,
        &[
            "get_claim",
            "get_node",
            "get_node_why",
            "get_node_cabling",
            "get_rack_cabling",
            "list_pair_runs",
            "get_pair_run",
            "list_pool_revisions",
            "get_pool_revision",
            "diff_pool_revisions",
            "get_pool_disruption",
            "get_rollout",
            "list_node_components",
            "list_node_events",
            "get_node_drift",
            "get_node_facts",
            "list_node_gate_runs",
            "list_node_recoveries",
            "get_node_timeline",
            "get_approval",
            "get_waiver",
            "get_operation",
            "get_site",
            "get_rack",
            "get_subnet",
            "get_cluster",
            "get_pool",
            "list_agents",
            "get_agent",
        ],
    ),
    // Raw text of machines may contain secrets.
    (
        "ruoa",
        Reach::Object,
        &["get_node_console", "get_node_rma", "get_operation_log"],
    ),
    (
        "uoa",
        Reach::Object,
        &[
            "put_node",
            "patch_node",
            "delete_node",
            "patch_claim",
            "delete_claim",
            "replace_claim",
            "undo_release",
            "cancel_operation",
            "put_rack",
            "patch_rack",
            "delete_rack",
            "run_pairs",
            "assign_revision",
            "halt_rollout",
        ],
    ),
    (
        "ruoa",
        Reach::Object,
        &["put_pool", "patch_pool", "delete_pool", "promote_revision"],
    ),
    (
        "oa",
        Reach::Object,
        &[
            "match_node",
            "move_node",
            "rename_node",
            "replace_parts",
            "write_off_claim",
            "start_rollout",
            "resume_rollout",
            "promote_rollout",
            "adjust_rollout",
            "skip_rollout_node",
            "retry_rollout_node",
            "requeue_rollout_node",
            "grant_approval",
            "deny_approval",
            "end_waiver",
        ],
    ),
    ("oa", Reach::ObjectByFleet, &["adopt_node"]),
    ("uoa", Reach::Body, &["create_claim"]),
    ("ruoa", Reach::Body, &["plan_rollout"]),
    ("oa", Reach::Body, &["create_waiver", "create_token"]),
    // An alert for a node outside the caller's scope is answered as for an unknown node.
    ("uoa", Reach::Any, &["report_alerts"]),
    ("oa", Reach::Fleet, &["reset_breaker"]),
    (
        "uoa",
        Reach::Fleet,
        &[
            "put_network_profile",
            "patch_network_profile",
            "delete_network_profile",
            "put_maintenance_window",
            "patch_maintenance_window",
            "delete_maintenance_window",
        ],
    ),
    // These rights are equal to root on nodes.
    (
        "ra",
        Reach::Fleet,
        &[
            "put_hardware_profile",
            "patch_hardware_profile",
            "delete_hardware_profile",
            "put_image",
            "patch_image",
            "delete_image",
            "put_stack",
            "patch_stack",
            "delete_stack",
            "put_suite",
            "patch_suite",
            "delete_suite",
        ],
    ),
    ("rua", Reach::Fleet, &["put_blob"]),
    (
        "a",
        Reach::Object,
        &[
            "put_site",
            "patch_site",
            "delete_site",
            "put_subnet",
            "patch_subnet",
            "delete_subnet",
            "put_cluster",
            "patch_cluster",
            "delete_cluster",
            "enrol_agent",
            "remove_agent",
            "get_node_hold",
            "hold_records",
            "release_records",
        ],
    ),
    (
        "a",
        Reach::Fleet,
        &[
            "put_credential",
            "patch_credential",
            "delete_credential",
            "put_monitor",
            "patch_monitor",
            "delete_monitor",
            "put_signing_key",
            "patch_signing_key",
            "delete_signing_key",
        ],
    ),
    (
        "vruoa",
        Reach::Fleet,
        &["list_webhooks", "get_webhook", "list_webhook_deliveries"],
    ),
    (
        "a",
        Reach::Fleet,
        &[
            "put_webhook",
            "patch_webhook",
            "delete_webhook",
            "test_webhook",
            "redeliver_event",
            "resume_webhook",
        ],
    ),
    (
        "a",
        Reach::Fleet,
        &[
            "put_role_binding",
            "patch_role_binding",
            "delete_role_binding",
        ],
    ),
    (
        "a",
        Reach::Fleet,
        &[
            "confirm_caution",
            "get_audit_head",
            "list_users",
            "get_user",
            "disable_user",
            "enable_user",
            "unlock_user",
        ],
    ),
    // The caller's own tokens. Tokens of other people are reported as missing without `token.read`
    // or `token.revoke` over the whole fleet.
    (
        "oa",
        Reach::Any,
        &["list_tokens", "get_token", "revoke_token"],
    ),
];

/// The roles with access to each action of nodes, at the place of the node. The API and the form on
/// the node's page have the same roles.
pub(super) const ACTIONS: [(&str, &[&str]); 3] = [
    (
        "uoa",
        &[
            "accept",
            "inspect",
            "release",
            "retry",
            "quarantine",
            "drain",
            "undrain",
            "maintain",
            "resume",
            "check-drift",
            "power-on",
            "run-gates",
            "converge",
            "sweep",
        ],
    ),
    (
        "oa",
        &[
            "adopt",
            "reject",
            "recover",
            "wipe",
            "retire",
            "reinstate",
            "replace-parts",
            "power-off",
            "power-cycle",
            "reinstall",
        ],
    ),
    ("a", &["rotate-bmc"]),
];

/// The roles with access to each page and form. A route without roles is open to every caller: such
/// routes begin or end a session, or serve assets.
pub(super) const PAGES: [(&str, Reach, &[&str]); 12] = [
    (
        "vruoa",
        Reach::Any,
        &[
            "/",
            "/nodes",
            "/operations",
            "/racks",
            "/claims",
            "/stacks",
            "/stacks/{stack}",
            "/rollouts",
            "/events",
            "/agents",
            "/ui/events",
        ],
    ),
    (
        "vruoa",
        Reach::Object,
        &[
            "/nodes/{node}",
            "/operations/{operation}",
            "/pools/{pool}",
            "/rollouts/{rollout}",
        ],
    ),
    (
        "ruoa",
        Reach::Object,
        &["/nodes/{node}/console", "/jobs/{job}/log"],
    ),
    ("vruoa", Reach::Fleet, &["/webhooks"]),
    (
        "a",
        Reach::Fleet,
        &[
            "/users",
            "/ui/users/{user}/{word}",
            "/ui/caution/{id}/confirm",
        ],
    ),
    ("oa", Reach::ObjectByFleet, &["/ui/nodes/{node}/adopt"]),
    (
        "oa",
        Reach::Object,
        &[
            "/ui/nodes/{node}/parts",
            "/ui/approvals/{approval}/{word}",
            "/ui/rollouts/{rollout}/acts/{word}",
        ],
    ),
    (
        "uoa",
        Reach::Object,
        &[
            "/ui/claims/{claim}/replace",
            "/ui/claims/{claim}/undo",
            "/ui/pools/{pool}/pairs",
            "/ui/rollouts/{rollout}/halt",
        ],
    ),
    ("ruoa", Reach::Object, &["/ui/pools/{pool}/rollouts"]),
    // Each action has the roles listed in ACTIONS.
    ("uoa", Reach::Object, &["/ui/nodes/{node}/actions/{action}"]),
    (
        "",
        Reach::Any,
        &[
            "/sign-in",
            "/sign-in/oidc",
            "/sign-in/oidc/callback",
            "/sign-in/oidc/logout",
            "/sign-out",
        ],
    ),
    ("", Reach::Any, &["/assets/{version}/{*path}"]),
];

/// Operations and actions answered with 404 although the object in the path exists, with the
/// reason.
pub(super) const ABSENT: [(&str, &str); 5] = [
    ("release", "a release is its claim's end"),
    ("get_pair_run", "nothing was measured"),
    ("get_node_drift", "nobody has compared it with a stack"),
    ("get_node_facts", "nobody has looked into it"),
    ("get_node_hold", "the node is not under a legal hold"),
];

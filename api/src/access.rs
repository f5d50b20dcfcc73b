//! Access control: verbs, roles (sets of verbs), and the scopes limiting a role to a part of the
//! fleet.

use std::collections::BTreeMap;

use muster_core::words;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kind::Kind;
use crate::object::NoStatus;

words! {
    /// The permissions of a caller: a set of verbs listed in [`VERBS`].
    #[derive(ToSchema)]
    Role, "role" {
        /// No verbs except those granted by role bindings.
        Guest = "guest",
        /// Reads everything except secrets and raw text of machines: consoles, logs, evidence.
        Viewer = "viewer",
        /// For pipelines: declares, claims and releases nodes, and keeps nodes running. Cannot
        /// wipe, adopt, approve or declare software.
        Automation = "automation",
        /// Moves nodes through their lifecycle.
        Operator = "operator",
        /// Declares the software, firmware and gates of nodes: rights equal to root on every node.
        ReleaseOwner = "release_owner",
        /// All verbs: also sites, subnets, credentials, agents, tokens and blobs.
        Admin = "admin",
    }
}

/// Every verb, with the roles holding the verb: `r` release owner, `o` operator, `u` automation,
/// `v` viewer. The administrator role holds every verb. docs/access.md shows this table in words.
pub const VERBS: [(&str, &str); 76] = [
    ("fleet.read", "rouv"),
    ("node.console", "rou"),
    ("node.evidence", "rou"),
    ("node.write", "ou"),
    ("node.unprotect", "o"),
    ("node.accept", "ou"),
    ("node.reject", "o"),
    ("node.adopt", "o"),
    ("node.inspect", "ou"),
    ("node.retry", "ou"),
    ("node.quarantine", "ou"),
    ("node.recover", "o"),
    ("node.wipe", "o"),
    ("node.drain", "ou"),
    ("node.undrain", "ou"),
    ("node.maintain", "ou"),
    ("node.resume", "ou"),
    ("node.retire", "o"),
    ("node.reinstate", "o"),
    ("node.replace-parts", "o"),
    ("node.check-drift", "ou"),
    ("node.power-on", "ou"),
    ("node.power-off", "o"),
    ("node.power-cycle", "o"),
    ("node.run-gates", "ou"),
    ("node.converge", "ou"),
    ("node.reinstall", "o"),
    ("node.sweep", "ou"),
    ("node.rotate-bmc", ""),
    ("node.rename", "o"),
    ("node.match", "o"),
    ("node.move", "o"),
    ("node.release", "ou"),
    ("claim.create", "ou"),
    ("claim.release", "ou"),
    ("operation.cancel", "ou"),
    ("approval.decide", "o"),
    ("waiver.create", "o"),
    ("breaker.reset", "o"),
    ("budget.override", "o"),
    ("claim.write-off", "o"),
    ("caution.confirm", ""),
    ("blob.write", "ru"),
    ("agent.enrol", ""),
    ("agent.remove", ""),
    ("user.read", ""),
    ("user.disable", ""),
    ("token.read", ""),
    ("token.create", "o"),
    ("token.revoke", ""),
    ("audit.read", ""),
    ("record.hold", ""),
    ("credential.use", "rou"),
    ("site.write", ""),
    ("rack.write", "ou"),
    ("subnet.write", ""),
    ("hardware_profile.write", "r"),
    ("network_profile.write", "ou"),
    ("maintenance_window.write", "ou"),
    ("monitor.write", ""),
    ("credential.write", ""),
    ("signing_key.write", ""),
    ("image.write", "r"),
    ("stack.write", "r"),
    ("suite.write", "r"),
    ("cluster.write", ""),
    ("pool.write", "rou"),
    ("pool.set-release", "r"),
    ("pool.drop-signature", ""),
    ("pool.run-pairs", "ou"),
    ("rollout.plan", "rou"),
    ("rollout.start", "o"),
    ("rollout.halt", "ou"),
    ("role_binding.write", ""),
    ("webhook.read", "rouv"),
    ("webhook.write", ""),
];

/// The verbs equal to root on nodes: the holder decides which programs, files, firmware and root
/// disks nodes get. Before the role of the release owner, operators and automation had these verbs.
pub const RELEASE_VERBS: [&str; 5] = [
    "hardware_profile.write",
    "image.write",
    "stack.write",
    "suite.write",
    "pool.set-release",
];

/// The verbs for raw text of machines: consoles, and evidence of gates with the logs of jobs. Such
/// text may contain secrets of any shape. Before these verbs, `fleet.read` was enough.
pub const RAW_VERBS: [&str; 2] = ["node.console", "node.evidence"];

/// Returns whether a role of the version before had a verb of [`RELEASE_VERBS`] or [`RAW_VERBS`]
/// that the role lost since.
pub fn had(role: Role, verb: &str) -> bool {
    match role {
        Role::Operator | Role::Automation => RELEASE_VERBS.contains(&verb),
        Role::Viewer => RAW_VERBS.contains(&verb),
        Role::Admin | Role::ReleaseOwner | Role::Guest => false,
    }
}

/// Returns whether a role has a verb. Unknown verbs belong to no role.
pub fn has(role: Role, verb: &str) -> bool {
    let Some((_, roles)) = VERBS.iter().find(|(known, _)| *known == verb) else {
        return false;
    };
    match role {
        Role::Admin => true,
        Role::ReleaseOwner => roles.contains('r'),
        Role::Operator => roles.contains('o'),
        Role::Automation => roles.contains('u'),
        Role::Viewer => roles.contains('v'),
        Role::Guest => false,
    }
}

/// Returns whether `other` has every verb of `role`.
pub fn within(role: Role, other: Role) -> bool {
    VERBS
        .iter()
        .all(|(verb, _)| !has(role, verb) || has(other, verb))
}

/// The part of the fleet where a role applies: objects matching all given fields. An empty scope is
/// the whole fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scope {
    /// Name of a site. Covers the site, the site's nodes with claims, operations and approvals, and
    /// pools with a cluster in the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Name of a rack. Covers the rack, and the rack's nodes with claims, operations and approvals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Name of a pool. Covers the pool, the pool's claims, and the claimed nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Labels required on the object, with exactly the given values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Scope {
    /// Returns whether the scope is the whole fleet.
    pub fn is_everywhere(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether every object in the scope is also in `other`.
    pub fn within(&self, other: &Self) -> bool {
        let fits =
            |mine: &Option<String>, theirs: &Option<String>| theirs.is_none() || mine == theirs;
        fits(&self.site, &other.site)
            && fits(&self.rack, &other.rack)
            && fits(&self.pool, &other.pool)
            && other
                .labels
                .iter()
                .all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

/// Grants a role within a scope to a user or group, in addition to their other roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleBindingSpec {
    /// `user:NAME`, as in events, or `group:NAME`, as named by the identity provider.
    pub subject: String,
    pub role: Role,
    #[serde(default)]
    pub scope: Scope,
}

impl Kind for RoleBindingSpec {
    const KIND: &'static str = "role_binding";
    const COLLECTION: &'static str = "role_bindings";
    const SCHEMA: &'static str = "RoleBinding";
    type Status = NoStatus;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_sets_and_the_administrator_has_all() {
        let all = [
            Role::Guest,
            Role::Viewer,
            Role::Automation,
            Role::Operator,
            Role::ReleaseOwner,
            Role::Admin,
        ];
        assert!(
            all.iter()
                .all(|role| within(*role, Role::Admin) && within(Role::Guest, *role))
        );
        assert!(within(Role::Viewer, Role::Operator) && within(Role::Viewer, Role::Automation));
        assert!(
            !within(Role::Operator, Role::Automation) && !within(Role::Automation, Role::Operator)
        );
        assert!(
            !has(Role::Admin, "node.reed"),
            "no role has an unknown verb"
        );
    }

    #[test]
    fn only_release_owners_and_administrators_hold_what_is_equal_to_root() {
        for verb in RELEASE_VERBS {
            assert!(VERBS.iter().any(|(known, _)| *known == verb), "{verb}");
            let holders = [Role::Admin, Role::ReleaseOwner];
            for role in Role::ALL {
                assert_eq!(has(*role, verb), holders.contains(role), "{role:?} {verb}");
            }
            assert!(had(Role::Operator, verb) && had(Role::Automation, verb));
            assert!(!had(Role::Viewer, verb) && !had(Role::Guest, verb));
        }
        assert!(
            !had(Role::Operator, "node.rotate-bmc") && !had(Role::Automation, "node.wipe"),
            "only the release verbs were theirs"
        );
    }

    #[test]
    fn viewers_lost_the_raw_text_of_machines_and_no_other_verb() {
        for verb in RAW_VERBS {
            assert!(VERBS.iter().any(|(known, _)| *known == verb), "{verb}");
            for role in Role::ALL {
                let without = [Role::Viewer, Role::Guest];
                assert_eq!(has(*role, verb), !without.contains(role), "{role:?} {verb}");
                assert_eq!(had(*role, verb), *role == Role::Viewer, "{role:?} {verb}");
            }
        }
        assert!(!had(Role::Viewer, "node.wipe") && has(Role::Viewer, "fleet.read"));
    }

    #[test]
    fn a_scope_lies_in_another_that_asks_for_no_more() {
        let scope = |text: &str| serde_json::from_str::<Scope>(text).unwrap();
        let everywhere = Scope::default();
        let site = scope(r#"{"site":"a"}"#);
        let rack = scope(r#"{"site":"a","rack":"r"}"#);
        let labels = scope(r#"{"site":"a","labels":{"x":"1"}}"#);
        assert!(
            rack.within(&site)
                && site.within(&everywhere)
                && labels.within(&site)
                && site.within(&site)
        );
        assert!(!site.within(&rack) && !everywhere.within(&site) && !site.within(&labels));
        assert!(!scope(r#"{"site":"b"}"#).within(&site));
    }
}

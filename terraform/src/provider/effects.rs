//! Effects of a plan on machines, as reported by the server: `POST /v1/plan`. Terraform plans
//! resource by resource. If a resource refers to an object not yet created, both are planned
//! together. Releases are counted against the limits over the whole plan. The provider guesses no
//! effects: an effect is reported as unknown if the server cannot be asked yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_api::client::ClientError;
use muster_api::plans::{Desired, MakePlan, NodesFinding, PlannedObject};
use muster_api::problem::Fault;
use muster_core::stacks::rules::Level;
use serde_json::json;

use super::state;
use crate::diagnostics::{error, path, warning};
use crate::kinds::Kind;
use crate::messages::Diagnostic;
use crate::remote::Remote;
use crate::value::{Attributes, get, has_unknown, text};

/// Maximum objects in a plan, as limited by the server.
const MOST: usize = 1000;
/// Maximum names in the summary of a warning. The detail contains all names.
const NAMED: usize = 5;
/// Kinds with changes that reach machines.
const REACHING: [&str; 6] = ["credential", "image", "stack", "cluster", "pool", "node"];
/// Blockers of a release that remain however long an apply waits.
const HELD: [&str; 3] = ["protected", "forbidden", "second_person"];

/// Objects planned so far with a configuration of the provider.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Planned objects, by kind and name.
    wanted: BTreeMap<(String, String), Desired>,
    /// Released claims, by the limit of releases.
    released: BTreeMap<String, BTreeSet<String>>,
    /// Limits already reported as exceeded.
    passed: BTreeSet<String>,
}

impl Planned {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A poisoned lock is usable, because every change under the lock is complete.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the effects on machines of creating or changing an object.
    pub(super) async fn written(
        &self,
        remote: &Remote,
        kind: &Kind,
        prior: Option<&Attributes>,
        planned: &Attributes,
        config: &Attributes,
    ) -> Vec<Diagnostic> {
        let parts = ["name", "labels", "annotations", "spec"];
        if kind.word == "token" {
            return Vec::new();
        }
        let claims = kind.word == "claim" && prior.is_none();
        if parts.iter().any(|part| has_unknown(get(planned, part))) {
            return claims.then(|| unknown_claim(planned)).into_iter().collect();
        }
        let Some(wanted) = desired(kind, planned, config) else {
            return Vec::new();
        };
        let place = (wanted.kind.clone(), wanted.name.clone());
        self.lock().wanted.insert(place, wanted.clone());
        let renamed = prior.filter(|prior| get(prior, "name") != get(planned, "name"));
        if let (Some(prior), true) = (renamed, kind.renames()) {
            return rename(remote, prior, planned).await;
        }
        let changed = prior.is_some_and(|prior| {
            parts
                .iter()
                .any(|part| get(prior, part) != get(planned, part))
        });
        let asks = claims
            || changed && REACHING.contains(&kind.word)
            || prior.is_none() && kind.word == "node";
        if !asks {
            return Vec::new();
        }
        match self.ask(remote, wanted).await {
            Ok(told) => said(kind, planned, &told),
            Err(refused) => vec![warning(
                format!("Effect of {} {}: unknown", kind.word, text(planned, "name")),
                refused.to_string(),
            )],
        }
    }

    /// Plans an object alone. If the object refers to a missing object, plans again with all
    /// objects planned earlier.
    async fn ask(&self, remote: &Remote, wanted: Desired) -> Result<PlannedObject, ClientError> {
        let told = plan(remote, &wanted, vec![wanted.clone()]).await?;
        if !told.blockers.iter().any(|fault| fault.code == "not_found") {
            return Ok(told);
        }
        let others: Vec<Desired> = {
            let inner = self.lock();
            // Only claims refer to nodes and claims, and a claim waits for the referenced objects.
            let refers = |one: &&Desired| !matches!(one.kind.as_str(), "node" | "claim");
            inner
                .wanted
                .values()
                .filter(refers)
                .take(MOST - 1)
                .cloned()
                .collect()
        };
        let mut objects: Vec<Desired> = others
            .into_iter()
            .filter(|one| (&one.kind, &one.name) != (&wanted.kind, &wanted.name))
            .collect();
        objects.push(wanted.clone());
        plan(remote, &wanted, objects).await
    }

    /// Returns the effects on a machine of destroying an object, and the reasons of the server to
    /// refuse.
    pub(super) async fn destroyed(
        &self,
        remote: &Remote,
        kind: &Kind,
        prior: &Attributes,
    ) -> Vec<Diagnostic> {
        if kind.word != "claim" {
            return Vec::new();
        }
        let (id, name) = (text(prior, "id").to_owned(), text(prior, "name"));
        let erase_now = get(prior, "erase_now").as_bool() == Some(true);
        let gone = Desired {
            kind: kind.word.into(),
            name: id.clone(),
            absent: true,
            erase_now,
            ..Desired::default()
        };
        let told = match plan(remote, &gone, vec![gone.clone()]).await {
            Ok(told) => told,
            Err(refused) => {
                return vec![warning(
                    format!("Effect of releasing {name}: unknown"),
                    refused.to_string(),
                )];
            }
        };
        let mut diagnostics = Vec::new();
        if let Some(held) = told
            .blockers
            .iter()
            .find(|fault| HELD.contains(&fault.code.as_str()))
        {
            diagnostics.extend(self.held(name, held));
        }
        diagnostics.extend(self.counted(&id, &told));
        if told.change == "delete" {
            let when = if erase_now {
                "at once, and for good"
            } else {
                "when the pool's undo window is over"
            };
            let nodes = told.nodes.join(" ");
            let detail = format!(
                "Destroying the claim {name} drains {nodes}, takes it out of its cluster and wipes its disks {when}."
            );
            diagnostics.push(warning(format!("Effect: {} {nodes}", told.effect), detail));
        }
        diagnostics
    }

    /// Returns the reason to refuse the release of a claim. An exhausted limit is reported once per
    /// plan.
    fn held(&self, name: &str, held: &Fault) -> Option<Diagnostic> {
        if held.code != "second_person" {
            return Some(error(
                format!("The claim {name} cannot be released"),
                format!("{}\n\n{}", held.detail, held.code),
            ));
        }
        let first = self.lock().passed.insert(held.detail.clone());
        first.then(|| {
            error(
                "This plan needs a second person",
                format!("{} {}", held.detail, WHAT_TO_DO),
            )
        })
    }

    /// Counts a release against the limits of the plan. Returns an error for the first release
    /// beyond each limit.
    fn counted(&self, id: &str, told: &PlannedObject) -> Vec<Diagnostic> {
        let mut inner = self.lock();
        let mut diagnostics = Vec::new();
        for limit in &told.limits {
            let released = inner.released.entry(limit.of.clone()).or_default();
            released.insert(id.to_owned());
            let beyond = released.len() > usize::try_from(limit.left).unwrap_or(usize::MAX);
            if beyond && inner.passed.insert(limit.of.clone()) {
                let told = format!(
                    "{} may release {} nodes in an hour, of which {} are left; this plan releases more. {WHAT_TO_DO}",
                    limit.of, limit.per_hour, limit.left,
                );
                diagnostics.push(error("This plan is beyond the limit of releases", told));
            }
        }
        diagnostics
    }
}

const WHAT_TO_DO: &str = "Nothing was released. If the nodes were dropped by mistake, put their claims back into the configuration. If not: \
                          release fewer at once (-target), wait until the hour is over, leave out `erase_now`, or \
                          ask for a second person with `muster claim delete CLAIM` for each; whoever agrees does so by `muster approval approve ID` or on the page of claims.";

async fn plan(
    remote: &Remote,
    wanted: &Desired,
    objects: Vec<Desired>,
) -> Result<PlannedObject, ClientError> {
    let plan = remote.client.plan(&MakePlan { objects }).await?;
    let own = plan
        .objects
        .into_iter()
        .find(|one| one.kind == wanted.kind && one.name == wanted.name);
    own.ok_or_else(|| ClientError::Usage("the server's plan leaves the object out".into()))
}

fn desired(kind: &Kind, planned: &Attributes, config: &Attributes) -> Option<Desired> {
    let mut draft = state::draft(kind, planned, Some(config));
    draft["kind"] = kind.word.into();
    draft["name"] = text(planned, "name").into();
    serde_json::from_value(draft).ok()
}

/// Returns a warning for a reboot, reinstall or wipe, and a warning for the current blockers.
fn said(kind: &Kind, planned: &Attributes, told: &PlannedObject) -> Vec<Diagnostic> {
    let name = text(planned, "name");
    let blockers: Vec<String> = told
        .blockers
        .iter()
        .map(|fault| format!("{} {}", fault.pointer, fault.detail))
        .collect();
    let blockers = blockers.join(" ");
    if kind.word == "claim" {
        return [
            vec![claim(planned, told, blockers.trim())],
            unfit(kind, name, told),
        ]
        .concat();
    }
    let mut diagnostics = unfit(kind, name, told);
    if !blockers.is_empty() {
        let detail = format!(
            "As things stand, the server would refuse it: {}",
            blockers.trim()
        );
        diagnostics.push(warning(
            format!("The {} {name} cannot be written yet", kind.word),
            detail,
        ));
    }
    if matches!(told.effect.as_str(), "reboot" | "reinstall" | "wipe") {
        let when = match told.begins {
            true => "at once",
            false => "when the change is installed on each; until then they keep what they have",
        };
        let detail = format!(
            "Writing the {} {name} means {} for {} of the fleet's nodes, {when}: {}.",
            kind.word,
            told.effect,
            told.node_count,
            told.nodes.join(" "),
        );
        // For a node, the summary omits the name: Terraform shows the resource's name, and merges
        // warnings with equal summaries.
        let summary = match kind.word {
            "node" => format!("Effect: {}", told.effect),
            _ => format!("Effect: {} {}", told.effect, few(&told.nodes)),
        };
        diagnostics.push(warning(summary, detail));
    }
    diagnostics
}

/// Returns a warning for each rule which refuses the stack on nodes or cannot be evaluated there.
fn unfit(kind: &Kind, name: &str, told: &PlannedObject) -> Vec<Diagnostic> {
    let one = |found: &NodesFinding| {
        let nodes = few(&found.nodes);
        let summary = match found.finding.level {
            Level::Refused => format!("The {} {name}: its stack cannot go onto {nodes}", kind.word),
            Level::Unknown | Level::Note => {
                format!("The {} {name}: not known of {nodes}", kind.word)
            }
        };
        warning(summary, found.finding.to_string())
    };
    told.findings.iter().map(one).collect()
}

fn few(nodes: &[String]) -> String {
    match nodes.len() > NAMED {
        true => format!(
            "{} and {} more",
            nodes[..NAMED].join(" "),
            nodes.len() - NAMED
        ),
        false => nodes.join(" "),
    }
}

fn claim(planned: &Attributes, told: &PlannedObject, blockers: &str) -> Diagnostic {
    let name = text(planned, "name");
    let spec = |pointer: &str| {
        let spec = state::draft(crate::kinds::claim(), planned, None);
        spec["spec"][pointer].as_str().map(str::to_owned)
    };
    let pool = spec("pool").unwrap_or_else(|| "a pool".into());
    let (node, or) = match (spec("node"), told.nodes.first()) {
        (Some(node), _) => (node, ""),
        (None, Some(node)) => (node.clone(), ", or of another one that fits by then,"),
        (None, None) => ("an available node that fits".into(), ""),
    };
    let mut detail = format!(
        "The claim {name} writes the image of {pool} onto the root disk of {node}{or} and reboots it."
    );
    if !told.gates.is_empty() {
        detail.push_str(&format!(" Then it must pass: {}.", told.gates.join(" ")));
    }
    if !blockers.is_empty() {
        detail.push_str(&format!(
            " As things stand, the server would refuse it: {blockers}"
        ));
    }
    warning(format!("Effect: reinstall {node}"), detail)
}

fn unknown_claim(planned: &Attributes) -> Diagnostic {
    let detail = "Which node that is, is only known when the apply comes to it: its root disk is written, and it is rebooted.";
    warning(
        format!("Effect: reinstall, by the claim {}", text(planned, "name")),
        detail,
    )
}

/// Checks the rename of a node with the server. A renamed node keeps its id and all recorded data.
/// The rename of a claimed node is refused.
async fn rename(remote: &Remote, prior: &Attributes, planned: &Attributes) -> Vec<Diagnostic> {
    let (from, to) = (text(prior, "name"), text(planned, "name"));
    let refuse = |detail: String| Diagnostic {
        attribute: Some(path("name")),
        ..error(format!("The node {from} cannot be renamed"), detail)
    };
    match remote
        .client
        .plan_node(text(prior, "id"), "rename", &json!({ "name": to }))
        .await
    {
        Ok(told) if told.blockers.is_empty() => Vec::new(),
        Ok(told) => vec![refuse(told.blockers.join(" "))],
        Err(refused) => vec![refuse(refused.to_string())],
    }
}

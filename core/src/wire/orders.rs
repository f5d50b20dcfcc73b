//! Order kinds supported by an agent. The agent lists them in each call for jobs, and receives no
//! other kinds. An agent of the previous version continues with all known kinds; other jobs wait
//! for a newer agent. Fields added later to a known kind are removed for an older agent.

use serde_json::Value;

use super::bmc::Power;
use super::calls::LeasedJobs;
use super::job::{Job, JobSpec};
use super::members::ClusterMembers;
use super::node::GatePlan;
use crate::stacks::ConvergePlan;

/// Header of a call for jobs: the supported kinds of orders, separated by commas. A server ignoring
/// this header is of the previous version and sends no kind unknown to the agent.
pub const ORDERS: &str = "muster-orders";

/// The kinds of orders supported by this build: those of [`JobSpec`]. New
/// kinds are appended.
pub const KINDS: &[&str] = &[
    "boot_live",
    "inventory",
    "power_off",
    "write_image",
    "boot_disk",
    "converge",
    "reboot",
    "gates",
    "admit",
    "drain",
    "remove",
    "wipe",
    "adopt",
    "power_on",
    "power_cycle",
    "rotate_bmc",
    "pair",
    "firmware",
];

/// Kinds renamed since the previous version, with the former name. The former order had a Slurm
/// cluster without `kind`. Removed with the next version.
pub const FORMER: [(&str, &str); 3] = [
    ("admit", "slurm_admit"),
    ("drain", "slurm_drain"),
    ("remove", "slurm_remove"),
];

/// The expected machine behind a BMC, in every order with a BMC.
const MACHINE: &str = "machine";
/// The only drain reason lifted by an admission.
const LIFTS: &str = "lifts";
/// End times of waivers of gates.
const WAIVED_UNTIL: &str = "waived_until";

/// A drain that requeues the jobs of the node. Without the field the jobs run to their end.
const REQUEUE: &str = "requeue";
/// The operation and the request behind a job, for the agent's log.
const ORIGIN: &str = "origin";
/// The CDI specification in a converge plan.
const CDI: &str = "cdi";

/// The protection of a node, in an order for gates.
const PROTECTED: &str = "protected";

/// The networks of a site's BMCs, in every order with a BMC.
const BMC_NETWORKS: &str = "bmc_networks";

/// The signature of an image, in an order to write the image.
const SIGNED_IMAGE: &str = "signed_image";

/// The signature of the live image, in an order to boot the live image.
const LIVE_SIGNATURE: &str = "live_signature";
/// The SSH certificates that the node must refuse, in every order.
const REVOKED_KEYS: &str = "revoked_keys";

/// Fields added to orders after the kind's first version, listed in the header beside the kinds. An
/// agent that does not list a field would reject the complete order because of the field. Each
/// order must therefore also work without the field.
pub const MEMBERS: &[&str] = &[
    MACHINE,
    LIFTS,
    WAIVED_UNTIL,
    REQUEUE,
    ORIGIN,
    CDI,
    PROTECTED,
    BMC_NETWORKS,
    SIGNED_IMAGE,
    LIVE_SIGNATURE,
    REVOKED_KEYS,
];

/// Fields added to the configuration of a site, listed in the header beside the kinds.
pub const SITE_MEMBERS: &[&str] = &["console_networks"];

/// Several SSH user CAs in a converge plan, one on each line, during a rotation of the CA. An agent
/// without the word gets the first CA alone.
const USER_CAS: &str = "user_cas";

/// The switch above the switches of the racks, in a list of members.
const SPINE: &str = "spine";

/// Words of the header beside the kinds and the fields.
pub const WORDS: &[&str] = &[USER_CAS, SPINE];

/// Returns the header value of this build.
pub fn said() -> String {
    let former = FORMER.map(|(_, former)| former);
    [KINDS, MEMBERS, SITE_MEMBERS, WORDS, &former]
        .concat()
        .join(",")
}

/// Returns whether an agent with this header value, or without the header, reads every field of
/// [`SITE_MEMBERS`].
pub fn reads_site(header: Option<&str>) -> bool {
    let reads = |said: &str| SITE_MEMBERS.iter().all(|word| lists_word(said, word));
    header.is_some_and(reads)
}

/// Returns the members without the switches, for an agent that would write switches without the
/// switch above.
pub fn readable_members(header: Option<&str>, mut members: ClusterMembers) -> ClusterMembers {
    if !header.is_some_and(|said| lists_word(said, SPINE)) {
        for node in &mut members.nodes {
            (node.switch, node.spine) = (None, None);
        }
    }
    members
}

/// Kinds supported by an agent without the header: the last version without the header had the
/// kinds up to `power_cycle`.
pub const UNSAID: &[&str] = KINDS.split_at(15).0;

/// Returns whether an agent with this header value, or without the header, supports a kind of
/// order.
pub fn reads(header: Option<&str>, kind: &str) -> bool {
    match header {
        Some(said) => {
            lists_word(said, kind)
                || find_former_kind(kind).is_some_and(|former| lists_word(said, former))
        }
        None => UNSAID.contains(&kind),
    }
}

fn find_former_kind(kind: &str) -> Option<&'static str> {
    let renamed = FORMER.iter().find(|(today, _)| *today == kind);
    renamed.map(|(_, former)| *former)
}

/// Returns the current name of a listed kind; `None` for a word of another meaning.
pub fn current_kind(word: &str) -> Option<&'static str> {
    let renamed = FORMER.iter().find(|(_, former)| *former == word);
    let today = renamed.map_or(word, |(today, _)| today);
    KINDS.iter().find(|kind| **kind == today).copied()
}

/// Returns the jobs as JSON. An agent that does not list a renamed kind receives the order in its
/// former form.
///
/// # Errors
/// When a job cannot be written as JSON.
pub fn write(header: Option<&str>, jobs: &LeasedJobs) -> serde_json::Result<Value> {
    let mut written = serde_json::to_value(jobs)?;
    let listed = written["jobs"].as_array_mut().into_iter().flatten();
    for order in listed.map(|job| &mut job["spec"]) {
        let kind = order["kind"].as_str().unwrap_or_default();
        let known = header.is_some_and(|said| lists_word(said, kind));
        if let Some(former) = find_former_kind(kind).filter(|_| !known) {
            order["kind"] = former.into();
            order["cluster"]
                .as_object_mut()
                .map(|cluster| cluster.remove("kind"));
        }
    }
    Ok(written)
}

fn lists_word(said: &str, word: &str) -> bool {
    said.split(',').any(|one| one.trim() == word)
}

/// Returns the order without fields unknown to an agent with this header value, or without the
/// header.
pub fn readable(header: Option<&str>, mut job: Job) -> Job {
    let lacks = |member: &str| !header.is_some_and(|said| lists_word(said, member));
    if lacks(ORIGIN) {
        job.origin = None;
    }
    if lacks(REVOKED_KEYS) {
        job.revoked_keys = None;
    }
    if lacks(MACHINE) {
        match find_power(&mut job.spec) {
            Some(Power::Redfish(target)) => target.machine = None,
            Some(Power::Ipmi(target)) => target.machine = None,
            Some(Power::Manual { .. }) | None => {}
        }
    }
    if lacks(BMC_NETWORKS) {
        match find_power(&mut job.spec) {
            Some(Power::Redfish(target)) => target.bmc_networks.clear(),
            Some(Power::Ipmi(target)) => target.bmc_networks.clear(),
            Some(Power::Manual { .. }) | None => {}
        }
    }
    if let JobSpec::Admit { lifts, .. } = &mut job.spec
        && lacks(LIFTS)
    {
        *lifts = None;
    }
    if let JobSpec::Drain { requeue, .. } = &mut job.spec
        && lacks(REQUEUE)
    {
        *requeue = false;
    }
    if let JobSpec::BootLive(order) = &mut job.spec
        && lacks(LIVE_SIGNATURE)
    {
        order.live_signature = None;
    }
    if let JobSpec::WriteImage { plan, .. } = &mut job.spec
        && lacks(SIGNED_IMAGE)
    {
        plan.signed_image = None;
    }
    for plan in find_gates(&mut job.spec) {
        if lacks(WAIVED_UNTIL) {
            plan.waived_until.clear();
        }
        if lacks(PROTECTED) {
            plan.protected = false;
        }
    }
    if lacks(CDI) {
        find_stacks(&mut job.spec).for_each(|plan| plan.cdi = false);
    }
    if lacks(USER_CAS) {
        find_stacks(&mut job.spec).for_each(|plan| {
            let first = plan.user_ca.lines().next().unwrap_or_default();
            plan.user_ca = first.to_owned();
        });
    }
    job
}

/// Returns the converge plans of an order.
fn find_stacks(spec: &mut JobSpec) -> impl Iterator<Item = &mut ConvergePlan> {
    let (converge, gates) = find_plans(spec);
    let of_gates = gates.into_iter().filter_map(|plan| plan.stack.as_mut());
    converge.into_iter().chain(of_gates)
}

/// Returns the plans of gates of an order.
fn find_gates(spec: &mut JobSpec) -> Vec<&mut GatePlan> {
    find_plans(spec).1
}

fn find_plans(spec: &mut JobSpec) -> (Option<&mut ConvergePlan>, Vec<&mut GatePlan>) {
    match spec {
        JobSpec::Converge { plan, .. } => (Some(plan), Vec::new()),
        JobSpec::Gates { plan, .. } => (None, vec![plan]),
        JobSpec::Pair(order) => {
            let plans = order.ends.iter_mut().map(|end| &mut end.plan);
            (None, plans.collect())
        }
        JobSpec::BootLive(_)
        | JobSpec::RotateBmc(_)
        | JobSpec::Firmware(_)
        | JobSpec::Inventory { .. }
        | JobSpec::PowerOff { .. }
        | JobSpec::WriteImage { .. }
        | JobSpec::BootDisk { .. }
        | JobSpec::Reboot { .. }
        | JobSpec::Admit { .. }
        | JobSpec::Drain { .. }
        | JobSpec::Remove { .. }
        | JobSpec::Wipe { .. }
        | JobSpec::Adopt(_)
        | JobSpec::PowerOn { .. }
        | JobSpec::PowerCycle { .. } => (None, Vec::new()),
    }
}

/// Returns the power control of an order's machine, if the order has one.
fn find_power(spec: &mut JobSpec) -> Option<&mut Power> {
    match spec {
        JobSpec::BootLive(order) => Some(&mut order.power),
        JobSpec::RotateBmc(order) => Some(&mut order.power),
        JobSpec::Firmware(order) => Some(&mut order.power),
        JobSpec::PowerOff { power, .. }
        | JobSpec::BootDisk { power, .. }
        | JobSpec::Reboot { power, .. }
        | JobSpec::PowerOn { power, .. }
        | JobSpec::PowerCycle { power, .. } => Some(power),
        JobSpec::Inventory { .. }
        | JobSpec::WriteImage { .. }
        | JobSpec::Converge { .. }
        | JobSpec::Gates { .. }
        | JobSpec::Admit { .. }
        | JobSpec::Drain { .. }
        | JobSpec::Remove { .. }
        | JobSpec::Wipe { .. }
        | JobSpec::Adopt(_)
        | JobSpec::Pair(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_order_is_in_the_list() {
        // serde lists all known kinds in the error for an unknown kind.
        let error = serde_json::from_str::<JobSpec>(r#"{"kind":"none of them"}"#)
            .unwrap_err()
            .to_string();
        let known: Vec<&str> = error
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| {
                *word != "none of them" && !FORMER.iter().any(|(_, former)| former == word)
            })
            .collect();
        assert_eq!(known, KINDS, "{error}");
    }

    #[test]
    fn an_agent_is_given_what_it_says_it_reads() {
        assert!(reads(Some("wipe, gates"), "gates") && !reads(Some("wipe, gates"), "gate"));
        assert!(!reads(Some(""), "wipe") && !reads(Some("rubbish\u{1}"), "wipe"));
        assert!(reads(None, "wipe") && !reads(None, "rotate_bmc"));
        assert_eq!(UNSAID.last(), Some(&"power_cycle"));
        assert!(KINDS.iter().all(|kind| reads(Some(&said()), kind)));
    }

    #[test]
    fn an_older_agent_is_given_no_switches() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/cluster-members.json");
        let text = std::fs::read_to_string(path).unwrap();
        let mut members: ClusterMembers = serde_json::from_str(&text).unwrap();
        members.nodes[0].spine = Some("core-1".into());
        assert_eq!(readable_members(Some(&said()), members.clone()), members);
        for older in [None, Some("admit,user_cas")] {
            let given = readable_members(older, members.clone());
            let node = &given.nodes[0];
            assert_eq!((&node.switch, &node.spine), (&None, &None));
        }
    }

    #[test]
    fn an_older_agent_is_given_the_former_user_ca_alone() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/job-converge.json");
        let text = std::fs::read_to_string(path).unwrap();
        let mut job: Job = serde_json::from_str(&text).unwrap();
        let former = job.clone();
        find_stacks(&mut job.spec).for_each(|plan| plan.user_ca += "\nssh-ed25519 BBBB");
        assert_eq!(readable(Some(&said()), job.clone()), job);
        for header in [None, Some(KINDS.join(","))] {
            let given = readable(header.as_deref(), job.clone());
            assert_eq!(given, readable(header.as_deref(), former.clone()));
        }
    }

    #[test]
    fn an_older_agent_is_given_no_networks_of_consoles() {
        assert!(reads_site(Some(&said())));
        assert!(!reads_site(None) && !reads_site(Some(&KINDS.join(","))));
    }

    #[test]
    fn a_renamed_order_has_its_former_form_for_an_older_agent() {
        let golden = |name: &str| -> Value {
            let path = format!("{}/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let (today, former) = (golden("job-admit-back"), golden("job-admit-former"));
        let job: Job = serde_json::from_value(former.clone()).unwrap();
        let jobs = LeasedJobs { jobs: vec![job] };
        for (header, order) in [("slurm_admit,lifts", former), (&said(), today)] {
            let written = write(Some(header), &jobs).unwrap();
            assert_eq!(written, serde_json::json!({ "jobs": [order] }), "{header}");
        }
        assert!(reads(Some("slurm_admit"), "admit") && !reads(Some("slurm_drain"), "admit"));
    }

    #[test]
    fn an_older_agent_is_given_no_member_that_it_does_not_name() {
        let goldens = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
        let mut gained = std::collections::BTreeSet::new();
        for file in std::fs::read_dir(goldens).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let Ok(job) = serde_json::from_str::<Job>(&text) else {
                continue;
            };
            let has = |job: &Job| -> Vec<&str> {
                let text = serde_json::to_string(job).unwrap();
                MEMBERS
                    .iter()
                    .copied()
                    .filter(|member| text.contains(&format!("\"{member}\":")))
                    .collect()
            };
            gained.extend(has(&job));
            for header in [None, Some(KINDS.join(","))] {
                assert_eq!(has(&readable(header.as_deref(), job.clone())), [""; 0]);
            }
            assert_eq!(readable(Some(&said()), job.clone()), job);
        }
        assert!(
            gained.iter().copied().eq([
                "bmc_networks",
                "cdi",
                "lifts",
                "live_signature",
                "machine",
                "origin",
                "protected",
                "requeue",
                "revoked_keys",
                "signed_image",
                "waived_until"
            ]),
            "an order with each is written down: {gained:?}"
        );
    }
}

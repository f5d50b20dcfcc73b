//! Slurm: the declared controller, the configuration files of the members, and drain reasons.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{DrainReason, DrainedBy, Member};

/// Prefix of every drain reason set by Muster. A node drained with another reason is under
/// somebody's control, and Muster leaves the node alone.
pub const OUR_REASON: &str = "muster:";
/// Start of a reason by the health check, after the prefix.
const FINDING: &str = "gate ";
/// Drain reasons written by slurmctld after losing contact with a node. No person set these
/// reasons, so Muster may act on a node back in contact without overriding a person's decision.
pub const LOST_CONTACT: [&str; 2] = ["Not responding", "Node unexpectedly rebooted"];

/// A Slurm controller reached by the site's agent with `scontrol`, and the directory of the
/// included files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SlurmCluster {
    /// The site whose agent contacts the controller.
    pub site: String,
    /// Path of the slurm.conf used by `scontrol` on the agent's host.
    pub conf: String,
    /// Directory of `muster-nodes.conf`, `muster-gres.conf` and `muster-topology.conf`, included by
    /// slurm.conf.
    pub include_dir: String,
    pub partition: String,
    /// Address of the controller for nodes; `${cluster_address}` in stacks.
    pub address: String,
}

/// Returns the owner of a drain with this reason, as stored by slurmctld.
pub fn drained_by(reason: &str) -> DrainedBy {
    let ours = DrainReason::ALL
        .into_iter()
        .find(|ours| ours.as_str() == reason);
    match (ours, reason.strip_prefix(OUR_REASON)) {
        (Some(ours), _) => DrainedBy::Muster(ours),
        (None, Some(finding)) => match finding.trim_start() {
            finding if finding.starts_with(FINDING) => DrainedBy::HealthCheck(finding.to_owned()),
            _ => DrainedBy::Unknown,
        },
        (None, None) if LOST_CONTACT.contains(&reason) => DrainedBy::Scheduler,
        (None, None) => DrainedBy::Others,
    }
}

const HEADER: &str = "# Written by Muster from the hardware profiles of admitted nodes. Changes made by hand are lost.\n";

/// Renders `muster-nodes.conf`: a NodeName line per node, and the partition over all nodes
/// (slurm.conf(5)).
///
/// slurmctld 22.05 does not start without a partition or without a node. The partition is therefore
/// always declared, and an empty cluster gets a single `FUTURE` node, which Slurm hides from users.
pub fn render_nodes(nodes: &[Member], partition: &str) -> String {
    let mut text = HEADER.to_owned();
    for node in nodes {
        write!(
            text,
            "NodeName={} NodeAddr={} Sockets={} CoresPerSocket={} ThreadsPerCore={} RealMemory={}",
            node.name,
            node.address,
            node.sockets,
            node.cores_per_socket,
            node.threads_per_core,
            node.real_memory
        )
        .expect("writing to a string cannot fail");
        if let Some((model, count)) = &node.gpus {
            write!(text, " Gres=gpu:{model}:{count}").expect("writing to a string cannot fail");
        }
        if !node.features.is_empty() {
            write!(text, " Feature={}", node.features.join(","))
                .expect("writing to a string cannot fail");
        }
        text.push_str(" State=UNKNOWN\n");
    }
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let members = match names.is_empty() {
        true => {
            text.push_str("NodeName=muster-none State=FUTURE\n");
            String::new()
        }
        false => format!(" Nodes={}", names.join(",")),
    };
    writeln!(
        text,
        "PartitionName={partition}{members} Default=YES MaxTime=INFINITE State=UP"
    )
    .expect("writing to a string cannot fail");
    text
}

/// Renders `muster-gres.conf`: device files per GPU node. A count alone registers no GPU and drains
/// the node (gres.conf(5)).
pub fn render_gres(nodes: &[Member]) -> String {
    let mut text = HEADER.to_owned();
    for node in nodes {
        if let Some((model, count)) = &node.gpus {
            writeln!(
                text,
                "NodeName={} Name=gpu Type={model} File={}",
                node.name,
                gpu_files(model, *count)
            )
            .expect("writing to a string cannot fail");
        }
    }
    text
}

/// Number of the first render node of the kernel (drm_drv.c: the minors of a type begin at 64 times
/// the type, and render nodes are type 2).
const FIRST_RENDER_NODE: u32 = 128;
/// Render nodes of a GPU with compute partitions: amdgpu allocates all of them at the start, also
/// for an undivided GPU (`amdgpu_xcp_dev_alloc` in amdgpu_xcp.c of Linux 6.5, `MAX_XCP`).
const PARTITIONS: u32 = 8;

/// Returns the device files of the GPUs. An AMD GPU has a render node in `/dev/dri`. The KFD device
/// `/dev/kfd` belongs to all GPUs of a node, so no GPU lists the file: Slurm would take the file
/// from jobs with other GPUs. The driver shows a job only the GPUs whose render node the job may open
/// (`kfd_devcgroup_check_permission` in kfd_priv.h of Linux 6.6).
fn gpu_files(model: &str, count: u32) -> String {
    let last = count.saturating_sub(1);
    let Some(number) = amd_number(model) else {
        return format!("/dev/nvidia[0-{last}]");
    };
    // Models from the MI300 series have partitions.
    let step = if number >= 300 { PARTITIONS } else { 1 };
    let at = |index: u32| FIRST_RENDER_NODE.saturating_add(index.saturating_mul(step));
    match step {
        1 => format!("/dev/dri/renderD[{}-{}]", at(0), at(last)),
        _ => {
            let numbers: Vec<String> = (0..count).map(|index| at(index).to_string()).collect();
            format!("/dev/dri/renderD[{}]", numbers.join(","))
        }
    }
}

/// Returns the number of an AMD Instinct model: 300 for `mi300x` and `amd_instinct_mi300x`. `None`
/// for all other models.
fn amd_number(model: &str) -> Option<u32> {
    let digits = model.split('_').find_map(|word| word.strip_prefix("mi"))?;
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// Renders `muster-topology.conf`: a leaf switch per rack, under the switch that connects the
/// leaves (topology.conf(5)). Leaves without a connection keep each job within one rack, so the file
/// has no switch unless every leaf is connected to the same switch.
pub fn render_topology(nodes: &[Member]) -> String {
    let mut text = HEADER.to_owned();
    let mut leaves: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut spine = None;
    for node in nodes {
        let (Some(leaf), Some(above)) = (&node.switch, &node.spine) else {
            return text;
        };
        if *spine.get_or_insert(above) != above {
            return text;
        }
        leaves.entry(leaf).or_default().push(&node.name);
    }
    let Some(spine) = spine.filter(|spine| !leaves.contains_key(spine.as_str())) else {
        return text;
    };
    let names: Vec<&str> = leaves.keys().copied().collect();
    for (leaf, nodes) in &leaves {
        writeln!(text, "SwitchName={leaf} Nodes={}", nodes.join(","))
            .expect("writing to a string cannot fail");
    }
    writeln!(text, "SwitchName={spine} Switches={}", names.join(","))
        .expect("writing to a string cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_muster_is_read_back() {
        for reason in DrainReason::ALL {
            assert_eq!(drained_by(reason.as_str()), DrainedBy::Muster(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
        let finding = crate::recovery::Unfit {
            gate: "kernel.new".into(),
            action: None,
            message: "kernel.xid_fatal is 1 events".into(),
        };
        let finding = finding.to_string();
        let written = format!("{OUR_REASON} {finding}");
        assert_eq!(drained_by(&written), DrainedBy::HealthCheck(finding));
        assert_eq!(drained_by("Not responding"), DrainedBy::Scheduler);
        assert_eq!(drained_by("NHC: fan 3"), DrainedBy::Others);
        assert_eq!(drained_by("muster: a later version"), DrainedBy::Unknown);
        assert_eq!(DrainedBy::read(None), DrainedBy::Unknown);
    }

    fn node(name: &str) -> Member {
        Member {
            name: name.into(),
            address: "10.77.0.11".parse().unwrap(),
            sockets: 2,
            cores_per_socket: 56,
            threads_per_core: 2,
            real_memory: 2_000_000,
            gpus: Some(("h100".into(), 8)),
            features: vec!["stack_abc".into()],
            switch: Some("r1".into()),
            spine: Some("core-1".into()),
        }
    }

    fn switches(nodes: &[Member]) -> Vec<String> {
        let text = render_topology(nodes);
        text.lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn racks_are_leaves_only_under_a_declared_switch() {
        let mut nodes = [node("n1"), node("n2"), node("n3")];
        nodes[2].switch = Some("r2".into());
        let expected = [
            "SwitchName=r1 Nodes=n1,n2",
            "SwitchName=r2 Nodes=n3",
            "SwitchName=core-1 Switches=r1,r2",
        ];
        assert_eq!(switches(&nodes), expected);
        let with = |change: fn(&mut Member)| {
            let mut nodes = nodes.clone();
            change(&mut nodes[2]);
            switches(&nodes)
        };
        assert!(with(|node| node.spine = None).is_empty());
        assert!(with(|node| node.switch = None).is_empty(), "no rack");
        let other = |node: &mut Member| node.spine = Some("core-2".into());
        assert!(with(other).is_empty(), "two unconnected halves");
        let same = |node: &mut Member| node.switch = Some("core-1".into());
        assert!(with(same).is_empty(), "a rack with the name of the spine");
        assert!(switches(&[]).is_empty());
    }

    #[test]
    fn gpus_have_the_device_files_of_their_driver() {
        for (model, count, expected) in [
            ("h100", 8, "/dev/nvidia[0-7]"),
            ("gb200", 4, "/dev/nvidia[0-3]"),
            ("mi250x", 16, "/dev/dri/renderD[128-143]"),
            ("amd_instinct_mi210", 4, "/dev/dri/renderD[128-131]"),
            (
                "mi300x",
                8,
                "/dev/dri/renderD[128,136,144,152,160,168,176,184]",
            ),
            ("mi355x", 2, "/dev/dri/renderD[128,136]"),
            ("mig", 1, "/dev/nvidia[0-0]"),
        ] {
            assert_eq!(gpu_files(model, count), expected, "{model}");
        }
    }

    #[test]
    fn renders_what_slurm_reads() {
        let nodes = [node("n1"), node("n2")];
        insta::assert_snapshot!(format!("{}---\n{}---\n{}", render_nodes(&nodes, "gpu"), render_gres(&nodes), render_topology(&nodes)), @"
        # Written by Muster from the hardware profiles of admitted nodes. Changes made by hand are lost.
        NodeName=n1 NodeAddr=10.77.0.11 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2000000 Gres=gpu:h100:8 Feature=stack_abc State=UNKNOWN
        NodeName=n2 NodeAddr=10.77.0.11 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2000000 Gres=gpu:h100:8 Feature=stack_abc State=UNKNOWN
        PartitionName=gpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
        ---
        # Written by Muster from the hardware profiles of admitted nodes. Changes made by hand are lost.
        NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-7]
        NodeName=n2 Name=gpu Type=h100 File=/dev/nvidia[0-7]
        ---
        # Written by Muster from the hardware profiles of admitted nodes. Changes made by hand are lost.
        SwitchName=r1 Nodes=n1,n2
        SwitchName=core-1 Switches=r1
        ");
    }

    #[test]
    fn an_empty_cluster_keeps_its_partition_and_a_hidden_node() {
        let text = render_nodes(&[], "gpu");
        let rest = text.strip_prefix(HEADER).unwrap();
        assert_eq!(
            rest,
            "NodeName=muster-none State=FUTURE\nPartitionName=gpu Default=YES MaxTime=INFINITE State=UP\n"
        );
    }
}

//! Drains the node in Slurm when the node is not fit for jobs. A drain set by another person is
//! never overwritten: the person's reason would be lost, and Muster would later treat the drain as
//! its own.

use std::time::Duration;

use muster_core::clusters::slurm::{LOST_CONTACT, OUR_REASON};
use muster_core::recovery::Unfit;
use muster_core::wire::node::Failure;

use crate::job::JobContext;
use crate::tool::{self, Call};
use crate::{files, paths};

/// Longest reason, in characters, as shown by a scheduler beside a node.
const REASON_MAX: usize = 200;
/// Deadline of the query and the drain together.
const DRAIN: Duration = Duration::from_secs(10);

/// Drains the node in Slurm; running jobs continue. Returns whether Slurm has the node drained for
/// this gate now. The node's name is taken from Slurm's environment (`SLURMD_NODENAME`), or from
/// the host name. A drain for the same gate is left unchanged, because a reason with a new value
/// would cause an event each time.
pub(crate) fn drain(reason: &str) -> bool {
    let host = || {
        let name = files::read_capped(&paths::at("/proc/sys/kernel/hostname"), 256).ok()?;
        String::from_utf8(name)
            .ok()
            .map(|name| name.trim().to_owned())
    };
    let Some(node) = std::env::var("SLURMD_NODENAME").ok().or_else(host) else {
        return false;
    };
    let cx = JobContext::foreground(DRAIN);
    let Some(shown) = scontrol(&cx, &["show", "node", &node]) else {
        return false;
    };
    let Some(out) = kept_out(&shown) else {
        eprintln!(
            "muster-node: {node} is not drained: the output of scontrol show node was not understood"
        );
        return false;
    };
    let gate = |reason: &str| Unfit::parse(reason).map(|unfit| unfit.gate);
    match out.strip_prefix(OUR_REASON).map(str::trim_start) {
        Some(told) if told.starts_with("gate ") => return gate(told) == gate(reason),
        None if !out.is_empty() && !LOST_CONTACT.iter().any(|lost| out.starts_with(lost)) => {
            eprintln!(
                "muster-node: {node} is already kept from jobs for another reason and stays unchanged: {out}"
            );
            return false;
        }
        Some(_) | None => {}
    }
    let plain = |c: char| if c.is_control() || c == '"' { ' ' } else { c };
    let why: String = reason.chars().map(plain).take(REASON_MAX).collect();
    let (node, why) = (
        format!("NodeName={node}"),
        format!("Reason={OUR_REASON} {why}"),
    );
    scontrol(&cx, &["update", &node, "State=DRAIN", &why]).is_some()
}

/// Runs scontrol and returns its output; `None` after a failure, printed on stderr.
fn scontrol(cx: &JobContext, arguments: &[&str]) -> Option<String> {
    let argv = [&["scontrol"][..], arguments].concat();
    match tool::run(
        cx,
        &Call {
            argv: &argv,
            ..Call::default()
        },
    ) {
        Ok(done) if done.status.success() => {
            return Some(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        Ok(done) => eprintln!(
            "muster-node: scontrol failed: {}",
            tool::tail(&done.stderr, 300)
        ),
        Err(error) => eprintln!("muster-node: {}", Failure::from(error).message),
    }
    None
}

/// Returns the reason of a node kept from jobs, from `scontrol show node`. Empty for a node
/// available for jobs, or kept out without a reason; `None` for other text.
fn kept_out(shown: &str) -> Option<&str> {
    let line = |name: &str| {
        shown
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(name))
    };
    let state = line("State=")?.split_whitespace().next()?;
    // Older versions add a mark to an uncertain state, as in `DOWN*`.
    let mut words = state
        .split('+')
        .map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphabetic()));
    match words.any(|word| matches!(word, "DRAIN" | "DOWN" | "FAIL")) {
        true => Some(line("Reason=").unwrap_or_default().trim()),
        false => Some(""),
    }
}

#[cfg(test)]
mod tests {
    use super::kept_out;

    #[test]
    fn a_node_is_kept_out_by_its_state_and_for_its_reason() {
        let shown = |state: &str| {
            format!(
                "NodeName=n7 Arch=x86_64 CoresPerSocket=1 \n   OS=Linux 6.1.0 State=DOWN\n   State={state} ThreadsPerCore=1 TmpDisk=0\n   \
                 NextState=DOWN\n   Reason=replacing fan 3 [bob@2026-11-20T09:19:17]\n"
            )
        };
        for (state, out) in [
            ("IDLE+DRAIN", true),
            ("MIXED+DRAIN+NOT_RESPONDING", true),
            ("DOWN*", true),
            ("IDLE+FAIL", true),
            ("IDLE", false),
            ("ALLOCATED+COMPLETING", false),
        ] {
            let reason = if out {
                "replacing fan 3 [bob@2026-11-20T09:19:17]"
            } else {
                ""
            };
            assert_eq!(kept_out(&shown(state)), Some(reason), "{state}");
        }
        assert_eq!(
            kept_out("   State=DOWN ThreadsPerCore=1\n"),
            Some(""),
            "nobody said why"
        );
        for nothing in ["", "Node n7 not found\n", "   State=\n"] {
            assert_eq!(kept_out(nothing), None, "{nothing:?}");
        }
    }
}

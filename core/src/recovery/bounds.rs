//! Whether a recovery may begin by itself, or go on: by what was done to this node before, and by what the fleet does.

use super::breaker::most;
use super::cause::Cause;
use super::policy::RecoveryPolicy;

/// What is known at the moment of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Recoveries that began on this node within the policy's time, a person's not counted.
    pub on_node: u32,
    /// Other nodes with a recovery under way.
    pub under_way: u32,
    /// Other nodes whose recovery began for the same cause within the breaker's window, since it was last reset.
    pub same_way: u32,
    /// Nodes in service.
    pub serving: u32,
    /// The breaker for this cause is open.
    pub open: bool,
}

/// Why a recovery does not begin, or does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is the fleet; the breaker opens, if it is not open yet.
    Fleet(String),
    /// It is this node: a person must look.
    Node(String),
    /// Others come first.
    Later(String),
}

impl Hold {
    /// As people read it.
    pub fn why(&self) -> &str {
        match self {
            Self::Fleet(why) | Self::Node(why) | Self::Later(why) => why,
        }
    }
}

/// Whether a recovery may begin. A person's may: that person has looked.
///
/// # Errors
/// Why not.
pub fn may_begin(policy: &RecoveryPolicy, cause: &Cause, seen: Seen) -> Result<(), Hold> {
    if cause.asked {
        return Ok(());
    }
    let most = most(seen.serving);
    if seen.open || seen.same_way >= most {
        return Err(fleet(cause, seen));
    }
    if seen.on_node >= policy.per_node {
        let why = format!("it was recovered {} times within {} hours", seen.on_node, policy.within_h);
        return Err(Hold::Node(why));
    }
    if seen.under_way >= most {
        return Err(Hold::Later(format!(
            "{} other nodes are being recovered, and {most} may be at once",
            seen.under_way
        )));
    }
    Ok(())
}

/// Whether a recovery that is under way may try its next rung.
///
/// # Errors
/// Why not.
pub fn may_go_on(cause: &Cause, seen: Seen) -> Result<(), Hold> {
    match seen.open && !cause.asked {
        true => Err(fleet(cause, seen)),
        false => Ok(()),
    }
}

fn fleet(cause: &Cause, seen: Seen) -> Hold {
    let others = match seen.same_way {
        1 => "another node failed".to_owned(),
        many => format!("{many} other nodes failed"),
    };
    Hold::Fleet(format!("{others} the same way ({}) within the hour: it is the fleet, not the node", cause.signature))
}

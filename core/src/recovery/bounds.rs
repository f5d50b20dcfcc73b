//! Decides whether an automatic recovery may begin or continue. The inputs are earlier recoveries
//! of the node and the state of the fleet.

use super::breaker::{most, most_unmended};
use super::cause::Cause;
use super::policy::RecoveryPolicy;

/// Counts read at the time of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Automatic recoveries begun on this node within the policy's period. Recoveries requested by
    /// a person are not counted.
    pub on_node: u32,
    /// Other nodes with a recovery under way.
    pub under_way: u32,
    pub fleet: Out,
    pub pool: Out,
}

/// Other nodes of the fleet, or of the node's pool, failing for the same cause. Failures from
/// before the last reset of the breaker are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// Nodes whose recovery for this cause began within the breaker's window.
    pub same_way: u32,
    /// Nodes whose latest recovery for this cause began in the last 7 days and has not succeeded.
    pub unmended: u32,
    /// Nodes held by pools, in service or on the way. Serving nodes alone would be 0 while a new
    /// fleet is installed.
    pub held: u32,
    /// The breaker for this cause is open.
    pub open: bool,
}

impl Out {
    /// Returns the reason to blame the fleet or pool instead of the node: too many other nodes fail
    /// the same way.
    fn too_many(self) -> Option<String> {
        let others = |count: u32| match count {
            1 => "another node".to_owned(),
            many => format!("{many} other nodes"),
        };
        if self.same_way >= most(self.held) {
            return Some(format!(
                "{} failed the same way within the hour",
                others(self.same_way)
            ));
        }
        (self.unmended >= most_unmended(self.held)).then(|| {
            format!(
                "{} failed the same way within the week, and are not repaired",
                others(self.unmended)
            )
        })
    }
}

/// The reason why a recovery may not begin or continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The fault is in the fleet. The fleet's breaker opens if not yet open.
    Fleet(String),
    /// The fault is in the node's pool. The pool's breaker opens if not yet open.
    Pool(String),
    /// The bound of this node is reached; a person must inspect the node.
    Node(String),
    /// Other recoveries must finish first.
    Later(String),
}

impl Hold {
    /// Returns the text shown to users.
    pub fn why(&self) -> &str {
        match self {
            Self::Fleet(why) | Self::Pool(why) | Self::Node(why) | Self::Later(why) => why,
        }
    }
}

/// Checks whether a recovery may begin. A recovery requested by a person always may, because the
/// person has inspected the node.
///
/// # Errors
/// Returns the reason to hold the recovery back.
pub fn may_begin(policy: &RecoveryPolicy, cause: &Cause, seen: Seen) -> Result<(), Hold> {
    if cause.asked {
        return Ok(());
    }
    may_go_on(cause, seen)?;
    let of = &cause.signature;
    if let Some(others) = seen.fleet.too_many() {
        return Err(Hold::Fleet(format!(
            "{others} ({of}): the cause is in the fleet, not the node"
        )));
    }
    if let Some(others) = seen.pool.too_many() {
        return Err(Hold::Pool(format!(
            "{others} of its pool ({of}): the cause is in the pool, not the node"
        )));
    }
    if seen.on_node >= policy.per_node {
        let why = format!(
            "the node was recovered {} times within {} hours",
            seen.on_node, policy.within_h
        );
        return Err(Hold::Node(why));
    }
    let most = most(seen.fleet.held);
    if seen.under_way >= most {
        return Err(Hold::Later(format!(
            "{} other nodes are being recovered, and {most} may be at once",
            seen.under_way
        )));
    }
    Ok(())
}

/// Checks whether a recovery under way may try its next rung.
///
/// # Errors
/// Returns the reason to hold the recovery back.
pub fn may_go_on(cause: &Cause, seen: Seen) -> Result<(), Hold> {
    let of = &cause.signature;
    match (cause.asked, seen.fleet.open, seen.pool.open) {
        (true, ..) | (false, false, false) => Ok(()),
        (false, true, _) => Err(Hold::Fleet(format!(
            "the breaker of {of} is open: the cause is in the fleet, not the node"
        ))),
        (false, false, true) => Err(Hold::Pool(format!(
            "the breaker of {of} is open for its pool: the cause is in the pool, not the node"
        ))),
    }
}

//! Whether a recovery may begin by itself, or go on: by what was done to this node before, and by what the fleet does.

use super::breaker::{most, most_unmended};
use super::cause::Cause;
use super::policy::RecoveryPolicy;

/// What is known at the moment of the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Recoveries that began on this node within the policy's time, a person's not counted.
    pub on_node: u32,
    /// Other nodes with a recovery under way.
    pub under_way: u32,
    pub fleet: Out,
    pub pool: Out,
}

/// Other nodes of the fleet, or of the node's pool, that fail for the same cause; those from before its breaker was last reset are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// Whose recovery for it began within the breaker's window.
    pub same_way: u32,
    /// Whose last recovery for it began within a week, and has not mended them.
    pub unmended: u32,
    /// Nodes that pools hold, in service or on their way there: while a fleet is brought up, none serves.
    pub held: u32,
    /// The breaker for this cause is open.
    pub open: bool,
}

impl Out {
    /// Why it is not the node: too many others.
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
                "{} failed the same way within the week, and are not mended",
                others(self.unmended)
            )
        })
    }
}

/// Why a recovery does not begin, or does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is the fleet; the breaker opens, if it is not open yet.
    Fleet(String),
    /// It is the node's pool; so does the pool's breaker.
    Pool(String),
    /// It is this node: a person must look.
    Node(String),
    /// Others come first.
    Later(String),
}

impl Hold {
    /// As people read it.
    pub fn why(&self) -> &str {
        match self {
            Self::Fleet(why) | Self::Pool(why) | Self::Node(why) | Self::Later(why) => why,
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
    may_go_on(cause, seen)?;
    let of = &cause.signature;
    if let Some(others) = seen.fleet.too_many() {
        return Err(Hold::Fleet(format!(
            "{others} ({of}): it is the fleet, not the node"
        )));
    }
    if let Some(others) = seen.pool.too_many() {
        return Err(Hold::Pool(format!(
            "{others} of its pool ({of}): it is the pool, not the node"
        )));
    }
    if seen.on_node >= policy.per_node {
        let why = format!(
            "it was recovered {} times within {} hours",
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

/// Whether a recovery that is under way may try its next rung.
///
/// # Errors
/// Why not.
pub fn may_go_on(cause: &Cause, seen: Seen) -> Result<(), Hold> {
    let of = &cause.signature;
    match (cause.asked, seen.fleet.open, seen.pool.open) {
        (true, ..) | (false, false, false) => Ok(()),
        (false, true, _) => Err(Hold::Fleet(format!(
            "the breaker of {of} is open: it is the fleet, not the node"
        ))),
        (false, false, true) => Err(Hold::Pool(format!(
            "the breaker of {of} is open for its pool: it is the pool, not the node"
        ))),
    }
}

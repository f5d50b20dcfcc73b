//! How an agent answers that does not know whether it still acts for its site: after the others. It is cut off from the server, and so cannot be
//! told; but whoever acts for the site by now answers at once, and a machine that was answered asks no more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use muster_core::values::Mac;

use super::decide::Reply;
use super::wire::{Kind, Message, code};

/// A machine that still asks after this was answered by nobody: firmware asks again after one to four seconds.
const FIRST_TURN: Duration = Duration::from_secs(2);
/// A machine that asks again after this has started over.
const SAME_BOOT: Duration = Duration::from_secs(90);
/// A server that a machine chose is taken to be there for this long.
const OTHERS: Duration = Duration::from_secs(300);
/// Machines remembered; a flood of made-up ones only makes us forget.
const MOST: usize = 4096;

/// What was seen while others had the first turn.
#[derive(Debug, Default)]
pub struct Yielding {
    asking: HashMap<Mac, Asking>,
    other: Option<Instant>,
}

/// A machine that asks for an address.
#[derive(Clone, Copy, Debug)]
struct Asking {
    first: Instant,
    /// The exchange in which we offered it one.
    offered: Option<u32>,
}

impl Yielding {
    /// Keeps an answer back while somebody else may give one, and one that takes an address away for good. An agent that acts for the site by now
    /// may have our address too: a machine that chose it chose us only if we offered.
    pub fn hold_back(&mut self, request: &Message, reply: Reply, now: Instant) -> Option<Reply> {
        if reply.message.kind() == Some(Kind::Nak) {
            return None;
        }
        if !request.ciaddr.is_unspecified() {
            // It has its address, and asks us for it.
            return Some(reply);
        }
        let mac = request.mac;
        if request.options.address(code::SERVER_ID).is_some() {
            let ours = self
                .asking
                .get(&mac)
                .is_some_and(|asking| asking.offered == Some(request.xid));
            if !ours {
                self.saw_another(mac, now);
            }
            return ours.then_some(reply);
        }
        if self
            .other
            .is_some_and(|seen| now.saturating_duration_since(seen) < OTHERS)
        {
            return None;
        }
        if self.asking.len() >= MOST {
            self.asking.clear();
        }
        let anew = Asking {
            first: now,
            offered: None,
        };
        let asking = self.asking.entry(mac).or_insert(anew);
        let waited = now.saturating_duration_since(asking.first);
        if waited >= SAME_BOOT {
            *asking = anew;
        }
        let turn = (FIRST_TURN..SAME_BOOT).contains(&waited);
        asking.offered = turn.then_some(request.xid);
        turn.then_some(reply)
    }

    /// A machine chose another server of this network.
    pub fn saw_another(&mut self, mac: Mac, now: Instant) {
        self.asking.remove(&mac);
        self.other = Some(now);
    }
}

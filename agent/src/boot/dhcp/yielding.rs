//! Delays the answers of an agent unsure about the site lease. The agent is disconnected from the
//! server and cannot know whether another agent took over. The acting agent answers at once, and an
//! answered machine stops asking.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use muster_core::values::Mac;

use super::decide::Reply;
use super::wire::{Kind, Message, code};

/// Time to let other servers answer first. A machine still asking afterwards received no answer.
/// Firmware repeats a request after one to four seconds.
const FIRST_TURN: Duration = Duration::from_secs(2);
/// Time after which a further request belongs to a new boot of the machine.
const SAME_BOOT: Duration = Duration::from_secs(90);
/// Time for which a server chosen by a machine counts as present.
const OTHERS: Duration = Duration::from_secs(300);
/// Maximum number of remembered machines. A flood of fake machines only clears the memory.
const MOST: usize = 4096;

/// Requests and servers seen while other servers have priority.
#[derive(Debug, Default)]
pub struct Yielding {
    asking: HashMap<Mac, Asking>,
    other: Option<Instant>,
}

/// A machine asking for an address.
#[derive(Clone, Copy, Debug)]
struct Asking {
    first: Instant,
    /// The transaction id of our offer.
    offered: Option<u32>,
}

impl Yielding {
    /// Returns the reply if it can be sent now. Returns `None` while another server may still
    /// answer, and always for a NAK. The acting agent can have the same server id, so a client with
    /// the id in its request chose this agent only after an offer from here.
    pub fn hold_back(&mut self, request: &Message, reply: Reply, now: Instant) -> Option<Reply> {
        if reply.message.kind() == Some(Kind::Nak) {
            return None;
        }
        if !request.ciaddr.is_unspecified() {
            // The machine has its address and renews the lease at this agent.
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

    /// Records a machine choosing another server on this network.
    pub fn saw_another(&mut self, mac: Mac, now: Instant) {
        self.asking.remove(&mac);
        self.other = Some(now);
    }
}

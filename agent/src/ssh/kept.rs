//! A session that one job leaves for the next one on the same node: a log-in costs a node more than most of what is asked of it.
//!
//! A connection cannot outlive the boot it was made in, and its host key was checked when it was made; so whoever still answers on it is the same
//! system of the same machine. Whatever else an order says differently (another address, host key, principal or assignment epoch) is a doubt, and
//! a doubt drops it. Nothing is kept through an act that ends a boot or changes whom a system trusts: who does such a thing drops it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::ids::NodeId;
use muster_core::wire::login::Login;
use tokio::time::Instant;

use super::{Session, SshError, principals};

/// Jobs of one operation follow each other within a second; whoever comes later logs in.
const IDLE: Duration = Duration::from_secs(20);
/// Idle sessions of one agent; each is a socket and some 100 KiB. Beyond it the one that was idle longest goes.
const MOST: usize = 256;
/// A node that is up answers at once. One that does not is asked anew, on a connection of its own.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// As whom a session is where: all that an order says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whom {
    address: SocketAddr,
    host_key: String,
    principals: Vec<String>,
    /// Assignment epoch of the node.
    epoch: i64,
}

#[derive(Debug)]
struct Kept {
    session: Session,
    whom: Whom,
    since: Instant,
}

/// The idle sessions of one agent, one per node at most. Dropping it closes them.
#[derive(Debug)]
pub struct KeptSessions {
    most: usize,
    idle: Duration,
    kept: Mutex<HashMap<NodeId, Kept>>,
}

impl Default for KeptSessions {
    fn default() -> Self {
        Self::holding(MOST, IDLE)
    }
}

impl KeptSessions {
    /// At most so many, each until nobody came for it for so long.
    pub fn holding(most: usize, idle: Duration) -> Self {
        Self {
            most,
            idle,
            kept: Mutex::default(),
        }
    }

    /// The session that an earlier job left on the node, when it is exactly what this login would lead to and still answers. Whatever is kept of
    /// this node is kept no more.
    pub async fn take(&self, node: NodeId, epoch: i64, login: &Login) -> Option<Session> {
        let Kept {
            session,
            whom,
            since,
        } = self.lock().remove(&node)?;
        let same = Whom::of(epoch, login).is_ok_and(|wanted| wanted == whom);
        (same && since.elapsed() < self.idle && session.answers(ANSWERS_WITHIN).await)
            .then_some(session)
    }

    /// Whether another system than this login's answers on the session that is kept of the node: then that one is up, and this one is not.
    pub async fn other_answers(&self, node: NodeId, login: &Login) -> bool {
        let Some(Kept {
            session,
            whom,
            since,
        }) = self.lock().remove(&node)
        else {
            return false;
        };
        let same_machine = whom.address.ip() == login.address;
        same_machine
            && whom.host_key != login.host_key
            && since.elapsed() < self.idle
            && session.answers(ANSWERS_WITHIN).await
    }

    /// Keeps a session for the node's next job. One whose login cannot be read is closed.
    pub fn keep(&self, node: NodeId, epoch: i64, login: &Login, session: Session) {
        let Ok(whom) = Whom::of(epoch, login) else {
            return;
        };
        let mut kept = self.lock();
        kept.insert(
            node,
            Kept {
                session,
                whom,
                since: Instant::now(),
            },
        );
        if kept.len() > self.most
            && let Some(oldest) = kept
                .iter()
                .min_by_key(|(_, kept)| kept.since)
                .map(|(node, _)| *node)
        {
            kept.remove(&oldest);
        }
    }

    /// Closes what is kept of a node.
    pub fn forget(&self, node: NodeId) {
        self.lock().remove(&node);
    }

    /// Closes what nobody came back for.
    pub fn sweep(&self) {
        self.lock()
            .retain(|_, kept| kept.since.elapsed() < self.idle && !kept.session.handle.is_closed());
    }

    /// How many are kept now.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Sweeps for as long as it is polled.
    pub async fn keep_swept(&self) {
        loop {
            tokio::time::sleep(self.idle / 4).await;
            self.sweep();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Whom {
    fn of(epoch: i64, login: &Login) -> Result<Self, SshError> {
        let address = SocketAddr::from((login.address, login.port));
        Ok(Self {
            address,
            host_key: login.host_key.clone(),
            principals: principals(login)?,
            epoch,
        })
    }
}

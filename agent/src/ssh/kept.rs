//! Sessions kept by a finished job for the next job on the same node. A login costs a node more
//! than most commands.
//!
//! A connection cannot survive a reboot, and the host key was checked at login. An answer on a kept
//! session therefore comes from the same system on the same machine. A difference in an order
//! (address, host key, principal or assignment epoch) closes the session. A job closes the session
//! before an action that ends a boot or changes the trusted keys of a system.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::ids::NodeId;
use muster_core::wire::login::Login;
use tokio::time::Instant;

use super::{Session, SshError, principals};

/// Jobs of an operation follow each other within a second. A later job logs in again.
const IDLE: Duration = Duration::from_secs(20);
/// Maximum number of idle sessions of an agent. Each needs a socket and about 100 KiB. Above the
/// limit the session idle for longest is closed.
const MOST: usize = 256;
/// Time limit for the check of a kept session. A running node answers at once. Without an answer
/// the job opens a new connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The target and identity of a session: all fields of an order compared before reuse.
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

/// The idle sessions of an agent, at most one per node. Dropping the value closes the sessions.
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
    /// Returns a store with at most `most` sessions, each closed after `idle` without use.
    pub fn holding(most: usize, idle: Duration) -> Self {
        Self {
            most,
            idle,
            kept: Mutex::default(),
        }
    }

    /// Removes and returns the session kept for the node. Returns `None` unless the session matches
    /// the login exactly, is fresh and still answers. A rejected session is closed.
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

    /// Returns whether another system of the same machine answers on the kept session, with another
    /// host key than the login. The other system is then up, and the wanted system is not. The kept
    /// session is removed.
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

    /// Keeps a session for the next job of the node. A session with an unreadable login is closed.
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

    /// Closes the session kept for a node.
    pub fn forget(&self, node: NodeId) {
        self.lock().remove(&node);
    }

    /// Closes sessions idle for too long or already disconnected.
    pub fn sweep(&self) {
        self.lock()
            .retain(|_, kept| kept.since.elapsed() < self.idle && !kept.session.handle.is_closed());
    }

    /// Returns the number of kept sessions.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Sweeps idle sessions as long as the future is polled.
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

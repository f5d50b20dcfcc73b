//! Access to a BMC: HTTP Basic, sessions, and the lock-out of accounts after repeated failures.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode, header};

use super::Service;
use super::memory::Account;
use super::reply::{Reply, error};

/// Maximum number of sessions; a new session ends the oldest.
const MAX_SESSIONS: usize = 16;
/// An idle session ends after this time.
const SESSION_TIMEOUT: Duration = Duration::from_secs(300);

/// A login.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) user: String,
    token: String,
    used: Instant,
}

/// The end of a login attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Logged in as this user.
    Accepted(String),
    /// No credentials were sent.
    Anonymous,
    /// Wrong credentials, counted against an existing account.
    Refused(String),
    /// The account is locked; the credentials were not checked.
    Locked(String),
}

/// Logins to the BMC since its start.
#[derive(Debug)]
pub(crate) struct Access {
    threshold: u32,
    lockout: Duration,
    failures: HashMap<String, (u32, Option<Instant>)>,
    sessions: Vec<Session>,
    next_session: u64,
    /// Number of lock-outs; a careful client causes none.
    pub(crate) lockouts: u32,
}

impl Access {
    /// Locks an account for `lockout` after `threshold` failures in a row; 0 never locks.
    pub(crate) fn new(threshold: u32, lockout: Duration) -> Self {
        Self {
            threshold,
            lockout,
            failures: HashMap::new(),
            sessions: Vec::new(),
            next_session: 1,
            lockouts: 0,
        }
    }

    /// Checks a request's headers. `all_wrong` makes every credential wrong.
    pub(crate) fn judge(
        &mut self,
        headers: &HeaderMap,
        accounts: &[Account],
        all_wrong: bool,
    ) -> Attempt {
        if let Some(token) = headers
            .get("x-auth-token")
            .and_then(|token| token.to_str().ok())
        {
            return self.resume(token, all_wrong);
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Attempt::Anonymous;
        };
        let basic = value
            .to_str()
            .ok()
            .and_then(|value| value.strip_prefix("Basic "));
        let pair = basic
            .and_then(|basic| STANDARD.decode(basic).ok())
            .and_then(|pair| String::from_utf8(pair).ok());
        match pair.as_deref().and_then(|pair| pair.split_once(':')) {
            Some((user, password)) => self.log_in(user, password, accounts, all_wrong),
            None => Attempt::Refused("(unreadable)".to_owned()),
        }
    }

    /// Checks user and password.
    pub(crate) fn log_in(
        &mut self,
        user: &str,
        password: &str,
        accounts: &[Account],
        all_wrong: bool,
    ) -> Attempt {
        let user: String = user.chars().take(64).collect();
        // Only existing accounts are counted, so unknown names cannot fill the table.
        let Some(account) = accounts
            .iter()
            .find(|account| account.user == user && account.enabled)
        else {
            return Attempt::Refused(user);
        };
        let failures = self.failures.entry(user.clone()).or_default();
        match failures.1 {
            Some(until) if Instant::now() < until => return Attempt::Locked(user),
            Some(_) => *failures = (0, None),
            None => {}
        }
        if !all_wrong && account.password.reveal() == password {
            *failures = (0, None);
            return Attempt::Accepted(user);
        }
        failures.0 += 1;
        if failures.0 == self.threshold {
            failures.1 = Some(Instant::now() + self.lockout);
            self.lockouts += 1;
        }
        Attempt::Refused(user)
    }

    /// Starts a session; returns its id and its token.
    pub(crate) fn start_session(&mut self, user: &str) -> (u64, String) {
        self.expire();
        if self.sessions.len() == MAX_SESSIONS {
            self.sessions.remove(0);
        }
        let (id, token) = (self.next_session, hex::encode(rand::random::<[u8; 16]>()));
        self.next_session += 1;
        self.sessions.push(Session {
            id,
            user: user.to_owned(),
            token: token.clone(),
            used: Instant::now(),
        });
        (id, token)
    }

    /// Ends a session; false for an unknown session.
    pub(crate) fn end_session(&mut self, id: u64) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|session| session.id != id);
        self.sessions.len() < before
    }

    /// Ends every session of a user, as a changed password does.
    pub(crate) fn end_sessions_of(&mut self, user: &str) {
        self.sessions.retain(|session| session.user != user);
    }

    /// Returns the live sessions.
    pub(crate) fn sessions(&mut self) -> &[Session] {
        self.expire();
        &self.sessions
    }

    fn resume(&mut self, token: &str, all_wrong: bool) -> Attempt {
        self.expire();
        match self
            .sessions
            .iter_mut()
            .find(|session| session.token == token && !all_wrong)
        {
            Some(session) => {
                session.used = Instant::now();
                Attempt::Accepted(session.user.clone())
            }
            None => Attempt::Refused("(session)".to_owned()),
        }
    }

    fn expire(&mut self) {
        self.sessions
            .retain(|session| session.used.elapsed() < SESSION_TIMEOUT);
    }
}

/// Returns the refusal of an attempt, or the user. A locked account looks like a wrong password.
pub(crate) fn require(attempt: Attempt) -> Result<String, Reply> {
    let (id, text) = match attempt {
        Attempt::Accepted(user) => return Ok(user),
        Attempt::Anonymous => (
            "NoValidSession",
            "There is no valid session established with the implementation.",
        ),
        Attempt::Refused(_) | Attempt::Locked(_) => (
            "ResourceAtUriUnauthorized",
            "The credentials were not accepted.",
        ),
    };
    let reply = error(
        StatusCode::UNAUTHORIZED,
        id,
        text,
        "Log in with valid credentials.",
    );
    Err(reply.with("www-authenticate", "Basic realm=\"muster-lab\""))
}

/// Notes a failed login in the event log.
pub(crate) fn log_failure(service: &Service, attempt: &Attempt) {
    match attempt {
        Attempt::Refused(user) => service.log(
            "Warning",
            "LoginFailed",
            format!("Login failed for {user:?}."),
        ),
        Attempt::Locked(user) => service.log(
            "Warning",
            "AccountLocked",
            format!("Login refused: {user:?} is locked."),
        ),
        Attempt::Accepted(_) | Attempt::Anonymous => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::values::Secret;

    #[test]
    fn an_account_is_locked_after_too_many_failed_logins() {
        let account = Account {
            id: 1,
            user: "admin".into(),
            password: Secret::new("pw"),
            role: "x".into(),
            enabled: true,
        };
        let accounts = [account];
        let mut access = Access::new(3, Duration::from_secs(60));
        let mut attempt = |password| access.log_in("admin", password, &accounts, false);
        let refused = Attempt::Refused("admin".into());
        assert_eq!(
            [attempt("no"), attempt("no")],
            [refused, Attempt::Refused("admin".into())]
        );
        assert_eq!(attempt("pw"), Attempt::Accepted("admin".into()));
        for _ in 0..3 {
            attempt("no");
        }
        assert_eq!(attempt("pw"), Attempt::Locked("admin".into()));
        assert_eq!(access.lockouts, 1);
    }
}

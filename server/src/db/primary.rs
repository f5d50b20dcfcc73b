//! Location of the database: one server, or several of which one takes writes. The pool connects to
//! the server taking writes. A connection to a replaced server leaves the pool before a caller
//! receives it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use futures::stream::{FuturesUnordered, StreamExt as _};
use sqlx::pool::PoolConnectionMetadata;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

/// Time limit for one server to report its role.
const LOOK: Duration = Duration::from_secs(2);
/// Interval between probes of the servers, if there are several.
const EVERY: Duration = Duration::from_secs(1);
/// Time limit for a start waiting for a server taking writes, and for a request waiting for a
/// connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limits the time for which a Muster replica, frozen in the middle of a transaction, keeps its
/// locks. Deliberately no `statement_timeout` is set. A timeout during the wait for a synchronous
/// standby makes Postgres report a commit, although the transaction may still be lost.
const IDLE_IN_TRANSACTION: &str = "30s";

/// The servers of one database, as named by the URL, and the server known to take writes.
#[derive(Clone, Debug)]
pub struct Servers {
    options: Vec<PgConnectOptions>,
    primary: Arc<Mutex<Primary>>,
}

/// The server last seen to take writes, if there are several servers.
#[derive(Clone, Copy, Debug)]
struct Primary {
    /// The newest timeline written by any of the servers.
    timeline: i32,
    index: Option<usize>,
    /// The time of the latest observed change of the server taking writes.
    replaced: Option<Instant>,
}

impl Primary {
    /// Records the server taking writes. Returns false for a server on a timeline older than the
    /// known one: the server was replaced, although the primary gives no answer at the moment.
    fn see(&mut self, timeline: i32, index: usize) -> bool {
        if timeline < self.timeline {
            return false;
        }
        if (self.timeline, self.index) != (timeline, Some(index)) {
            *self = Self {
                timeline,
                index: Some(index),
                replaced: self.index.map(|_| Instant::now()),
            };
        }
        true
    }

    /// Returns whether a connection made to a writable server may have lost its write access. The
    /// access of an open connection never changes silently: a demoted server restarts, and a
    /// replacement is observed by the probes. Connections made before a replacement, or up to 10 s
    /// after, are checked again. Connections idle for 1 s are always checked.
    fn doubts(&self, connection: &PoolConnectionMetadata) -> bool {
        connection.idle_for >= EVERY
            || self
                .replaced
                .is_some_and(|at| connection.age + PATIENCE >= at.elapsed())
    }
}

impl Servers {
    /// Parses a URL of one or several servers in libpq syntax:
    /// `postgres://muster@db1,db2:5433/muster`, or `postgresql:///muster?host=/run/a,/run/b`.
    ///
    /// # Errors
    /// When the URL is invalid. The error does not contain the URL, because a URL may hold a
    /// password.
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        let option = |url: String| {
            let options: PgConnectOptions =
                url.parse().context("the database URL cannot be read")?;
            let options = options
                .application_name("muster")
                .disable_statement_logging();
            anyhow::Ok(options.options([
                ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION),
                // At 10,000 nodes the compiler took half of the time of the longest statement.
                ("jit", "off"),
                // At 100,000 nodes that statement sorted on disk. Fewer nodes need less memory.
                ("work_mem", "128MB"),
            ]))
        };
        let options = split_url(url)?
            .into_iter()
            .map(option)
            .collect::<anyhow::Result<_>>()?;
        let primary = Primary {
            timeline: 0,
            index: None,
            replaced: None,
        };
        Ok(Self {
            options,
            primary: Arc::new(Mutex::new(primary)),
        })
    }

    /// Returns a pool of connections to the server taking writes.
    ///
    /// # Errors
    /// When no server takes writes within ten seconds. The error contains the answer of each
    /// server.
    pub async fn connect(&self, max_connections: u32) -> anyhow::Result<PgPool> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let primary = loop {
            let said = match self.find().await {
                Ok(primary) => break primary,
                Err(said) => said,
            };
            if tokio::time::Instant::now() >= deadline {
                bail!("no database server takes writes ({said}); check --database-url");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let (made, given) = (Arc::clone(&self.primary), Arc::clone(&self.primary));
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(false)
            .after_connect(move |conn, _| {
                let known = Arc::clone(&made);
                Box::pin(async move {
                    match takes_writes(conn, &known).await? {
                        true => Ok(()),
                        false => Err(sqlx::Error::Io(std::io::Error::other(
                            "the server takes no writes",
                        ))),
                    }
                })
            })
            .before_acquire(move |conn, connection| {
                let known = Arc::clone(&given);
                let doubted = look_at(&known).doubts(&connection);
                Box::pin(async move {
                    Ok(!doubted || takes_writes(conn, &known).await.unwrap_or(false))
                })
            })
            .connect_lazy_with(self.options[primary].clone());
        drop(
            pool.acquire()
                .await
                .context("the database cannot be reached; check --database-url")?,
        );
        Ok(pool)
    }

    /// Directs the pool's new connections to the server taking writes, until cancelled. Returns at
    /// once if there is only one server.
    pub async fn follow(self, pool: PgPool, cancel: CancellationToken) {
        let mut told: Option<usize> = None;
        while self.options.len() > 1 {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            match self.find().await {
                Ok(primary) if told == Some(primary) => {}
                Ok(primary) => {
                    tracing::info!(
                        server = server_name(&self.options[primary]),
                        "this database server takes the writes"
                    );
                    pool.set_connect_options(self.options[primary].clone());
                    told = Some(primary);
                }
                Err(said) => tracing::warn!(said, "no database server takes writes"),
            }
        }
    }

    /// Returns the server on the newest timeline among the servers taking writes. A replaced
    /// primary still taking writes is on an older timeline, and is refused also while the newer
    /// primary gives no answer. Returns the answer of each server as the error if no server takes
    /// writes.
    async fn find(&self) -> Result<usize, String> {
        let looks = self
            .options
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, options)| async move {
                (
                    index,
                    tokio::time::timeout(LOOK, probe_server(options)).await,
                )
            });
        let mut looks: FuturesUnordered<_> = looks.collect();
        let (mut best, mut said) = (None, Vec::new());
        while let Some((index, seen)) = looks.next().await {
            let why = match seen {
                Ok(Ok(Some(timeline))) => {
                    best = best.max(Some((timeline, index)));
                    continue;
                }
                Ok(Ok(None)) => "takes no writes".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer for {} s", LOOK.as_secs()),
            };
            said.push(format!("{}: {why}", server_name(&self.options[index])));
        }
        let (timeline, index) = best.ok_or_else(|| said.join("; "))?;
        if self.options.len() > 1 {
            let mut primary = self.primary.lock().unwrap_or_else(PoisonError::into_inner);
            if !primary.see(timeline, index) {
                said.push(self.describe_replaced(timeline, index, *primary));
                return Err(said.join("; "));
            }
        }
        Ok(index)
    }

    fn describe_replaced(&self, timeline: i32, index: usize, primary: Primary) -> String {
        let name = server_name(&self.options[index]);
        if primary.index == Some(index) {
            return format!(
                "{name}: the timeline went from {} back to {timeline}, as after a restore or an upgrade of Postgres. Restart every replica of Muster",
                primary.timeline
            );
        }
        let newer = primary.index.map(|index| server_name(&self.options[index]));
        let newer = newer.unwrap_or_default();
        format!(
            "{name}: takes writes on timeline {timeline}, and {newer} took writes on timeline {}. Start {newer} again. Restart Muster only if {newer} never returns: \
             after a restore, an upgrade of Postgres or a promotion that was undone",
            primary.timeline
        )
    }
}

/// Returns the timeline written by a server, over a separate connection.
async fn probe_server(options: PgConnectOptions) -> Result<Option<i32>, sqlx::Error> {
    let mut conn = options.connect().await?;
    let timeline = read_timeline(&mut conn).await?;
    conn.close().await.ok();
    Ok(timeline)
}

/// Returns whether the server of a connection takes writes and has not been replaced.
async fn takes_writes(
    conn: &mut PgConnection,
    known: &Mutex<Primary>,
) -> Result<bool, sqlx::Error> {
    let timeline = read_timeline(conn).await?;
    Ok(timeline.is_some_and(|timeline| timeline >= look_at(known).timeline))
}

fn look_at(known: &Mutex<Primary>) -> Primary {
    *known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the timeline written by a server. `None`: the server takes no writes. The first eight
/// digits of a WAL file's name are the timeline.
async fn read_timeline(conn: &mut PgConnection) -> Result<Option<i32>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT CASE WHEN NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
                THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer END AS timeline"
    )
    .fetch_one(conn)
    .await
}

fn server_name(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => format!("{}:{}", socket.display(), options.get_port()),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// Splits a URL into one URL per server.
fn split_url(url: &str) -> anyhow::Result<Vec<String>> {
    let (scheme, rest) = url
        .split_once("://")
        .context("a database URL begins with postgres://")?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = authority
        .rsplit_once('@')
        .map_or(("", authority), |(user, hosts)| (user, hosts));
    let user = if user.is_empty() {
        String::new()
    } else {
        format!("{user}@")
    };
    let (mut by_name, mut ports, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let list = || {
            value
                .replace("%2C", ",")
                .replace("%2c", ",")
                .split(',')
                .map(str::to_owned)
                .collect()
        };
        match key {
            "host" => by_name = list(),
            "port" => ports = list(),
            // Muster always needs a writable server, so these values are redundant.
            "target_session_attrs" if matches!(value, "read-write" | "primary") => {}
            "target_session_attrs" => {
                bail!("target_session_attrs={value}: Muster needs a server that takes writes")
            }
            _ => others.push(pair.to_owned()),
        }
    }
    let count = if by_name.is_empty() {
        hosts.split(',').count()
    } else {
        by_name.len()
    };
    ensure!(
        ports.len() <= 1 || ports.len() == count,
        "the database URL names {count} servers and {} ports",
        ports.len()
    );
    let one = |index: usize| {
        let host = if by_name.is_empty() {
            hosts.split(',').nth(index).unwrap_or_default()
        } else {
            ""
        };
        let mut pairs = others.clone();
        pairs.extend(by_name.get(index).map(|host| format!("host={host}")));
        pairs.extend(
            ports
                .get(index)
                .or(ports.first())
                .map(|port| format!("port={port}")),
        );
        let mark = if pairs.is_empty() { "" } else { "?" };
        format!("{scheme}://{user}{host}{path}{mark}{}", pairs.join("&"))
    };
    Ok((0..count).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_primary_stays_replaced_while_the_newer_one_is_silent() {
        let mut primary = Primary {
            timeline: 0,
            index: None,
            replaced: None,
        };
        assert!(primary.see(3, 0) && primary.replaced.is_none());
        assert!(primary.see(4, 1) && primary.replaced.is_some());
        assert!(!primary.see(3, 0), "the server was replaced");
        assert_eq!((primary.timeline, primary.index), (4, Some(1)));
        assert!(primary.see(4, 1) && primary.see(5, 0));
        assert_eq!((primary.timeline, primary.index), (5, Some(0)));
    }

    #[test]
    fn every_server_of_a_url_is_one() {
        for (url, servers) in [
            ("postgres://muster@db/muster", vec!["db:5432"]),
            (
                "postgres://muster:p%40ss@db1,db2:5433,db3/muster?sslmode=require",
                vec!["db1:5432", "db2:5433", "db3:5432"],
            ),
            (
                "postgresql:///muster?host=/run/a,/run/b&user=muster",
                vec!["/run/a:5432", "/run/b:5432"],
            ),
            (
                "postgresql:///muster?host=/run/a%2C/run/b&port=5433,5434",
                vec!["/run/a:5433", "/run/b:5434"],
            ),
            (
                "postgresql://u@[::1]:7,[::2]/m?target_session_attrs=read-write",
                vec!["[::1]:7", "[::2]:5432"],
            ),
            ("postgresql://u@a,b/m?port=7", vec!["a:7", "b:7"]),
        ] {
            let parsed = Servers::parse(url).unwrap();
            assert_eq!(
                parsed.options.iter().map(server_name).collect::<Vec<_>>(),
                servers,
                "{url}"
            );
            let database = |options: &PgConnectOptions| options.get_database().map(str::len);
            assert!(
                parsed
                    .options
                    .iter()
                    .all(|options| database(options).is_some()),
                "{url}"
            );
            let compiles = |options: &PgConnectOptions| {
                let set = options.get_options().unwrap_or_default();
                !set.contains("jit=off")
            };
            assert!(!parsed.options.iter().any(compiles), "{url}");
        }
        for bad in [
            "muster",
            "postgres://a,b,c/m?port=1,2",
            "postgres://a/m?target_session_attrs=any",
        ] {
            assert!(Servers::parse(bad).is_err(), "{bad}");
        }
    }
}

//! One blob over HTTP, as a reader that survives broken connections and a restarted agent: it asks again from where it stopped.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode};
use sha2::{Digest as _, Sha256};
use ureq::Agent;

use crate::failure::{fatal, retryable};
use crate::job::JobContext;

/// How long a blob may bring no byte at all before it is given up: an agent restarts in seconds, its machine in minutes.
const PATIENCE: Duration = Duration::from_secs(300);
/// One read may take this long; a stuck connection is a broken one.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// A blob on its way.
pub struct Fetch<'a> {
    cx: &'a JobContext,
    /// Set by others when the rest of the work has failed.
    abandoned: &'a AtomicBool,
    url: &'a str,
    size: u64,
    offset: u64,
    agent: Agent,
    body: Option<Box<dyn Read + Send>>,
    hash: Sha256,
    alive: Instant,
    /// Why it was given up: errors of a reader cannot carry it through the decoder.
    pub failure: Option<Failure>,
}

impl<'a> Fetch<'a> {
    pub fn new(cx: &'a JobContext, url: &'a str, size: u64, abandoned: &'a AtomicBool) -> Self {
        let agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(READ_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .max_redirects(0)
            .proxy(None)
            .build()
            .into();
        let (hash, alive) = (Sha256::new(), Instant::now());
        Self {
            cx,
            abandoned,
            url,
            size,
            offset: 0,
            agent,
            body: None,
            hash,
            alive,
            failure: None,
        }
    }

    /// Reads what is left and gives the digest of all of it.
    ///
    /// # Errors
    /// Why the rest did not come.
    pub fn finish(&mut self) -> Result<Digest, Failure> {
        let copied = io::copy(self, &mut io::sink());
        match (self.failure.take(), copied) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(retryable(FailureCode::FetchFailed, error.to_string())),
            (None, Ok(_)) => Ok(Digest(self.hash.clone().finalize().into())),
        }
    }

    fn open(&self) -> Result<Box<dyn Read + Send>, String> {
        let mut request = self.agent.get(self.url);
        if self.offset > 0 {
            request = request.header("range", format!("bytes={}-", self.offset));
        }
        let response = request.call().map_err(|error| error.to_string())?;
        let range = response
            .headers()
            .get("content-range")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let resumed = range
            .strip_prefix("bytes ")
            .is_some_and(|range| range.starts_with(&format!("{}-", self.offset)));
        if self.offset > 0 && !(response.status() == 206 && resumed) {
            return Err(format!(
                "asked for bytes from {}, got {} {range:?}",
                self.offset,
                response.status()
            ));
        }
        let limit = self.size - self.offset;
        Ok(Box::new(
            response
                .into_body()
                .into_with_config()
                .limit(limit.saturating_add(1))
                .reader()
                .take(limit),
        ))
    }

    /// One read on the connection there is, or on a new one.
    fn attempt(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        let body = match &mut self.body {
            Some(body) => body,
            None => self.body.insert(self.open()?),
        };
        match body.read(buffer) {
            Ok(0) => Err("the connection ended early".into()),
            Ok(count) => Ok(count),
            Err(error) => Err(error.to_string()),
        }
    }

    fn give_up(&mut self, failure: Failure) -> io::Error {
        let error = io::Error::other(failure.message.clone());
        self.failure = Some(failure);
        error
    }
}

impl Read for Fetch<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.offset == self.size || buffer.is_empty() {
            return Ok(0);
        }
        if self.failure.is_some() {
            return Err(io::Error::other("given up"));
        }
        loop {
            if self.abandoned.load(Ordering::Relaxed) {
                return Err(self.give_up(fatal(
                    FailureCode::Abandoned,
                    "the blob is not needed any more",
                )));
            }
            if let Err(failure) = self.cx.check() {
                return Err(self.give_up(failure));
            }
            let why = match self.attempt(buffer) {
                Ok(count) => {
                    self.hash.update(&buffer[..count]);
                    self.offset += count as u64;
                    self.alive = Instant::now();
                    return Ok(count);
                }
                Err(why) => why,
            };
            self.body = None;
            if self.alive.elapsed() > PATIENCE {
                let text = format!(
                    "{}: no byte for {} s at byte {} of {}: {why}",
                    self.url,
                    PATIENCE.as_secs(),
                    self.offset,
                    self.size
                );
                return Err(self.give_up(retryable(FailureCode::FetchFailed, text)));
            }
            self.cx.log(&format!(
                "the download broke at byte {} of {} ({why}); going on from there",
                self.offset, self.size
            ));
            std::thread::sleep(PAUSE);
        }
    }
}

/// Only plain HTTP to the agent is asked for; the digest is what is trusted.
///
/// # Errors
/// `malformed`.
pub fn check_url(url: &str) -> Result<(), Failure> {
    match url.starts_with("http://") {
        true => Ok(()),
        false => Err(fatal(
            FailureCode::Malformed,
            format!("{url:?} is not an http:// address"),
        )),
    }
}

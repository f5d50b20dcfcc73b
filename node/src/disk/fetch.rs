//! A blob over HTTP as a reader. After a broken connection or a restart of the agent, the download
//! resumes at the last byte.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode};
use sha2::{Digest as _, Sha256};
use ureq::Agent;

use crate::failure::{fatal, retryable};
use crate::job::JobContext;

/// Longest time without a new byte before the download fails: an agent restarts in seconds, its
/// machine in minutes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longest single read; a stuck connection counts as broken.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// A blob being downloaded.
pub struct Fetch<'a> {
    cx: &'a JobContext,
    /// Set by another thread after a failure of the other work.
    abandoned: &'a AtomicBool,
    url: &'a str,
    size: u64,
    offset: u64,
    agent: Agent,
    body: Option<Box<dyn Read + Send>>,
    hash: Sha256,
    alive: Instant,
    /// The reason for the failure; an error of a reader cannot carry the reason through the
    /// decoder.
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

    /// Reads the rest of the blob and returns the digest of the whole blob.
    ///
    /// # Errors
    /// The reason for the missing rest.
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
                "requested bytes from {}, received {} {range:?}",
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

    /// Reads once from the present connection, or from a new connection.
    fn attempt(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        let body = match &mut self.body {
            Some(body) => body,
            None => self.body.insert(self.open()?),
        };
        match body.read(buffer) {
            Ok(0) => Err("the connection closed early".into()),
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
            return Err(io::Error::other("the download has failed already"));
        }
        loop {
            if self.abandoned.load(Ordering::Relaxed) {
                return Err(self.give_up(fatal(
                    FailureCode::Abandoned,
                    "the blob is no longer needed",
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
                    "{}: no data for {} s at byte {} of {}: {why}",
                    self.url,
                    PATIENCE.as_secs(),
                    self.offset,
                    self.size
                );
                return Err(self.give_up(retryable(FailureCode::FetchFailed, text)));
            }
            self.cx.log(&format!(
                "the download stopped at byte {} of {} ({why}); resuming from there",
                self.offset, self.size
            ));
            std::thread::sleep(PAUSE);
        }
    }
}

/// Accepts only plain HTTP to the agent; trust comes from the digest.
///
/// # Errors
/// `malformed`.
pub fn check_url(url: &str) -> Result<(), Failure> {
    match url.starts_with("http://") {
        true => Ok(()),
        false => Err(fatal(
            FailureCode::Malformed,
            format!("{url:?} is not an http:// URL"),
        )),
    }
}

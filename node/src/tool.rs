//! Other programs, run without a shell: with a deadline that kills the whole process group, capped output, and the job's cancellation.

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muster_core::wire::node::Failure;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::failure::{fatal, retryable};
use crate::job::JobContext;

/// Output kept of one program and stream, in bytes; the rest is read and dropped.
pub const OUTPUT_MAX: usize = 4 << 20;
/// How soon a running program is looked at again: most take milliseconds, the others minutes.
const FIRST_POLL: Duration = Duration::from_millis(1);
const LAST_POLL: Duration = Duration::from_millis(20);
/// After a program ended, its daemons may hold its pipes open: they are not waited for longer than this.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a killed program may take to be gone. One that hangs in the kernel, on a device that does not answer, never is, and is left to it.
const DYING: Duration = Duration::from_secs(5);

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    /// Program and arguments.
    pub argv: &'a [&'a str],
    pub stdin: Option<&'a [u8]>,
    /// Variables added to muster-node's own.
    pub env: &'a [(&'a str, &'a str)],
    /// Its own deadline; the job's is always kept as well. `None` is the job's alone.
    pub timeout: Option<Duration>,
}

/// How it ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether output went over [`OUTPUT_MAX`].
    pub truncated: bool,
    /// Whether somebody that it left behind holds its output open still: there may be more of it.
    pub open: bool,
    pub took: Duration,
}

/// Why there is no [`Finished`].
#[derive(Debug)]
pub enum ToolError {
    /// The program is not installed.
    Missing(String),
    /// It was killed with its group after this time.
    TimedOut {
        program: String,
        after: Duration,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        /// Whether it was still there [`DYING`] later.
        hangs: bool,
    },
    /// The job was cancelled; it was killed.
    Cancelled(String),
    Io(String, std::io::Error),
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Missing(program) => fatal("tool_missing", format!("{program} is not installed here")),
            ToolError::TimedOut { program, after, hangs, .. } => {
                retryable("tool_timeout", format!("{program} {}", overdue(after.as_secs(), hangs)))
            }
            ToolError::Cancelled(program) => fatal("cancelled", format!("the job was cancelled while {program} ran")),
            ToolError::Io(program, error) => retryable("tool_io", format!("{program}: {error}")),
        }
    }
}

/// What is said of a program that had its time.
pub fn overdue(after_s: u64, hangs: bool) -> String {
    let fate = if hangs { ", and cannot be killed: it hangs in the kernel" } else { " and was killed" };
    format!("did not end within {after_s} s{fate}")
}

/// Runs a program to its end, whatever its exit status.
///
/// # Errors
/// [`ToolError`] when it could not run to its end.
pub fn run(cx: &JobContext, call: &Call<'_>) -> Result<Finished, ToolError> {
    let mut running = Running::start(call)?;
    let mut poll = FIRST_POLL;
    let limit = call.timeout.map_or(cx.remaining(), |own| own.min(cx.remaining()));
    loop {
        if let Some(status) = running.ended()? {
            return Ok(running.finish(status));
        }
        if cx.cancelled() {
            return Err(ToolError::Cancelled(running.program.clone()));
        }
        if running.started.elapsed() >= limit {
            return Err(running.time_out(limit));
        }
        std::thread::sleep(poll);
        poll = (poll * 2).min(LAST_POLL);
    }
}

/// A program that runs beside us. Dropping it kills it with everything it started in its group.
#[derive(Debug)]
pub struct Running {
    program: String,
    child: Child,
    out: Capture,
    err: Capture,
    started: Instant,
    /// Nothing is to be done about it any more.
    given_up: bool,
}

impl Running {
    /// Starts a program in a process group of its own; the call's timeout is whoever's who waits for it.
    ///
    /// # Errors
    /// [`ToolError::Missing`], [`ToolError::Io`].
    pub fn start(call: &Call<'_>) -> Result<Self, ToolError> {
        let program = call.argv.first().copied().unwrap_or_default().to_owned();
        let mut child = spawn(call).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ToolError::Missing(program.clone()),
            _ => ToolError::Io(program.clone(), error),
        })?;
        let out = Capture::start(child.stdout.take());
        let err = Capture::start(child.stderr.take());
        if let (Some(bytes), Some(mut pipe)) = (call.stdin.map(<[u8]>::to_vec), child.stdin.take()) {
            // A program that does not read its input must not block us; one that went away says so by its status.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        Ok(Self { program, child, out, err, started: Instant::now(), given_up: false })
    }

    /// How it ended, once it has. What it left behind in its group is killed then; a daemon has a group of its own.
    ///
    /// # Errors
    /// [`ToolError::Io`] when the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ToolError> {
        if is_over(&self.child) {
            // Not reaped yet, its number is still its group's, and nobody else's.
            kill_group(&self.child);
        }
        self.child.try_wait().map_err(|error| ToolError::Io(self.program.clone(), error))
    }

    /// What it has printed until now, both streams, as text.
    pub fn said(&self) -> String {
        [&self.out, &self.err].map(|stream| String::from_utf8_lossy(&stream.so_far()).into_owned()).concat()
    }

    fn finish(mut self, status: ExitStatus) -> Finished {
        // Looked at before what was read is taken: behind an end nothing comes any more.
        let open = !(self.out.await_end() & self.err.await_end());
        let ((stdout, cut_out), (stderr, cut_err)) = (self.out.take(), self.err.take());
        Finished { status, stdout, stderr, truncated: cut_out || cut_err, open, took: self.started.elapsed() }
    }

    fn time_out(mut self, after: Duration) -> ToolError {
        let hangs = !end_group(&mut self.child);
        self.given_up = hangs;
        self.out.await_end();
        self.err.await_end();
        let (stdout, stderr) = (self.out.take().0, self.err.take().0);
        ToolError::TimedOut { program: self.program.clone(), after, stdout, stderr, hangs }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once reaped, its number may be another program's.
        if !self.given_up && !matches!(self.child.try_wait(), Ok(Some(_))) {
            end_group(&mut self.child);
        }
    }
}

/// Runs a program that must exit 0, and gives its output.
///
/// # Errors
/// `tool_failed` with the end of what it said, or what [`ToolError`] tells.
pub fn output(cx: &JobContext, argv: &[&str]) -> Result<Vec<u8>, Failure> {
    let done = run(cx, &Call { argv, ..Call::default() })?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(fatal(
            "tool_failed",
            format!("`{}` ended with {}: {}", argv.join(" "), done.status, tail(&done.stderr, 600)),
        )),
    }
}

/// The last `max` bytes as text, for messages.
pub fn tail(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(max)..]).trim().to_owned()
}

fn spawn(call: &Call<'_>) -> std::io::Result<Child> {
    let (program, arguments) = call.argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .envs(call.env.iter().copied())
        .env("LC_ALL", "C")
        .env("PATH", search_path())
        .stdin(if call.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Where programs are looked for: sshd gives a command a shorter path than a login has, and the tools of disks live in sbin.
pub fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    let separator = if own.is_empty() { "" } else { ":" };
    format!("{own}{separator}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// Whether a program has ended and is not reaped yet.
fn is_over(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else { return false };
    matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)))
}

/// Kills everything in a program's group.
fn kill_group(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) {
        let _ = killpg(pid, Signal::SIGKILL);
    }
}

/// Kills the program and everything it started in its group, and reaps it; says whether it is gone.
fn end_group(child: &mut Child) -> bool {
    kill_group(child);
    if let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) {
        // It may have gone to another group.
        let _ = kill(pid, Signal::SIGKILL);
    }
    let killed = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if killed.elapsed() >= DYING {
            return false;
        }
        std::thread::sleep(LAST_POLL);
    }
    true
}

/// One stream, read by its own thread.
#[derive(Debug)]
struct Capture {
    seen: Arc<Mutex<(Vec<u8>, bool)>>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let seen = Arc::new(Mutex::new((Vec::new(), false)));
        let thread = pipe.map(|mut pipe| {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut chunk = [0; 16 << 10];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = OUTPUT_MAX.saturating_sub(seen.0.len()).min(count);
                    seen.0.extend_from_slice(&chunk[..room]);
                    seen.1 |= room < count;
                }
            })
        });
        Self { seen, thread }
    }

    /// What was read until now.
    fn so_far(&self) -> Vec<u8> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Waits for the stream's end, [`DRAIN`] at most; whether it came.
    fn await_end(&self) -> bool {
        let started = Instant::now();
        let open = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while open() && started.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(2));
        }
        !open()
    }

    /// What was read, and whether it is cut.
    fn take(&mut self) -> (Vec<u8>, bool) {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

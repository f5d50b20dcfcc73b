//! Runs programs without a shell: with a deadline killing the whole process group, capped output,
//! and the job's cancellation.

mod ending; // The end of a program and of its process group
mod guard; // Limits of a gate's tool
mod output; // The output of a program, up to a bound

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use muster_core::gates::Sandbox;
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{fatal, retryable};
use crate::job::JobContext;

use ending::{end_group, is_over, kill_group};
use guard::{Guarded, Refusal};
use output::Capture;

pub use guard::{Ceiling, Guard};
pub use output::{OUTPUT_MAX, Superseded};

pub(crate) use guard::exec_tool;
pub(crate) use output::Output;

/// Interval between two checks of a running program, growing from the first to the last: most
/// programs take milliseconds, the rest minutes.
const FIRST_POLL: Duration = Duration::from_millis(1);
const LAST_POLL: Duration = Duration::from_millis(20);

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    /// Program and arguments.
    pub argv: &'a [&'a str],
    pub stdin: Option<&'a [u8]>,
    /// The folders of the search for the program, and `PATH` of the program; `None`:
    /// [`search_path`].
    pub path: Option<&'a str>,
    /// The working folder; `None`: the folder of muster-node.
    pub folder: Option<&'a Path>,
    /// Variables added to muster-node's own environment.
    pub env: &'a [(&'a str, &'a str)],
    /// The program's own deadline; the job's deadline applies as well. `None`: only the job's
    /// deadline.
    pub timeout: Option<Duration>,
    /// Kills the rest of the process group after the program ended. A program going into the
    /// background may not have left the group yet.
    pub kills_leftovers: bool,
    /// Pieces of stdout to drop.
    pub superseded: Option<Superseded>,
    /// Limits of the program and of its descendants. A limited program has no stdin, and no
    /// descendant outlives the program.
    pub guard: Option<&'a Guard>,
    /// The sandbox of a limited program; `None`: no sandbox.
    pub sandbox: Option<Sandbox>,
}

/// The end of a program.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether output exceeded [`OUTPUT_MAX`].
    pub truncated: bool,
    /// Whether a process left behind still holds the output open: more output may follow.
    pub open: bool,
    pub took: Duration,
}

/// The reason for a missing [`Finished`].
#[derive(Debug)]
pub enum ToolError {
    /// The program is not installed.
    Missing(String),
    /// The program was killed with its group after `after`.
    TimedOut {
        program: String,
        after: Duration,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        /// Whether the program survived the longest wait after the kill (`ending.rs`).
        hangs: bool,
    },
    /// The program reached a limit of its [`Guard`] and was killed. An exit status of 0 counts for
    /// as little as every other status: a part of the work may be missing.
    Limited {
        program: String,
        ceiling: Ceiling,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    /// The job was cancelled and the program killed.
    Cancelled(String),
    Io(String, std::io::Error),
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Missing(program) => fatal(
                FailureCode::ToolMissing,
                format!("{program} is not installed on this node"),
            ),
            ToolError::TimedOut {
                program,
                after,
                hangs,
                ..
            } => retryable(
                FailureCode::ToolTimeout,
                format!("{program} {}", overdue(after.as_secs(), hangs)),
            ),
            ToolError::Limited {
                program, ceiling, ..
            } => fatal(FailureCode::ToolFailed, format!("{program} {ceiling}")),
            ToolError::Cancelled(program) => fatal(
                FailureCode::Cancelled,
                format!("the job was cancelled while {program} ran"),
            ),
            ToolError::Io(program, error) => {
                retryable(FailureCode::ToolIo, format!("{program}: {error}"))
            }
        }
    }
}

/// Describes a program that exceeded its time limit.
pub fn overdue(after_s: u64, hangs: bool) -> String {
    let fate = if hangs {
        ", and cannot be killed: the program hangs in the kernel"
    } else {
        " and was killed"
    };
    format!("did not end within {after_s} s{fate}")
}

/// Runs a program to its end; any exit status is a success here.
///
/// # Errors
/// [`ToolError`] when the program could not start or did not end by itself.
pub fn run(cx: &JobContext, call: &Call<'_>) -> Result<Finished, ToolError> {
    let mut running = Running::start(call)?;
    let mut poll = FIRST_POLL;
    let limit = call
        .timeout
        .map_or(cx.remaining(), |own| own.min(cx.remaining()));
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

/// A program running in the background. Dropping the value kills the program and its process group.
#[derive(Debug)]
pub struct Running {
    program: String,
    child: Child,
    out: Capture,
    err: Capture,
    guarded: Option<Guarded>,
    started: Instant,
    kills_leftovers: bool,
    /// Whether the program was reaped or abandoned. Its process id may belong to another program
    /// now and must not be signalled.
    settled: bool,
}

impl Running {
    /// Starts a program in its own process group. The caller enforces the call's timeout.
    ///
    /// # Errors
    /// [`ToolError::Missing`], [`ToolError::Io`].
    pub fn start(call: &Call<'_>) -> Result<Self, ToolError> {
        let program = call.argv.first().copied().unwrap_or_default().to_owned();
        let (mut child, guarded) = spawn(call).map_err(|error| match error.kind() {
            // With limits, muster-node itself is started here: see `refusal`.
            std::io::ErrorKind::NotFound if call.guard.is_none() => {
                ToolError::Missing(program.clone())
            }
            _ => ToolError::Io(program.clone(), error),
        })?;
        let out = Capture::start(child.stdout.take(), call.superseded);
        let err = Capture::start(child.stderr.take(), None);
        if let (Some(bytes), Some(mut pipe)) = (call.stdin.map(<[u8]>::to_vec), child.stdin.take())
        {
            // A program that ignores its input must not block muster-node; an early exit shows in
            // the status.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        let (started, kills_leftovers) = (Instant::now(), call.kills_leftovers);
        Ok(Self {
            program,
            child,
            out,
            err,
            guarded,
            started,
            kills_leftovers,
            settled: false,
        })
    }

    /// Returns the exit status after the program has ended. Kills a program that has reached a
    /// limit.
    ///
    /// # Errors
    /// [`ToolError::Limited`]; [`ToolError::Missing`] for a program with limits; [`ToolError::Io`]
    /// when the status cannot be read.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ToolError> {
        if !self.settled && !is_over(&self.child) {
            return self.check_limits().map(|()| None);
        }
        if !self.settled {
            self.kill_leftovers();
        }
        let status = self
            .child
            .try_wait()
            .map_err(|error| ToolError::Io(self.program.clone(), error))?;
        self.settled = status.is_some();
        if let Some(status) = status
            && let Some(error) = self.refusal(status)
        {
            return Err(error);
        }
        self.check_limits().map(|()| status)
    }

    /// Kills the processes that the program has left behind. The program is not reaped yet, so its
    /// process id still names its own group.
    fn kill_leftovers(&self) {
        if let Some(guarded) = &self.guarded {
            guarded.kill();
        }
        if self.kills_leftovers {
            kill_group(&self.child);
        }
    }

    /// The reason of a program with limits that has not started.
    fn refusal(&mut self, status: ExitStatus) -> Option<ToolError> {
        let program = self.program.clone();
        match self.guarded.as_mut()?.refusal(status)? {
            Refusal::Program(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some(ToolError::Missing(program))
            }
            Refusal::Program(error) | Refusal::Limits(error) => Some(ToolError::Io(program, error)),
            Refusal::Sandbox(error) => {
                let why = format!("the sandbox of the tool was not made: {error}");
                Some(ToolError::Io(program, std::io::Error::other(why)))
            }
        }
    }

    /// Kills the program where a limit was reached.
    fn check_limits(&mut self) -> Result<(), ToolError> {
        let Some(ceiling) = self.guarded.as_ref().and_then(Guarded::ceiling) else {
            return Ok(());
        };
        if !self.settled {
            self.kill();
        }
        let [stdout, stderr] = self.last_output();
        Err(ToolError::Limited {
            program: self.program.clone(),
            ceiling,
            stdout,
            stderr,
        })
    }

    /// Kills the program with its descendants, and reaps the program; returns whether the program
    /// is gone.
    fn kill(&mut self) -> bool {
        if let Some(guarded) = &self.guarded {
            guarded.kill();
        }
        self.settled = true;
        end_group(&mut self.child)
    }

    /// Takes the output of a killed program.
    fn last_output(&mut self) -> [Vec<u8>; 2] {
        self.out.await_end();
        self.err.await_end();
        [self.out.take().0, self.err.take().0]
    }

    /// Returns the output until now, both streams, as text.
    pub fn said(&self) -> String {
        [&self.out, &self.err]
            .map(|stream| String::from_utf8_lossy(&stream.so_far()).into_owned())
            .concat()
    }

    fn finish(mut self, status: ExitStatus) -> Finished {
        // Checked before the output is taken: after the end of a stream no output follows.
        let open = !(self.out.await_end() & self.err.await_end());
        let ((stdout, cut_out), (stderr, cut_err)) = (self.out.take(), self.err.take());
        Finished {
            status,
            stdout,
            stderr,
            truncated: cut_out || cut_err,
            open,
            took: self.started.elapsed(),
        }
    }

    fn time_out(mut self, after: Duration) -> ToolError {
        let hangs = !self.kill();
        let [stdout, stderr] = self.last_output();
        ToolError::TimedOut {
            program: self.program.clone(),
            after,
            stdout,
            stderr,
            hangs,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.settled {
            self.kill();
        }
    }
}

/// Runs a program that must exit 0, and returns its stdout.
///
/// # Errors
/// `tool_failed` with the last 600 bytes of stderr, or the failure of a [`ToolError`].
pub fn output(cx: &JobContext, argv: &[&str]) -> Result<Vec<u8>, Failure> {
    let done = run(
        cx,
        &Call {
            argv,
            ..Call::default()
        },
    )?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(fatal(
            FailureCode::ToolFailed,
            format!(
                "`{}` ended with {}: {}",
                argv.join(" "),
                done.status,
                tail(&done.stderr, 600)
            ),
        )),
    }
}

/// Returns the last `max` bytes as text, for messages.
pub fn tail(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(max)..])
        .trim()
        .to_owned()
}

fn spawn(call: &Call<'_>) -> std::io::Result<(Child, Option<Guarded>)> {
    let (program, arguments) = call
        .argv
        .split_first()
        .ok_or(std::io::ErrorKind::InvalidInput)?;
    let (mut command, guarded) = match (call.guard, call.stdin) {
        (Some(guard), None) => {
            let (command, guarded) = guard.command(call.argv, call.sandbox)?;
            (command, Some(guarded))
        }
        (Some(_), Some(_)) => return Err(std::io::ErrorKind::InvalidInput.into()),
        (None, _) if call.sandbox.is_some() => {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        (None, stdin) => {
            let mut command = Command::new(program);
            command.args(arguments).stdin(match stdin {
                Some(_) => Stdio::piped(),
                None => Stdio::null(),
            });
            (command, None)
        }
    };
    if let Some(folder) = call.folder {
        command.current_dir(folder);
    }
    let path = call.path.map_or_else(search_path, str::to_owned);
    let child = command
        .envs(call.env.iter().copied())
        .env("LC_ALL", "C")
        .env("PATH", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    Ok((child, guarded))
}

/// The search path for programs. sshd gives a command a shorter path than a login, and disk tools
/// are in sbin.
pub fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    let separator = if own.is_empty() { "" } else { ":" };
    format!("{own}{separator}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

#[cfg(test)]
mod tests; // Processes that a program leaves behind

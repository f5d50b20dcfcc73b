//! Other programs, run without a shell: with a deadline that kills the whole process group, capped output, and the job's cancellation.

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muster_core::wire::node::{Failure, FailureCode};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::failure::{fatal, retryable};
use crate::job::JobContext;

/// Output kept of one program and stream, in bytes; the rest is read and dropped.
pub const OUTPUT_MAX: usize = 16 << 20;
/// How soon a running program is looked at again: most take milliseconds, the others minutes.
const FIRST_POLL: Duration = Duration::from_millis(1);
const LAST_POLL: Duration = Duration::from_millis(20);
/// After a program ended, its daemons may hold its pipes open: they are not waited for longer than this.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a killed program may take to be gone. One that hangs in the kernel, on a device that does not answer, never is, and is left to it.
const DYING: Duration = Duration::from_secs(5);

/// Whether what a tool wrote from one carriage return to the next, which takes it off the screen, tells nothing beside what it wrote over it.
pub type Superseded = fn(&[u8], &[u8]) -> bool;

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
    /// Kills what it left in its group once it has ended. A program that goes into the background may still be on its way out of the group then.
    pub kills_leftovers: bool,
    /// What of its stdout is not kept.
    pub superseded: Option<Superseded>,
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
            ToolError::Missing(program) => fatal(
                FailureCode::ToolMissing,
                format!("{program} is not installed here"),
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

/// What is said of a program that had its time.
pub fn overdue(after_s: u64, hangs: bool) -> String {
    let fate = if hangs {
        ", and cannot be killed: it hangs in the kernel"
    } else {
        " and was killed"
    };
    format!("did not end within {after_s} s{fate}")
}

/// Runs a program to its end, whatever its exit status.
///
/// # Errors
/// [`ToolError`] when it could not run to its end.
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

/// A program that runs beside us. Dropping it kills it with everything it started in its group.
#[derive(Debug)]
pub struct Running {
    program: String,
    child: Child,
    out: Capture,
    err: Capture,
    started: Instant,
    kills_leftovers: bool,
    /// Reaped, or given up: nothing is to be done about it any more, and its number may be another program's.
    settled: bool,
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
        let out = Capture::start(child.stdout.take(), call.superseded);
        let err = Capture::start(child.stderr.take(), None);
        if let (Some(bytes), Some(mut pipe)) = (call.stdin.map(<[u8]>::to_vec), child.stdin.take())
        {
            // A program that does not read its input must not block us; one that went away says so by its status.
            std::thread::spawn(move || pipe.write_all(&bytes));
        }
        let (started, kills_leftovers) = (Instant::now(), call.kills_leftovers);
        Ok(Self {
            program,
            child,
            out,
            err,
            started,
            kills_leftovers,
            settled: false,
        })
    }

    /// How it ended, once it has.
    ///
    /// # Errors
    /// [`ToolError::Io`] when the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ToolError> {
        if !self.settled && !is_over(&self.child) {
            return Ok(None);
        }
        if self.kills_leftovers && !self.settled {
            // Not reaped yet, its number is still its group's, and nobody else's.
            kill_group(&self.child);
        }
        let status = self
            .child
            .try_wait()
            .map_err(|error| ToolError::Io(self.program.clone(), error))?;
        self.settled = status.is_some();
        Ok(status)
    }

    /// What it has printed until now, both streams, as text.
    pub fn said(&self) -> String {
        [&self.out, &self.err]
            .map(|stream| String::from_utf8_lossy(&stream.so_far()).into_owned())
            .concat()
    }

    fn finish(mut self, status: ExitStatus) -> Finished {
        // Looked at before what was read is taken: behind an end nothing comes any more.
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
        let hangs = !end_group(&mut self.child);
        self.settled = true;
        self.out.await_end();
        self.err.await_end();
        let (stdout, stderr) = (self.out.take().0, self.err.take().0);
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
            end_group(&mut self.child);
        }
    }
}

/// Runs a program that must exit 0, and gives its output.
///
/// # Errors
/// `tool_failed` with the end of what it said, or what [`ToolError`] tells.
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

/// The last `max` bytes as text, for messages.
pub fn tail(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(max)..])
        .trim()
        .to_owned()
}

fn spawn(call: &Call<'_>) -> std::io::Result<Child> {
    let (program, arguments) = call
        .argv
        .split_first()
        .ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .envs(call.env.iter().copied())
        .env("LC_ALL", "C")
        .env("PATH", search_path())
        .stdin(if call.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
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

/// Whether a program that is not reaped yet has ended: of one that runs the system says so.
fn is_over(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else {
        return false;
    };
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
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

/// What is kept of a stream, up to a bound.
#[derive(Debug)]
pub(crate) struct Output {
    kept: Vec<u8>,
    truncated: bool,
    max: usize,
    superseded: Option<Superseded>,
    /// Where the two newest pieces begin, each with its carriage return.
    newest: [Option<usize>; 2],
}

impl Output {
    pub(crate) fn new(max: usize, superseded: Option<Superseded>) -> Self {
        Self {
            kept: Vec::new(),
            truncated: false,
            max,
            superseded,
            newest: [None; 2],
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\r') {
            let room = self.max.saturating_sub(self.kept.len()).min(piece.len());
            self.kept.extend_from_slice(&piece[..room]);
            self.truncated |= room < piece.len();
            if let (Some(superseded), true) = (
                self.superseded,
                piece.ends_with(b"\r") && room == piece.len(),
            ) {
                self.end_piece(superseded);
            }
        }
    }

    /// A piece is whole, and the next one begins: whether the one before it is still needed.
    fn end_piece(&mut self, superseded: Superseded) {
        let end = self.kept.len() - 1;
        let [former, latest] = self.newest;
        self.newest = [latest, Some(end)];
        if let (Some(former), Some(latest)) = (former, latest)
            && superseded(&self.kept[former..latest], &self.kept[latest..end])
        {
            self.kept.drain(former..latest);
            self.newest = [Some(former), Some(end - (latest - former))];
        }
    }

    /// What is kept, and whether it is cut.
    pub(crate) fn take(&mut self) -> (Vec<u8>, bool) {
        let (max, superseded) = (self.max, self.superseded);
        let Self {
            kept, truncated, ..
        } = std::mem::replace(self, Self::new(max, superseded));
        (kept, truncated)
    }
}

/// One stream, read by its own thread.
#[derive(Debug)]
struct Capture {
    seen: Arc<Mutex<Output>>,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    fn start(pipe: Option<impl Read + Send + 'static>, superseded: Option<Superseded>) -> Self {
        let seen = Arc::new(Mutex::new(Output::new(OUTPUT_MAX, superseded)));
        let thread = pipe.map(|mut pipe| {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                let mut chunk = [0; 16 << 10];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    seen.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(&chunk[..count]);
                }
            })
        });
        Self { seen, thread }
    }

    /// What was read until now.
    fn so_far(&self) -> Vec<u8> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .kept
            .clone()
    }

    /// Waits for the stream's end, [`DRAIN`] at most; whether it came.
    fn await_end(&self) -> bool {
        let started = Instant::now();
        let open = || {
            self.thread
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
        };
        while open() && started.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(2));
        }
        !open()
    }

    /// What was read, and whether it is cut.
    fn take(&mut self) -> (Vec<u8>, bool) {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that ends at once and leaves one of its group behind, and that one's command line.
    fn leaves(seconds: &str) -> ([String; 3], Vec<u8>) {
        let script = format!("sleep {seconds} >/dev/null 2>&1 &");
        (
            ["sh".into(), "-c".into(), script],
            format!("sleep\0{seconds}\0").into_bytes(),
        )
    }

    /// Those that run with a command line. What was killed is gone a moment later.
    fn running(line: &[u8]) -> Vec<Pid> {
        std::thread::sleep(Duration::from_millis(100));
        let of = |entry: std::fs::DirEntry| {
            let same = std::fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line);
            same.then(|| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
                .flatten()
        };
        std::fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter_map(of)
            .collect()
    }

    #[test]
    fn a_daemon_outlives_the_program_that_started_it_and_no_gate_leaves_one() {
        let cx = JobContext::foreground(Duration::from_secs(60));
        for (at, kills_leftovers) in [false, true].into_iter().enumerate() {
            let (argv, line) = leaves(&format!("{}.{at}1", 100_000 + std::process::id()));
            let call = Call {
                argv: &argv.each_ref().map(String::as_str),
                kills_leftovers,
                ..Call::default()
            };
            assert!(run(&cx, &call).expect("it ran").status.success());
            let left = running(&line);
            left.iter()
                .for_each(|pid| kill(*pid, Signal::SIGKILL).expect("it runs"));
            assert_eq!(left.len(), usize::from(!kills_leftovers));
        }
    }

    #[test]
    fn who_drops_a_program_that_just_ended_drops_its_group() {
        let (argv, line) = leaves(&format!("{}.31", 100_000 + std::process::id()));
        let call = Call {
            argv: &argv.each_ref().map(String::as_str),
            ..Call::default()
        };
        let running_one = Running::start(&call).expect("it starts");
        while !is_over(&running_one.child) {
            std::thread::sleep(FIRST_POLL);
        }
        drop(running_one);
        assert_eq!(running(&line), []);
    }
}

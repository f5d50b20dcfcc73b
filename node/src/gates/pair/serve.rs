//! The listening end: starts the tool and checks for its listening socket. The tool and its process
//! group are killed after their time, at the end of the
//! input, or on request.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_core::facts::Facts;
use muster_core::gates::{Gate, Peer};
use muster_core::wire::node::{Failure, FailureCode, GatePlan};
use muster_core::wire::pair::PairLine;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::{MARGIN, only_gate, port, say};
use crate::failure::{fatal, retryable};
use crate::gates::program::find_program;
use crate::gates::{Bench, Shared, argv, needs};
use crate::job::JobContext;
use crate::machine::Machine;
use crate::tool::{self, Call, Guard, Running};

/// Interval for checking the tool.
const POLL: Duration = Duration::from_millis(10);
/// Bytes kept of the tool's output, from the end.
const SAID_MAX: usize = 4 << 10;

/// The cause of an early end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The process at the other end of stdin is gone.
    InputEnds,
    /// A signal by a person.
    Told,
}

/// Serves a single pair. Prints a [`PairLine`] when the tool listens, and another after an end by
/// itself.
///
/// # Errors
/// `needs` when the node must not be loaded, `not_listening` when the tool ended or did not listen
/// in time, `peer_timeout` at the end of the time.
pub(super) fn run(plan: &GatePlan, until: Until) -> Result<(), Failure> {
    let gate = only_gate(plan)?;
    let peer = gate
        .peer
        .as_ref()
        .ok_or_else(|| fatal(FailureCode::BadPlan, "the gate has no peer"))?;
    refuse(gate, plan)?;
    // Before any thread starts, so all threads have the same signal mask.
    let stop = Stop::watch(until)?;
    let mut missing_limits = None;
    let guard = Guard::enter(|why| match until {
        Until::Told => eprintln!("muster-node: {why}"),
        // The agent reads stderr as a single failure, so the note is a part of the failure.
        Until::InputEnds => missing_limits = Some(why.to_owned()),
    });
    serve(gate, peer, plan, &stop, &guard).map_err(|failure| match missing_limits {
        Some(why) => Failure {
            message: format!("{}; {why}", failure.message),
            ..failure
        },
        None => failure,
    })
}

/// Serves until the tool ends, the time is over, or `stop` is requested.
fn serve(
    gate: &Gate,
    peer: &Peer,
    plan: &GatePlan,
    stop: &Stop,
    guard: &Guard,
) -> Result<(), Failure> {
    let port = match plan.variables.get("pair_port") {
        Some(given) => given
            .parse()
            .map_err(|_| fatal(FailureCode::Usage, format!("{given:?} is no port")))?,
        None => port::choose(std::process::id())?,
    };
    let mut words = plan.variables.clone();
    words.insert("pair_port".into(), port.to_string());
    let deadline = Instant::now() + Duration::from_secs(peer.ready_s + gate.timeout_s) + MARGIN;
    let argv = expand_argv(peer, &words)?;
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let program = find_program(name, gate, plan, &Machine::host())?;
    let arguments = argv.iter().skip(1).map(String::as_str);
    let argv: Vec<&str> = std::iter::once(program.file.as_str())
        .chain(arguments)
        .collect();
    let mut tool = Running::start(&Call {
        argv: &argv,
        path: program.path.as_deref(),
        kills_leftovers: true,
        guard: Some(guard),
        sandbox: program.sandbox,
        ..Call::default()
    })?;
    if !listening(&mut tool, peer, port, stop)? {
        return Ok(());
    }
    say(&PairLine::Listening { port })?;
    while Instant::now() < deadline {
        if let Some(status) = tool.ended()? {
            return say(&PairLine::Ended {
                exit: status.code(),
                said: tool::tail(tool.said().as_bytes(), SAID_MAX),
            });
        }
        if stop.asked() {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    Err(retryable(
        FailureCode::PeerTimeout,
        format!(
            "{} had its time and was killed: nobody came, or nobody left",
            peer.argv[0]
        ),
    ))
}

/// The requirements of the asking end also hold for the listening end.
fn refuse(gate: &Gate, plan: &GatePlan) -> Result<(), Failure> {
    let cx = JobContext::foreground(MARGIN);
    let shared = Shared::default();
    let bench = Bench {
        machine: Machine::host(),
        plan,
        facts: &Facts::default(),
        cx: &cx,
        // No tool runs here.
        guard: None,
        shared: &shared,
    };
    match needs::refusal(gate, &bench) {
        Some(why) => Err(fatal(FailureCode::Needs, why)),
        None => Ok(()),
    }
}

/// The listener's arguments with every `${word}` replaced.
fn expand_argv(peer: &Peer, words: &BTreeMap<String, String>) -> Result<Vec<String>, Failure> {
    let argv = peer
        .argv
        .iter()
        .map(|argument| argv::expand_argument(argument, words));
    argv.collect::<Result<Vec<String>, String>>()
        .map_err(|why| fatal(FailureCode::NoVariable, why))
}

/// Waits until the tool listens; `false` for an earlier stop.
fn listening(tool: &mut Running, peer: &Peer, port: u16, stop: &Stop) -> Result<bool, Failure> {
    let started = Instant::now();
    let failed = |tool: &Running, what: String| {
        let said = tool::tail(tool.said().as_bytes(), 600);
        Err(retryable(
            FailureCode::NotListening,
            format!("{} {what}: {said}", peer.argv[0]),
        ))
    };
    while started.elapsed() < Duration::from_secs(peer.ready_s) {
        if let Some(status) = tool.ended()? {
            return failed(tool, format!("ended with {status} before anybody came"));
        }
        let ready = match &peer.says {
            Some(sign) => tool.said().contains(sign.as_str()),
            None => port::is_open(port),
        };
        if ready || stop.asked() {
            return Ok(ready);
        }
        std::thread::sleep(POLL);
    }
    failed(tool, format!("did not listen within {} s", peer.ready_s))
}

/// Returns whether a stop is requested.
struct Stop {
    signals: SignalFd,
    input_ended: Arc<AtomicBool>,
}

impl Stop {
    /// The tool has a separate process group, so a terminal's Ctrl-C does not reach the tool:
    /// signals are handled here.
    fn watch(until: Until) -> Result<Self, Failure> {
        let refused =
            |errno: nix::errno::Errno| retryable(FailureCode::Io, format!("signals: {errno}"));
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block().map_err(refused)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).map_err(refused)?;
        let input_ended = Arc::new(AtomicBool::new(false));
        if until == Until::InputEnds {
            let ended = Arc::clone(&input_ended);
            std::thread::spawn(move || {
                let mut scrap = [0; 256];
                while let Ok(1..) = std::io::stdin().lock().read(&mut scrap) {}
                ended.store(true, Ordering::Relaxed);
            });
        }
        Ok(Self {
            signals,
            input_ended,
        })
    }

    fn asked(&self) -> bool {
        self.input_ended.load(Ordering::Relaxed)
            || matches!(self.signals.read_signal(), Ok(Some(_)))
    }
}

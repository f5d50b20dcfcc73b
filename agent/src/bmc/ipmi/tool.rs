//! Runs `ipmitool`: argv without a shell, the password in its environment, a deadline, bounded output. One packet per question: what is sent again
//! by itself may act twice.

use std::process::Stdio;
use std::sync::{Arc, PoisonError};

use muster_core::ids::JobId;
use muster_core::values::{Digest, Secret};
use muster_core::wire::bmc::IpmiTarget;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::said::{Refusal, judge};
use crate::bmc::error::BmcError;
use crate::bmc::pace::{Limits, Slot};

const PROGRAM: &str = "ipmitool";
/// Bytes kept of each output.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Longest user and password (IPMI 2.0, sections 22.28 and 22.30).
const USER_BYTES: usize = 16;
const PASSWORD_BYTES: usize = 20;
/// Seconds until a question counts as not answered.
const ANSWER_S: &str = "2";
/// Cipher suites, best first: SHA-256 and SHA-1, both with AES. Never 0, which asks for no password. Never left to ipmitool: it asks the BMC which it
/// has, and waits ten seconds for those that do not say.
const SUITES: [&str; 2] = ["17", "3"];

/// One BMC and who asks it.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) target: IpmiTarget,
    pub(super) credentials: Digest,
    /// On whose behalf.
    pub(super) job: JobId,
    pub(super) slot: Arc<Slot>,
    pub(super) limits: Limits,
}

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
struct Asking<'a> {
    arguments: &'a [&'a str],
    words: Words,
    /// A command for its standard input, of which nobody is to know.
    script: Option<&'a Secret>,
}

/// How much ipmitool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Why a session was not opened, too.
    Many,
    Few,
}

impl Tool {
    /// What ipmitool prints for these arguments.
    pub(super) async fn run(&self, arguments: &[&str], words: Words) -> Result<String, BmcError> {
        self.ask(Asking {
            arguments,
            words,
            script: None,
        })
        .await
    }

    /// The same for one command that no list of processes may show; as an administrator of the BMC.
    pub(super) async fn run_unseen(&self, command: &Secret) -> Result<String, BmcError> {
        self.ask(Asking {
            arguments: &["exec", "/dev/stdin"],
            words: Words::Few,
            script: Some(command),
        })
        .await
    }

    async fn ask(&self, asking: Asking<'_>) -> Result<String, BmcError> {
        let Self {
            target,
            credentials,
            job,
            slot,
            limits,
        } = self;
        if target.user.len() > USER_BYTES || target.password.reveal().len() > PASSWORD_BYTES {
            let what = format!(
                "an IPMI user has at most {USER_BYTES} bytes and its password {PASSWORD_BYTES}"
            );
            return Err(BmcError::Unsupported { what });
        }
        let _turn = slot.turn(limits.spacing).await;
        let mut refusal = String::new();
        for suite in self.suites() {
            slot.may_log_in(*credentials, *job)?;
            match self.run_with(suite, asking).await {
                Ok(said) => {
                    self.remember(suite);
                    return Ok(said);
                }
                Err(Refusal::Suite { said }) => refusal = said,
                Err(Refusal::Login { said }) => {
                    let again_in = slot.note_refusal(*credentials, *job, limits);
                    return Err(BmcError::BadCredentials { said, again_in });
                }
                Err(Refusal::Unreachable(error)) => return Err(error),
                Err(Refusal::Answer(error)) => {
                    self.remember(suite);
                    return Err(error);
                }
            }
        }
        Err(BmcError::Unsupported {
            what: format!(
                "it opens no session with cipher suite {}: {refusal}",
                SUITES.join(" or ")
            ),
        })
    }

    /// The suite that worked last, then the others.
    fn suites(&self) -> impl Iterator<Item = &'static str> + use<> {
        let last = *self
            .slot
            .suite
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.into_iter()
            .chain(SUITES.into_iter().filter(move |suite| Some(*suite) != last))
    }

    /// A session was opened.
    fn remember(&self, suite: &'static str) {
        self.slot.note_login();
        *self
            .slot
            .suite
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(suite);
    }

    async fn run_with(&self, suite: &str, asking: Asking<'_>) -> Result<String, Refusal> {
        let call = asking.arguments.join(" ");
        let mut child = self.command(suite, asking).spawn().map_err(|error| {
            Refusal::Unreachable(BmcError::NoTool {
                program: PROGRAM,
                why: error.to_string(),
            })
        })?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let output = async {
            let (_written, stdout, stderr) =
                tokio::join!(write(stdin, asking.script), read(stdout), read(stderr));
            (child.wait().await, stdout, stderr)
        };
        match tokio::time::timeout(self.limits.call, output).await {
            Err(_) => {
                let why = format!("within {:?}", self.limits.call);
                Err(Refusal::Unreachable(BmcError::Timeout { call, why }))
            }
            Ok((Err(error), _, _)) => Err(Refusal::Unreachable(BmcError::Timeout {
                call,
                why: format!("{PROGRAM} was lost: {error}"),
            })),
            Ok((Ok(status), stdout, stderr)) => judge(&call, status, &stdout, &stderr),
        }
    }

    fn command(
        &self,
        suite: &str,
        Asking {
            arguments,
            words,
            script,
        }: Asking<'_>,
    ) -> Command {
        let IpmiTarget {
            address,
            port,
            user,
            password,
            ..
        } = &self.target;
        let (level, stdin) = match script {
            Some(_) => ("ADMINISTRATOR", Stdio::piped()),
            None => ("OPERATOR", Stdio::null()),
        };
        let mut command = Command::new(PROGRAM);
        command
            .args([
                "-I",
                "lanplus",
                "-H",
                &address.to_string(),
                "-p",
                &port.to_string(),
                "-U",
                user,
                "-E",
            ])
            .args(["-C", suite, "-L", level, "-N", ANSWER_S, "-R", "1"])
            .args((words == Words::Many).then_some("-v"))
            .args(arguments)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            // Dates in the one format that the parser knows.
            .envs([
                ("LC_ALL", "C"),
                ("TZ", "UTC"),
                ("IPMI_PASSWORD", password.reveal()),
            ])
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

/// A line for its standard input, and the end of it.
async fn write(pipe: Option<tokio::process::ChildStdin>, script: Option<&Secret>) {
    if let (Some(mut pipe), Some(script)) = (pipe, script) {
        // A program that does not read has said why by then.
        _ = pipe
            .write_all(format!("{}\n", script.reveal()).as_bytes())
            .await;
        _ = pipe.shutdown().await;
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // A pipe that breaks has said all it will; the exit status tells the rest.
        _ = pipe.take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

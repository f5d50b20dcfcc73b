//! Runs `ipmitool` without a shell, with the password in the environment, a deadline and bounded
//! output. Sends a single packet per question, because an automatic retransmission can execute an
//! action twice.

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
/// Maximum number of bytes kept from each output stream.
const OUTPUT_BYTES: u64 = 64 << 10;
/// Maximum length of user name and password in bytes (IPMI 2.0, sections 22.28 and 22.30).
const USER_BYTES: usize = 16;
const PASSWORD_BYTES: usize = 20;
/// Seconds until ipmitool treats a question as unanswered.
const ANSWER_S: &str = "2";
/// Cipher suites, best first: SHA-256 and SHA-1, both with AES. Suite 0 is excluded because suite 0
/// needs no password. ipmitool never chooses the suite: it would query the BMC first and wait ten
/// seconds for BMCs without an answer.
const SUITES: [&str; 2] = ["17", "3"];

/// The BMC and the job using the handle.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) target: IpmiTarget,
    pub(super) credentials: Digest,
    /// The job on whose behalf ipmitool runs.
    pub(super) job: JobId,
    pub(super) slot: Arc<Slot>,
    pub(super) limits: Limits,
}

/// Arguments and input of an ipmitool run.
#[derive(Clone, Copy, Debug)]
struct Asking<'a> {
    arguments: &'a [&'a str],
    words: Words,
    /// A secret command for standard input, hidden from the process list and the logs.
    script: Option<&'a Secret>,
}

/// Verbosity of ipmitool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Also prints why a session was not opened.
    Many,
    Few,
}

impl Tool {
    /// Runs ipmitool with these arguments and returns its output.
    pub(super) async fn run(&self, arguments: &[&str], words: Words) -> Result<String, BmcError> {
        self.ask(Asking {
            arguments,
            words,
            script: None,
        })
        .await
    }

    /// Runs a secret command, hidden from the process list, with the administrator privilege of the
    /// BMC.
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

    /// Returns the suite of the latest session, followed by the other suites.
    fn suites(&self) -> impl Iterator<Item = &'static str> + use<> {
        let last = *self
            .slot
            .suite
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.into_iter()
            .chain(SUITES.into_iter().filter(move |suite| Some(*suite) != last))
    }

    /// Records the suite of an opened session and clears the login refusals.
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
            // The parser supports dates in a single format only.
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

/// Writes the script line to standard input and closes the pipe.
async fn write(pipe: Option<tokio::process::ChildStdin>, script: Option<&Secret>) {
    if let (Some(mut pipe), Some(script)) = (pipe, script) {
        // A program that stops reading has already printed the reason.
        _ = pipe
            .write_all(format!("{}\n", script.reveal()).as_bytes())
            .await;
        _ = pipe.shutdown().await;
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // After a broken pipe no more output follows. The exit status shows the result.
        _ = pipe.take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

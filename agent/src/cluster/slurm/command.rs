//! Runs Slurm's own programs: argv without a shell, a deadline, bounded output.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::error::SlurmError;

/// Bytes kept of each output; `sinfo` prints some dozen per node.
const OUTPUT_BYTES: u64 = 8 << 20;
/// Characters of a program's complaint that are passed on.
const SAID_CHARS: usize = 400;

/// A program's standard output.
pub(super) async fn run(
    conf: &str,
    program: impl AsRef<OsStr>,
    arguments: &[&str],
    deadline: Duration,
) -> Result<String, SlurmError> {
    let program = program.as_ref();
    let command = format!("{} {}", program.to_string_lossy(), arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .env("SLURM_CONF", conf)
        .env("LC_ALL", "C")
        // Times in the one format that the parser knows, whatever the agent's own environment says.
        .env_remove("SLURM_TIME_FORMAT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => SlurmError::ToolMissing { program: program.to_string_lossy().into_owned() },
            _ => SlurmError::Files { path: program.to_string_lossy().into_owned(), source },
        })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        (child.wait().await, stdout, stderr)
    };
    match tokio::time::timeout(deadline, output).await {
        Err(_) => Err(SlurmError::Timeout { command, after: deadline }),
        Ok((Err(source), _, _)) => Err(SlurmError::Files { path: command, source }),
        Ok((Ok(status), stdout, stderr)) => judge(command, status, stdout, &stderr),
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // A pipe that breaks has said all it will; the exit status tells the rest.
        _ = pipe.take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    bytes
}

fn judge(command: String, status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Result<String, SlurmError> {
    if status.success() {
        if stdout.len() as u64 >= OUTPUT_BYTES {
            return Err(SlurmError::Garbage { what: format!("{command} printed more than {OUTPUT_BYTES} bytes") });
        }
        return String::from_utf8(stdout)
            .map_err(|_| SlurmError::Garbage { what: format!("{command} printed no UTF-8") });
    }
    // scontrol complains on stdout about unknown nodes, on stderr about all else.
    let text = [stderr, &stdout].map(String::from_utf8_lossy).join(" ");
    let said: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SAID_CHARS).collect();
    let away = [
        "Unable to contact slurm controller",
        "Zero Bytes were transmitted",
        "Socket timed out",
        "Communication connection failure",
    ];
    match away.iter().any(|sign| said.contains(sign)) {
        true => Err(SlurmError::Unreachable { said }),
        false => Err(SlurmError::Refused { command, said: if said.is_empty() { status.to_string() } else { said } }),
    }
}

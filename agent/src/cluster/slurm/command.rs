//! Runs the programs of Slurm without a shell, with a deadline and limited output.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::error::SlurmError;

/// Maximum number of bytes kept from each output. `sinfo` prints a few dozen bytes per node, and
/// `squeue` per job.
const OUTPUT_BYTES: u64 = 8 << 20;
/// Maximum number of characters quoted from an error message.
const SAID_CHARS: usize = 400;

/// Error texts of the Slurm programs for an unreachable controller or a broken connection
/// (slurm_errno.c of 22.05). All but the first two occur when the controller restarts during the
/// call. The last four are texts of the C library for a broken connection.
const AWAY: [&str; 12] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Communication connection failure",
    "Communication shutdown failure",
    "Message send failure",
    "Message receive failure",
    "Unexpected missing socket error",
    "Transport endpoint is not connected",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
];

/// Runs a program and returns its standard output.
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
        // The parser supports a single time format, independent of the environment of the agent.
        .env_remove("SLURM_TIME_FORMAT")
        // Slurm prints times without their zone.
        .env("TZ", "UTC0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => SlurmError::ToolMissing {
                program: program.to_string_lossy().into_owned(),
            },
            _ => SlurmError::Files {
                path: program.to_string_lossy().into_owned(),
                source,
            },
        })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        (child.wait().await, stdout, stderr)
    };
    match tokio::time::timeout(deadline, output).await {
        Err(_) => Err(SlurmError::Timeout {
            command,
            after: deadline,
        }),
        Ok((Err(source), _, _)) => Err(SlurmError::Files {
            path: command,
            source,
        }),
        Ok((Ok(status), stdout, stderr)) => judge(command, status, stdout, &stderr),
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // After a broken pipe no more output follows. The exit status shows the result.
        _ = pipe.take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    bytes
}

fn judge(
    command: String,
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: &[u8],
) -> Result<String, SlurmError> {
    if status.success() {
        if stdout.len() as u64 >= OUTPUT_BYTES {
            return Err(SlurmError::Garbage {
                what: format!("{command} printed more than {OUTPUT_BYTES} bytes"),
            });
        }
        // A reason or comment may have other bytes. No name and no word of Slurm has any, so the
        // replaced characters fit in no other field.
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    // scontrol prints errors about unknown nodes on stdout and all other errors on stderr.
    let text = [stderr, &stdout].map(String::from_utf8_lossy).join(" ");
    let said: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(SAID_CHARS)
        .collect();
    match AWAY.iter().any(|sign| said.contains(sign)) {
        true => Err(SlurmError::Unreachable { said }),
        false => Err(SlurmError::Refused {
            command,
            said: if said.is_empty() {
                status.to_string()
            } else {
                said
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn other_bytes_than_utf8_spoil_only_their_own_characters() {
        let stdout = b"n1|drained|L\xfcfter\nn2|down|none\n".to_vec();
        let text = judge("sinfo".into(), ExitStatus::from_raw(0), stdout, b"").unwrap();
        assert_eq!(text, "n1|drained|L\u{fffd}fter\nn2|down|none\n");
    }

    #[test]
    fn a_restarting_controller_counts_as_unreachable() {
        let said = |text: &str| {
            judge(
                "scontrol".into(),
                ExitStatus::from_raw(256),
                Vec::new(),
                text.as_bytes(),
            )
        };
        // Seen with 22.05.8 while slurmctld was restarted for another node.
        let restarted = "scontrol: error: slurm_msg_sendto: address:port=10.77.0.1:6817 msg_type=2009: Unexpected missing socket error\n\
                         slurm_load_partitions error: Unexpected missing socket error";
        assert!(matches!(
            said(restarted),
            Err(SlurmError::Unreachable { .. })
        ));
        // The same restart, a moment later.
        let broken = "slurm_load_node error: Transport endpoint is not connected";
        assert!(matches!(said(broken), Err(SlurmError::Unreachable { .. })));
        assert!(matches!(
            said("Node n9 not found"),
            Err(SlurmError::Refused { .. })
        ));
    }
}

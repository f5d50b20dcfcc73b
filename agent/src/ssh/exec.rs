//! Runs a command with input, limited output and exit status.

use std::time::Duration;

use bytes::Bytes;
use russh::ChannelMsg;
use russh::client::Msg;
use russh::{ChannelReadHalf, ChannelWriteHalf};

use super::command::Command;
use super::{Session, SshError};

/// Maximum number of stderr bytes kept for the error message.
const STDERR_BYTES: usize = 4 << 10;

/// Time limit for opening a channel and starting a command. A running node answers at once.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

impl Session {
    /// Runs a command to completion and returns its standard output.
    ///
    /// # Errors
    /// `Exit` for a status other than 0, `TooMuch` and `Timeout` at the [`Command::bounds`], `Lost`
    /// when the connection broke. After `Lost` the command may or may not have run.
    pub async fn exec(&self, command: Command, input: Bytes) -> Result<Vec<u8>, SshError> {
        let bounds = command.bounds();
        let whole = async {
            let (reader, writer) = self.start(command).await?.split();
            let (output, ()) = tokio::try_join!(
                collect(reader, command, bounds.output_bytes),
                feed(writer, input)
            )?;
            Ok(output)
        };
        tokio::time::timeout(bounds.within, whole)
            .await
            .map_err(|_| SshError::Timeout {
                what: command.to_string(),
                seconds: bounds.within.as_secs(),
            })?
    }

    /// Opens a channel and starts the command on the channel.
    pub(super) async fn start(&self, command: Command) -> Result<russh::Channel<Msg>, SshError> {
        let open = async {
            let channel = self.handle.channel_open_session().await?;
            channel.exec(true, command.to_string()).await?;
            Ok(channel)
        };
        tokio::time::timeout(OPEN_WITHIN, open)
            .await
            .map_err(|_| SshError::Timeout {
                what: format!("starting {command}"),
                seconds: OPEN_WITHIN.as_secs(),
            })?
            .map_err(|error: russh::Error| SshError::Lost(error.to_string()))
    }
}

/// Sends the input and closes the channel for writing. A broken pipe is ignored, because a command
/// ending early explains the reason by the exit status.
pub(super) async fn feed(writer: ChannelWriteHalf<Msg>, input: Bytes) -> Result<(), SshError> {
    if !input.is_empty() && writer.data_bytes(input).await.is_err() {
        return Ok(());
    }
    let _closed_already = writer.eof().await;
    Ok(())
}

async fn collect(
    mut reader: ChannelReadHalf,
    command: Command,
    limit: usize,
) -> Result<Vec<u8>, SshError> {
    let mut output = Vec::new();
    let mut end = End::default();
    while let Some(message) = reader.wait().await {
        if let ChannelMsg::Data { data } = &message {
            if output.len() + data.len() > limit {
                return Err(SshError::TooMuch {
                    command: command.to_string(),
                    limit: format!("{limit} bytes"),
                });
            }
            output.extend_from_slice(data);
        }
        end.note(&message);
    }
    end.judge(command).map(|()| output)
}

/// The end of a channel: exit status, signal and stderr.
#[derive(Debug, Default)]
pub(super) struct End {
    status: Option<u32>,
    signal: Option<String>,
    stderr: Vec<u8>,
    refused: bool,
}

impl End {
    pub(super) fn note(&mut self, message: &ChannelMsg) {
        match message {
            ChannelMsg::ExtendedData { data, .. } => {
                let room = STDERR_BYTES.saturating_sub(self.stderr.len());
                self.stderr.extend_from_slice(&data[..data.len().min(room)]);
            }
            ChannelMsg::ExitStatus { exit_status } => self.status = Some(*exit_status),
            ChannelMsg::ExitSignal { signal_name, .. } => {
                self.signal = Some(format!("{signal_name:?}"))
            }
            ChannelMsg::Failure => self.refused = true,
            _ => {}
        }
    }

    /// Converts the end of the channel to a result. A channel closed without a status means a lost
    /// connection, because sshd sends a status for every finished command (RFC 4254 §6.10).
    pub(super) fn judge(self, command: Command) -> Result<(), SshError> {
        let exit = |status, stderr| {
            Err(SshError::Exit {
                command: command.to_string(),
                status,
                stderr,
            })
        };
        let stderr = String::from_utf8_lossy(&self.stderr).trim().to_owned();
        match (self.status, self.signal) {
            (Some(0), _) => Ok(()),
            (Some(status), _) => exit(status, stderr),
            (None, Some(signal)) => exit(128, format!("killed by {signal} {stderr}")),
            (None, None) if self.refused => exit(126, "the node's sshd refused to run it".into()),
            (None, None) => Err(SshError::Lost(
                "the channel closed without an exit status".into(),
            )),
        }
    }
}

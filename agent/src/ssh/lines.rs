//! Reads the output of a long-running command line by line.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

use super::command::Command;
use super::exec::{End, feed};
use super::{Session, SshError};

/// Maximum length of a line in bytes. The result of a gate run holds two escaped 64 KiB tails per
/// gate.
const LINE_BYTES: usize = 16 << 20;

impl Session {
    /// Starts a command and reads its output line by line. The caller sets the deadline, and
    /// keepalives detect a dead connection.
    ///
    /// # Errors
    /// `Lost` or `Timeout` when the command could not be started.
    pub async fn lines(&self, command: Command) -> Result<Lines, SshError> {
        // The input stays open as long as the command runs.
        let (reader, writer) = self.start(command).await?.split();
        Ok(Lines::of(reader, Some(writer), command))
    }

    /// Starts a command like [`Session::lines`] and writes `input` first. The input stays open.
    ///
    /// # Errors
    /// As [`Session::lines`].
    pub async fn held_lines(&self, command: Command, input: Bytes) -> Result<Lines, SshError> {
        let (reader, writer) = self.start(command).await?.split();
        writer
            .data_bytes(input)
            .await
            .map_err(|error| SshError::Lost(error.to_string()))?;
        Ok(Lines::of(reader, Some(writer), command))
    }

    /// Starts a command reading all of its input before printing. Returns the first line, received
    /// within the limits of the command, and the stream of the following lines.
    ///
    /// # Errors
    /// As [`Session::lines`], and as [`Lines::next`] for the first line. `Lost` when the command
    /// ended without a line.
    pub async fn fed_lines(
        &self,
        command: Command,
        input: Bytes,
    ) -> Result<(Bytes, Lines), SshError> {
        let within = command.bounds().within;
        let whole = async {
            let (reader, writer) = self.start(command).await?.split();
            let mut lines = Lines::of(reader, None, command);
            let mut feeding = std::pin::pin!(feed(writer, input));
            let mut fed = false;
            loop {
                tokio::select! {
                    line = lines.next() => {
                        let silent = || SshError::Lost(format!("{command} ended without a line"));
                        return Ok((line?.ok_or_else(silent)?, lines));
                    }
                    done = &mut feeding, if !fed => {
                        done?;
                        fed = true;
                    }
                }
            }
        };
        tokio::time::timeout(within, whole)
            .await
            .map_err(|_| SshError::Timeout {
                what: command.to_string(),
                seconds: within.as_secs(),
            })?
    }
}

/// The lines of a running command.
pub struct Lines {
    reader: ChannelReadHalf,
    input: Option<ChannelWriteHalf<Msg>>,
    command: Command,
    buffer: BytesMut,
    /// Number of bytes in `buffer` already searched for a line end.
    scanned: usize,
    end: End,
}

impl Lines {
    /// Closes the input of the command and waits at most `within` for the end of the command. The
    /// exit status is ignored.
    pub async fn hang_up(mut self, within: Duration) {
        if let Some(input) = &self.input {
            let _closed_already = input.eof().await;
        }
        let ending = async { while self.reader.wait().await.is_some() {} };
        let _ended = tokio::time::timeout(within, ending).await;
    }

    fn of(reader: ChannelReadHalf, input: Option<ChannelWriteHalf<Msg>>, command: Command) -> Self {
        Self {
            reader,
            input,
            command,
            buffer: BytesMut::new(),
            scanned: 0,
            end: End::default(),
        }
    }

    /// Returns the next line including the line feed, so that the length can advance an offset.
    /// Returns `None` after the command exited with 0. An incomplete last line is dropped. Cancel
    /// safe.
    ///
    /// # Errors
    /// `Exit`, `Lost`, or `TooMuch` when a line exceeds the maximum length.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SshError> {
        loop {
            if let Some(at) = self.buffer[self.scanned..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let line = self.buffer.split_to(self.scanned + at + 1).freeze();
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.scanned > LINE_BYTES {
                return Err(SshError::TooMuch {
                    command: self.command.to_string(),
                    limit: LINE_BYTES,
                });
            }
            match self.reader.wait().await {
                Some(ChannelMsg::Data { data }) => self.buffer.extend_from_slice(&data),
                Some(message) => self.end.note(&message),
                None => {
                    return std::mem::take(&mut self.end)
                        .judge(self.command)
                        .map(|()| None);
                }
            }
        }
    }
}

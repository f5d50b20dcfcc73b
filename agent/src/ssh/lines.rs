//! Reads the output of a long-running command line by line.

use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::time::Instant;

use super::command::Command;
use super::exec::{End, feed};
use super::long_lines::{LongLine, PLACES};
use super::{Session, SshError};

/// Maximum length of a line in bytes. The result of a gate run holds two escaped 64 KiB tails per
/// gate.
const LINE_BYTES: usize = 16 << 20;
/// Length in bytes above which a line is long. Only results of gate runs are longer.
const LONG_BYTES: usize = 1 << 20;
/// Maximum number of long lines of a command. A job has one result.
const LONG_MAX: u32 = 8;
/// Maximum number of lines of a command.
const LINES_MAX: u64 = 1_000_000;
/// Maximum number of bytes of a command, and of the output of a job on the node. A day of progress
/// has a few MiB.
pub const BYTES_MAX: u64 = 1 << 30;

impl Session {
    /// Starts a command and reads its output line by line. The caller sets the deadline, and
    /// keepalives detect a dead connection.
    ///
    /// # Errors
    /// `Lost` or `Timeout` when the command could not be started.
    pub async fn lines(&self, command: Command) -> Result<Lines, SshError> {
        // The input stays open as long as the command runs.
        let (reader, writer) = self.start(command).await?.split();
        Ok(Lines::of(self.address, reader, Some(writer), command))
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
        Ok(Lines::of(self.address, reader, Some(writer), command))
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
            let mut lines = Lines::of(self.address, reader, None, command);
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
    /// The address of the node.
    address: IpAddr,
    reader: ChannelReadHalf,
    input: Option<ChannelWriteHalf<Msg>>,
    command: Command,
    buffer: BytesMut,
    /// Number of bytes in `buffer` already searched for a line end.
    scanned: usize,
    end: End,
    /// Number of lines and bytes returned.
    counted: Counted,
    /// The place of the present line among the long lines.
    long: Option<LongLine>,
    /// Number of long lines so far.
    long_lines: u32,
}

/// The lines of a command so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    lines: u64,
    bytes: u64,
}

impl Counted {
    /// Counts a line. Returns the limit that the line exceeds, in words.
    fn add(&mut self, length: usize) -> Option<String> {
        self.lines += 1;
        self.bytes = self.bytes.saturating_add(length as u64);
        if self.lines > LINES_MAX {
            return Some(format!("{LINES_MAX} lines"));
        }
        (self.bytes > BYTES_MAX).then(|| format!("{BYTES_MAX} bytes"))
    }
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

    fn of(
        address: IpAddr,
        reader: ChannelReadHalf,
        input: Option<ChannelWriteHalf<Msg>>,
        command: Command,
    ) -> Self {
        Self {
            address,
            reader,
            input,
            command,
            buffer: BytesMut::new(),
            scanned: 0,
            end: End::default(),
            counted: Counted::default(),
            long: None,
            long_lines: 0,
        }
    }

    /// The error of a bad long line. The node is remembered.
    fn bad_line(&self, limit: usize) -> SshError {
        PLACES.mark(self.address);
        self.too_much(limit)
    }

    fn too_much(&self, limit: usize) -> SshError {
        SshError::TooMuch {
            command: self.command.to_string(),
            limit: format!("{limit} bytes"),
        }
    }

    /// Returns the time limit of the present line, and waits for a place if the line has become
    /// long. Cancel safe.
    async fn line_deadline(&mut self) -> Option<Instant> {
        if self.scanned <= LONG_BYTES {
            return None;
        }
        if self.long.is_none() {
            self.long = PLACES.begin(self.address).await;
            self.long_lines += 1;
        }
        self.long.as_ref().map(|long| long.deadline)
    }

    /// Waits for the next message of the channel.
    async fn receive(&mut self) -> Result<Option<ChannelMsg>, SshError> {
        let Some(deadline) = self.line_deadline().await else {
            return Ok(self.reader.wait().await);
        };
        if self.long_lines > LONG_MAX {
            return Err(self.bad_line(LONG_BYTES));
        }
        match tokio::time::timeout_at(deadline, self.reader.wait()).await {
            Ok(message) => Ok(message),
            Err(_) => Err(self.bad_line(LONG_BYTES)),
        }
    }

    /// Returns the next line including the line feed, so that the length can advance an offset.
    /// Returns `None` after the command exited with 0. An incomplete last line is dropped. Cancel
    /// safe.
    ///
    /// # Errors
    /// `Exit`, `Lost`, or `TooMuch` when a line exceeds the maximum length, when a long line does
    /// not end in time, or when the command prints more lines, long lines or bytes than any job.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SshError> {
        loop {
            if let Some(at) = self.buffer[self.scanned..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let line = self.buffer.split_to(self.scanned + at + 1).freeze();
                self.scanned = 0;
                self.long = None;
                return match self.counted.add(line.len()) {
                    None => Ok(Some(line)),
                    Some(limit) => Err(SshError::TooMuch {
                        command: self.command.to_string(),
                        limit,
                    }),
                };
            }
            self.scanned = self.buffer.len();
            if self.scanned > LINE_BYTES {
                return Err(self.bad_line(LINE_BYTES));
            }
            match self.receive().await? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_within_the_limits_up_to_its_last_line_and_its_last_byte() {
        let mut counted = Counted {
            lines: LINES_MAX - 1,
            bytes: 0,
        };
        assert_eq!(counted.add(1), None);
        assert_eq!(counted.add(1).as_deref(), Some("1000000 lines"));
        let mut counted = Counted {
            lines: 0,
            bytes: BYTES_MAX - 1,
        };
        assert_eq!(counted.add(1), None);
        assert_eq!(counted.add(1).as_deref(), Some("1073741824 bytes"));
    }
}

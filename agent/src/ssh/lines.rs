//! A command that prints lines for as long as it likes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

use super::command::Command;
use super::exec::{End, feed};
use super::{Session, SshError};

/// The longest line: a gate run's result holds two 64 KiB tails per gate, escaped.
const LINE_BYTES: usize = 16 << 20;

impl Session {
    /// Starts a command whose output is read line by line. There is no deadline here: the caller has one, and a dead connection is noticed
    /// by keepalives.
    ///
    /// # Errors
    /// `Lost` or `Timeout` when it could not be started.
    pub async fn lines(&self, command: Command) -> Result<Lines, SshError> {
        // Its input stays open for as long as it runs.
        let (reader, writer) = self.start(command).await?.split();
        Ok(Lines::of(reader, Some(writer), command))
    }

    /// The same, with this at the beginning of its input.
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

    /// Starts a command that reads all of its input before it says anything; its first line within the command's bounds, and the lines after it.
    ///
    /// # Errors
    /// As [`Session::lines`], and what [`Lines::next`] says of the first one; `Lost` when it ended without one.
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

/// Lines of a running command.
pub struct Lines {
    reader: ChannelReadHalf,
    input: Option<ChannelWriteHalf<Msg>>,
    command: Command,
    buffer: BytesMut,
    /// Bytes of `buffer` known to hold no line end.
    scanned: usize,
    end: End,
}

impl Lines {
    /// Ends the command's input, and waits until it has ended itself, for so long at most; how it ended does not matter any more.
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

    /// The next whole line with its line feed, so that its length advances an offset; `None` once the command ended well. A last piece
    /// without a line feed is not a line. Cancel safe.
    ///
    /// # Errors
    /// `Exit`, `Lost`, or `TooMuch` when a line passes the longest we accept.
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

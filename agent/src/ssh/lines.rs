//! A command that prints lines for as long as it likes.

use bytes::{Bytes, BytesMut};
use russh::ChannelMsg;
use russh::client::Msg;

use super::command::Command;
use super::exec::End;
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
        let channel = self.start(command).await?;
        Ok(Lines { channel, command, buffer: BytesMut::new(), scanned: 0, end: End::default() })
    }
}

/// Lines of a running command.
pub struct Lines {
    channel: russh::Channel<Msg>,
    command: Command,
    buffer: BytesMut,
    /// Bytes of `buffer` known to hold no line end.
    scanned: usize,
    end: End,
}

impl Lines {
    /// The next whole line with its line feed, so that its length advances an offset; `None` once the command ended well. A last piece
    /// without a line feed is not a line. Cancel safe.
    ///
    /// # Errors
    /// `Exit`, `Lost`, or `TooMuch` when a line passes the longest we accept.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SshError> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + at + 1).freeze();
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.scanned > LINE_BYTES {
                return Err(SshError::TooMuch { command: self.command.to_string(), limit: LINE_BYTES });
            }
            match self.channel.wait().await {
                Some(ChannelMsg::Data { data }) => self.buffer.extend_from_slice(&data),
                Some(message) => self.end.note(&message),
                None => return std::mem::take(&mut self.end).judge(self.command).map(|()| None),
            }
        }
    }
}

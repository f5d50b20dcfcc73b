//! The state machine of a TFTP transfer. Each event gives the next step. The module uses neither
//! sockets nor clocks.

use std::ops::RangeInclusive;

/// Maximum number of consecutive events without a new acknowledgement. The transfer then fails.
pub const TRIES: u32 = 5;

/// Progress of a client.
#[derive(Clone, Debug)]
pub struct Transfer {
    size: u64,
    block_size: u64,
    window: u64,
    /// The last acknowledged block. Block 0 is the OACK, if sent, and is acknowledged alone like a
    /// block.
    acknowledged: Option<u64>,
    /// Highest block sent so far.
    sent: u64,
    /// The client has acknowledged a packet, so its address is not invented.
    proved: bool,
    idle: u32,
}

/// An event of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The number of an ACK packet: the block number modulo 65,536.
    Ack(u16),
    /// The client was silent until the timeout.
    Silence,
}

/// The next step of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these blocks. Block 0 is the OACK.
    Send(RangeInclusive<u64>),
    Wait,
    Done,
    GiveUp,
}

impl Transfer {
    /// Creates a transfer of `size` bytes. `window` and `block_size` are raised to at least 1. With
    /// `negotiated`, the transfer starts with an OACK.
    pub fn new(size: u64, block_size: u16, window: u16, negotiated: bool) -> Self {
        let acknowledged = (!negotiated).then_some(0);
        Self {
            size,
            block_size: block_size.max(1).into(),
            window: window.max(1).into(),
            acknowledged,
            sent: 0,
            proved: false,
            idle: 0,
        }
    }

    /// Returns the first step.
    pub fn first(&mut self) -> Step {
        self.outstanding()
    }

    /// Returns the next step after an event.
    pub fn on(&mut self, event: Event) -> Step {
        match event {
            Event::Silence => self.again(),
            Event::Ack(number) => match self.acknowledges(number) {
                Some(block) if self.acknowledged.is_none_or(|before| block > before) => {
                    self.acknowledged = Some(block);
                    (self.proved, self.idle) = (true, 0);
                    if block == self.last() {
                        Step::Done
                    } else {
                        self.outstanding()
                    }
                }
                // Inside a window the repeated ACK means the loss of the following block (RFC 7440
                // §4). Without a window the ACK is a duplicate. Answering a duplicate would double
                // all remaining packets (RFC 1123 §4.2.3.1).
                Some(_) if self.window > 1 => self.again(),
                Some(_) | None => Step::Wait,
            },
        }
    }

    /// Returns whether every block was sent at least once.
    pub fn all_sent(&self) -> bool {
        self.sent == self.last()
    }

    /// Returns the byte range of a block in the file. Blocks start at 1, and the last block is
    /// short or empty.
    pub fn bytes_of(&self, block: u64) -> std::ops::Range<u64> {
        let start = ((block - 1) * self.block_size).min(self.size);
        start..(start + self.block_size).min(self.size)
    }

    /// Returns the number of the last block, which is the first block with less than the full size.
    fn last(&self) -> u64 {
        self.size / self.block_size + 1
    }

    /// Returns the block of an ACK number: the last acknowledged block or a block in flight.
    fn acknowledges(&self, number: u16) -> Option<u64> {
        let first = self.acknowledged.unwrap_or(0);
        (first..=self.sent).find(|block| block & 0xffff == u64::from(number))
    }

    /// Repeats the packets in flight, but no packet before the first acknowledgement: the client
    /// repeats its request, and an invented address receives a single packet for a request.
    fn again(&mut self) -> Step {
        self.idle += 1;
        if !self.proved || self.idle >= TRIES {
            Step::GiveUp
        } else {
            self.outstanding()
        }
    }

    fn outstanding(&mut self) -> Step {
        let Some(acknowledged) = self.acknowledged else {
            return Step::Send(0..=0);
        };
        let end = (acknowledged + self.window).min(self.last());
        self.sent = self.sent.max(end);
        Step::Send(acknowledged + 1..=end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_whole_blocks_ends_with_an_empty_one() {
        let mut transfer = Transfer::new(1024, 512, 1, false);
        assert_eq!(transfer.first(), Step::Send(1..=1));
        assert_eq!(transfer.on(Event::Ack(1)), Step::Send(2..=2));
        assert_eq!(transfer.on(Event::Ack(1)), Step::Wait, "a duplicate");
        assert_eq!(transfer.on(Event::Ack(2)), Step::Send(3..=3));
        assert_eq!(transfer.bytes_of(3), 1024..1024);
        assert_eq!(transfer.on(Event::Ack(3)), Step::Done);
    }

    #[test]
    fn a_lost_block_of_a_window_is_sent_again_from_there() {
        let mut transfer = Transfer::new(10_000, 1000, 4, true);
        assert_eq!(transfer.first(), Step::Send(0..=0));
        assert_eq!(transfer.on(Event::Ack(0)), Step::Send(1..=4));
        assert_eq!(transfer.on(Event::Ack(2)), Step::Send(3..=6));
        assert_eq!(transfer.on(Event::Ack(2)), Step::Send(3..=6));
        assert_eq!(transfer.on(Event::Ack(9)), Step::Wait, "never sent");
        assert_eq!(transfer.on(Event::Ack(6)), Step::Send(7..=10));
        assert_eq!(transfer.on(Event::Ack(10)), Step::Send(11..=11));
        assert_eq!(transfer.on(Event::Ack(11)), Step::Done);
    }

    #[test]
    fn block_numbers_go_on_after_65535() {
        let mut transfer = Transfer::new(80_000 * 8, 8, 1, false);
        transfer.first();
        for block in 1..=80_000_u64 {
            let number = u16::try_from(block & 0xffff).unwrap();
            assert_eq!(
                transfer.on(Event::Ack(number)),
                Step::Send(block + 1..=block + 1)
            );
        }
        assert_eq!(transfer.on(Event::Ack(80_001_u64 as u16)), Step::Done);
    }

    #[test]
    fn silence_ends_it_after_a_few_tries() {
        let mut transfer = Transfer::new(600, 512, 1, false);
        transfer.first();
        assert_eq!(transfer.on(Event::Ack(1)), Step::Send(2..=2));
        for _ in 1..TRIES {
            assert_eq!(transfer.on(Event::Silence), Step::Send(2..=2));
        }
        assert_eq!(transfer.on(Event::Silence), Step::GiveUp);
        assert!(transfer.all_sent());
    }

    /// An invented address acknowledges no packet, or the wrong number.
    #[test]
    fn nothing_is_repeated_before_the_first_acknowledgement() {
        for negotiated in [false, true] {
            let mut transfer = Transfer::new(10_000, 512, 4, negotiated);
            transfer.first();
            assert_eq!(transfer.on(Event::Ack(9)), Step::Wait);
            assert_eq!(transfer.on(Event::Silence), Step::GiveUp);
        }
        let mut transfer = Transfer::new(10_000, 512, 4, true);
        transfer.first();
        assert_eq!(transfer.on(Event::Ack(0)), Step::Send(1..=4));
        assert_eq!(transfer.on(Event::Silence), Step::Send(1..=4));
    }
}

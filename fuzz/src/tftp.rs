//! TFTP: packets of any shape, and a whole transfer over a wire that loses, repeats and reorders.

use muster_agent::boot::tftp::transfer::{Event, Step, TRIES, Transfer};
use muster_agent::boot::tftp::wire::{self, Packet};

/// The first byte selects a packet or a whole transfer.
pub(crate) fn run(mut data: &[u8]) {
    match crate::steer(&mut data) % 2 {
        0 => packet(data),
        _ => transfer(data),
    }
}

fn packet(bytes: &[u8]) {
    if let Ok(Some(Packet::Read(request))) = wire::parse(bytes) {
        assert!(!request.name.contains('\0'));
        assert!(
            request.block_size.is_none_or(|size| size >= 8) && request.window != Some(0),
            "{request:?}"
        );
    }
}

/// A client that keeps and acknowledges blocks in order. The input names the fault of the wire for
/// each packet.
fn transfer(mut data: &[u8]) {
    let size = u64::from(crate::steer(&mut data)) * 67;
    let block_size = 8 + u16::from(crate::steer(&mut data)) * 4;
    let window = 1 + u16::from(crate::steer(&mut data)) % 16;
    let negotiated = crate::steer(&mut data) % 2 == 1;
    let mut transfer = Transfer::new(size, block_size, window, negotiated);
    let (mut received, mut expected) = (0, 1_u64);
    let mut step = transfer.first();
    let (mut heard, mut unheard) = (0, 0);
    loop {
        match step {
            Step::Done => return assert_eq!(received, size, "done means that all of it arrived"),
            Step::GiveUp => {
                // A client that has acknowledged no block may have an invented address.
                let tries = if heard == 0 { 1 } else { TRIES };
                return assert!(unheard >= tries, "given up after {unheard} tries");
            }
            Step::Wait => {}
            Step::Send(blocks) => {
                assert!(
                    blocks.clone().count() as u64 <= u64::from(window),
                    "{blocks:?}"
                );
                for block in blocks.filter(|block| *block > 0) {
                    let range = transfer.bytes_of(block);
                    assert!(range.end - range.start <= u64::from(block_size) && range.end <= size);
                    let lost = crate::steer(&mut data) & 0x80 != 0;
                    if block == expected && !lost {
                        assert_eq!(range.start, received);
                        received = range.end;
                        expected += 1;
                    }
                }
            }
        }
        let acknowledged = match crate::steer(&mut data) {
            0..=99 => Some(expected - 1),
            100..=129 => None,
            // A late or invented acknowledgement, never of a missing block: a server cannot tell an
            // acknowledgement of a missing block from a true acknowledgement.
            number => Some((expected - 1).saturating_sub(u64::from(number) - 130)),
        };
        unheard += 1;
        if let Some(new) = acknowledged.filter(|block| *block > heard) {
            (heard, unheard) = (new, 0);
        }
        let event =
            acknowledged.map_or(Event::Silence, |block| Event::Ack((block & 0xffff) as u16));
        if data.is_empty() {
            return;
        }
        step = transfer.on(event);
    }
}

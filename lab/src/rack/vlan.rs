//! The rack's end of a VLAN on `br0`. The host's kernel may lack VLAN support, so the few frames
//! are built by hand. An ARP request announces the rack's address to the other end. An echo request
//! with the full MTU must not be fragmented.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, bind, socket};

use crate::plan::{MTU, VLAN, VLAN_ADDRESS};

/// Bytes of echo data in a packet: the MTU without 20 bytes of IP header and 8 of ICMP header.
const PAYLOAD: usize = MTU as usize - 28;
const ETHERNET: usize = 14;
/// Length in bytes of an ARP request or reply for an IPv4 address.
const ARP: usize = 28;
const ROUND: Duration = Duration::from_secs(1);

/// Sends ARP and ICMP requests to a machine in the VLAN, once a second, until an unfragmented echo
/// of [`MTU`] bytes comes back. Returns the elapsed time. Must run in the rack's namespace.
pub(crate) fn ask(node: Ipv4Addr, limit: Duration) -> anyhow::Result<Duration> {
    let bridge = getifaddrs()?.find_map(|one| {
        let link = one
            .address
            .as_ref()
            .and_then(|address| address.as_link_addr())
            .copied();
        link.filter(|_| one.interface_name == "br0")
    });
    let bridge: LinkAddr = bridge.context("there is no br0 here")?;
    let own = bridge.addr().context("br0 has no MAC")?;
    let socket = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )?;
    bind(socket.as_raw_fd(), &bridge)?;
    // `UdpSocket` only serves as a wrapper for send, receive and the read timeout, common to all
    // sockets in std.
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(ROUND))?;
    let (begun, id) = (Instant::now(), rand::random::<[u8; 2]>());
    let mut heard = vec![0; 65536];
    while begun.elapsed() < limit {
        let round = Instant::now();
        socket.send(&arp(own, node))?;
        while round.elapsed() < ROUND {
            let length = match socket.recv(&mut heard) {
                Ok(length) => length,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            match answer(&heard[..length], node, id) {
                Some(Answer::Mac(mac)) => drop(socket.send(&echo(own, mac, node, id))?),
                Some(Answer::Echo) => return Ok(begun.elapsed()),
                None => {}
            }
        }
    }
    bail!("{node} in VLAN {VLAN} answered no packet of {MTU} bytes in {limit:?}")
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Mac([u8; 6]),
    Echo,
}

/// Returns the answer in a received frame, or `None` for other frames. The kernel has already
/// removed the VLAN tag.
fn answer(frame: &[u8], node: Ipv4Addr, id: [u8; 2]) -> Option<Answer> {
    let packet = frame.get(ETHERNET..)?;
    let node = node.octets();
    match frame[12..ETHERNET] {
        // An ARP reply (RFC 826) from the requested address.
        [8, 6] if packet.len() >= ARP && packet[6..8] == [0, 2] && packet[14..18] == node => {
            Some(Answer::Mac(packet[8..14].try_into().ok()?))
        }
        // An ICMP packet in IPv4 without options, from the requested address, unfragmented: neither
        // the more-fragments flag nor an offset.
        [8, 0] if packet.len() == 28 + PAYLOAD && packet[9] == 1 && packet[12..16] == node => {
            let whole = packet[6] & 0x3f == 0 && packet[7] == 0;
            (whole && packet[20] == 0 && packet[24..26] == id).then_some(Answer::Echo)
        }
        _ => None,
    }
}

/// Returns a frame header to a MAC, with the VLAN tag (IEEE 802.1Q).
fn tagged(to: [u8; 6], own: [u8; 6], kind: [u8; 2]) -> Vec<u8> {
    let mut frame = [to, own].concat();
    frame.extend([0x81, 0]);
    frame.extend(VLAN.to_be_bytes());
    frame.extend(kind);
    frame
}

/// Returns an ARP request for the node's address (RFC 826), as a broadcast.
fn arp(own: [u8; 6], node: Ipv4Addr) -> Vec<u8> {
    let mut frame = tagged([0xff; 6], own, [8, 6]);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(own);
    frame.extend(VLAN_ADDRESS.octets());
    frame.extend([0; 6]);
    frame.extend(node.octets());
    frame
}

/// Returns an echo request (RFC 792) in a packet with "don't fragment" (RFC 791).
fn echo(own: [u8; 6], to: [u8; 6], node: Ipv4Addr, id: [u8; 2]) -> Vec<u8> {
    let [high, low] = u16::try_from(MTU)
        .expect("an MTU is two bytes")
        .to_be_bytes();
    let mut ip = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, 1, 0, 0];
    ip.extend(VLAN_ADDRESS.octets());
    ip.extend(node.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let mut icmp = vec![0; 8 + PAYLOAD];
    icmp[0] = 8;
    icmp[4..6].copy_from_slice(&id);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    [tagged(to, own, [8, 0]), ip, icmp].concat()
}

/// Computes the Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes
        .chunks_exact(2)
        .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!u16::try_from(folded).expect("folded twice")).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Ipv4Addr = Ipv4Addr::new(10, 77, 120, 11);
    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    #[test]
    fn an_echo_is_as_large_as_the_network_carries_and_must_not_be_cut() {
        let frame = echo(MACS[0], MACS[1], NODE, [7, 9]);
        assert_eq!(frame.len(), ETHERNET + 4 + 9000);
        assert_eq!(frame[12..18], [0x81, 0, 0, 120, 8, 0]);
        assert_eq!(frame[24] & 0x40, 0x40, "don't fragment");
        assert_eq!(
            (checksum(&frame[18..38]), checksum(&frame[38..])),
            ([0, 0], [0, 0]),
            "a whole sum is zero"
        );
    }

    #[test]
    fn only_what_was_asked_for_is_an_answer() {
        // The reply of the other end, after the kernel has removed the tag.
        let mut reply = echo(MACS[0], MACS[1], NODE, [7, 9]);
        reply.drain(12..16);
        reply[ETHERNET + 20] = 0;
        reply[ETHERNET + 12..ETHERNET + 16].copy_from_slice(&NODE.octets());
        assert_eq!(answer(&reply, NODE, [7, 9]), Some(Answer::Echo));
        assert_eq!(answer(&reply, NODE, [7, 8]), None, "of another question");
        assert_eq!(answer(&reply[..1500], NODE, [7, 9]), None, "a part");
        reply[ETHERNET + 6] = 0x20;
        assert_eq!(answer(&reply, NODE, [7, 9]), None, "a fragment");
        let mut arp = arp(MACS[1], VLAN_ADDRESS);
        arp.drain(12..16);
        arp[ETHERNET + 14..ETHERNET + 18].copy_from_slice(&NODE.octets());
        assert_eq!(answer(&arp, NODE, [7, 9]), None, "a question");
        arp[ETHERNET + 7] = 2;
        assert_eq!(answer(&arp, NODE, [7, 9]), Some(Answer::Mac(MACS[1])));
        assert!((0..60).all(|length| answer(&arp[..length.min(40)], NODE, [7, 9]).is_none()));
    }
}

//! The network namespace of a tool. Unix sockets with a path stay reachable.

use std::io;
use std::os::fd::AsRawFd as _;

use muster_core::gates::Network;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// RTM_NEWLINK in the kernel's include/uapi/linux/rtnetlink.h.
const NEW_LINK: u16 = 16;
/// NLM_F_REQUEST and NLM_F_ACK in include/uapi/linux/netlink.h.
const REQUEST_AND_ACK: u16 = 1 | 4;
/// NLMSG_ERROR in include/uapi/linux/netlink.h, also for success.
const ACKNOWLEDGED: u16 = 2;
/// IFF_UP in include/uapi/linux/if.h.
const UP: u32 = 1;
/// The number of the loopback in every network namespace.
const LOOPBACK: i32 = 1;
/// Length of a request, and of the answer's part up to the error.
const REQUEST_BYTES: u32 = 32;
const ANSWER_BYTES: usize = 20;

/// Leaves the network of the node.
pub(super) fn enter(network: Network) -> io::Result<()> {
    match network {
        Network::Host => Ok(()),
        Network::Off => Ok(unshare(CloneFlags::CLONE_NEWNET)?),
        Network::Loopback => {
            unshare(CloneFlags::CLONE_NEWNET)?;
            raise_loopback()
        }
    }
}

/// Sets the loopback up (rtnetlink(7)).
fn raise_loopback() -> io::Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    send(socket.as_raw_fd(), &request(), MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    read_answer(answer.get(..length).unwrap_or_default())
}

/// The request: `nlmsghdr`, then `ifinfomsg`.
fn request() -> Vec<u8> {
    let (sequence, port, family_and_type) = (1_u32, 0_u32, 0_u32);
    [
        &REQUEST_BYTES.to_ne_bytes()[..],
        &NEW_LINK.to_ne_bytes(),
        &REQUEST_AND_ACK.to_ne_bytes(),
        &sequence.to_ne_bytes(),
        &port.to_ne_bytes(),
        &family_and_type.to_ne_bytes(),
        &LOOPBACK.to_ne_bytes(),
        // The flags, and the mask of the changed flags.
        &UP.to_ne_bytes(),
        &UP.to_ne_bytes(),
    ]
    .concat()
}

/// Reads the answer: `nlmsghdr`, then the negative number of an error, or 0.
fn read_answer(answer: &[u8]) -> io::Result<()> {
    let unknown = || io::Error::other("the kernel gave no answer about the loopback");
    let answer = answer.get(..ANSWER_BYTES).ok_or_else(unknown)?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    let error = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
    match (kind, error) {
        (ACKNOWLEDGED, 0) => Ok(()),
        (ACKNOWLEDGED, error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, error: i32) -> Vec<u8> {
        let rest = [0_u8; 10];
        [
            &36_u32.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &rest,
            &error.to_ne_bytes(),
            &request()[..16],
        ]
        .concat()
    }

    #[test]
    fn an_answer_is_read_and_an_unknown_answer_is_no_success() {
        assert_eq!(request().len(), REQUEST_BYTES as usize);
        read_answer(&answer(ACKNOWLEDGED, 0)).expect("a success");
        let refused = read_answer(&answer(ACKNOWLEDGED, -1)).expect_err("a refusal");
        assert_eq!(refused.raw_os_error(), Some(1));
        for other in [&answer(NEW_LINK, 0)[..], &[], &[0; 19]] {
            assert!(read_answer(other).is_err(), "{other:?}");
        }
    }
}

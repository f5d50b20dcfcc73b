//! Finds network interfaces by address and opens UDP sockets bound to an interface.

use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};
use tokio::net::UdpSocket;

/// The reason why a listener cannot listen, and the next step for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "no interface of this machine has the address {0}: give it to the provisioning interface, or correct the subnet's agent address"
    )]
    NoInterface(Ipv4Addr),
    #[error(
        "{what} port {port} on {at} is in use: another service (dnsmasq, isc-dhcp-server, tftpd-hpa, a second agent?) has it; `ss -lnp` shows which one to stop"
    )]
    InUse {
        what: &'static str,
        port: u16,
        at: String,
    },
    #[error(
        "{what} port {port} on {at} needs more rights: run the agent as root, or give it CAP_NET_BIND_SERVICE and CAP_NET_RAW"
    )]
    Forbidden {
        what: &'static str,
        port: u16,
        at: String,
    },
    #[error("{what} on {at} failed")]
    Io {
        what: &'static str,
        at: String,
        source: io::Error,
    },
}

impl ListenError {
    /// Converts an error of bind to a listener error.
    pub fn of(what: &'static str, at: impl Into<String>, port: u16, source: io::Error) -> Self {
        let at = at.into();
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { what, port, at },
            io::ErrorKind::PermissionDenied => Self::Forbidden { what, port, at },
            _ => Self::Io { what, at, source },
        }
    }
}

/// Returns the interface with an address.
pub fn interface_of(address: Ipv4Addr) -> Result<String, ListenError> {
    let failed = |errno: nix::Error| ListenError::Io {
        what: "listing interfaces",
        at: "this machine".to_owned(),
        source: errno.into(),
    };
    let has = |candidate: &nix::ifaddrs::InterfaceAddress| {
        candidate
            .address
            .as_ref()
            .and_then(|storage| storage.as_sockaddr_in())
            .is_some_and(|found| found.ip() == address)
    };
    let found = nix::ifaddrs::getifaddrs().map_err(failed)?.find(has);
    found
        .map(|interface| interface.interface_name)
        .ok_or(ListenError::NoInterface(address))
}

/// Opens a UDP socket bound to a single interface, with broadcast allowed. Address reuse is off, so
/// that a second DHCP server on the same port is an error and not a race.
pub fn udp_on(interface: &str, what: &'static str, port: u16) -> Result<UdpSocket, ListenError> {
    let open = || -> io::Result<UdpSocket> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        setsockopt(&fd, sockopt::Broadcast, &true)?;
        setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface))?;
        bind(fd.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port))?;
        UdpSocket::from_std(fd.into())
    };
    open().map_err(|source| ListenError::of(what, interface, port, source))
}

//! Switch ports announced by LLDP (IEEE 802.1AB). Switches announce every 30 s or so, so `live`
//! starts a listener, and `inventory` reports the announcements received.

use std::io::Read;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use muster_core::facts::Neighbour;
use muster_core::wire::node::{Failure, FailureCode};
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, socket,
};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::text;
use crate::failure::{fatal, io, retryable};
use crate::{files, paths};

/// The file with the received announcements, written by the listener.
const HEARD: &str = "/run/muster/neighbours.json";
/// Most neighbours kept; one per NIC is expected.
const NEIGHBOURS_MAX: usize = 256;
/// Most neighbours of a NIC: two are as ambiguous as more.
const SPEAKERS_MAX: usize = 4;
/// Interval between two removals of expired neighbours.
const FORGET: Duration = Duration::from_secs(5);
/// Interval of a switch's announcements by default (msgTxInterval, 802.1AB 9.2.5.7), plus a second.
/// A switch also announces when a link comes up.
const SPEAKS: Duration = Duration::from_secs(31);
/// Interval between two checks for missing announcements.
const LOOK: Duration = Duration::from_millis(200);
/// Longest list of interfaces, in bytes.
const LIST_MAX: u64 = 1 << 20;
/// Lifetime of the listener; a live image runs for a shorter time.
const LISTEN: Duration = Duration::from_secs(24 * 3600);
const ETHERTYPE: [u8; 2] = [0x88, 0xcc];

/// Returns the announcements since the boot; empty without a listener.
pub fn heard() -> Vec<Neighbour> {
    read().unwrap_or_default()
}

/// Reads the listener's file; `None` without a listener.
fn read() -> Option<Vec<Neighbour>> {
    files::read_json(&paths::at(HEARD), 1 << 20).ok().flatten()
}

/// Waits until each listed interface with a link has received an announcement, or for the time of
/// an announcement interval. Returns at once without a listener. The list is JSON and names the
/// interfaces with declared cables.
///
/// # Errors
/// `input` when the text is not such a list.
pub fn await_those_of(list: impl Read) -> Result<(), Failure> {
    let cabled: Vec<String> = serde_json::from_reader(list.take(LIST_MAX)).map_err(|error| {
        fatal(
            FailureCode::Input,
            format!("stdin is not a JSON list of interface names: {error}"),
        )
    })?;
    let linked: Vec<String> = super::nics::list()
        .into_iter()
        .filter(|nic| nic.link_up)
        .map(|nic| nic.name)
        .collect();
    let wanted: Vec<String> = cabled
        .into_iter()
        .filter(|name| linked.contains(name))
        .collect();
    wait(&wanted, SPEAKS, read);
    Ok(())
}

fn wait(wanted: &[String], patience: Duration, read: impl Fn() -> Option<Vec<Neighbour>>) {
    let began = Instant::now();
    while let Some(heard) = read() {
        let complete = wanted
            .iter()
            .all(|name| heard.iter().any(|neighbour| neighbour.nic == *name));
        if complete || began.elapsed() >= patience {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Starts a listener in the background. A failure is ignored, because a boot must not depend on
/// switches.
pub fn start() {
    if let Ok(program) = std::env::current_exe() {
        let quiet = Command::new(program)
            .arg("listen")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        drop(quiet);
    }
}

/// Listens on all interfaces. The newest announcement of each switch on each interface is kept for
/// the time named by the switch.
///
/// # Errors
/// `listen` when the kernel refuses a packet socket; `io` when the file cannot be written.
pub fn listen() -> Result<(), Failure> {
    let refused = |errno: nix::errno::Errno| {
        retryable(FailureCode::Listen, format!("packet socket: {errno}"))
    };
    let _ = nix::unistd::setsid();
    let socket = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )
    .map_err(refused)?;
    setsockopt(
        &socket,
        sockopt::ReceiveTimeout,
        &TimeVal::seconds(FORGET.as_secs().cast_signed()),
    )
    .map_err(refused)?;
    let started = Instant::now();
    let mut known: Vec<Known> = Vec::new();
    // The empty file shows a running listener without announcements.
    write(&known)?;
    let (mut frame, mut looked) = ([0; 2048], started);
    while started.elapsed() < LISTEN {
        if looked.elapsed() >= FORGET {
            looked = Instant::now();
            if forget(&mut known, looked) {
                write(&known)?;
            }
        }
        let Ok((length, Some(from))) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame) else {
            continue;
        };
        if frame[12..14] != ETHERTYPE {
            continue;
        }
        let Some(nic) = name_of(from.ifindex()) else {
            continue;
        };
        let Some(heard) = parse(nic, frame.get(14..length).unwrap_or_default()) else {
            continue;
        };
        if note(&mut known, heard, Instant::now()) {
            write(&known)?;
        }
    }
    // The listener ends, so the file is removed before its content gets old.
    std::fs::remove_file(paths::at(HEARD)).map_err(io(HEARD))
}

fn write(known: &[Known]) -> Result<(), Failure> {
    let neighbours: Vec<&Neighbour> = known.iter().map(|known| &known.neighbour).collect();
    files::write_json(&paths::at(HEARD), 0o644, &neighbours)
}

/// A switch on an interface, with the end of the announcement's validity.
struct Known {
    neighbour: Neighbour,
    until: Instant,
}

/// Keeps the newest announcement of each switch on each interface; returns whether the known
/// neighbours changed. Two switches on an interface are both kept, because the connected switch is
/// ambiguous. A port announcing its shutdown is removed.
fn note(known: &mut Vec<Known>, Heard { neighbour, lives_s }: Heard, now: Instant) -> bool {
    let same = |other: &Known| {
        (&other.neighbour.nic, &other.neighbour.chassis) == (&neighbour.nic, &neighbour.chassis)
    };
    let former = known.iter().position(same).map(|at| known.remove(at));
    if lives_s == 0 {
        return former.is_some();
    }
    let changed = former.is_none_or(|former| former.neighbour != neighbour);
    let of_nic = |known: &Known| known.neighbour.nic == neighbour.nic;
    if known.iter().filter(|known| of_nic(known)).count() >= SPEAKERS_MAX
        && let Some(at) = known.iter().position(of_nic)
    {
        known.remove(at);
    }
    known.truncate(NEIGHBOURS_MAX - 1);
    known.push(Known {
        neighbour,
        until: now + Duration::from_secs(lives_s.into()),
    });
    known.sort_by(|a, b| {
        (&a.neighbour.nic, &a.neighbour.chassis).cmp(&(&b.neighbour.nic, &b.neighbour.chassis))
    });
    changed
}

/// Removes neighbours whose own time to live has passed without a new announcement (802.1AB
/// 9.2.7.2); returns whether a neighbour was removed.
fn forget(known: &mut Vec<Known>, now: Instant) -> bool {
    let before = known.len();
    known.retain(|known| known.until > now);
    known.len() != before
}

fn name_of(index: usize) -> Option<String> {
    let nics = super::nics::list();
    nics.into_iter()
        .map(|nic| nic.name)
        .find(|name| text::number(format!("/sys/class/net/{name}/ifindex")) == Some(index))
}

/// An announcement of a port.
#[derive(Debug, PartialEq)]
struct Heard {
    neighbour: Neighbour,
    /// Seconds of validity without a new announcement; 0 announces a shutdown (802.1AB 8.5.4).
    lives_s: u16,
}

/// Parses an LLDPDU: type-length-value, seven and nine bits (802.1AB 8.4). Returns `None` without
/// chassis, port and time to live.
fn parse(nic: String, mut unit: &[u8]) -> Option<Heard> {
    let mut neighbour = Neighbour {
        nic,
        ..Neighbour::default()
    };
    let mut lives_s = None;
    while let [high, low, rest @ ..] = unit {
        let (kind, length) = (high >> 1, usize::from(u16::from_be_bytes([high & 1, *low])));
        let value = rest.get(..length)?;
        match kind {
            0 => break,
            1 => neighbour.chassis = id(value, 4)?,
            2 => neighbour.port = id(value, 3)?,
            3 => lives_s = Some(u16::from_be_bytes(value.get(..2)?.try_into().ok()?)),
            4 => neighbour.port_description = text::clean(&String::from_utf8_lossy(value)),
            5 => neighbour.system_name = text::clean(&String::from_utf8_lossy(value)),
            _ => {}
        }
        unit = &rest[length..];
    }
    neighbour
        .port_description
        .take_if(|name| *name == neighbour.port);
    let lives_s =
        lives_s.filter(|_| !neighbour.chassis.is_empty() && !neighbour.port.is_empty())?;
    Some(Heard { neighbour, lives_s })
}

/// Reads an id after its subtype: text, unless the subtype means a MAC address (4 for a chassis, 3
/// for a port).
fn id(value: &[u8], mac_subtype: u8) -> Option<String> {
    let (subtype, value) = value.split_first()?;
    match <[u8; 6]>::try_from(value) {
        Ok(mac) if *subtype == mac_subtype => Some(muster_core::values::Mac(mac).to_string()),
        _ => text::clean(&String::from_utf8_lossy(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_switch_is_read() {
        let unit = b"\x02\x07\x04\x00\x11\x22\x33\x44\x55\x04\x05\x05Eth1\x06\x02\x00\x78\x0a\x04leaf\x00\x00";
        let heard = parse("eno1".into(), unit).unwrap().neighbour;
        assert_eq!(
            (heard.chassis.as_str(), heard.port.as_str()),
            ("00:11:22:33:44:55", "Eth1")
        );
        assert_eq!(heard.system_name.as_deref(), Some("leaf"));
        assert_eq!(parse("eno1".into(), &unit[..9]), None);
    }

    /// Whole frames of lldpd 1.0.16, as received by an interface.
    fn recorded(name: &str) -> Heard {
        let path = format!(
            "{}/fixtures/lldp/lldpd-1.0.16-{name}.bin",
            env!("CARGO_MANIFEST_DIR")
        );
        let frame = std::fs::read(path).unwrap();
        assert_eq!(frame[12..14], ETHERTYPE);
        parse("eno1".into(), &frame[14..]).unwrap()
    }

    #[test]
    fn a_port_is_known_by_its_name_or_described_by_it() {
        let [named, by_mac] = ["port-ifname", "port-mac"].map(|name| recorded(name).neighbour);
        assert_eq!(
            (named.port.as_str(), named.port_description),
            ("Ethernet3", None)
        );
        assert_eq!(
            (by_mac.port.as_str(), by_mac.port_description.as_deref()),
            ("02:00:5e:00:53:03", Some("Ethernet3"))
        );
        for heard in [&named.system_name, &by_mac.system_name] {
            assert_eq!(heard.as_deref(), Some("leaf1.example.net"));
        }
    }

    #[test]
    fn a_switch_gets_the_time_to_speak_and_no_more() {
        let looks = std::cell::Cell::new(0);
        let heard = |nic: &str| Neighbour {
            nic: nic.into(),
            ..Neighbour::default()
        };
        let speaks_late = || {
            looks.set(looks.get() + 1);
            Some(if looks.get() < 3 {
                vec![heard("eno2")]
            } else {
                vec![heard("eno1"), heard("eno2")]
            })
        };
        let of = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let after = |wanted: &[&str], patience| {
            wait(&of(wanted), patience, speaks_late);
            looks.replace(0)
        };
        assert_eq!(
            after(&["eno1", "eno2"], SPEAKS),
            3,
            "it ends as soon as all have spoken"
        );
        assert_eq!(
            after(&["eno3"], Duration::ZERO),
            1,
            "nobody is waited for longer than that"
        );
        assert_eq!(after(&[], SPEAKS), 1, "nobody is waited for");
        wait(&of(&["eno1"]), SPEAKS, || None);
    }

    #[test]
    fn a_port_that_leaves_is_forgotten() {
        let (mut known, now) = (Vec::new(), Instant::now());
        assert!(note(&mut known, recorded("port-mac"), now));
        assert!(!note(&mut known, recorded("port-mac"), now), "nothing new");
        assert!(
            note(&mut known, recorded("port-ifname"), now) && known.len() == 1,
            "one word of each switch"
        );
        let mut other = recorded("shutdown");
        assert!(other.lives_s == 0 && recorded("port-mac").lives_s > 0);
        other.neighbour.nic = "eno2".into();
        assert!(!note(&mut known, other, now) && known.len() == 1);
        assert!(note(&mut known, recorded("shutdown"), now) && known.is_empty());
    }

    #[test]
    fn a_port_that_is_not_heard_again_in_its_time_is_forgotten() {
        let (mut known, now) = (Vec::new(), Instant::now());
        let after = |seconds: u64| now + Duration::from_secs(seconds);
        let lives_s = u64::from(recorded("port-mac").lives_s);
        note(&mut known, recorded("port-mac"), now);
        assert!(!forget(&mut known, after(lives_s - 1)));
        assert!(
            !note(&mut known, recorded("port-mac"), after(lives_s - 1)),
            "it is still the same"
        );
        assert!(
            !forget(&mut known, after(lives_s + 1)),
            "heard again, it lives anew"
        );
        assert!(forget(&mut known, after(2 * lives_s)) && known.is_empty());
    }

    #[test]
    fn two_switches_on_one_interface_are_both_told() {
        let (mut known, now) = (Vec::new(), Instant::now());
        note(&mut known, recorded("port-mac"), now);
        for chassis in 0..9 {
            let mut other = recorded("port-mac");
            other.neighbour.chassis = format!("00:11:22:33:44:0{chassis}");
            assert!(note(&mut known, other, now));
        }
        assert_eq!(known.len(), SPEAKERS_MAX, "and no flood of them");
    }

    proptest! {
        #[test]
        fn no_frame_breaks_the_parser(unit in proptest::collection::vec(any::<u8>(), 0..2048)) {
            parse(String::new(), &unit);
        }
    }
}

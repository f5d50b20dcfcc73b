//! Records the actions of machines seen on the network, for the waiting job and for the server.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_core::clock::Clock;
use muster_core::values::Mac;
use muster_core::wire::calls::{Seen, Sighting};
use tokio::sync::mpsc;

use super::arm::ArmedBoots;

/// The same sighting of the same machine within this time is reported once.
const QUIET: SignedDuration = SignedDuration::from_secs(2);
/// Maximum number of remembered sightings. A flood of fake machines only clears the memory.
const MOST: usize = 4096;
/// Period of the limits below.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Maximum number of machines without an armed boot that are reported in a minute.
const MACHINES_IN_A_MINUTE: usize = 256;
/// Maximum number of reported sightings of a machine in a minute. A boot has about ten.
const SIGHTINGS_IN_A_MINUTE: u32 = 60;
/// Maximum number of reported alarms of one kind in a minute: about one machine, and about all.
const ALARMS_OF_A_MACHINE: u32 = 5;
const ALARMS_IN_A_MINUTE: u32 = 100;

/// The identity claimed by a machine. The values are not trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uuid: Option<String>,
    pub serial: Option<String>,
}

/// Collects sightings. The queue to the server is limited. When the queue is full, a sighting is
/// dropped without waiting.
#[derive(Debug)]
pub struct Lookout {
    armed: ArmedBoots,
    queue: mpsc::Sender<Sighting>,
    clock: Clock,
    recent: Mutex<HashMap<(Mac, u8), (Timestamp, String)>>,
    minute: Mutex<Minute>,
}

/// The sightings reported in the present minute, by machine.
#[derive(Debug, Default)]
struct Minute {
    began_at: Timestamp,
    reported: HashMap<Mac, u32>,
    /// Reported machines without an armed boot.
    strangers: HashSet<Mac>,
    /// Reported alarms, by machine and kind.
    alarms: HashMap<(Mac, u8), u32>,
    /// Reported alarms, by kind.
    alarms_of_kind: HashMap<u8, u32>,
    /// A warning was logged in this minute.
    is_logged: bool,
}

impl Minute {
    /// Counts an alarm, and returns whether the alarm is reported.
    fn add_alarm(&mut self, mac: Mac, what: Seen) -> bool {
        let all = self.alarms_of_kind.entry(what as u8).or_default();
        if *all >= ALARMS_IN_A_MINUTE {
            return false;
        }
        let own = self.alarms.entry((mac, what as u8)).or_default();
        if *own >= ALARMS_OF_A_MACHINE {
            return false;
        }
        *all += 1;
        *own += 1;
        true
    }
}

/// Returns whether a sighting is an alarm. A flood of other sightings hides no alarm.
fn is_alarm(what: Seen) -> bool {
    match what {
        Seen::FetchedTwice | Seen::RogueDhcp => true,
        Seen::Dhcp | Seen::Tftp | Seen::Script | Seen::Kernel | Seen::Report => false,
    }
}

impl Lookout {
    pub fn new(armed: ArmedBoots, queue: mpsc::Sender<Sighting>, clock: Clock) -> Self {
        Self {
            armed,
            queue,
            clock,
            recent: Mutex::default(),
            minute: Mutex::default(),
        }
    }

    /// Records a sighting.
    pub fn saw(&self, mac: Mac, what: Seen, who: Identity, detail: impl Into<String>) {
        let sighting = Sighting {
            at: self.clock.now(),
            mac,
            what,
            uuid: who.uuid.as_deref().and_then(plain),
            serial: who.serial.as_deref().and_then(plain),
            detail: detail.into(),
        };
        self.armed.saw(&sighting);
        if !self.is_news(&sighting) || !self.is_within_limits(&sighting) {
            return;
        }
        self.log(&sighting);
        if self.queue.try_send(sighting).is_err() {
            tracing::debug!(%mac, "sighting dropped: the queue to the server is full");
        }
    }

    /// Logs a sighting: at `info` for a machine with an armed boot, with the fields of the boot's
    /// job, and otherwise at `debug`.
    fn log(&self, sighting: &Sighting) {
        let Sighting {
            mac, what, detail, ..
        } = sighting;
        match self.armed.session(*mac) {
            Some(session) => session.in_scope(|| tracing::info!(?what, detail, "machine seen")),
            None => tracing::debug!(%mac, ?what, detail, "machine seen"),
        }
    }

    /// Counts a sighting, and returns whether the sighting is reported. A machine with an armed
    /// boot is reported during a flood of fake machines too, and so is an alarm.
    fn is_within_limits(&self, sighting: &Sighting) -> bool {
        let is_armed = self.armed.session(sighting.mac).is_some();
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let apart = sighting.at.duration_since(minute.began_at);
        if apart >= MINUTE || apart.is_negative() {
            *minute = Minute {
                began_at: sighting.at,
                ..Minute::default()
            };
        }
        if is_alarm(sighting.what) {
            return minute.add_alarm(sighting.mac, sighting.what);
        }
        let is_known = is_armed || minute.strangers.contains(&sighting.mac);
        if !is_known && minute.strangers.len() >= MACHINES_IN_A_MINUTE {
            if !minute.is_logged {
                minute.is_logged = true;
                tracing::warn!(
                    limit = MACHINES_IN_A_MINUTE,
                    "{MACHINES_IN_A_MINUTE} unknown machines seen in this minute; the agent reports no further machine until the next minute"
                );
            }
            return false;
        }
        if !is_known {
            minute.strangers.insert(sighting.mac);
        }
        let reported = minute.reported.entry(sighting.mac).or_default();
        *reported += 1;
        *reported <= SIGHTINGS_IN_A_MINUTE
    }

    fn is_news(&self, sighting: &Sighting) -> bool {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sighting.mac, sighting.what as u8);
        let told = recent.get(&key).is_some_and(|(at, detail)| {
            sighting.at.duration_since(*at) < QUIET && *detail == sighting.detail
        });
        if !told {
            if recent.len() >= MOST {
                recent.clear();
            }
            recent.insert(key, (sighting.at, sighting.detail.clone()));
        }
        !told
    }
}

/// Returns at most 64 printable ASCII characters of a text sent by firmware. All other characters
/// are removed.
fn plain(text: &str) -> Option<String> {
    let kept: String = text
        .chars()
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .take(64)
        .collect();
    Some(kept.trim().to_owned()).filter(|kept| !kept.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookout(clock: Clock) -> (Lookout, mpsc::Receiver<Sighting>) {
        let (queue, reported) = mpsc::channel(4096);
        (Lookout::new(ArmedBoots::new(), queue, clock), reported)
    }

    #[test]
    fn a_flood_of_machines_is_reported_up_to_the_limit_of_a_minute() {
        let clock = Clock::manual("2026-01-05T08:00:00Z".parse().unwrap());
        let (lookout, reported) = lookout(clock.clone());
        let flood = || {
            for n in 0..MACHINES_IN_A_MINUTE + 9 {
                let [_, _, _, _, _, _, high, low] = (n as u64).to_be_bytes();
                let mac = Mac([2, 0, 0, 0, high, low]);
                lookout.saw(mac, Seen::Dhcp, Identity::default(), "");
            }
        };
        flood();
        assert_eq!(reported.len(), MACHINES_IN_A_MINUTE);
        clock.advance(MINUTE);
        flood();
        assert_eq!(reported.len(), 2 * MACHINES_IN_A_MINUTE);
    }

    #[test]
    fn a_machine_with_ever_new_details_is_reported_up_to_a_limit() {
        let (lookout, reported) = lookout(Clock::manual("2026-01-05T08:00:00Z".parse().unwrap()));
        for n in 0..SIGHTINGS_IN_A_MINUTE + 9 {
            let (mac, who) = (Mac([2, 0, 0, 0, 0, 1]), Identity::default());
            lookout.saw(mac, Seen::Dhcp, who, format!("vendor {n}"));
        }
        assert_eq!(reported.len(), SIGHTINGS_IN_A_MINUTE as usize);
    }

    #[test]
    fn a_flood_hides_no_alarm_and_alarms_have_limits() {
        let (lookout, mut reported) =
            lookout(Clock::manual("2026-01-05T08:00:00Z".parse().unwrap()));
        let mac = |n: usize| {
            let [.., high, low] = n.to_be_bytes();
            Mac([2, 0, 0, 0, high, low])
        };
        let see = |mac, what, detail: usize| {
            lookout.saw(mac, what, Identity::default(), detail.to_string());
        };
        let victim = mac(usize::from(u16::MAX));
        for n in 0..MACHINES_IN_A_MINUTE + 9 {
            see(mac(n), Seen::Dhcp, n);
        }
        for n in 0..100 {
            see(victim, Seen::Dhcp, n);
        }
        while reported.try_recv().is_ok() {}
        see(victim, Seen::Dhcp, 100);
        assert!(reported.is_empty(), "the flood has used up the limits");
        for n in 0..9 {
            see(victim, Seen::FetchedTwice, n);
        }
        assert_eq!(reported.len(), ALARMS_OF_A_MACHINE as usize);
        // Invented answers of another DHCP server hide no second fetch.
        let (lookout, mut reported) = self::lookout(Clock::manual(Timestamp::UNIX_EPOCH));
        for n in 0..ALARMS_IN_A_MINUTE as usize + 9 {
            lookout.saw(mac(n), Seen::RogueDhcp, Identity::default(), "");
        }
        assert_eq!(reported.len(), ALARMS_IN_A_MINUTE as usize);
        while reported.try_recv().is_ok() {}
        lookout.saw(victim, Seen::FetchedTwice, Identity::default(), "");
        assert_eq!(reported.len(), 1);
    }
}

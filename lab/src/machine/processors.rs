//! CPUs of the host, shared by the guests of a rack. All threads of a guest run on a single CPU.
//!
//! QEMU 7.2 reads a queue's shadow doorbell before other CPUs see QEMU's own write beside the
//! doorbell (NVM Express base specification, Doorbell Buffer Config). On two CPUs at once a guest's
//! doorbell is lost, and the guest's disk hangs. In six replays of a journal without pinning, four
//! hung; in six replays on a single CPU, none hung.
//!
//! A guest starts on the CPU with the least work of guests. A running guest moves when another CPU
//! has less. The guest is stopped during a move, so the threads never run on two CPUs.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{LabError, io};

/// Time between two measurements of a guest's work.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Least gain of a move, as a share of a CPU; smaller differences are noise.
const WORTH_A_MOVE: f64 = 0.25;
/// Time limit for the threads of a stopped guest to stand still.
const STOP_LIMIT: Duration = Duration::from_millis(500);
/// Time after a failed move without another attempt.
const PAUSE: Duration = Duration::from_secs(30);

/// The CPUs of a rack, with the guests on each.
#[derive(Debug)]
pub(crate) struct Processors {
    cpus: Vec<usize>,
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    seats: BTreeMap<u64, Seat>,
    next: u64,
}

/// Place of a running guest.
#[derive(Clone, Copy, Debug)]
struct Seat {
    cpu: usize,
    /// Work in the last interval, as a share of one CPU. Counts the time spent waiting for the CPU.
    share: f64,
}

/// A guest's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    processors: Arc<Processors>,
    id: u64,
    /// Work of the guest until the last measurement, and the time of the measurement.
    seen: Option<(Duration, Instant)>,
    /// End of the pause after a failed move.
    paused_until: Option<Instant>,
}

impl Processors {
    /// Reads the CPUs that this process may use.
    pub(crate) fn of_this_process() -> Result<Arc<Self>, LabError> {
        let allowed = sched_getaffinity(Pid::from_raw(0))
            .map_err(|error| io("ask which CPUs may be used")(error.into()))?;
        let cpus: Vec<usize> = (0..CpuSet::count())
            .filter(|cpu| allowed.is_set(*cpu).unwrap_or(false))
            .collect();
        if cpus.is_empty() {
            return Err(LabError::Plan("no CPU may be used".to_owned()));
        }
        Ok(Arc::new(Self {
            cpus,
            guests: Mutex::default(),
        }))
    }

    /// Takes a place for a new guest, on the CPU with the least work.
    pub(crate) fn take(self: &Arc<Self>) -> (usize, Place) {
        let mut guests = self.lock();
        let cpu = lightest(&self.cpus, &guests.seats);
        let id = guests.next;
        guests.next += 1;
        // A guest that boots keeps a CPU busy.
        guests.seats.insert(id, Seat { cpu, share: 1.0 });
        let place = Place {
            processors: Arc::clone(self),
            id,
            seen: None,
            paused_until: None,
        };
        (cpu, place)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Guests> {
        self.guests
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Place {
    /// Measures the guest's work, and moves the guest to a CPU with less work. A guest that cannot be
    /// measured or moved stays in its place.
    pub(crate) async fn look(&mut self, pid: u32) {
        let now = Instant::now();
        let Some(work) = wanted_time(pid) else {
            return;
        };
        let Some((before, at)) = self.seen.replace((work, now)) else {
            return;
        };
        let share = work.saturating_sub(before).as_secs_f64() / (now - at).as_secs_f64().max(0.1);
        if self.paused_until.is_some_and(|until| now < until) {
            return self.set_share(share);
        }
        let Some((from, to)) = self.choose(share) else {
            return;
        };
        if !move_guest(pid, from, to).await {
            self.sit(from);
            self.paused_until = Some(now + PAUSE);
        }
        self.seen = None;
    }

    /// Records a guest that stands still until further notice.
    pub(crate) fn rest(&mut self) {
        self.set_share(0.0);
        self.seen = None;
    }

    /// Records the guest's work, and takes a better CPU. Returns the CPUs before and after.
    fn choose(&self, share: f64) -> Option<(usize, usize)> {
        let mut guests = self.processors.lock();
        guests.seats.get_mut(&self.id)?.share = share;
        let to = better(&self.processors.cpus, &guests.seats, self.id)?;
        let seat = guests.seats.get_mut(&self.id)?;
        Some((std::mem::replace(&mut seat.cpu, to), to))
    }

    fn set_share(&self, share: f64) {
        if let Some(seat) = self.processors.lock().seats.get_mut(&self.id) {
            seat.share = share;
        }
    }

    fn sit(&self, cpu: usize) {
        if let Some(seat) = self.processors.lock().seats.get_mut(&self.id) {
            seat.cpu = cpu;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.processors.lock().seats.remove(&self.id);
    }
}

/// Returns the work on a CPU.
fn load(cpu: usize, seats: &BTreeMap<u64, Seat>) -> f64 {
    let on_it = seats.values().filter(|seat| seat.cpu == cpu);
    on_it.map(|seat| seat.share).sum()
}

/// Returns the CPU with the least work; of equals, the first.
fn lightest(cpus: &[usize], seats: &BTreeMap<u64, Seat>) -> usize {
    let lightest = cpus
        .iter()
        .min_by(|a, b| load(**a, seats).total_cmp(&load(**b, seats)));
    lightest.copied().unwrap_or_default()
}

/// Returns the CPU to which a guest should move, if the busier of both CPUs then has less work.
fn better(cpus: &[usize], seats: &BTreeMap<u64, Seat>, id: u64) -> Option<usize> {
    let seat = seats.get(&id)?;
    let other = lightest(cpus, seats);
    let (here, there) = (load(seat.cpu, seats), load(other, seats));
    let after = (there + seat.share).max(here - seat.share);
    (other != seat.cpu && after + WORTH_A_MOVE <= here).then_some(other)
}

/// Returns the time in which the threads of a process ran or waited for a CPU (the kernel's
/// sched-stats: time on the CPU and time on the run queue, in ns).
fn wanted_time(pid: u32) -> Option<Duration> {
    let threads = threads(pid);
    let wanted = threads.iter().filter_map(|thread| {
        let path = format!("/proc/{pid}/task/{thread}/schedstat");
        let stat = fs::read_to_string(path).ok()?;
        let mut numbers = stat.split_whitespace().map(|word| word.parse::<u64>().ok());
        Some(numbers.next()?? + numbers.next()??)
    });
    (!threads.is_empty()).then(|| Duration::from_nanos(wanted.sum()))
}

/// Stops a guest, moves all of its threads to a CPU, and lets the guest run on. Returns whether the
/// guest was moved; after a failure the threads are pinned to the CPU before.
async fn move_guest(pid: u32, from: usize, to: usize) -> bool {
    let Ok(process) = i32::try_from(pid).map(Pid::from_raw) else {
        return false;
    };
    if kill(process, Signal::SIGSTOP).is_err() {
        return false;
    }
    let asked = Instant::now();
    while !stands_still(pid) && asked.elapsed() < STOP_LIMIT {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let moved = stands_still(pid) && pin(pid, to);
    if !moved {
        tracing::debug!(pid, from, to, "a guest could not be moved");
        pin(pid, from);
    }
    if let Err(error) = kill(process, Signal::SIGCONT) {
        tracing::debug!(pid, %error, "a stopped guest could not go on");
    }
    moved
}

/// Lets the threads of a process run on a single CPU. Returns whether all threads were pinned.
fn pin(pid: u32, cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu).is_ok()
        && threads(pid)
            .into_iter()
            .all(|thread| sched_setaffinity(Pid::from_raw(thread), &set).is_ok())
}

fn threads(pid: u32) -> Vec<i32> {
    let listed = fs::read_dir(format!("/proc/{pid}/task"));
    let names = listed.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns whether all threads of a process are stopped.
fn stands_still(pid: u32) -> bool {
    threads(pid).into_iter().all(|thread| {
        fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat"))
            .ok()
            .and_then(|stat| Some(stat.rsplit_once(')')?.1.trim_start().starts_with('T')))
            .unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nix::sched::{CpuSet, sched_getaffinity};
    use nix::unistd::Pid;
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::{Processors, Seat, better, lightest, move_guest, pin, stands_still, threads};

    fn seats(of: &[(usize, f64)]) -> BTreeMap<u64, Seat> {
        let seats = of.iter().zip(0..);
        seats
            .map(|((cpu, share), id)| {
                let (cpu, share) = (*cpu, *share);
                (id, Seat { cpu, share })
            })
            .collect()
    }

    #[test]
    fn a_guest_starts_where_the_least_work_is() {
        assert_eq!(lightest(&[0, 1], &seats(&[])), 0);
        assert_eq!(lightest(&[0, 1], &seats(&[(0, 1.0)])), 1);
        // Two that stand still are less than one that boots.
        let still = seats(&[(0, 0.02), (0, 0.02), (1, 1.0)]);
        assert_eq!(lightest(&[0, 1], &still), 0);
    }

    #[test]
    fn one_of_two_busy_guests_moves_to_an_idle_cpu() {
        let both = seats(&[(0, 1.0), (0, 1.0), (1, 0.02)]);
        assert_eq!(better(&[0, 1], &both, 0), Some(1));
        let moved = seats(&[(1, 1.0), (0, 1.0), (1, 0.02)]);
        assert_eq!(better(&[0, 1], &moved, 1), None);
        // Three busy guests on two CPUs stay, whichever shares a CPU; of four, two move.
        let three = seats(&[(0, 1.0), (0, 1.0), (1, 1.0)]);
        for guest in 0..3 {
            assert_eq!(better(&[0, 1], &three, guest), None);
        }
        let four = seats(&[(0, 1.0), (0, 1.0), (0, 1.0), (1, 1.0)]);
        assert_eq!(better(&[0, 1], &four, 0), Some(1));
        assert_eq!(better(&[0], &seats(&[(0, 1.0), (0, 1.0)]), 0), None);
    }

    #[test]
    fn a_place_is_given_back() {
        let processors = Processors::of_this_process().expect("CPUs");
        let places: Vec<_> = (0..4).map(|_| processors.take()).collect();
        assert_eq!(processors.lock().seats.len(), 4);
        drop(places);
        assert!(processors.lock().seats.is_empty());
    }

    #[tokio::test]
    async fn all_threads_of_a_process_are_moved_and_go_on() {
        let processors = Processors::of_this_process().expect("CPUs");
        let (first, last) = (processors.cpus[0], *processors.cpus.last().expect("a CPU"));
        let program = "import threading, time\n\
                       threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
                       print('up', flush=True)\n\
                       time.sleep(60)";
        let mut child = tokio::process::Command::new("python3")
            .args(["-c", program])
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3");
        let mut output = BufReader::new(child.stdout.take().expect("its output")).lines();
        assert_eq!(
            output.next_line().await.expect("a line").as_deref(),
            Some("up")
        );
        let pid = child.id().expect("its process");
        assert_eq!(threads(pid).len(), 2);
        assert!(pin(pid, first));
        assert_eq!(used_cpus(pid), [[first], [first]]);
        // On a busy host the process may stand still too late for a move.
        while !move_guest(pid, first, last).await {}
        assert_eq!(used_cpus(pid), [[last], [last]]);
        // A CPU that the host lacks.
        assert!(!move_guest(pid, last, CpuSet::count()).await);
        assert_eq!(used_cpus(pid), [[last], [last]]);
        assert!(!stands_still(pid));
        child.kill().await.expect("its end");
    }

    /// The CPUs of each thread.
    fn used_cpus(pid: u32) -> Vec<Vec<usize>> {
        let of = |thread| {
            let set = sched_getaffinity(Pid::from_raw(thread)).expect("its CPUs");
            let all = 0..CpuSet::count();
            all.filter(|cpu| set.is_set(*cpu).unwrap_or(false))
                .collect()
        };
        threads(pid).into_iter().map(of).collect()
    }
}

//! Runs a machine in QEMU, inside the rack's namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::process::Child;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

use super::accel::Accel;
use super::console::{Console, listen};
use super::launch::{Answer, Boot, Exit, Guest, GuestAct, Launcher};
use super::ovmf::UEFI_FACTORY_VARIABLES;
use super::processors::{LOOK_EVERY, Place, Processors};
use super::qemu_args::{QMP_SOCKET, UEFI_VARIABLES, arguments, disk_id};
use super::{disks, qmp::Qmp};
use crate::error::{LabError, io};
use crate::netns::Netns;
use crate::plan::{FirmwareKind, MachinePlan};

/// Name of the log with QEMU's own messages, in the machine's directory.
const QEMU_LOG: &str = "qemu.log";
/// Time limit from the start of QEMU to its first message; on a loaded host the start takes
/// seconds.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of a machine's directory path: the kernel's limit for socket paths, minus the
/// longest socket name (unix(7)).
const MAX_DIR: usize = 107 - "/console.sock".len();

/// Starts the guests of a machine.
#[derive(Debug)]
pub struct Qemu {
    plan: MachinePlan,
    dir: PathBuf,
    netns: Netns,
    tap: String,
    processors: Arc<Processors>,
    accel: Accel,
    console: Console,
    /// Locked while a QEMU connects, so that each boot gets the connection of its own QEMU.
    control: Mutex<UnixListener>,
}

impl Qemu {
    /// Makes the machine's directory with its disks and firmware variables; existing files are
    /// kept. The serial console can also be read at the listener `console`.
    pub(crate) fn prepare(
        plan: &MachinePlan,
        dir: &Path,
        netns: &Netns,
        processors: Arc<Processors>,
        tap: String,
        accel: Accel,
        console: std::net::TcpListener,
    ) -> Result<Self, LabError> {
        if dir.as_os_str().len() > MAX_DIR {
            return Err(LabError::Plan(format!(
                "{} is too long a path for sockets: at most {MAX_DIR} bytes",
                dir.display()
            )));
        }
        fs::create_dir_all(dir).map_err(io(format!("make {}", dir.display())))?;
        disks::create(plan, dir)?;
        let variables = dir.join(UEFI_VARIABLES);
        if plan.firmware == FirmwareKind::Uefi && !variables.exists() {
            fs::copy(UEFI_FACTORY_VARIABLES, &variables)
                .map_err(io(format!("copy {UEFI_FACTORY_VARIABLES} (package ovmf)")))?;
        }
        let control = Mutex::new(listen(&dir.join(QMP_SOCKET))?);
        let (plan, dir, netns) = (plan.clone(), dir.to_owned(), netns.clone());
        let console = Console::open(&dir, console)?;
        Ok(Self {
            plan,
            dir,
            netns,
            tap,
            processors,
            accel,
            console,
            control,
        })
    }

    async fn start(&self, boot: Boot) -> Result<Guest, LabError> {
        let control = self.control.lock().await;
        // Drops stale connections: a QEMU killed while connecting may have left a connection in the
        // backlog.
        while control.accept().now_or_never().is_some() {}
        self.console
            .mark(&format!("boot {} of {}", boot.number, self.plan.name));
        let said = self.dir.join(QEMU_LOG);
        let log = fs::File::create(&said).map_err(io(format!("make {}", said.display())))?;
        let (cpu, place) = self.processors.take();
        let mut child = self
            .netns
            .command("taskset")
            .args(["--cpu-list", &cpu.to_string(), "qemu-system-x86_64"])
            .args(arguments(&self.plan, &self.tap, self.accel, boot))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(io("run qemu-system-x86_64 (package qemu-system-x86)"))?;
        let connected = tokio::select! {
            accepted = control.accept() => match accepted {
                Ok((stream, _)) => Qmp::connect(stream).await,
                Err(error) => Err(error.to_string()),
            },
            status = child.wait() => Err(format!("QEMU ended at once: {status:?}")),
            () = tokio::time::sleep(START_TIMEOUT) => Err(format!("QEMU did not come up in {START_TIMEOUT:?}")),
        };
        let qmp = connected.map_err(|why| {
            let said = fs::read_to_string(&said).unwrap_or_default();
            LabError::Machine {
                machine: self.plan.name.to_string(),
                why: format!("{why}; {}", said.trim()),
            }
        })?;
        let (acts, queue) = mpsc::channel(8);
        let (ended, exit) = watch::channel(None);
        let pid = child.id();
        #[expect(
            clippy::disallowed_methods,
            reason = "the task ends with the QEMU process that it waits for"
        )]
        tokio::spawn(accompany(child, place, qmp, queue, ended));
        Ok(Guest { pid, acts, exit })
    }
}

impl Launcher for Qemu {
    fn launch(&self, boot: Boot) -> BoxFuture<'_, Result<Guest, LabError>> {
        self.start(boot).boxed()
    }
}

/// Performs the acts on a guest until the guest ends, then records the way in which the guest
/// ended.
async fn accompany(
    mut child: Child,
    mut place: Place,
    qmp: Qmp,
    mut queue: mpsc::Receiver<(GuestAct, oneshot::Sender<Answer>)>,
    ended: watch::Sender<Option<Exit>>,
) {
    let (mut stopped, mut wedged) = (false, false);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            () = qmp.stopped(), if !stopped => {
                stopped = true;
                // The lab never stops CPUs through QEMU, so the accelerator failed. A machine with
                // stopped CPUs counts as off.
                let _ = child.start_kill();
            }
            // A move would let a wedged guest run.
            _ = looks.tick(), if !wedged => {
                if let Some(pid) = child.id() {
                    place.look(pid).await;
                }
            }
            Some((act, done)) = queue.recv() => {
                wedged = match act {
                    GuestAct::Wedge => true,
                    GuestAct::Unwedge => false,
                    _ => wedged,
                };
                if wedged {
                    place.rest();
                }
                // An error only means that the requester stopped waiting.
                let _ = done.send(perform(&mut child, &qmp, act).await);
            }
        }
    };
    let exit = match qmp.shutdown_reason().await.as_deref() {
        Some("guest-reset") => Exit::Reset,
        Some("guest-shutdown") => Exit::PoweredOff,
        _ if stopped => Exit::Lost(format!(
            "its CPUs stopped; see {QEMU_LOG}, and try `--accel tcg`"
        )),
        other => Exit::Lost(format!(
            "QEMU ended: {status:?}, {}",
            other.unwrap_or("without a reason")
        )),
    };
    drop(place);
    ended.send_replace(Some(exit));
}

async fn perform(child: &mut Child, qmp: &Qmp, act: GuestAct) -> Answer {
    match act {
        GuestAct::Kill => child
            .start_kill()
            .map(|()| Value::Null)
            .map_err(|error| error.to_string()),
        GuestAct::Wedge => signal(child, Signal::SIGSTOP),
        GuestAct::Unwedge => signal(child, Signal::SIGCONT),
        GuestAct::PressPowerButton => qmp.execute("system_powerdown", json!({})).await,
        GuestAct::SetLink { up } => {
            qmp.execute("set_link", json!({"name": "net0", "up": up}))
                .await
        }
        GuestAct::CountBlocks => qmp.execute("query-blockstats", json!({})).await,
        GuestAct::SetNvmeWarning { disk, warning } => {
            let path = format!("/machine/peripheral/{}", disk_id(disk));
            let set = json!({"path": path, "property": "smart_critical_warning", "value": warning});
            qmp.execute("qom-set", set).await
        }
    }
}

fn signal(child: &Child, signal: Signal) -> Answer {
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .ok_or("the guest has ended")?;
    kill(Pid::from_raw(pid), signal)
        .map(|()| Value::Null)
        .map_err(|error| error.to_string())
}

//! A machine without hardware. The lab's Redfish BMC has its power and its boot order; below run two systems, the live image and the installed system. Each
//! system is a folder: a real sshd lets the agent in, and a real muster-node works there by `MUSTER_ROOT`. Sessions run programs of the machine's own folder
//! of tools alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_core::clock::Clock;
use muster_core::values::{Mac, Secret};
use muster_core::wire::node::{LiveReport, SiteTrust};
use muster_lab::bmc::Bmc;
use muster_lab::error::LabError;
use muster_lab::machine::PowerState;
use muster_lab::machine::firmware::BootOrder;
use muster_lab::machine::launch::{Answer, Boot, Exit, Guest, GuestAct, Launcher};
use muster_lab::machine::oracle::Cause;
use muster_lab::plan::{BmcPlan, RackPlan};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot, watch};

use super::hardware::{build_hardware, build_tools, firmware_table, put_program};
use super::network;

/// The account of the BMC as it leaves the factory.
pub(crate) const ACCOUNT: (&str, &str) = ("root", "calvin");
/// The interface that the node boots from.
pub(crate) const NIC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
/// How long a restart shows the power off. The agent looks once a second; without a dip it waits for 15 s.
const DIP: Duration = Duration::from_millis(2500);
/// Between two looks at the file by which the system asks for a restart.
const LOOK: Duration = Duration::from_millis(50);
/// A machine, off at first.
pub(crate) struct Machine {
    /// The names that the firmware and the BMC give the machine.
    pub(crate) serial: String,
    pub(crate) uuid: uuid::Uuid,
    _bmc: Bmc,
    systems: Arc<Systems>,
}

/// The systems that the machine's firmware starts.
#[derive(Debug)]
struct Systems {
    folder: TempDir,
    /// The muster-node of the live image.
    live_node: PathBuf,
}

impl Machine {
    /// A machine whose live image has this muster-node.
    pub(crate) fn start(live_node: &Path) -> Self {
        let mut plan = RackPlan::reference().machines.remove(0);
        plan.mac = NIC;
        let bmc = BmcPlan {
            user: ACCOUNT.0.into(),
            password: Secret::new(ACCOUNT.1),
            reset_delay_ms: 20,
            ..BmcPlan::factory(network::BMC.parse().unwrap())
        };
        plan.bmc = Some(bmc.clone());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // The unprivileged half of sshd reads below it.
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        build_hardware(
            &path.join("hardware"),
            &firmware_table(plan.uuid, &plan.serial),
        );
        build_tools(path);
        let systems = Arc::new(Systems {
            live_node: live_node.to_path_buf(),
            folder,
        });
        let lab = systems.path("lab");
        std::fs::create_dir(&lab).unwrap();
        let (serial, uuid) = (plan.serial.clone(), plan.uuid);
        let firmware = Arc::new(Firmware {
            systems: Arc::clone(&systems),
            power: OnceLock::new(),
        });
        let launcher = Arc::<Firmware>::clone(&firmware);
        let machine =
            muster_lab::machine::Machine::new(plan, lab, launcher, Clock::System).unwrap();
        firmware.power.set(Arc::downgrade(&machine)).unwrap();
        let listener = std::net::TcpListener::bind((network::BMC, 443)).unwrap();
        let bmc = Bmc::start(machine, &bmc, listener, None).unwrap();
        Self {
            serial,
            uuid,
            _bmc: bmc,
            systems,
        }
    }

    /// The log of sshd, for both systems.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.systems.path("sshd.log")).unwrap_or_default()
    }
}

/// Starts a system at each boot.
#[derive(Debug)]
struct Firmware {
    systems: Arc<Systems>,
    power: OnceLock<Weak<muster_lab::machine::Machine>>,
}

impl Launcher for Firmware {
    fn launch(&self, boot: Boot) -> BoxFuture<'_, Result<Guest, LabError>> {
        let (acts, asked) = mpsc::channel(8);
        let (ended, exit) = watch::channel(None);
        let machine = self.power.get().and_then(Weak::upgrade).unwrap();
        if machine.power() == PowerState::On {
            // A restart: the power goes off, and comes back by itself.
            ended.send_replace(Some(Exit::PoweredOff));
            tokio::spawn(async move {
                tokio::time::sleep(DIP).await;
                machine.power_on(Cause::Button).await.unwrap();
            });
        } else {
            let systems = Arc::clone(&self.systems);
            tokio::spawn(async move {
                let exit = systems.run_until_killed(boot.order, asked).await;
                ended.send_replace(Some(exit));
            });
        }
        let guest = Guest {
            pid: None,
            acts,
            exit,
        };
        async move { Ok(guest) }.boxed()
    }
}

impl Systems {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs one boot to its end, or to the loss of power. Every session and job ends with the boot.
    async fn run_until_killed(
        &self,
        order: BootOrder,
        mut asked: mpsc::Receiver<(GuestAct, oneshot::Sender<Answer>)>,
    ) -> Exit {
        let running = self.run(order);
        tokio::pin!(running);
        loop {
            tokio::select! {
                exit = &mut running => return exit,
                Some((act, done)) = asked.recv() => {
                    done.send(Ok(Value::Null)).ok();
                    if act == GuestAct::Kill {
                        return Exit::Lost("no power".into());
                    }
                }
            }
        }
    }

    /// Runs one boot: from the network where the order says so and the agent has the live image armed, else from the disk. Ends with a restart or a power-off.
    async fn run(&self, order: BootOrder) -> Exit {
        let power = self.path("power");
        std::fs::remove_file(&power).ok();
        let live = match order {
            BootOrder::DisksFirst => None,
            BootOrder::Own | BootOrder::NetworkFirst => self.boot_live().await,
        };
        let _sshd = match live {
            Some(sshd) => Some(sshd),
            None => self.boot_disk().await,
        };
        loop {
            match std::fs::read_to_string(&power).unwrap_or_default().trim() {
                "reboot" => return Exit::Reset,
                "poweroff" => return Exit::PoweredOff,
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Boots the live image as the agent's boot services serve it, and reports its host key. None: the agent sends the machine to its disk.
    async fn boot_live(&self) -> Option<Child> {
        let http = reqwest::Client::builder()
            .local_address(network::NODE.parse::<IpAddr>().unwrap())
            .timeout(Duration::from_secs(10))
            .no_proxy()
            .build()
            .unwrap();
        let base = format!("http://{}:8090/boot/v1", network::AGENT);
        let get = async |path: &str| {
            let answer = http.get(format!("{base}/{path}")).send().await.ok()?;
            answer.bytes().await.ok()
        };
        let script = get(&format!("ipxe?mac={NIC}&platform=pcbios")).await?;
        let script = String::from_utf8_lossy(&script).into_owned();
        let nonce = script
            .split("muster.nonce=")
            .nth(1)?
            .split(' ')
            .next()?
            .to_owned();
        for line in script.lines().filter(|line| line.contains("/blob/sha256/")) {
            let blob = line.split("/boot/v1/").nth(1)?.split(' ').next()?;
            get(blob).await?;
        }
        let archive = get("site.cpio").await?;
        let root = self.live_root(&archive);
        let trust: SiteTrust =
            serde_json::from_slice(&std::fs::read(root.join("etc/muster/site.json")).unwrap())
                .unwrap();
        std::fs::write(
            root.join("etc/ssh/muster_user_ca.pub"),
            trust.user_ca + "\n",
        )
        .unwrap();
        std::fs::write(
            root.join("etc/ssh/muster_principals"),
            format!("muster-live:{nonce}\n"),
        )
        .unwrap();
        let host_key = make_key(&root.join("etc/ssh/ssh_host_ed25519_key")).await;
        let sshd = self.start_sshd(&root).await;
        let report = LiveReport {
            protocol: muster_core::wire::PROTOCOL,
            nonce,
            mac: NIC,
            host_key,
        };
        let reported = http
            .post(format!("{base}/report"))
            .json(&report)
            .send()
            .await
            .ok()?;
        assert!(reported.status().is_success(), "{reported:?}");
        Some(sshd)
    }

    /// Makes the live image anew: each boot begins without the files of the last boot.
    fn live_root(&self, archive: &[u8]) -> PathBuf {
        let root = self.path("live");
        std::fs::remove_dir_all(&root).ok();
        for folder in [
            "etc/muster",
            "etc/ssh",
            "run/muster",
            "usr/local/sbin",
            "root",
        ] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        // The archive has one file, a JSON document.
        let begins = archive.iter().position(|byte| *byte == b'{').unwrap();
        let ends = archive.iter().rposition(|byte| *byte == b'}').unwrap();
        std::fs::write(root.join("etc/muster/site.json"), &archive[begins..=ends]).unwrap();
        std::fs::copy(&self.live_node, root.join("usr/local/sbin/muster-node")).unwrap();
        for hardware in ["sys", "dev"] {
            symlink(self.path("hardware").join(hardware), root.join(hardware)).unwrap();
        }
        root
    }

    /// Boots the installed system, where the disk has a boot sector.
    async fn boot_disk(&self) -> Option<Child> {
        let disk = std::fs::read(self.path("hardware/dev/vda")).unwrap();
        let root = self.path("disk");
        if disk[510..512] != [0x55, 0xaa] || !root.exists() {
            return None;
        }
        Some(self.start_sshd(&root).await)
    }

    /// Starts sshd for a system, in namespaces of its own: its sessions and their jobs end with sshd.
    async fn start_sshd(&self, root: &Path) -> Child {
        let (machine, root) = (self.folder.path(), root.display());
        let proc = PathBuf::from(format!("{root}/proc"));
        std::fs::create_dir_all(proc.join("sys/kernel/random")).unwrap();
        std::fs::write(proc.join("meminfo"), "MemTotal:        2048000 kB\n").unwrap();
        std::fs::write(proc.join("cmdline"), "quiet\n").unwrap();
        std::fs::write(proc.join("sys/kernel/osrelease"), "6.1.0-1-amd64\n").unwrap();
        let boot_id = format!("{}\n", uuid::Uuid::new_v4());
        std::fs::write(proc.join("sys/kernel/random/boot_id"), boot_id).unwrap();
        // The agent's commands name absolute paths: the session puts the system's folder before each.
        let session = format!(
            "#!/bin/sh\nexport MACHINE='{}' MUSTER_ROOT='{root}' PATH='{}/tools'\n\
             asked=$(printf '%s' \"$SSH_ORIGINAL_COMMAND\" | sed \"s#/usr/local/sbin/#$MUSTER_ROOT&#g; s#/proc/sys/#$MUSTER_ROOT&#g; \
             s#/etc/muster#$MUSTER_ROOT&#g; s#/etc/ssh#$MUSTER_ROOT&#g; s#/root/.ssh#$MUSTER_ROOT&#g\")\nexec sh -c \"$asked\"\n",
            machine.display(),
            machine.display(),
        );
        put_program(&machine.join("session"), &session);
        let config = format!(
            "Port 22\nListenAddress {}\nHostKey {root}/etc/ssh/ssh_host_ed25519_key\nTrustedUserCAKeys {root}/etc/ssh/muster_user_ca.pub\n\
             AuthorizedPrincipalsFile {root}/etc/ssh/muster_principals\nAuthorizedKeysFile none\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nUsePAM no\nPidFile none\nStrictModes no\nPermitRootLogin prohibit-password\nForceCommand {}/session\n",
            network::NODE,
            machine.display(),
        );
        std::fs::write(machine.join("sshd_config"), config).unwrap();
        std::fs::create_dir_all("/run/sshd").unwrap();
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(machine.join("sshd.log"))
            .unwrap();
        let sshd = Command::new("setpriv")
            .args([
                "--pdeathsig=KILL",
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["/usr/sbin/sshd", "-D", "-e", "-f"])
            .arg(machine.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let address = SocketAddr::from((network::NODE.parse::<Ipv4Addr>().unwrap(), 22));
        while tokio::net::TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(LOOK).await;
        }
        sshd
    }
}

/// Makes an SSH host key; returns its public line without the comment.
async fn make_key(path: &Path) -> String {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(path)
        .status()
        .await
        .unwrap();
    assert!(status.success());
    let line = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    line.split_whitespace()
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
}

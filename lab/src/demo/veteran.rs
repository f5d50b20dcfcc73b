//! A machine built and in service before Muster. The machine has its own host name and host key,
//! and an admin with a login key. Its place in the cluster is unknown to Muster. The lab writes the
//! disk from outside, without a mount; the admin does the rest over SSH.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::DemoOptions;
use super::addresses::address;
use super::declare::bundle_files;
use crate::Rack;
use crate::machine::PowerState;
use crate::machine::oracle::Cause;
use crate::nfs::Nfs;
use crate::plan::GATEWAY;
use crate::slurm::{self, Slurm};

/// Offset in bytes of the root file system in the reference image. The tables (1 MiB), the BIOS
/// boot partition (1 MiB) and the ESP (64 MiB) come before.
const ROOT_AT: u64 = (1 + 1 + 64) << 20;
const BOOT_LIMIT: Duration = Duration::from_secs(8 * 60);
const COMMAND_LIMIT: Duration = Duration::from_secs(6 * 60);
/// Packages of the stack's bundle not needed by a Slurm node.
pub(super) const NOT_NEEDED: [&str; 4] = ["containerd", "runc", "chrony", "tzdata"];
/// The job script. Prints a number each second until the file `/run/enough` exists, then prints
/// `enough`. The limit of 900 s is longer than an adoption.
const COUNT: &str = "#!/bin/sh
i=0
until [ -e /run/enough ] || [ $i -ge 900 ]; do i=$((i + 1)); echo $i; sleep 1; done
[ -e /run/enough ] && echo enough
";
const JOIN: &str = include_str!("veteran.sh");
/// Kernel argument for GRUB, effective from the next boot. Six machines booting on two processors
/// stall for milliseconds, and the kernel then marks the TSC clock as unstable. With the chipset
/// clock instead, tools timed by the processor's counter produce no result.
const CLOCK: &str = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX tsc=nowatchdog\"\n";

/// The machine, with the keys of its admin and its host.
pub(super) struct Veteran<'rack> {
    rack: &'rack Rack,
    keys: PathBuf,
    pub(super) name: String,
    disk: String,
    pub(super) address: Ipv4Addr,
}

impl<'rack> Veteran<'rack> {
    /// Creates keys for the machine at the given index of the plan.
    pub(super) async fn new(
        options: &DemoOptions,
        rack: &'rack Rack,
        index: usize,
        name: &str,
        disk: &str,
    ) -> anyhow::Result<Self> {
        let keys = options.dir.join("veterans").join(name);
        std::fs::create_dir_all(&keys)?;
        for key in ["admin", "host"] {
            let path = keys.join(key);
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-C", key, "-f"])
                .arg(path);
            ensure!(
                made.status().await.context("start ssh-keygen")?.success(),
                "ssh-keygen made no {key} key"
            );
        }
        Ok(Self {
            rack,
            keys,
            name: name.to_owned(),
            disk: disk.to_owned(),
            address: address(index),
        })
    }

    /// Writes the disk of the machine and switches the machine on, in the state before Muster.
    pub(super) async fn build(&self, options: &DemoOptions) -> anyhow::Result<()> {
        let machine = &self.rack.slot(&self.name)?.machine;
        machine
            .image_disk(&self.disk, &options.artifacts.image())
            .await?;
        self.settle(&machine.disk_path(&self.disk)?).await?;
        Ok(machine.press_button(Cause::Button).await?)
    }

    /// Shuts the machine down by its own system. Afterwards the disk may be copied.
    pub(super) async fn rest(&self) -> anyhow::Result<()> {
        // Copies need their own machine ids.
        self.run(&["truncate", "-s", "0", "/etc/machine-id"])
            .await?;
        // The connection may break during the shutdown.
        let _told = self.run(&["systemctl", "--no-block", "poweroff"]).await;
        Ok(self
            .rack
            .slot(&self.name)?
            .machine
            .wait_for_power(PowerState::Off, COMMAND_LIMIT)
            .await?)
    }

    /// Switches the machine on again.
    pub(super) async fn start_again(&self) -> anyhow::Result<()> {
        Ok(self
            .rack
            .slot(&self.name)?
            .machine
            .press_button(Cause::Button)
            .await?)
    }

    /// Like [`Veteran::build`], but from a copied disk. The other machine must be off and already
    /// joined.
    pub(super) async fn copy_of(&self, other: &Self) -> anyhow::Result<()> {
        let machine = &self.rack.slot(&self.name)?.machine;
        let to = machine.disk_path(&self.disk)?;
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always")
            .arg(
                self.rack
                    .slot(&other.name)?
                    .machine
                    .disk_path(&other.disk)?,
            )
            .arg(&to);
        finished("cp", copy.kill_on_drop(true)).await?;
        self.settle(&to).await?;
        Ok(machine.press_button(Cause::Button).await?)
    }

    /// Writes name, address, host key and admin key into the file system of an unmounted disk, by
    /// debugfs.
    async fn settle(&self, disk: &Path) -> anyhow::Result<()> {
        let network = format!(
            "[Match]\nType=ether\n\n[Network]\nAddress={}/24\nGateway={GATEWAY}\n",
            self.address
        );
        let hosts = format!("127.0.0.1 localhost\n{} {}\n", self.address, self.name);
        let (name, known) = (
            format!("{}\n", self.name),
            format!("{} {}", self.address, self.read("host.pub")?),
        );
        let slurmd = format!(
            "SLURMD_OPTIONS=\"--conf-server {GATEWAY}:{} -N {}\"\n",
            slurm::PORT,
            self.name
        );
        for (file, text) in [
            ("hostname", &name),
            ("hosts", &hosts),
            ("network", &network),
            ("known_hosts", &known),
            ("slurmd", &slurmd),
            ("clock", &CLOCK.to_owned()),
        ] {
            std::fs::write(self.keys.join(file), text)?;
        }
        let mut script = String::from(
            "mkdir /root/.ssh\nset_inode_field /root/.ssh mode 040700\nmkdir /etc/default/grub.d\n",
        );
        for (file, path, mode) in [
            ("hostname", "/etc/hostname", "0100644"),
            ("hosts", "/etc/hosts", "0100644"),
            ("network", "/etc/systemd/network/50-site.network", "0100644"),
            ("slurmd", "/etc/default/slurmd", "0100644"),
            ("clock", "/etc/default/grub.d/10-emulated.cfg", "0100644"),
            ("host", "/etc/ssh/ssh_host_ed25519_key", "0100600"),
            ("host.pub", "/etc/ssh/ssh_host_ed25519_key.pub", "0100644"),
            ("admin.pub", "/root/.ssh/authorized_keys", "0100600"),
        ] {
            let from = self.keys.join(file);
            script += &format!(
                "rm {path}\nwrite {} {path}\nset_inode_field {path} mode {mode}\n",
                from.display()
            );
        }
        edit_root(disk, &script).await
    }

    /// Waits until the admin can log in.
    pub(super) async fn up(&self) -> anyhow::Result<()> {
        let asked = Instant::now();
        while let Err(error) = self.run(&["true"]).await {
            ensure!(
                asked.elapsed() < BOOT_LIMIT,
                "{} did not come up from its disk: {error}",
                self.name
            );
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        Ok(())
    }

    /// Waits for the admin's login, then joins the machine to the Slurm cluster.
    pub(super) async fn join(&self, options: &DemoOptions, slurm: &Slurm) -> anyhow::Result<()> {
        self.up().await?;
        let settings = self.keys.join("settings");
        std::fs::create_dir_all(&settings)?;
        for (name, blob) in bundle_files(&options.artifacts)? {
            if name.ends_with(".deb") && !NOT_NEEDED.iter().any(|other| name.starts_with(other)) {
                std::fs::copy(&blob, settings.join(&name))
                    .with_context(|| format!("copy {name}"))?;
            }
        }
        std::fs::copy(&slurm.munge_key, settings.join("munge.key"))?;
        let unit = "[Unit]\nConditionPathExists=\n\n[Service]\nRestart=always\nRestartSec=5\n";
        let shared = format!(
            "[Mount]\nWhat={}\nWhere=/shared\nType=nfs\nOptions=hard,_netdev\n\n[Install]\nWantedBy=remote-fs.target\n",
            Nfs::source()
        );
        for (file, text) in [
            ("slurmd.conf", unit),
            ("shared.mount", &shared),
            ("count", COUNT),
            ("join", JOIN),
        ] {
            std::fs::write(settings.join(file), text)?;
        }
        self.give(&settings, "/root/settings").await?;
        self.run(&["sh", "/root/settings/join"]).await?;
        // A marker file. An adoption that removes the file has changed more than announced.
        self.run(&["touch", "/root/kept"]).await.map(drop)
    }

    /// Copies a file, or a folder with its contents, to the machine.
    pub(super) async fn give(&self, from: &Path, to: &str) -> anyhow::Result<()> {
        let mut copy = self.ssh("scp");
        finished(
            "scp",
            copy.arg("-r")
                .arg(from)
                .arg(format!("root@{}:{to}", self.address)),
        )
        .await
        .map(drop)
    }

    /// Runs a command on the machine as its admin. Returns the standard output.
    pub(super) async fn run(&self, command: &[&str]) -> anyhow::Result<String> {
        let mut ssh = self.ssh("ssh");
        finished(
            &command.join(" "),
            ssh.arg(format!("root@{}", self.address)).args(command),
        )
        .await
    }

    /// Reads the kernel's random id of the current boot.
    pub(super) async fn boot_id(&self) -> anyhow::Result<String> {
        Ok(self
            .run(&["cat", "/proc/sys/kernel/random/boot_id"])
            .await?
            .trim()
            .to_owned())
    }

    /// Reads the fingerprint of the host key, on the machine itself.
    pub(super) async fn fingerprint(&self) -> anyhow::Result<String> {
        let said = self
            .run(&["ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub"])
            .await?;
        let word = said
            .split_whitespace()
            .find(|word| word.starts_with("SHA256:"));
        word.map(str::to_owned)
            .with_context(|| format!("no fingerprint in {said:?}"))
    }

    /// Reads the host keys of a system installed by Muster, from the rack's own network, for the
    /// admin's logins.
    pub(super) async fn learn_host_keys(&self) -> anyhow::Result<()> {
        let mut scan = self.rack.command("ssh-keyscan");
        scan.args(["-T", "30"])
            .arg(self.address.to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let keys = finished("ssh-keyscan", &mut scan).await?;
        ensure!(
            !keys.trim().is_empty(),
            "no SSH server answers at {}",
            self.address
        );
        std::fs::write(self.keys.join("known_hosts"), keys).context("write the host keys")
    }

    /// Returns the public key of the admin, for `authorized_keys`.
    pub(super) fn admin_public_key(&self) -> anyhow::Result<String> {
        self.read("admin.pub")
    }

    /// Returns the private key for the admin's login.
    pub(super) fn admin_key(&self) -> anyhow::Result<String> {
        self.read("admin")
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.keys.join(file))
            .with_context(|| format!("read the veteran's {file}"))
    }

    fn ssh(&self, program: &str) -> Command {
        let mut command = self.rack.command(program);
        command
            .arg("-F")
            .arg("/dev/null")
            .arg("-i")
            .arg(self.keys.join("admin"));
        command.arg("-o").arg(format!(
            "UserKnownHostsFile={}",
            self.keys.join("known_hosts").display()
        ));
        for option in [
            "StrictHostKeyChecking=yes",
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "ConnectTimeout=20",
        ] {
            command.arg("-o").arg(option);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// Changes the root file system on an unmounted disk with the reference image, by debugfs.
pub(super) async fn edit_root(disk: &Path, script: &str) -> anyhow::Result<()> {
    let mut debugfs = Command::new("/usr/sbin/debugfs");
    debugfs
        .args(["-w", "-f", "-"])
        .arg(format!("{}?offset={ROOT_AT}", disk.display()));
    debugfs
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut running = debugfs.spawn().context("start debugfs")?;
    running
        .stdin
        .take()
        .context("debugfs takes no input")?
        .write_all(script.as_bytes())
        .await?;
    let ended = tokio::time::timeout(COMMAND_LIMIT, running.wait_with_output())
        .await
        .context("debugfs hangs")??;
    let errors = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.success() && !errors.contains("Filesystem not open"),
        "debugfs: {errors}"
    );
    Ok(())
}

/// Runs a command to its end within [`COMMAND_LIMIT`]. Returns the standard output, or an error
/// with the standard error.
pub(super) async fn finished(what: &str, command: &mut Command) -> anyhow::Result<String> {
    let ran = tokio::time::timeout(COMMAND_LIMIT, command.output())
        .await
        .with_context(|| format!("{what} hangs"))??;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        false => bail!(
            "{what}: {}: {}",
            ran.status,
            String::from_utf8_lossy(&ran.stderr).trim()
        ),
    }
}

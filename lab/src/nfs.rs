//! A real NFS server in the rack's namespace: nfs-ganesha (Debian 12: 4.3), serving a directory of
//! this host in user space. NFS 4 over TCP only, so neither rpcbind nor a lock daemon is needed.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::error::{LabError, io};
use crate::plan::GATEWAY;
use crate::rack::{Enclosure, Netns, Rack};
use crate::supervisor::Supervised;

/// The TCP port of NFS 4 (RFC 7530, section 3.1).
const PORT: u16 = 2049;
/// Path of the directory in the server's name space.
const PSEUDO: &str = "/export";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running NFS server.
#[derive(Debug)]
pub struct Nfs {
    /// The exported directory, on this host's own disk.
    pub folder: PathBuf,
    server: Supervised,
}

impl Nfs {
    /// Starts a server; files and state of an earlier server in the rack's directory are kept.
    /// Returns once the server listens.
    pub async fn start(rack: &Rack) -> Result<Self, LabError> {
        let dir = rack.dir.join("nfs");
        let folder = dir.join("export");
        for folder in [&folder, &dir.join("state")] {
            fs::create_dir_all(folder).map_err(io(format!("make {}", folder.display())))?;
        }
        let conf = dir.join("ganesha.conf");
        fs::write(&conf, configuration(&dir)).map_err(io(format!("write {}", conf.display())))?;
        let server = Supervised::start("ganesha.nfsd", rack.closing(), start(&dir, &rack.netns))?;
        let nfs = Self { folder, server };
        match wait_until_up(&rack.netns).await {
            Ok(()) => Ok(nfs),
            Err(error) => {
                nfs.close().await;
                let log = dir.join("ganesha.log");
                Err(LabError::Command {
                    command: "ganesha.nfsd".to_owned(),
                    why: format!("{error}; see {}", log.display()),
                })
            }
        }
    }

    /// Returns the mount source for a node: `HOST:PATH`.
    pub fn source() -> String {
        format!("{GATEWAY}:{PSEUDO}")
    }

    /// Ends the server. Closing the rack also ends the server.
    pub async fn close(self) {
        self.server.close().await;
    }
}

/// Builds the configuration. Root on a node is root here, as on the private network of a cluster.
/// After a restart the server does not wait for earlier clients (`Graceless`).
fn configuration(dir: &Path) -> String {
    let (folder, state) = (dir.join("export"), dir.join("state"));
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {PORT}; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSV4 {{ Graceless = true; RecoveryRoot = \"{}\"; Only_Numeric_Owners = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = {PSEUDO}; Protocols = 4; Transports = TCP; Access_Type = RW; Squash = No_Root_Squash;\n\
         SecType = sys; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = EVENT; }}\n",
        state.display(),
        folder.display()
    )
}

fn start(dir: &Path, netns: &Netns) -> impl Fn() -> Result<Child, LabError> + Send + use<> {
    let (dir, netns) = (dir.to_owned(), netns.clone());
    move || {
        let path = dir.join("ganesha.out");
        let said = fs::File::create(&path).map_err(io(format!("make {}", path.display())))?;
        let also = said.try_clone().map_err(io("share a log"))?;
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(dir.join("ganesha.conf"));
        command
            .arg("-L")
            .arg(dir.join("ganesha.log"))
            .arg("-p")
            .arg(dir.join("ganesha.pid"));
        command
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(also)
            .kill_on_drop(true);
        // With a private `/run`, the server finds neither the bus nor the rpcbind of the host, and
        // registers with neither.
        netns.spawn_enclosed(&Enclosure::default(), command)
    }
}

async fn wait_until_up(netns: &Netns) -> Result<(), LabError> {
    let deadline = Instant::now() + START_TIMEOUT;
    while netns
        .within(|| TcpStream::connect((GATEWAY, PORT)))?
        .is_err()
    {
        if Instant::now() > deadline {
            return Err(LabError::Timeout {
                what: "ganesha.nfsd to listen".to_owned(),
                after: START_TIMEOUT,
            });
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

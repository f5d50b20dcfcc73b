//! A real OpenSSH sshd on loopback with its own user CA, for tests. Every command runs through a
//! forced script, so that a test command for a "node" never changes the test machine.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use muster_core::values::Secret;
use muster_core::wire::login::{Login, UserKey};
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::ssh_key::{Algorithm, HashAlg, LineEnding, PrivateKey};
use tempfile::TempDir;

/// sshd of the Debian package openssh-server. Without sshd a test fails with a message instead of
/// passing.
const SSHD: &str = "/usr/sbin/sshd";
/// The principal listed in the AuthorizedPrincipalsFile of the server.
pub(crate) const PRINCIPAL: &str = "muster:0197b0f2-9a3c-7000-8000-000000000000:1";
/// Attempts to find a free port. Another process can take the port between the check and the bind
/// of sshd.
const PORT_TRIES: usize = 5;

/// A running sshd. Dropping the value ends the listener. Connections end with their clients.
pub(crate) struct Sshd {
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    child: Child,
    host_key: PrivateKey,
    user_ca: PrivateKey,
}

impl Sshd {
    /// Starts a server running `script` for every session. The script is for `/bin/sh`;
    /// `$SSH_ORIGINAL_COMMAND` is the requested command and `$NODE` the directory of the node.
    pub(crate) fn start(script: &str) -> Self {
        assert!(
            Path::new(SSHD).exists(),
            "these tests need {SSHD} (Debian: openssh-server)"
        );
        // The privilege separation directory of sshd. Debian's unit creates the directory at boot.
        std::fs::create_dir_all("/run/sshd").unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Unprivileged sshd children read the forced command and the principals.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (host_key, user_ca) = (new_key(), new_key());
        host_key
            .write_openssh_file(dir.path().join("host_key"), LineEnding::LF)
            .unwrap();
        std::fs::write(
            dir.path().join("user_ca.pub"),
            user_ca.public_key().to_openssh().unwrap(),
        )
        .unwrap();
        std::fs::write(dir.path().join("principals"), format!("{PRINCIPAL}\n")).unwrap();
        let forced = dir.path().join("forced");
        std::fs::write(
            &forced,
            format!("#!/bin/sh\nNODE={}\n{script}", dir.path().display()),
        )
        .unwrap();
        std::fs::set_permissions(&forced, PermissionsExt::from_mode(0o755)).unwrap();
        let (child, port) = (0..PORT_TRIES)
            .find_map(|_| listen(dir.path()))
            .expect("sshd finds a free port");
        Self {
            dir,
            port,
            child,
            host_key,
            user_ca,
        }
    }

    /// Returns a login with a certificate for a principal.
    pub(crate) fn login(&self, principal: &str) -> Login {
        Login {
            address: Ipv4Addr::LOCALHOST,
            port: self.port,
            host_key: self.host_key.public_key().to_openssh().unwrap(),
            user_key: certified(&self.user_ca, principal),
        }
    }

    /// Returns a login with a certificate of a serial.
    pub(crate) fn login_as(&self, serial: u64) -> Login {
        Login {
            user_key: certified_as(&self.user_ca, PRINCIPAL, serial),
            ..self.login(PRINCIPAL)
        }
    }

    /// Returns the process id of the listener.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the fingerprint of the host key in the format of `ssh-keygen -l`.
    pub(crate) fn fingerprint(&self) -> String {
        self.host_key
            .public_key()
            .fingerprint(HashAlg::Sha256)
            .to_string()
    }

    /// Writes a file of the node.
    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    /// Returns the content of a file of the node, or an empty string for a missing file.
    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

/// Creates a key and a certificate for a principal, signed by the CA.
pub(crate) fn certified(ca: &PrivateKey, principal: &str) -> UserKey {
    certified_as(ca, principal, 0)
}

/// Creates a key and a certificate with a serial.
pub(crate) fn certified_as(ca: &PrivateKey, principal: &str, serial: u64) -> UserKey {
    let key = new_key();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let public = key.public_key().key_data().clone();
    let mut builder =
        Builder::new_with_random_nonce(&mut rand::rng(), public, now - 60, now + 3600).unwrap();
    builder.serial(serial).unwrap();
    builder.cert_type(CertType::User).unwrap();
    builder.key_id("test").unwrap();
    builder.valid_principal(principal).unwrap();
    let certificate = builder.sign(ca).unwrap().to_openssh().unwrap();
    UserKey {
        private_key: Secret::new(key.to_openssh(LineEnding::LF).unwrap().as_str()),
        certificate,
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

pub(crate) fn new_key() -> PrivateKey {
    PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).unwrap()
}

fn listen(dir: &Path) -> Option<(Child, u16)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let here = dir.display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host_key\nTrustedUserCAKeys {here}/user_ca.pub\n\
         AuthorizedPrincipalsFile {here}/principals\nAuthorizedKeysFile {here}/ssh/authorized_keys\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM no\nPidFile none\nStrictModes no\nPermitRootLogin prohibit-password\n\
         ForceCommand {here}/forced\n"
    );
    std::fs::write(dir.join("sshd_config"), config).unwrap();
    let mut command = Command::new(SSHD);
    command
        .args(["-D", "-e", "-f"])
        .arg(dir.join("sshd_config"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line.contains("Server listening") {
            // Later messages are read and dropped, so that sshd never blocks on a full pipe.
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
            return Some((child, port));
        }
        line.clear();
    }
    let _status = child.wait();
    None
}

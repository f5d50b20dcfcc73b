//! Tests against a real sshd.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use muster_core::ids::JobId;
use muster_core::values::Digest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::command::Command;
use super::sshd::{PRINCIPAL, Sshd, new_key};
use super::{Session, SshError, is_live, krl};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_certificate_with_the_principal_runs_commands() {
    let sshd = Sshd::start(
        "cat; echo \"$SSH_ORIGINAL_COMMAND\"; echo why >&2; case \"$SSH_ORIGINAL_COMMAND\" in *version) exit 3;; esac",
    );
    let session = Session::connect(&sshd.login(PRINCIPAL), SOON)
        .await
        .unwrap();
    let input = Bytes::from("x".repeat(3 << 10) + "\n");
    let output = session
        .exec(Command::Inventory, input.clone())
        .await
        .unwrap();
    assert_eq!(
        output,
        [&input[..], b"/usr/local/sbin/muster-node inventory\n"].concat()
    );
    let failed = session
        .exec(Command::Version, Bytes::new())
        .await
        .unwrap_err();
    let command = Command::Version.to_string();
    assert_eq!(
        failed,
        SshError::Exit {
            command,
            status: 3,
            stderr: "why".into()
        }
    );
}

#[tokio::test]
async fn another_principal_is_refused() {
    let sshd = Sshd::start("exit 0");
    let login = sshd.login("muster:0197b0f2-9a3c-7000-8000-000000000000:2");
    let refused = Session::connect(&login, SOON).await.unwrap_err();
    assert!(matches!(refused, SshError::AuthRefused(_)), "{refused}");
    assert!(!is_live(&login).unwrap());
    assert!(is_live(&sshd.login("muster-live:00ff")).unwrap());
}

#[tokio::test]
async fn another_host_key_is_refused_before_anything_of_ours_is_sent() {
    let sshd = Sshd::start("exit 0");
    let mut login = sshd.login(PRINCIPAL);
    login.host_key = new_key().public_key().to_openssh().unwrap();
    let refused = Session::connect(&login, SOON).await.unwrap_err();
    assert!(
        matches!(refused, SshError::HostKeyMismatch { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn nobody_there_is_unreachable_and_a_mute_one_times_out() {
    let sshd = Sshd::start("exit 0");
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut login = sshd.login(PRINCIPAL);
    login.port = mute.local_addr().unwrap().port();
    let error = Session::connect(&login, Duration::from_millis(200))
        .await
        .unwrap_err();
    assert!(matches!(error, SshError::Timeout { .. }), "{error}");
    drop(mute);
    let error = Session::connect(&login, SOON).await.unwrap_err();
    assert!(
        matches!(error, SshError::Unreachable { .. }) && error.connection(),
        "{error}"
    );
}

#[tokio::test]
async fn output_beyond_the_bound_is_refused() {
    let sshd = Sshd::start("head -c 1000000 /dev/zero");
    let session = Session::connect(&sshd.login(PRINCIPAL), SOON)
        .await
        .unwrap();
    let error = session
        .exec(Command::Version, Bytes::new())
        .await
        .unwrap_err();
    assert!(matches!(error, SshError::TooMuch { .. }), "{error}");
}

#[tokio::test]
async fn muster_node_is_put_in_place_whole_or_not_at_all() {
    let sshd = Sshd::start(
        "eval \"$(echo \"$SSH_ORIGINAL_COMMAND\" | sed \"s#/usr/local/sbin#$NODE#g\")\"",
    );
    let session = Session::connect(&sshd.login(PRINCIPAL), SOON)
        .await
        .unwrap();
    let binary = Bytes::from(b"\x7fELF and so on ".repeat(200_000));
    session
        .exec(
            Command::InstallNode {
                digest: Digest::of(&binary),
            },
            binary.clone(),
        )
        .await
        .unwrap();
    let installed = sshd.dir.path().join("muster-node");
    assert_eq!(std::fs::read(&installed).unwrap(), binary);
    let cut = session
        .exec(
            Command::InstallNode {
                digest: Digest::of(b"more"),
            },
            Bytes::from("mor"),
        )
        .await
        .unwrap_err();
    assert!(matches!(cut, SshError::Exit { .. }), "{cut}");
    assert_eq!(std::fs::read(&installed).unwrap(), binary);
}

#[tokio::test]
async fn lines_come_whole_and_an_unfinished_one_is_none() {
    let sshd = Sshd::start(
        "printf 'one\\ntwo\\n'; head -c 100000 /dev/zero | tr '\\0' x; printf '\\nhalf'",
    );
    let session = Session::connect(&sshd.login(PRINCIPAL), SOON)
        .await
        .unwrap();
    let mut lines = session
        .lines(Command::Attach {
            job: JobId::new(),
            offset: 0,
        })
        .await
        .unwrap();
    let mut seen = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        seen.push(line.len());
    }
    assert_eq!(seen, [4, 4, 100_001]);
}

/// Five nodes send lines above the length of a long line, and every command goes on. The first four
/// lines end, so the fifth is read too.
#[tokio::test]
async fn long_lines_of_many_nodes_are_read_one_after_the_other() {
    let sshd = Sshd::start("head -c 2000000 /dev/zero | tr '\\0' x; echo; cat >/dev/null");
    let read = async || {
        let session = Session::connect(&sshd.login(PRINCIPAL), SOON)
            .await
            .unwrap();
        let (job, offset) = (JobId::new(), 0);
        let command = Command::Attach { job, offset };
        let mut lines = session.lines(command).await.unwrap();
        let length = lines.next().await.unwrap().unwrap().len();
        (length, lines)
    };
    let read = tokio::time::timeout(
        SOON,
        futures::future::join_all([read(), read(), read(), read(), read()]),
    )
    .await
    .expect("a long line gives its place back");
    for (length, _lines) in read {
        assert_eq!(length, 2_000_001);
    }
}

#[tokio::test]
async fn a_line_beyond_every_result_is_refused() {
    let sshd = Sshd::start("head -c 17000000 /dev/zero | tr '\\0' x; echo");
    let session = Session::connect(&sshd.login(PRINCIPAL), SOON)
        .await
        .unwrap();
    let (job, offset) = (JobId::new(), 0);
    let mut lines = session
        .lines(Command::Attach { job, offset })
        .await
        .unwrap();
    let error = lines.next().await.unwrap_err();
    assert!(matches!(error, SshError::TooMuch { .. }), "{error}");
}

/// The cable of the node is pulled: no close arrives, and no data either.
#[tokio::test]
async fn a_silent_connection_is_noticed() {
    let sshd = Sshd::start("echo one; cat >/dev/null");
    let mut login = sshd.login(PRINCIPAL);
    let wire = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    login.port = wire.local_addr().unwrap().port();
    let (cut, cut_here) = oneshot::channel::<()>();
    let port = sshd.port;
    let proxy = tokio::spawn(async move {
        let (mut near, _) = wire.accept().await.unwrap();
        let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = cut_here => {}
        }
        // Both ends stay open and silent.
        std::future::pending::<()>().await;
    });
    // Before the cut, sshd on a slow machine is silent for less than four such periods.
    let session = Session::connect_watched(&login, SOON, Duration::from_millis(250))
        .await
        .unwrap();
    let mut lines = session
        .lines(Command::Attach {
            job: JobId::new(),
            offset: 0,
        })
        .await
        .unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap(), "one\n");
    cut.send(()).unwrap();
    let error = tokio::time::timeout(SOON, lines.next())
        .await
        .expect("noticed")
        .unwrap_err();
    assert!(matches!(error, SshError::Lost(_)), "{error}");
    proxy.abort();
}

/// A node that runs the commands of the agent below its own folder, with a real sshd.
fn whole_node() -> Sshd {
    let sshd = Sshd::start(
        "eval \"$(echo \"$SSH_ORIGINAL_COMMAND\" | sed \"s#/etc/ssh#$NODE/etc#g; s#/run/#$NODE/run/#g; \
         s#/usr/sbin/sshd#/usr/sbin/sshd -f $NODE/sshd_config#g; s#timeout 10 systemctl reload sshd#false#; s#timeout 10 systemctl reload ssh #kill -HUP \\$(cat $NODE/pid) #\")\"",
    );
    std::fs::create_dir(sshd.dir.path().join("etc")).unwrap();
    std::fs::create_dir(sshd.dir.path().join("run")).unwrap();
    sshd.write("pid", &sshd.pid().to_string());
    sshd
}

/// Adds a line to the configuration of sshd, which the next start reads.
fn configure(sshd: &Sshd, line: &str) {
    let before = sshd.file("sshd_config");
    let line = line.replace("NODE", &sshd.dir.path().display().to_string());
    sshd.write("sshd_config", &format!("{line}\n{before}"));
}

/// Logs in with a certificate of a serial. A listener that starts again refuses connections.
async fn log_in(sshd: &Sshd, serial: u64) -> Result<Session, SshError> {
    let login = sshd.login_as(serial);
    let again = async {
        loop {
            match Session::connect(&login, SOON).await {
                Err(error) if error.connection() => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                ended => return ended,
            }
        }
    };
    tokio::time::timeout(SOON, again).await.expect("sshd is up")
}

async fn revoke(session: &Session, list: Vec<u8>) -> Result<(), SshError> {
    let digest = Digest::of(&list);
    let command = Command::RevokeKeys { digest };
    session.exec(command, list.into()).await.map(drop)
}

/// Size of the start of a list. The start alone is a list without keys.
const HEADER_BYTES: usize = 50;

fn stderr_of(ended: Result<(), SshError>) -> String {
    match ended {
        Err(SshError::Exit { stderr, .. }) => stderr,
        other => panic!("{other:?}"),
    }
}

fn list_of(serials: &[u64]) -> Vec<u8> {
    krl::encode(serials, Timestamp::UNIX_EPOCH)
}

#[tokio::test]
async fn a_real_sshd_refuses_revoked_certificates_and_no_other() {
    let sshd = whole_node();
    configure(&sshd, "Include NODE/etc/sshd_config.d/*.conf");
    let session = log_in(&sshd, 1).await.unwrap();
    drop(log_in(&sshd, 7).await.unwrap());
    revoke(&session, list_of(&[7])).await.unwrap();
    let refused = log_in(&sshd, 7).await.unwrap_err();
    assert!(matches!(refused, SshError::AuthRefused(_)), "{refused}");
    let session = log_in(&sshd, 1).await.unwrap();
    // A later list takes the place of the first.
    revoke(&session, list_of(&[8, 9])).await.unwrap();
    let refused = log_in(&sshd, 9).await.unwrap_err();
    assert!(matches!(refused, SshError::AuthRefused(_)), "{refused}");
    for serial in [1, 7] {
        drop(log_in(&sshd, serial).await.unwrap());
    }
}

#[tokio::test]
async fn a_broken_list_changes_nothing() {
    let sshd = whole_node();
    configure(&sshd, "Include NODE/etc/sshd_config.d/*.conf");
    let session = log_in(&sshd, 1).await.unwrap();
    let whole = list_of(&[7]);
    // Cut on the way where the rest is an empty list, and wrong from the start.
    let command = Command::RevokeKeys {
        digest: Digest::of(&whole),
    };
    let cut = Bytes::copy_from_slice(&whole[..HEADER_BYTES]);
    session.exec(command, cut).await.unwrap_err();
    revoke(&session, whole[..20].to_vec()).await.unwrap_err();
    for path in ["muster_revoked_keys", "sshd_config.d"] {
        assert!(!sshd.dir.path().join("etc").join(path).exists(), "{path}");
    }
    for serial in [1, 7] {
        drop(log_in(&sshd, serial).await.unwrap());
    }
    // A broken list does not replace a whole one.
    revoke(&session, whole.clone()).await.unwrap();
    revoke(&session, b"SSHKRL".to_vec()).await.unwrap_err();
    let kept = std::fs::read(sshd.dir.path().join("etc/muster_revoked_keys")).unwrap();
    assert_eq!(kept, whole);
    assert!(log_in(&sshd, 7).await.is_err());
    drop(log_in(&sshd, 1).await.unwrap());
}

#[tokio::test]
async fn an_sshd_that_would_not_read_the_option_keeps_its_configuration() {
    let has_option = |sshd: &Sshd| {
        let conf = "etc/sshd_config.d/00-muster-revoked.conf";
        sshd.dir.path().join(conf).exists()
    };
    let plain = whole_node();
    let session = log_in(&plain, 7).await.unwrap();
    let unread = stderr_of(revoke(&session, list_of(&[7])).await);
    assert!(unread.contains("does not read"), "{unread}");
    assert!(!has_option(&plain));
    drop(log_in(&plain, 7).await.unwrap());
    // The owner of the machine has a list.
    let owned = whole_node();
    configure(&owned, "RevokedKeys NODE/theirs");
    configure(&owned, "Include NODE/etc/sshd_config.d/*.conf");
    owned.write("theirs", "");
    let session = log_in(&owned, 7).await.unwrap();
    let theirs = stderr_of(revoke(&session, list_of(&[7])).await);
    assert!(theirs.contains("another owner"), "{theirs}");
    assert!(!has_option(&owned));
}

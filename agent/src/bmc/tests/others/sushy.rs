//! sushy-tools 2.2 with its fake driver: 200 systems behind a single BMC, over TLS with Basic
//! authentication. A reset is answered at once and becomes visible one to eleven seconds later. An
//! override always reads `Continuous` and is never disabled. Event log and ETags are missing, and
//! some listed actions do not exist.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::bmc::{Bmc, BmcError, Bmcs, BootOnce, OverrideEnabled, PowerState, Reset};
use muster_core::firmware::BiosValue;
use muster_core::values::{Digest, Secret};
use muster_core::wire::bmc::BmcTarget;
use tokio::time::Instant;
use uuid::Uuid;

use super::{START, Simulator, bmcs, free_tcp_port, have, installed, job, patience};

const SYSTEMS: u128 = 200;
/// `admin` and `secret`, hashed with bcrypt by htpasswd.
const HTPASSWD: &str = "admin:$2y$04$Qwt5D7ZX/R2MtzNTinewnuddBt7C75IwjnLg8bMxDxC7BYwGyoBf2\n";

struct Sushy {
    folder: tempfile::TempDir,
    target: BmcTarget,
    certificate: Digest,
    bmcs: Bmcs,
    _simulator: Simulator,
}

fn system(number: u128) -> String {
    Uuid::from_u128(number).to_string()
}

impl Sushy {
    async fn start() -> Option<Self> {
        Self::start_over("SUSHY_EMULATOR_SSL_CERT = 'cert'\nSUSHY_EMULATOR_SSL_KEY = 'key'\n").await
    }

    /// Starts the emulator with these transport lines in its configuration.
    async fn start_over(transport: &str) -> Option<Self> {
        let program: PathBuf = installed("sushy-emulator");
        if !have(&[&program]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (here, port) = (folder.path().display(), free_tcp_port());
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["bmc".to_owned()]).unwrap();
        let systems: Vec<String> = (0..SYSTEMS)
            .map(|n| {
                format!(
                    "{{'uuid': '{}', 'name': 'n{n}', 'power_state': 'Off', 'nics': []}}",
                    system(n)
                )
            })
            .collect();
        let config = format!(
            "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\nSUSHY_EMULATOR_FAKE_DRIVER = True\n\
             {transport}SUSHY_EMULATOR_AUTH_FILE = '{here}/htpasswd'\n\
             SUSHY_EMULATOR_STATE_DIR = '{here}'\nSUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\n",
            systems.join(",\n")
        );
        for (file, text) in [
            ("cert", cert.pem()),
            ("key", signing_key.serialize_pem()),
            ("htpasswd", HTPASSWD.into()),
            ("conf", config),
        ] {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(program);
        command
            .arg("--config")
            .arg(folder.path().join("conf"))
            .current_dir(folder.path())
            .stderr(log);
        let mut simulator = Simulator::start(&mut command);
        wait_for_tcp(&mut simulator, port).await;
        let (user, password) = ("admin".to_owned(), Secret::new("secret"));
        let address = "127.0.0.1".parse().unwrap();
        let target = BmcTarget {
            address,
            port,
            user,
            password,
            certificate: None,
            system: None,
            also: None,
            machine: None,
            bmc_networks: vec!["127.0.0.0/8".parse().unwrap()],
        };
        Some(Self {
            folder,
            target,
            certificate: Digest::of(cert.der()),
            bmcs: bmcs(),
            _simulator: simulator,
        })
    }

    fn system(&self, number: u128) -> Bmc {
        let target = BmcTarget {
            system: Some(system(number)),
            ..self.target.clone()
        };
        self.bmcs.open(&target, job()).unwrap()
    }

    /// Returns the number of matching calls in the log of the emulator.
    fn calls(&self, sign: &str) -> usize {
        std::fs::read_to_string(self.folder.path().join("log"))
            .unwrap()
            .lines()
            .filter(|line| line.contains(sign))
            .count()
    }
}

async fn wait_for_tcp(simulator: &mut Simulator, port: u16) {
    let until = Instant::now() + START;
    while tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .is_err()
    {
        assert_eq!(simulator.0.try_wait().unwrap(), None, "it ended");
        assert!(Instant::now() < until, "it does not listen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn one_of_two_hundred_systems_is_powered_and_no_other() {
    let Some(sushy) = Sushy::start().await else {
        return;
    };
    let any = sushy
        .bmcs
        .open(&sushy.target, job())
        .unwrap()
        .observe()
        .await
        .unwrap_err();
    assert!(
        matches!(&any, BmcError::Unsupported { what } if what.contains("200 systems")),
        "{any}"
    );
    let unknown = sushy.system(SYSTEMS).observe().await.unwrap_err();
    assert!(
        matches!(&unknown, BmcError::Unsupported { what } if what.contains(&system(SYSTEMS))),
        "{unknown}"
    );

    let one = sushy.system(117);
    assert_eq!(one.certificate(), None);
    let view = one.observe().await.unwrap();
    assert_eq!(
        (one.certificate(), view.uuid),
        (Some(sushy.certificate), Some(system(117)))
    );
    let set = one.set_boot_once(BootOnce::Pxe).await.unwrap();
    assert!(
        set.network() && set.enabled == OverrideEnabled::Continuous,
        "it says so whatever was asked: {set}"
    );
    one.reset(Reset::On).await.unwrap();
    one.wait_power(PowerState::On, &patience()).await.unwrap();

    for other in [0, 116, 118, SYSTEMS - 1] {
        assert_eq!(
            sushy.system(other).observe().await.unwrap().power,
            PowerState::Off
        );
    }
}

#[tokio::test]
async fn late_power_a_restart_and_an_override_that_cannot_be_disabled() {
    let Some(sushy) = Sushy::start().await else {
        return;
    };
    let bmc = sushy.system(0);
    bmc.reset(Reset::On).await.unwrap();
    bmc.wait_power(PowerState::On, &patience()).await.unwrap();
    let cleared = bmc.set_boot_once(BootOnce::None).await.unwrap();
    assert!(
        cleared.local() && cleared.enabled == OverrideEnabled::Continuous,
        "never disabled, but it goes nowhere: {cleared}"
    );
    bmc.reset(Reset::ForceRestart).await.unwrap();
    // The emulator reports power off for a random time between zero and eleven seconds.
    bmc.wait_restart(Duration::from_secs(15), &patience())
        .await
        .unwrap();
    assert_eq!(bmc.observe().await.unwrap().power, PowerState::On);
    bmc.reset(Reset::GracefulShutdown).await.unwrap();
    bmc.wait_power(PowerState::Off, &patience()).await.unwrap();
    let sensors = bmc.sensors().await.unwrap();
    assert!(
        sensors
            .iter()
            .any(|sensor| sensor.name == "CPU Temp" && sensor.unit == "Cel"),
        "{sensors:?}"
    );
    for error in [
        bmc.event_log(10).await.unwrap_err(),
        bmc.power_watts().await.unwrap_err(),
    ] {
        assert!(matches!(error, BmcError::Unsupported { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_and_another_certificate_not_at_all() {
    let Some(sushy) = Sushy::start().await else {
        return;
    };
    let pinned = Digest::of(b"another");
    let other = BmcTarget {
        certificate: Some(pinned),
        ..sushy.target.clone()
    };
    let error = sushy
        .bmcs
        .open(&other, job())
        .unwrap()
        .observe()
        .await
        .unwrap_err();
    assert_eq!(
        error,
        BmcError::CertificateChanged {
            pinned,
            seen: sushy.certificate
        }
    );
    assert_eq!(sushy.calls("GET /redfish"), 0, "nothing was sent");

    let wrong = BmcTarget {
        password: Secret::new("wrong"),
        ..sushy.target.clone()
    };
    let bmc = sushy.bmcs.open(&wrong, job()).unwrap();
    for _ in 0..3 {
        let error = bmc.observe().await.unwrap_err();
        assert!(matches!(error, BmcError::BadCredentials { .. }), "{error}");
    }
    assert_eq!(
        (sushy.calls("GET /redfish"), sushy.calls("\" 401 -")),
        (1, 1),
        "one knock"
    );
    sushy.system(0).observe().await.unwrap();
}

#[tokio::test]
async fn it_has_no_accounts_whose_password_could_be_changed() {
    let Some(sushy) = Sushy::start().await else {
        return;
    };
    let error = sushy
        .system(0)
        .set_password(&Secret::new("another"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, BmcError::Unsupported { what } if what.contains("no account service")),
        "{error}"
    );
}

/// The fake driver has no BIOS and lists no firmware. The other parts of the inventory must still
/// be read.
#[tokio::test]
async fn what_it_does_not_tell_is_said_piece_by_piece() {
    let Some(sushy) = Sushy::start().await else {
        return;
    };
    let seen = sushy.system(0).inventory().await.unwrap();
    let told: Vec<(&str, &str)> = seen
        .firmware
        .iter()
        .map(|one| (one.id.as_str(), one.version.as_str()))
        .collect();
    assert_eq!((told, seen.bios.len()), (vec![("bmc", "1.00")], 0));
    let [bios, firmware] = &seen.unread[..] else {
        panic!("{:?}", seen.unread)
    };
    assert_eq!(
        bios,
        "BIOS attributes: the BMC cannot do this: its system names no BIOS"
    );
    let missing = "the firmware inventory: the BMC cannot do this: GET /redfish/v1/UpdateService/FirmwareInventory: HTTP 404";
    assert!(firmware.starts_with(missing), "{firmware}");
    let wanted = [(
        "SriovGlobalEnable".to_owned(),
        BiosValue::Text("Enabled".into()),
    )]
    .into();
    let error = sushy.system(0).set_bios(&wanted).await.unwrap_err();
    assert!(matches!(error, BmcError::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn one_that_speaks_no_tls_is_sent_nothing_and_told() {
    let Some(sushy) = Sushy::start_over("").await else {
        return;
    };
    let error = sushy.system(0).observe().await.unwrap_err();
    assert!(
        matches!(&error, BmcError::Unreachable { why } if why.contains("speaks no TLS")),
        "{error}"
    );
    assert_eq!(sushy.calls("GET /redfish"), 0);
}

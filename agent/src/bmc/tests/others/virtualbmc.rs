//! virtualbmc 3.3: IPMI by pyghmi for a libvirt machine. Supports only cipher suite 3, and has
//! neither `power cycle` nor an event log. An unknown user receives no answer. A boot device set on
//! a running machine is visible only after power-off. `bootdev none` is accepted and ignored.

use std::path::Path;
use std::process::Command;

use crate::bmc::{BmcError, BootOnce, PowerState, Reset};
use muster_core::values::Secret;

use super::{Simulator, beside, bmcs, free_udp_port, have, installed, ipmi_target, job, patience};

fn start() -> Option<(Simulator, u16)> {
    let python = installed("python");
    if !have(&[&python, Path::new("/usr/bin/ipmitool")]) {
        return None;
    }
    let port = free_udp_port();
    let mut simulator = Simulator::start(
        Command::new(python)
            .arg(beside("bmc-over-libvirt.py"))
            .arg(port.to_string()),
    );
    simulator.wait_for_line("ready");
    Some((simulator, port))
}

#[tokio::test]
async fn powers_a_machine_and_sets_its_boot_while_it_is_off() {
    let Some((_simulator, port)) = start() else {
        return;
    };
    let bmc = bmcs().open(&ipmi_target(port), job()).unwrap();
    let view = bmc.observe().await.unwrap();
    assert_eq!(
        (view.power, view.uuid),
        (PowerState::Off, None),
        "it tells no GUID"
    );
    let set = bmc.set_boot_once(BootOnce::Pxe).await.unwrap();
    assert_eq!(
        set.to_string(),
        "boot override Once to \"Pxe\" (Bios)",
        "the EFI flag is dropped, and that shows"
    );
    bmc.reset(Reset::On).await.unwrap();
    bmc.wait_power(PowerState::On, &patience()).await.unwrap();

    let cleared = bmc.set_boot_once(BootOnce::None).await.unwrap_err();
    assert!(
        matches!(&cleared, BmcError::NothingHappened { seen, .. } if seen.contains("Pxe")),
        "{cleared}"
    );
    let cycle = bmc.reset(Reset::ForceRestart).await.unwrap_err();
    assert!(matches!(cycle, BmcError::Unsupported { .. }), "{cycle}");

    bmc.reset(Reset::ForceOff).await.unwrap();
    bmc.wait_power(PowerState::Off, &patience()).await.unwrap();
    let cleared = bmc.set_boot_once(BootOnce::None).await.unwrap();
    assert_eq!(
        (cleared.local(), cleared.target.as_str()),
        (true, "Hdd"),
        "none is ignored, the disk is not"
    );

    let log = bmc.event_log(10).await.unwrap_err();
    assert!(
        matches!(&log, BmcError::Unsupported { what } if what.contains("Invalid command")),
        "{log}"
    );
    assert!(matches!(
        bmc.power_watts().await,
        Err(BmcError::Unsupported { .. })
    ));
    assert!(matches!(
        bmc.sensors().await,
        Err(BmcError::Unsupported { .. })
    ));
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_the_credential() {
    let Some((_simulator, port)) = start() else {
        return;
    };
    let right = ipmi_target(port);
    let mut password = right.clone();
    password.password = Secret::new("wrong");
    let mut user = right.clone();
    user.user = "nobody".into();
    for wrong in [password, user] {
        let error = bmcs()
            .open(&wrong, job())
            .unwrap()
            .observe()
            .await
            .unwrap_err();
        assert!(matches!(error, BmcError::BadCredentials { .. }), "{error}");
    }
    bmcs().open(&right, job()).unwrap().observe().await.unwrap();
}

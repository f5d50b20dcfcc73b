//! Tests of the client against a stateful BMC with faults on demand.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_core::ids::JobId;
use muster_core::values::{Digest, Secret};
use muster_core::wire::node::FailureCode;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::fake::{FakeBmc, Fault};
use self::hardware::Hardware;
use super::*;
use crate::watch::Watch;

pub(crate) mod fake; // The fake BMC
pub(crate) mod hardware; // Firmware and BIOS of the fake
mod others; // BMCs of other projects
mod ways; // Ways of real BMCs

fn quick() -> Bmcs {
    Bmcs::new(Limits {
        spacing: Duration::from_millis(1),
        poll: Duration::from_millis(10),
        settle: Duration::from_millis(60),
        ask_again: Duration::from_millis(10),
        ..Limits::default()
    })
}

fn within(time: Duration) -> (Watch, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&said);
    let tell = move |sentence| tell.lock().unwrap().push(sentence);
    (
        Watch::new(Instant::now() + time, CancellationToken::new(), tell),
        said,
    )
}

const LONG: Duration = Duration::from_secs(5);
const JOB: JobId = JobId(uuid::Uuid::from_u128(1));
const NEXT_JOB: JobId = JobId(uuid::Uuid::from_u128(2));
const LAST_JOB: JobId = JobId(uuid::Uuid::from_u128(3));

#[tokio::test]
async fn observes_sets_and_resets_and_pins_what_it_saw_first() {
    let fake = FakeBmc::start().await;
    let bmc = quick().open(&fake.target, JOB).unwrap();
    assert_eq!(bmc.certificate(), None);
    let view = bmc.observe().await.unwrap();
    assert_eq!(bmc.certificate(), Some(fake.certificate));
    assert_eq!(view.power, PowerState::Off);
    assert_eq!(
        view.uuid.as_deref(),
        Some("4c4c4544-0043-4810-8052-b4c04f4e3132")
    );
    assert_eq!(
        view.serial.as_deref(),
        Some("SN- 1"),
        "no control characters"
    );

    let set = bmc.set_boot_once(BootOnce::Pxe).await.unwrap();
    assert!(set.network() && set.enabled == OverrideEnabled::Once);
    bmc.reset(Reset::On).await.unwrap();
    let (watch, said) = within(LONG);
    bmc.wait_power(PowerState::On, &watch).await.unwrap();
    assert_eq!(
        said.lock().unwrap()[0],
        "the BMC to show power on; it shows off"
    );
    assert!(bmc.set_boot_once(BootOnce::None).await.unwrap().local());
    bmc.reset(Reset::ForceRestart).await.unwrap();
    assert!(
        bmc.wait_restart(LONG, &watch).await.unwrap(),
        "off was seen in between"
    );
    assert_eq!(fake.state().resets, ["On", "ForceRestart"]);
}

#[tokio::test]
async fn survives_an_override_that_reads_continuous_and_cannot_be_disabled() {
    let fake = FakeBmc::start().await;
    fake.state().always_continuous = true;
    let bmc = quick().open(&fake.target, JOB).unwrap();
    let set = bmc.set_boot_once(BootOnce::Pxe).await.unwrap();
    assert!(set.network() && set.enabled == OverrideEnabled::Continuous);
    let cleared = bmc.set_boot_once(BootOnce::None).await.unwrap();
    assert_eq!((cleared.local(), cleared.target.as_str()), (true, "Hdd"));
}

#[tokio::test]
async fn gives_the_etag_where_one_is_demanded() {
    let fake = FakeBmc::start().await;
    fake.state().wants_etag = true;
    assert!(
        quick()
            .open(&fake.target, JOB)
            .unwrap()
            .set_boot_once(BootOnce::Pxe)
            .await
            .unwrap()
            .network()
    );
}

#[tokio::test]
async fn every_way_to_misbehave_has_its_own_error() {
    let fake = FakeBmc::start().await;
    let bmc = quick().open(&fake.target, JOB).unwrap();
    for (fault, code, retryable) in [
        (Fault::Busy, FailureCode::BmcBusy, true),
        (Fault::Garbage, FailureCode::BmcGarbage, true),
        (Fault::Deep, FailureCode::BmcGarbage, true),
        (Fault::Huge, FailureCode::BmcGarbage, true),
        (Fault::Redirects, FailureCode::BmcGarbage, true),
        (Fault::BadLinks, FailureCode::BmcGarbage, true),
    ] {
        fake.misbehave(fault);
        let error = bmc.observe().await.unwrap_err();
        assert_eq!(
            (error.code(), error.retryable()),
            (code, retryable),
            "{fault:?}: {error}"
        );
    }
    fake.misbehave(Fault::Busy);
    let error = bmc.observe().await.unwrap_err();
    assert!(
        matches!(error, BmcError::Busy { retry_after: Some(after), .. } if after == Duration::from_secs(7)),
        "{error}"
    );
    fake.misbehave(Fault::None);
    assert!(
        matches!(
            bmc.reset(Reset::GracefulShutdown).await,
            Err(BmcError::Unsupported { .. })
        ),
        "not offered, not sent"
    );
    assert!(fake.state().resets.is_empty());
}

#[tokio::test]
async fn a_call_has_a_deadline() {
    let fake = FakeBmc::start().await;
    fake.misbehave(Fault::Hang);
    let bmcs = Bmcs::new(Limits {
        call: Duration::from_millis(300),
        ..Limits::default()
    });
    let error = bmcs
        .open(&fake.target, JOB)
        .unwrap()
        .observe()
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.retryable()),
        (FailureCode::BmcTimeout, true),
        "{error}"
    );
}

#[tokio::test]
async fn a_yes_without_a_deed_is_noticed() {
    let fake = FakeBmc::start().await;
    fake.misbehave(Fault::Ignores);
    let bmc = quick().open(&fake.target, JOB).unwrap();
    let error = bmc.set_boot_once(BootOnce::Pxe).await.unwrap_err();
    assert_eq!(error.code(), FailureCode::BmcNothingHappened, "{error}");
    bmc.reset(Reset::On).await.unwrap();
    let (watch, _) = within(Duration::from_millis(80));
    let error = bmc.wait_power(PowerState::On, &watch).await.unwrap_err();
    assert!(
        matches!(&error, BmcError::NothingHappened { seen, .. } if seen == "off"),
        "{error}"
    );
}

#[tokio::test]
async fn a_lost_reply_is_not_sent_again() {
    let fake = FakeBmc::start().await;
    let bmc = quick().open(&fake.target, JOB).unwrap();
    bmc.observe().await.unwrap();
    fake.misbehave(Fault::LostReply);
    let error = bmc.reset(Reset::On).await.unwrap_err();
    assert!(
        matches!(&error, BmcError::Timeout { why, .. } if why.starts_with("the connection ended")),
        "{error}"
    );
    let (watch, _) = within(LONG);
    bmc.wait_power(PowerState::On, &watch).await.unwrap();
    assert_eq!(
        fake.state().resets,
        ["On"],
        "it had acted, and was asked once"
    );
}

#[tokio::test]
async fn refused_credentials_are_not_tried_again_until_they_change() {
    let fake = FakeBmc::start().await;
    let bmcs = quick();
    fake.state().password = "other".into();
    let bmc = bmcs.open(&fake.target, JOB).unwrap();
    for _ in 0..5 {
        let error = bmc.observe().await.unwrap_err();
        assert!(
            matches!(error, BmcError::BadCredentials { .. }) && !error.retryable(),
            "{error}"
        );
    }
    assert_eq!(
        bmcs.open(&fake.target, JOB)
            .unwrap()
            .observe()
            .await
            .unwrap_err()
            .code(),
        FailureCode::BmcCredentials
    );
    assert_eq!(
        fake.state().logins_refused,
        1,
        "one knock, however often the job asks"
    );

    let mut corrected = fake.target.clone();
    corrected.password = Secret::new("other");
    bmcs.open(&corrected, JOB).unwrap().observe().await.unwrap();
}

#[tokio::test]
async fn after_the_pause_refused_credentials_are_tried_again() {
    let fake = FakeBmc::start().await;
    let pause = Duration::from_millis(20);
    let bmcs = Bmcs::new(Limits {
        cool_off: pause,
        cool_off_max: pause,
        ..Limits::default()
    });
    let bmc = bmcs.open(&fake.target, JOB).unwrap();
    fake.state().password = "other".into();
    bmc.observe().await.unwrap_err();
    fake.state().password = "secret".into();
    tokio::time::sleep(pause * 2).await;
    bmc.observe().await.unwrap();
}

/// An operator repaired the BMC and started a new job. The job must not wait for the end of the
/// pause, and the account must not be locked.
#[tokio::test]
async fn another_job_may_knock_once_more_within_the_pause() {
    let fake = FakeBmc::start().await;
    let bmcs = Bmcs::new(Limits {
        cool_off: LONG,
        cool_off_max: LONG,
        ..Limits::default()
    });
    fake.state().password = "other".into();
    let knock = async |job| {
        bmcs.open(&fake.target, job)
            .unwrap()
            .observe()
            .await
            .map(drop)
    };
    for job in [JOB, JOB, NEXT_JOB, NEXT_JOB, LAST_JOB, JOB] {
        assert_eq!(
            knock(job).await.unwrap_err().code(),
            FailureCode::BmcCredentials
        );
    }
    assert_eq!(
        fake.state().logins_refused,
        2,
        "two jobs knocked once each, a third one must wait"
    );

    let mended = FakeBmc::start().await;
    mended.state().password = "other".into();
    bmcs.open(&mended.target, JOB)
        .unwrap()
        .observe()
        .await
        .unwrap_err();
    mended.state().password = "secret".into();
    bmcs.open(&mended.target, NEXT_JOB)
        .unwrap()
        .observe()
        .await
        .expect("mended, and asked again");
}

#[tokio::test]
async fn another_certificate_is_refused_before_anything_is_sent() {
    let fake = FakeBmc::start().await;
    let mut target = fake.target.clone();
    let pinned = Digest::of(b"another");
    target.certificate = Some(pinned);
    let bmc = quick().open(&target, JOB).unwrap();
    let error = bmc.observe().await.unwrap_err();
    assert_eq!(
        error,
        BmcError::CertificateChanged {
            pinned,
            seen: fake.certificate
        }
    );
    assert_eq!(fake.state().calls, 0, "no credential left the house");
    target.certificate = Some(fake.certificate);
    quick().open(&target, JOB).unwrap().observe().await.unwrap();
}

#[tokio::test]
async fn a_password_goes_to_a_bmc_inside_of_the_networks_only() {
    let fake = FakeBmc::start().await;
    let inside = quick().open(&fake.target, JOB).unwrap();
    inside.observe().await.unwrap();
    let calls = fake.state().calls;
    assert!(calls > 0);
    let network = || vec!["10.78.0.0/24".parse().unwrap()];
    let own = "127.0.0.1 is no address of a BMC (loopback)";
    for (networks, address, told) in [
        (network(), "127.0.0.1", own),
        (Vec::new(), "127.0.0.1", own),
        (network(), "10.79.0.1", "(10.78.0.0/24)"),
    ] {
        let mut outside = fake.target.clone();
        outside.bmc_networks = networks;
        outside.address = address.parse().unwrap();
        let error = quick().open(&outside, JOB).unwrap_err();
        assert_eq!(error.code(), FailureCode::BmcOutside, "{error}");
        assert!(error.to_string().contains(told), "{error}");
        assert!(!error.retryable());
    }
    assert_eq!(fake.state().calls, calls, "nothing was sent");
}

#[tokio::test]
async fn an_absent_bmc_is_unreachable_and_a_cancelled_wait_ends() {
    let fake = FakeBmc::start().await;
    let mut nobody = fake.target.clone();
    nobody.port = 1;
    assert_eq!(
        quick()
            .open(&nobody, JOB)
            .unwrap()
            .observe()
            .await
            .unwrap_err()
            .code(),
        FailureCode::BmcUnreachable
    );
    let bmc = quick().open(&fake.target, JOB).unwrap();
    let cancel = CancellationToken::new();
    let watch = Watch::new(Instant::now() + LONG, cancel.clone(), |_| {});
    let (waited, ()) = tokio::join!(bmc.wait_power(PowerState::On, &watch), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        cancel.cancel();
    });
    assert_eq!(waited, Err(BmcError::Cancelled));
}

#[tokio::test]
async fn reads_log_sensors_and_power() {
    let fake = FakeBmc::start().await;
    let bmc = quick().open(&fake.target, JOB).unwrap();
    let log = bmc.event_log(2).await.unwrap();
    assert_eq!(
        log.iter()
            .map(|entry| entry.id.as_str())
            .collect::<Vec<_>>(),
        ["2", "3"],
        "the latest, oldest first"
    );
    assert!(log[0].message.chars().count() < 400);
    assert_eq!(log[1].at, Some("2026-01-03T00:00:00Z".parse().unwrap()));
    let sensors = bmc.sensors().await.unwrap();
    assert_eq!(sensors.len(), 3, "what reads nothing is no sensor");
    assert_eq!(
        (sensors[0].reading, sensors[0].unit.as_str()),
        (24.5, "Cel")
    );
    assert!((bmc.power_watts().await.unwrap() - 312.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn calls_to_one_bmc_are_spaced() {
    let fake = FakeBmc::start().await;
    let bmcs = Bmcs::new(Limits {
        spacing: Duration::from_millis(40),
        ..Limits::default()
    });
    let bmc = bmcs.open(&fake.target, JOB).unwrap();
    bmc.observe().await.unwrap();
    let started = Instant::now();
    let views = futures::future::join_all((0..4).map(|_| bmc.observe())).await;
    assert!(views.iter().all(Result::is_ok));
    // The pause before the first of the four calls can be over by the start.
    assert!(
        started.elapsed() >= Duration::from_millis(120),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn firmware_and_bios_are_read_one_by_one_and_in_one_answer() {
    let fake = FakeBmc::start().await;
    let bmc = quick().open(&fake.target, JOB).unwrap();
    let nothing = bmc.inventory().await.unwrap();
    assert!(
        nothing.firmware.is_empty() && nothing.unread.len() == 2,
        "{nothing:?}"
    );
    fake.state().hardware = Some(Hardware::new());
    let one_by_one = bmc.inventory().await.unwrap();
    let versions: Vec<(&str, &str)> = one_by_one
        .firmware
        .iter()
        .map(|seen| (seen.id.as_str(), seen.version.as_str()))
        .collect();
    assert_eq!(versions, [("bios", "2.1"), ("BIOS", "2.1"), ("BMC", "1.0")]);
    assert_eq!(one_by_one.bios["Sriov"].to_string(), "Disabled");
    assert_eq!(one_by_one.unread, [] as [&str; 0]);
    let calls = fake.state().calls;
    fake.state().hardware.as_mut().unwrap().expands = true;
    assert_eq!(bmc.inventory().await.unwrap(), one_by_one);
    let fewer = fake.state().calls - calls;
    assert_eq!(
        fewer, 5,
        "systems are known, the members came with their list"
    );
    // The BMC announces the feature and fails on use.
    fake.state().hardware.as_mut().unwrap().expand_fails = true;
    assert_eq!(bmc.inventory().await.unwrap(), one_by_one);
    fake.misbehave(Fault::Garbage);
    assert!(bmc.inventory().await.is_err());
}

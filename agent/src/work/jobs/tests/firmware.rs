//! Tests of firmware and BIOS changes through a correct BMC and through a faulty BMC.

use std::collections::BTreeMap;

use muster_core::firmware::{BiosValue, UpdateClass, Wanted, WantedFirmware};
use muster_core::wire::firmware::SetFirmware;
use muster_core::wire::node::FailureCode;

use super::*;
use crate::blobs::tests::fetch_eight;
use crate::bmc::tests::hardware::{Hardware, Mood};

/// The limit of a wait without an end in the test.
const SOON: Duration = Duration::from_millis(400);

/// The wanted values for the fake, which has BIOS 2.1, BMC 1.0 and no SR-IOV.
struct Action {
    firmware: Vec<WantedFirmware>,
    bios: BTreeMap<String, BiosValue>,
}

fn update(component: &str, version: &str, class: UpdateClass) -> Action {
    let image = Some(Digest::of(b"image"));
    let firmware = vec![WantedFirmware {
        component: component.into(),
        version: version.into(),
        image,
        class,
    }];
    Action {
        firmware,
        bios: BTreeMap::new(),
    }
}

fn sriov() -> Action {
    let bios = [("Sriov".to_owned(), BiosValue::Text("Enabled".into()))].into();
    Action {
        firmware: Vec::new(),
        bios,
    }
}

async fn fake(mood: Mood) -> FakeBmc {
    let bmc = FakeBmc::start().await;
    let mut hardware = Hardware::new();
    hardware.mood = mood;
    bmc.state().hardware = Some(hardware);
    bmc
}

impl World {
    fn order(&self, target: &BmcTarget, action: Action, permit: Option<PermitId>) -> JobSpec {
        // The image is already in the cache of the site.
        let path = self.agent.blobs.path(Digest::of(b"image"));
        std::fs::write(path, b"image").unwrap();
        let Action { firmware, bios } = action;
        JobSpec::Firmware(SetFirmware {
            power: Power::Redfish(target.clone()),
            permit,
            login: None,
            wanted: Wanted { firmware, bios },
            images: "http://10.77.0.1:8090/boot/v1/blob/sha256".into(),
        })
    }

    /// Runs a job with the wanted values.
    async fn set(&mut self, target: &BmcTarget, action: Action, acts: Vec<ActRecord>) -> Outcome {
        let spec = self.order(target, action, Some(PermitId::new()));
        self.outcome_of(spec, acts).await
    }
}

/// Returns the changes made by the job, or its failure.
fn told(outcome: Outcome) -> Result<Vec<String>, Failure> {
    match outcome {
        Outcome::Succeeded {
            result: JobResult::Firmware { changed, .. },
        } => Ok(changed),
        Outcome::Failed { failure } => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn former(act: &str) -> ActRecord {
    ActRecord {
        attempt: 1,
        act: act.into(),
        before: "power off".into(),
        started_at: Timestamp::UNIX_EPOCH,
        age_s: 40,
    }
}

#[tokio::test]
async fn settings_are_asked_for_hold_after_one_restart_and_are_left_alone_then() {
    let mut world = World::new(limits()).await;
    let bmc = fake(Mood::Well).await;
    bmc.state().power = "On";
    let changed = told(world.set(&bmc.target, sriov(), Vec::new()).await).unwrap();
    assert_eq!(changed, ["bios Sriov is Enabled, it was Disabled"]);
    assert_eq!(
        bmc.state().resets,
        ["ForceOff", "On"],
        "off first, then on by the one act"
    );
    let sent = bmc.state().hardware.as_ref().unwrap().settings.clone();
    assert_eq!(
        (
            sent.len(),
            sent[0]["@Redfish.SettingsApplyTime"]["ApplyTime"].as_str()
        ),
        (1, Some("OnReset"))
    );
    assert_eq!(world.acts().len(), 1);
    assert_eq!(
        told(world.set(&bmc.target, sriov(), Vec::new()).await).unwrap(),
        [] as [&str; 0]
    );
    assert_eq!(bmc.state().resets.len(), 2, "what holds is not touched");
}

#[tokio::test]
async fn a_look_changes_nothing_and_says_what_it_could_not_see() {
    let mut world = World::new(limits()).await;
    let bmc = fake(Mood::Well).await;
    let look = world.order(&bmc.target, sriov(), None);
    let Outcome::Succeeded {
        result: JobResult::Firmware { inventory, changed },
    } = world.outcome_of(look.clone(), Vec::new()).await
    else {
        panic!("it looks")
    };
    assert_eq!(
        (
            inventory.firmware.len(),
            changed.len(),
            inventory.unread.len()
        ),
        (3, 0, 0)
    );
    assert!(
        bmc.state().resets.is_empty() && bmc.state().hardware.as_ref().unwrap().settings.is_empty()
    );
    bmc.state().password = "changed".into();
    let Outcome::Succeeded {
        result: JobResult::Firmware { inventory, .. },
    } = world.outcome_of(look, Vec::new()).await
    else {
        panic!("a BMC that is not heard stops no look")
    };
    assert!(
        inventory.unread[0].contains("refuses these credentials"),
        "{inventory:?}"
    );
    // An unreachable BMC of a known machine is no error either. A BMC of another machine is
    // rejected.
    let known = |uuid: &str| {
        Some(Machine {
            uuid: Some(uuid.into()),
            serial: None,
        })
    };
    let [own, other] = [
        "4c4c4544-0043-4810-8052-b4c04f4e3132",
        "4c4c4544-0043-4810-8052-b4c04f4e3133",
    ];
    let silent = BmcTarget {
        port: 1,
        machine: known(own),
        ..bmc.target.clone()
    };
    let look = world.order(&silent, sriov(), None);
    let Outcome::Succeeded {
        result: JobResult::Firmware { inventory, .. },
    } = world.outcome_of(look, Vec::new()).await
    else {
        panic!("a BMC that is not there stops no look")
    };
    assert_eq!(inventory.unread.len(), 1, "{inventory:?}");
    bmc.state().password = "secret".into();
    let look = world.order(
        &BmcTarget {
            machine: known(other),
            ..bmc.target.clone()
        },
        sriov(),
        None,
    );
    let Outcome::Failed { failure } = world.outcome_of(look, Vec::new()).await else {
        panic!("another machine")
    };
    assert_eq!(failure.code, FailureCode::IdentityMismatch);
}

#[tokio::test]
async fn settings_that_are_dropped_or_lost_fail_with_both_values() {
    let mut world = World::new(Limits {
        boot: SOON,
        ..limits()
    })
    .await;
    let bmc = fake(Mood::SettingsDropped).await;
    let failure = told(world.set(&bmc.target, sriov(), Vec::new()).await).unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("bios_settings_dropped", false),
        "{}",
        failure.message
    );
    assert!(
        failure.message.contains("Sriov as Disabled"),
        "{}",
        failure.message
    );
    assert!(bmc.state().resets.is_empty(), "no restart for nothing");

    let bmc = fake(Mood::SettingsLost).await;
    let failure = told(world.set(&bmc.target, sriov(), Vec::new()).await).unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("firmware_unchanged", false)
    );
    assert!(
        failure
            .message
            .contains("bios Sriov is Disabled, wanted Enabled"),
        "{}",
        failure.message
    );
    assert_eq!(bmc.state().resets, ["On"], "and no second one");
}

#[tokio::test]
async fn an_update_is_fetched_from_the_site_followed_and_read_back() {
    let mut world = World::new(limits()).await;
    for (mood, restarts) in [
        (Mood::Well, 0),
        (Mood::BusyMeanwhile, 0),
        (Mood::NoTargets, 0),
    ] {
        let bmc = fake(mood).await;
        let changed = told(
            world
                .set(
                    &bmc.target,
                    update("BMC", "1.1", UpdateClass::None),
                    Vec::new(),
                )
                .await,
        )
        .unwrap();
        assert_eq!(changed, ["firmware BMC is 1.1, it was 1.0"], "{mood:?}");
        let sent = bmc.state().hardware.as_ref().unwrap().updates.clone();
        let image = format!(
            "http://10.77.0.1:8090/boot/v1/blob/sha256/{}",
            Digest::of(b"image").hex()
        );
        assert_eq!(
            (sent.len(), sent[0]["ImageURI"].as_str()),
            (1, Some(image.as_str())),
            "{mood:?}"
        );
        assert_eq!(sent[0]["Targets"].is_null(), mood == Mood::NoTargets);
        assert_eq!(
            bmc.state().resets.len(),
            restarts,
            "a BMC restarts by itself"
        );
    }
    let bmc = fake(Mood::Well).await;
    bmc.state().hardware.as_mut().unwrap().brings = ("BIOS", "2.2");
    let changed = told(
        world
            .set(
                &bmc.target,
                update("bios", "2.2", UpdateClass::Reboot),
                Vec::new(),
            )
            .await,
    )
    .unwrap();
    assert_eq!(changed, ["firmware bios is 2.2, it was 2.1"]);
    assert_eq!(
        bmc.state().resets,
        ["On"],
        "it was off, and is started for it"
    );
    let acts: Vec<String> = world.acts().into_iter().map(|(act, _)| act).collect();
    assert!(
        acts.ends_with(&["update bios".to_owned(), "power_on".to_owned()]),
        "{acts:?}"
    );
}

#[tokio::test]
async fn the_image_stays_in_the_cache_until_the_end_of_the_attempt() {
    let world = World::new(limits()).await;
    let bmc = fake(Mood::Well).await;
    let spec = world.order(
        &bmc.target,
        update("BMC", "1.1", UpdateClass::None),
        Some(PermitId::new()),
    );
    let blobs = world.agent.blobs.clone().with_bound(1);
    blobs.begin_bound();
    let image = blobs.path(Digest::of(b"image"));
    let attempt = world.job(spec, Vec::new());
    job::run(Arc::clone(&attempt), CancellationToken::new()).await;
    fetch_eight(&blobs, b"another ").await;
    assert!(image.exists());
    drop(attempt);
    fetch_eight(&blobs, b"a third ").await;
    assert!(!image.exists());
}

#[tokio::test]
async fn a_forgotten_task_proves_no_end_and_the_version_decides() {
    let mut world = World::new(Limits {
        boot: SOON,
        ..limits()
    })
    .await;
    let item = || update("BMC", "1.1", UpdateClass::None);
    for mood in [Mood::Forgets, Mood::ForgetsUnlisted] {
        let bmc = fake(mood).await;
        let changed = told(world.set(&bmc.target, item(), Vec::new()).await).unwrap();
        assert_eq!(changed, ["firmware BMC is 1.1, it was 1.0"], "{mood:?}");
    }
    {
        let ledger = world.server.ledger.lock().unwrap();
        let told = format!("{:?}", ledger.renewals);
        assert!(told.contains("forgot the task"), "{told}");
        assert!(!told.contains("is over"), "{told}");
    }
    let bmc = fake(Mood::ForgetsUndone).await;
    let failure = told(world.set(&bmc.target, item(), Vec::new()).await).unwrap_err();
    assert_eq!(failure.code.as_str(), "firmware_unchanged");
}

#[tokio::test]
async fn settings_that_are_set_and_refused_hold_and_the_words_are_kept() {
    let mut world = World::new(limits()).await;
    let bmc = fake(Mood::SettingsRefused).await;
    let changed = told(world.set(&bmc.target, sriov(), Vec::new()).await).unwrap();
    assert_eq!(changed, ["bios Sriov is Enabled, it was Disabled"]);
    let ledger = world.server.ledger.lock().unwrap();
    let told = format!("{:?}", ledger.renewals);
    assert!(
        told.contains("BIOS settings are set, although")
            && told.contains("The value depends on another attribute."),
        "{told}"
    );
}

#[tokio::test]
async fn a_failed_update_quotes_the_bmc_and_is_not_retried() {
    let endless = Limits {
        update: SOON,
        ..limits()
    };
    let unchanged = Limits {
        boot: SOON,
        ..limits()
    };
    for (mood, limits, code, says) in [
        (
            Mood::TaskFails,
            limits(),
            "firmware_update_failed",
            "The image's signature is not valid.",
        ),
        (
            Mood::TaskNeverEnds,
            endless,
            "firmware_update_endless",
            "cut no power",
        ),
        (
            Mood::Unchanged,
            unchanged,
            "firmware_unchanged",
            "firmware BMC is 1.0, wanted 1.1",
        ),
    ] {
        let mut world = World::new(limits).await;
        let bmc = fake(mood).await;
        let failure = told(
            world
                .set(
                    &bmc.target,
                    update("BMC", "1.1", UpdateClass::None),
                    Vec::new(),
                )
                .await,
        )
        .unwrap_err();
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            (code, false),
            "{mood:?}: {}",
            failure.message
        );
        assert!(
            failure.message.contains(says),
            "{mood:?}: {}",
            failure.message
        );
        let updates = bmc.state().hardware.as_ref().unwrap().updates.len();
        assert_eq!((updates, bmc.state().resets.len()), (1, 0), "{mood:?}");
    }
}

/// The earlier attempt crashed after sending the update, after restarting the machine, or after all
/// steps.
#[tokio::test]
async fn a_successor_reads_what_is_there_and_sends_nothing_twice() {
    let mut world = World::new(limits()).await;
    let action = || update("BMC", "1.1", UpdateClass::None);
    let bmc = fake(Mood::Well).await;
    bmc.state().hardware.as_mut().unwrap().runs = true;
    let changed = told(
        world
            .set(&bmc.target, action(), vec![former("update BMC")])
            .await,
    )
    .unwrap();
    assert_eq!(changed, ["firmware BMC is 1.1, it was 1.0"]);
    assert!(
        bmc.state().hardware.as_ref().unwrap().updates.is_empty(),
        "it is followed"
    );

    let done = fake(Mood::Well).await;
    done.state()
        .hardware
        .as_mut()
        .unwrap()
        .versions
        .insert("BMC", "1.1".into());
    let changed = told(
        world
            .set(&done.target, action(), vec![former("update BMC")])
            .await,
    )
    .unwrap();
    assert_eq!(changed, [] as [&str; 0]);

    // The machine is off and the restart is committed, so the remaining step is to power on.
    let halved = fake(Mood::Well).await;
    halved.state().hardware.as_mut().unwrap().mood = Mood::Well;
    let bios = json_settings("Enabled");
    let (status, _) = halved.state().hardware.as_mut().unwrap().serve(
        "PATCH",
        "/redfish/v1/Systems/1/Bios/Settings",
        &bios,
    );
    assert_eq!(status, 200);
    let changed = told(
        world
            .set(&halved.target, sriov(), vec![former("power_on")])
            .await,
    )
    .unwrap();
    assert_eq!(changed, ["bios Sriov is Enabled, it was Disabled"]);
    assert_eq!(halved.state().resets, ["On"]);
    assert_eq!(
        halved.state().hardware.as_ref().unwrap().settings.len(),
        1,
        "they were pending already"
    );
}

fn json_settings(sriov: &str) -> serde_json::Value {
    serde_json::json!({"Attributes": {"Sriov": sriov}})
}

/// The server requests a stop. The update finishes first, and the job reports the real outcome.
#[tokio::test]
async fn what_writes_firmware_is_not_stopped_and_a_look_is() {
    let server = FakeServer::start().await;
    let lease = Duration::from_millis(300);
    let (agent, _dir) = agent_with(&server, lease, Bmcs::new(limits())).await;
    let mut world = World {
        server,
        agent,
        _dir,
    };
    world.server.ledger.lock().unwrap().cancel = true;
    let ledger = Arc::clone(&world.server.ledger);
    let bmc = fake(Mood::TaskNeverEnds).await;
    // The second renewal follows the answer to the first, and only then the update ends.
    let held = async {
        while ledger.lock().unwrap().renewals.len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bmc.state().hardware.as_mut().unwrap().mood = Mood::Well;
        std::future::pending::<Outcome>().await
    };
    let action = update("BMC", "1.1", UpdateClass::None);
    let outcome = tokio::select! {
        outcome = world.set(&bmc.target, action, Vec::new()) => outcome,
        outcome = held => outcome,
    };
    assert_eq!(told(outcome).unwrap(), ["firmware BMC is 1.1, it was 1.0"]);
    let look = world.order(&bmc.target, sriov(), None);
    assert!(crate::work::jobs::may_be_stopped(&look));
    assert!(!crate::work::jobs::may_be_stopped(&world.order(
        &bmc.target,
        sriov(),
        Some(PermitId::new())
    )));
}

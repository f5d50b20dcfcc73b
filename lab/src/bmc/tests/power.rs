//! Boots, power and injected faults.

use super::*;

#[tokio::test]
async fn a_one_time_override_boots_the_network_once() {
    let bench = bench().await;
    let patch = json!({"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe", "BootSourceOverrideMode": "UEFI"}});
    assert_eq!(
        bench.write(Method::PATCH, SYSTEM, patch).await.0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        bench.get(SYSTEM).await["Boot"]["BootSourceOverrideEnabled"],
        "Once"
    );
    let starting = bench.launcher.starting.lock().await;
    assert_eq!(bench.reset("On").await, StatusCode::NO_CONTENT);
    assert_eq!(
        bench.get(SYSTEM).await["PowerState"],
        "Off",
        "the answer comes before the power"
    );
    drop(starting);
    bench.becomes(PowerState::On).await;
    assert_eq!(
        bench.get(SYSTEM).await["Boot"]["BootSourceOverrideTarget"],
        "None"
    );
    let watts =
        bench.get("/redfish/v1/Chassis/1/Power").await["PowerControl"][0]["PowerConsumedWatts"]
            .as_u64();
    assert!(watts.unwrap() > 100);

    // The guest reboots by itself: the override is used up.
    bench.launcher.guest_exits(Exit::Reset);
    let mut entries = bench.machine.subscribe();
    while !matches!(entries.recv().await.unwrap().what, Happening::Reboot { .. }) {}
    bench.becomes(PowerState::On).await;
    assert_eq!(bench.reset("PowerCycle").await, StatusCode::NO_CONTENT);
    while !matches!(
        entries.recv().await.unwrap().what,
        Happening::PowerOn { .. }
    ) {}
    let orders: Vec<BootOrder> = bench
        .launcher
        .boots
        .lock()
        .unwrap()
        .iter()
        .map(|boot| boot.order)
        .collect();
    assert_eq!(orders[..2], [BootOrder::NetworkFirst, BootOrder::Own]);
    assert_eq!(
        bench.reset("GracefulShutdown").await,
        StatusCode::NO_CONTENT
    );
    bench.becomes(PowerState::Off).await;
    assert_eq!(bench.reset("ForceRestart").await, StatusCode::CONFLICT);
    let log = bench
        .get("/redfish/v1/Managers/1/LogServices/EventLog/Entries")
        .await;
    let text = log["Members"].to_string();
    assert!(
        text.contains("PowerOn") && text.contains("BootOverride") && text.contains("Reset"),
        "{text}"
    );
}

#[tokio::test]
async fn a_machine_that_a_reset_leaves_off_is_so_once() {
    let bench = bench().await;
    bench.reset("On").await;
    bench.becomes(PowerState::On).await;
    bench.machine.stay_off_once().await;
    bench.launcher.guest_exits(Exit::Reset);
    bench.becomes(PowerState::Off).await;
    bench.reset("On").await;
    bench.becomes(PowerState::On).await;
    let mut entries = bench.machine.subscribe();
    bench.launcher.guest_exits(Exit::Reset);
    assert!(matches!(
        entries.recv().await.unwrap().what,
        Happening::Reboot { .. }
    ));
}

#[tokio::test]
async fn faults_do_what_they_say() {
    let bench = bench().await;
    let get = || bench.authorised(Method::GET, SYSTEM).send();

    bench.bmc.inject(Fault::next(1, FaultKind::Hang));
    let mut hangs = Box::pin(get());
    tokio::select! {
        answer = &mut hangs => panic!("{answer:?}"),
        () = until("the fault is used up", || bench.bmc.faults().is_empty()) => {}
    }
    let hangs = tokio::time::timeout(Duration::from_millis(500), hangs).await;
    assert!(hangs.is_err(), "{hangs:?}");
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::Status503 { retry_after_s: 7 }));
    let busy = get().await.unwrap();
    assert_eq!(
        (
            busy.status(),
            busy.headers()["retry-after"].to_str().unwrap()
        ),
        (StatusCode::SERVICE_UNAVAILABLE, "7")
    );
    for shape in [Garbage::BadJson, Garbage::Truncated, Garbage::Deep] {
        bench
            .bmc
            .inject(Fault::next(1, FaultKind::Garbage { shape }));
        let answer = get().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(answer.json::<Value>().await.is_err(), "{shape:?}");
    }
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::Slow { ms: 150 }));
    let asked = std::time::Instant::now();
    assert_eq!(get().await.unwrap().status(), StatusCode::OK);
    assert!(asked.elapsed() >= Duration::from_millis(150));

    bench
        .bmc
        .inject(Fault::next(1, FaultKind::AcceptedNothingHappens));
    assert_eq!(bench.reset("On").await, StatusCode::NO_CONTENT);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.machine.boots(), 0);
    bench
        .bmc
        .inject(Fault::next(1, FaultKind::LostReply).on("POST"));
    assert_eq!(get().await.unwrap().status(), StatusCode::OK);
    assert!(
        bench
            .authorised(Method::POST, RESET)
            .json(&json!({"ResetType": "On"}))
            .send()
            .await
            .is_err()
    );
    bench.becomes(PowerState::On).await;
    assert_eq!(
        bench.machine.boots(),
        1,
        "done once, though nobody was told"
    );
    assert!(bench.bmc.faults().is_empty());
}

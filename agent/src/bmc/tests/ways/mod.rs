//! Tests of the ways of real BMCs, each against a stateful service with this way. The inputs follow
//! public reports (docs/bmcs.md).

mod service; // The service

use std::time::Duration;

use muster_core::values::Secret;
use muster_core::wire::node::FailureCode;

use self::service::{SETTINGS, SYSTEM, Service, Way};
use super::{JOB, LAST_JOB, NEXT_JOB, quick};
use crate::bmc::{Bmc, BmcError, BootOnce, BootOverride, PowerState, Reset};

async fn start(way: Way) -> (Service, Bmc) {
    let service = Service::start(way).await;
    let bmc = quick().open(&service.target, JOB).unwrap();
    (service, bmc)
}

/// Sets the next boot to the network, starts the machine, and clears the override.
async fn boot_and_clear(bmc: &Bmc) -> [BootOverride; 2] {
    let network = bmc.set_boot_once(BootOnce::Pxe).await.unwrap();
    bmc.reset(Reset::On).await.unwrap();
    let cleared = bmc.set_boot_once(BootOnce::None).await.unwrap();
    assert!(network.network() && cleared.local(), "{network}; {cleared}");
    [network, cleared]
}

const BOOTED: [&str; 1] = ["On Once Pxe UEFI"];

#[tokio::test]
async fn links_keep_their_slash_and_a_slash_alone_is_redirected_over() {
    let (service, bmc) = start(Way::Slashes).await;
    boot_and_clear(&bmc).await;
    assert_eq!(service.state().resets, BOOTED);
    let redirected = |service: &Service| {
        let state = service.state();
        let log: Vec<String> = state.log.clone();
        log.into_iter()
            .filter(|line| line.ends_with(" 308"))
            .collect::<Vec<String>>()
    };
    assert_eq!(
        redirected(&service),
        ["GET /redfish/v1/Systems 308"],
        "the rest went over the links as published"
    );

    let (service, bmc) = start(Way::SlashesUnpublished).await;
    boot_and_clear(&bmc).await;
    assert_eq!(service.state().resets, BOOTED, "with method and body");
    let redirected = redirected(&service);
    for method in ["PATCH", "POST"] {
        assert!(
            redirected.iter().any(|line| line.starts_with(method)),
            "{redirected:?}"
        );
    }
}

#[tokio::test]
async fn a_redirect_elsewhere_or_in_a_loop_is_named_and_not_followed() {
    for (way, calls) in [(Way::SlashLoop, 2), (Way::Login, 1)] {
        let (service, bmc) = start(way).await;
        let error = bmc.observe().await.unwrap_err();
        assert!(matches!(error, BmcError::Elsewhere { .. }), "{error}");
        assert_eq!(error.code(), FailureCode::BmcGarbage);
        assert!(!error.to_string().contains("restart"), "{error}");
        assert_eq!(service.state().log.len(), calls, "{way:?}");
    }
}

#[tokio::test]
async fn an_override_of_the_settings_object_is_set_and_read_there() {
    let (service, bmc) = start(Way::SettingsObject).await;
    boot_and_clear(&bmc).await;
    assert_eq!(service.state().resets, BOOTED);
    let there = format!("{SETTINGS} 204");
    let sent = service.sent("PATCH");
    assert_eq!(
        sent.iter().filter(|line| **line == there).count(),
        2,
        "{sent:?}"
    );
}

#[tokio::test]
async fn a_settings_object_of_another_purpose_is_left_alone() {
    let (service, bmc) = start(Way::SettingsOther).await;
    let error = bmc.set_boot_once(BootOnce::Pxe).await.unwrap_err();
    assert_eq!(error.code(), FailureCode::BmcNothingHappened, "{error}");
    assert_eq!(service.sent("PATCH"), [format!("{SYSTEM} 200")]);
}

#[tokio::test]
async fn the_mode_is_kept_where_a_plain_change_falls_back_to_another() {
    let (service, bmc) = start(Way::ModeFalls).await;
    boot_and_clear(&bmc).await;
    boot_and_clear(&bmc).await;
    assert_eq!(service.state().resets, [BOOTED[0], BOOTED[0]]);
}

#[tokio::test]
async fn the_mode_is_not_sent_to_a_bmc_that_keeps_it() {
    for way in [Way::ModeReadOnly, Way::Plain] {
        let (service, bmc) = start(way).await;
        boot_and_clear(&bmc).await;
        assert_eq!(service.state().resets, BOOTED);
        assert_eq!(
            service.sent("PATCH"),
            [format!("{SYSTEM} 204"), format!("{SYSTEM} 204")]
        );
    }
}

#[tokio::test]
async fn a_lost_mode_is_told_before_the_reset_and_a_cleared_override_has_none() {
    let (_service, bmc) = start(Way::ModeLost).await;
    let cleared = bmc.set_boot_once(BootOnce::None).await.unwrap();
    assert!(cleared.local(), "{cleared}");
    let (service, bmc) = start(Way::ModeLost).await;
    let error = bmc.set_boot_once(BootOnce::Pxe).await.unwrap_err();
    assert!(
        matches!(&error, BmcError::Unsupported { what } if what.contains("would boot by Legacy")),
        "{error}"
    );
    assert!(!error.retryable() && service.state().resets.is_empty());
}

#[tokio::test]
async fn a_tag_is_found_in_the_header_or_body_in_its_strong_form() {
    let at = |status: u16| format!("{SYSTEM} {status}");
    for (way, sent) in [
        (Way::WeakTag, vec![at(412), at(412), at(204)]),
        (Way::BodyTag, vec![at(428), at(204)]),
        (Way::TwiceQuotedTag, vec![at(428), at(412), at(204)]),
    ] {
        let (service, bmc) = start(way).await;
        bmc.set_boot_once(BootOnce::Pxe).await.unwrap();
        assert_eq!(service.sent("PATCH"), sent, "{way:?}");
    }
}

#[tokio::test]
async fn a_precondition_that_stays_refused_is_told_and_each_tag_is_sent_once() {
    let (service, bmc) = start(Way::NeverMatches).await;
    let error = bmc.set_boot_once(BootOnce::Pxe).await.unwrap_err();
    let told = "HTTP 412: no match; refused with If-Match \"00000007\", *";
    assert!(
        matches!(&error, BmcError::Unsupported { what } if what.ends_with(told)),
        "{error}"
    );
    let plain_and_two_tags = 3;
    let with_and_without_mode = 2;
    assert_eq!(
        service.sent("PATCH").len(),
        plain_and_two_tags * with_and_without_mode
    );
    let error = bmc.reset(Reset::On).await.unwrap_err();
    assert!(matches!(error, BmcError::Unsupported { .. }), "{error}");
    assert!(service.state().resets.is_empty(), "412 is no success");
}

/// A license or a right is missing for a resource, and the login is right.
#[tokio::test]
async fn a_forbidden_resource_is_unread_and_no_refused_login() {
    let (_service, bmc) = start(Way::License).await;
    bmc.observe().await.unwrap();
    let inventory = bmc.inventory().await.unwrap();
    let read: Vec<&str> = inventory
        .firmware
        .iter()
        .map(|part| part.id.as_str())
        .collect();
    assert_eq!(read, ["NIC1"]);
    let [bios, member] = &inventory.unread[..] else {
        panic!("{:?}", inventory.unread)
    };
    assert!(bios.starts_with("BIOS attributes: "), "{bios}");
    for unread in [bios, member] {
        assert!(
            unread.contains("HTTP 403: This request needs a licence")
                && !unread.contains("credential"),
            "{unread}"
        );
    }
    bmc.observe()
        .await
        .expect("the next call of the job goes out");
}

#[tokio::test]
async fn a_stranger_that_is_forbidden_is_a_refused_login_and_knocks_once() {
    let service = Service::start(Way::ForbidsStrangers).await;
    let mut target = service.target.clone();
    target.password = Secret::new("wrong");
    let bmcs = quick();
    for (job, knocks) in [(JOB, 1), (NEXT_JOB, 2), (LAST_JOB, 2)] {
        let bmc = bmcs.open(&target, job).unwrap();
        // The service root is open to all. Its answer is no accepted login.
        bmc.set_password(&Secret::new("another")).await.unwrap_err();
        let error = bmc.observe().await.unwrap_err();
        assert_eq!(error.code(), FailureCode::BmcCredentials, "{error}");
        let refused = service.sent("GET");
        let refused = refused.iter().filter(|line| line.ends_with(" 403"));
        assert_eq!(refused.count(), knocks);
    }
}

#[tokio::test]
async fn a_change_that_is_made_and_refused_is_believed_with_the_words() {
    for status in [400, 500] {
        let (service, bmc) = start(Way::SetsAndAnswers(status)).await;
        let [network, _] = boot_and_clear(&bmc).await;
        assert_eq!(service.state().resets, BOOTED);
        let told = format!("HTTP {status}: depends on another attribute");
        assert!(network.to_string().contains(&told), "{network}");
        assert_eq!(
            service.sent("PATCH").len(),
            2,
            "looked at before another try"
        );
    }
    let (_service, bmc) = start(Way::Refuses).await;
    let error = bmc.set_boot_once(BootOnce::Pxe).await.unwrap_err();
    assert!(
        matches!(&error, BmcError::Unsupported { what } if what.contains("depends on another")),
        "{error}"
    );
}

#[tokio::test]
async fn a_list_is_read_over_its_pages_and_never_without_an_end() {
    for name in ["Members@odata.nextLink", "@odata.nextLink"] {
        let service = Service::start(Way::Pages(name)).await;
        let mut target = service.target.clone();
        target.system = Some("1".into());
        let bmc = quick().open(&target, JOB).unwrap();
        assert_eq!(bmc.observe().await.unwrap().power, PowerState::Off);
    }
    for way in [Way::EndlessPages, Way::NoMembers] {
        let (_service, bmc) = start(way).await;
        let error = bmc.observe().await.unwrap_err();
        assert_eq!(error.code(), FailureCode::BmcGarbage, "{error}");
    }
}

#[test]
fn a_busy_bmc_is_asked_again_when_it_says_and_not_sooner() {
    let busy = |seconds: Option<u64>| BmcError::Busy {
        said: String::new(),
        retry_after: seconds.map(Duration::from_secs),
    };
    let five = Duration::from_secs(5);
    assert_eq!(busy(Some(30)).pause(five), Duration::from_secs(30));
    assert_eq!(busy(Some(0)).pause(five), five);
    assert_eq!(busy(None).pause(five), five);
    let away = BmcError::Unreachable { why: String::new() };
    assert_eq!(away.pause(five), five);
}

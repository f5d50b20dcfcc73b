//! Armed machines: scripts, reports, held runs and their ends.

use muster_core::ids::PermitId;
use muster_core::values::Secret;
use muster_core::wire::bmc::Power;
use muster_core::wire::login::UserKey;

use super::*;

pub(crate) const NONCE: &str = "00112233445566778899aabbccddeeff";

pub(crate) fn spec(mac: Mac, address: Ipv4Addr) -> BootLive {
    BootLive {
        power: Power::Manual {
            person: "ada".to_owned(),
        },
        permit: PermitId::new(),
        macs: vec![mac],
        address,
        nonce: NONCE.to_owned(),
        kernel: Digest::of(b"kernel"),
        initrd: Digest::of(b"initrd"),
        user_key: UserKey {
            private_key: Secret::new(""),
            certificate: String::new(),
        },
        expect_uuid: None,
        expect_serial: None,
        live_signature: None,
    }
}

const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 11);

fn report(mac: Mac) -> LiveReport {
    LiveReport {
        protocol: 1,
        nonce: NONCE.to_owned(),
        mac,
        host_key: "ssh-ed25519 AAAA".to_owned(),
    }
}

#[test]
fn dropping_the_handle_disarms() {
    let boots = ArmedBoots::new();
    let handle = boots.arm(NodeId::new(), &spec(MAC, HERE)).unwrap();
    assert!(boots.find(MAC).is_some());
    assert!(matches!(
        boots.arm(NodeId::new(), &spec(MAC, HERE)),
        Err(ArmError::Busy { .. })
    ));
    drop(handle);
    assert_eq!(boots.find(MAC), None);
    assert_eq!(boots.take_script(MAC, HERE), ScriptTurn::NotArmed);
}

#[test]
fn each_interface_of_a_machine_has_its_own_requested_address() {
    let boots = ArmedBoots::new();
    let (second, there) = (Mac([2; 6]), Ipv4Addr::new(10, 77, 9, 9));
    let mut spec = spec(MAC, HERE);
    spec.macs.push(second);
    let _handle = boots.arm(NodeId::new(), &spec).unwrap();
    assert!(!boots.is_elsewhere(MAC, there), "no request was heard");
    boots.heard_request(MAC, HERE);
    boots.heard_request(second, there);
    assert!(!boots.is_elsewhere(MAC, HERE) && boots.is_elsewhere(MAC, there));
    assert!(!boots.is_elsewhere(second, there) && boots.is_at(there));
}

#[test]
fn a_successful_boot_stays_known_until_the_next_start() {
    let (boots, node) = (ArmedBoots::new(), NodeId::new());
    let arm = || boots.arm(node, &spec(MAC, HERE)).unwrap();
    drop(arm());
    assert!(!boots.runs_live(MAC) && !boots.is_at(HERE), "cancelled");
    arm().hold();
    assert!(boots.runs_live(MAC) && boots.is_at(HERE));
    assert_eq!(boots.find(MAC), None, "no second boot");
    let next = arm();
    assert!(!boots.runs_live(MAC), "the next boot began");
    next.hold();
    boots.end_live(node);
    assert!(!boots.runs_live(MAC) && !boots.is_at(HERE));
}

#[tokio::test]
async fn a_report_arrives_once_and_a_second_one_fails_the_boot() {
    let boots = ArmedBoots::new();
    let handle = boots.arm(NodeId::new(), &spec(MAC, HERE)).unwrap();
    assert_eq!(boots.take_report(report(MAC), HERE), Ok(()));
    assert_eq!(handle.report().await, Ok(report(MAC)));
    assert_eq!(
        boots.take_report(report(MAC), HERE),
        Err(ReportRefused::Second)
    );
    assert_eq!(handle.fault().await, BootFault::SecondReport { from: HERE });
}

#[tokio::test]
async fn a_boot_resumed_after_a_restart_has_used_up_its_script_and_report() {
    let boots = ArmedBoots::new();
    let handle = boots.arm(NodeId::new(), &spec(MAC, HERE)).unwrap();
    handle.resume(report(MAC));
    assert_eq!(handle.report().await, Ok(report(MAC)));
    assert_eq!(boots.take_script(MAC, HERE), ScriptTurn::Spent);
    assert_eq!(handle.fault().await, BootFault::SecondScript { from: HERE });
}

#[tokio::test]
async fn a_spent_script_is_not_given_again_and_the_report_may_come() {
    let boots = ArmedBoots::new();
    let handle = boots.arm(NodeId::new(), &spec(MAC, HERE)).unwrap();
    handle.spend_script();
    assert_eq!(boots.take_report(report(MAC), HERE), Ok(()));
    assert_eq!(boots.take_script(MAC, HERE), ScriptTurn::Spent);
    assert_eq!(handle.fault().await, BootFault::SecondScript { from: HERE });
}

#[tokio::test]
async fn a_second_script_fails_the_boot_and_the_first_fault_stays() {
    let boots = ArmedBoots::new();
    let handle = boots.arm(NodeId::new(), &spec(MAC, HERE)).unwrap();
    assert!(matches!(
        boots.take_script(MAC, HERE),
        ScriptTurn::Armed { .. }
    ));
    assert_eq!(boots.take_script(MAC, HERE), ScriptTurn::Spent);
    assert_eq!(
        boots.take_report(report(MAC), HERE),
        Err(ReportRefused::Second)
    );
    assert_eq!(
        handle.report().await,
        Err(BootFault::SecondScript { from: HERE })
    );
}

#[tokio::test]
async fn a_report_of_another_machine_fails_the_boot() {
    let boots = ArmedBoots::new();
    let handle = boots.arm(NodeId::new(), &spec(MAC, HERE)).unwrap();
    let stranger = Mac([2; 6]);
    assert_eq!(
        boots.take_report(report(stranger), HERE),
        Err(ReportRefused::WrongMachine)
    );
    assert_eq!(
        handle.report().await,
        Err(BootFault::WrongMachine {
            from: HERE,
            mac: stranger
        })
    );
}

//! Tests of power acts through a failing BMC: repeated requests, checks without action, and
//! messages for the operator.

#![expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test owns its tasks and ends with the test"
)]

mod firmware; // Firmware and BIOS

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::ids::{JobId, NodeId, PermitId};
use muster_core::values::Digest;
use muster_core::wire::bmc::Power;
use muster_core::wire::bmc::{BmcTarget, Machine, RotateBmc};
use muster_core::wire::job::{ActRecord, Job, JobSpec};
use muster_core::wire::node::Failure;
use muster_core::wire::result::{JobResult, Outcome};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::power::{self, Started};
use crate::bmc::tests::fake::{FakeBmc, Fault};
use crate::bmc::{Bmcs, BootOnce, Limits};
use crate::work::agent::Agent;
use crate::work::context::JobContext;
use crate::work::job;
use crate::work::tests::agent_with;
use crate::work::tests::server::FakeServer;

const LEASE: Duration = Duration::from_secs(60);

/// Returns limits. Only the tests of a limit reach that limit.
fn limits() -> Limits {
    Limits {
        spacing: Duration::from_millis(1),
        poll: Duration::from_millis(10),
        settle: Duration::from_millis(60),
        ask_again: Duration::from_millis(10),
        ..Limits::default()
    }
}

struct World {
    server: FakeServer,
    agent: Arc<Agent>,
    _dir: TempDir,
}

impl World {
    async fn new(limits: Limits) -> Self {
        let server = FakeServer::start().await;
        let (agent, dir) = agent_with(&server, LEASE, Bmcs::new(limits)).await;
        Self {
            server,
            agent,
            _dir: dir,
        }
    }

    fn power_off(&self, target: &BmcTarget) -> Arc<JobContext> {
        let power = Power::Redfish(target.clone());
        self.job(
            JobSpec::PowerOff {
                power,
                login: None,
                permit: PermitId::new(),
            },
            Vec::new(),
        )
    }

    fn job(&self, spec: JobSpec, acts: Vec<ActRecord>) -> Arc<JobContext> {
        let job = Job {
            id: JobId::new(),
            attempt: 1,
            node: NodeId::new(),
            node_name: "n1".into(),
            origin: None,
            revoked_keys: None,
            epoch: 1,
            timeout_s: 60,
            acts,
            spec,
        };
        Arc::new(JobContext::new(job, Arc::clone(&self.agent)))
    }

    /// Runs a power-off to its outcome.
    async fn outcome_of_power_off(&mut self, target: &BmcTarget) -> Outcome {
        job::run(self.power_off(target), CancellationToken::new()).await;
        self.server.outcomes.recv().await.unwrap()
    }

    /// Runs a job to its outcome.
    async fn outcome_of(&mut self, spec: JobSpec, acts: Vec<ActRecord>) -> Outcome {
        job::run(self.job(spec, acts), CancellationToken::new()).await;
        self.server.outcomes.recv().await.unwrap()
    }

    /// Starts the machine into the live image, like the job.
    async fn start(&self, target: &BmcTarget, acts: Vec<ActRecord>) -> Result<Started, Failure> {
        let like = self.power_off(target);
        let context = JobContext::new(
            Job {
                acts,
                ..like.job.clone()
            },
            Arc::clone(&self.agent),
        );
        let bmc = self.agent.bmcs.open(target, context.job.id).unwrap();
        power::start(&context, &bmc, PermitId::new(), BootOnce::Pxe)
            .await
            .map(|(started, _)| started)
    }

    /// Waits until a job reports a matching wait.
    async fn hear(&self, sign: &str) {
        let heard = async {
            while !self
                .waits_for()
                .iter()
                .any(|sentence| sentence.contains(sign))
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let heard = tokio::time::timeout(Duration::from_secs(30), heard).await;
        assert!(
            heard.is_ok(),
            "{sign:?} is not among {:?}",
            self.waits_for()
        );
    }

    fn waits_for(&self) -> Vec<String> {
        let ledger = self.server.ledger.lock().unwrap();
        ledger
            .renewals
            .iter()
            .filter_map(|renewal| renewal.waiting_for.clone())
            .collect()
    }

    /// Returns the committed acts with the states read before.
    fn acts(&self) -> Vec<(String, String)> {
        let ledger = self.server.ledger.lock().unwrap();
        ledger
            .acts
            .iter()
            .map(|act| (act.act.clone(), act.before.clone()))
            .collect()
    }
}

const OFF: Outcome = Outcome::Succeeded {
    result: JobResult::PoweredOff,
};

#[tokio::test]
async fn a_bmc_that_hangs_is_waited_for_with_the_reason_and_holds_up_no_other() {
    let mut world = World::new(Limits {
        call: Duration::from_millis(300),
        ..limits()
    })
    .await;
    let (hung, well) = (FakeBmc::start().await, FakeBmc::start().await);
    hung.misbehave(Fault::Hang);
    let waiting = tokio::spawn(job::run(
        world.power_off(&hung.target),
        CancellationToken::new(),
    ));
    world.hear("the BMC of n1 (the BMC gave no answer").await;
    assert_eq!(world.outcome_of_power_off(&well.target).await, OFF);
    hung.misbehave(Fault::None);
    waiting.await.unwrap();
    assert_eq!(world.server.outcomes.recv().await, Some(OFF));
}

#[tokio::test]
async fn a_busy_or_garbled_answer_is_asked_again_and_the_act_is_done_once() {
    let mut world = World::new(limits()).await;
    for (fault, told) in [
        (Fault::Busy, "the BMC is busy"),
        (Fault::Garbage, "the BMC answers nonsense"),
        (Fault::Deep, "nonsense"),
    ] {
        let bmc = FakeBmc::start().await;
        bmc.state().power = "On";
        bmc.state().retry_after = "0";
        bmc.misbehave(fault);
        world.server.ledger.lock().unwrap().renewals.clear();
        let waiting = tokio::spawn(job::run(
            world.power_off(&bmc.target),
            CancellationToken::new(),
        ));
        world.hear(told).await;
        bmc.misbehave(Fault::None);
        waiting.await.unwrap();
        assert_eq!(world.server.outcomes.recv().await, Some(OFF));
        assert_eq!(bmc.state().resets, ["ForceOff"]);
    }
}

#[tokio::test]
async fn a_yes_without_a_deed_is_a_failure() {
    let mut world = World::new(Limits {
        power_off: Duration::from_millis(200),
        ..limits()
    })
    .await;
    let bmc = FakeBmc::start().await;
    bmc.state().power = "On";
    bmc.misbehave(Fault::Ignores);
    let Outcome::Failed { failure } = world.outcome_of_power_off(&bmc.target).await else {
        panic!("nothing happened")
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("power_off_not_seen", true),
        "{}",
        failure.message
    );

    bmc.state().power = "Off";
    let failure = world.start(&bmc.target, Vec::new()).await.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("bmc_nothing_happened", true),
        "{}",
        failure.message
    );
    assert!(
        world.acts().is_empty(),
        "no act is committed for a boot that would go elsewhere"
    );
}

#[tokio::test]
async fn a_power_act_whose_answer_is_lost_is_looked_at_and_not_sent_again() {
    let mut world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    bmc.misbehave(Fault::LostReply);
    assert_eq!(
        world.start(&bmc.target, Vec::new()).await.unwrap(),
        Started::Now
    );
    assert_eq!(
        world.start(&bmc.target, Vec::new()).await.unwrap(),
        Started::Now
    );
    assert_eq!(world.outcome_of_power_off(&bmc.target).await, OFF);
    assert_eq!(bmc.state().resets, ["On", "ForceRestart", "ForceOff"]);
}

#[tokio::test]
async fn an_act_that_an_earlier_attempt_committed_is_only_looked_at() {
    let world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    let started_at = Timestamp::from_second(1_770_000_000).unwrap();
    let record = ActRecord {
        attempt: 1,
        act: "reset".into(),
        before: "power on".into(),
        started_at,
        age_s: 40,
    };
    let started = world.start(&bmc.target, vec![record]).await.unwrap();
    assert_eq!(
        started,
        Started::Earlier {
            age: Duration::from_secs(40)
        }
    );
    assert!(bmc.state().resets.is_empty() && world.acts().is_empty());
}

#[tokio::test]
async fn a_bmc_that_changes_its_override_only_while_off_is_switched_off_for_it() {
    let world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    bmc.state().power = "On";
    bmc.state().override_only_off = true;
    world.start(&bmc.target, Vec::new()).await.unwrap();
    assert_eq!(bmc.state().resets, ["ForceOff", "On"]);
    assert_eq!(bmc.state().target, "Pxe", "set in between");
    let before = "power on; boot override not to be set before it is off";
    assert_eq!(world.acts(), [("reset".to_owned(), before.to_owned())]);
}

#[tokio::test]
async fn an_override_that_is_set_and_refused_boots_and_the_words_are_kept() {
    let world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    bmc.state().refusal = Some("It depends on other attributes.");
    world.start(&bmc.target, Vec::new()).await.unwrap();
    assert_eq!(bmc.state().resets, ["On"]);
    let acts = world.acts();
    let (_, before) = &acts[0];
    assert!(
        before.contains("set although the BMC refused it")
            && before.contains("It depends on other attributes."),
        "{before}"
    );
}

#[tokio::test]
async fn a_power_state_that_is_not_shown_is_told_as_unknown() {
    let mut world = World::new(Limits {
        between: Duration::from_millis(100),
        power_off: Duration::from_millis(100),
        ..limits()
    })
    .await;
    let bmc = FakeBmc::start().await;
    bmc.state().hides_power = true;
    let failure = world.start(&bmc.target, Vec::new()).await.unwrap_err();
    assert_eq!(
        failure.code.as_str(),
        "power_unknown",
        "{}",
        failure.message
    );
    assert!(world.acts().is_empty() && bmc.state().resets.is_empty());
    let Outcome::Failed { failure } = world.outcome_of_power_off(&bmc.target).await else {
        panic!("off was not seen")
    };
    assert_eq!(failure.code.as_str(), "power_off_not_seen");
    assert!(
        failure
            .message
            .contains("still shows an unknown power state"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_bmc_without_a_restart_is_switched_off_and_on() {
    let world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    bmc.state().power = "On";
    bmc.state().cannot_restart = true;
    world.start(&bmc.target, Vec::new()).await.unwrap();
    assert_eq!(bmc.state().resets, ["ForceOff", "On"]);
}

/// The strictest common lockout is three failures. The account stays open over several jobs, and
/// the first job after the repair succeeds.
#[tokio::test]
async fn a_changed_password_locks_no_account_and_is_told() {
    let mut world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    bmc.state().password = "changed".into();
    bmc.state().locks_after = 3;
    for _ in 0..5 {
        let Outcome::Failed { failure } = world.outcome_of_power_off(&bmc.target).await else {
            panic!("refused")
        };
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            ("bmc_credentials", false),
            "{}",
            failure.message
        );
    }
    assert!(
        bmc.state().logins_refused <= 2,
        "{} logins were refused",
        bmc.state().logins_refused
    );
    let mut corrected = bmc.target.clone();
    corrected.password = muster_core::values::Secret::new("changed");
    assert_eq!(world.outcome_of_power_off(&corrected).await, OFF);
}

#[tokio::test]
async fn another_certificate_ends_the_job_and_nothing_was_sent() {
    let mut world = World::new(limits()).await;
    let bmc = FakeBmc::start().await;
    let pinned = BmcTarget {
        certificate: Some(Digest::of(b"another")),
        ..bmc.target.clone()
    };
    let Outcome::Failed { failure } = world.outcome_of_power_off(&pinned).await else {
        panic!("a stranger")
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("bmc_certificate_changed", false),
        "{}",
        failure.message
    );
    assert_eq!(bmc.state().calls, 0);
}

/// A mistyped address: the BMC at the address controls another machine and accepts the same
/// password.
#[tokio::test]
async fn a_bmc_of_another_machine_is_told_nothing() {
    let bmc = FakeBmc::start().await;
    bmc.state().power = "On";
    let of = |uuid: &str, serial: Option<&str>| {
        let machine = Machine {
            uuid: Some(uuid.into()),
            serial: serial.map(str::to_owned),
        };
        BmcTarget {
            machine: Some(machine),
            ..bmc.target.clone()
        }
    };
    let other = "4c4c4544-0043-4810-8052-b4c04f4e3133";
    let nobodys = uuid::Uuid::nil().to_string();
    for target in [of(other, None), of(&nobodys, Some("SN-2"))] {
        let mut world = World::new(limits()).await;
        let [on, cycle] = switch(&target);
        let off = JobSpec::PowerOff {
            power: Power::Redfish(target),
            login: None,
            permit: PermitId::new(),
        };
        for spec in [on, cycle, off] {
            let Outcome::Failed { failure } = world.outcome_of(spec, Vec::new()).await else {
                panic!("another machine")
            };
            assert_eq!(
                (failure.code.as_str(), failure.retryable),
                ("identity_mismatch", false),
                "{}",
                failure.message
            );
            assert!(
                failure.message.contains("correct bmc.address of the node"),
                "{}",
                failure.message
            );
        }
        assert!(world.acts().is_empty() && bmc.state().resets.is_empty());
    }
    // The UUID in the other byte order is equal, and a filler serial is ignored.
    let mut world = World::new(limits()).await;
    let swapped = of(
        "44454c4c-4300-1048-8052-b4c04f4e3132",
        Some("To Be Filled By O.E.M."),
    );
    assert_eq!(world.outcome_of_power_off(&swapped).await, OFF);
}

const ON: Outcome = Outcome::Succeeded {
    result: JobResult::PoweredOn,
};

fn switch(target: &BmcTarget) -> [JobSpec; 2] {
    let (power, permit) = (Power::Redfish(target.clone()), PermitId::new());
    [
        JobSpec::PowerOn {
            power: power.clone(),
            permit,
        },
        JobSpec::PowerCycle { power, permit },
    ]
}

#[tokio::test]
async fn a_running_machine_stays_on_and_a_cycle_passes_the_firmware() {
    let bmc = FakeBmc::start().await;
    let mut world = World::new(limits()).await;
    let [on, cycle] = switch(&bmc.target);
    assert_eq!(world.outcome_of(on.clone(), Vec::new()).await, ON);
    assert_eq!(bmc.state().resets.clone(), ["On"]);
    assert_eq!(world.outcome_of(on, Vec::new()).await, ON);
    assert_eq!(bmc.state().resets.len(), 1, "it was on");
    assert_eq!(world.outcome_of(cycle, Vec::new()).await, ON);
    assert_eq!(bmc.state().resets.clone(), ["On", "ForceRestart"]);
    let acts: Vec<String> = world.acts().into_iter().map(|(act, _)| act).collect();
    assert_eq!(
        acts,
        ["power_on", "reset"],
        "each was committed before it was done"
    );
}

/// The earlier attempt may or may not have reset the machine. Only the visible state decides.
#[tokio::test]
async fn an_unconfirmed_power_cycle_is_neither_repeated_nor_done() {
    let bmc = FakeBmc::start().await;
    let mut world = World::new(limits()).await;
    let [_, cycle] = switch(&bmc.target);
    let before = ActRecord {
        attempt: 1,
        act: "reset".into(),
        before: "power on".into(),
        started_at: Timestamp::UNIX_EPOCH,
        age_s: 90,
    };
    // The machine is off, so the remaining step is to power on.
    assert_eq!(
        world.outcome_of(cycle.clone(), vec![before.clone()]).await,
        ON
    );
    assert_eq!(bmc.state().resets.clone(), ["On"]);
    let Outcome::Failed { failure } = world.outcome_of(cycle, vec![before]).await else {
        panic!("it is not known")
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("power_cycle_unproven", false),
        "{}",
        failure.message
    );
    assert_eq!(bmc.state().resets.clone(), ["On"], "nothing was done again");
}

fn rotate(target: &BmcTarget, tried: bool) -> JobSpec {
    let next = muster_core::values::Secret::new("Another-2-have.it");
    JobSpec::RotateBmc(RotateBmc {
        power: Power::Redfish(target.clone()),
        next,
        tried,
    })
}

const ROTATED: Outcome = Outcome::Succeeded {
    result: JobResult::BmcRotated,
};

#[tokio::test]
async fn a_password_is_changed_and_believed_when_it_was_logged_in_with() {
    let bmc = FakeBmc::start().await;
    let mut world = World::new(limits()).await;
    bmc.misbehave(Fault::Ignores);
    let Outcome::Failed { failure } = world
        .outcome_of(rotate(&bmc.target, false), Vec::new())
        .await
    else {
        panic!()
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("bmc_not_rotated", true),
        "{}",
        failure.message
    );
    bmc.misbehave(Fault::None);
    assert_eq!(
        world
            .outcome_of(rotate(&bmc.target, false), Vec::new())
            .await,
        ROTATED
    );
    assert_eq!(bmc.state().password, "Another-2-have.it");
    // The log and the status contain no password.
    let ledger = world.server.ledger.lock().unwrap();
    let told = format!("{:?}", ledger.renewals);
    assert!(
        told.contains("next password")
            && !told.contains("Another-2-have.it")
            && !told.contains("secret"),
        "{told}"
    );
}

/// The earlier attempt crashed during the change. The next attempt ends with the new password in
/// both cases, and locks no account.
#[tokio::test]
async fn a_change_that_nobody_heard_of_is_found_out_by_logging_in() {
    let mut world = World::new(limits()).await;
    for done in [true, false] {
        let bmc = FakeBmc::start().await;
        bmc.state().locks_after = 3;
        if done {
            bmc.state().password = "Another-2-have.it".into();
        }
        assert_eq!(
            world
                .outcome_of(rotate(&bmc.target, true), Vec::new())
                .await,
            ROTATED,
            "{done}"
        );
        assert_eq!(bmc.state().password, "Another-2-have.it");
        assert!(bmc.state().logins_refused <= 1);
    }
    // The answer was lost, but the change was made.
    let bmc = FakeBmc::start().await;
    bmc.misbehave(Fault::LostReply);
    assert_eq!(
        world
            .outcome_of(rotate(&bmc.target, false), Vec::new())
            .await,
        ROTATED
    );
    // The BMC accepts neither password.
    bmc.misbehave(Fault::None);
    bmc.state().password = "a third".into();
    let Outcome::Failed { failure } = world
        .outcome_of(rotate(&bmc.target, true), Vec::new())
        .await
    else {
        panic!()
    };
    assert!(
        !failure.retryable && failure.message.contains("neither of the two"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_bmc_without_accounts_says_so() {
    let bmc = FakeBmc::start().await;
    bmc.state().has_accounts = false;
    let mut world = World::new(limits()).await;
    let Outcome::Failed { failure } = world
        .outcome_of(rotate(&bmc.target, false), Vec::new())
        .await
    else {
        panic!()
    };
    assert_eq!(
        (failure.code.as_str(), failure.retryable),
        ("bmc_unsupported", false)
    );
    assert!(
        failure.message.contains("this BMC has no account service"),
        "{}",
        failure.message
    );
}

/// While the valid password is unknown, power acts work with either password.
#[tokio::test]
async fn power_goes_by_whichever_password_the_bmc_has() {
    for password in ["secret", "Another-2-have.it"] {
        let bmc = FakeBmc::start().await;
        bmc.state().password = password.into();
        bmc.state().locks_after = 3;
        let mut world = World::new(limits()).await;
        let also = Some(muster_core::values::Secret::new("Another-2-have.it"));
        let target = BmcTarget {
            also,
            ..bmc.target.clone()
        };
        let [on, _] = switch(&target);
        assert_eq!(world.outcome_of(on, Vec::new()).await, ON, "{password}");
    }
}

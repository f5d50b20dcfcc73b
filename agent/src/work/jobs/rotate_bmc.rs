//! Changes the password of a BMC account. Only a login counts as proof: with the new password the
//! change is complete, with the old password the change is still to do. A crash in between needs no
//! record, because the next attempt checks both logins.

use muster_core::values::Secret;
use muster_core::wire::bmc::Power;
use muster_core::wire::bmc::{BmcTarget, IpmiTarget, RotateBmc};
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::JobResult;

use super::power::{By, by, open, persist};
use crate::bmc::BmcError;
use crate::work::context::{JobContext, failed, fatal};

pub(super) async fn run(context: &JobContext, order: &RotateBmc) -> Result<JobResult, Failure> {
    let next = with(&order.power, &order.next);
    if order.tried && takes(context, &next).await? {
        context
            .voice
            .log("the BMC takes the next password already".to_owned());
        return Ok(JobResult::BmcRotated);
    }
    let name = &context.job.node_name;
    let neither = |said: &str| {
        fatal(
            FailureCode::BmcCredentials,
            format!(
                "the BMC of {name} takes neither of the two passwords that it may have: {said}"
            ),
        )
    };
    let by = by(context, &order.power)
        .await
        .map_err(|failure| match failure.code.as_str() {
            "bmc_credentials" if order.tried => neither(&failure.message),
            _ => failure,
        })?;
    let By::Bmc(bmc) = by else {
        return Err(fatal(FailureCode::NoBmc, format!("{name} has no BMC")));
    };
    match bmc.set_password(&order.next).await {
        Ok(()) => context
            .voice
            .log("the BMC said yes; logging in with the next password".to_owned()),
        // The change may have happened. The login shows the result.
        Err(error @ BmcError::Timeout { .. }) => context.voice.log(format!("{error}")),
        Err(error @ BmcError::BadCredentials { .. }) if order.tried => {
            return Err(neither(&error.to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    match takes(context, &next).await? {
        true => Ok(JobResult::BmcRotated),
        false => Err(failed(
            FailureCode::BmcNotRotated,
            format!("the BMC of {name} does not take the next password; the former is kept"),
        )),
    }
}

/// Returns whether the BMC accepts a password, in a new session.
async fn takes(context: &JobContext, power: &Power) -> Result<bool, Failure> {
    let bmc = open(context, power)?;
    let seen = persist(context, || async {
        match bmc.observe().await {
            Err(BmcError::BadCredentials { .. }) => Ok(false),
            seen => seen.map(|_| true),
        }
    });
    seen.await
}

/// Returns the same account with another password.
fn with(power: &Power, password: &Secret) -> Power {
    let password = password.clone();
    match power {
        Power::Redfish(target) => Power::Redfish(BmcTarget {
            password,
            also: None,
            ..target.clone()
        }),
        Power::Ipmi(target) => Power::Ipmi(IpmiTarget {
            password,
            also: None,
            ..target.clone()
        }),
        Power::Manual { person } => Power::Manual {
            person: person.clone(),
        },
    }
}

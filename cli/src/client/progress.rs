//! Waits for operations: bars on a terminal, lines in a pipe, silent with --quiet. An unreachable
//! server is
//! retried.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use muster_api::client::{Client, ClientError};
use muster_api::operations::{Operation, OperationState};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::exit::{Ended, Exit};
use super::output::clean;
use super::session::Session;

const LOOK: Duration = Duration::from_secs(1);
/// The number of operations followed in parallel.
const MOST: usize = 200;

/// Follows operations until all ended, and returns their ends in the given order. Ctrl-C ends the
/// wait; the operations continue.
///
/// # Errors
/// [`Ended`] when an operation fails, `timeout` passes, or Ctrl-C is pressed; otherwise the
/// server's error.
pub(crate) async fn follow(
    session: &Session,
    operations: &[Uuid],
    timeout: Duration,
) -> anyhow::Result<Vec<Operation>> {
    if operations.len() > MOST {
        return Err(ClientError::Usage(format!(
            "at most {MOST} operations are waited for at once"
        ))
        .into());
    }
    let bars =
        (!session.output.is_quiet() && std::io::stderr().is_terminal()).then(MultiProgress::new);
    tokio::select! {
        ended = follow_all(session, operations, timeout, bars.as_ref()) => ended,
        _ = tokio::signal::ctrl_c() => {
            // The bars are drawn by separate threads, and would overwrite later output.
            if let Some(bars) = bars {
                bars.set_draw_target(ProgressDrawTarget::hidden());
                eprintln!();
            }
            let told = format!("interrupted; the operation continues on the server. {}", again(operations));
            Err(Ended { exit: Exit::Interrupted, told }.into())
        }
    }
}

/// The options of following.
fn again(operations: &[Uuid]) -> String {
    let ids: Vec<String> = operations.iter().map(Uuid::to_string).collect();
    format!(
        "To go on watching: muster operation watch {}",
        ids.join(" ")
    )
}

async fn follow_all(
    session: &Session,
    operations: &[Uuid],
    timeout: Duration,
    bars: Option<&MultiProgress>,
) -> anyhow::Result<Vec<Operation>> {
    let mut following = JoinSet::new();
    for (at, id) in operations.iter().enumerate() {
        let view = if session.output.is_quiet() {
            View::Nothing
        } else {
            View::new(bars)
        };
        let (client, id, deadline) = (session.client.clone(), *id, Instant::now() + timeout);
        following.spawn(async move { (at, follow_one(client, id, view, deadline).await) });
    }
    let mut ended = Vec::with_capacity(operations.len());
    let mut failed = Vec::new();
    let mut late = None;
    while let Some(joined) = following.join_next().await {
        match joined? {
            (at, Ok(operation)) => {
                if operation.state != OperationState::Succeeded {
                    failed.push(sentence(&operation));
                }
                ended.push((at, operation));
            }
            (_, Err(ClientError::TimedOut(why))) => late = Some(why),
            (_, Err(error)) => return Err(error.into()),
        }
    }
    ended.sort_by_key(|(at, _)| *at);
    match (failed.is_empty(), late) {
        (false, _) => Err(Ended {
            exit: Exit::EndedBadly,
            told: failed.join("\n"),
        }
        .into()),
        (true, Some(why)) => Err(Ended {
            exit: Exit::NotInTime,
            told: format!("{why}\n{}", again(operations)),
        }
        .into()),
        (true, None) => Ok(ended.into_iter().map(|(_, operation)| operation).collect()),
    }
}

async fn follow_one(
    client: Client,
    id: Uuid,
    mut view: View,
    deadline: Instant,
) -> Result<Operation, ClientError> {
    loop {
        let last = match client.operation(id).await {
            Ok(operation) => {
                view.show(&operation);
                if operation.done {
                    view.end(&operation);
                    return Ok(operation);
                }
                operation.progress.message
            }
            Err(error) if error.away() => error.to_string(),
            Err(error) => return Err(error),
        };
        if Instant::now() >= deadline {
            return Err(ClientError::TimedOut(format!(
                "operation {id} is not done: {last}"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the end of an operation in a line.
pub(crate) fn sentence(operation: &Operation) -> String {
    let target = operation
        .target
        .as_ref()
        .map_or("", |target| target.name.as_str());
    let why = operation
        .error
        .as_ref()
        .map_or(operation.progress.message.as_str(), |error| {
            error.message.as_str()
        });
    let line = format!("{} {target}: {}", operation.kind, operation.state.as_str());
    clean(&if why.is_empty() {
        line
    } else {
        format!("{line} ({why})")
    })
}

/// Styles: a step with a size, a step without a size, an ended operation.
const SIZED: &str = "{spinner} {prefix} {bar:10} {percent:>3} % {wide_msg}";
const UNSIZED: &str = "{spinner} {prefix} {wide_msg}";
const ENDED: &str = "{wide_msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The display of an operation.
enum View {
    Bar(ProgressBar),
    /// The last printed line.
    Lines(String),
    Nothing,
}

impl View {
    fn new(bars: Option<&MultiProgress>) -> Self {
        let Some(bars) = bars else {
            return Self::Lines(String::new());
        };
        // Added to the other bars first, because a single ticking bar leaves a line behind.
        let bar = bars.add(ProgressBar::new(100).with_style(style(UNSIZED)));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    fn show(&mut self, operation: &Operation) {
        let progress = &operation.progress;
        let target = operation
            .target
            .as_ref()
            .map_or("", |target| target.name.as_str());
        let step = progress
            .step
            .as_deref()
            .map(|step| format!("{step}: "))
            .unwrap_or_default();
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                bar.set_prefix(clean(&format!("{target} {}", operation.kind)));
                // With unknown progress, a bar would look like zero progress.
                bar.set_style(style(if progress.percent.is_some() {
                    SIZED
                } else {
                    UNSIZED
                }));
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a percentage is 0 to 100"
                )]
                bar.set_position(progress.percent.unwrap_or(0.0) as u64);
                bar.set_message(clean(&format!("{step}{}", progress.message)));
            }
            Self::Lines(last) => {
                let line = clean(&format!(
                    "{target} {} {}: {step}{}",
                    operation.kind,
                    operation.state.as_str(),
                    progress.message
                ));
                if line != *last {
                    eprintln!("{line}");
                    *last = line;
                }
            }
        }
    }

    fn end(&self, operation: &Operation) {
        match self {
            Self::Bar(bar) => {
                bar.set_style(style(ENDED));
                bar.abandon_with_message(sentence(operation));
            }
            Self::Lines(_) => eprintln!("{}", sentence(operation)),
            Self::Nothing => {}
        }
    }
}

//! The log of a long-running program on standard error: format, level, and the change of the level
//! by signals.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::{ArgMatches, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The variable with the filter of the log.
const FILTER: &str = "MUSTER_LOG";

/// The targets of Muster's own log lines. Only these become more verbose, because the lines of
/// libraries hide the others.
const OWN: [&str; 5] = [
    "muster",
    "muster_agent",
    "muster_api",
    "muster_core",
    "muster_server",
];

/// A long-running program with the options of its log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Logged<Program: clap::Args> {
    #[command(flatten)]
    pub program: Program,
    /// Format of the log on standard error: text for people, or one JSON object for each line
    #[arg(long, env = "MUSTER_LOG_FORMAT", default_value = "text")]
    pub log_format: Format,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

impl Format {
    /// Returns the chosen format. Verbs without the option log as text.
    fn of(matches: &ArgMatches) -> Self {
        let chosen = matches
            .subcommand()
            .and_then(|(_, program)| program.try_get_one::<Self>("log_format").ok()?);
        chosen.copied().unwrap_or_default()
    }
}

/// The level of the running program, changed by signals.
pub(crate) struct Level {
    filter: reload::Handle<EnvFilter, Registry>,
    configured: String,
    /// The level of Muster's own lines after a change.
    raised: Option<LevelFilter>,
}

/// Starts the log of the process.
pub(crate) fn start(matches: &ArgMatches) -> Level {
    let configured = configured(std::env::var_os(FILTER));
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&configured));
    let registry = tracing_subscriber::registry().with(filter);
    match Format::of(matches) {
        Format::Text => {
            let colour = crate::client::output::colours(std::io::stderr().is_terminal());
            let lines = fmt::layer().with_ansi(colour).with_writer(std::io::stderr);
            registry.with(lines).init();
        }
        Format::Json => {
            let lines = fmt::layer().json().flatten_event(true);
            let lines = lines.with_current_span(false).with_writer(std::io::stderr);
            registry.with(lines).init();
        }
    }
    Level {
        filter: handle,
        configured,
        raised: None,
    }
}

/// Returns the filter of the environment, or `info` without a valid filter.
fn configured(set: Option<OsString>) -> String {
    set.and_then(|set| set.into_string().ok())
        .filter(|set| EnvFilter::try_new(set).is_ok() && !set.is_empty())
        .unwrap_or_else(|| "info".to_owned())
}

impl Level {
    /// Watches the signals until the process ends: SIGUSR1 makes Muster's own lines one level more
    /// verbose, and SIGUSR2 restores the configured level.
    ///
    /// # Errors
    /// When the process cannot watch signals.
    pub(crate) fn watch(mut self) -> std::io::Result<()> {
        let mut more = signal(SignalKind::user_defined1())?;
        let mut back = signal(SignalKind::user_defined2())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the process owns the watch of its signals, from start to exit"
        )]
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(()) = more.recv() => self.raise(),
                    Some(()) = back.recv() => self.restore(),
                    else => return,
                }
            }
        });
        Ok(())
    }

    fn raise(&mut self) {
        let now = self.raised.or_else(|| {
            let configured = EnvFilter::new(&self.configured);
            configured.max_level_hint()
        });
        self.set(Some(more_verbose(now.unwrap_or(LevelFilter::TRACE))));
    }

    fn restore(&mut self) {
        self.set(None);
    }

    /// Sets the level of Muster's own lines, and logs the new filter at the level `error`, so that
    /// every filter shows the change.
    fn set(&mut self, raised: Option<LevelFilter>) {
        self.raised = raised;
        let filter = filter(&self.configured, raised);
        match self.filter.reload(EnvFilter::new(&filter)) {
            Ok(()) => tracing::error!(filter, "log level changed by a signal"),
            Err(error) => tracing::error!(%error, "log level not changed"),
        }
    }
}

/// Returns the next level: `error`, `warn`, `info`, `debug`, `trace`.
fn more_verbose(level: LevelFilter) -> LevelFilter {
    match level {
        LevelFilter::OFF => LevelFilter::ERROR,
        LevelFilter::ERROR => LevelFilter::WARN,
        LevelFilter::WARN => LevelFilter::INFO,
        LevelFilter::INFO => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Returns the configured filter with Muster's own lines at the raised level.
fn filter(configured: &str, raised: Option<LevelFilter>) -> String {
    let own = OWN.iter().filter_map(|target| {
        let level = raised?;
        Some(format!(",{target}={level}"))
    });
    [configured.to_owned()].into_iter().chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_rises_one_step_at_a_time_up_to_trace() {
        let mut level = LevelFilter::OFF;
        for next in ["error", "warn", "info", "debug", "trace", "trace"] {
            level = more_verbose(level);
            assert_eq!(level.to_string(), next);
        }
    }

    #[test]
    fn only_own_lines_become_more_verbose() {
        let raised = filter("muster_server=info,warn", Some(LevelFilter::DEBUG));
        let parsed = EnvFilter::try_new(&raised).unwrap().to_string();
        assert!(parsed.contains("muster_server=debug"), "{parsed}");
        assert!(!parsed.contains("muster_server=info"), "{parsed}");
        assert!(parsed.split(',').any(|part| part == "warn"), "{parsed}");
        assert_eq!(filter("warn", None), "warn");
    }

    #[test]
    fn an_invalid_filter_is_replaced_by_info() {
        assert_eq!(configured(None), "info");
        assert_eq!(configured(Some("muster=loud".into())), "info");
        assert_eq!(
            configured(Some("muster=debug,warn".into())),
            "muster=debug,warn"
        );
    }
}

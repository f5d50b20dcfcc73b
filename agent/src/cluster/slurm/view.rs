//! Parses the state of a node from `scontrol show node NAME`. The text is the same in every version
//! since 20. JSON output was added to scontrol in 23.02.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_core::clusters::slurm::{LOST_CONTACT, OUR_REASON};
use muster_core::clusters::{DrainReason, Member};

use super::error::SlurmError;

/// Fields with the rest of the line as value.
const WHOLE_LINES: [&str; 4] = ["OS=", REASON, "Comment=", "Extra="];
/// Fields with the text of a person, which may have several lines. scontrol indents the later lines
/// of a reason by ten blanks, and prints a comment as it is (`slurm_sprint_node_table` in
/// api/node_info.c of Slurm 22.05).
const FREE_TEXTS: [&str; 3] = [REASON, "Comment=", "Extra="];
const REASON: &str = "Reason=";
/// Blanks before each of scontrol's own lines after the first.
const INDENT: usize = 3;
/// Flags of a node accepting jobs normally.
const HARMLESS: [&str; 7] = [
    "BLOCKED",
    "CLOUD",
    "COMPLETING",
    "DYNAMIC_FUTURE",
    "DYNAMIC_NORM",
    "PLANNED",
    "RESERVED",
];

/// The base state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseState {
    Unknown,
    Down,
    Idle,
    Allocated,
    Mixed,
    Error,
    Future,
}

/// A node as seen by its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    pub base: BaseState,
    /// Flags such as `DRAIN`, `NOT_RESPONDING`, `INVALID_REG`.
    pub flags: BTreeSet<String>,
    pub address: String,
    /// Total number of CPUs.
    pub cpus: u32,
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    /// Memory in MiB.
    pub real_memory: u64,
    /// Number of CPUs allocated to jobs.
    pub allocated_cpus: u32,
    /// Generic resources such as `gpu:h100:8`, empty without resources.
    pub gres: String,
    pub features: BTreeSet<String>,
    /// Boot time in the local time of the controller. `None` until slurmd has registered.
    pub boot_time: Option<String>,
    /// Start time of slurmd in the local time of the controller. `None` until slurmd has
    /// registered.
    pub slurmd_start_time: Option<String>,
    /// Version of slurmd.
    pub version: Option<String>,
    /// Reason without the trailing `[who@when]`.
    pub reason: Option<String>,
}

impl NodeView {
    /// Parses the text of a single node.
    ///
    /// # Errors
    /// [`SlurmError::Garbage`] for any text other than a complete node description.
    pub fn parse(text: &str) -> Result<Self, SlurmError> {
        let Fields {
            values: fields,
            reason_rest,
        } = fields(text)?;
        let get = |name: &str| {
            fields
                .get(name)
                .copied()
                .ok_or_else(|| garbage(format!("a node without {name}")))
        };
        let number = |name: &str| {
            get(name)?
                .parse()
                .map_err(|_| garbage(format!("{name}={}", fields[name])))
        };
        let (base, flags) = state(get("State")?)?;
        let list = |name: &str| get(name).map(|value| given(value).unwrap_or_default());
        Ok(Self {
            name: get("NodeName")?.to_owned(),
            base,
            flags,
            // For an undefined address the controller uses the node name.
            address: fields
                .get("NodeAddr")
                .or(fields.get("NodeName"))
                .copied()
                .unwrap_or_default()
                .to_owned(),
            cpus: number("CPUTot")?,
            sockets: number("Sockets")?,
            cores_per_socket: number("CoresPerSocket")?,
            threads_per_core: number("ThreadsPerCore")?,
            real_memory: get("RealMemory")?
                .parse()
                .map_err(|_| garbage(format!("RealMemory={}", fields["RealMemory"])))?,
            allocated_cpus: number("CPUAlloc")?,
            gres: list("Gres")?.to_owned(),
            features: list("ActiveFeatures")?
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            boot_time: given(get("BootTime")?).map(str::to_owned),
            slurmd_start_time: given(get("SlurmdStartTime")?).map(str::to_owned),
            version: fields.get("Version").map(|&version| version.to_owned()),
            reason: fields
                .get("Reason")
                .and_then(|&reason| given(reason))
                .map(|reason| join_reason(reason, &reason_rest)),
        })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// Returns whether a drain blocks new jobs.
    pub fn draining(&self) -> bool {
        self.has("DRAIN")
    }

    /// Returns whether the stored reason is the given reason of Muster.
    pub fn drained_for(&self, reason: DrainReason) -> bool {
        self.reason.as_deref() == Some(reason.as_str())
    }

    /// Returns whether a job runs or completes on the node.
    pub fn busy(&self) -> bool {
        matches!(self.base, BaseState::Allocated | BaseState::Mixed)
            || self.has("COMPLETING")
            || self.allocated_cpus > 0
    }

    /// Returns whether the node can leave the cluster safely: no job runs, and no job will start.
    pub fn idle_for_good(&self) -> bool {
        !self.busy()
            && (self.draining()
                || matches!(
                    self.base,
                    BaseState::Down | BaseState::Future | BaseState::Unknown
                ))
    }

    /// Returns whether slurmd has registered and answers.
    pub fn present(&self) -> bool {
        let registered = self.boot_time.is_some() && self.slurmd_start_time.is_some();
        registered && !self.has("NOT_RESPONDING") && self.base != BaseState::Unknown
    }

    /// Returns whether Muster may resume the node. The node was drained by Muster, or was marked
    /// down by the controller while unreachable and is back. A drain set by an operator is never
    /// lifted.
    pub fn ours_to_resume(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default();
        let lost =
            self.base == BaseState::Down && !self.draining() && LOST_CONTACT.contains(&reason);
        self.present() && ((self.draining() && reason.starts_with(OUR_REASON)) || lost)
    }

    /// Returns the differences between the configuration in the controller and the wanted
    /// configuration.
    pub fn misconfigured(&self, wanted: &Member) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut need = |what: &str, has: &dyn fmt::Display, wants: &dyn fmt::Display| {
            let (has, wants) = (has.to_string(), wants.to_string());
            if has != wants {
                wrong.push(format!("{what} is {has} instead of {wants}"));
            }
        };
        need("NodeAddr", &self.address, &wanted.address);
        need("CPUs", &self.cpus, &wanted.cpus());
        need("Sockets", &self.sockets, &wanted.sockets);
        need(
            "CoresPerSocket",
            &self.cores_per_socket,
            &wanted.cores_per_socket,
        );
        need(
            "ThreadsPerCore",
            &self.threads_per_core,
            &wanted.threads_per_core,
        );
        need("RealMemory", &self.real_memory, &wanted.real_memory);
        let gres = wanted
            .gpus
            .as_ref()
            .map(|(model, count)| format!("gpu:{model}:{count}"))
            .unwrap_or_default();
        // The controller appends the sockets of the devices: gpu:h100:8(S:0-1).
        need(
            "Gres",
            &self.gres.split('(').next().unwrap_or_default(),
            &gres,
        );
        for feature in &wanted.features {
            if !self.features.contains(feature) {
                wrong.push(format!("feature {feature} is missing"));
            }
        }
        wrong
    }

    /// Returns the reasons why the node does not accept jobs, or an empty list.
    pub fn complaints(&self, wanted: &Member) -> Vec<String> {
        let mut complaints = self.misconfigured(wanted);
        let working = matches!(
            self.base,
            BaseState::Idle | BaseState::Mixed | BaseState::Allocated
        );
        if !self.present() {
            complaints.push("its slurmd has not registered, or does not answer".into());
        }
        if !working
            || self
                .flags
                .iter()
                .any(|flag| !HARMLESS.contains(&flag.as_str()))
        {
            complaints.push(format!("the controller shows it {self}"));
        }
        complaints
    }
}

impl fmt::Display for NodeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format!("{:?}", self.base).to_uppercase())?;
        for flag in &self.flags {
            write!(f, "+{flag}")?;
        }
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

fn garbage(what: String) -> SlurmError {
    SlurmError::Garbage {
        what: what.chars().take(200).collect(),
    }
}

/// The fields of a node.
#[derive(Default)]
struct Fields<'a> {
    /// Values by name. The value of a free text is its first line.
    values: BTreeMap<&'a str, &'a str>,
    /// The later lines of the reason.
    reason_rest: Vec<&'a str>,
}

/// Returns every `Name=value` of the text. Names must be unique. Text without a name is an error,
/// unless the text continues the free text before.
fn fields(text: &str) -> Result<Fields<'_>, SlurmError> {
    let mut fields = Fields::default();
    let mut free: Option<&str> = None;
    for line in text.lines() {
        let field = line.trim();
        if field.is_empty() {
            continue;
        }
        if free.is_some() && continues_text(line) {
            if free == Some(REASON) {
                fields.reason_rest.push(field);
            }
            continue;
        }
        let name = WHOLE_LINES.into_iter().find(|name| field.starts_with(name));
        free = name.filter(|name| FREE_TEXTS.contains(name));
        if let Some(name) = name {
            add_field(
                &mut fields,
                name.trim_end_matches('='),
                &field[name.len()..],
            )?;
            continue;
        }
        for word in field.split_whitespace() {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| garbage(format!("{word:?} in the view of a node")))?;
            add_field(&mut fields, name, value)?;
        }
    }
    Ok(fields)
}

fn add_field<'a>(fields: &mut Fields<'a>, name: &'a str, value: &'a str) -> Result<(), SlurmError> {
    match fields.values.insert(name, value) {
        None => Ok(()),
        Some(_) => Err(garbage(format!("a node with two values of {name}"))),
    }
}

/// Returns whether a line after a free text belongs to the text. A line of scontrol itself has its
/// indent and begins with a name. A forged line of this form harms at most its own node.
fn continues_text(line: &str) -> bool {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_name = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.is_empty() && name.bytes().all(allowed)
    };
    let named = first.split_once('=').is_some_and(|(name, _)| is_name(name));
    indent != INDENT || !named
}

/// Returns the reason in one line, without the author behind the first line.
fn join_reason(first: &str, rest: &[&str]) -> String {
    let lines = [without_author(first)]
        .into_iter()
        .chain(rest.iter().copied());
    lines.collect::<Vec<_>>().join(" ")
}

fn state(text: &str) -> Result<(BaseState, BTreeSet<String>), SlurmError> {
    let mut words = text.split('+');
    let base = match words.next().unwrap_or_default() {
        "UNKNOWN" => BaseState::Unknown,
        "DOWN" => BaseState::Down,
        "IDLE" => BaseState::Idle,
        "ALLOCATED" => BaseState::Allocated,
        "MIXED" => BaseState::Mixed,
        "ERROR" => BaseState::Error,
        "FUTURE" => BaseState::Future,
        _ => return Err(garbage(format!("State={text}"))),
    };
    let flags: BTreeSet<String> = words.map(str::to_owned).collect();
    match flags
        .iter()
        .all(|flag| !flag.is_empty() && flag.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    {
        true => Ok((base, flags)),
        false => Err(garbage(format!("State={text}"))),
    }
}

/// Returns the value, or `None` for the words printed by Slurm for a missing value.
pub(super) fn given(value: &str) -> Option<&str> {
    (!matches!(value, "" | "(null)" | "None" | "Unknown" | "N/A")).then_some(value)
}

/// Returns `Not responding [slurm@2026-11-21T03:43:22]` without the author.
fn without_author(reason: &str) -> &str {
    match reason.rsplit_once(" [") {
        Some((text, author)) if author.ends_with(']') && author.contains('@') => text,
        Some(_) | None => reason,
    }
}

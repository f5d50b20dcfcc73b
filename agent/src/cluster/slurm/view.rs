//! What the controller says of a node: `scontrol show node NAME`, the same text in every version since 20. JSON came to scontrol with 23.02.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use muster_core::clusters::{LOST_SIGHT, SlurmNode};

use super::error::SlurmError;

/// Reasons that Muster gives begin so; drains with any other are somebody else's, and stay.
pub const OUR_PREFIX: &str = muster_core::clusters::OUR_REASON;
/// Fields whose value is the rest of their line.
const WHOLE_LINES: [&str; 4] = ["OS=", "Reason=", "Comment=", "Extra="];
/// Flags beside which a node takes jobs as it should.
const HARMLESS: [&str; 7] = [
    "BLOCKED",
    "CLOUD",
    "COMPLETING",
    "DYNAMIC_FUTURE",
    "DYNAMIC_NORM",
    "PLANNED",
    "RESERVED",
];

/// The base of a node's state.
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

/// A node as its controller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    pub base: BaseState,
    /// `DRAIN`, `NOT_RESPONDING`, `INVALID_REG`…
    pub flags: BTreeSet<String>,
    pub address: String,
    pub cpus: u32,
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    /// MiB.
    pub real_memory: u64,
    pub allocated_cpus: u32,
    /// `gpu:h100:8`, empty without.
    pub gres: String,
    pub features: BTreeSet<String>,
    /// In the controller's local time; `None` until slurmd has registered.
    pub boot_time: Option<String>,
    pub slurmd_start_time: Option<String>,
    pub version: Option<String>,
    /// Without the `[who@when]` behind it.
    pub reason: Option<String>,
}

impl NodeView {
    /// Reads one node's text.
    ///
    /// # Errors
    /// [`SlurmError::Garbage`] for anything that is not such a text, whole.
    pub fn parse(text: &str) -> Result<Self, SlurmError> {
        let fields = fields(text)?;
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
            // An undefined address is the node's name.
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
                .map(|reason| without_author(reason).to_owned()),
        })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// Whether no new job starts there by somebody's wish.
    pub fn draining(&self) -> bool {
        self.has("DRAIN")
    }

    /// Whether a job runs or ends there.
    pub fn busy(&self) -> bool {
        matches!(self.base, BaseState::Allocated | BaseState::Mixed)
            || self.has("COMPLETING")
            || self.allocated_cpus > 0
    }

    /// Whether it can leave the cluster without harm: no job, and none will come.
    pub fn idle_for_good(&self) -> bool {
        !self.busy()
            && (self.draining()
                || matches!(
                    self.base,
                    BaseState::Down | BaseState::Future | BaseState::Unknown
                ))
    }

    /// Whether slurmd has registered and answers.
    pub fn present(&self) -> bool {
        let registered = self.boot_time.is_some() && self.slurmd_start_time.is_some();
        registered && !self.has("NOT_RESPONDING") && self.base != BaseState::Unknown
    }

    /// Whether Muster may resume it: drained by Muster, or lost from sight by the controller and back. A person's drain is never undone.
    pub fn ours_to_resume(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default();
        let lost = self.base == BaseState::Down && !self.draining() && LOST_SIGHT.contains(&reason);
        self.present() && ((self.draining() && reason.starts_with(OUR_PREFIX)) || lost)
    }

    /// Where the configuration the controller holds is not the wanted one.
    pub fn misconfigured(&self, wanted: &SlurmNode) -> Vec<String> {
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
        // The controller appends the sockets it found the devices on: gpu:h100:8(S:0-1).
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

    /// Why it does not take jobs as it should; empty when it does.
    pub fn complaints(&self, wanted: &SlurmNode) -> Vec<String> {
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

/// Every `Name=value` of the text. Names are unique; what has no name is not understood.
fn fields(text: &str) -> Result<BTreeMap<&str, &str>, SlurmError> {
    let mut fields = BTreeMap::new();
    let mut add = |name, value| match fields.insert(name, value) {
        None => Ok(()),
        Some(_) => Err(garbage(format!("a node with two values of {name}"))),
    };
    for line in text.lines().map(str::trim) {
        if let Some(name) = WHOLE_LINES.iter().find(|name| line.starts_with(**name)) {
            add(name.trim_end_matches('='), &line[name.len()..])?;
            continue;
        }
        for word in line.split_whitespace() {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| garbage(format!("{word:?} in the view of a node")))?;
            add(name, value)?;
        }
    }
    Ok(fields)
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

/// A value that is one: Slurm prints several words for none.
pub(super) fn given(value: &str) -> Option<&str> {
    (!matches!(value, "" | "(null)" | "None" | "Unknown" | "N/A")).then_some(value)
}

/// `Not responding [slurm@2026-11-21T03:43:22]` without its author.
fn without_author(reason: &str) -> &str {
    match reason.rsplit_once(" [") {
        Some((text, author)) if author.ends_with(']') && author.contains('@') => text,
        Some(_) | None => reason,
    }
}

//! Actions requested by Xid and SXid errors of NVIDIA's drivers. The tables are versioned data
//! (`xid.toml`, `sxid.toml`), and a site can override single rows. The driver's own statement on
//! the log line, or its recommendation in Xid 154, takes precedence over both.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// An action, ordered from the mildest to the most severe. From [`Action::ResetGpu`] on, the node
/// must not take work until the action is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = XidAction))]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Ignore,
    /// The job is lost. The event alone does not prove a GPU fault.
    RestartApp,
    /// Driver and firmware versions are incompatible.
    Update,
    ResetGpu,
    RebootNode,
    /// Drain the node and run the suite for suspects. A reset would hide the fault.
    Diagnose,
    /// Check cables and power, or contact the vendor.
    Inspect,
}

impl Action {
    /// Returns whether the node must not take work until the action is done.
    pub fn is_fatal(self) -> bool {
        self >= Self::ResetGpu
    }

    /// Returns the text shown to users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "none",
            Self::RestartApp => "restart app",
            Self::Update => "update",
            Self::ResetGpu => "reset gpu",
            Self::RebootNode => "reboot node",
            Self::Diagnose => "diagnose",
            Self::Inspect => "inspect",
        }
    }

    /// Every action, the mildest first.
    pub const ALL: [Self; 7] = [
        Self::Ignore,
        Self::RestartApp,
        Self::Update,
        Self::ResetGpu,
        Self::RebootNode,
        Self::Diagnose,
        Self::Inspect,
    ];

    /// Parses the text of [`Action::as_str`].
    pub fn told(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }

    /// Returns the action as a single word, for drain reasons: `reset_gpu`.
    pub fn token(self) -> String {
        self.as_str().replace(' ', "_")
    }

    /// Parses the word of [`Action::token`].
    pub fn from_token(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.token() == word)
    }

    /// Maps the driver's own word, as in `GPU recovery action changed from 0x0 (None) to 0x4 (Drain
    /// and Reset)`. The words are those of NVML's `nvmlDeviceGpuRecoveryAction_t`. An unknown word
    /// requests an inspection by a person.
    pub fn recommended(word: &str) -> Self {
        match word {
            "None" => Self::Ignore,
            "GPU Reset Required" | "GPU Reset" | "Reset" | "Drain and Reset" | "Drain P2P"
            | "Bus Reset" => Self::ResetGpu,
            "Node Reboot Required"
            | "Node Reboot"
            | "Reboot"
            | "System Reboot"
            | "Recover IMEX Domain" => Self::RebootNode,
            _ => Self::Inspect,
        }
    }
}

/// The table row of a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = XidRow))]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub code: u32,
    pub name: String,
    /// Explanation of the code; empty if the name is sufficient.
    #[serde(default)]
    pub meaning: String,
    pub action: Action,
    /// Only events marked fatal on the log line are fatal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stated: bool,
    /// Source of the action; the head of the table lists the sources.
    pub source: String,
}

/// A table of Xid or SXid codes.
#[derive(Clone, Debug)]
pub struct XidPolicy {
    /// Version of the shipped table.
    pub version: String,
    rows: BTreeMap<u32, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    version: String,
    xid: Vec<Row>,
}

static XID: LazyLock<XidPolicy> = LazyLock::new(|| {
    XidPolicy::parse(include_str!("xid.toml")).expect("a test reads the shipped table")
});
static SXID: LazyLock<XidPolicy> = LazyLock::new(|| {
    XidPolicy::parse(include_str!("sxid.toml")).expect("a test reads the shipped table")
});

impl XidPolicy {
    /// Returns the shipped table of Xids.
    pub fn xid() -> &'static Self {
        &XID
    }

    /// Returns the shipped table of SXids.
    pub fn sxid() -> &'static Self {
        &SXID
    }

    /// # Errors
    /// Returns an error if the text is not a valid table or lists a code twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut rows = BTreeMap::new();
        for row in table.xid {
            let code = row.code;
            if rows.insert(code, row).is_some() {
                return Err(format!("code {code} stands in the table twice"));
            }
        }
        Ok(Self {
            version: table.version,
            rows,
        })
    }

    /// Returns a copy of the table with the given rows replacing or adding codes.
    pub fn with(&self, rows: &[Row]) -> Self {
        let mut all = self.rows.clone();
        all.extend(rows.iter().map(|row| (row.code, row.clone())));
        Self {
            version: self.version.clone(),
            rows: all,
        }
    }

    /// Returns the row of a code.
    pub fn row(&self, code: u32) -> Option<&Row> {
        self.rows.get(&code)
    }

    /// Returns the action for an event. `stated` is true for `Fatal` on the log line, false for
    /// `Non-fatal`, and `None` for neither. Returns `None` for a code missing from the table if the
    /// line states neither.
    pub fn action(&self, code: u32, stated: Option<bool>) -> Option<Action> {
        let row = self.rows.get(&code);
        match stated {
            Some(false) => Some(Action::Ignore),
            Some(true) => Some(
                row.map_or(Action::RebootNode, |row| row.action)
                    .max(Action::ResetGpu),
            ),
            None => row.map(|row| {
                if row.stated {
                    Action::Ignore
                } else {
                    row.action
                }
            }),
        }
    }
}

/// A site's own rows, replacing shipped rows, for better knowledge from the vendor, the drivers or
/// local staff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct XidOverrides {
    /// Version reported together with the measured values.
    pub version: String,
    #[serde(default)]
    pub xid: Vec<Row>,
    #[serde(default)]
    pub sxid: Vec<Row>,
}

impl XidOverrides {
    /// Returns the problems of the overrides, as member and reason.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        const ROWS: usize = 1000;
        const TEXT: usize = 300;
        let mut faults = Vec::new();
        if self.version.trim().is_empty() || self.version.len() > 100 {
            faults.push(("version", "1 to 100 characters.".to_owned()));
        }
        for (member, rows) in [("xid", &self.xid), ("sxid", &self.sxid)] {
            let codes: BTreeMap<u32, ()> = rows.iter().map(|row| (row.code, ())).collect();
            if codes.len() < rows.len() || rows.len() > ROWS {
                faults.push((
                    member,
                    format!("Each code once, and at most {ROWS} of them."),
                ));
            }
            let long = |row: &Row| {
                [&row.name, &row.meaning, &row.source]
                    .iter()
                    .any(|text| text.len() > TEXT)
            };
            if rows
                .iter()
                .any(|row| row.name.is_empty() || row.source.trim().is_empty() || long(row))
            {
                faults.push((
                    member,
                    format!("Each with a name and with where it comes from, in at most {TEXT} characters."),
                ));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_tables_say_what_their_sources_say() {
        let (xid, sxid) = (XidPolicy::xid(), XidPolicy::sxid());
        assert!(
            xid.rows.len() > 120 && sxid.rows.len() > 80,
            "{} and {}",
            xid.rows.len(),
            sxid.rows.len()
        );
        let table = [
            (13, Action::RestartApp),
            (43, Action::Ignore),
            (48, Action::Diagnose),
            (54, Action::Inspect),
            // Neither is a fault by itself: gpu.memory holds what they lead to.
            (63, Action::Ignore),
            (79, Action::RebootNode),
            (92, Action::Ignore),
            (94, Action::RestartApp),
            (95, Action::Diagnose),
            (119, Action::ResetGpu),
        ];
        for (code, action) in table {
            assert_eq!(xid.action(code, None), Some(action), "Xid {code}");
        }
        assert_eq!(sxid.action(12028, None), Some(Action::RebootNode));
        assert_eq!(xid.action(9999, None), None);
    }

    #[test]
    fn what_the_line_says_wins() {
        let (xid, sxid) = (XidPolicy::xid(), XidPolicy::sxid());
        assert_eq!(sxid.action(12028, Some(false)), Some(Action::Ignore));
        assert!(
            sxid.action(20001, Some(true)).is_some_and(Action::is_fatal),
            "a warning that calls itself fatal"
        );
        assert!(
            sxid.action(99999, Some(true)).is_some_and(Action::is_fatal),
            "an unknown code that calls itself fatal"
        );
        // NVLink 5: each event says by itself whether it is fatal.
        assert_eq!(xid.action(149, None), Some(Action::Ignore));
        assert_eq!(xid.action(149, Some(true)), Some(Action::ResetGpu));
        assert_eq!(Action::recommended("Drain and Reset"), Action::ResetGpu);
        assert!(Action::recommended("Something new").is_fatal());
    }

    #[test]
    fn a_sites_rows_replace_their_own_and_no_others() {
        let row = |code, action| Row {
            code,
            name: "X".into(),
            meaning: String::new(),
            action,
            stated: false,
            source: "our maker".into(),
        };
        let ours = XidOverrides {
            version: "site-7".into(),
            xid: vec![row(64, Action::Inspect)],
            sxid: vec![],
        };
        assert!(ours.faults().is_empty());
        let policy = XidPolicy::xid().with(&ours.xid);
        assert_eq!(
            (policy.action(64, None), policy.action(79, None)),
            (Some(Action::Inspect), Some(Action::RebootNode))
        );
        let twice = XidOverrides {
            xid: vec![row(64, Action::Inspect), row(64, Action::Ignore)],
            ..ours.clone()
        };
        let nameless = XidOverrides {
            version: " ".into(),
            ..ours.clone()
        };
        let baseless = XidOverrides {
            sxid: vec![Row {
                source: String::new(),
                ..row(1, Action::Ignore)
            }],
            ..ours
        };
        for (wrong, member) in [(twice, "xid"), (nameless, "version"), (baseless, "sxid")] {
            assert_eq!(wrong.faults()[0].0, member);
        }
        assert!(
            XidPolicy::parse("version = \"1\"\nxid = [{ code = 1, name = \"X\", action = \"hope\", source = \"\" }]")
                .is_err()
        );
    }
}

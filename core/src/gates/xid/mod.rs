//! What an Xid or SXid of NVIDIA's drivers asks for. The tables are data with a version (`xid.toml`, `sxid.toml`) and can be overridden row by row;
//! what the driver itself says on the line, or recommends by Xid 154, wins over both.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// From the mildest to the hardest. From [`Action::ResetGpu`] on, the node must not take work until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Ignore,
    /// The job is over; the GPU is not at fault by this alone.
    RestartApp,
    /// Driver or firmware do not go together.
    Update,
    ResetGpu,
    RebootNode,
    /// Drain, and run the suite for suspects: a reset hides it.
    Diagnose,
    /// Cables, power, or the maker.
    Inspect,
}

impl Action {
    /// Whether the node must not take work until it is done.
    pub fn is_fatal(self) -> bool {
        self >= Self::ResetGpu
    }

    /// As people read it.
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

    /// The driver's own word, as in `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)`: NVML's `nvmlDeviceGpuRecoveryAction_t`.
    /// A word that is not known asks for a person.
    pub fn recommended(word: &str) -> Self {
        match word {
            "None" => Self::Ignore,
            "GPU Reset Required" | "GPU Reset" | "Reset" | "Drain and Reset" | "Drain P2P" | "Bus Reset" => {
                Self::ResetGpu
            }
            "Node Reboot Required" | "Node Reboot" | "Reboot" | "System Reboot" | "Recover IMEX Domain" => {
                Self::RebootNode
            }
            _ => Self::Inspect,
        }
    }
}

/// One code's row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub code: u32,
    pub name: String,
    /// Empty where the name says it all.
    pub meaning: String,
    pub action: Action,
    /// Only what the line itself calls fatal is.
    #[serde(default)]
    pub stated: bool,
    /// Where the action comes from; the table's head names them.
    pub source: String,
}

/// A table of codes.
#[derive(Clone, Debug)]
pub struct XidPolicy {
    /// The shipped table's, or that of the overrides.
    pub version: String,
    rows: BTreeMap<u32, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    version: String,
    xid: Vec<Row>,
}

static XID: LazyLock<XidPolicy> =
    LazyLock::new(|| XidPolicy::parse(include_str!("xid.toml")).expect("a test reads the shipped table"));
static SXID: LazyLock<XidPolicy> =
    LazyLock::new(|| XidPolicy::parse(include_str!("sxid.toml")).expect("a test reads the shipped table"));

impl XidPolicy {
    /// The shipped table of Xids.
    pub fn xid() -> &'static Self {
        &XID
    }

    /// The shipped table of SXids.
    pub fn sxid() -> &'static Self {
        &SXID
    }

    /// # Errors
    /// A text that is no table, or tells one code twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut rows = BTreeMap::new();
        for row in table.xid {
            let code = row.code;
            if rows.insert(code, row).is_some() {
                return Err(format!("code {code} stands in the table twice"));
            }
        }
        Ok(Self { version: table.version, rows })
    }

    /// This table with another one's rows in place of its own, under the other's version.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn overridden(&self, text: &str) -> Result<Self, String> {
        let other = Self::parse(text)?;
        let mut rows = self.rows.clone();
        rows.extend(other.rows);
        Ok(Self { version: other.version, rows })
    }

    /// A code's row.
    pub fn row(&self, code: u32) -> Option<&Row> {
        self.rows.get(&code)
    }

    /// What an event asks for, where its line says `Fatal` (true), `Non-fatal` (false) or neither. `None` for a code that the table does not have and
    /// the line says nothing of.
    pub fn action(&self, code: u32, stated: Option<bool>) -> Option<Action> {
        let row = self.rows.get(&code);
        match stated {
            Some(false) => Some(Action::Ignore),
            Some(true) => Some(row.map_or(Action::RebootNode, |row| row.action).max(Action::ResetGpu)),
            None => row.map(|row| if row.stated { Action::Ignore } else { row.action }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_tables_say_what_their_sources_say() {
        let (xid, sxid) = (XidPolicy::xid(), XidPolicy::sxid());
        assert!(xid.rows.len() > 120 && sxid.rows.len() > 80, "{} and {}", xid.rows.len(), sxid.rows.len());
        let table = [
            (13, Action::RestartApp),
            (43, Action::Ignore),
            (48, Action::Diagnose),
            (54, Action::Inspect),
            (79, Action::RebootNode),
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
        assert!(sxid.action(20001, Some(true)).is_some_and(Action::is_fatal), "a warning that calls itself fatal");
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
    fn overrides_replace_rows_and_carry_their_version() {
        let text = r#"
            version = "site-7"
            xid = [{ code = 64, name = "X", meaning = "", action = "inspect", source = "our maker" }]
        "#;
        let policy = XidPolicy::xid().overridden(text).expect("a table");
        assert_eq!((policy.version.as_str(), policy.action(64, None)), ("site-7", Some(Action::Inspect)));
        assert_eq!(policy.action(79, None), Some(Action::RebootNode), "the rest stays");
        let twice =
            text.replace("}]", "}, { code = 64, name = \"Y\", meaning = \"\", action = \"ignore\", source = \"\" }]");
        assert!(XidPolicy::parse(&twice).is_err());
        assert!(XidPolicy::parse(&text.replace("inspect", "hope")).is_err());
    }
}

//! One thing a plan asks for: what it must be, what it is. The same list is made before and after the work.

/// What an item is wanted to be that must not be there.
pub(super) const ABSENT: &str = "absent";

/// One observed item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// `package slurmd`, `file /etc/chrony/chrony.conf`, `sysctl vm.swappiness`…
    pub name: String,
    pub wanted: String,
    /// What is there; `None` when nothing is.
    pub found: Option<String>,
    pub fits: bool,
    /// Whether only a reboot can make it fit once the node is configured for it.
    pub by_reboot: bool,
    /// Whether, until that reboot, nothing may be loaded or started: it would meet a kernel or a module that is on its way out.
    pub holds_back: bool,
}

impl Item {
    /// An item that fits when it is literally as wanted.
    pub(super) fn new(
        name: impl Into<String>,
        wanted: impl Into<String>,
        found: Option<String>,
    ) -> Self {
        let (name, wanted) = (name.into(), wanted.into());
        let fits = found.as_ref() == Some(&wanted);
        Self {
            name,
            wanted,
            found,
            fits,
            by_reboot: false,
            holds_back: false,
        }
    }

    /// The same, where it fits only after a reboot and holds back what is started.
    pub(super) fn held_until_boot(self) -> Self {
        Self {
            by_reboot: true,
            holds_back: true,
            ..self
        }
    }
}

/// Whether a reboot is due before anything may be loaded or started.
pub(super) fn held_back(items: &[Item]) -> bool {
    items.iter().any(|item| !item.fits && item.holds_back)
}

/// What differs, in words.
pub(super) fn difference(item: &Item) -> String {
    format!(
        "{} is {}, wanted {}",
        item.name,
        item.found.as_deref().unwrap_or("absent"),
        item.wanted
    )
}

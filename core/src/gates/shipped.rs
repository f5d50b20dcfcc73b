//! Suites and profiles shipped with Muster, compiled in from the files in `suites/`. `muster-node
//! gate` can run the suites on any machine, and `muster gate explain` reads them without a server.

/// A file below `suites/`.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// The name for users: the file name without `.toml`.
    pub name: &'static str,
    /// The file's content, as TOML.
    pub text: &'static str,
}

/// The shipped suites.
pub const SUITES: &[Shipped] = &[
    Shipped {
        name: "admit",
        text: include_str!("../../../suites/admit.toml"),
    },
    Shipped {
        name: "admit-amd",
        text: include_str!("../../../suites/admit-amd.toml"),
    },
    Shipped {
        name: "admit-cpu",
        text: include_str!("../../../suites/admit-cpu.toml"),
    },
    Shipped {
        name: "smoke",
        text: include_str!("../../../suites/smoke.toml"),
    },
    Shipped {
        name: "smoke-amd",
        text: include_str!("../../../suites/smoke-amd.toml"),
    },
    Shipped {
        name: "sweep",
        text: include_str!("../../../suites/sweep.toml"),
    },
    Shipped {
        name: "sweep-amd",
        text: include_str!("../../../suites/sweep-amd.toml"),
    },
    Shipped {
        name: "deep",
        text: include_str!("../../../suites/deep.toml"),
    },
    Shipped {
        name: "fabric",
        text: include_str!("../../../suites/fabric.toml"),
    },
    Shipped {
        name: "pairs",
        text: include_str!("../../../suites/pairs.toml"),
    },
    Shipped {
        name: "storage",
        text: include_str!("../../../suites/storage.toml"),
    },
    Shipped {
        name: "software-gpu",
        text: include_str!("../../../suites/software-gpu.toml"),
    },
];

/// The shipped hardware profiles.
pub const PROFILES: &[Shipped] = &[
    Shipped {
        name: "hgx-a100-80g",
        text: include_str!("../../../suites/profiles/hgx-a100-80g.toml"),
    },
    Shipped {
        name: "hgx-h100-80g",
        text: include_str!("../../../suites/profiles/hgx-h100-80g.toml"),
    },
    Shipped {
        name: "hgx-h200-141g",
        text: include_str!("../../../suites/profiles/hgx-h200-141g.toml"),
    },
    Shipped {
        name: "hgx-b200",
        text: include_str!("../../../suites/profiles/hgx-b200.toml"),
    },
    Shipped {
        name: "gb200-tray",
        text: include_str!("../../../suites/profiles/gb200-tray.toml"),
    },
    Shipped {
        name: "mi300x",
        text: include_str!("../../../suites/profiles/mi300x.toml"),
    },
    Shipped {
        name: "virtual-node",
        text: include_str!("../../../suites/profiles/virtual-node.toml"),
    },
];

impl Shipped {
    /// Returns the shipped file with the given name.
    pub fn find<'a>(among: &'a [Self], name: &str) -> Option<&'a Self> {
        among.iter().find(|shipped| shipped.name == name)
    }
}

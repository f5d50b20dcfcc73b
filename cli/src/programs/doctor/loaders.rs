//! Boot files sent to booting machines by the agent.

use muster_agent::boot::loaders::IpxeBinaries;

use super::{Found, Host};

pub(super) fn check(host: &Host) -> Vec<Found> {
    let loaders = &host.args.loaders;
    let first = match IpxeBinaries::load(&loaders.ipxe_dir) {
        Ok(_) => Found::ok(format!(
            "the boot loaders are in {}",
            loaders.ipxe_dir.display()
        )),
        Err(error) => Found::fail(
            error.to_string(),
            "install them, or name their directory with --ipxe-dir",
        ),
    };
    let node = &loaders.muster_node;
    let second = match std::fs::metadata(node) {
        Ok(data) if data.is_file() && data.len() > 0 => {
            Found::ok(format!("{} is there", node.display()))
        }
        Ok(_) => Found::fail(
            format!("{} is no program", node.display()),
            "node/build-static makes it; name it with --muster-node",
        ),
        Err(error) => Found::fail(
            format!("{}: {error}", node.display()),
            "node/build-static makes it; name it with --muster-node",
        ),
    };
    vec![first, second]
}

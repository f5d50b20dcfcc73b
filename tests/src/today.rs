//! Today's agent and muster-node as the tests start them: built with the tests, so never an older build. `agent SERVER TOKEN_FILE DATA_DIR IPXE_DIR
//! MUSTER_NODE` runs the agent; any other words go to muster-node.

use std::process::ExitCode;

use muster_agent::boot::BootPorts;
use muster_agent::work::AgentOptions;
use muster_agent::work::identity::Entry;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [agent, server, token, data_dir, ipxe_dir, muster_node] = &words[..] else {
        return muster_node::cli::main(words);
    };
    if agent != "agent" {
        return muster_node::cli::main(words);
    }
    let token = std::fs::read_to_string(token).expect("the test wrote the token file");
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let options = AgentOptions {
        server_url: server.clone(),
        entry: Entry::Certificate {
            token: Some(Secret::new(token.trim())),
        },
        data_dir: data_dir.into(),
        ipxe_dir: ipxe_dir.into(),
        muster_node: muster_node.into(),
        blob_bytes: None,
        live_keys: Vec::new(),
        ports: BootPorts::default(),
        clock: Clock::System,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    match runtime.block_on(muster_agent::work::run(options, CancellationToken::new())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the agent ended: {error}");
            ExitCode::FAILURE
        }
    }
}

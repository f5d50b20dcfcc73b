//! The network and the disks that a gate's tool may reach, as named to the tool's start.

use crate::words;

words! {
    /// The network of a tool.
    Network, "network of a tool" {
        /// No network, and no loopback.
        Off = "none",
        /// A loopback of the tool's own, without the services of the node.
        Loopback = "loopback",
        /// The network of the node.
        Host = "host",
    }
}

words! {
    /// The access of a tool to the disks of the node, beside the files of mounted file systems.
    Disks, "access to disks" {
        /// No disk can be opened.
        Hidden = "hidden",
        /// Disks can be opened for reading, and take commands such as a request for SMART data.
        Query = "query",
        /// As for root.
        Write = "write",
    }
}

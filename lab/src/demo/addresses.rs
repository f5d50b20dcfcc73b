//! Addresses of the demo's machines.

use std::net::Ipv4Addr;

/// The last number of the first machine's address.
const FIRST_ADDRESS: usize = 11;

/// The address of the machine at this place in the plan.
pub(super) fn address(index: usize) -> Ipv4Addr {
    let last = u8::try_from(FIRST_ADDRESS + index).expect("a rack holds few machines");
    Ipv4Addr::new(10, 77, 0, last)
}

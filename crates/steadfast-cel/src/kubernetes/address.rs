//! IP addresses and networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Error text for an invalid address.
pub(crate) const ADDRESS_SYNTAX: &str = "an address must be IPv4 or IPv6, without a zone and not IPv4 mapped to IPv6";
/// Error text for an invalid network.
pub(crate) const NETWORK_SYNTAX: &str = "a network is an address and the length of a prefix, such as `10.0.0.0/8`";

/// Parses an address. IPv4 addresses mapped to IPv6 are invalid.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    let address = text.parse().ok()?;
    match address {
        // The CEL library of Kubernetes rejects `::ffff:10.0.0.1`: implementations disagree on the family of such
        // addresses.
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => None,
        address => Some(address),
    }
}

/// Address and length of a prefix. The address may have bits beyond the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// Address as written.
    pub(crate) address: IpAddr,
    /// Length of the prefix in bits.
    pub(crate) prefix_bits: u8,
}

impl Network {
    /// Parses a network such as `10.0.0.0/8`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix_bits) = text.rsplit_once('/')?;
        let address = parse_address(address)?;
        // Leading zeros and signs are invalid: Go's `netip.ParsePrefix` rejects them.
        let is_plain = prefix_bits.bytes().all(|byte| byte.is_ascii_digit())
            && (prefix_bits.len() == 1 || !prefix_bits.starts_with('0'));
        let prefix_bits = prefix_bits
            .parse()
            .ok()
            .filter(|prefix_bits| is_plain && *prefix_bits <= if address.is_ipv4() { 32 } else { 128 })?;
        Some(Self { address, prefix_bits })
    }

    /// Returns the network with all bits of the address beyond the prefix set to zero.
    pub(crate) fn masked(self) -> Self {
        Self { address: masked_address(self.address, self.prefix_bits), ..self }
    }

    /// Returns whether an address is part of the network.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        masked_address(self.address, self.prefix_bits) == masked_address(address, self.prefix_bits)
            && self.address.is_ipv4() == address.is_ipv4()
    }

    /// Returns whether all addresses of another network are part of this network.
    pub(crate) fn contains_network(self, other: Self) -> bool {
        self.prefix_bits <= other.prefix_bits && self.contains(other.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// Returns the first `prefix_bits` bits of an address, and zeros after them.
fn masked_address(address: IpAddr, prefix_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            // A prefix of zero bits shifts by the full width, for which `checked_shl` returns `None`.
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix_bits.into())).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix_bits.into())).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// Returns whether an address is a link-local multicast address.
pub(crate) fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    }
}

/// Returns whether an address is a link-local unicast address.
pub(crate) fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns whether an address is a global unicast address as in Go, which includes private addresses.
pub(crate) fn is_global_unicast(address: IpAddr) -> bool {
    address != IpAddr::V4(Ipv4Addr::BROADCAST)
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}

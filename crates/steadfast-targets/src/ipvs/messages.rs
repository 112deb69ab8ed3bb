//! Messages of IPVS as netlink attributes (`linux/ip_vs.h`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLA_HEADER_SIZE, NlasIterator};

use super::server::{ForwardingMethod, RealServer};
use super::service::{ServiceProtocol, VirtualService};

/// Commands. The kernel sends lists as `NEW_…`.
pub(super) const NEW_SERVICE: u8 = 1;
pub(super) const SET_SERVICE: u8 = 2;
pub(super) const GET_SERVICE: u8 = 4;
pub(super) const NEW_DEST: u8 = 5;
pub(super) const SET_DEST: u8 = 6;
pub(super) const DEL_DEST: u8 = 7;
pub(super) const GET_DEST: u8 = 8;

/// Attributes of a command.
const CMD_SERVICE: u16 = 1;
const CMD_DEST: u16 = 2;

/// Attributes of a service.
const SVC_AF: u16 = 1;
const SVC_PROTOCOL: u16 = 2;
const SVC_ADDR: u16 = 3;
const SVC_PORT: u16 = 4;
const SVC_SCHED_NAME: u16 = 6;
const SVC_FLAGS: u16 = 7;
const SVC_TIMEOUT: u16 = 8;
const SVC_NETMASK: u16 = 9;
const SVC_PE_NAME: u16 = 11;

/// Attributes of a real server.
const DEST_ADDR: u16 = 1;
const DEST_PORT: u16 = 2;
const DEST_FWD_METHOD: u16 = 3;
const DEST_WEIGHT: u16 = 4;
const DEST_U_THRESH: u16 = 5;
const DEST_L_THRESH: u16 = 6;
const DEST_ACTIVE_CONNS: u16 = 7;
const DEST_INACT_CONNS: u16 = 8;
const DEST_ADDR_FAMILY: u16 = 11;
const DEST_TUN_TYPE: u16 = 13;

/// `AF_INET` and `AF_INET6`, on Linux.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Flags of a service. `PERSISTENT_FLAG` binds a client to a server; the kernel sets `HASHED_FLAG` itself.
const PERSISTENT_FLAG: u32 = 1;
const HASHED_FLAG: u32 = 2;

/// Bits of the forwarding method.
const FORWARD_MASK: u32 = 7;

/// Service as listed by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedVirtualService {
    scheduler: String,
    flags: u32,
    timeout: u32,
    netmask: u32,
    has_engine: bool,
}

/// Real server as listed by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedRealServer {
    pub(super) address: SocketAddr,
    pub(super) weight: u32,
    /// Forwarding method, or `None` for an unsupported one.
    pub(super) forward: Option<ForwardingMethod>,
    /// True for a server with a connection limit, or with a tunnel other than IPIP.
    pub(super) is_special: bool,
    pub(super) active: u32,
    pub(super) inactive: u32,
}

impl ListedVirtualService {
    /// Returns true if the service has the desired settings.
    pub(super) fn has_settings_of(&self, service: &VirtualService) -> bool {
        let desired = Self::desired(service);
        // Without persistence, the kernel ignores the timeout and the netmask.
        let has_same_persistence =
            service.persistence.is_none() || (self.timeout, self.netmask) == (desired.timeout, desired.netmask);
        self.scheduler == desired.scheduler
            && self.flags & !HASHED_FLAG == desired.flags
            && !self.has_engine
            && has_same_persistence
    }

    fn desired(service: &VirtualService) -> Self {
        Self {
            scheduler: service.scheduler.clone(),
            flags: service.persistence.map_or(0, |_| PERSISTENT_FLAG),
            timeout: service.persistence.unwrap_or(0),
            // Persistence applies to each client address separately.
            netmask: if service.address.is_ipv4() { u32::MAX } else { 128 },
            has_engine: false,
        }
    }
}

/// Returns the attributes that identify the service.
pub(super) fn service_id(service: &VirtualService) -> Vec<u8> {
    nested(CMD_SERVICE, &identity_attributes(service))
}

/// Returns the identity and the settings of the service.
pub(super) fn service_attributes(service: &VirtualService) -> Vec<u8> {
    let ListedVirtualService { scheduler, flags, timeout, netmask, .. } = ListedVirtualService::desired(service);
    let mut buffer = identity_attributes(service);
    append_attribute(&mut buffer, SVC_SCHED_NAME, &[scheduler.as_bytes(), b"\0"].concat());
    // The flags and their mask. The mask covers all flags.
    append_attribute(&mut buffer, SVC_FLAGS, &[flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat());
    append_attribute(&mut buffer, SVC_TIMEOUT, &timeout.to_ne_bytes());
    append_attribute(&mut buffer, SVC_NETMASK, &netmask.to_ne_bytes());
    nested(CMD_SERVICE, &buffer)
}

/// Returns the attributes of a real server and its service. Settings are included if `server` is given.
pub(super) fn server_attributes(service: &VirtualService, address: SocketAddr, server: Option<&RealServer>) -> Vec<u8> {
    let mut buffer = Vec::new();
    append_attribute(&mut buffer, DEST_ADDR_FAMILY, &family(address.ip()).to_ne_bytes());
    append_attribute(&mut buffer, DEST_ADDR, &octets(address.ip()));
    append_attribute(&mut buffer, DEST_PORT, &address.port().to_be_bytes());
    if let Some(RealServer { weight, forward, .. }) = server {
        let forward: u32 = match forward {
            ForwardingMethod::Masquerade => 0,
            ForwardingMethod::Tunnel => 2,
            ForwardingMethod::Direct => 3,
        };
        append_attribute(&mut buffer, DEST_FWD_METHOD, &forward.to_ne_bytes());
        append_attribute(&mut buffer, DEST_WEIGHT, &u32::from(*weight).to_ne_bytes());
        // No connection limits.
        append_attribute(&mut buffer, DEST_U_THRESH, &0_u32.to_ne_bytes());
        append_attribute(&mut buffer, DEST_L_THRESH, &0_u32.to_ne_bytes());
    }
    [service_id(service), nested(CMD_DEST, &buffer)].concat()
}

/// Reads a service from a message.
pub(super) fn parse_service(attributes: &[u8]) -> Result<ListedVirtualService, String> {
    let attributes = Attributes::parse(Attributes::parse(attributes)?.get(CMD_SERVICE)?)?;
    let scheduler = attributes.get(SVC_SCHED_NAME)?;
    let scheduler = scheduler.split(|byte| *byte == 0).next().unwrap_or_default();
    // The mask after the flags has no meaning in a reply.
    let flags = attributes.get(SVC_FLAGS)?.first_chunk().ok_or("the flags of a service are cut off")?;
    Ok(ListedVirtualService {
        scheduler: String::from_utf8_lossy(scheduler).into_owned(),
        flags: u32::from_ne_bytes(*flags),
        timeout: attributes.number(SVC_TIMEOUT)?,
        netmask: attributes.number(SVC_NETMASK)?,
        has_engine: attributes.0.contains_key(&SVC_PE_NAME),
    })
}

/// Reads a real server of `service` from a message.
pub(super) fn parse_server(attributes: &[u8], service: &VirtualService) -> Result<ListedRealServer, String> {
    let attributes = Attributes::parse(Attributes::parse(attributes)?.get(CMD_DEST)?)?;
    // Kernels before 3.18 have no address family per server.
    let family = match attributes.0.get(&DEST_ADDR_FAMILY) {
        Some(_) => u16::from_ne_bytes(attributes.bytes(DEST_ADDR_FAMILY)?),
        None => family(service.address.ip()),
    };
    let [a, b, c, d, ..] = attributes.bytes::<16>(DEST_ADDR)?;
    let ip = match family {
        AF_INET => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
        AF_INET6 => IpAddr::from(Ipv6Addr::from(attributes.bytes::<16>(DEST_ADDR)?)),
        other => return Err(format!("a real server is of the address family {other}")),
    };
    let forward = attributes.number(DEST_FWD_METHOD)? & FORWARD_MASK;
    let has_tunnel_type = attributes.0.get(&DEST_TUN_TYPE).is_some_and(|kind| kind.iter().any(|byte| *byte != 0));
    Ok(ListedRealServer {
        address: SocketAddr::new(ip, u16::from_be_bytes(attributes.bytes(DEST_PORT)?)),
        weight: attributes.number(DEST_WEIGHT)?,
        forward: [(0, ForwardingMethod::Masquerade), (2, ForwardingMethod::Tunnel), (3, ForwardingMethod::Direct)]
            .into_iter()
            .find_map(|(number, method)| (number == forward).then_some(method)),
        is_special: has_tunnel_type || attributes.number(DEST_U_THRESH)? != 0 || attributes.number(DEST_L_THRESH)? != 0,
        active: attributes.number(DEST_ACTIVE_CONNS)?,
        inactive: attributes.number(DEST_INACT_CONNS)?,
    })
}

fn identity_attributes(service: &VirtualService) -> Vec<u8> {
    let protocol: u16 = match service.protocol {
        ServiceProtocol::Tcp => 6,
        ServiceProtocol::Udp => 17,
    };
    let address = service.address;
    let mut buffer = Vec::new();
    append_attribute(&mut buffer, SVC_AF, &family(address.ip()).to_ne_bytes());
    append_attribute(&mut buffer, SVC_PROTOCOL, &protocol.to_ne_bytes());
    append_attribute(&mut buffer, SVC_ADDR, &octets(address.ip()));
    append_attribute(&mut buffer, SVC_PORT, &address.port().to_be_bytes());
    buffer
}

fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// Returns the address in 16 bytes. The attribute has this size for both families; IPv4 uses the first four bytes.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&[a, b, c, d]);
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Appends an attribute.
pub(super) fn append_attribute(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let start = buffer.len();
    buffer.resize(start + attribute.buffer_len(), 0);
    attribute.emit(&mut buffer[start..]);
}

fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::new();
    append_attribute(&mut buffer, kind | NLA_F_NESTED, value);
    buffer
}

/// Attributes by their kind.
pub(super) struct Attributes<'a>(BTreeMap<u16, &'a [u8]>);

impl<'a> Attributes<'a> {
    pub(super) fn parse(buffer: &'a [u8]) -> Result<Self, String> {
        let mut attributes = BTreeMap::new();
        for attribute in NlasIterator::new(buffer) {
            let attribute = attribute.map_err(|error| format!("an attribute is cut off: {error}"))?;
            let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
            let value = attribute.into_inner().get(NLA_HEADER_SIZE..length).unwrap_or_default();
            attributes.insert(kind, value);
        }
        Ok(Self(attributes))
    }

    pub(super) fn get(&self, kind: u16) -> Result<&'a [u8], String> {
        self.0.get(&kind).copied().ok_or_else(|| format!("the attribute {kind} is missing"))
    }

    pub(super) fn bytes<const N: usize>(&self, kind: u16) -> Result<[u8; N], String> {
        let value = self.get(kind)?;
        value.try_into().map_err(|_| format!("the attribute {kind} has {} bytes instead of {N}", value.len()))
    }

    fn number(&self, kind: u16) -> Result<u32, String> {
        Ok(u32::from_ne_bytes(self.bytes(kind)?))
    }
}

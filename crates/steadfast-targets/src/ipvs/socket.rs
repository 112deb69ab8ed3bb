//! Requests to a generic netlink family.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::messages::{Attributes, append_attribute};

/// Size of the receive buffer. The kernel sends up to 32 KiB at once.
const RECEIVE_BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of messages per request.
pub(super) const MAX_REPLY_MESSAGES: usize = 65_536;

/// Maximum wait for a reply.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Controller family, which resolves the numbers of other families.
const CONTROL_FAMILY: u16 = 16;
const GET_FAMILY_COMMAND: u8 = 3;
const FAMILY_ID_ATTRIBUTE: u16 = 1;
const FAMILY_NAME_ATTRIBUTE: u16 = 2;

/// Version of the generic netlink header.
const VERSION: u8 = 1;

/// Length of the generic netlink header: command, version, and two reserved bytes.
const GENERIC_HEADER_LEN: usize = 4;

/// Socket of one generic netlink family, for one request at a time. The kernel replies synchronously, so a call takes
/// as long as its command.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    family: u16,
    sequence: u32,
}

/// Reason that a request has no valid reply.
#[derive(Debug)]
pub(super) enum NetlinkError {
    /// A system call failed.
    System(io::Error),
    /// The kernel returned an error number of `errno.h`.
    Rejected(i32),
    /// A message has an unknown form.
    Unexpected(String),
}

/// Expected number of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyCount {
    One,
    All,
}

impl Socket {
    /// Opens a socket in the network namespace of this thread for the family `name`. Fails with `ENOENT` if the
    /// family is missing.
    pub(super) fn open(name: &str) -> Result<Self, NetlinkError> {
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        set_socket_timeout(&fd, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
        // The socket is connected to the kernel, so that messages of other senders are dropped.
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        let mut socket = Self { fd, family: CONTROL_FAMILY, sequence: 0 };
        let mut attributes = Vec::new();
        append_attribute(&mut attributes, FAMILY_NAME_ATTRIBUTE, &[name.as_bytes(), b"\0"].concat());
        let replies = socket.request(GET_FAMILY_COMMAND, ReplyCount::One, attributes)?;
        let [reply] = &*replies else {
            return Err(NetlinkError::Unexpected(format!("{} replies for the family {name}", replies.len())));
        };
        let family = Attributes::parse(reply).and_then(|attributes| attributes.bytes(FAMILY_ID_ATTRIBUTE));
        socket.family = u16::from_ne_bytes(family.map_err(NetlinkError::Unexpected)?);
        Ok(socket)
    }

    /// Sends `command` and returns the attributes of each reply. Commands that only change something have no reply.
    pub(super) fn request(
        &mut self,
        command: u8,
        reply_count: ReplyCount,
        attributes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = encode_request(self.family, self.sequence, command, reply_count, attributes);
        let sent = rustix::net::send(&self.fd, &message, SendFlags::empty())?;
        if sent != message.len() {
            return Err(NetlinkError::Unexpected(format!("{sent} of {} bytes were sent", message.len())));
        }
        let mut replies = Replies::new(self.sequence);
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        while !replies.are_complete {
            // `TRUNC` returns the full length, even if the buffer is too small.
            // Netlink replies are datagrams: a short read would lose the rest.
            let (_, length) = rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::TRUNC)?;
            let Some(bytes) = buffer.get(..length) else {
                return Err(NetlinkError::Unexpected(format!("a reply has {length} bytes")));
            };
            replies.parse(bytes)?;
        }
        Ok(replies.bodies)
    }
}

impl From<Errno> for NetlinkError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Replies received so far.
#[derive(Debug)]
pub(super) struct Replies {
    sequence: u32,
    /// Number of received messages of any kind.
    received: usize,
    pub(super) bodies: Vec<Vec<u8>>,
    pub(super) are_complete: bool,
}

impl Replies {
    pub(super) fn new(sequence: u32) -> Self {
        Self { sequence, received: 0, bodies: Vec::new(), are_complete: false }
    }

    /// Parses the messages of one datagram.
    pub(super) fn parse(&mut self, mut bytes: &[u8]) -> Result<(), NetlinkError> {
        while !bytes.is_empty() && !self.are_complete {
            self.received += 1;
            if self.received > MAX_REPLY_MESSAGES {
                return Err(NetlinkError::Unexpected(format!("more than {MAX_REPLY_MESSAGES} messages")));
            }
            let message = NetlinkMessage::<GenericMessage>::deserialize(bytes);
            let message = message.map_err(|error| NetlinkError::Unexpected(error.to_string()))?;
            // Messages are aligned to four bytes.
            let length = (message.header.length as usize).next_multiple_of(4);
            bytes = bytes.get(length..).unwrap_or_default();
            // A late reply to an earlier request that timed out.
            if message.header.sequence_number != self.sequence {
                continue;
            }
            let code = match message.payload {
                NetlinkPayload::InnerMessage(GenericMessage { body, .. }) => {
                    self.bodies.push(body.get(GENERIC_HEADER_LEN..).unwrap_or_default().to_vec());
                    continue;
                }
                NetlinkPayload::Done(done) => done.code,
                NetlinkPayload::Error(error) => error.raw_code(),
                NetlinkPayload::Noop => continue,
                other => return Err(NetlinkError::Unexpected(format!("a message that is {other:?}"))),
            };
            if code != 0 {
                return Err(NetlinkError::Rejected(code.saturating_neg()));
            }
            self.are_complete = true;
        }
        Ok(())
    }
}

/// Encodes a request.
pub(super) fn encode_request(
    family: u16,
    sequence: u32,
    command: u8,
    reply_count: ReplyCount,
    attributes: Vec<u8>,
) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | if reply_count == ReplyCount::All { NLM_F_DUMP } else { 0 };
    header.sequence_number = sequence;
    let mut body = vec![command, VERSION, 0, 0];
    body.extend(attributes);
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(GenericMessage { family, body }));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Message after the netlink header.
#[derive(Debug)]
struct GenericMessage {
    family: u16,
    body: Vec<u8>,
}

impl NetlinkSerializable for GenericMessage {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for GenericMessage {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, body: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self { family: header.message_type, body: body.to_vec() })
    }
}

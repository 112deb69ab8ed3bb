//! Questions to a family of generic netlink, and their answers.

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

use super::messages::{Attributes, put};

/// The kernel answers in pieces of up to 32 KiB.
const PIECE: usize = 64 << 10;

/// So many messages are read for one question.
pub(super) const MOST: usize = 65_536;

/// A message that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// The family that knows the numbers of the others.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// The version of all families that there are, ours among them.
const VERSION: u8 = 1;

/// In front of the attributes: command, version, and two bytes of nothing.
const GENERIC_HEADER_LEN: usize = 4;

/// A socket of one family of generic netlink, for one question at a time. The kernel answers while it is asked, so that each call takes as
/// long as what is done by it.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    family: u16,
    sequence: u32,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The system does not do it.
    System(io::Error),
    /// The kernel, asked, says no: a number of `errno.h`.
    Refused(i32),
    /// It says what this was not written for.
    Unexpected(String),
}

/// How much of what there is is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    One,
    All,
}

impl Socket {
    /// A socket in this thread's network namespace, for the family called `name`; refused as `ENOENT` where there is none.
    pub(super) fn open(name: &str) -> Result<Self, Trouble> {
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE))?;
        // Connected to the kernel: nobody else is heard.
        rustix::net::connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        let mut socket = Self { fd, family: CONTROL, sequence: 0 };
        let mut attributes = Vec::new();
        put(&mut attributes, FAMILY_NAME, &[name.as_bytes(), b"\0"].concat());
        let answers = socket.ask(GET_FAMILY, Ask::One, attributes)?;
        let [answer] = &*answers else {
            return Err(Trouble::Unexpected(format!("{} answers to which family is {name}", answers.len())));
        };
        let family = Attributes::read(answer).and_then(|attributes| attributes.bytes(FAMILY_ID));
        socket.family = u16::from_ne_bytes(family.map_err(Trouble::Unexpected)?);
        Ok(socket)
    }

    /// The attributes of each message that is answered to `command`; none to one that only has something done.
    pub(super) fn ask(&mut self, command: u8, ask: Ask, attributes: Vec<u8>) -> Result<Vec<Vec<u8>>, Trouble> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = written(self.family, self.sequence, command, ask, attributes);
        let sent = rustix::net::send(&self.fd, &question, SendFlags::empty())?;
        if sent != question.len() {
            return Err(Trouble::Unexpected(format!("{sent} of {} bytes were sent", question.len())));
        }
        let mut answers = Answers::new(self.sequence);
        let mut piece = vec![0; PIECE];
        while !answers.are_complete {
            // How long it is, also where there is less room for it.
            let (_, length) = rustix::net::recv(&self.fd, &mut *piece, RecvFlags::TRUNC)?;
            let Some(text) = piece.get(..length) else {
                return Err(Trouble::Unexpected(format!("an answer has {length} bytes in one piece")));
            };
            answers.read(text)?;
        }
        Ok(answers.all)
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// What has been answered so far.
#[derive(Debug)]
pub(super) struct Answers {
    sequence: u32,
    /// Messages, of whatever kind.
    seen: usize,
    pub(super) all: Vec<Vec<u8>>,
    pub(super) are_complete: bool,
}

impl Answers {
    pub(super) fn new(sequence: u32) -> Self {
        Self { sequence, seen: 0, all: Vec::new(), are_complete: false }
    }

    /// Takes what is in a piece.
    pub(super) fn read(&mut self, mut text: &[u8]) -> Result<(), Trouble> {
        while !text.is_empty() && !self.are_complete {
            self.seen += 1;
            if self.seen > MOST {
                return Err(Trouble::Unexpected(format!("more than {MOST} messages")));
            }
            let message = NetlinkMessage::<Message>::deserialize(text);
            let message = message.map_err(|error| Trouble::Unexpected(error.to_string()))?;
            // A message begins where a multiple of four bytes is.
            let length = (message.header.length as usize).next_multiple_of(4);
            text = text.get(length..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue;
            }
            let code = match message.payload {
                NetlinkPayload::InnerMessage(Message { body, .. }) => {
                    self.all.push(body.get(GENERIC_HEADER_LEN..).unwrap_or_default().to_vec());
                    continue;
                }
                NetlinkPayload::Done(done) => done.code,
                NetlinkPayload::Error(error) => error.raw_code(),
                NetlinkPayload::Noop => continue,
                other => return Err(Trouble::Unexpected(format!("a message that is {other:?}"))),
            };
            if code != 0 {
                return Err(Trouble::Refused(code.saturating_neg()));
            }
            self.are_complete = true;
        }
        Ok(())
    }
}

/// A question, as it is sent.
pub(super) fn written(family: u16, sequence: u32, command: u8, ask: Ask, attributes: Vec<u8>) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | if ask == Ask::All { NLM_F_DUMP } else { 0 };
    header.sequence_number = sequence;
    let mut body = vec![command, VERSION, 0, 0];
    body.extend(attributes);
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(Message { family, body }));
    message.finalize();
    let mut text = vec![0; message.buffer_len()];
    message.serialize(&mut text);
    text
}

/// What comes after the header of netlink.
#[derive(Debug)]
struct Message {
    family: u16,
    body: Vec<u8>,
}

impl NetlinkSerializable for Message {
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

impl NetlinkDeserializable for Message {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, body: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self { family: header.message_type, body: body.to_vec() })
    }
}

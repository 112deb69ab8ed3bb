//! Messages to a server and back over TCP, signed in both directions. A response without a valid signature is an error.
//!
//! Messages never go over UDP: an update with a lost response would be sent twice, and fail its own prerequisites the second time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder};
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::tsig::Time48;
use domain::tsig::{ClientSequence, ClientTransaction, ValidationError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::contents::{Contents, data, serial};
use super::key::Key;
use super::record::Data;
use super::update::TooMuch;

/// Upper bound of a zone: a mirror reads all of it again each minute.
const MAX_ZONE_BYTES: usize = 64 * 1024 * 1024;

/// How long an address may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a server may take for each message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// What went wrong between here and a server.
#[derive(Debug)]
pub(super) enum Trouble {
    Socket(io::Error),
    Signature(ValidationError),
    Refused(Rcode),
    Form(String),
    TooMuch,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<ParseError> for Trouble {
    fn from(error: ParseError) -> Self {
        Self::Form(error.to_string())
    }
}

/// A connection to a server.
pub(super) struct Connection {
    stream: TcpStream,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = in_time(CONNECT_TIMEOUT, TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    async fn send(&mut self, message: &[u8]) -> Result<(), Trouble> {
        let length = u16::try_from(message.len()).map_err(much)?;
        let message = [&length.to_be_bytes(), message].concat();
        Ok(in_time(MESSAGE_TIMEOUT, self.stream.write_all(&message)).await?)
    }

    async fn receive(&mut self, id: u16) -> Result<Message<Vec<u8>>, Trouble> {
        let receive = async { Ok(self.receive_all(id).await) };
        in_time(MESSAGE_TIMEOUT, receive).await?
    }

    async fn receive_all(&mut self, id: u16) -> Result<Message<Vec<u8>>, Trouble> {
        let length = self.stream.read_u16().await?;
        let mut octets = vec![0; usize::from(length)];
        self.stream.read_exact(&mut octets).await?;
        let message =
            Message::from_octets(octets).map_err(|_| Trouble::Form("a message of less than a header".into()))?;
        if message.header().id() == id && message.header().qr() {
            Ok(message)
        } else {
            Err(Trouble::Form("a message that is no answer to what was asked".into()))
        }
    }

    /// Sends an update of `zone`; `fill` writes prerequisites and changes.
    pub(super) async fn update(
        &mut self,
        zone: &Name<Vec<u8>>,
        key: &Key,
        fill: impl FnOnce(AnswerBuilder<Vec<u8>>) -> Result<AdditionalBuilder<Vec<u8>>, TooMuch>,
    ) -> Result<(), Trouble> {
        let (question, id) = ask(zone, Rtype::SOA, Opcode::UPDATE)?;
        let mut message = fill(question).map_err(|TooMuch| Trouble::TooMuch)?;
        let transaction = ClientTransaction::request(key, &mut message, Time48::now()).map_err(much)?;
        self.send(message.as_slice()).await?;
        let mut answer = self.receive(id).await?;
        let checked = transaction.answer(&mut answer, Time48::now());
        believed(checked, answer.header().rcode())
    }

    /// Returns the records of type `kind` at `name`, as far as a mirror reads them, and the serial number, if it is among them.
    pub(super) async fn query(
        &mut self,
        name: &Name<Vec<u8>>,
        kind: Rtype,
        key: &Key,
    ) -> Result<(Vec<Data>, Option<u32>), Trouble> {
        let (question, id) = ask(name, kind, Opcode::QUERY)?;
        let mut message = question.additional();
        let transaction = ClientTransaction::request(key, &mut message, Time48::now()).map_err(much)?;
        self.send(message.as_slice()).await?;
        let mut answer = self.receive(id).await?;
        let checked = transaction.answer(&mut answer, Time48::now());
        match believed(checked, answer.header().rcode()) {
            Err(Trouble::Refused(Rcode::NXDOMAIN)) => return Ok((Vec::new(), None)),
            result => result?,
        }
        let (mut found, mut number) = (Vec::new(), None);
        for record in answer.answer()? {
            let record = record?;
            if record.rtype() == kind {
                number = serial(&record)?.or(number);
                found.extend(data(&record)?);
            }
        }
        Ok((found, number))
    }

    /// Returns all that is in `zone`.
    pub(super) async fn transfer(&mut self, zone: &Name<Vec<u8>>, key: &Key) -> Result<Contents, Trouble> {
        let (question, id) = ask(zone, Rtype::AXFR, Opcode::QUERY)?;
        let mut message = question.additional();
        let mut sequence = ClientSequence::request(key, &mut message, Time48::now()).map_err(much)?;
        self.send(message.as_slice()).await?;
        let (mut contents, mut ends, mut read) = (Contents::default(), 0, 0);
        // From one SOA to the next.
        while ends < 2 {
            let mut part = self.receive(id).await?;
            read += part.as_slice().len();
            if read > MAX_ZONE_BYTES {
                return Err(Trouble::Form(format!(
                    "a zone of more than {MAX_ZONE_BYTES} bytes; give the mirror one of its own"
                )));
            }
            let checked = sequence.answer(&mut part, Time48::now());
            believed(checked, part.header().rcode())?;
            for record in part.answer()? {
                let record = record?;
                if ends == 2 || (ends == 0 && record.rtype() != Rtype::SOA) {
                    return Err(Trouble::Form("a transfer that does not go from one SOA to the next".into()));
                }
                ends += usize::from(record.rtype() == Rtype::SOA);
                contents.add(&record)?;
            }
            if ends == 0 {
                return Err(Trouble::Form("a transfer that begins with nothing".into()));
            }
        }
        sequence.done().map_err(Trouble::Signature)?;
        Ok(contents)
    }
}

/// Bounds the time of an operation.
async fn in_time<T>(limit: Duration, operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no response within {limit:?}"));
    timeout(limit, operation).await.map_err(|_| late())?
}

fn ask(zone: &Name<Vec<u8>>, kind: Rtype, opcode: Opcode) -> Result<(AnswerBuilder<Vec<u8>>, u16), Trouble> {
    let mut message = MessageBuilder::new_vec();
    let id = fastrand::u16(..);
    message.header_mut().set_id(id);
    message.header_mut().set_opcode(opcode);
    let mut question = message.question();
    question.push((zone, kind, Class::IN)).map_err(much)?;
    Ok((question.answer(), id))
}

fn much(_: impl Sized) -> Trouble {
    Trouble::TooMuch
}

/// Checks a response: an error code counts without a signature, too, and a success only with one.
fn believed(checked: Result<(), ValidationError>, rcode: Rcode) -> Result<(), Trouble> {
    match (checked, rcode) {
        (Ok(()), Rcode::NOERROR) => Ok(()),
        (Err(ValidationError::ServerUnsigned), Rcode::NOERROR) => {
            Err(Trouble::Signature(ValidationError::ServerUnsigned))
        }
        (Ok(()) | Err(ValidationError::ServerUnsigned), refused) => Err(Trouble::Refused(refused)),
        (Err(error), _) => Err(Trouble::Signature(error)),
    }
}

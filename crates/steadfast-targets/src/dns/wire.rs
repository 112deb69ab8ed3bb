//! Messages to a server and back over TCP, signed in both directions. A response without a valid signature is an error.
//!
//! Messages never go over UDP: an update with a lost response would be sent twice, and fail its own prerequisites the
//! second time.

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

use super::contents::{TransferredZone, parse_data, parse_serial};
use super::key::TsigKey;
use super::record::RecordData;
use super::update::MessageFull;

/// Maximum size of a zone. A mirror reads the whole zone again each minute.
const MAX_ZONE_BYTES: usize = 64 * 1024 * 1024;

/// Timeout for a TCP connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for each message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// Failure of an exchange with a server.
#[derive(Debug)]
pub(super) enum WireError {
    Io(io::Error),
    Signature(ValidationError),
    Rejected(Rcode),
    Malformed(String),
    MessageFull,
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ParseError> for WireError {
    fn from(error: ParseError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// A connection to a server.
pub(super) struct DnsConnection {
    stream: TcpStream,
}

impl DnsConnection {
    pub(super) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = with_timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    async fn send(&mut self, message: &[u8]) -> Result<(), WireError> {
        let length = u16::try_from(message.len()).map_err(message_full)?;
        let message = [&length.to_be_bytes(), message].concat();
        Ok(with_timeout(MESSAGE_TIMEOUT, self.stream.write_all(&message)).await?)
    }

    async fn receive(&mut self, id: u16) -> Result<Message<Vec<u8>>, WireError> {
        let receive = async { Ok(self.receive_all(id).await) };
        with_timeout(MESSAGE_TIMEOUT, receive).await?
    }

    async fn receive_all(&mut self, id: u16) -> Result<Message<Vec<u8>>, WireError> {
        let length = self.stream.read_u16().await?;
        let mut octets = vec![0; usize::from(length)];
        self.stream.read_exact(&mut octets).await?;
        let message = Message::from_octets(octets)
            .map_err(|_| WireError::Malformed("a message that is shorter than a header".into()))?;
        // One request is in flight per connection. A different ID is an error, not a reordered response.
        if message.header().id() == id && message.header().qr() {
            Ok(message)
        } else {
            Err(WireError::Malformed("a message that does not belong to the request".into()))
        }
    }

    /// Sends an update of `zone`; `fill` writes prerequisites and changes.
    pub(super) async fn update(
        &mut self,
        zone: &Name<Vec<u8>>,
        key: &TsigKey,
        fill: impl FnOnce(AnswerBuilder<Vec<u8>>) -> Result<AdditionalBuilder<Vec<u8>>, MessageFull>,
    ) -> Result<(), WireError> {
        let (query, id) = query(zone, Rtype::SOA, Opcode::UPDATE)?;
        let mut message = fill(query).map_err(|MessageFull| WireError::MessageFull)?;
        let transaction = ClientTransaction::request(key, &mut message, Time48::now()).map_err(message_full)?;
        self.send(message.as_slice()).await?;
        let mut response = self.receive(id).await?;
        // The response is verified before its code is read: an unsigned NOERROR proves nothing.
        let signature_result = transaction.answer(&mut response, Time48::now());
        check_response(signature_result, response.header().rcode())
    }

    /// Returns the supported records of type `kind` at `name`, and the serial number if present.
    pub(super) async fn query(
        &mut self,
        name: &Name<Vec<u8>>,
        kind: Rtype,
        key: &TsigKey,
    ) -> Result<(Vec<RecordData>, Option<u32>), WireError> {
        let (query, id) = query(name, kind, Opcode::QUERY)?;
        let mut message = query.additional();
        let transaction = ClientTransaction::request(key, &mut message, Time48::now()).map_err(message_full)?;
        self.send(message.as_slice()).await?;
        let mut response = self.receive(id).await?;
        let signature_result = transaction.answer(&mut response, Time48::now());
        match check_response(signature_result, response.header().rcode()) {
            // A missing name is an empty result. Missing records of an existing name return NOERROR without records.
            Err(WireError::Rejected(Rcode::NXDOMAIN)) => return Ok((Vec::new(), None)),
            result => result?,
        }
        let (mut records, mut serial_number) = (Vec::new(), None);
        for record in response.answer()? {
            let record = record?;
            if record.rtype() == kind {
                serial_number = parse_serial(&record)?.or(serial_number);
                records.extend(parse_data(&record)?);
            }
        }
        Ok((records, serial_number))
    }

    /// Returns the contents of `zone`.
    pub(super) async fn transfer(&mut self, zone: &Name<Vec<u8>>, key: &TsigKey) -> Result<TransferredZone, WireError> {
        let (query, id) = query(zone, Rtype::AXFR, Opcode::QUERY)?;
        let mut message = query.additional();
        let mut sequence = ClientSequence::request(key, &mut message, Time48::now()).map_err(message_full)?;
        self.send(message.as_slice()).await?;
        let (mut contents, mut soa_records, mut read_bytes) = (TransferredZone::default(), 0, 0);
        // A transfer starts and ends with the SOA record (RFC 5936, section 2.2), in any number of messages.
        while soa_records < 2 {
            let mut message_part = self.receive(id).await?;
            read_bytes += message_part.as_slice().len();
            if read_bytes > MAX_ZONE_BYTES {
                return Err(WireError::Malformed(format!(
                    "a zone of more than {MAX_ZONE_BYTES} bytes; use a separate zone for the mirror"
                )));
            }
            let signature_result = sequence.answer(&mut message_part, Time48::now());
            check_response(signature_result, message_part.header().rcode())?;
            for record in message_part.answer()? {
                let record = record?;
                if soa_records == 2 || (soa_records == 0 && record.rtype() != Rtype::SOA) {
                    return Err(WireError::Malformed(
                        "a transfer that does not start and end with the SOA record".into(),
                    ));
                }
                soa_records += usize::from(record.rtype() == Rtype::SOA);
                contents.add(&record)?;
            }
            if soa_records == 0 {
                return Err(WireError::Malformed("a transfer without an initial SOA record".into()));
            }
        }
        // TSIG may skip messages in between, but the last message of a transfer must be signed (RFC 8945, section
        // 5.3.1).
        sequence.done().map_err(WireError::Signature)?;
        Ok(contents)
    }
}

/// Bounds the time of an operation.
async fn with_timeout<T>(limit: Duration, operation: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timeout_error = || io::Error::new(io::ErrorKind::TimedOut, format!("no response within {limit:?}"));
    timeout(limit, operation).await.map_err(|_| timeout_error())?
}

fn query(zone: &Name<Vec<u8>>, kind: Rtype, opcode: Opcode) -> Result<(AnswerBuilder<Vec<u8>>, u16), WireError> {
    let mut message = MessageBuilder::new_vec();
    let id = fastrand::u16(..);
    message.header_mut().set_id(id);
    message.header_mut().set_opcode(opcode);
    let mut query = message.question();
    query.push((zone, kind, Class::IN)).map_err(message_full)?;
    Ok((query.answer(), id))
}

fn message_full(_: impl Sized) -> WireError {
    WireError::MessageFull
}

/// Checks a response. An error code is accepted without a signature; a success requires a valid signature.
fn check_response(signature_result: Result<(), ValidationError>, rcode: Rcode) -> Result<(), WireError> {
    match (signature_result, rcode) {
        (Ok(()), Rcode::NOERROR) => Ok(()),
        (Err(ValidationError::ServerUnsigned), Rcode::NOERROR) => {
            Err(WireError::Signature(ValidationError::ServerUnsigned))
        }
        // Servers report BADKEY and BADSIG without a signature.
        (Ok(()) | Err(ValidationError::ServerUnsigned), rcode) => Err(WireError::Rejected(rcode)),
        (Err(error), _) => Err(WireError::Signature(error)),
    }
}

//! Forwarded ports, which echo their input.

use super::channels::Channels;
use crate::http::options::Query;
use crate::status::Status;

/// Maximum number of forwarded ports: each uses two of the 255 channels.
const MAX_PORTS: usize = 127;

/// Forwarded ports. Port n uses channel 2n for data and 2n + 1 for errors.
pub(super) struct Ports(Vec<u16>);

impl Ports {
    /// Parses the ports of a query.
    pub(super) fn parse(query: &Query) -> Result<Self, Status> {
        let texts = query.texts("ports").flat_map(|text| text.split(','));
        let port = |text: &str| match text.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(Status::bad_request(format_args!("unable to parse {text:?} as a port"))),
        };
        let ports = texts.map(port).collect::<Result<Vec<u16>, Status>>()?;
        match ports.len() {
            0 => Err(Status::bad_request("query parameter \"ports\" is required")),
            1..=MAX_PORTS => Ok(Self(ports)),
            _ => Err(Status::bad_request(format_args!("more than {MAX_PORTS} ports"))),
        }
    }

    /// Echoes until the client closes.
    pub(super) async fn run(self, mut channels: Channels) {
        // Each port has a data and an error channel. Both start with the port number.
        for (channel, port) in (0_u8..).step_by(2).zip(&self.0) {
            for channel in [channel, channel + 1] {
                if !channels.send(channel, &port.to_le_bytes()).await {
                    return;
                }
            }
        }
        while let Some((channel, bytes)) = channels.receive().await {
            // Error channels (odd) and unknown channels are ignored.
            let is_data_channel = channel.is_multiple_of(2) && usize::from(channel / 2) < self.0.len();
            if is_data_channel && !bytes.is_empty() && !channels.send(channel, &bytes).await {
                return;
            }
        }
        channels.close().await;
    }
}

//! The ownership record of a mark: a TXT record in the zone with the process that maintains the mark's names.

use domain::base::iana::{Class, Rtype};
use domain::base::{Ttl, UnknownRecordData};
use sha2::{Digest, Sha256};

use super::Zone;
use super::error::{DnsError, DnsOperation};
use super::query::ZoneQuery;
use super::record::{OWNER_LABEL, RecordData, parse_name, short_hash, text_octets};
use super::update::MessageFull;
use super::wire::WireError;
use crate::owner::{ClaimResult, OWNER_EXPIRES_SECS, OWNER_RENEW_SECS};

/// TTL of the record, in seconds.
const OWNER_TTL: u32 = 60;

/// Maximum length of the ID of a process, which must fit into one string of a TXT record.
const MAX_INSTANCE_BYTES: usize = 200;

impl Zone {
    /// Claims the names of this mark for the process `instance` at `now`, in seconds since 1970.
    ///
    /// The record is a TXT record at `HASH._steadfast-owner.ZONE`, with the mark, the ID of the process and the time
    /// of the last renewal. A record that was not renewed for five minutes is taken over. The clocks of both
    /// processes may differ by a few minutes at most.
    pub(super) async fn claim_names(&self, instance: &str, now: u64) -> Result<ClaimResult, DnsError> {
        let instance: String = instance.chars().filter(char::is_ascii_graphic).take(MAX_INSTANCE_BYTES).collect();
        let name = self.owner_name();
        let wire = parse_name(&name)?;
        let query = ZoneQuery::Records(&wire, Rtype::TXT);
        let (records, _) = self.query(query).await?.records();
        if let Some((recorded_instance, renewed)) = records.iter().find_map(read_owner) {
            // A time far in the future comes from a wrong clock. Such a record would never expire.
            let age = now.abs_diff(renewed);
            if recorded_instance != instance && age < OWNER_EXPIRES_SECS {
                return Ok(ClaimResult::Other { instance: recorded_instance.escape_debug().to_string(), renewed });
            }
            if recorded_instance == instance && age < OWNER_RENEW_SECS {
                return Ok(ClaimResult::Ours);
            }
        }
        match self.write_owner(&name, &records, &instance, now).await {
            // Another process may have written the record in between, so the record is read again.
            Err(DnsError::Conflict { .. }) => {
                let (records, _) = self.query(query).await?.records();
                let recorded_instance =
                    records.iter().find_map(read_owner).filter(|(recorded_instance, _)| *recorded_instance != instance);
                Ok(recorded_instance.map_or(ClaimResult::Ours, |(recorded_instance, renewed)| ClaimResult::Other {
                    instance: recorded_instance.escape_debug().to_string(),
                    renewed,
                }))
            }
            written => written.map(|()| ClaimResult::Ours),
        }
    }

    /// Returns the name of the record. Each mark has its own name, so that claims of different marks do not
    /// collide.
    pub(super) fn owner_name(&self) -> String {
        let hash = short_hash(&Sha256::digest(self.mark.as_bytes()));
        if self.name == "." { format!("{hash}.{OWNER_LABEL}") } else { format!("{hash}.{OWNER_LABEL}{}", self.name) }
    }

    /// Replaces the record, unless another process changed the record since the read.
    async fn write_owner(&self, name: &str, found: &[RecordData], instance: &str, now: u64) -> Result<(), DnsError> {
        let strings = [self.mark.clone(), instance.to_owned(), now.to_string()].map(String::into_bytes);
        self.replace_text(name, found, &strings).await
    }

    /// Replaces the TXT record of `name`, if its current records equal `found`.
    pub(super) async fn replace_text(
        &self,
        name: &str,
        found: &[RecordData],
        strings: &[Vec<u8>],
    ) -> Result<(), DnsError> {
        let (address, mut connection) = self.connect().await?;
        // The serial before and after the update shows whether this update was the only change in between.
        let serial_before = connection.query(&self.wire_name, Rtype::SOA, &self.key).await;
        let wire = parse_name(name)?;
        let message_full = |_| MessageFull;
        // Prerequisites of RFC 2136: the name is unused, or its TXT records are exactly those of the last read.
        let build_message = |mut prerequisites: domain::base::message_builder::AnswerBuilder<Vec<u8>>| {
            let zero = Ttl::from_secs(0);
            let data = |kind, octets| UnknownRecordData::from_octets(kind, octets).map_err(|_| MessageFull);
            if found.is_empty() {
                prerequisites.push((&wire, Class::NONE, zero, data(Rtype::ANY, Vec::new())?)).map_err(message_full)?;
            }
            for record in found {
                let (kind, octets) = record.to_wire().map_err(|_| MessageFull)?;
                prerequisites.push((&wire, Class::IN, zero, data(kind, octets)?)).map_err(message_full)?;
            }
            let mut changes = prerequisites.authority();
            // One message deletes the old record and adds the new one. The server applies a message atomically.
            changes.push((&wire, Class::ANY, zero, data(Rtype::TXT, Vec::new())?)).map_err(message_full)?;
            let text = data(Rtype::TXT, text_octets(strings))?;
            changes.push((&wire, Class::IN, Ttl::from_secs(OWNER_TTL), text)).map_err(message_full)?;
            Ok(changes.additional())
        };
        if let Err(error) = connection.update(&self.wire_name, &self.key, build_message).await {
            if matches!(error, WireError::Io(_)) {
                self.addresses.record_failure(&address);
            }
            return Err(match self.dns_error(DnsOperation::Update, &[], error) {
                DnsError::Conflict { zone, rcode, .. } => {
                    DnsError::Conflict { zone, names: vec![name.to_owned()], rcode }
                }
                error => error,
            });
        }
        // The renewal itself must not cause a read.
        let serial_after = connection.query(&self.wire_name, Rtype::SOA, &self.key).await;
        if let (Ok((_, Some(serial_before))), Ok((_, Some(serial_after)))) = (serial_before, serial_after) {
            let mut state = self.state();
            if state.contents.serial == Some(serial_before) && serial_after == serial_before.wrapping_add(1) {
                state.contents.serial = Some(serial_after);
            }
        }
        Ok(())
    }
}

/// Returns the ID of the process and the time of the last renewal.
fn read_owner(data: &RecordData) -> Option<(String, u64)> {
    let RecordData::Txt(strings) = data else { return None };
    let [_, instance, renewed] = &strings[..] else { return None };
    let renewed = std::str::from_utf8(renewed).ok()?.parse().ok()?;
    Some((String::from_utf8_lossy(instance).into_owned(), renewed))
}

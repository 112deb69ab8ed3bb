//! Checks of constants in entries that a target rejects for every object.

use std::net::IpAddr;

use serde_json::Value;
use steadfast_targets::dns::{DnsError, DnsRecord, RecordData, entry};

use crate::config::sinks::SinkConfig;
use crate::expression::Constant;

/// Maximum weight of a server.
const MAX_WEIGHT: u64 = 256;

/// Maximum TTL of a record, in seconds (RFC 2181, section 8).
const MAX_TTL: u64 = i32::MAX as u64;

/// Returns the constants of an entry that `sink` rejects: index and reason of each.
pub(crate) fn rejected_constants(sink: &SinkConfig, constants: &[Constant]) -> Vec<(usize, String)> {
    let text = |field: &str| {
        let constant = constants.iter().find(|constant| constant.field == field);
        constant.and_then(|constant| constant.value.as_str())
    };
    let rejection_reason = |constant: &Constant| {
        let value = &constant.value;
        if let Some(dns) = &sink.dns {
            return match (constant.field.as_str(), value.as_str()) {
                ("type", Some(kind)) => unsupported_type(kind),
                ("data", Some(data)) => {
                    let kind = text("type").filter(|kind| unsupported_type(kind).is_none())?;
                    RecordData::read(kind, data).err().map(|error| error.to_string())
                }
                ("name", Some(name)) => name_outside_zones(dns.zone.names(), name),
                ("ttl", None) => out_of_range(value, 0, MAX_TTL),
                _ => None,
            };
        }
        // Registry and etcd values are free-form.
        if sink.haproxy.is_none() && sink.nftables.is_none() && sink.ipvs.is_none() {
            return None;
        }
        match (constant.field.as_str(), value.as_str()) {
            ("address", Some(address)) => {
                let is_address = address.parse::<IpAddr>().is_ok();
                (!is_address).then(|| format!("{address:?} is not an IP address"))
            }
            ("port", None) => out_of_range(value, 1, u16::MAX.into()),
            ("weight", None) => out_of_range(value, 0, MAX_WEIGHT),
            _ => None,
        }
    };
    let reasons = constants.iter().enumerate().filter_map(|(number, constant)| {
        let rejection_reason = rejection_reason(constant)?;
        Some((number, format!("`{}`: {rejection_reason}", constant.field)))
    });
    reasons.collect()
}

/// Returns the reason why a mirror does not support this record type.
fn unsupported_type(kind: &str) -> Option<String> {
    // The parser returns the same `expected` text for all unsupported types. `?` is certainly unsupported.
    let reason = |kind: &str| match RecordData::read(kind, "") {
        Err(DnsError::Data { expected, .. }) => Some(expected.to_string()),
        _ => None,
    };
    let unknown = reason("?")?;
    (reason(kind)? == unknown).then(|| format!("{kind:?} is not {unknown}"))
}

/// Returns the reason why a name is in none of the `zones`.
fn name_outside_zones(zones: &[String], name: &str) -> Option<String> {
    let mut reason = None;
    for zone in zones {
        let record = DnsRecord { name: name.to_owned(), ttl: 0, data: RecordData::A([192, 0, 2, 1].into()) };
        reason = Some(entry(zone, record).err()?.to_string());
    }
    reason
}

fn out_of_range(value: &Value, min: u64, max: u64) -> Option<String> {
    let integer = value.as_f64().filter(|number| number.fract() == 0.0);
    // Integers up to the largest of these bounds are exact in `f64`.
    #[expect(clippy::cast_precision_loss, reason = "the bounds are far below 2^53")]
    let fits = integer.is_some_and(|number| (min as f64..=max as f64).contains(&number));
    (!fits).then(|| format!("{value} is not a whole number from {min} to {max}"))
}

//! Errors of zones, each with advice.

use domain::base::iana::Rcode;
use domain::tsig::ValidationError;

/// Reason that a zone cannot be read or changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DnsError {
    /// A key is not a valid TSIG key. Errors never contain the secret.
    #[error("this is not a valid TSIG key: {0}; create a key with `tsig-keygen` or `keymgr -t`")]
    TsigKey(&'static str),
    /// A mark is not valid.
    #[error("{0:?} cannot be a mark: use letters, digits, `-`, `_`, `.`, `/` and `:`, at most 200 characters")]
    Mark(String),
    /// The name is not a valid domain name.
    #[error("{name:?} cannot be the name of an entry: {reason}")]
    Name {
        /// Rejected name.
        name: String,
        /// Violated rule.
        reason: String,
    },
    /// The name is outside of the zone.
    #[error("{name} is not in the zone {zone}: use the full name")]
    Outside {
        /// The name.
        name: String,
        /// The zone.
        zone: String,
    },
    /// The text is not valid data of the record type.
    #[error("{text:?} is not valid data of a record of type {kind}: use {expected}")]
    Data {
        /// The type.
        kind: String,
        /// Rejected text.
        text: String,
        /// Expected form of the data.
        expected: &'static str,
    },
    /// The TTL exceeds the limit of DNS.
    #[error("{name} cannot have a TTL of {ttl} s: the longest is 2147483647 s")]
    Ttl {
        /// The name.
        name: String,
        /// Requested TTL in seconds.
        ttl: u32,
    },
    /// The two records cannot share a name.
    #[error(
        "{name} cannot have both {first} and {second}: a name with a CNAME has no other records, and a service has one weight"
    )]
    Clash {
        /// The name.
        name: String,
        /// First record.
        first: String,
        /// Second record.
        second: String,
    },
    /// The zone apex cannot have a CNAME.
    #[error("{name} is the zone itself, and cannot have {record}: use addresses instead")]
    Apex {
        /// The name.
        name: String,
        /// The record.
        record: String,
    },
    /// Another client added an identical record.
    #[error("{name} already has {record} of another client, which the mirror does not change")]
    Exists {
        /// The name.
        name: String,
        /// The record.
        record: String,
    },
    /// No address of a server is known.
    #[error("the server {server} has no address: {reason}; write its address, or correct the name")]
    Unresolved {
        /// The server.
        server: String,
        /// The cause.
        reason: String,
    },
    /// A zone that could not be read.
    #[error("the zone {zone} cannot be read: {reason}")]
    Unread {
        /// The zone.
        zone: String,
        /// The cause.
        reason: String,
    },
    /// The server does not respond.
    #[error(
        "the server {server} does not respond over TCP: {source}; check that it listens there and that this is its primary address"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Server and mirror do not agree on the key, or the response was forged.
    #[error("the server {server} and the key {key}: {}", disagreement(.reason))]
    Tsig {
        /// The server.
        server: String,
        /// The key's name.
        key: String,
        /// Failed check of the signature.
        reason: ValidationError,
    },
    /// Another client changed these names or their marks since the last read. The update was rejected as a whole.
    #[error("another client changed {} in {zone} since the last read ({rcode}); nothing was changed, and the mirror reads the zone again", .names.join(", "))]
    Conflict {
        /// The zone.
        zone: String,
        /// The names.
        names: Vec<String>,
        /// Response code of the server.
        rcode: Rcode,
    },
    /// The server rejected the operation.
    #[error("the server {server} rejected {} of {zone}: {rcode}{}", .operation.description(), .operation.remedy(*.rcode))]
    Rejected {
        /// The server.
        server: String,
        /// The zone.
        zone: String,
        /// Requested operation.
        operation: DnsOperation,
        /// Response code of the server.
        rcode: Rcode,
    },
    /// The changes of a name do not fit into a message.
    #[error("the changes of {} do not fit into one DNS message of 65535 bytes; give the name fewer records", .names.join(", "))]
    MessageFull {
        /// The names.
        names: Vec<String>,
    },
    /// A response has an unknown form.
    #[error("the response of the server {server} has an unknown form: {reason}")]
    Unexpected {
        /// The server.
        server: String,
        /// Unknown part of the response.
        reason: String,
    },
}

debug_as_message!(DnsError);

/// Operation requested from a DNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsOperation {
    /// Transfer of the whole zone.
    Transfer,
    /// A change.
    Update,
    /// Single records.
    Query,
}

impl DnsError {
    /// Returns true if all further messages would fail too. This is the case if the server has no known address, does
    /// not respond, or responds in an unknown form. It is also the case if the server rejects the key, does not serve
    /// this zone, or does not support dynamic updates.
    pub(super) fn is_server_failure(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Unexpected { .. } | Self::Tsig { .. } | Self::Unresolved { .. } => true,
            Self::Rejected { rcode, .. } => matches!(*rcode, Rcode::NOTAUTH | Rcode::NOTIMP),
            _ => false,
        }
    }
}

impl DnsOperation {
    fn description(self) -> &'static str {
        match self {
            Self::Transfer => "a transfer (AXFR)",
            Self::Update => "an update",
            Self::Query => "a query",
        }
    }

    /// Returns advice for a response code.
    fn remedy(self, rcode: Rcode) -> &'static str {
        match (rcode, self) {
            (Rcode::REFUSED, Self::Transfer) => {
                "; let the key transfer the zone: `allow-transfer { key …; };` in BIND, `action: [transfer, update]` in \
                 an acl of the zone in Knot; also check that the server has this zone"
            }
            (Rcode::REFUSED, Self::Update) => {
                "; let the key update the zone and its `_steadfast` names: `update-policy` or `allow-update { key …; };` in BIND, \
                 `action: [transfer, update]` in an acl of the zone in Knot; if other names are accepted, the server rejects this \
                 record (in BIND, `check-names` or `check-mx`)"
            }
            (Rcode::NOTAUTH, _) => {
                "; the server is not authoritative for the zone: check that this is the name of the zone and the address of its primary server"
            }
            (Rcode::NOTZONE, _) => "; one of the names is not in the zone, but possibly in a delegated zone below it",
            (Rcode::NOTIMP, _) => "; the server does not support dynamic updates",
            (Rcode::SERVFAIL, _) => {
                "; check the log of the server, for example for a zone that is not loaded or a journal that cannot be written"
            }
            _ => "",
        }
    }
}

fn disagreement(reason: &ValidationError) -> String {
    match reason {
        ValidationError::ServerBadKey => {
            "the server does not know the key, or not for this zone (BADKEY): name and algorithm must match its configuration, \
             and an acl of the zone must contain the key".into()
        }
        ValidationError::ServerBadSig => "the server has another secret for this key (BADSIG)".into(),
        ValidationError::ServerBadTime { client, server } => {
            let (local, remote) = (u64::from(*client), u64::from(*server));
            let difference = local.abs_diff(remote);
            let direction = if local > remote { "behind" } else { "ahead" };
            format!("the clock of the server is {difference} s {direction} (BADTIME): set both clocks, for example with NTP")
        }
        ValidationError::ServerUnsigned | ValidationError::TooManyUnsigned => {
            "the response is not signed and was rejected: a host on the network path may have written it".into()
        }
        other => format!("the signature of the response is not valid ({other}); the response was rejected"),
    }
}

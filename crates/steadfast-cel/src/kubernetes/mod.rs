//! Values of the types that the Kubernetes API adds to CEL.
//!
//! Parsers and comparisons follow the libraries of a real API server, including their deviations from the
//! specifications.
//!
//! | module | content |
//! |---|---|
//! | `quantity`, `decimal` | quantities such as `1500m` and `2Gi`, and exact decimal numbers |
//! | `url`, `escapes` | URLs as Go parses them, and percent-encoding |
//! | `address` | IP addresses and networks |
//! | `semver` | semantic versions |
//! | `named_format`, `labels` | named formats, and the messages of the formats for names and labels |

mod address;
mod decimal;
mod escapes;
mod labels;
mod named_format;
mod quantity;
mod semver;
mod url;

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use address::{
    ADDRESS_SYNTAX, NETWORK_SYNTAX, Network, is_global_unicast, is_link_local_multicast, is_link_local_unicast,
    parse_address,
};
pub(crate) use named_format::NamedFormat;
pub use quantity::quantity_value;
pub(crate) use quantity::{QUANTITY_SYNTAX, Quantity};
pub(crate) use semver::{SEMVER_SYNTAX, Semver};
pub(crate) use url::{URL_SYNTAX, Url};

use crate::types::Type;

/// Value of a type that Kubernetes adds to CEL. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Extension(pub(crate) Content);

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Quantity(Quantity),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Network),
    Semver(Arc<Semver>),
    Format(NamedFormat),
}

impl Extension {
    /// Returns whether two values are equal. Values of different types are unequal.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Content::Quantity(one), Content::Quantity(other)) => one.order(other).is_eq(),
            (Content::Url(one), Content::Url(other)) => one == other,
            (Content::Ip(one), Content::Ip(other)) => one == other,
            (Content::Cidr(one), Content::Cidr(other)) => one == other,
            (Content::Semver(one), Content::Semver(other)) => one.order(other).is_eq(),
            (Content::Format(one), Content::Format(other)) => one == other,
            _ => false,
        }
    }

    /// Returns the type of the value.
    pub(crate) fn type_of(&self) -> Type {
        match self.0 {
            Content::Quantity(_) => Type::Quantity,
            Content::Url(_) => Type::Url,
            Content::Ip(_) => Type::Ip,
            Content::Cidr(_) => Type::Cidr,
            Content::Semver(_) => Type::Semver,
            Content::Format(_) => Type::Format,
        }
    }

    /// Returns the maximum number of bytes that a comparison reads.
    pub(crate) fn comparison_bytes(&self) -> usize {
        match &self.0 {
            Content::Quantity(quantity) => quantity.bytes(),
            Content::Url(url) => url.bytes(),
            Content::Semver(semver) => semver.bytes(),
            Content::Ip(_) | Content::Cidr(_) | Content::Format(_) => 16,
        }
    }
}

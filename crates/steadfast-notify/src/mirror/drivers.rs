//! The kinds of mirrors: what each is called in a configuration, what its entries have, and how it is opened.
//!
//! Another kind is a file here, a field of [`Sink`], and a line in each of these two functions.

mod dns;
mod etcd;
mod haproxy;
mod ipvs;
mod nftables;
mod registry;

use std::path::Path;

use super::driver::{AnyDriver, Refused};
use crate::config::sinks::Sink;
use crate::shape::{SERVER, Shape};

/// What entries of `sink` have; none where it is no mirror.
pub(crate) fn shape(sink: &Sink) -> Option<Shape> {
    match sink.kind()? {
        "haproxy" | "nftables" | "ipvs" => Some(SERVER),
        "dns" => Some(dns::SHAPE),
        "etcd" => Some(etcd::SHAPE),
        "registry" => Some(registry::SHAPE),
        _ => None,
    }
}

/// Opens the mirror that `sink` is; paths that are not absolute begin at `folder`. Nothing is connected to yet.
pub(super) async fn open(name: &str, sink: &Sink, folder: &Path) -> Result<Option<Box<dyn AnyDriver>>, Refused> {
    let opened = if let Some(config) = &sink.haproxy {
        haproxy::open(config, folder)
    } else if let Some(config) = &sink.nftables {
        nftables::open(name, config)
    } else if let Some(config) = &sink.ipvs {
        ipvs::open(config)
    } else if let Some(config) = &sink.dns {
        dns::open(config, folder)
    } else if let Some(config) = &sink.etcd {
        etcd::open(config, sink.compare.map(|span| span.0), folder).await
    } else if let Some(config) = &sink.registry {
        registry::open(config, folder).await
    } else {
        return Ok(None);
    };
    opened.map(Some)
}

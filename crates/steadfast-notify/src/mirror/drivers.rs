//! Kinds of mirrors: configuration key, shape of entries and constructor.
//!
//! A new kind needs a file here, a field of [`Sink`], and a line in each of these two functions.

mod dns;
mod etcd;
mod haproxy;
mod ipvs;
mod nftables;
mod registry;

use std::path::Path;

use super::driver::{AnyDriver, OpenError};
use crate::config::sinks::Sink;
use crate::shape::{SERVER, Shape};

/// Returns the shape of entries of `sink`. `None` for a stream.
pub(crate) fn shape(sink: &Sink) -> Option<Shape> {
    match sink.kind()? {
        "haproxy" | "nftables" | "ipvs" => Some(SERVER),
        "dns" => Some(dns::SHAPE),
        "etcd" => Some(etcd::SHAPE),
        "registry" => Some(registry::SHAPE),
        _ => None,
    }
}

/// Opens the mirror of `sink` without connecting to the target. Relative paths start at `folder`.
pub(super) async fn open(name: &str, sink: &Sink, folder: &Path) -> Result<Option<Box<dyn AnyDriver>>, OpenError> {
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

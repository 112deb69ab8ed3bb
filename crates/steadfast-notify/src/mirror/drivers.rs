//! Kinds of mirrors: configuration key, fields of entries and constructor.
//!
//! A new kind needs a file here, a field of [`SinkConfig`], and a line in each of the functions `entry_fields` and
//! `open`.

mod dns;
mod etcd;
mod haproxy;
mod ipvs;
mod nftables;
mod registry;

use std::path::Path;

use super::driver::{AnyDriver, OpenError};
use crate::config::sinks::SinkConfig;
use crate::entry_fields::{EntryFields, SERVER};

/// Returns the fields of the entries of `sink`. `None` for a stream.
pub(crate) fn entry_fields(sink: &SinkConfig) -> Option<EntryFields> {
    match sink.kind()? {
        "haproxy" | "nftables" | "ipvs" => Some(SERVER),
        "dns" => Some(dns::ENTRY_FIELDS),
        "etcd" => Some(etcd::ENTRY_FIELDS),
        "registry" => Some(registry::ENTRY_FIELDS),
        _ => None,
    }
}

/// Opens the mirror of `sink` without connecting to the target. Relative paths start at `folder`.
pub(super) async fn open(
    name: &str,
    sink: &SinkConfig,
    folder: &Path,
) -> Result<Option<Box<dyn AnyDriver>>, OpenError> {
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

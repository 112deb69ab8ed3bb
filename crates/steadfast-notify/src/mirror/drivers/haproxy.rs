//! The servers of a backend of `HAProxy`.

use std::path::Path;

use steadfast_outside::haproxy::{Haproxy, HaproxyError, Server};

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Driver, Refused, one_by_one};
use crate::mirror::entry::Entry;

pub(super) fn open(config: &mirrors::Haproxy, folder: &Path) -> Result<Box<dyn AnyDriver>, Refused> {
    let target = Haproxy::new(&folder.join(&config.socket), &config.backend, &config.prefix);
    let target = target.map_err(|error| {
        let field = match &error {
            HaproxyError::Name(name) if *name == config.backend => "haproxy.backend",
            _ => "haproxy.prefix",
        };
        Refused::at(field, error, "name it as HAProxy does")
    })?;
    Ok(Box::new(Driver { target, values: one_by_one(value) }))
}

fn value(entry: &Entry) -> Result<(String, Server), String> {
    Ok((entry.key.clone(), Server { address: entry.address()?, weight: entry.weight()? }))
}

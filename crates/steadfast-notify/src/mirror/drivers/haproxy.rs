//! Driver for servers of a backend of `HAProxy`.

use std::path::Path;

use steadfast_targets::haproxy::{Haproxy, HaproxyError, Server, entry_name};

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Driver, OpenError, all_entries};
use crate::mirror::entry::Entry;

pub(super) fn open(config: &mirrors::HaproxyConfig, folder: &Path) -> Result<Box<dyn AnyDriver>, OpenError> {
    let target = Haproxy::new(&folder.join(&config.socket), &config.backend, &config.prefix);
    let target = target.map_err(|error| {
        let field = match &error {
            HaproxyError::Name(name) if *name == config.backend => "haproxy.backend",
            _ => "haproxy.prefix",
        };
        OpenError::new(field, error, "use the name in HAProxy's configuration")
    })?;
    let options = config.server_options.text().parse();
    let options = options.map_err(|error| {
        OpenError::new("haproxy.server_options", error, "use the syntax of a `server` line of HAProxy's configuration")
    })?;
    let prefix = config.prefix.clone();
    let convert_entry = all_entries(move |entry| Ok((entry_name(&prefix, &entry.key), server(entry)?)));
    Ok(Box::new(Driver { target: target.server_options(options), convert_entry }))
}

fn server(entry: &Entry) -> Result<Server, String> {
    Ok(Server { address: entry.address()?, weight: entry.weight()? })
}

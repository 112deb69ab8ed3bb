//! Driver for forwarding by nftables.

use steadfast_targets::nftables::{Backend, Nftables, TransportProtocol, entry_name};

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Driver, OpenError, all_entries};
use crate::mirror::entry::Entry;

pub(super) fn open(name: &str, config: &mirrors::NftablesConfig) -> Result<Box<dyn AnyDriver>, OpenError> {
    let name = config.name.as_deref().unwrap_or(name);
    let target = Nftables::new(name, config.address);
    let target = target.map_err(|error| OpenError::new("nftables.name", error, "use another name"))?;
    if config.command.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(OpenError::new(
            "nftables.command",
            "the command is empty",
            "set a command such as [\"sudo\", \"nft\"]",
        ));
    }
    let target = target.protocol(match config.protocol {
        mirrors::ProtocolConfig::Tcp => TransportProtocol::Tcp,
        mirrors::ProtocolConfig::Udp => TransportProtocol::Udp,
    });
    Ok(Box::new(Driver { target: target.with_command(&config.command), convert_entry: all_entries(value) }))
}

fn value(entry: &Entry) -> Result<(String, Backend), String> {
    Ok((entry_name(&entry.key), Backend { address: entry.address()?, weight: entry.weight()? }))
}

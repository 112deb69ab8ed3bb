//! Driver for real servers of an IPVS virtual service.

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, OpenError};

#[cfg(target_os = "linux")]
pub(super) fn open(config: &mirrors::IpvsConfig) -> Result<Box<dyn AnyDriver>, OpenError> {
    use mirrors::ProtocolConfig;
    use steadfast_targets::ipvs::{ForwardingMethod, Ipvs, RealServer, VirtualService};

    use crate::mirror::driver::{Driver, all_entries};

    let service = match config.protocol {
        ProtocolConfig::Tcp => VirtualService::tcp(config.address),
        ProtocolConfig::Udp => VirtualService::udp(config.address),
    };
    let mut service = service.map_err(|error| OpenError::new("ipvs.address", error, "use an address and a port"))?;
    if let Some(name) = &config.scheduler {
        let named = service.scheduler(name);
        service =
            named.map_err(|error| OpenError::new("ipvs.scheduler", error, "use a name of ipvsadm: `rr`, `wlc`"))?;
    }
    if let Some(seconds) = config.persistent {
        service = service.persistent(seconds);
    }
    let forward = match config.forward {
        mirrors::ForwardConfig::Masquerade => ForwardingMethod::Masquerade,
        mirrors::ForwardConfig::Direct => ForwardingMethod::Direct,
        mirrors::ForwardConfig::Tunnel => ForwardingMethod::Tunnel,
    };
    // The kernel identifies a server only by address and port.
    let convert_entry =
        all_entries(move |entry| Ok((entry.address()?.to_string(), RealServer::new(entry.weight()?, forward))));
    Ok(Box::new(Driver { target: Ipvs::new(service), convert_entry }))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open(_: &mirrors::IpvsConfig) -> Result<Box<dyn AnyDriver>, OpenError> {
    Err(OpenError::new("ipvs", "IPVS needs Linux", "run the program on Linux"))
}

//! The real servers behind a virtual service of IPVS.

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Refused};

#[cfg(target_os = "linux")]
pub(super) fn open(config: &mirrors::Ipvs) -> Result<Box<dyn AnyDriver>, Refused> {
    use mirrors::Protocol;
    use steadfast_outside::ipvs::{Forward, Ipvs, Server, Service};

    use crate::mirror::driver::{Driver, one_by_one};

    let service = match config.protocol {
        Protocol::Tcp => Service::tcp(config.address),
        Protocol::Udp => Service::udp(config.address),
    };
    let mut service = service.map_err(|error| Refused::at("ipvs.address", error, "write an address and a port"))?;
    if let Some(name) = &config.scheduler {
        let named = service.scheduler(name);
        service =
            named.map_err(|error| Refused::at("ipvs.scheduler", error, "name it as ipvsadm does: `rr`, `wlc`"))?;
    }
    if let Some(seconds) = config.persistent {
        service = service.persistent(seconds);
    }
    let forward = match config.forward {
        mirrors::Forward::Masquerade => Forward::Masquerade,
        mirrors::Forward::Direct => Forward::Direct,
        mirrors::Forward::Tunnel => Forward::Tunnel,
    };
    // The kernel knows no name of a server but where it is.
    let values = one_by_one(move |entry| Ok((entry.address()?.to_string(), Server::new(entry.weight()?, forward))));
    Ok(Box::new(Driver { target: Ipvs::new(service), values }))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open(_: &mirrors::Ipvs) -> Result<Box<dyn AnyDriver>, Refused> {
    Err(Refused::at("ipvs", "only Linux has IPVS", "run it there"))
}

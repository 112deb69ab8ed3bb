//! Claim of a virtual service, because IPVS has no mark for the owner.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::IpvsError;
use super::service::VirtualService;

/// Claim of this process to a virtual service.
///
/// The claim is a listening socket with an abstract name. Such names belong to the network namespace, like the services
/// of IPVS. So two containers in one namespace see each other's claim, although they share no files. The kernel
/// releases the claim when the process ends for any reason.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceClaim(Arc<Mutex<Option<UnixListener>>>);

impl ServiceClaim {
    /// Claims `service`, unless this target holds the claim already.
    ///
    /// # Errors
    ///
    /// Returns an error if another process of this user or of root holds the claim. Sockets of other users are
    /// ignored: any user can take the name, but must not be able to stop a mirror.
    pub(super) fn acquire(&self, service: &VirtualService) -> Result<(), IpvsError> {
        let mut listener_slot = self.0.lock();
        if listener_slot.is_some() {
            return Ok(());
        }
        let name = format!("steadfast-ipvs {}", service.command_line());
        let address = SocketAddr::from_abstract_name(&name).map_err(IpvsError::Netlink)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => *listener_slot = Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                // The holder may have ended in between. In this case, the next attempt gets the name.
                let holder = UnixStream::connect_addr(&address).and_then(|stream| holder(&stream));
                if !holder.is_ok_and(|holder| is_foreign(holder, own_uid())) {
                    return Err(IpvsError::Claimed { service: service.command_line() });
                }
            }
            // This error occurs on systems without abstract sockets, and at resource limits. A missing claim must not
            // keep a load balancer empty.
            Err(_) => {}
        }
        Ok(())
    }
}

/// Returns true if the user `holder` may not claim a service for `own`.
fn is_foreign(holder: u32, own: Option<u32>) -> bool {
    holder != 0 && own != Some(holder)
}

/// Returns the user that listens at the other end.
fn holder(stream: &UnixStream) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

/// Returns the user of this process.
fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(port: u16) -> VirtualService {
        VirtualService::tcp(std::net::SocketAddr::from(([192, 0, 2, 1], port))).expect("a service")
    }

    #[test]
    fn claimed_service_rejects_second_claim() {
        let (first, second) = (ServiceClaim::default(), ServiceClaim::default());
        let port = u16::try_from(std::process::id() % 60_000).expect("a port") + 1;
        first.acquire(&service(port)).expect("free");
        first.acquire(&service(port)).expect("a repeated claim");
        let error = second.acquire(&service(port)).expect_err("claimed");
        assert!(error.to_string().contains(&format!("another process manages `-t 192.0.2.1:{port}`")), "{error}");
        second.acquire(&service(port + 1)).expect("another service");
        drop(first);
        ServiceClaim::default().acquire(&service(port)).expect("free again");
    }

    #[test]
    fn claims_of_other_users_are_ignored() {
        assert!(is_foreign(1000, Some(0)) && is_foreign(1000, Some(1001)) && is_foreign(1000, None));
        assert!(!is_foreign(0, Some(1000)) && !is_foreign(1000, Some(1000)));
    }
}

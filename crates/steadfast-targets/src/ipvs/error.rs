//! Errors of virtual services, each with advice.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

/// Error numbers: `ENOENT` for a missing server, scheduler or family; `ESRCH` for a missing service.
pub(super) const NOENT: i32 = Errno::NOENT.raw_os_error();
pub(super) const SRCH: i32 = Errno::SRCH.raw_os_error();

/// Reason that a virtual service cannot be read or changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum IpvsError {
    /// The address is not valid for a service.
    #[error("{0} cannot be a virtual service: use an address of this machine without a scope, and a port")]
    Service(SocketAddr),
    /// The scheduler name is invalid.
    #[error("{0:?} is not a valid scheduler: use up to 15 lower-case letters, digits and `_`, such as `wrr`")]
    Scheduler(String),
    /// The entry name is not an address with port.
    #[error(
        "{0:?} is not a valid real server: use address and port in the shortest form, such as `10.0.0.1:8080` or `[fd00::1]:8080`"
    )]
    Name(String),
    /// The kernel does not forward between address families.
    #[error("the real server {server} is not of the address family of {service}")]
    Family {
        /// The real server.
        server: SocketAddr,
        /// Virtual service.
        service: SocketAddr,
    },
    /// Only masquerading can change the port.
    #[error(
        "the real server {server} has another port than {service}: use the same port, or the forwarding method masquerade"
    )]
    Port {
        /// The real server.
        server: SocketAddr,
        /// Virtual service.
        service: SocketAddr,
    },
    /// Another process has claimed the service.
    #[error(
        "another process manages `{service}` in this network namespace, and each would remove the real servers of the other; stop one of \
         them, or give each its own virtual service"
    )]
    Claimed {
        /// Service in the syntax of `ipvsadm`.
        service: String,
    },
    /// The kernel has no IPVS.
    #[error("this kernel has no IPVS: run `modprobe ip_vs` on the host")]
    Absent,
    /// The netlink socket failed.
    #[error("the netlink socket of IPVS failed: {0}")]
    Netlink(#[source] io::Error),
    /// The kernel rejected the command.
    #[error("the kernel rejected `{command}`: {}{}", io::Error::from_raw_os_error(*.code), remedy(*.code, .command))]
    Rejected {
        /// Equivalent command of `ipvsadm`.
        command: String,
        /// Error number of `errno.h`.
        code: i32,
    },
    /// A reply has an unknown form.
    #[error("the reply of the kernel to `{command}` has an unknown form: {reason}")]
    Unexpected {
        /// Equivalent command of `ipvsadm`.
        command: String,
        /// Unknown part of the reply.
        reason: String,
    },
}

debug_as_message!(IpvsError);

/// Returns advice for an error number.
fn remedy(code: i32, command: &str) -> String {
    const PERM: i32 = Errno::PERM.raw_os_error();
    const EXIST: i32 = Errno::EXIST.raw_os_error();
    const AFNOSUPPORT: i32 = Errno::AFNOSUPPORT.raw_os_error();
    const INVAL: i32 = Errno::INVAL.raw_os_error();
    let scheduler = || command.split(" -s ").nth(1).and_then(|rest| rest.split(' ').next());
    match code {
        PERM => "; the program needs CAP_NET_ADMIN in the network namespace".to_owned(),
        SRCH => "; another program removed the service, and the mirror adds it again after the next read".to_owned(),
        EXIST => {
            "; another program added the same entry concurrently, and the mirror takes it over after the next read"
                .to_owned()
        }
        NOENT => match scheduler() {
            Some(name) => format!("; `modprobe ip_vs_{name}`, or use a scheduler of this kernel"),
            None => "; another program removed the server, and the next read detects that".to_owned(),
        },
        AFNOSUPPORT => "; this kernel's IPVS was built without IPv6".to_owned(),
        INVAL => "; use unicast addresses, without link-local addresses".to_owned(),
        _ => String::new(),
    }
}

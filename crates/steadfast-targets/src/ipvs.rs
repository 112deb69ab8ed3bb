//! Real servers behind one virtual service of IPVS (LVS), added to and removed from traffic in the kernel by netlink.
//!
//! IPVS has no field for a mark, so a mirror owns a virtual service as a whole. It owns the scheduler and all real
//! servers of the service, including servers added by other programs. The mirror changes no other services of the
//! machine. A file that lists the added servers would be more exact. But the file would be wrong after a restart, a
//! change by another tool or a restored disk. Do not give a mirror a service that another program uses.
//!
//! Two processes that maintain one service would remove each other's servers. So a mirror claims its service before its
//! first change. The claim is a socket with an abstract name (`@steadfast-ipvs -t 10.9.0.1:80`) in the network
//! namespace of the service. The second process changes nothing, and reports [`IpvsError::Claimed`] until the first
//! process ends. Other programs know nothing of the claim.
//!
//! The name of an entry is the kernel's identity of the server, its address and port: `10.0.0.1:8080`,
//! `[fd00::1]:8080`. Existing servers are therefore known after a restart. A server that moves is a new entry, which is
//! added before the old entry is drained.
//!
//! The service is added with its first server, and stays after its last server was removed. The kernel then rejects
//! connections at once.
//!
//! A server without weight gets no new connections, and is removed when it has no active connections left. UDP
//! connections have no end: a server of a UDP service is removed when the kernel has dropped all connections to the
//! server. With persistence, known clients keep their server unless `net.ipv4.vs.expire_quiescent_template` is 1.

mod claim;
mod error;
mod messages;
mod server;
mod service;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::entry::{ActualState, Step, Target};
use claim::ServiceClaim;
pub use error::IpvsError;
use error::{NOENT, SRCH};
use messages::{ListedRealServer, ListedVirtualService};
use server::Drift;
pub use server::{ForwardingMethod, RealServer};
pub use service::VirtualService;
use service::{ServiceProtocol, is_plain};
use socket::{NetlinkError, ReplyCount, Socket};

/// The family of generic netlink.
const NETLINK_FAMILY: &str = "IPVS";

/// The real servers behind a virtual service, in the network namespace of the process.
#[derive(Clone, Debug)]
pub struct Ipvs {
    service: VirtualService,
    claim: ServiceClaim,
    /// Held during each operation.
    operation_lock: Arc<Mutex<()>>,
}

impl Ipvs {
    /// Creates the target. Connections from this and other machines to `service` are forwarded to the entries.
    pub fn new(service: VirtualService) -> Self {
        Self { service, claim: ServiceClaim::default(), operation_lock: Arc::default() }
    }

    /// Sends a command. Errors contain the equivalent command of `ipvsadm`.
    fn request(&self, socket: &mut Socket, ipvs_command: IpvsCommand<'_>) -> Result<Vec<Vec<u8>>, IpvsError> {
        let (command, reply_count, attributes) = match ipvs_command {
            IpvsCommand::GetService => (messages::GET_SERVICE, ReplyCount::One, messages::service_id(&self.service)),
            IpvsCommand::GetServers => (messages::GET_DEST, ReplyCount::All, messages::service_id(&self.service)),
            IpvsCommand::AddService => {
                (messages::NEW_SERVICE, ReplyCount::One, messages::service_attributes(&self.service))
            }
            IpvsCommand::EditService => {
                (messages::SET_SERVICE, ReplyCount::One, messages::service_attributes(&self.service))
            }
            IpvsCommand::Step(step) => {
                let (command, server) = match step {
                    Step::Add { value, .. } => (messages::NEW_DEST, Some(value)),
                    Step::Change { to, .. } => (messages::SET_DEST, Some(to)),
                    Step::Remove { .. } => (messages::DEL_DEST, None),
                };
                let address = self.check_server(step.name(), server)?;
                (command, ReplyCount::One, messages::server_attributes(&self.service, address, server))
            }
        };
        let result = socket.request(command, reply_count, attributes);
        result.map_err(|error| ipvs_error(error, || self.command_line(ipvs_command)))
    }

    /// Returns the `ipvsadm` command line for `command`.
    fn command_line(&self, command: IpvsCommand<'_>) -> String {
        let (service, settings) = (self.service.command_line(), self.service.settings());
        let server_options = |RealServer { weight, forward, .. }: &RealServer| {
            let forward = match forward {
                ForwardingMethod::Masquerade => "-m",
                ForwardingMethod::Direct => "-g",
                ForwardingMethod::Tunnel => "-i",
            };
            format!("{forward} -w {weight}")
        };
        match command {
            IpvsCommand::GetService | IpvsCommand::GetServers => format!("ipvsadm -Ln {service}"),
            IpvsCommand::AddService => format!("ipvsadm -A {service} {settings}"),
            IpvsCommand::EditService => format!("ipvsadm -E {service} {settings}"),
            IpvsCommand::Step(Step::Add { name, value }) => {
                format!("ipvsadm -a {service} -r {name} {}", server_options(value))
            }
            IpvsCommand::Step(Step::Change { name, to, .. }) => {
                format!("ipvsadm -e {service} -r {name} {}", server_options(to))
            }
            IpvsCommand::Step(Step::Remove { name, .. }) => format!("ipvsadm -d {service} -r {name}"),
        }
    }

    /// Returns the address of a valid entry.
    fn check_server(&self, name: &str, server: Option<&RealServer>) -> Result<SocketAddr, IpvsError> {
        let address = name.parse().ok().filter(|address: &SocketAddr| address.to_string() == name);
        let is_valid = |address: &SocketAddr| is_plain(*address) && (address.port() != 0 || server.is_none());
        let address = address.filter(is_valid).ok_or_else(|| IpvsError::Name(name.to_owned()))?;
        // A server that another program added can be removed with any settings.
        let Some(server) = server else { return Ok(address) };
        let service = self.service.address;
        if address.is_ipv4() != service.is_ipv4() {
            return Err(IpvsError::Family { server: address, service });
        }
        if server.forward != ForwardingMethod::Masquerade && address.port() != service.port() {
            return Err(IpvsError::Port { server: address, service });
        }
        Ok(address)
    }

    fn find_service(&self, socket: &mut Socket) -> Result<Option<ListedVirtualService>, IpvsError> {
        let command = IpvsCommand::GetService;
        let replies = match self.request(socket, command) {
            Err(IpvsError::Rejected { code, .. }) if code == SRCH => return Ok(None),
            replies => replies?,
        };
        let parsed = match &*replies {
            [reply] => messages::parse_service(reply),
            others => Err(format!("{} services instead of one", others.len())),
        };
        parsed.map(Some).map_err(|reason| IpvsError::Unexpected { command: self.command_line(command), reason })
    }

    fn list_servers(&self, socket: &mut Socket) -> Result<Vec<ListedRealServer>, IpvsError> {
        let command = IpvsCommand::GetServers;
        let replies = self.request(socket, command)?;
        let parsed = replies.iter().map(|reply| messages::parse_server(reply, &self.service));
        parsed
            .collect::<Result<_, _>>()
            .map_err(|reason| IpvsError::Unexpected { command: self.command_line(command), reason })
    }

    fn read_blocking(&self) -> Result<ActualState<RealServer>, IpvsError> {
        let mut socket = open_socket()?;
        let Some(service) = self.find_service(&mut socket)? else {
            return Ok(self.actual_state(Vec::new(), true));
        };
        Ok(self.actual_state(self.list_servers(&mut socket)?, service.has_settings_of(&self.service)))
    }

    fn apply_steps(&self, steps: &[Step<RealServer>]) -> Result<(), IpvsError> {
        self.claim.acquire(&self.service)?;
        let mut socket = open_socket()?;
        if steps.iter().any(needs_service) {
            match self.find_service(&mut socket)? {
                None => _ = self.request(&mut socket, IpvsCommand::AddService)?,
                Some(service) if service.has_settings_of(&self.service) => {}
                Some(_) => _ = self.request(&mut socket, IpvsCommand::EditService)?,
            }
        }
        let mut first_error = Ok(());
        for step in steps {
            let result = match (step, self.request(&mut socket, IpvsCommand::Step(step))) {
                // Another program has made the same change first.
                (Step::Remove { .. }, Err(IpvsError::Rejected { code, .. })) if is_missing(code) => Ok(()),
                (_, result) => result.map(drop),
            };
            // An error of one server must not delay the others.
            first_error = first_error.and(result);
        }
        first_error
    }

    /// Runs a blocking operation. Dropping the future does not stop the operation. The next operation waits for its
    /// end, so that no late change undoes a newer one.
    async fn run_blocking<A: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self) -> Result<A, IpvsError> + Send + 'static,
    ) -> Result<A, IpvsError> {
        let guard = self.operation_lock.clone().lock_owned().await;
        let ipvs = self.clone();
        let task = spawn_blocking(move || {
            let result = operation(&ipvs);
            drop(guard);
            result
        });
        task.await.map_err(|error| IpvsError::Netlink(io::Error::other(error)))?
    }

    /// Converts the listed servers. `has_desired_settings` is false if the service has other settings than desired.
    fn actual_state(&self, servers: Vec<ListedRealServer>, has_desired_settings: bool) -> ActualState<RealServer> {
        let mut found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        for ListedRealServer { address, weight, forward, is_special, active, inactive } in servers {
            let is_busy = match self.service.protocol {
                // The inactive connections of TCP include closed connections that the kernel remembers for a while.
                ServiceProtocol::Tcp => active > 0,
                ServiceProtocol::Udp => active > 0 || inactive > 0,
            };
            if is_busy {
                found.busy.insert(address.to_string());
            }
            let is_representable = forward.is_some() && !is_special && u16::try_from(weight).is_ok();
            let server = RealServer {
                weight: u16::try_from(weight).unwrap_or(u16::MAX),
                forward: forward.unwrap_or(ForwardingMethod::Masquerade),
                drift: match (has_desired_settings, is_representable) {
                    (false, _) => Drift::Service,
                    (true, false) => Drift::Server,
                    (true, true) => Drift::None,
                },
            };
            found.own.insert(address.to_string(), server);
        }
        found
    }
}

/// Command sent to IPVS.
#[derive(Clone, Copy, Debug)]
enum IpvsCommand<'a> {
    GetService,
    GetServers,
    AddService,
    EditService,
    Step(&'a Step<RealServer>),
}

fn ipvs_error(error: NetlinkError, command: impl FnOnce() -> String) -> IpvsError {
    match error {
        NetlinkError::System(error) => IpvsError::Netlink(error),
        NetlinkError::Rejected(code) => IpvsError::Rejected { command: command(), code },
        NetlinkError::Unexpected(reason) => IpvsError::Unexpected { command: command(), reason },
    }
}

fn open_socket() -> Result<Socket, IpvsError> {
    Socket::open(NETLINK_FAMILY).map_err(|error| match error {
        NetlinkError::Rejected(NOENT) => IpvsError::Absent,
        error => ipvs_error(error, || "ipvsadm".to_owned()),
    })
}

/// Returns true if a step requires the service to exist.
fn needs_service(step: &Step<RealServer>) -> bool {
    !matches!(step, Step::Remove { .. })
}

impl Target for Ipvs {
    type Value = RealServer;
    type Error = IpvsError;

    async fn read(&self) -> Result<ActualState<RealServer>, IpvsError> {
        self.run_blocking(Self::read_blocking).await
    }

    /// Removes entries that cannot be real servers of this service.
    fn validate(&self, desired: &mut BTreeMap<String, RealServer>) -> BTreeMap<String, String> {
        let invalid = desired.iter().filter_map(|(name, server)| {
            let error = self.check_server(name, Some(server)).err()?;
            Some((name.clone(), error.to_string()))
        });
        let invalid: BTreeMap<_, _> = invalid.collect();
        desired.retain(|name, _| !invalid.contains_key(name));
        invalid
    }

    async fn apply(&self, steps: &[Step<RealServer>]) -> Result<(), IpvsError> {
        let steps = steps.to_vec();
        self.run_blocking(move |ipvs| ipvs.apply_steps(&steps)).await
    }

    fn describe(&self, found: &ActualState<RealServer>, steps: &[Step<RealServer>]) -> Vec<String> {
        let mut lines = Vec::new();
        if steps.iter().any(needs_service) {
            if found.own.is_empty() {
                lines.push(format!("{} # if it does not exist", self.command_line(IpvsCommand::AddService)));
            } else if found.own.values().any(|server| server.drift == Drift::Service) {
                lines.push(self.command_line(IpvsCommand::EditService));
            }
        }
        for step in steps {
            let server = match step {
                Step::Add { value, .. } | Step::Change { to: value, .. } => Some(value),
                Step::Remove { .. } => None,
            };
            lines.push(match self.check_server(step.name(), server) {
                Ok(_) => self.command_line(IpvsCommand::Step(step)),
                Err(error) => format!("# {error}"),
            });
        }
        lines
    }
}

/// Returns true if the entry to remove does not exist.
fn is_missing(code: i32) -> bool {
    [NOENT, SRCH].contains(&code)
}

#[cfg(test)]
mod tests;

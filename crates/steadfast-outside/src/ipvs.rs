//! The real servers behind one virtual service of IPVS (LVS), by netlink: put into and taken out of traffic in the kernel.
//!
//! IPVS has no room for a mark. So a mirror has a virtual service as a whole: all real servers that are behind it are the mirror's, also
//! those that somebody else has put there, and so is which scheduler it has. All other services of the machine are left alone. A file
//! of what was put there would say so more exactly, and be wrong after whatever happened without it: a restart, another tool, a
//! restored disk. Who shares a service with another program must not give it to a mirror.
//!
//! Two processes with one service would remove each other's servers. So a mirror claims its service before its first change, by a socket with
//! an abstract name (`@steadfast-ipvs -t 10.9.0.1:80`) in the network namespace that the service is in: the second process changes nothing and
//! reports [`IpvsError::Claimed`] until the first one ends. Other programs know nothing of the claim.
//!
//! For the same reason an entry is called by what the kernel knows it by, its address and port: `10.0.0.1:8080`, `[fd00::1]:8080`. So after a
//! restart what is there is known by its name, and a server that moves is another one, which is put there before the old one is drained.
//!
//! The service itself is put there with its first server, and stays when the last one goes: then whoever comes is refused at once.
//!
//! A server without weight gets nothing new, and goes when it has no active connections left; of UDP, which ends nowhere, when the kernel has
//! forgotten all of them. With persistence clients that came before go on coming to it, unless `net.ipv4.vs.expire_quiescent_template` is 1.

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

use crate::entry::{Found, Step, Target};
use claim::Claim;
pub use error::IpvsError;
use error::{NOENT, SRCH};
use messages::{SeenServer, SeenService};
use server::Askew;
pub use server::{Forward, Server};
pub use service::Service;
use service::{Protocol, is_plain};
use socket::{Ask, Socket, Trouble};

/// The family of generic netlink.
const FAMILY: &str = "IPVS";

/// The real servers behind a virtual service, in the network namespace of the process.
#[derive(Clone, Debug)]
pub struct Ipvs {
    service: Service,
    claim: Claim,
    turn: Arc<Mutex<()>>,
}

impl Ipvs {
    /// What comes to `service`, from elsewhere or from this machine, is sent on to the entries.
    pub fn new(service: Service) -> Self {
        Self { service, claim: Claim::default(), turn: Arc::default() }
    }

    /// Looks, or has something done, with what it is called as its own tool calls it.
    fn ask(&self, socket: &mut Socket, what: Question<'_>) -> Result<Vec<Vec<u8>>, IpvsError> {
        let (command, ask, attributes) = match what {
            Question::Service => (messages::GET_SERVICE, Ask::One, messages::which(&self.service)),
            Question::Servers => (messages::GET_DEST, Ask::All, messages::which(&self.service)),
            Question::Make => (messages::NEW_SERVICE, Ask::One, messages::whole(&self.service)),
            Question::Set => (messages::SET_SERVICE, Ask::One, messages::whole(&self.service)),
            Question::Do(step) => {
                let (command, server) = match step {
                    Step::Add { value, .. } => (messages::NEW_DEST, Some(value)),
                    Step::Change { to, .. } => (messages::SET_DEST, Some(to)),
                    Step::Remove { .. } => (messages::DEL_DEST, None),
                };
                let address = self.check(step.name(), server)?;
                (command, Ask::One, messages::server(&self.service, address, server))
            }
        };
        let answered = socket.ask(command, ask, attributes);
        answered.map_err(|trouble| told(trouble, || self.words(what)))
    }

    /// The same, as `ipvsadm` is told it.
    fn words(&self, what: Question<'_>) -> String {
        let (service, settings) = (self.service.words(), self.service.settings());
        let how = |Server { weight, forward, .. }: &Server| {
            let forward = match forward {
                Forward::Masquerade => "-m",
                Forward::Direct => "-g",
                Forward::Tunnel => "-i",
            };
            format!("{forward} -w {weight}")
        };
        match what {
            Question::Service | Question::Servers => format!("ipvsadm -Ln {service}"),
            Question::Make => format!("ipvsadm -A {service} {settings}"),
            Question::Set => format!("ipvsadm -E {service} {settings}"),
            Question::Do(Step::Add { name, value }) => format!("ipvsadm -a {service} -r {name} {}", how(value)),
            Question::Do(Step::Change { name, to, .. }) => format!("ipvsadm -e {service} -r {name} {}", how(to)),
            Question::Do(Step::Remove { name, .. }) => format!("ipvsadm -d {service} -r {name}"),
        }
    }

    /// Where an entry is, if it can be so.
    fn check(&self, name: &str, server: Option<&Server>) -> Result<SocketAddr, IpvsError> {
        let address = name.parse().ok().filter(|address: &SocketAddr| address.to_string() == name);
        let is_some = |address: &SocketAddr| is_plain(*address) && (address.port() != 0 || server.is_none());
        let address = address.filter(is_some).ok_or_else(|| IpvsError::Name(name.to_owned()))?;
        // What others have put there can go, whatever it is.
        let Some(server) = server else { return Ok(address) };
        let service = self.service.address;
        if address.is_ipv4() != service.is_ipv4() {
            return Err(IpvsError::Family { server: address, service });
        }
        if server.forward != Forward::Masquerade && address.port() != service.port() {
            return Err(IpvsError::Port { server: address, service });
        }
        Ok(address)
    }

    fn service(&self, socket: &mut Socket) -> Result<Option<SeenService>, IpvsError> {
        let what = Question::Service;
        let answers = match self.ask(socket, what) {
            Err(IpvsError::Refused { code, .. }) if code == SRCH => return Ok(None),
            answers => answers?,
        };
        let read = match &*answers {
            [answer] => messages::read_service(answer),
            others => Err(format!("{} services in place of one", others.len())),
        };
        read.map(Some).map_err(|why| IpvsError::Unexpected { command: self.words(what), why })
    }

    fn servers(&self, socket: &mut Socket) -> Result<Vec<SeenServer>, IpvsError> {
        let what = Question::Servers;
        let answers = self.ask(socket, what)?;
        let read = answers.iter().map(|answer| messages::read_server(answer, &self.service));
        read.collect::<Result<_, _>>().map_err(|why| IpvsError::Unexpected { command: self.words(what), why })
    }

    fn see(&self) -> Result<Found<Server>, IpvsError> {
        let mut socket = open()?;
        let Some(service) = self.service(&mut socket)? else {
            return Ok(self.found(Vec::new(), true));
        };
        Ok(self.found(self.servers(&mut socket)?, service.is(&self.service)))
    }

    fn carry_out(&self, steps: &[Step<Server>]) -> Result<(), IpvsError> {
        self.claim.take(&self.service)?;
        let mut socket = open()?;
        if steps.iter().any(puts) {
            match self.service(&mut socket)? {
                None => _ = self.ask(&mut socket, Question::Make)?,
                Some(service) if service.is(&self.service) => {}
                Some(_) => _ = self.ask(&mut socket, Question::Set)?,
            }
        }
        let mut first = Ok(());
        for step in steps {
            let done = match (step, self.ask(&mut socket, Question::Do(step))) {
                // Somebody else was faster.
                (Step::Remove { .. }, Err(IpvsError::Refused { code, .. })) if is_gone(code) => Ok(()),
                (_, done) => done.map(drop),
            };
            // What is wrong with one server keeps no other waiting.
            first = first.and(done);
        }
        first
    }

    /// Has `what` done where it may take a while. Given up by whoever waits for it, it goes on to its end, and what is begun after it waits
    /// for that: nothing late undoes what is newer.
    async fn alone<A: Send + 'static>(
        &self,
        what: impl FnOnce(&Self) -> Result<A, IpvsError> + Send + 'static,
    ) -> Result<A, IpvsError> {
        let turn = self.turn.clone().lock_owned().await;
        let ipvs = self.clone();
        let done = spawn_blocking(move || {
            let done = what(&ipvs);
            drop(turn);
            done
        });
        done.await.map_err(|error| IpvsError::Netlink(io::Error::other(error)))?
    }

    /// What is told of the servers that there are behind a service that is as it `is_right`, or is not.
    fn found(&self, servers: Vec<SeenServer>, is_right: bool) -> Found<Server> {
        let mut found = Found { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        for SeenServer { address, weight, forward, is_special, active, inactive } in servers {
            let is_busy = match self.service.protocol {
                // Inactive are those that wait a while after their end, too.
                Protocol::Tcp => active > 0,
                Protocol::Udp => active > 0 || inactive > 0,
            };
            if is_busy {
                found.busy.insert(address.to_string());
            }
            let is_usual = forward.is_some() && !is_special && u16::try_from(weight).is_ok();
            let server = Server {
                weight: u16::try_from(weight).unwrap_or(u16::MAX),
                forward: forward.unwrap_or(Forward::Masquerade),
                askew: match (is_right, is_usual) {
                    (false, _) => Askew::Service,
                    (true, false) => Askew::Server,
                    (true, true) => Askew::Nothing,
                },
            };
            found.own.insert(address.to_string(), server);
        }
        found
    }
}

/// What IPVS is asked or told.
#[derive(Clone, Copy, Debug)]
enum Question<'a> {
    Service,
    Servers,
    Make,
    Set,
    Do(&'a Step<Server>),
}

fn told(trouble: Trouble, command: impl FnOnce() -> String) -> IpvsError {
    match trouble {
        Trouble::System(error) => IpvsError::Netlink(error),
        Trouble::Refused(code) => IpvsError::Refused { command: command(), code },
        Trouble::Unexpected(why) => IpvsError::Unexpected { command: command(), why },
    }
}

fn open() -> Result<Socket, IpvsError> {
    Socket::open(FAMILY).map_err(|trouble| match trouble {
        Trouble::Refused(NOENT) => IpvsError::Absent,
        trouble => told(trouble, || "ipvsadm".to_owned()),
    })
}

/// Whether a step needs a service to be done to.
fn puts(step: &Step<Server>) -> bool {
    !matches!(step, Step::Remove { .. })
}

impl Target for Ipvs {
    type Value = Server;
    type Error = IpvsError;

    async fn look(&self) -> Result<Found<Server>, IpvsError> {
        self.alone(Self::see).await
    }

    /// Removes entries that cannot be real servers of this service.
    fn settle(&self, wanted: &mut BTreeMap<String, Server>) -> BTreeMap<String, String> {
        let bad = wanted.iter().filter_map(|(name, server)| {
            let error = self.check(name, Some(server)).err()?;
            Some((name.clone(), error.to_string()))
        });
        let bad: BTreeMap<_, _> = bad.collect();
        wanted.retain(|name, _| !bad.contains_key(name));
        bad
    }

    async fn act(&self, steps: &[Step<Server>]) -> Result<(), IpvsError> {
        let steps = steps.to_vec();
        self.alone(move |ipvs| ipvs.carry_out(&steps)).await
    }

    fn describe(&self, found: &Found<Server>, steps: &[Step<Server>]) -> Vec<String> {
        let mut lines = Vec::new();
        if steps.iter().any(puts) {
            if found.own.is_empty() {
                lines.push(format!("{} # where it is not there", self.words(Question::Make)));
            } else if found.own.values().any(|server| server.askew == Askew::Service) {
                lines.push(self.words(Question::Set));
            }
        }
        for step in steps {
            let server = match step {
                Step::Add { value, .. } | Step::Change { to: value, .. } => Some(value),
                Step::Remove { .. } => None,
            };
            lines.push(match self.check(step.name(), server) {
                Ok(_) => self.words(Question::Do(step)),
                Err(error) => format!("# {error}"),
            });
        }
        lines
    }
}

/// Whether what was to be taken away is not there.
fn is_gone(code: i32) -> bool {
    [NOENT, SRCH].contains(&code)
}

#[cfg(test)]
mod tests;

//! Real `HAProxy` with the documented settings, in master-worker mode like the packaged service.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::external_systems::find_program;
use crate::haproxy::eventually;
use crate::run::signal;

/// `HAProxy` with one frontend and one dynamic backend for each name. Stopped when dropped.
#[derive(Debug)]
pub(crate) struct Balancer {
    program: PathBuf,
    folder: PathBuf,
    /// Address of the frontend of the first backend, which receives the traffic.
    pub(crate) front: SocketAddr,
    master: Child,
}

/// State of one server of the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerState {
    pub(crate) weight: u32,
    /// `false` for maintenance and drain.
    pub(crate) is_enabled: bool,
}

impl Balancer {
    /// Starts `HAProxy` in `folder`; returns `None` on a machine without `HAProxy`, which is reported.
    pub(crate) fn start(folder: &Path, backends: &[&str]) -> Option<Self> {
        let program = find_program("haproxy")?;
        // A short path, because the length of a socket's path is limited.
        let mut text = format!(
            "global\n  stats socket {}/admin.sock mode 600 level admin expose-fd listeners\n  hard-stop-after 5s\n\
             defaults\n  mode http\n  timeout connect 1s\n  timeout client 10s\n  timeout server 10s\n  timeout queue 5s\n  \
             retries 3\n  option redispatch\n",
            folder.display()
        );
        let mut front = None;
        for backend in backends {
            let bind = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
            front.get_or_insert(bind);
            let _ = write!(
                text,
                "frontend {backend}-front\n  bind {bind}\n  default_backend {backend}\nbackend {backend}\n  balance roundrobin\n"
            );
        }
        std::fs::write(folder.join("haproxy.cfg"), text).expect("the folder is writable");
        let master = spawn(&program, folder);
        let balancer = Self { program, folder: folder.to_owned(), front: front.expect("one backend"), master };
        balancer.wait_until_listening();
        Some(balancer)
    }

    fn wait_until_listening(&self) {
        eventually("HAProxy", || {
            TcpStream::connect(self.front).is_ok() && UnixStream::connect(self.folder.join("admin.sock")).is_ok()
        });
    }

    /// Restarts `HAProxy` by a kill and waits for its socket. Servers added at run time are lost.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.master = spawn(&self.program, &self.folder);
        self.wait_until_listening();
    }

    /// Reloads the configuration and waits for the new worker. Servers added at run time are lost.
    pub(crate) fn reload(&self) {
        let worker_before = self.worker();
        signal(&self.master, "USR2");
        eventually("a new worker of HAProxy", || self.worker().is_some_and(|worker| Some(worker) != worker_before));
        self.wait_until_listening();
    }

    fn worker(&self) -> Option<u32> {
        let info = self.command("show info")?;
        info.lines().find_map(|line| line.strip_prefix("Pid: ")?.parse().ok())
    }

    fn command(&self, command: &str) -> Option<String> {
        let mut socket = UnixStream::connect(self.folder.join("admin.sock")).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        socket.write_all(format!("{command}\n").as_bytes()).ok()?;
        let mut response = String::new();
        socket.read_to_string(&mut response).ok()?;
        Some(response)
    }

    /// Returns the servers of `backend` that the mirror added, by name; `None` while `HAProxy` does not respond.
    pub(crate) fn servers(&self, backend: &str) -> Option<BTreeMap<String, (SocketAddr, ServerState)>> {
        let response = self.command(&format!("show servers state {backend}"))?;
        let mut lines = response.lines();
        lines.find(|line| line.starts_with("# "))?;
        let servers = lines.filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let (name, address, port) = (fields.get(3)?, fields.get(4)?.parse().ok()?, fields.get(18)?.parse().ok()?);
            let state = ServerState { weight: fields.get(7)?.parse().ok()?, is_enabled: *fields.get(6)? == "0" };
            name.starts_with("sf-").then(|| ((*name).to_owned(), (SocketAddr::new(address, port), state)))
        });
        Some(servers.collect())
    }

    fn stop(&mut self) {
        // TERM, because a killed master leaves its worker running for an instant.
        signal(&self.master, "TERM");
        let start_time = Instant::now();
        while self.master.try_wait().is_ok_and(|status| status.is_none()) {
            if start_time.elapsed() > Duration::from_secs(10) {
                let _ = self.master.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(program: &Path, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-W").arg("-f").arg(folder.join("haproxy.cfg")).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("HAProxy starts")
}

//! A real `HAProxy` and its backends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// `HAProxy` with one backend, `web`, and one foreign server without traffic. Killed on drop.
pub(crate) struct Haproxy {
    pub(crate) folder: PathBuf,
    front: SocketAddr,
    program: PathBuf,
    process: Mutex<Child>,
}

impl Haproxy {
    /// Starts `HAProxy`. Reports a missing program and returns `None`.
    pub(crate) fn start(name: &str) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        let Some(program) = folders.find_map(|folder| Some(folder.join("haproxy")).filter(|path| path.is_file()))
        else {
            let is_required = std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1");
            assert!(!is_required, "STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no haproxy on the path");
            // Written to the terminal, because the harness captures the output of passing tests.
            std::io::stderr()
                .write_all(b"skipped: there is no haproxy on the path\n")
                .expect("standard error is writable");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("steadfast-notify-haproxy-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let front = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let text = format!(
            "global\n  stats socket {}/admin.sock mode 600 level admin\ndefaults\n  mode tcp\n  timeout connect 2s\n  \
             timeout client 60s\n  timeout server 60s\nfrontend all\n  bind {front}\n  default_backend web\nbackend web\n  \
             balance roundrobin\n  server other 127.0.0.1:9 weight 0\n",
            folder.display()
        );
        std::fs::write(folder.join("haproxy.cfg"), text).expect("the folder is writable");
        let process = Mutex::new(spawn_haproxy(&program, &folder));
        let haproxy = Self { folder, front, program, process };
        haproxy.wait_until_listening();
        Some(haproxy)
    }

    fn wait_until_listening(&self) {
        eventually("HAProxy", || UnixStream::connect(self.folder.join("admin.sock")).is_ok());
    }

    /// Kills the process and starts a new one without the servers of the mirror.
    pub(crate) fn restart(&self) {
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
        *process = spawn_haproxy(&self.program, &self.folder);
        self.wait_until_listening();
    }

    /// Returns the servers of the mirror with their weights.
    pub(crate) fn servers(&self) -> BTreeMap<String, u32> {
        self.try_servers().expect("HAProxy responds")
    }

    /// Like [`servers`](Self::servers), but returns `None` while `HAProxy` restarts.
    pub(crate) fn try_servers(&self) -> Option<BTreeMap<String, u32>> {
        let response = self.query("show servers state web\n")?;
        let fields = response.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let servers = fields.filter_map(|fields| {
            let name = fields.get(3)?.strip_prefix("sf-")?;
            Some((name.to_owned(), fields.get(7)?.parse().ok()?))
        });
        Some(servers.collect())
    }

    /// Returns address, weight and administrative state of each server of the mirror, by name.
    pub(crate) fn server_states(&self) -> BTreeMap<String, String> {
        let response = self.query("show servers state web\n").unwrap_or_default();
        let fields = response.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let servers = fields.filter_map(|fields| {
            let name = fields.get(3)?.strip_prefix("sf-")?;
            let (address, port) = (fields.get(4)?, fields.get(18)?);
            Some((name.to_owned(), format!("{address}:{port} weight {} state {}", fields.get(7)?, fields.get(6)?)))
        });
        servers.collect()
    }

    fn query(&self, command: &str) -> Option<String> {
        let mut socket = UnixStream::connect(self.folder.join("admin.sock")).ok()?;
        socket.write_all(command.as_bytes()).ok()?;
        let mut response = String::new();
        socket.read_to_string(&mut response).ok()?;
        // A killed process closes the connection.
        response.contains("# be_id").then_some(response)
    }

    /// Returns the servers with a weight above zero.
    pub(crate) fn servers_in_service(&self) -> BTreeSet<String> {
        self.try_servers_in_service().expect("HAProxy responds")
    }

    /// Like [`servers_in_service`](Self::servers_in_service), but returns `None` while `HAProxy` restarts.
    pub(crate) fn try_servers_in_service(&self) -> Option<BTreeSet<String>> {
        let servers = self.try_servers()?;
        Some(servers.into_iter().filter(|(_, weight)| *weight > 0).map(|(name, _)| name).collect())
    }

    /// Connects `times` times and returns the backends that responded.
    pub(crate) fn responding_backends(&self, times: usize) -> BTreeSet<String> {
        let response_of = |_| {
            let mut name = String::new();
            if let Ok(mut stream) = TcpStream::connect(self.front) {
                let _ = stream.read_to_string(&mut name);
            }
            name
        };
        (0..times).map(response_of).filter(|name| !name.is_empty()).collect()
    }
}

fn spawn_haproxy(program: &Path, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(folder.join("haproxy.cfg")).stderr(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("the process starts")
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        let _ = process.kill();
        let _ = process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts a server that responds to every connection with `name`; returns its port.
pub(crate) fn start_backend(name: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound address").port();
    let name = name.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A closed connection needs no response.
            let _ = stream.and_then(|mut stream| stream.write_all(name.as_bytes()));
        }
    });
    port
}

/// Waits at most 60 s until `is_reached` returns true.
pub(crate) fn eventually(description: &str, mut is_reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < Duration::from_secs(60), "{description}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Calls `check` every 20 ms for `duration`.
pub(crate) fn throughout(duration: Duration, mut check: impl FnMut()) {
    let start = Instant::now();
    while start.elapsed() < duration {
        check();
        std::thread::sleep(Duration::from_millis(20));
    }
}

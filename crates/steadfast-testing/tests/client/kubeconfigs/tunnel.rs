//! Small proxy for HTTP CONNECT and SOCKS5, or a plain forwarder. It records the requested targets.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::kubeconfigs::support::base64;

#[derive(Clone, Copy)]
pub(crate) enum ProxyKind {
    Connect,
    Socks5,
    Forward,
}

/// Proxy that resolves `names`, requires `login` if specified, and stops on drop.
pub(crate) struct Tunnel {
    pub(crate) address: SocketAddr,
    requested_targets: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

struct ProxyRules {
    kind: ProxyKind,
    names: BTreeMap<String, SocketAddr>,
    login: Option<&'static str>,
}

impl Tunnel {
    pub(crate) async fn open(
        kind: ProxyKind,
        listen_address: &str,
        names: &[(&str, SocketAddr)],
        login: Option<&'static str>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen_address).await?;
        let address = listener.local_addr()?;
        let requested_targets = Arc::<Mutex<Vec<String>>>::default();
        let names = names.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
        let (rules, record) = (Arc::new(ProxyRules { kind, names, login }), requested_targets.clone());
        let task = tokio::spawn(async move {
            while let Ok((client_stream, _)) = listener.accept().await {
                let (rules, record) = (rules.clone(), record.clone());
                tokio::spawn(async move { forward(client_stream, &rules, &record).await });
            }
        });
        Ok(Self { address, requested_targets, task })
    }

    /// Returns the targets as `host:port`, exactly as the clients requested them.
    pub(crate) fn requested_targets(&self) -> Vec<String> {
        self.requested_targets.lock().clone()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    mut client_stream: TcpStream,
    rules: &ProxyRules,
    requested_targets: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let target = match rules.kind {
        ProxyKind::Connect => accept_connect(&mut client_stream, rules.login).await?,
        ProxyKind::Socks5 => accept_socks(&mut client_stream, rules.login).await?,
        ProxyKind::Forward => "forwarded".to_owned(),
    };
    requested_targets.lock().push(target.clone());
    let address = rules.names.get(&target).copied().or_else(|| target.parse().ok());
    let Some(address) = address else {
        let rejection: &[u8] = match rules.kind {
            ProxyKind::Connect => b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            // RFC 1928, section 6: reply 4 is "host unreachable".
            _ => &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
        };
        return client_stream.write_all(rejection).await;
    };
    let mut server_stream = TcpStream::connect(address).await?;
    match rules.kind {
        ProxyKind::Connect => client_stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        ProxyKind::Socks5 => client_stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?,
        ProxyKind::Forward => {}
    }
    copy_bidirectional(&mut client_stream, &mut server_stream).await.map(drop)
}

async fn accept_connect(client_stream: &mut TcpStream, login: Option<&str>) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client_stream.read_u8().await?);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    if login.is_some_and(|login| !head.contains(&format!("Proxy-Authorization: Basic {}\r\n", base64(login)))) {
        client_stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    target.map(str::to_owned).ok_or_else(|| io::Error::other("no CONNECT"))
}

async fn accept_socks(client_stream: &mut TcpStream, login: Option<&str>) -> io::Result<String> {
    // RFC 1928, section 3: the version, and the number of authentication methods.
    let mut methods = vec![
        0;
        {
            client_stream.read_u8().await?;
            usize::from(client_stream.read_u8().await?)
        }
    ];
    client_stream.read_exact(&mut methods).await?;
    let Some(login) = login else {
        client_stream.write_all(&[5, 0]).await?;
        return read_target(client_stream).await;
    };
    if !methods.contains(&2) {
        // 255: no acceptable method. Method 2 is a user and a password (RFC 1929).
        client_stream.write_all(&[5, 255]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client_stream.write_all(&[5, 2]).await?;
    client_stream.read_u8().await?;
    let user = read_string(client_stream).await?;
    let password = read_string(client_stream).await?;
    let is_valid = format!("{user}:{password}") == login;
    client_stream.write_all(&[1, u8::from(!is_valid)]).await?;
    if is_valid { read_target(client_stream).await } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

async fn read_string(client_stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes = vec![0; usize::from(client_stream.read_u8().await?)];
    client_stream.read_exact(&mut bytes).await?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

async fn read_target(client_stream: &mut TcpStream) -> io::Result<String> {
    let mut head = [0; 4];
    client_stream.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => std::net::Ipv4Addr::from(client_stream.read_u32().await?).to_string(),
        3 => read_string(client_stream).await?,
        _ => return Err(io::Error::other("an address of another kind")),
    };
    Ok(format!("{host}:{}", client_stream.read_u16().await?))
}

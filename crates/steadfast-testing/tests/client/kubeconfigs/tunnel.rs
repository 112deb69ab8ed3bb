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
pub(crate) enum Kind {
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

struct Rules {
    kind: Kind,
    names: BTreeMap<String, SocketAddr>,
    login: Option<&'static str>,
}

impl Tunnel {
    pub(crate) async fn open(
        kind: Kind,
        at: &str,
        names: &[(&str, SocketAddr)],
        login: Option<&'static str>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let address = listener.local_addr()?;
        let requested_targets = Arc::<Mutex<Vec<String>>>::default();
        let names = names.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
        let (rules, record) = (Arc::new(Rules { kind, names, login }), requested_targets.clone());
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (rules, record) = (rules.clone(), record.clone());
                tokio::spawn(async move { carry(near, &rules, &record).await });
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

async fn carry(mut near: TcpStream, rules: &Rules, requested_targets: &Mutex<Vec<String>>) -> io::Result<()> {
    let wanted = match rules.kind {
        Kind::Connect => http(&mut near, rules.login).await?,
        Kind::Socks5 => socks(&mut near, rules.login).await?,
        Kind::Forward => "forwarded".to_owned(),
    };
    requested_targets.lock().push(wanted.clone());
    let known = rules.names.get(&wanted).copied().or_else(|| wanted.parse().ok());
    let Some(known) = known else {
        let refusal: &[u8] = match rules.kind {
            Kind::Connect => b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
            // RFC 1928, section 6: reply 4 is "host unreachable".
            _ => &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0],
        };
        return near.write_all(refusal).await;
    };
    let mut far = TcpStream::connect(known).await?;
    match rules.kind {
        Kind::Connect => near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        Kind::Socks5 => near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?,
        Kind::Forward => {}
    }
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

async fn http(near: &mut TcpStream, login: Option<&str>) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await?);
    }
    let head = String::from_utf8(head).map_err(io::Error::other)?;
    if login.is_some_and(|login| !head.contains(&format!("Proxy-Authorization: Basic {}\r\n", base64(login)))) {
        near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let wanted = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
    wanted.map(str::to_owned).ok_or_else(|| io::Error::other("no CONNECT"))
}

async fn socks(near: &mut TcpStream, login: Option<&str>) -> io::Result<String> {
    // RFC 1928, section 3: the version, and the number of authentication methods.
    let mut methods = vec![
        0;
        {
            near.read_u8().await?;
            usize::from(near.read_u8().await?)
        }
    ];
    near.read_exact(&mut methods).await?;
    let Some(login) = login else {
        near.write_all(&[5, 0]).await?;
        return wanted(near).await;
    };
    if !methods.contains(&2) {
        // 255: no acceptable method. Method 2 is a user and a password (RFC 1929).
        near.write_all(&[5, 255]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    near.write_all(&[5, 2]).await?;
    near.read_u8().await?;
    let user = word(near).await?;
    let password = word(near).await?;
    let right = format!("{user}:{password}") == login;
    near.write_all(&[1, u8::from(!right)]).await?;
    if right { wanted(near).await } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

async fn word(near: &mut TcpStream) -> io::Result<String> {
    let mut word = vec![0; usize::from(near.read_u8().await?)];
    near.read_exact(&mut word).await?;
    String::from_utf8(word).map_err(io::Error::other)
}

async fn wanted(near: &mut TcpStream) -> io::Result<String> {
    let mut head = [0; 4];
    near.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => std::net::Ipv4Addr::from(near.read_u32().await?).to_string(),
        3 => word(near).await?,
        _ => return Err(io::Error::other("an address of another kind")),
    };
    Ok(format!("{host}:{}", near.read_u16().await?))
}

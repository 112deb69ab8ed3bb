//! Tunnel through a SOCKS5 proxy (RFC 1928, RFC 1929).

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::host_port::HostPort;
use super::login::Login;
use crate::transport::socket::Stream;

const VERSION: u8 = 5;
const METHOD_NO_LOGIN: u8 = 0;
const METHOD_USER_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT_COMMAND: u8 = 1;
const IPV4_ADDRESS: u8 = 1;
const DOMAIN_NAME: u8 = 3;
const IPV6_ADDRESS: u8 = 4;

/// Requests a tunnel to `target`. The proxy resolves the name.
///
/// # Errors
///
/// Returns the reason of the proxy's rejection, in the terms of the RFC.
pub(super) async fn request_tunnel(
    stream: &mut dyn Stream,
    target: &HostPort,
    login: Option<&Login>,
) -> Result<(), String> {
    greet(stream, login).await?;
    // The third byte is reserved (RFC 1928, section 4).
    let mut request = vec![VERSION, CONNECT_COMMAND, 0];
    match target.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4_ADDRESS);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6_ADDRESS);
            request.extend(address.octets());
        }
        Err(_) => {
            // Not resolved here: the name may exist only in the network of the proxy.
            let length = u8::try_from(target.host.len())
                .map_err(|_| "the server's name is longer than the 255 bytes that SOCKS5 allows".to_owned())?;
            request.extend([DOMAIN_NAME, length]);
            request.extend(target.host.as_bytes());
        }
    }
    request.extend(target.port.to_be_bytes());
    stream.write_all(&request).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let [version, reply, _, kind] = read(stream).await?;
    expect_version(version)?;
    if reply != 0 {
        return Err(refusal(reply));
    }
    // The bound address of the proxy is not needed.
    let length = match kind {
        IPV4_ADDRESS => 4,
        IPV6_ADDRESS => 16,
        DOMAIN_NAME => usize::from(stream.read_u8().await.map_err(lost)?),
        _ => return Err(not_socks()),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await.map_err(lost)?;
    Ok(())
}

async fn greet(stream: &mut dyn Stream, login: Option<&Login>) -> Result<(), String> {
    // Both methods are offered, because a proxy may accept clients without the configured login.
    let greeting: &[u8] = if login.is_some() {
        &[VERSION, 2, METHOD_NO_LOGIN, METHOD_USER_AND_PASSWORD]
    } else {
        &[VERSION, 1, METHOD_NO_LOGIN]
    };
    stream.write_all(greeting).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let [version, method] = read(stream).await?;
    expect_version(version)?;
    match (method, login) {
        (METHOD_NO_LOGIN, _) => Ok(()),
        (METHOD_USER_AND_PASSWORD, Some(Login { user, password })) => {
            // The first byte is the version of the login, not of SOCKS (RFC 1929, section 2).
            let mut words = vec![1];
            for word in [user, password] {
                // `Proxy::new` rejects words of more than 255 bytes.
                words.push(u8::try_from(word.len()).unwrap_or(u8::MAX));
                words.extend(word.as_bytes());
            }
            stream.write_all(&words).await.map_err(lost)?;
            stream.flush().await.map_err(lost)?;
            let [_, status] = read(stream).await?;
            if status == 0 {
                Ok(())
            } else {
                Err("the proxy does not accept the user and password of proxy-url".to_owned())
            }
        }
        (NO_ACCEPTABLE_METHOD, None) => {
            Err("the proxy requires a login: put a user and password into proxy-url".to_owned())
        }
        (NO_ACCEPTABLE_METHOD, Some(_)) => Err("the proxy accepts no login by user and password".to_owned()),
        _ => Err(not_socks()),
    }
}

async fn read<const N: usize>(stream: &mut dyn Stream) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(lost)?;
    Ok(bytes)
}

fn expect_version(version: u8) -> Result<(), String> {
    if version == VERSION { Ok(()) } else { Err(not_socks()) }
}

fn not_socks() -> String {
    "the response is not that of a SOCKS5 proxy; check the scheme and port of proxy-url".to_owned()
}

#[allow(clippy::needless_pass_by_value, reason = "the conversion of errors into messages")]
fn lost(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the proxy closed the connection during the handshake".to_owned(),
        _ => format!("the connection to the proxy failed: {error}"),
    }
}

/// Returns the text of a reply code (RFC 1928, section 6).
fn refusal(reply: u8) -> String {
    let reason = match reply {
        1 => "general failure",
        2 => "connection not allowed by the proxy's rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "an unknown reply code",
    };
    format!("the proxy responded with {reply}, {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes sent to a proxy with these responses, and the result.
    async fn exchange(host: &str, login: Option<&Login>, responses: &[u8]) -> (Result<(), String>, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(responses).await.expect("written");
        far.shutdown().await.expect("an end");
        let target = HostPort { host: host.to_owned(), port: 0x1234 };
        let outcome = request_tunnel(&mut near, &target, login).await;
        drop(near);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.expect("the words");
        (outcome, sent)
    }

    #[tokio::test]
    async fn socks_request_contains_name_or_address_bytes() {
        let welcome = [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let (outcome, sent) = exchange("api", None, &welcome).await;
        assert_eq!((outcome, sent.as_slice()), (Ok(()), &b"\x05\x01\x00\x05\x01\x00\x03\x03api\x12\x34"[..]));
        let (outcome, sent) = exchange("10.0.0.7", None, &welcome).await;
        assert_eq!((outcome, &sent[3..]), (Ok(()), &b"\x05\x01\x00\x01\x0a\x00\x00\x07\x12\x34"[..]));
        let (outcome, sent) = exchange("::1", None, &[5, 0, 5, 0, 0, 3, 1, b'x', 0, 0]).await;
        assert_eq!((outcome, sent[6], sent.len()), (Ok(()), IPV6_ADDRESS, 3 + 4 + 16 + 2));
    }

    #[tokio::test]
    async fn requested_login_is_sent() {
        let login = Login { user: "me".to_owned(), password: "hunter2".to_owned() };
        let (outcome, sent) = exchange("api", Some(&login), &[5, 2, 1, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(&sent[..4], [5, 2, 0, 2]);
        assert_eq!(&sent[4..16], b"\x01\x02me\x07hunter2");
    }

    #[tokio::test]
    async fn rejections_name_the_reason() {
        let login = Login { user: "me".to_owned(), password: "hunter2".to_owned() };
        for (login, responses, reason) in [
            (None, &[5, 255][..], "put a user and password"),
            (Some(&login), &[5, 2, 1, 1], "does not accept the user"),
            (None, &[5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0], "responded with 5, connection refused"),
            (None, b"HTTP/1.1 400 Bad Request\r\n", "is not that of a SOCKS5 proxy"),
            (None, &[5], "closed the connection"),
            (None, &[5, 2], "is not that of a SOCKS5 proxy"),
        ] {
            let (outcome, _) = exchange("api", login, responses).await;
            let error = outcome.expect_err("no tunnel");
            assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
        }
    }
}

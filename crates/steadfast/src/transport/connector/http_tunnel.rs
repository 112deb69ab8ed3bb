//! Tunnel through an HTTP proxy (RFC 9110, section 9.3.6).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::host_port::HostPort;
use super::login::Login;
use crate::transport::socket::Stream;

/// Maximum size of the proxy's response head in bytes.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// Maximum length of the proxy's reason in an error.
const MAX_REASON_CHARS: usize = 80;

/// Requests a tunnel to `target`.
///
/// # Errors
///
/// Returns the reason if the proxy rejects the tunnel, sends no valid response, or closes the connection.
pub(super) async fn request_tunnel(
    stream: &mut dyn Stream,
    target: &HostPort,
    login: Option<&Login>,
) -> Result<(), String> {
    let authority = target.name();
    let authorization_header = login.map_or_else(String::new, |Login { user, password }| {
        format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
    });
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization_header}\r\n");
    let lost = |error: std::io::Error| format!("the connection to the proxy failed: {error}");
    stream.write_all(request.as_bytes()).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut head = Vec::with_capacity(256);
    // Reads one byte at a time: data after the head belongs to the server, which may send first.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD_BYTES {
            return Err(format!("the response headers exceed {MAX_HEAD_BYTES} bytes; is this an HTTP proxy?"));
        }
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err("the proxy closed the connection without a response; is this an HTTP proxy?".to_owned());
            }
            Err(error) => return Err(lost(error)),
        }
    }
    check_response(&head, login.is_some())
}

fn check_response(head: &[u8], has_login: bool) -> Result<(), String> {
    // Only the status line counts. By RFC 9110, clients ignore the content headers of a successful CONNECT response.
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' ')).map(|(_, status)| status.trim());
    let code = status.and_then(|status| status.get(..3)).and_then(|code| code.parse::<u16>().ok());
    let (Some(status), Some(code)) = (status, code) else {
        return Err("the response is not that of an HTTP proxy; check the scheme and port of proxy-url".to_owned());
    };
    let status: String = status.chars().filter(|character| !character.is_control()).take(MAX_REASON_CHARS).collect();
    let advice = match code {
        200..=299 => return Ok(()),
        407 if has_login => "the proxy does not accept the user and password of proxy-url",
        407 => "put a user and password into proxy-url",
        403 | 405 => "the proxy denies access to this server; ask the operator of the proxy",
        502..=504 => "the proxy cannot reach the server",
        _ => "ask the operator of the proxy",
    };
    Err(format!("the proxy responded with {status}: {advice}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn server() -> HostPort {
        HostPort { host: "api.example".to_owned(), port: 6443 }
    }

    async fn tunnel_with_response(response: Vec<u8>, login: Option<&Login>) -> (Result<(), String>, String, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(&response).await.expect("written");
        let outcome = request_tunnel(&mut near, &server(), login).await;
        let mut sent = vec![0; 1024];
        let length = far.read(&mut sent).await.expect("a request");
        far.shutdown().await.expect("an end");
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.expect("the rest");
        (outcome, String::from_utf8_lossy(&sent[..length]).into_owned(), rest)
    }

    #[tokio::test]
    async fn tunnel_leaves_server_data_unread() {
        let login = Login { user: "user".to_owned(), password: "pass".to_owned() };
        let response = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nserver speaks".to_vec();
        let (outcome, sent, rest) = tunnel_with_response(response, Some(&login)).await;
        assert_eq!(outcome, Ok(()));
        assert!(sent.starts_with("CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n"), "{sent}");
        assert!(sent.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{sent}");
        assert_eq!(rest, b"server speaks");
    }

    #[tokio::test]
    async fn rejections_contain_bounded_proxy_reason() {
        let head = |text: &str| format!("HTTP/1.1 {text}\r\n\r\n").into_bytes();
        for (response, reason) in [
            (head("407 Proxy Authentication Required"), "407 Proxy Authentication Required: put a user"),
            (head("502 Bad Gateway"), "the proxy cannot reach the server"),
            (b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), "is not that of an HTTP proxy"),
            (vec![b'x'; 3 * MAX_HEAD_BYTES], "exceed 8192 bytes"),
            (format!("HTTP/1.1 500 {}\r\n\r\n", "y".repeat(4000)).into_bytes(), "500 yyy"),
        ] {
            let (outcome, _, _) = tunnel_with_response(response, None).await;
            let error = outcome.expect_err("no tunnel");
            assert!(error.contains(reason) && error.len() < 200, "{error}");
        }
    }
}

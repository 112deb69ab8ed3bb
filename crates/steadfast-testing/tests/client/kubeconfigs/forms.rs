//! Kinds of kubeconfigs. Each kubeconfig is loaded from a file and used for a request.

use serde_json::{Value, json};
use steadfast::transport::TransportError;
use steadfast_apiserver::ApiServer;

use crate::kubeconfigs::support::{
    Folder, Outcome, PODS, SECRET, base64, config, connection, kubeconfig, list_pods, recorded_request,
};
use crate::kubeconfigs::tunnel::{ProxyKind, Tunnel};

async fn closed_server() -> Result<ApiServer, Box<dyn std::error::Error + Send + Sync>> {
    Ok(ApiServer::builder().tls(true).require_credentials().token(SECRET).user("basil", SECRET).start().await?)
}

#[tokio::test]
async fn credentials_of_every_form() -> Outcome {
    let server = closed_server().await?;
    let folder = Folder::new();
    let identity = server.issue_client_certificate("carol")?.ok_or("no TLS")?;
    let token = folder.write("token", &format!("{SECRET}\n"));
    folder.write("client.crt", &identity.certificate_pem);
    folder.write("client.key", &identity.key_pem);
    let script = format!(
        "test \"$1\" = argument && test \"$GIVEN\" = value && \
         printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"%s\"}}}}' {SECRET}"
    );
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
        "args": ["-c", script, "plugin", "argument"], "env": [{"name": "GIVEN", "value": "value"}],
    });
    let inline = json!({
        "client-certificate-data": base64(&identity.certificate_pem), "client-key-data": base64(&identity.key_pem),
    });
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": identity.certificate_pem, "clientKeyData": identity.key_pem},
    });
    let credential = folder.write("credential.json", &credential.to_string());
    let certificate_plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "interactiveMode": "Never",
        "args": [credential],
    });
    let forms: [(&str, Value, Option<&str>); 8] = [
        ("token", json!({"token": SECRET}), None),
        ("tokenFile", json!({"tokenFile": token}), None),
        ("tokenFile, relative", json!({"tokenFile": "token"}), None),
        ("basic", json!({"username": "basil", "password": SECRET}), Some("basil")),
        ("certificate data", inline, Some("carol")),
        ("files, relative", json!({"client-certificate": "client.crt", "client-key": "client.key"}), Some("carol")),
        ("plugin", json!({"exec": plugin}), None),
        ("plugin with certificate", json!({"exec": certificate_plugin}), Some("carol")),
    ];
    for (form, user, expected_user) in forms {
        let connection = connection(&folder, &kubeconfig(&server, &json!({}), &user)).await?;
        let record = recorded_request(&connection, &server).await.map_err(|error| format!("{form}: {error}"))?;
        assert_eq!(record.user.as_deref(), expected_user, "{form}");
        assert!(!format!("{connection:?}").contains(SECRET));
    }
    let anonymous = connection(&folder, &kubeconfig(&server, &json!({}), &json!({}))).await?;
    assert_eq!(list_pods(&anonymous).await?, 401, "a request without credentials must be unauthorized");
    Ok(())
}

#[tokio::test]
async fn authorities_and_names_of_every_form() -> Outcome {
    let server = ApiServer::builder().tls(true).start().await?;
    let folder = Folder::new();
    folder.write("ca.crt", &server.ca_pem().ok_or("no TLS")?);
    let with_file = json!({"certificate-authority-data": null, "certificate-authority": "ca.crt"});
    let insecure = json!({"certificate-authority-data": null, "insecure-skip-tls-verify": true});
    for cluster in [json!({}), with_file, insecure, json!({"tls-server-name": "kubernetes.default.svc"})] {
        let connection = connection(&folder, &kubeconfig(&server, &cluster, &json!({}))).await?;
        recorded_request(&connection, &server).await.map_err(|error| format!("{cluster}: {error}"))?;
    }
    let mismatched =
        connection(&folder, &kubeconfig(&server, &json!({"tls-server-name": "else.example"}), &json!({}))).await?;
    assert!(list_pods(&mismatched).await.is_err_and(|error| error.to_string().contains("tls-server-name")));
    Ok(())
}

#[tokio::test]
async fn urls_of_every_form() -> Outcome {
    let server = ApiServer::builder().tls(true).start().await?;
    let address = server.address(0).ok_or("no address")?;
    let folder = Folder::new();
    let mut urls = vec![format!("https://localhost:{}", address.port())];
    // A machine may have no IPv6. `reaching.rs` and `socks.rs` cover the notation of such addresses as well.
    let ipv6_tunnel = match std::net::TcpListener::bind("[::1]:0") {
        Ok(_) => Some(Tunnel::open(ProxyKind::Forward, "[::1]:0", &[("forwarded", address)], None).await?),
        Err(_) => None,
    };
    urls.extend(ipv6_tunnel.iter().map(|tunnel| format!("https://[::1]:{}/", tunnel.address.port())));
    for url in urls {
        let connection = connection(&folder, &kubeconfig(&server, &json!({"server": url}), &json!({}))).await?;
        recorded_request(&connection, &server).await.map_err(|error| format!("{url}: {error}"))?;
    }
    assert!(ipv6_tunnel.is_none_or(|tunnel| tunnel.requested_targets().len() == 1));
    let url = format!("{}/k8s/clusters/c-1/", server.url(0));
    let connection = connection(&folder, &kubeconfig(&server, &json!({"server": url}), &json!({}))).await?;
    list_pods(&connection).await?;
    let path = server.requests().pop().ok_or("no request")?.path;
    assert_eq!(path, format!("/k8s/clusters/c-1{PODS}"), "the path of the URL must precede that of the request");
    Ok(())
}

#[tokio::test]
async fn impersonation() -> Outcome {
    let server = ApiServer::builder().tls(true).start().await?;
    let user = json!({
        "as": "jane", "as-uid": "7", "as-groups": ["developers", "admins"], "as-user-extra": {"scopes": ["view"]},
    });
    let connection = connection(&Folder::new(), &kubeconfig(&server, &json!({}), &user)).await?;
    let mut impersonation_headers = recorded_request(&connection, &server).await?.impersonation;
    impersonation_headers.sort();
    let expected = [
        ("impersonate-extra-scopes", "view"),
        ("impersonate-group", "admins"),
        ("impersonate-group", "developers"),
        ("impersonate-uid", "7"),
        ("impersonate-user", "jane"),
    ];
    assert_eq!(impersonation_headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Ok(())
}

#[tokio::test]
async fn contexts() -> Outcome {
    let server = ApiServer::builder().token(SECRET).start().await?;
    let folder = Folder::new();
    let mut kubeconfig_file = kubeconfig(&server, &json!({}), &json!({"token": "wrong"}));
    kubeconfig_file["users"]
        .as_array_mut()
        .ok_or("no users")?
        .push(json!({"name": "right", "user": {"token": SECRET}}));
    let other = json!({"name": "other", "context": {"cluster": "c", "user": "right", "namespace": "shop"}});
    kubeconfig_file["contexts"].as_array_mut().ok_or("no contexts")?.push(other);
    let file = folder.write("config.yaml", &kubeconfig_file.to_string());
    let current = steadfast::Connection::new(config(&file, None).await?)?;
    let other = steadfast::Connection::new(config(&file, Some("other")).await?)?;
    assert_eq!((list_pods(&current).await?, list_pods(&other).await?), (401, 200));
    assert_eq!((current.default_namespace(), other.default_namespace()), ("default", "shop"));
    Ok(())
}

#[tokio::test]
async fn proxies() -> Outcome {
    let login = Some("user:p@ss");
    for tls in [true, false] {
        let server = ApiServer::builder().tls(tls).start().await?;
        let address = server.address(0).ok_or("no address")?;
        let scheme = if tls { "https" } else { "http" };
        // One name that only the proxy can resolve, and a loopback address. The `proxy-url` applies to both.
        for (host, extra) in [("api.behind.example", json!({"tls-server-name": "localhost"})), ("127.0.0.1", json!({}))]
        {
            let target = format!("{host}:{}", address.port());
            for (kind, proxy) in
                [(ProxyKind::Connect, "http"), (ProxyKind::Socks5, "socks5"), (ProxyKind::Socks5, "socks5h")]
            {
                let tunnel = Tunnel::open(kind, "127.0.0.1:0", &[(&target, address)], login).await?;
                let mut cluster = extra.clone();
                cluster["server"] = format!("{scheme}://{target}").into();
                cluster["proxy-url"] = format!("{proxy}://user:p%40ss@{}", tunnel.address).into();
                let connection = connection(&Folder::new(), &kubeconfig(&server, &cluster, &json!({}))).await?;
                recorded_request(&connection, &server).await.map_err(|error| format!("{cluster}: {error}"))?;
                assert_eq!(tunnel.requested_targets(), std::slice::from_ref(&target));
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn refusing_proxy_is_named_without_credentials() -> Outcome {
    let server = ApiServer::start().await?;
    for (kind, proxy, why) in [
        (ProxyKind::Connect, "http", ["407 Proxy Authentication Required", "502 Bad Gateway"]),
        (ProxyKind::Socks5, "socks5", ["does not accept the user and password", "responded with 4, host unreachable"]),
    ] {
        for (login, why) in [(Some("another:one"), why[0]), (None, why[1])] {
            let tunnel = Tunnel::open(kind, "127.0.0.1:0", &[], login).await?;
            let url = format!("{proxy}://user:{SECRET}@{}", tunnel.address);
            let cluster = json!({"server": "http://nowhere.example:80", "proxy-url": url});
            let connection = connection(&Folder::new(), &kubeconfig(&server, &cluster, &json!({}))).await?;
            let error = list_pods(&connection).await.expect_err("the proxy rejects the tunnel");
            let text = format!("{error} {error:?} {connection:?}");
            assert!(text.contains(why) && text.contains(&format!("{proxy}://{}", tunnel.address)), "{text}");
            assert!(!text.contains(SECRET), "{text}");
        }
    }
    let cluster = json!({"proxy-url": "http://127.0.0.1:1"});
    let connection = connection(&Folder::new(), &kubeconfig(&server, &cluster, &json!({}))).await?;
    let error = list_pods(&connection).await.expect_err("no proxy");
    let error = error.downcast::<steadfast::connection::SendError>()?;
    let named = matches!(*error, steadfast::connection::SendError::Transport(TransportError::Proxy { .. }));
    assert!(named && error.to_string().contains("http://127.0.0.1:1: the proxy cannot be reached"), "{error}");
    Ok(())
}

//! Errors name invalid input by its location, without its text.

use serde_json::json;
use steadfast_apiserver::ApiServer;

use crate::kubeconfigs::support::{Folder, Outcome, SECRET, base64, config, connection, kubeconfig};

#[tokio::test]
async fn unusable_parts_are_named() -> Outcome {
    let server = ApiServer::builder().tls(true).start().await?;
    let folder = Folder::new();
    folder.write("empty", "\n");
    let none = json!({});
    let plugin = |script: &str| {
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
            "args": ["-c", script],
        }})
    };
    for (cluster, user, why) in [
        (json!({"server": null}), none.clone(), "the cluster has no server"),
        (json!({"server": "https://[::1"}), none.clone(), "server is not a URL"),
        (json!({"server": "ftp://example"}), none.clone(), "does not start with https:// or http://"),
        (json!({"certificate-authority-data": base64("no PEM at all")}), none.clone(), "holds no certificate"),
        (json!({"certificate-authority-data": "!!"}), none.clone(), "certificate-authority-data is not base64"),
        (
            json!({"certificate-authority-data": null, "certificate-authority": "absent.crt"}),
            none.clone(),
            "absent.crt",
        ),
        (json!({"proxy-url": format!("ftp://u:{SECRET}@proxy")}), none.clone(), "does not start with http://"),
        (json!({"tls-server-name": "no name"}), none.clone(), "not a valid name in a certificate"),
        (none.clone(), json!({"tokenFile": "absent"}), "absent cannot be read"),
        (none.clone(), json!({"tokenFile": "empty"}), "empty is empty"),
        (
            none.clone(),
            json!({"client-certificate-data": base64("x"), "client-key-data": SECRET}),
            "client-key-data is not base64",
        ),
        (none.clone(), json!({"client-certificate": "absent.crt", "client-key": "absent.key"}), "absent"),
        (
            none.clone(),
            json!({"token": format!("{SECRET}\n")}),
            "the token has a character that a header cannot contain",
        ),
        (
            none.clone(),
            plugin(&format!(
                r#"printf %s '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{SECRET}\n"}}}}'"#
            )),
            "the token of the credential plugin \"sh\" has a character that a header cannot contain",
        ),
        (none.clone(), plugin(&format!("echo {SECRET}; exit 3")), "exit status: 3"),
        (
            none.clone(),
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/absent/plugin"}}),
            "No such file",
        ),
    ] {
        let Err(error) = connection(&folder, &kubeconfig(&server, &cluster, &user)).await else {
            panic!("{cluster} {user} was accepted");
        };
        let text = format!("{error} {error:?}");
        assert!(text.contains(why), "{cluster} {user}: {text}");
        assert!(!text.contains(SECRET), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn unusable_files_are_named() -> Outcome {
    let server = ApiServer::start().await?;
    let folder = Folder::new();
    let good = kubeconfig(&server, &json!({}), &json!({"token": SECRET}));
    let mut contextless = good.clone();
    contextless.as_object_mut().ok_or("an object")?.remove("current-context");
    let mut clusterless = good.clone();
    clusterless["clusters"] = json!([]);
    for (text, context, why) in [
        (format!("users:\n- name: u\n  user: {{token: {SECRET}, token: [}}\n"), None, "line 3"),
        (contextless.to_string(), None, "no current context is set"),
        (good.to_string(), Some("absent"), "the context \"absent\" does not exist"),
        (clusterless.to_string(), None, "the cluster \"c\" of the context \"here\" does not exist"),
    ] {
        let file = folder.write("config.yaml", &text);
        let error = config(&file, context).await.expect_err("unusable");
        let text = format!("{error} {error:?}");
        assert!(text.contains(why) && !text.contains(SECRET), "{text}");
    }
    let error = config(&folder.path().join("absent.yaml"), None).await.expect_err("the file does not exist");
    assert!(error.to_string().contains("absent.yaml cannot be read"), "{error}");
    Ok(())
}

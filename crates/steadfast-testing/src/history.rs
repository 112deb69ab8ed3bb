//! The history of the embedded server, converted for the checker.

use steadfast_apiserver::{ApiServer, GroupResource};
use steadfast_contract::{Change, History};

use crate::TestkitError;

/// Returns the history of the resource `plural` of `group` on `server`, for the checker. Events always belong to the
/// core group.
///
/// # Errors
///
/// Returns an error if `server` does not serve the resource and has no change of it. `plural` is the plural name of
/// the resource, such as `configmaps`.
pub fn history(server: &ApiServer, group: &str, plural: &str) -> Result<History, TestkitError> {
    let recorded = server.history();
    // A known resource without a change has an empty history. An unknown resource is probably a typo in the test.
    let is_known = |resources: &[GroupResource]| resources.contains(&GroupResource::new(group, plural));
    if recorded.of(group, plural).next().is_none() && !is_known(&server.resources()) {
        return Err(unknown(&server.resources(), group, plural).into());
    }
    let log = server.fault_log();
    // Undone changes are not part of the history; only the log of restores contains them. The first epoch has no
    // restore. Each later epoch starts with one restore, in the order of the log.
    let mut restores = log.iter().filter(|fault| fault.fault == "restore").zip(recorded.epochs.iter().skip(1));
    let mut history = History::new();
    for change in recorded.of(group, plural) {
        // A restore that no change follows is added after the loop.
        while history.epoch() < change.epoch {
            let Some((restore, to)) = restores.next() else { break };
            history.restore(restore.at, *to);
        }
        let namespace = change.namespace.as_deref();
        let message = match &change.object {
            Some(object) => Change::new(change.revision, &change.uid, namespace, &change.name, object.as_ref().clone()),
            None => Change::deleted(change.revision, &change.uid, namespace, &change.name),
        };
        history.push(message.at(change.at).in_epoch(change.epoch));
    }
    for (restore, to) in restores {
        history.restore(restore.at, *to);
    }
    Ok(history)
}

/// Describes the unknown resource, and suggests similar names.
fn unknown(served: &[GroupResource], group: &str, plural: &str) -> String {
    let requested = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let wanted = plural.to_lowercase();
    let is_close = |resource: &&GroupResource| {
        let name = resource.resource();
        name == wanted
            || name.strip_suffix("es").or(name.strip_suffix('s')) == Some(&wanted)
            || name == format!("{wanted}s")
    };
    let close: Vec<String> = served.iter().filter(is_close).map(ToString::to_string).collect();
    let hint = if close.is_empty() {
        "specify its plural name and its group".to_owned()
    } else {
        format!("did you mean {}?", close.join(" or "))
    };
    format!("the server has no resource {requested:?}, and therefore no history: {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn misspelt_resource_returns_error_with_suggestion() -> Result<(), TestkitError> {
        let server = ApiServer::builder().in_memory().start().await?;
        server.create(&crate::config_map("a", "1"))?;
        assert_eq!(history(&server, "", "configmaps")?.changes().len(), 1);
        assert!(history(&server, "", "secrets")?.changes().is_empty(), "no secret was written");
        for (group, plural, hint) in [
            ("", "configmap", "did you mean configmaps?"),
            ("", "ConfigMap", "did you mean configmaps?"),
            ("", "deployments", "did you mean deployments.apps?"),
            ("", "ingress", "did you mean ingresses.networking.k8s.io?"),
            ("apps", "configmaps", "did you mean configmaps?"),
            ("shop.test", "carts", "specify its plural name and its group"),
        ] {
            let message = history(&server, group, plural).expect_err("the history must not exist").to_string();
            assert!(message.contains(hint), "{message}");
        }
        Ok(())
    }
}

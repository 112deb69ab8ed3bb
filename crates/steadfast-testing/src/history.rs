//! The history of the embedded server, converted for the checker.

use steadfast_apiserver::{ApiServer, GroupResource};
use steadfast_contract::{Change, History};

use crate::TestkitError;

/// Returns the history of the resource `plural` of `group` on `server`, for the checker. The group of `events` is the
/// core group, because the server stores `Event` objects of `events.k8s.io` there.
///
/// # Errors
///
/// Returns an error if `server` does not serve the resource and has no change of it. `plural` is the plural name of
/// the resource, such as `configmaps`.
pub fn history(server: &ApiServer, group: &str, plural: &str) -> Result<History, TestkitError> {
    let server_history = server.history();
    // A known resource without a change has an empty history. An unknown resource is probably a typo in the test.
    let is_known = |resources: &[GroupResource]| resources.contains(&GroupResource::new(group, plural));
    if server_history.changes_of(group, plural).next().is_none() && !is_known(&server.resources()) {
        return Err(unknown_resource_message(&server.resources(), group, plural).into());
    }
    let log = server.fault_log();
    // Changes that a restore has undone are absent from the history. The fault log contains the time of each restore.
    // The first epoch has no restore. Each later epoch starts with one restore, in the order of the log.
    let mut restores = log.iter().filter(|fault| fault.fault == "restore").zip(server_history.epochs.iter().skip(1));
    let mut history = History::new();
    for change in server_history.changes_of(group, plural) {
        // A restore that no change follows is added after the loop.
        while history.epoch() < change.epoch {
            let Some((restore, restored_revision)) = restores.next() else { break };
            history.restore(restore.at, *restored_revision);
        }
        let namespace = change.namespace.as_deref();
        let converted = match &change.object {
            Some(object) => Change::new(change.revision, &change.uid, namespace, &change.name, object.as_ref().clone()),
            None => Change::deleted(change.revision, &change.uid, namespace, &change.name),
        };
        history.push(converted.at(change.at).in_epoch(change.epoch));
    }
    for (restore, restored_revision) in restores {
        history.restore(restore.at, *restored_revision);
    }
    Ok(history)
}

/// Describes the unknown resource, and suggests similar names.
fn unknown_resource_message(resources: &[GroupResource], group: &str, plural: &str) -> String {
    let requested = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let lowercase = plural.to_lowercase();
    let is_close = |resource: &&GroupResource| {
        let name = resource.resource();
        name == lowercase
            || name.strip_suffix("es").or(name.strip_suffix('s')) == Some(&lowercase)
            || name == format!("{lowercase}s")
    };
    let similar: Vec<String> = resources.iter().filter(is_close).map(ToString::to_string).collect();
    let hint = if similar.is_empty() {
        "specify its plural name and its group".to_owned()
    } else {
        format!("did you mean {}?", similar.join(" or "))
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

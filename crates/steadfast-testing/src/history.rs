//! The embedded server's history, in the words of the checker.

use steadfast_apiserver::{ApiServer, GroupResource};
use steadfast_contract::{Change, History};

use crate::Error;

/// What happened to the resource `plural` of `group` on `server`, for the checker. Events are all of the core group.
///
/// # Errors
///
/// Where `server` has no such resource and never had a change of one: it is named by its plural, such as `configmaps`.
pub fn history(server: &ApiServer, group: &str, plural: &str) -> Result<History, Error> {
    let recorded = server.history();
    let is_known = |resources: &[GroupResource]| resources.contains(&GroupResource::new(group, plural));
    if recorded.of(group, plural).next().is_none() && !is_known(&server.resources()) {
        return Err(unknown(&server.resources(), group, plural).into());
    }
    let log = server.fault_log();
    // What was undone has no change of its own: only the restore tells of it.
    let mut restores = log.iter().filter(|fault| fault.fault == "restore").zip(recorded.epochs.iter().skip(1));
    let mut history = History::new();
    for change in recorded.of(group, plural) {
        while history.epoch() < change.epoch {
            let Some((restore, to)) = restores.next() else { break };
            history.restore(restore.at, *to);
        }
        let namespace = change.namespace.as_deref();
        let told = match &change.object {
            Some(object) => Change::new(change.revision, &change.uid, namespace, &change.name, object.as_ref().clone()),
            None => Change::gone(change.revision, &change.uid, namespace, &change.name),
        };
        history.push(told.at(change.at).in_epoch(change.epoch));
    }
    for (restore, to) in restores {
        history.restore(restore.at, *to);
    }
    Ok(history)
}

/// That there is no such resource, and which ones may have been meant.
fn unknown(served: &[GroupResource], group: &str, plural: &str) -> String {
    let asked = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let wanted = plural.to_lowercase();
    let is_close = |resource: &&GroupResource| {
        let name = resource.resource();
        name == wanted
            || name.strip_suffix("es").or(name.strip_suffix('s')) == Some(&wanted)
            || name == format!("{wanted}s")
    };
    let close: Vec<String> = served.iter().filter(is_close).map(ToString::to_string).collect();
    let hint = if close.is_empty() {
        "its plural name and group are needed".to_owned()
    } else {
        format!("did you mean {}?", close.join(" or "))
    };
    format!("the server has no resource {asked:?}, so it has no history: {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_resource_that_is_misspelt_has_no_history_and_the_right_name_is_told() -> Result<(), Error> {
        let server = ApiServer::builder().in_memory().start().await?;
        server.create(&crate::config_map("a", "1"))?;
        assert_eq!(history(&server, "", "configmaps")?.changes().len(), 1);
        assert!(history(&server, "", "secrets")?.changes().is_empty(), "nothing happened to any, as far as it goes");
        for (group, plural, hint) in [
            ("", "configmap", "did you mean configmaps?"),
            ("", "ConfigMap", "did you mean configmaps?"),
            ("", "deployments", "did you mean deployments.apps?"),
            ("", "ingress", "did you mean ingresses.networking.k8s.io?"),
            ("apps", "configmaps", "did you mean configmaps?"),
            ("shop.test", "carts", "its plural name and group are needed"),
        ] {
            let told = history(&server, group, plural).expect_err("there is none").to_string();
            assert!(told.contains(hint), "{told}");
        }
        Ok(())
    }
}

//! Workloads on a simulated cluster, in virtual time.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use super::template::is_ready;
use super::view::{owner_uid, owners, text};
use crate::random::Random;
use crate::{ApiServer, GroupResource, Status, Verb};

type Outcome = Result<(), Box<dyn std::error::Error>>;

async fn start(seed: u64) -> Result<ApiServer, crate::StartError> {
    ApiServer::builder().in_memory().seed(seed).world(World::default()).start().await
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn annotated_pod(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "main:1"}]},
    })
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut object = json!({
        "apiVersion": group, "kind": kind, "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "main:1"}]},
            },
        },
    });
    merge(&mut object["spec"], spec);
    object
}

fn merge(target: &mut Value, changes: Value) {
    match (target, changes) {
        (Value::Object(target), Value::Object(changes)) => {
            for (field, change) in changes {
                merge(target.entry(field).or_insert(Value::Null), change);
            }
        }
        (target, changes) => *target = changes,
    }
}

/// Returns the live objects of a resource, by their names.
fn live(server: &ApiServer, resource: &str) -> Vec<Value> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, snapshot) = (GroupResource::new(group, plural), server.snapshot());
    let stored = snapshot.objects().iter().filter(|stored| stored.resource == resource);
    let mut objects: Vec<Value> = stored.map(|stored| Value::clone(&stored.object)).collect();
    let key = |object: &Value| ["namespace", "name"].map(|field| object["metadata"][field].to_string());
    objects.sort_by_key(key);
    objects
}

fn pods(server: &ApiServer, app: &str) -> Vec<Value> {
    live(server, "pods").into_iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).collect()
}

fn image(pod: &Value) -> &str {
    text(pod, "/spec/containers/0/image")
}

fn set_image(server: &ApiServer, resource: &str, name: &str, image: &str) -> Result<Value, Status> {
    let containers = json!([{"name": "main", "image": image}]);
    server.merge_patch(resource, "default", name, json!({"spec": {"template": {"spec": {"containers": containers}}}}))
}

#[tokio::test(start_paused = true)]
async fn rollout_keeps_limits_of_strategy() -> Outcome {
    let server = start(1).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 5})))?;
    wait(30).await;
    assert_eq!(pods(&server, "web").iter().filter(|pod| is_ready(pod)).count(), 5);
    set_image(&server, "deployments", "web", "main:2")?;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = pods(&server, "web");
        let ready = now.iter().filter(|pod| is_ready(pod)).count();
        // 25 % of 5, rounded up for the surge and down for the unavailable pods.
        assert!(now.len() <= 7 && ready >= 4, "{} pods, {ready} ready", now.len());
    }
    let deployment = server.get("deployments", "default", "web")?;
    assert!(pods(&server, "web").iter().all(|pod| image(pod) == "main:2"), "{deployment:#}");
    assert_eq!(deployment["status"]["updatedReplicas"], 5);
    assert_eq!(deployment["status"]["observedGeneration"], deployment["metadata"]["generation"]);
    assert_eq!(deployment["status"]["conditions"][1]["reason"], "NewReplicaSetAvailable");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rollback_reuses_replica_set() -> Outcome {
    let server = start(2).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 2, "revisionHistoryLimit": 2})))?;
    for version in ["main:2", "main:1", "main:3", "main:4", "main:5"] {
        wait(30).await;
        // `kubectl rollout undo` writes empty fields that the template did not have.
        let containers = json!([{"name": "main", "image": version, "resources": {}}]);
        let template = json!({"spec": {"template": {"spec": {"containers": containers, "volumes": []}}}});
        server.merge_patch("deployments", "default", "web", template)?;
    }
    wait(30).await;
    let sets = live(&server, "replicasets.apps");
    // The rollback to the first template created no replica set, and the two oldest of the five sets were deleted.
    assert_eq!(sets.len(), 3, "{sets:#?}");
    let deployment = server.get("deployments", "default", "web")?;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "6");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn recreated_deployment_runs_one_template_at_once() -> Outcome {
    let server = start(3).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 3, "strategy": {"type": "Recreate"}})))?;
    wait(30).await;
    set_image(&server, "deployments", "web", "main:2")?;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = pods(&server, "web");
        let images: BTreeSet<&str> = now.iter().map(image).collect();
        assert!(images.len() <= 1, "{images:?}");
    }
    assert_eq!(pods(&server, "web").iter().filter(|pod| is_ready(pod) && image(pod) == "main:2").count(), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stalled_rollout_exceeds_its_deadline() -> Outcome {
    let server = start(4).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 4, "progressDeadlineSeconds": 60})))?;
    wait(30).await;
    let never = json!({"metadata": {"annotations": {"world.steadfast.dev/ready-after": "never"}}});
    server.merge_patch("deployments", "default", "web", json!({"spec": {"template": never}}))?;
    wait(120).await;
    let deployment = server.get("deployments", "default", "web")?;
    assert_eq!(deployment["status"]["conditions"][1]["reason"], "ProgressDeadlineExceeded", "{deployment:#}");
    assert_eq!(deployment["status"]["availableReplicas"], 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stateful_set_works_in_order() -> Outcome {
    let server = start(5).await?;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    server.create(&workload("StatefulSet", "db", json!({"replicas": 3, "volumeClaimTemplates": [claim]})))?;
    wait(30).await;
    set_image(&server, "statefulsets", "db", "main:2")?;
    wait(30).await;
    server.merge_patch("statefulsets", "default", "db", json!({"spec": {"replicas": 1}}))?;
    wait(30).await;
    let mut order = Vec::new();
    for change in server.history().changes_of("", "pods") {
        match (&change.previous, &change.object) {
            (None, Some(_)) => order.push(format!("+{}", change.name)),
            (Some(_), None) => order.push(format!("-{}", change.name)),
            _ => {}
        }
    }
    let expected = "+db-0 +db-1 +db-2 -db-2 +db-2 -db-1 +db-1 -db-0 +db-0 -db-2 -db-1";
    assert_eq!(order.join(" "), expected);
    assert_eq!(live(&server, "persistentvolumeclaims").len(), 3);
    let status = &server.get("statefulsets", "default", "db")?["status"];
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_eq!((&status["readyReplicas"], &status["updatedReplicas"]), (&json!(1), &json!(1)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn daemon_set_has_one_pod_per_node() -> Outcome {
    let server = start(6).await?;
    server.create(&workload("DaemonSet", "agent", json!({})))?;
    wait(30).await;
    set_image(&server, "daemonsets", "agent", "main:2")?;
    server.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "extra"}}))?;
    server.delete_named("nodes", "", "node-1")?;
    wait(60).await;
    let found = pods(&server, "agent");
    let nodes: BTreeSet<&str> = found.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
    assert_eq!(nodes.into_iter().collect::<Vec<_>>(), ["extra", "node-2", "node-3"]);
    assert!(found.len() == 3 && found.iter().all(|pod| is_ready(pod) && image(pod) == "main:2"), "{found:#?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn daemon_pods_leave_unselected_nodes() -> Outcome {
    let server = start(15).await?;
    let selector = json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}});
    wait(1).await;
    for node in ["node-1", "node-2"] {
        server.merge_patch("nodes", "", node, json!({"metadata": {"labels": {"disk": "ssd"}}}))?;
    }
    server.create(&workload("DaemonSet", "agent", selector))?;
    wait(30).await;
    assert_eq!(pods(&server, "agent").len(), 2);
    server.merge_patch("nodes", "", "node-1", json!({"metadata": {"labels": {"disk": null}}}))?;
    wait(30).await;
    let nodes: Vec<_> = pods(&server, "agent").iter().map(|pod| text(pod, "/spec/nodeName").to_owned()).collect();
    assert_eq!(nodes, ["node-2"]);
    let status = server.get("daemonsets", "default", "agent")?["status"].clone();
    assert_eq!((&status["numberMisscheduled"], &status["numberReady"]), (&json!(0), &json!(1)), "{status:#}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn jobs_complete_or_reach_backoff_limit() -> Outcome {
    let server = start(7).await?;
    let policy = json!({"template": {"spec": {"restartPolicy": "Never"}}});
    let mut good = workload("Job", "good", policy.clone());
    merge(&mut good, json!({"spec": {"completions": 5, "parallelism": 2, "ttlSecondsAfterFinished": 60}}));
    let mut bad = workload("Job", "bad", policy);
    let annotations = json!({"world.steadfast.dev/exit-code": "1"});
    merge(
        &mut bad,
        json!({"spec": {"completions": 1, "backoffLimit": 2, "template": {"metadata": {"annotations": annotations}}}}),
    );
    server.create(&good)?;
    server.create(&bad)?;
    wait(30).await;
    let status = server.get("jobs", "default", "good")?["status"].clone();
    assert_eq!((&status["succeeded"], &status["active"]), (&json!(5), &Value::Null), "{status:#}");
    assert_eq!(status["conditions"][1]["type"], "Complete");
    let failed = server.get("jobs", "default", "bad")?["status"].clone();
    assert_eq!((&failed["failed"], &failed["conditions"][1]["type"]), (&json!(3), &json!("Failed")), "{failed:#}");
    wait(90).await;
    assert_eq!(server.get("jobs", "default", "good").expect_err("its time has ended").code, 404);
    assert!(pods(&server, "good").is_empty());
    Ok(())
}

/// Go's `omitempty` of the real types: a count of zero is absent, apart from some that are always written.
#[tokio::test(start_paused = true)]
async fn zero_counts_are_omitted_as_on_real_cluster() -> Outcome {
    let server = start(17).await?;
    let never = json!({"template": {"metadata": {"annotations": {"world.steadfast.dev/ready-after": "never"}}}});
    let unready = |kind: &str, spec: Value| {
        let mut object = workload(kind, "unready", never.clone());
        merge(&mut object["spec"], spec);
        object
    };
    server.create(&unready("Deployment", json!({"replicas": 2})))?;
    server.create(&unready("StatefulSet", json!({"replicas": 2})))?;
    server.create(&unready("DaemonSet", json!({"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}})))?;
    server.create(&unready("Job", json!({"template": {"spec": {"restartPolicy": "Never"}}})))?;
    server.create(&workload("Deployment", "web", json!({"replicas": 2})))?;
    wait(30).await;
    server.merge_patch("deployments", "default", "web", json!({"spec": {"replicas": 0}}))?;
    wait(30).await;
    let counts = |object: &Value| {
        let status = object["status"].as_object().into_iter().flatten();
        let numbers = status.filter(|(name, value)| value.is_number() && *name != "observedGeneration");
        numbers.map(|(name, value)| format!("{name}={value}")).collect::<BTreeSet<_>>()
    };
    let expect = |object: &Value, expected: &[&str]| {
        let expected: BTreeSet<_> = expected.iter().map(|&count| count.to_owned()).collect();
        assert_eq!(counts(object), expected, "{object:#}");
    };
    let get = |resource: &str, name: &str| server.get(resource, "default", name);
    expect(
        &get("deployments", "unready")?,
        &["replicas=2", "updatedReplicas=2", "unavailableReplicas=2", "terminatingReplicas=0"],
    );
    expect(&get("deployments", "web")?, &["terminatingReplicas=0"]);
    for set in live(&server, "replicasets.apps") {
        let is_empty = text(&set, "/metadata/name").starts_with("web");
        let unready: &[&str] = &["replicas=2", "fullyLabeledReplicas=2", "terminatingReplicas=0"];
        expect(&set, if is_empty { &["replicas=0", "terminatingReplicas=0"] } else { unready });
    }
    expect(
        &get("statefulsets", "unready")?,
        &["replicas=1", "availableReplicas=0", "currentReplicas=1", "updatedReplicas=1", "collisionCount=0"],
    );
    let always = ["currentNumberScheduled=0", "desiredNumberScheduled=0", "numberMisscheduled=0", "numberReady=0"];
    expect(&get("daemonsets", "unready")?, &always);
    expect(&get("jobs", "unready")?, &["active=1", "ready=0", "terminating=0"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn crashed_container_restarts_with_backoff() -> Outcome {
    let server = start(8).await?;
    let annotations = json!({"world.steadfast.dev/exit-after": "1", "world.steadfast.dev/exit-code": "137"});
    server.create(&annotated_pod("crash", &annotations))?;
    wait(60).await;
    let container = server.get("pods", "default", "crash")?["status"]["containerStatuses"][0].clone();
    // Restarts after 10, 20 and 40 s.
    assert_eq!(container["restartCount"], 3, "{container:#}");
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(container["lastState"]["terminated"]["reason"], "OOMKilled");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_node_moves_pods() -> Outcome {
    let server = start(9).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 6})))?;
    wait(30).await;
    server.merge_patch("nodes", "", "node-3", json!({"spec": {"unschedulable": true}}))?;
    server.delete_named("nodes", "", "node-2")?;
    wait(30).await;
    let found = pods(&server, "web");
    assert!(found.len() == 6 && found.iter().all(is_ready), "{found:#?}");
    let on = |node: &str| found.iter().filter(|pod| text(pod, "/spec/nodeName") == node).count();
    assert_eq!((on("node-1"), on("node-2"), on("node-3")), (4, 0, 2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pods_without_suitable_node_wait() -> Outcome {
    let server = start(10).await?;
    server.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "picky"},
        "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "main", "image": "main:1"}]},
    }))?;
    wait(10).await;
    assert_eq!(server.get("pods", "default", "picky")?["status"]["conditions"][0]["reason"], "Unschedulable");
    server.merge_patch("nodes", "", "node-2", json!({"metadata": {"labels": {"disk": "ssd"}}}))?;
    wait(10).await;
    let pod = server.get("pods", "default", "picky")?;
    assert!(is_ready(&pod) && text(&pod, "/spec/nodeName") == "node-2", "{pod:#}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn finalizers_select_treatment_of_dependents() -> Outcome {
    let server = start(11).await?;
    for (name, finalizer) in
        [("background", None), ("foreground", Some("foregroundDeletion")), ("orphan", Some("orphan"))]
    {
        let mut deployment = workload("Deployment", name, json!({"replicas": 2}));
        if let Some(finalizer) = finalizer {
            deployment["metadata"]["finalizers"] = json!([finalizer]);
        }
        server.create(&deployment)?;
        wait(10).await;
        server.delete_named("deployments", "default", name)?;
        wait(10).await;
        assert_eq!(server.get("deployments", "default", name).expect_err("the deployment was deleted").code, 404);
    }
    // Each dependent of a foreground deletion ended before its owner.
    let last = |group: &str, plural: &str| {
        let history = server.history();
        let deletions = history
            .changes_of(group, plural)
            .filter(|change| change.object.is_none() && change.name.starts_with("foreground"));
        deletions.map(|change| change.revision).max()
    };
    let order = [last("", "pods"), last("apps", "replicasets"), last("apps", "deployments")];
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{order:?}");
    let rest: Vec<String> =
        live(&server, "pods").iter().map(|pod| text(pod, "/metadata/labels/app").to_owned()).collect();
    assert_eq!(rest, ["orphan", "orphan"]);
    // The orphaned replica set has no owner any more.
    assert!(live(&server, "replicasets.apps").iter().all(|set| owners(set).next().is_none()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn endpoints_follow_ready_pods() -> Outcome {
    let server = start(12).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 3})))?;
    server.create(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }))?;
    wait(30).await;
    server.merge_patch("deployments", "default", "web", json!({"spec": {"replicas": 2}}))?;
    wait(30).await;
    let slices = live(&server, "endpointslices.discovery.k8s.io");
    assert_eq!(slices.len(), 1, "{slices:#?}");
    let addresses = |list: &Value| list.as_array().map_or(0, Vec::len);
    assert_eq!(addresses(&slices[0]["endpoints"]), 2);
    assert_eq!(slices[0]["ports"][0]["port"], 8080);
    server.delete_named("services", "default", "web")?;
    wait(5).await;
    assert!(live(&server, "endpointslices.discovery.k8s.io").is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn huge_numbers_stop_no_controller() -> Outcome {
    let server = start(15).await?;
    let huge = json!({
        "replicas": 1, "progressDeadlineSeconds": u64::MAX, "revisionHistoryLimit": u64::MAX,
        "strategy": {"rollingUpdate": {"maxSurge": u64::MAX, "maxUnavailable": "9223372036854775807%"}},
    });
    let mut deployment = workload("Deployment", "huge", huge);
    let never =
        json!({"world.steadfast.dev/ready-after": "never", "deployment.kubernetes.io/revision": u64::MAX.to_string()});
    merge(&mut deployment["spec"]["template"]["metadata"], json!({"annotations": never}));
    server.create(&deployment)?;
    wait(5).await;
    for set in live(&server, "replicasets.apps") {
        let revision =
            json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": u64::MAX.to_string()}}});
        server.merge_patch("replicasets", "default", text(&set, "/metadata/name"), revision)?;
    }
    set_image(&server, "deployments", "huge", "main:2")?;
    server.create(&workload("StatefulSet", "huge", json!({"replicas": 1, "ordinals": {"start": u64::MAX}})))?;
    let job = json!({
        "ttlSecondsAfterFinished": u64::MAX, "backoffLimit": u64::MAX, "parallelism": 1, "completions": 1,
        "template": {"spec": {"restartPolicy": "Never"}},
    });
    server.create(&workload("Job", "huge", job))?;
    server.create(&annotated_pod("huge", &json!({"world.steadfast.dev/ready-after": "1e300"})))?;
    wait(30).await;
    server.create(&workload("Deployment", "web", json!({"replicas": 2})))?;
    wait(30).await;
    assert_eq!(server.get("deployments", "default", "web")?["status"]["readyReplicas"], 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rejected_writes_are_repeated_slowly() -> Outcome {
    let server = start(13).await?;
    // Unlike a real server, this server accepts containers without names. It rejects an invalid label, so the template
    // has one.
    let labels = json!({"app": "bad", "not valid!": "x"});
    server.create(&workload(
        "ReplicaSet",
        "bad",
        json!({"replicas": 1, "template": {"metadata": {"labels": labels}}}),
    ))?;
    wait(600).await;
    assert!(pods(&server, "bad").is_empty());
    assert_eq!(server.requests().iter().filter(|request| request.verb == Verb::Create).count(), 0);
    // The world still works for others.
    server.create(&workload("Deployment", "web", json!({"replicas": 1})))?;
    wait(30).await;
    assert_eq!(pods(&server, "web").len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn restored_server_converges_again() -> Outcome {
    let server = start(14).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 2})))?;
    wait(30).await;
    let backup = server.revision();
    server.merge_patch("deployments", "default", "web", json!({"spec": {"replicas": 5}}))?;
    wait(30).await;
    server.delete_named("deployments", "default", "web")?;
    wait(30).await;
    server.faults().restore(backup);
    wait(30).await;
    let status = server.get("deployments", "default", "web")?["status"].clone();
    assert_eq!(status["readyReplicas"], 2, "{status:#}");
    server.merge_patch("deployments", "default", "web", json!({"spec": {"replicas": 4}}))?;
    wait(30).await;
    assert_eq!(server.get("deployments", "default", "web")?["status"]["readyReplicas"], 4);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn restored_pod_starts_despite_later_stage() -> Outcome {
    let server = start(16).await?;
    server.create(&annotated_pod("web", &json!({"world.steadfast.dev/ready-after": "10"})))?;
    wait(5).await;
    let backup = server.revision();
    wait(30).await;
    assert!(is_ready(&server.get("pods", "default", "web")?));
    // The pod is starting again. Its later stage, running, has no end.
    server.faults().restore(backup);
    wait(1).await;
    assert!(!is_ready(&server.get("pods", "default", "web")?));
    wait(30).await;
    assert!(is_ready(&server.get("pods", "default", "web")?));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn removed_history_hides_no_change() -> Outcome {
    let server = start(17).await?;
    server.create(&workload("Deployment", "web", json!({"replicas": 2})))?;
    // The controllers have not read the change.
    server.forget_history(0);
    wait(30).await;
    assert_eq!(pods(&server, "web").len(), 2);
    server.forget_history(5);
    let backup = server.revision();
    server.create(&workload("Deployment", "later", json!({"replicas": 1})))?;
    wait(30).await;
    server.faults().restore(backup);
    wait(30).await;
    // No change of the abandoned history is observed again.
    assert_eq!((pods(&server, "web").len(), pods(&server, "later").len()), (2, 0));
    server.merge_patch("deployments", "default", "web", json!({"spec": {"replicas": 3}}))?;
    wait(30).await;
    assert_eq!((pods(&server, "web").len(), pods(&server, "later").len()), (3, 0));
    Ok(())
}

/// Random operations, then rest: the pods, sets and endpoints match their owners.
#[tokio::test(start_paused = true)]
async fn random_operations_converge() -> Outcome {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    for seed in 0..seeds {
        converge(seed).await.map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(())
}

async fn converge(seed: u64) -> Outcome {
    let server = start(seed).await?;
    let mut random = Random::seeded(seed);
    let mut pick = |count: u64| random.next() % count;
    for _ in 0..60 {
        let name = ["a", "b", "c"][pick(3) as usize];
        // Most operations fail if the object does not exist. That is part of the history.
        let _ = match pick(11) {
            0 | 1 => server.create(&workload("Deployment", name, json!({"replicas": pick(6)}))),
            2 => set_image(&server, "deployments", name, &format!("main:{}", pick(3))),
            3 => server.merge_patch("deployments", "default", name, json!({"spec": {"replicas": pick(6)}})),
            4 => server.delete_named("deployments", "default", name),
            5 => server.create(&json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
            })),
            6 => match pods(&server, name).first() {
                Some(pod) => server.delete(pod),
                None => Ok(Value::Null),
            },
            7 => server.delete_named("nodes", "", &format!("node-{}", 1 + pick(2))),
            8 => server.create(
                &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{}", 1 + pick(2))}}),
            ),
            9 => {
                server.forget_history(pick(10) as usize);
                Ok(Value::Null)
            }
            _ => {
                let paused = json!({"spec": {"paused": pick(2) == 0}});
                server.merge_patch("deployments", "default", name, paused)
            }
        };
        tokio::time::sleep(Duration::from_millis(pick(3000))).await;
    }
    for deployment in live(&server, "deployments.apps") {
        server.merge_patch(
            "deployments",
            "default",
            text(&deployment, "/metadata/name"),
            json!({"spec": {"paused": false}}),
        )?;
    }
    wait(300).await;
    let quiet = server.revision();
    for deployment in live(&server, "deployments.apps") {
        let name = text(&deployment, "/metadata/name");
        let found = pods(&server, name);
        let wanted = image(&deployment["spec"]["template"]);
        let matching = |pod: &&Value| is_ready(pod) && image(pod) == wanted;
        let count = deployment["spec"]["replicas"].as_u64().unwrap_or_default() as usize;
        assert!(
            found.len() == count && found.iter().filter(matching).count() == count,
            "seed {seed}: {deployment:#} {found:#?}"
        );
    }
    let all: Vec<Value> = server.resources().iter().flat_map(|name| live(&server, &name.to_string())).collect();
    let uids: BTreeSet<&str> = all.iter().map(|object| text(object, "/metadata/uid")).collect();
    for object in &all {
        assert!(
            owners(object).all(|owner| uids.contains(owner_uid(owner))),
            "seed {seed}: an owner no longer exists: {object:#}"
        );
    }
    for slice in live(&server, "endpointslices.discovery.k8s.io") {
        let service = text(&slice, "/metadata/ownerReferences/0/name");
        let listed: BTreeSet<&str> = slice["endpoints"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|endpoint| text(endpoint, "/targetRef/uid"))
            .collect();
        let found = pods(&server, service);
        assert_eq!(listed, found.iter().map(|pod| text(pod, "/metadata/uid")).collect(), "seed {seed}");
    }
    wait(60).await;
    // A cluster at rest writes nothing.
    assert_eq!(server.revision(), quiet, "seed {seed}: {:?}", server.history().changes.last());
    Ok(())
}

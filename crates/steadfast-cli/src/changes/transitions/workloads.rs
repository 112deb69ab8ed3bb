//! Deployments, `StatefulSets`, `DaemonSets`, `ReplicaSets`, Jobs, `CronJobs`, autoscalers, disruption budgets.

use serde_json::{Value, json};

use super::assert_rows;

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "app", "image": image}]}})
}

#[test]
fn deployment_transitions() {
    let status = |total: u32, updated: u32, ready: u32| json!({"replicas": total, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready});
    let sized = |size: u32, status: Value| json!({"spec": {"replicas": size}, "status": status});
    let with = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let conditions = |status: &str, reason: &str| json!({"status": {"conditions": [{"type": "Progressing", "status": status, "reason": reason}]}});
    assert_rows(
        "apps/Deployment",
        &[
            (sized(3, json!({})), sized(5, json!({})), "replicas 3→5"),
            (
                json!({"spec": {"template": template("shop/app:1.4")}}),
                json!({"spec": {"template": template("shop/app:1.5")}}),
                "image app 1.4→1.5",
            ),
            (
                json!({"spec": {"template": template("shop/app:1.4")}}),
                json!({"spec": {"template": template("mirror/app:1.4")}}),
                "image app shop/app:1.4→mirror/app:1.4",
            ),
            (sized(5, status(6, 2, 5)), sized(5, status(6, 3, 5)), "rollout 3/5 updated"),
            (sized(5, status(6, 5, 5)), sized(5, status(5, 5, 5)), "rollout complete: 5/5 updated"),
            (sized(5, status(5, 5, 5)), sized(5, status(6, 1, 5)), "rollout 1/5 updated"),
            (sized(5, status(6, 5, 4)), sized(5, status(6, 5, 5)), "rollout 5/5 updated, 1 old, ready 4→5 of 5"),
            (sized(5, status(5, 5, 5)), sized(5, status(5, 5, 4)), "ready 5→4 of 5"),
            (sized(3, status(5, 5, 5)), sized(3, status(3, 3, 3)), "pods 5→3"),
            (json!({"spec": {}}), json!({"spec": {"paused": true}}), "paused"),
            (json!({"spec": {"paused": true}}), json!({"spec": {"paused": null}}), "resumed"),
            (
                json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "3"}}}),
                json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "4"}}}),
                "revision 3→4",
            ),
            (
                json!({"spec": {"template": {"metadata": {"annotations": {}}}}}),
                json!({"spec": {"template": {"metadata": {
                    "annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}}),
                "restart requested",
            ),
            (
                with(json!({"name": "app", "env": [{"name": "LEVEL", "value": "info"}]})),
                with(json!({"name": "app", "env": [{"name": "LEVEL", "value": "debug"}]})),
                "env app LEVEL info→debug",
            ),
            (
                with(json!({"name": "app", "resources": {"limits": {"cpu": "1"}}})),
                with(json!({"name": "app", "resources": {"limits": {"cpu": "2"}}})),
                "app limit cpu 1→2",
            ),
            (
                with(json!({"name": "app"})),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "app"}, {"name": "proxy", "image": "p:1"}]}}}}),
                "container +proxy",
            ),
            (
                with(json!({"name": "app", "args": ["-v"]})),
                with(json!({"name": "app", "args": ["-v", "-x"]})),
                "spec.template.spec.containers[app].args [-v]→[-v -x]",
            ),
            (
                conditions("True", "ReplicaSetUpdated"),
                conditions("True", "NewReplicaSetAvailable"),
                "Progressing True (ReplicaSetUpdated→NewReplicaSetAvailable)",
            ),
            (
                conditions("True", "ReplicaSetUpdated"),
                conditions("False", "ProgressDeadlineExceeded"),
                "Progressing True→False (ProgressDeadlineExceeded)",
            ),
            (
                json!({"spec": {"minReadySeconds": 0}}),
                json!({"spec": {"minReadySeconds": 5}}),
                "spec.minReadySeconds 0→5",
            ),
            (
                json!({"status": {"observedGeneration": 1}, "metadata": {"generation": 1}}),
                json!({"status": {"observedGeneration": 2}, "metadata": {"generation": 2}}),
                "",
            ),
        ],
    );
}

#[test]
fn other_workload_transitions() {
    assert_rows(
        "apps/StatefulSet",
        &[
            (json!({"spec": {"replicas": 2}}), json!({"spec": {"replicas": 3}}), "replicas 2→3"),
            (
                json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}),
                json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}),
                "partition 2→1",
            ),
            (
                json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "updateRevision": "db-1a"}}),
                json!({"status": {"updatedReplicas": 1, "updateRevision": "db-2b"}}),
                "rollout 1/3 updated",
            ),
        ],
    );
    assert_rows(
        "apps/DaemonSet",
        &[
            (
                json!({"status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}}),
                json!({"status": {"numberReady": 2, "numberUnavailable": 1}}),
                "ready 3→2 of 3",
            ),
            (
                json!({"status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}}),
                json!({"status": {"desiredNumberScheduled": 4, "currentNumberScheduled": 4, "updatedNumberScheduled": 4}}),
                "nodes 3→4",
            ),
        ],
    );
    assert_rows(
        "apps/ReplicaSet",
        &[
            (json!({"spec": {"replicas": 0}}), json!({"spec": {"replicas": 3}}), "replicas 0→3"),
            (
                json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "readyReplicas": 2}}),
                json!({"status": {"readyReplicas": 3, "availableReplicas": 3}}),
                "ready 2→3 of 3",
            ),
        ],
    );
}

#[test]
fn batch_and_scaling_transitions() {
    let job = |status: Value| json!({"spec": {"completions": 3}, "status": status});
    assert_rows(
        "batch/Job",
        &[
            (job(json!({"active": 2})), job(json!({"active": 1, "succeeded": 1})), "succeeded 0→1 of 3, active 2→1"),
            (job(json!({"failed": 1})), job(json!({"failed": 2})), "failed 1→2"),
            (
                job(json!({})),
                job(
                    json!({"completionTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]}),
                ),
                "Complete True",
            ),
            (json!({"spec": {"suspend": false}}), json!({"spec": {"suspend": true}}), "suspended"),
        ],
    );
    assert_rows(
        "batch/CronJob",
        &[
            (
                json!({"spec": {"schedule": "0 * * * *"}}),
                json!({"spec": {"schedule": "5 * * * *"}}),
                "schedule 0 * * * *→5 * * * *",
            ),
            (
                json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}),
                json!({"status": {"lastScheduleTime": "2026-01-01T01:00:00Z", "active": [{"name": "backup-1"}]}}),
                "scheduled for 2026-01-01T01:00:00Z, active +backup-1",
            ),
        ],
    );
    let metrics = |percent: u32| {
        let resource = json!({"name": "cpu", "current": {"averageUtilization": percent, "averageValue": "10m"}});
        json!({"status": {"currentMetrics": [{"type": "Resource", "resource": resource}]}})
    };
    assert_rows(
        "autoscaling/HorizontalPodAutoscaler",
        &[
            (json!({"status": {"desiredReplicas": 3}}), json!({"status": {"desiredReplicas": 5}}), "desired 3→5"),
            (json!({"spec": {"maxReplicas": 5}}), json!({"spec": {"maxReplicas": 9}}), "max 5→9"),
            (metrics(40), metrics(85), "cpu 40%→85%"),
        ],
    );
    assert_rows(
        "policy/PodDisruptionBudget",
        &[(
            json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}}),
            json!({"status": {"disruptionsAllowed": 0, "currentHealthy": 2}}),
            "allowed disruptions 1→0, healthy 3→2, required 2",
        )],
    );
}

//! Deployments, `ReplicaSets`, `StatefulSets`, `DaemonSets`, Jobs, `CronJobs`, autoscalers and disruption budgets.

use serde_json::{Value, json};

use super::{Table, condition};

pub(super) fn tables() -> Vec<Table> {
    vec![deployments(), replica_sets(), stateful_sets(), daemon_sets(), jobs(), cron_jobs(), autoscalers(), budgets()]
}

fn template(container: &Value) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}})
}

fn image(image: &str) -> Value {
    template(&json!({"name": "app", "image": image}))
}

/// Returns a status with the numbers of all, updated and ready pods.
fn status(generation: u32, total: u32, updated: u32, ready: u32, conditions: &[Value]) -> Value {
    json!({
        "observedGeneration": generation, "replicas": total, "updatedReplicas": updated, "readyReplicas": ready,
        "availableReplicas": ready, "unavailableReplicas": total.saturating_sub(ready), "conditions": conditions,
    })
}

fn available(seconds: u32) -> Value {
    condition("Available", "True", "MinimumReplicasAvailable", seconds)
}

fn progressing(reason: &str, seconds: u32) -> Value {
    let mut progressing = condition("Progressing", "True", reason, 1);
    progressing["lastUpdateTime"] = json!(format!("2026-01-01T00:00:{seconds:02}Z"));
    progressing["message"] = json!(format!("ReplicaSet \"web-{seconds}\" is at {reason}"));
    progressing
}

fn deployment(status: &Value) -> Value {
    json!({
        "metadata": {"generation": 2, "annotations": {"deployment.kubernetes.io/revision": "1"}},
        "spec": {"replicas": 3, "template": image("shop/app:1.4")}, "status": status,
    })
}

fn deployments() -> Table {
    let complete = || deployment(&status(1, 3, 3, 3, &[available(1), progressing("NewReplicaSetAvailable", 1)]));
    let rolling = |total, updated, ready| {
        deployment(&status(2, total, updated, ready, &[available(1), progressing("ReplicaSetUpdated", 2)]))
    };
    let controller = "kube-controller-manager";
    let rows = vec![
        (
            "kubectl",
            complete(),
            json!({"metadata": {"generation": 3}, "spec": {"replicas": 5}}),
            "~ deployments.apps shop/web replicas 3→5 by kubectl",
        ),
        (
            "kubectl-set",
            complete(),
            json!({"metadata": {"generation": 3}, "spec": {"template": image("shop/app:1.5")}}),
            "~ deployments.apps shop/web image app 1.4→1.5 by kubectl-set",
        ),
        (
            controller,
            complete(),
            json!({
                "metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}},
                "status": status(2, 4, 1, 3, &[available(1), progressing("ReplicaSetUpdated", 2)]),
            }),
            "~ deployments.apps shop/web rollout 1/3 updated, Progressing True \
             (NewReplicaSetAvailable→ReplicaSetUpdated), revision 1→2 by kube-controller-manager",
        ),
        (
            controller,
            rolling(4, 1, 3),
            json!({"status": status(2, 4, 2, 3, &[available(1), progressing("ReplicaSetUpdated", 4)])}),
            "~ deployments.apps shop/web rollout 2/3 updated by kube-controller-manager",
        ),
        (
            controller,
            rolling(4, 3, 3),
            json!({"status": status(2, 3, 3, 3, &[available(1), progressing("NewReplicaSetAvailable", 9)])}),
            "~ deployments.apps shop/web rollout complete: 3/3 updated, Progressing True \
             (ReplicaSetUpdated→NewReplicaSetAvailable) by kube-controller-manager",
        ),
        (
            controller,
            rolling(4, 1, 3),
            json!({"status": {"conditions": [
                available(1), condition("Progressing", "False", "ProgressDeadlineExceeded", 40)]}}),
            "~ deployments.apps shop/web Progressing True→False (ProgressDeadlineExceeded) by kube-controller-manager",
        ),
        (
            controller,
            complete(),
            json!({"status": status(1, 3, 3, 1, &[
                condition("Available", "False", "MinimumReplicasUnavailable", 7), progressing("NewReplicaSetAvailable", 1)])}),
            "~ deployments.apps shop/web ready 3→1 of 3, Available True→False (MinimumReplicasUnavailable) \
             by kube-controller-manager",
        ),
        (
            controller,
            rolling(3, 0, 3),
            json!({"status": {"conditions": [
                available(1), progressing("ReplicaSetUpdated", 2), condition("ReplicaFailure", "True", "FailedCreate", 3)]}}),
            "~ deployments.apps shop/web ReplicaFailure True (FailedCreate) by kube-controller-manager",
        ),
        ("kubectl", complete(), json!({"spec": {"paused": true}}), "~ deployments.apps shop/web paused by kubectl"),
        (
            "kubectl",
            json!({"spec": {"paused": true}}),
            json!({"spec": {"paused": null}}),
            "~ deployments.apps shop/web resumed by kubectl",
        ),
        (
            "kubectl-rollout",
            complete(),
            json!({"spec": {"template": {"metadata": {
                "annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}}),
            "~ deployments.apps shop/web restart requested by kubectl-rollout",
        ),
        (
            "helm",
            json!({"spec": {"template": template(&json!({"name": "app", "image": "shop/app:1.4",
                "env": [{"name": "LEVEL", "value": "info"}], "resources": {"limits": {"memory": "1Gi"}}}))}}),
            json!({"spec": {"template": template(&json!({"name": "app", "image": "shop/app:1.5",
                "env": [{"name": "LEVEL", "value": "debug"}], "resources": {"limits": {"memory": "2Gi"}}}))}}),
            "~ deployments.apps shop/web image app 1.4→1.5, env app LEVEL info→debug, app limit memory 1Gi→2Gi by helm",
        ),
        (controller, complete(), json!({"status": {"observedGeneration": 2}}), ""),
    ];
    Table::new("apps/Deployment", "deployments.apps shop/web", rows)
}

fn replica_sets() -> Table {
    let set = |size: u32, status: Value| json!({"spec": {"replicas": size}, "status": status});
    let rows = vec![
        (
            "kube-controller-manager",
            set(0, json!({"replicas": 0})),
            json!({"metadata": {"annotations": {"deployment.kubernetes.io/desired-replicas": "3"}}, "spec": {"replicas": 1}}),
            "~ replicasets.apps shop/web-7d9f replicas 0→1 by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            set(3, json!({"replicas": 0, "observedGeneration": 1})),
            json!({"status": {"replicas": 3, "fullyLabeledReplicas": 3, "observedGeneration": 2}}),
            "~ replicasets.apps shop/web-7d9f pods 0→3 by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            set(3, json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 2})),
            json!({"status": {"readyReplicas": 3, "availableReplicas": 3}}),
            "~ replicasets.apps shop/web-7d9f ready 2→3 of 3 by kube-controller-manager",
        ),
    ];
    Table::new("apps/ReplicaSet", "replicasets.apps shop/web-7d9f", rows)
}

fn stateful_sets() -> Table {
    let set = |status: Value| json!({"spec": {"replicas": 3, "template": image("shop/db:15")}, "status": status});
    let old = json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3,
        "updatedReplicas": 3, "currentRevision": "db-1a", "updateRevision": "db-1a"});
    let rows = vec![
        (
            "kubectl",
            set(old.clone()),
            json!({"spec": {"replicas": 2, "template": image("shop/db:16")}}),
            "~ statefulsets.apps shop/db replicas 3→2, image app 15→16 by kubectl",
        ),
        (
            "kube-controller-manager",
            set(old.clone()),
            json!({"status": {"updatedReplicas": null, "updateRevision": "db-2b", "observedGeneration": 2}}),
            "~ statefulsets.apps shop/db rollout 0/3 updated by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            set(json!({"replicas": 3, "readyReplicas": 3, "updatedReplicas": 2, "currentReplicas": 1,
                "currentRevision": "db-1a", "updateRevision": "db-2b"})),
            json!({"status": {"updatedReplicas": 3, "currentReplicas": 3, "currentRevision": "db-2b"}}),
            "~ statefulsets.apps shop/db rollout complete: 3/3 updated by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            set(old),
            json!({"status": {"readyReplicas": 2, "availableReplicas": 2}}),
            "~ statefulsets.apps shop/db ready 3→2 of 3 by kube-controller-manager",
        ),
    ];
    Table::new("apps/StatefulSet", "statefulsets.apps shop/db", rows)
}

fn daemon_sets() -> Table {
    let set = |status: Value| json!({"spec": {"template": image("infra/agent:2")}, "status": status});
    let old = json!({"currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberAvailable": 3, "numberReady": 3,
        "numberMisscheduled": 0, "updatedNumberScheduled": 3});
    let rows = vec![
        (
            "kubectl",
            set(old.clone()),
            json!({"spec": {"template": image("infra/agent:3")}}),
            "~ daemonsets.apps infra/agent image app 2→3 by kubectl",
        ),
        (
            "kube-controller-manager",
            set(old.clone()),
            json!({"status": {"updatedNumberScheduled": 1, "numberReady": 2, "numberAvailable": 2,
                "numberUnavailable": 1}}),
            "~ daemonsets.apps infra/agent rollout 1/3 updated, ready 3→2 of 3 by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            set(old),
            json!({"status": {"numberMisscheduled": 1}}),
            "~ daemonsets.apps infra/agent misscheduled 0→1 by kube-controller-manager",
        ),
    ];
    Table::new("apps/DaemonSet", "daemonsets.apps infra/agent", rows)
}

fn jobs() -> Table {
    let job = |status: Value| json!({"spec": {"completions": 1, "parallelism": 1}, "status": status});
    let running = json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z", "uncountedTerminatedPods": {}});
    let rows = vec![
        (
            "kube-controller-manager",
            job(json!({})),
            json!({"status": {"active": 1, "ready": 0, "terminating": 0, "startTime": "2026-01-01T00:00:00Z",
                "uncountedTerminatedPods": {}}}),
            "~ jobs.batch shop/import active 0→1 by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            job(running.clone()),
            json!({"status": {"active": null, "ready": 0, "succeeded": 1, "completionTime": "2026-01-01T00:01:00Z",
                "conditions": [condition("SuccessCriteriaMet", "True", "CompletionsReached", 5),
                    condition("Complete", "True", "CompletionsReached", 5)]}}),
            "~ jobs.batch shop/import succeeded 0→1 of 1, active 1→0, SuccessCriteriaMet True (CompletionsReached), \
             Complete True (CompletionsReached) by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            job(running),
            json!({"status": {"active": null, "ready": 0, "failed": 4,
                "conditions": [condition("Failed", "True", "BackoffLimitExceeded", 5)]}}),
            "~ jobs.batch shop/import failed 0→4, active 1→0, Failed True (BackoffLimitExceeded) \
             by kube-controller-manager",
        ),
        (
            "kubectl",
            json!({"spec": {"suspend": false}}),
            json!({"spec": {"suspend": true}}),
            "~ jobs.batch shop/import suspended by kubectl",
        ),
    ];
    Table::new("batch/Job", "jobs.batch shop/import", rows)
}

fn cron_jobs() -> Table {
    let rows = vec![
        (
            "kube-controller-manager",
            json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}),
            json!({"status": {"lastScheduleTime": "2026-01-01T01:00:00Z", "active": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "backup-294", "namespace": "shop", "uid": "u-2"}]}}),
            "~ cronjobs.batch shop/backup scheduled for 2026-01-01T01:00:00Z, active +backup-294 \
             by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            json!({"status": {"lastScheduleTime": "2026-01-01T01:00:00Z", "active": [{"name": "backup-294"}]}}),
            json!({"status": {"lastSuccessfulTime": "2026-01-01T01:02:00Z", "active": null}}),
            "~ cronjobs.batch shop/backup succeeded at 2026-01-01T01:02:00Z, active −backup-294 \
             by kube-controller-manager",
        ),
        (
            "kubectl",
            json!({"spec": {"schedule": "0 * * * *", "suspend": true}}),
            json!({"spec": {"schedule": "5 * * * *", "suspend": false}}),
            "~ cronjobs.batch shop/backup resumed, schedule 0 * * * *→5 * * * * by kubectl",
        ),
    ];
    Table::new("batch/CronJob", "cronjobs.batch shop/backup", rows)
}

fn autoscalers() -> Table {
    let cpu = |percent: u32| {
        json!([{"type": "Resource", "resource": {"name": "cpu",
        "current": {"averageUtilization": percent, "averageValue": format!("{percent}m")}}}])
    };
    let old = json!({
        "spec": {"minReplicas": 3, "maxReplicas": 5},
        "status": {"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": cpu(40),
            "conditions": [condition("ScalingActive", "True", "ValidMetricFound", 1)]},
    });
    let rows = vec![
        (
            "kube-controller-manager",
            old.clone(),
            json!({"status": {"desiredReplicas": 5, "currentMetrics": cpu(85), "lastScaleTime": "2026-01-01T00:00:09Z"}}),
            "~ horizontalpodautoscalers.autoscaling shop/web desired 3→5, cpu 40%→85% by kube-controller-manager",
        ),
        (
            "kubectl",
            old.clone(),
            json!({"spec": {"maxReplicas": 9}}),
            "~ horizontalpodautoscalers.autoscaling shop/web max 5→9 by kubectl",
        ),
        (
            "kube-controller-manager",
            old,
            json!({"status": {"conditions": [condition("ScalingActive", "False", "FailedGetResourceMetric", 9)]}}),
            "~ horizontalpodautoscalers.autoscaling shop/web ScalingActive True→False (FailedGetResourceMetric) \
             by kube-controller-manager",
        ),
    ];
    Table::new("autoscaling/HorizontalPodAutoscaler", "horizontalpodautoscalers.autoscaling shop/web", rows)
}

fn budgets() -> Table {
    let old = json!({
        "spec": {"minAvailable": 2},
        "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3,
            "conditions": [condition("DisruptionAllowed", "True", "SufficientPods", 1)]},
    });
    let rows = vec![
        (
            "kube-controller-manager",
            old.clone(),
            json!({"status": {"currentHealthy": 2, "disruptionsAllowed": 0,
                "conditions": [condition("DisruptionAllowed", "False", "InsufficientPods", 7)]}}),
            "~ poddisruptionbudgets.policy shop/web allowed disruptions 1→0, healthy 3→2, required 2, \
             DisruptionAllowed True→False (InsufficientPods) by kube-controller-manager",
        ),
        (
            "kubectl",
            old,
            json!({"spec": {"minAvailable": "50%"}}),
            "~ poddisruptionbudgets.policy shop/web min available 2→50% by kubectl",
        ),
    ];
    Table::new("policy/PodDisruptionBudget", "poddisruptionbudgets.policy shop/web", rows)
}

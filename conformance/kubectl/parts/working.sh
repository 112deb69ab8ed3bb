# Common commands other than reads: edits, rollouts, waits, differences, objects made from arguments.

echo "## edit, diff, replace"
with_editor() { # with_editor SED-SCRIPT COMMAND…
  printf '#!/bin/sh\nsed -i '"'%s'"' "$1"\n' "$1" >"$work/editor"
  chmod +x "$work/editor"
  KUBE_EDITOR=$work/editor k "${@:2}"
}
different() { # different COMMAND…: succeeds if kubectl diff reports differences
  k "$@"
  [ $? -eq 1 ]
}
sorted_b() { printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sorted-b","labels":{"set":"sorted"}},"data":{"order":"%s"}}' "$1"; }
expect 'edit' 'configmap/sorted-a edited' with_editor 's/order: .*/order: "7"/' edit configmap sorted-a
expect 'the edit took effect, and nothing else' '\{"more":"x","order":"7"\}' k get configmap sorted-a -o 'jsonpath={.data}'
expect 'an edit that changes nothing' '.*Edit cancelled.*' with_editor 's/nothing/nothing/' edit configmap sorted-a
rejected 'an edit that is not valid' '.*' with_editor 's/name: sorted-a/name: sorted-z/' edit configmap sorted-a
expect 'diff of an equal object' '' k diff -f - <<<"$(sorted_b 1)"
expect 'diff of a different object' '.*-  order: "1".*\+  order: "3".*' different diff -f - <<<"$(sorted_b 3)"
expect 'diff changed nothing' '1' k get configmap sorted-b -o 'jsonpath={.data.order}'
expect 'replace --force' '.*configmap "sorted-b" deleted.*configmap/sorted-b replaced' k replace --force -f - <<<"$(sorted_b 4)"
expect 'apply a list' '.*configmap/listed created.*secret/listed created' k apply -f - <<'END'
{"apiVersion":"v1","kind":"List","items":[
 {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"listed","labels":{"set":"pruned"}}},
 {"apiVersion":"v1","kind":"Secret","metadata":{"name":"listed","labels":{"set":"pruned"}}}]}
END
expect 'apply --prune' '.*configmap/listed unchanged.*secret/listed pruned.*' k apply --prune -l set=pruned --prune-allowlist=core/v1/ConfigMap --prune-allowlist=core/v1/Secret -f - \
  <<<'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"listed","labels":{"set":"pruned"}}}'
mkdir -p "$work/kustomized"
printf 'resources: [map.yaml]\nnamePrefix: pre-\n' >"$work/kustomized/kustomization.yaml"
printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fixed"}}\n' >"$work/kustomized/map.yaml"
expect 'apply -k' 'configmap/pre-fixed created' k apply -k "$work/kustomized"
expect 'delete -k' 'configmap "pre-fixed" deleted.*' k delete -k "$work/kustomized"

echo "## deployments without their controller"
expect 'set an image' 'deployment.apps/web image updated' k set image deployment/web c=other
expect 'set an environment' 'deployment.apps/web env updated' k set env deployment/web KEY=value
expect 'set resources' 'deployment.apps/web resource requirements updated' k set resources deployment/web --limits=cpu=1
expect 'image, environment and resources are in the template' 'other KEY 1' k get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].name} {.spec.template.spec.containers[0].resources.limits.cpu}'
expect 'each change raised the generation' '4' k get deployment web -o 'jsonpath={.metadata.generation}'
expect 'rollout restart' 'deployment.apps/web restarted' k rollout restart deployment/web
expect 'the restart is an annotation of the template' '20.*' k get deployment web -o 'jsonpath={.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}'
expect 'rollout pause' 'deployment.apps/web paused' k rollout pause deployment/web
expect 'rollout resume' 'deployment.apps/web resumed' k rollout resume deployment/web
rolled_out() {
  { sleep 0.5
    k patch deployment web --subresource=status --type=merge -p '{"status":{"observedGeneration":7,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}}' >/dev/null; } &
  k rollout status deployment/web --timeout=20s
}
expect 'rollout status' '.*deployment "web" successfully rolled out' rolled_out
expect 'the table shows the finished rollout' 'web +2/2 +2 +2 +[0-9]+s' k get deployment web --no-headers

echo "## wait"
wait_for_creation() {
  { sleep 0.5; manifest awaited 1 | k create -f - >/dev/null; } &
  k wait --for=create configmap/awaited --timeout=20s
}
if since 31; then
  expect 'wait for a creation' 'configmap/awaited condition met' wait_for_creation
else
  expect 'create the awaited object' 'configmap/awaited created' create awaited 1
fi
expect 'wait for a condition' 'pod/p condition met' k wait pod/p --for=condition=Ready --timeout=20s
rejected 'wait until the timeout' '.*timed out waiting for the condition.*' k wait pod/p --for=condition=Never --timeout=1s
rejected 'wait for a missing object' '.*NotFound.*' k wait pod/nothing --for=condition=Ready --timeout=1s
expect 'delete the awaited object, in the background' 'configmap "awaited" deleted.*' k delete configmap awaited --cascade=background
k delete configmap listed >/dev/null

echo "## authorization"
expect 'auth can-i' 'yes' k auth can-i delete pods
expect 'auth can-i, of a subresource' 'yes' k auth can-i patch deployments --subresource=status
expect 'auth can-i --list' '.*\*\.\* +\[\] +\[\] +\[\*\].*' k auth can-i --list
expect 'auth whoami' '.*Username +[a-z:-]+.*Groups +\[system:masters system:authenticated\]' k auth whoami
expect 'cluster-info' '.*control plane.*is running at.*' k cluster-info

$protobuf || return 0
echo "## objects made from arguments"
made() { # made NAME COMMAND…: creates it and finds it
  expect "create ${*:2:2}" "$1 created" k create "${@:2}"
  expect "$1 exists" "$1" k get "$1" -o name
}
# Removes the objects of an earlier, killed run.
k delete clusterrole,clusterrolebinding,priorityclass kubectl-conformance --ignore-not-found >/dev/null 2>&1
k delete cronjobs,jobs,quota,pdb,ingress,roles,rolebindings,serviceaccounts,hpa --all --wait=false >/dev/null 2>&1
made job.batch/made job made --image=nothing -- run it
made cronjob.batch/made cronjob made --image=nothing '--schedule=*/5 * * * *'
made deployment.apps/made deployment made --image=nothing --replicas=3 --port=80
made service/made service clusterip made --tcp=80:8080
made service/exported service externalname exported --external-name=example.com
made serviceaccount/made serviceaccount made
made role.rbac.authorization.k8s.io/made role made --verb=get,list --resource=pods,deployments.apps
made rolebinding.rbac.authorization.k8s.io/made rolebinding made --role=made --serviceaccount="$namespace:made"
made clusterrole.rbac.authorization.k8s.io/kubectl-conformance clusterrole kubectl-conformance --verb=get --non-resource-url=/healthz
made clusterrolebinding.rbac.authorization.k8s.io/kubectl-conformance clusterrolebinding kubectl-conformance --clusterrole=kubectl-conformance --user=somebody
made resourcequota/made quota made --hard=configmaps=500,requests.cpu=10
made poddisruptionbudget.policy/made poddisruptionbudget made --selector=app=made --min-available=50%
made priorityclass.scheduling.k8s.io/kubectl-conformance priorityclass kubectl-conformance --value=7 --description=none
made ingress.networking.k8s.io/made ingress made --rule=example.com/path=made:80
made configmap/made configmap made --from-literal=a=b
made secret/made secret generic made --from-literal=a=b
made secret/registry secret docker-registry registry --docker-server=example.com --docker-username=u --docker-password=p
expect 'the fields of a cron job' '\*/5 \* \* \* \* nothing OnFailure' k get cronjob made -o 'jsonpath={.spec.schedule} {.spec.jobTemplate.spec.template.spec.containers[0].image} {.spec.jobTemplate.spec.template.spec.restartPolicy}'
expect 'the fields of a quota' '500 10' k get quota made -o 'jsonpath={.spec.hard.configmaps} {.spec.hard.requests\.cpu}'
expect 'the fields of a budget' '50% made' k get pdb made -o 'jsonpath={.spec.minAvailable} {.spec.selector.matchLabels.app}'
expect 'the fields of an ingress' 'example.com /path Exact made 80' k get ingress made -o 'jsonpath={.spec.rules[0].host} {.spec.rules[0].http.paths[0].path} {.spec.rules[0].http.paths[0].pathType} {.spec.rules[0].http.paths[0].backend.service.name} {.spec.rules[0].http.paths[0].backend.service.port.number}'
expect 'a table of an ingress' 'made +<none> +example.com +80 +[0-9]+s' k get ingress made --no-headers
expect 'a table of a budget' 'made +50% +N/A +0 +[0-9]+s' k get pdb made --no-headers
expect 'a table of a cron job' 'made +\*/5 \* \* \* \* +<none> +False +0 +<none> +[0-9]+s' k get cronjob made --no-headers
expect 'a table of a binding' 'made +Role/made +[0-9]+s +'"$namespace"'/made' k get rolebinding made --no-headers -o wide
expect 'expose' 'service/web exposed' k expose deployment web --port=80 --target-port=8080
expect 'run' 'pod/made created' k run made --image=nothing '--overrides={"spec":{"automountServiceAccountToken":false}}'
expect 'a dry run of the client' '.*"kind": "ConfigMap".*' k create configmap dry --dry-run=client -o json
expect 'delete by label, of several kinds' '.*deployment.apps "made" deleted.*' k delete deployments,services -l app=made
expect 'delete --grace-period' 'pod "made" .*deleted.*' k delete pod made --grace-period=0 --force
k delete clusterrole,clusterrolebinding,priorityclass kubectl-conformance >/dev/null 2>&1
k delete cronjobs,jobs,quota,pdb,ingress,roles,rolebindings,serviceaccounts,services,configmaps,deployments,secrets -l '!keep' --field-selector metadata.name=made --wait=false >/dev/null 2>&1
k delete service web exported --ignore-not-found >/dev/null 2>&1
k delete secret registry >/dev/null 2>&1

# Other writes: dry runs of each verb, last applied configuration and managers, subresources, nodes, folders.

echo "## dry runs on the server"
k delete configmaps -l made=dry >/dev/null 2>&1
dry() { printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{"made":"dry"}},"data":{"value":"%s"}}' "$1" "$2"; }
expect 'create -f in a dry run' 'configmap/dry created \(server dry run\)' k create --dry-run=server -f - <<<"$(dry dry 1)"
rejected 'the dry run created nothing' '.*configmaps "dry" not found.*' k get configmap dry
expect 'create after the dry runs' 'configmap/dry created' k create --save-config -f - <<<"$(dry dry 1)"
expect 'apply in a dry run' 'configmap/dry configured \(server dry run\)' k apply --dry-run=server -f - <<<"$(dry dry 2)"
expect 'replace in a dry run' 'configmap/dry replaced \(server dry run\)' k replace --dry-run=server -f - <<<"$(dry dry 3)"
expect 'patch in a dry run' '4' k patch configmap dry --dry-run=server -p '{"data":{"value":"4"}}' -o 'jsonpath={.data.value}'
expect 'label in a dry run' 'configmap/dry labeled \(server dry run\)' k label configmap dry --dry-run=server tier=dry
expect 'annotate in a dry run' 'configmap/dry annotated \(server dry run\)' k annotate configmap dry --dry-run=server note=dry
expect 'delete in a dry run' 'configmap "dry" deleted.*\(server dry run\)' k delete configmap dry --dry-run=server
expect 'the dry runs changed nothing' '1 \{"made":"dry"\}' k get configmap dry -o 'jsonpath={.data.value} {.metadata.labels}'

echo "## last applied state, and managers"
expect 'apply view-last-applied' '.*"value": "1".*' k apply view-last-applied configmap dry -o json
expect 'apply after create --save-config' 'configmap/dry configured' k apply -f - <<<"$(dry dry 5)"
expect 'view-last-applied shows the applied state' '.*"value": "5".*' k apply view-last-applied configmap dry -o json
dry dry 6 >"$work/dry.json"
expect 'apply set-last-applied' 'configmap/dry configured' k apply set-last-applied -f "$work/dry.json"
expect 'set-last-applied does not change the value' '5' value dry
expect 'the manager of an apply by the client' 'kubectl-client-side-apply|.*kubectl-client-side-apply.*' k get configmap dry --show-managed-fields -o 'jsonpath={.metadata.managedFields[*].manager}'
# From here on, the server applies the fields that the client applied before, without a conflict.
expect 'from apply by the client to apply by the server' '(.*[[:space:]])?configmap/dry serverside-applied' k apply --server-side -f - <<<"$(dry dry 5)"
expect 'apply a change on the server' 'configmap/dry serverside-applied' k apply --server-side -f - <<<"$(dry dry 7)"
expect 'the change applied on the server took effect' '7' value dry
expect 'kubectl manages fields only by Apply' 'Apply' k get configmap dry --show-managed-fields -o 'jsonpath={.metadata.managedFields[?(@.manager=="kubectl")].operation}'
expect 'apply on the server without a field' 'configmap/dry serverside-applied' k apply --server-side -f - <<<'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry","labels":{"made":"dry"}}}'
expect 'the absent field was removed' '' value dry
yaml='apiVersion: v1
kind: ConfigMap
metadata:
  name: dry
  labels: {made: dry}
data:
  text: |
    two
    lines
'
expect 'apply YAML on the server' 'configmap/dry serverside-applied' k apply --server-side --force-conflicts -f - <<<"$yaml"
expect 'the lines of the YAML text' 'two.lines' k get configmap dry -o 'jsonpath={.data.text}'
rejected 'apply on the server with an unknown field' '.*field not declared in schema.*|.*unknown field.*' k apply --server-side -f - <<<'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dry"},"dat":{"a":"b"}}'

echo "## several objects in one command"
mkdir -p "$work/many/deeper"
dry many-a 1 >"$work/many/a.json"
dry many-b 1 >"$work/many/deeper/b.json"
expect 'apply a folder with its subfolders' 'configmap/many-a created.configmap/many-b created' k apply -R -f "$work/many"
expect 'label all of a selection' '(configmap/(dry|many-[ab]) labeled.?){3}' k label configmaps -l made=dry batch=one
expect 'annotate all of a selection' '(configmap/(dry|many-[ab]) annotated.?){3}' k annotate configmaps -l batch=one note=text
expect 'list annotations' '(.*[[:space:]])?note=text([[:space:]].*)?' k annotate configmap many-b --list
expect 'list labels' '.*batch=one.*' k label configmap many-b --list
rejected 'a label by an old version' '.*Conflict.*|.*has been modified.*' k label configmap many-b --resource-version=1 batch=two --overwrite
expect 'get by label and field' 'configmap/many-b' k get configmaps -l batch=one --field-selector metadata.name!=dry,metadata.name!=many-a -o name
expect 'get across namespaces by label' "$namespace +many-a +1 +[0-9]+s" k get configmaps -A -l batch=one --field-selector metadata.name=many-a --no-headers
expect 'get in pages of two' '(configmap/(dry|many-[ab]).?){3}' k get configmaps -l batch=one --chunk-size=2 -o name
expect 'delete by a file' '.*configmap "many-a" deleted.*configmap "many-b" deleted.*' k delete -R -f "$work/many"
expect 'delete by label and field' 'configmap "dry" deleted.*' k delete configmaps -l batch=one --field-selector metadata.name=dry

echo "## subresources"
k delete deployment parts --ignore-not-found >/dev/null 2>&1
parts='{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"parts"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"parts"}},"template":{"metadata":{"labels":{"app":"parts"}},"spec":{"containers":[{"name":"c","image":"nothing"}]}}}}'
expect 'create a deployment with subresources' 'deployment.apps/parts created' k create -f - <<<"$parts"
expect 'patch the status' 'deployment.apps/parts patched' k patch deployment parts --subresource=status --type=merge -p '{"status":{"replicas":1,"observedGeneration":1}}'
expect 'get the status' '1 2' k get deployment parts --subresource=status -o 'jsonpath={.status.replicas} {.spec.replicas}'
expect 'get the scale, as a table' $'NAME +DESIRED +AVAILABLE +AGE\nparts +2 +1 +[0-9]+s' k get deployment parts --subresource=scale
if since 32; then
  expect 'apply the status on the server' 'deployment.apps/parts serverside-applied' k apply --server-side --subresource=status --force-conflicts -f - <<<'{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"parts"},"status":{"replicas":2}}'
  expect 'only the status is applied' '2 1' k get deployment parts -o 'jsonpath={.status.replicas} {.metadata.generation}'
fi
with_status() { k get deployment parts -o json | sed 's/"observedGeneration": 1/"observedGeneration": 9/'; }
expect 'replace the status' 'deployment.apps/parts replaced' k replace --subresource=status -f - <<<"$(with_status)"
expect 'the status was replaced' '9' k get deployment parts -o 'jsonpath={.status.observedGeneration}'
expect 'edit the status' 'deployment.apps/parts edited' with_editor 's/observedGeneration: 9/observedGeneration: 1/' edit deployment parts --subresource=status
unfinished() { k rollout status deployment/parts --watch=false; }
expect 'rollout status of an unfinished rollout' '.*[Ww]aiting for deployment "parts" rollout to finish.*' unfinished
rejected 'rollout status until the timeout' '.*' k rollout status deployment/parts --timeout=1s
expect 'scale in a dry run' 'deployment.apps/parts scaled \(server dry run\)' k scale deployment parts --replicas=7 --dry-run=server
expect 'scale several' '.*deployment.apps/parts scaled.*' k scale deployment parts --replicas=3 --resource-version="$(k get deployment parts -o 'jsonpath={.metadata.resourceVersion}')"
rejected 'scale an old version' '.*Expected resource version to be 1, was [0-9]+.*' k scale deployment parts --replicas=4 --resource-version=1
expect 'set a service account' 'deployment.apps/parts serviceaccount updated' k set serviceaccount deployment parts made
expect 'delete the deployment' 'deployment.apps "parts" deleted.*' k delete deployment parts

echo "## nodes"
k delete node kubectl-parts --ignore-not-found >/dev/null 2>&1
expect 'create a node' 'node/kubectl-parts created' k create -f - <<<'{"apiVersion":"v1","kind":"Node","metadata":{"name":"kubectl-parts"}}'
expect 'cordon' 'node/kubectl-parts cordoned' k cordon kubectl-parts
expect 'nodes by a field' 'node/kubectl-parts' k get nodes --field-selector spec.unschedulable=true,metadata.name=kubectl-parts -o name
expect 'uncordon' 'node/kubectl-parts uncordoned' k uncordon kubectl-parts
expect 'taint' 'node/kubectl-parts tainted' k taint node kubectl-parts key=value:NoSchedule
expect 'the taint exists' 'value' k get node kubectl-parts -o 'jsonpath={.spec.taints[?(@.key=="key")].value}'
expect 'remove the taint' 'node/kubectl-parts untainted' k taint node kubectl-parts key-
expect 'drain a node without pods' '.*node/kubectl-parts drained' k drain kubectl-parts --ignore-daemonsets
expect 'delete the node' 'node "kubectl-parts" deleted.*' k delete node kubectl-parts

echo "## watch with selectors"
"$kubectl" --namespace "$namespace" get configmaps -l watch=less --watch-only -o name >"$work/less" 2>&1 &
less_watcher=$!
sleep 1
less_has() { [ "$(grep -c "$2" "$work/less")" -eq "$1" ]; }
expect 'create a watched object' 'configmap/less created' k create -f - <<<'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"less","labels":{"watch":"less"}}}'
expect 'create an object that is not watched' 'configmap/other-one created' k create -f - <<<'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other-one","labels":{"watch":"more"}}}'
eventually 'a watch by label delivers the watched object' less_has 1 '^configmap/less$'
expect 'the watch has no other object' '0' bash -c "grep -c other-one '$work/less' || true"
kill "$less_watcher" 2>/dev/null
wait "$less_watcher" 2>/dev/null
expect 'delete both' '.*configmap "less" deleted.*configmap "other-one" deleted.*' k delete configmap less other-one

echo "## server-side apply"
k delete configmap applied --ignore-not-found >/dev/null 2>&1
applied() { printf '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":%s}' "$1"; }
ssa() { applied "$1" | k apply --server-side -f - "${@:2}"; }
expect 'apply in a dry run' 'configmap/applied serverside-applied \(server dry run\)' ssa '{"a":"1"}' --dry-run=server
rejected 'a dry run stores nothing' '.*configmaps "applied" not found.*' k get configmap applied
expect 'apply on the server' 'configmap/applied serverside-applied' ssa '{"a":"1","b":"1"}'
rejected 'apply a field of another manager' '.*Apply failed with 1 conflict: conflict with "kubectl": \.data\.a.*' ssa '{"a":"2"}' --field-manager=other
expect 'take over a field of another manager' 'configmap/applied serverside-applied' ssa '{"a":"2"}' --field-manager=other --force-conflicts
expect 'a second manager' 'configmap/applied serverside-applied' ssa '{"c":"3"}' --field-manager=third
expect 'the fields of all managers exist' '2 1 3' k get configmap applied -o 'jsonpath={.data.a} {.data.b} {.data.c}'
expect 'show the managers' '(kubectl|other|third)( (kubectl|other|third)){2}' k get configmap applied --show-managed-fields -o 'jsonpath={.metadata.managedFields[*].manager}'
rejected 'diff on the server' '.*-  b: "1".*\+  b: "5".*' bash -c "printf '%s' '$(applied '{"b":"5"}')' | '$kubectl' --namespace '$namespace' diff --server-side -f -"
expect 'apply without some of the fields' 'configmap/applied serverside-applied' ssa '{"d":"4"}'
expect 'a field that is no longer applied is removed' '2  3 4' k get configmap applied -o 'jsonpath={.data.a} {.data.b} {.data.c} {.data.d}'
expect 'delete the applied object' 'configmap "applied" deleted.*' k delete configmap applied

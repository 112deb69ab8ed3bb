# Output of kubectl about kinds and fields: resources, explanations, validation before and during writes.

echo "## resources and their fields"
expect 'api-resources: names and kinds' '.*deployments +deploy +apps/v1 +true +Deployment.*' k api-resources
expect 'api-resources by group' '(.*[[:space:]])?deployments .*statefulsets .*' k api-resources --api-group=apps
expect 'api-resources by category' '(.*[[:space:]])?pods .*' k api-resources --categories=all --no-headers
expect 'api-resources with verbs and categories' '.*configmaps +cm +v1 +true +ConfigMap +create,delete,deletecollection,get,list,patch,update,watch .*' k api-resources -o wide
expect 'api-resources: cluster-scoped ones' '.*namespaces.nodes.*' k api-resources --namespaced=false -o name
expect 'explain a kind' 'KIND: +ConfigMap.VERSION: +v1.*FIELDS:.*binaryData.<map\[string\]string>.*data.<map\[string\]string>.*immutable.<boolean>.*metadata.<ObjectMeta>.*' k explain configmap
expect 'explain by short name' 'GROUP: +apps.KIND: +Deployment.VERSION: +v1.*spec.<DeploymentSpec>.*status.<DeploymentStatus>.*' k explain deploy
expect 'explain a field' 'KIND: +Pod.VERSION: +v1..FIELD: ports <\[\]ContainerPort>.*containerPort.<integer> -required-.*hostIP.<string>.*protocol.<string>.  enum: SCTP, TCP, UDP.*' k explain pod.spec.containers.ports
expect 'explain a field of a group' 'GROUP: +batch.*FIELD: secret <SecretVolumeSource>.*defaultMode.<integer>.*items.<\[\]KeyToPath>.*optional.<boolean>.*secretName.<string>.*' k explain cronjob.spec.jobTemplate.spec.template.spec.volumes.secret
expect 'explain --recursive' '.*FIELD: strategy <DeploymentStrategy>.*rollingUpdate.<RollingUpdateDeployment>.    maxSurge.<IntOrString>.    maxUnavailable.<IntOrString>.  type.<string>.  enum: Recreate, RollingUpdate.*' k explain deployment.spec.strategy --recursive
expect 'explain --api-version' 'GROUP: +events.k8s.io.KIND: +Event.*eventTime.<.*regarding.<ObjectReference>.*series.<EventSeries>.*' k explain events --api-version=events.k8s.io/v1
rejected 'explain an unknown field' '.*field "nope" does not exist.*' k explain pod.spec.nope
rejected 'explain an unknown kind' '.*the server doesn.t have a resource type "nothings".*' k explain nothings

echo "## resources and fields of definitions"
gadgets=gadgets.kubectl.conformance.example.com
gadget() { printf '{"apiVersion":"kubectl.conformance.example.com/v1","kind":"Gadget","metadata":{"name":"%s"},"spec":%s}' "$1" "$2"; }
# The condition is set while kubectl waits.
custom_condition() {
  { sleep 0.5; k patch gadget one --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Done","status":"True"}]}}' >/dev/null; } &
  k wait gadget/one --for=condition=Done --timeout=20s
}
k delete crd $gadgets --ignore-not-found >/dev/null 2>&1
expect 'create a custom resource definition' "customresourcedefinition.apiextensions.k8s.io/$gadgets created" k create -f - <<'END'
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "gadgets.kubectl.conformance.example.com"},
 "spec": {
  "group": "kubectl.conformance.example.com", "scope": "Namespaced",
  "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList", "shortNames": ["gd"], "categories": ["toys"]},
  "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
   "schema": {"openAPIV3Schema": {"type": "object", "description": "A thing to play with.", "properties": {
    "spec": {"type": "object", "required": ["size"], "properties": {
     "size": {"type": "integer", "description": "How large it is."}, "mode": {"type": "string", "enum": ["fast", "slow"]}}},
    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}
END
expect 'wait until the custom resource is served' "customresourcedefinition.apiextensions.k8s.io/$gadgets condition met" k wait --for=condition=Established crd/$gadgets --timeout=20s
expect 'definitions in a table' $'NAME +SCOPE +VERSIONS +CREATED AT\n'"$gadgets"' +Namespaced +v1\(storage\) +20[0-9T:Z-]+' k get crd $gadgets
# The documents of a real server follow its definitions with a delay.
eventually 'the fields of the custom resource are known' k explain gadget.spec.size
expect 'explain a custom resource' 'GROUP: +kubectl.conformance.example.com.KIND: +Gadget.*A thing to play with.*spec.<Object>.*' k explain gadget
expect 'explain the fields of a custom resource' '.*FIELD: spec <Object>.*mode.<string>.  enum: fast, slow.*size.<integer> -required-.*How large it is.*' k explain gd.spec
expect 'explain a custom resource --recursive' '.*FIELDS:.*spec.<Object>.    mode.<string>.    enum: fast, slow.    size.<integer> -required-.  status.<Object>.*' k explain gadget --recursive
rejected 'explain a missing field' '.*field "nope" does not exist.*' k explain gadget.spec.nope
expect 'create one' 'gadget.kubectl.conformance.example.com/one created' k create -f - <<<"$(gadget one '{"size":1}')"
expect 'describe one' 'Name: +one.*API Version: +kubectl.conformance.example.com/v1.Kind: +Gadget.*Size: +1.*' k describe gadget one
expect 'get a custom resource by its category' '(.*[[:space:]])?gadget.kubectl.conformance.example.com/one.*' k get toys -o name
expect 'apply another' 'gadget.kubectl.conformance.example.com/two created' k apply -f - <<<"$(gadget two '{"size":2}')"
expect 'apply a change' 'gadget.kubectl.conformance.example.com/two configured' k apply -f - <<<"$(gadget two '{"size":3}')"
expect 'a table of custom resources' $'NAME +AGE\none +[0-9]+s\ntwo +[0-9]+s' k get gadgets
expect 'a condition is met' 'gadget.kubectl.conformance.example.com/one condition met' custom_condition
expect 'delete the custom resource definition' "customresourcedefinition.*$gadgets\" deleted.*" k delete crd $gadgets
rejected 'they are deleted' '.*the server (doesn.t have a resource type "gadgets"|could not find the requested resource).*' k get gadgets

echo "## fields that do not exist"
misspelt='{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"misspelt","labls":{}},"dat":{"a":"b"}}'
rejected 'create with an unknown field' '.*ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dat", unknown field "metadata.labls".*' k create -f - <<<"$misspelt"
rejected 'apply with an unknown field' '.*strict decoding error: unknown field "dat", unknown field "metadata.labls".*' k apply -f - <<<"$misspelt"
expect 'create with a warning' '.*Warning: unknown field "dat".*configmap/misspelt created.*|.*configmap/misspelt created.*Warning: unknown field "dat".*' k create --validate=warn -f - <<<"$misspelt"
expect 'the unknown field is not stored' '' k get configmap misspelt -o 'jsonpath={.dat}'
expect 'delete the object with the misspelt field' 'configmap "misspelt" deleted.*' k delete configmap misspelt

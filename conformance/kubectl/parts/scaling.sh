echo "## scale"
k delete deployment scaled --ignore-not-found >/dev/null 2>&1
expect 'create a deployment' 'deployment.apps/scaled created' k create -f - <<<'{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"scaled"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"scaled"}},"template":{"metadata":{"labels":{"app":"scaled"}},"spec":{"containers":[{"name":"c","image":"nothing"}]}}}}'
expect 'scale' 'deployment.apps/scaled scaled' k scale deployment scaled --replicas=3
expect 'the deployment has the scaled replicas' '3' k get deployment scaled -o 'jsonpath={.spec.replicas}'
expect 'scale with --current-replicas' 'deployment.apps/scaled scaled' k scale deployment scaled --current-replicas=3 --replicas=0
rejected 'scale with wrong current replicas' '.*Expected replicas to be 5, was 0.*' k scale deployment scaled --current-replicas=5 --replicas=1
expect 'the scale subresource' '.*kind: Scale.*selector: app=scaled.*' k get deployment scaled --subresource=scale -o yaml
expect 'patch the scale' '(deployment.apps|scale.autoscaling)/scaled patched' k patch deployment scaled --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'
expect 'the deployment has the patched replicas' '2' k get deployment scaled -o 'jsonpath={.spec.replicas}'
nothing_to_scale='.*NotFound.*deployments.apps "four" not found.*'
since 37 || nothing_to_scale='error: no objects passed to scale.*'
rejected 'scale a missing object' "$nothing_to_scale" k scale deployment four --replicas=1
expect 'delete the deployment' 'deployment.apps "scaled" deleted.*' k delete deployment scaled

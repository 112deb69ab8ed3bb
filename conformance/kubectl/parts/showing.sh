# Output of kubectl for objects: tables with the columns of their kinds, other formats, descriptions, events.

object() { k create -f - >/dev/null <<<"$1" || return; }
columns() { # columns COMMAND…: the line with the names of the columns, single-spaced
  k "$@" | sed -n '1{s/  */ /g;s/ $//;p}'
}

node_columns() {
  object '{"apiVersion":"v1","kind":"Node","metadata":{"name":"kubectl-conformance"}}' && columns get nodes -o wide
  k delete node kubectl-conformance >/dev/null 2>&1
}

echo "## tables"
k delete deployments,services,jobs,events --all --wait=false >/dev/null 2>&1
object '{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"nothing"}]}}}}'
object '{"apiVersion":"v1","kind":"Service","metadata":{"name":"front"},"spec":{"type":"ExternalName","externalName":"example.com","ports":[{"name":"a","port":80}],"selector":{"app":"web"}}}'
object '{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"work"},"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"nothing"}]}}}}'
object '{"apiVersion":"v1","kind":"Secret","metadata":{"name":"typed"},"type":"example.com/t","data":{"a":"YQ==","b":"Yg=="}}'
object '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sorted-a","labels":{"set":"sorted"}},"data":{"order":"2","more":"x"}}'
object '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sorted-b","labels":{"set":"sorted"}},"data":{"order":"1"}}'
expect 'config maps' $'NAME +DATA +AGE\nsorted-a +2 +[0-9]+s\nsorted-b +1 +[0-9]+s' k get configmaps -l set=sorted
expect 'secrets' $'NAME +TYPE +DATA +AGE\ntyped +example.com/t +2 +[0-9]+s' k get secret typed
expect 'pods' $'NAME +READY +STATUS +RESTARTS +AGE\np +0/1 +Running +0 +[0-9]+s' k get pod p
expect 'pods, wide' 'NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES' columns get pod p -o wide
expect 'deployments' $'NAME +READY +UP-TO-DATE +AVAILABLE +AGE\nweb +0/2 +0 +0 +[0-9]+s' k get deployment web
expect 'deployments, wide' $'NAME .*SELECTOR\nweb +0/2 +0 +0 +[0-9]+s +c +nothing +app=web' k get deployment web -o wide
expect 'services' $'NAME +TYPE +CLUSTER-IP +EXTERNAL-IP +PORT\(S\) +AGE\nfront +ExternalName +<none> +example.com +80/TCP +[0-9]+s' k get service front
expect 'jobs' $'NAME +STATUS +COMPLETIONS +DURATION +AGE\nwork +(Running|Suspended) +0/1 +[0-9]+s' k get job work
expect 'namespaces' $'NAME +STATUS +AGE\n'"$namespace"' +Active +[0-9smhd]+' k get namespace "$namespace"
expect 'all kinds of "all"' '.*pod/p +0/1.*service/front +ExternalName.*deployment.apps/web +0/2.*job.batch/work .*' k get all
expect 'no headers' 'typed +example.com/t +2 +[0-9]+s' k get secret typed --no-headers
expect 'the names of a wide table of nodes' 'NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME' node_columns
expect 'labels as columns' $'NAME +DATA +AGE +SET\nsorted-a +2 +[0-9]+s +sorted' k get configmap sorted-a -L set
expect 'labels at the end' $'NAME +DATA +AGE +LABELS\nsorted-a +2 +[0-9]+s +set=sorted' k get configmap sorted-a --show-labels
expect 'sorted by a field' $'NAME +DATA +AGE\nsorted-b .*\nsorted-a .*' k get configmaps -l set=sorted --sort-by=.data.order
expect 'columns of the user'\''s own' $'NAME +ORDER +NONE\nsorted-a +2 +<none>\nsorted-b +1 +<none>' k get configmaps -l set=sorted -o 'custom-columns=NAME:.metadata.name,ORDER:.data.order,NONE:.data.none'
expect 'a template' '2 1 ' k get configmaps -l set=sorted -o 'go-template={{range .items}}{{.data.order}} {{end}}'
expect 'jsonpath over a list' 'sorted-a=2 sorted-b=1 ' k get configmaps -l set=sorted -o 'jsonpath={range .items[*]}{.metadata.name}={.data.order} {end}'
expect 'get --raw' '.*"kind":"ConfigMap".*' k get --raw "/api/v1/namespaces/$namespace/configmaps/sorted-a"
rejected 'get --raw of a missing object' '.*NotFound.*' k get --raw "/api/v1/namespaces/$namespace/configmaps/nothing"

echo "## watching tables"
"$kubectl" --namespace "$namespace" get pods -w >"$work/table" 2>&1 &
table_watcher=$!
table_has() { [ "$(grep -Ec -- "$2" "$work/table")" -eq "$1" ]; }
eventually 'a watch starts with a table' table_has 1 '^p +0/1 +Running +0 '
expect 'a pod runs' 'pod/p patched' k patch pod p --subresource=status --type=merge -p '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"p","ready":true,"restartCount":2,"image":"i","imageID":"","state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}},"lastState":{}}]}}'
eventually 'a watch continues with rows' table_has 1 '^p +1/1 +Running +2 '
kill "$table_watcher" 2>/dev/null
wait "$table_watcher" 2>/dev/null
expect 'the watched table has one header' '1' grep -c '^NAME' "$work/table"

echo "## describe"
event() { # event NAME KIND OBJECT UID REASON
  object '{"apiVersion":"v1","kind":"Event","metadata":{"name":"'"$1"'"},"involvedObject":{"apiVersion":"v1","kind":"'"$2"'","namespace":"'"$namespace"'","name":"'"$3"'","uid":"'"$4"'"},"type":"Normal","reason":"'"$5"'","message":"told by hand","source":{"component":"conformance"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:00Z","count":3}'
}
event p.1 Pod p "$(k get pod p -o 'jsonpath={.metadata.uid}')" Noticed
event other.1 Pod other "" Elsewhere
expect 'a pod, with its events' 'Name: +p.*Namespace: +'"$namespace"'.*Status: +Running.*Events:.*Normal +Noticed +.* conformance +told by hand' k describe pod p
expect 'events of one object' $'LAST SEEN +TYPE +REASON +OBJECT +MESSAGE\n[0-9dhm]+( \(.*)? +Normal +Noticed +Pod/p +told by hand' k events --for pod/p
expect 'events in a table' $'LAST SEEN +TYPE +REASON +OBJECT +MESSAGE\n.* +Normal +Noticed +pod/p +told by hand' k get events --field-selector involvedObject.name=p
expect 'all events' '.*Elsewhere.*Noticed.*' k get events --sort-by=.metadata.name
expect 'a config map' 'Name: +sorted-b.*Data.*order:.*1.*' k describe configmap sorted-b
expect 'a secret, without its content' 'Name: +typed.*Type: +example.com/t.*a: +1 bytes.*' k describe secret typed
expect 'a namespace' 'Name: +'"$namespace"'.*Status: +Active.*No resource quota.*' k describe namespace "$namespace"
expect 'a deployment' 'Name: +web.*Selector: +app=web.*Replicas: +2 desired.*Image: +nothing.*' k describe deployment web
expect 'a service' 'Name: +front.*Selector: +app=web.*Type: +ExternalName.*External Name: +example.com.*' k describe service front
expect 'a job' 'Name: +work.*Completions: .*Image: +nothing.*' k describe job work
expect 'several by a label' '.*Name: +sorted-a.*Name: +sorted-b.*' k describe configmaps -l set=sorted
rejected 'describe a missing object' '.*NotFound.*' k describe pod nothing

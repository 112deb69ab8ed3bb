package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Number of namespaces of the pods.
const namespaces = 50

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cluster generates the pods of a cluster, deployment by deployment.
type cluster struct {
	source
	// Deployment of the next pods, and the number of its missing pods.
	deployment deployment
	missing    int
	// Number of deployments and pods so far, and number of pods in each namespace.
	deployments, pods int
	held              [namespaces]int
}

// deployment contains the common properties of its pods: one ReplicaSet, one namespace, one template.
type deployment struct {
	app, hash, namespace string
	owner                types.UID
	labels, annotations  map[string]string
	spec                 corev1.PodSpec
	images               []string
}

func newCluster(seed uint64) *cluster { return &cluster{source: newSource(seed)} }

// nextDeployment creates a deployment of 3 to 50 pods, 19 on average, in the smallest namespace, so that namespaces
// have similar sizes.
func (c *cluster) nextDeployment() {
	c.missing = 3 + min(c.IntN(48), c.IntN(48))
	emptiest := 0
	for number, held := range c.held {
		if held < c.held[emptiest] {
			emptiest = number
		}
	}
	c.held[emptiest] += c.missing
	app, hash := fmt.Sprintf("service-%d", c.deployments), c.word(10)
	c.deployments++
	c.deployment = deployment{
		app: app, hash: hash, namespace: fmt.Sprintf("team-%d", emptiest), owner: types.UID(c.uid()),
		labels: map[string]string{
			"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/instance": app + "-production",
			"app.kubernetes.io/part-of": "shop", "pod-template-hash": hash, "tier": []string{"web", "api", "jobs"}[c.IntN(3)],
		},
		annotations: map[string]string{
			"bench.steadfast.dev/sent":             sentMark,
			"prometheus.io/scrape":                 "true",
			"prometheus.io/port":                   "9102",
			"kubectl.kubernetes.io/restartedAt":    c.created().Format(time.RFC3339),
			"checksum/config":                      c.hex(64),
			"kubernetes.io/limit-ranger":           "LimitRanger plugin set: cpu, memory request for container sidecar",
			"sidecar.istio.io/inject":              "true",
			"cluster-autoscaler.kubernetes.io/foo": "false",
		},
		spec: c.spec(app),
	}
	for range c.deployment.spec.Containers {
		c.deployment.images = append(c.deployment.images, "sha256:"+c.hex(64))
	}
}

// created returns the creation time of the next pod.
func (c *cluster) created() metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(c.pods) * time.Second))
}

// next returns the next pod: about 8 KB of JSON, a third of which is managedFields, as in real clusters.
func (c *cluster) next() *corev1.Pod {
	if c.missing == 0 {
		c.nextDeployment()
	}
	of, created, truth := &c.deployment, c.created(), true
	annotations := maps.Clone(of.annotations)
	annotations["cni.projectcalico.org/containerID"] = c.hex(64)
	annotations["cni.projectcalico.org/podIP"] = c.address() + "/32"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("%s-%s-%05d", of.app, of.hash, c.pods),
			GenerateName:      fmt.Sprintf("%s-%s-", of.app, of.hash),
			Namespace:         of.namespace,
			UID:               types.UID(c.uid()),
			ResourceVersion:   versionMark,
			CreationTimestamp: created,
			Labels:            maps.Clone(of.labels),
			Annotations:       annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: of.app + "-" + of.hash, UID: of.owner,
				Controller: &truth, BlockOwnerDeletion: &truth,
			}},
		},
		Spec: *of.spec.DeepCopy(),
	}
	pod.Spec.NodeName = fmt.Sprintf("node-%d", c.IntN(500))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access-" + c.word(5), VolumeSource: serviceAccount()})
	pod.Status = c.status(of, created)
	pod.ManagedFields = managed(pod, created)
	c.missing--
	c.pods++
	return pod
}

func (s source) address() string {
	return fmt.Sprintf("10.%d.%d.%d", s.IntN(250), s.IntN(250), 1+s.IntN(250))
}

// spec returns the pod spec of a deployment's template.
func (s source) spec(app string) corev1.PodSpec {
	grace, priority, seconds, truth := int64(30), int32(0), int64(300), true
	policy := corev1.PreemptLowerPriority
	containers := []corev1.Container{s.container(app, 4), s.container("sidecar", 1)}
	return corev1.PodSpec{
		Containers:     containers,
		InitContainers: []corev1.Container{{Name: "migrate", Image: s.image(app), Command: []string{"/bin/migrate", "--up"}, ImagePullPolicy: corev1.PullIfNotPresent}},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"}}}},
			{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: app + "-tls"}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: corev1.DNSClusterFirst,
		ServiceAccountName: app, SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &truth},
		SchedulerName: "default-scheduler", Priority: &priority, PreemptionPolicy: &policy, EnableServiceLinks: &truth,
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
		},
	}
}

// serviceAccount returns the volume that the server adds to each pod, with a generated name.
func serviceAccount() corev1.VolumeSource {
	expiry := int64(3607)
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expiry, Path: "token"}},
	}}}
}

func (s source) image(name string) string {
	return fmt.Sprintf("images.example.com/shop/%s:v1.%d.%d", name, s.IntN(40), s.IntN(40))
}

func (s source) container(name string, variables int) corev1.Container {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
			TimeoutSeconds:   1,
			PeriodSeconds:    10,
			SuccessThreshold: 1,
			FailureThreshold: 3,
		}
	}
	container := corev1.Container{
		Name: name, Image: s.image(name), Args: []string{"--config=/etc/config/config.yaml", "--verbose=2"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		VolumeMounts:  []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config", ReadOnly: true}, {Name: "scratch", MountPath: "/tmp"}},
		LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"),
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
	}
	for number := range variables {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", number), Value: s.word(16)})
	}
	return container
}

func (s source) status(of *deployment, created metav1.Time) corev1.PodStatus {
	address, truth := s.address(), true
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: s.address(), PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		StartTime: &created, QOSClass: corev1.PodQOSBurstable,
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: created})
	}
	for number, container := range of.spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: of.images[number], ContainerID: "containerd://" + s.hex(64),
			Ready: true, Started: &truth, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
		})
	}
	return status
}

// managed returns the manager of each field, in the server's format.
func managed(pod *corev1.Pod, at metav1.Time) []metav1.ManagedFieldsEntry {
	entry := func(manager, subresource string, fields any) metav1.ManagedFieldsEntry {
		raw, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw}, Subresource: subresource,
		}
	}
	type fields = map[string]any
	leaf := fields{}
	keys := func(of map[string]string) fields {
		set := fields{".": leaf}
		for key := range of {
			set["f:"+key] = leaf
		}
		return set
	}
	probe := fields{".": leaf, "f:failureThreshold": leaf, "f:httpGet": fields{".": leaf, "f:path": leaf, "f:port": leaf, "f:scheme": leaf}, "f:periodSeconds": leaf, "f:successThreshold": leaf, "f:timeoutSeconds": leaf}
	containers := fields{}
	for _, container := range pod.Spec.Containers {
		variables := fields{".": leaf}
		for _, variable := range container.Env {
			variables[fmt.Sprintf(`k:{"name":%q}`, variable.Name)] = fields{".": leaf, "f:name": leaf, "f:value": leaf}
		}
		containers[fmt.Sprintf(`k:{"name":%q}`, container.Name)] = fields{
			".": leaf, "f:args": leaf, "f:env": variables, "f:image": leaf, "f:imagePullPolicy": leaf, "f:livenessProbe": probe, "f:name": leaf,
			"f:ports":     fields{".": leaf, `k:{"containerPort":8080,"protocol":"TCP"}`: fields{".": leaf, "f:containerPort": leaf, "f:name": leaf, "f:protocol": leaf}},
			"f:resources": fields{".": leaf, "f:limits": fields{".": leaf, "f:cpu": leaf, "f:memory": leaf}, "f:requests": fields{".": leaf, "f:cpu": leaf, "f:memory": leaf}},
		}
	}
	conditions := fields{".": leaf}
	for _, condition := range pod.Status.Conditions {
		conditions[fmt.Sprintf(`k:{"type":%q}`, condition.Type)] = fields{".": leaf, "f:lastProbeTime": leaf, "f:lastTransitionTime": leaf, "f:status": leaf, "f:type": leaf}
	}
	return []metav1.ManagedFieldsEntry{
		entry("kube-controller-manager", "", fields{
			"f:metadata": fields{"f:annotations": keys(pod.Annotations), "f:generateName": leaf, "f:labels": keys(pod.Labels), "f:ownerReferences": fields{".": leaf, fmt.Sprintf(`k:{"uid":%q}`, pod.OwnerReferences[0].UID): leaf}},
			"f:spec":     fields{"f:containers": containers, "f:dnsPolicy": leaf, "f:enableServiceLinks": leaf, "f:restartPolicy": leaf, "f:schedulerName": leaf, "f:terminationGracePeriodSeconds": leaf},
		}),
		entry("kubelet", "status", fields{
			"f:status": fields{"f:conditions": conditions, "f:containerStatuses": leaf, "f:hostIP": leaf, "f:phase": leaf, "f:podIP": leaf, "f:podIPs": fields{".": leaf, fmt.Sprintf(`k:{"ip":%q}`, pod.Status.PodIP): fields{".": leaf, "f:ip": leaf}}, "f:startTime": leaf},
		}),
	}
}

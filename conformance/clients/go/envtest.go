package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The server already runs, so envtest starts none. It only installs definitions, and waits until they are served.
func install(ctx context.Context, config *rest.Config) *envtest.Environment {
	ctrl.SetLogger(logr.Discard())
	// Objects of an earlier, killed run. Their finalizers would keep them.
	all := dynamic.NewForConfigOrDie(config).Resource(gadgets).Namespace(namespace)
	left, err := all.List(ctx, metav1.ListOptions{})
	if !apierrors.IsNotFound(err) {
		must("list remaining objects", err)
		for _, gadget := range left.Items {
			_, err := all.Patch(ctx, gadget.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			must("remove the finalizers of remaining objects", err)
		}
		must("uninstall remaining definitions", envtest.UninstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"definitions"}}))
		uninstalled(ctx, config)
	}
	there := true
	environment := &envtest.Environment{
		Config: config, UseExistingCluster: &there,
		CRDInstallOptions: envtest.CRDInstallOptions{
			Paths: []string{"definitions"}, ErrorIfPathMissing: true, MaxTime: patience, PollInterval: 20 * time.Millisecond, CleanUpAfterUse: true,
		},
	}
	_, err = environment.Start()
	succeeds("envtest starts, with definitions from a folder", err)
	installed := environment.CRDs
	holds("it found the definition", len(installed) == 1 && installed[0].Name == "gadgets."+gadgets.Group, installed)
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{"definitions/gadgets.yaml"}, MaxTime: patience})
	succeeds("InstallCRDs updates an installed definition", err)
	return environment
}

// Applies a ConfigMap and a status for each Gadget. The metadata of a Secret name the Gadget to reconcile.
type applier struct {
	client.Client
	log *eventLog
}

func (r *applier) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	gadget := &Gadget{}
	if err := r.Get(ctx, request.NamespacedName, gadget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !gadget.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(gadget, finalizer) {
			if err := r.Update(ctx, gadget); err != nil {
				return ctrl.Result{}, err
			}
			r.log.add("cleaned", gadget.Name)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(gadget, finalizer) {
		return ctrl.Result{}, r.Update(ctx, gadget)
	}
	noted := &metav1.PartialObjectMetadata{}
	noted.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := r.Get(ctx, request.NamespacedName, noted); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	child := coreac.ConfigMap(gadget.Name, gadget.Namespace).
		WithData(map[string]string{"size": fmt.Sprint(gadget.Spec.Size), "mode": gadget.Spec.Mode, "note": noted.Annotations["note"]}).
		WithOwnerReferences(metaac.OwnerReference().WithAPIVersion(gadgets.GroupVersion().String()).WithKind("Gadget").
			WithName(gadget.Name).WithUID(gadget.UID).WithController(true).WithBlockOwnerDeletion(true))
	if err := r.Apply(ctx, child, client.FieldOwner("applier"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	status := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget",
		"metadata": map[string]any{"name": gadget.Name, "namespace": gadget.Namespace},
		"status": map[string]any{"replicas": int64(*gadget.Spec.Replicas), "conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Applied", "message": "all is applied", "observedGeneration": gadget.Generation}}},
	}})
	return ctrl.Result{}, r.Status().Apply(ctx, status, client.FieldOwner("applier"), client.ForceOwnership)
}

func newManager(restConfig *rest.Config, scheme *runtime.Scheme, name string) manager.Manager {
	short, renew, retry := 4*time.Second, 2*time.Second, 200*time.Millisecond
	made, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: "0"},
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Client:                        client.Options{FieldOwner: "applier"},
		Controller:                    config.Controller{SkipNameValidation: &[]bool{true}[0]},
		LeaderElection:                true,
		LeaderElectionID:              "applier",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &short, RenewDeadline: &renew, RetryPeriod: &retry,
	})
	must("a manager, "+name, err)
	return made
}

func addController(ctx context.Context, manager manager.Manager, log *eventLog) {
	must("an index", manager.GetFieldIndexer().IndexField(ctx, &Gadget{}, ".spec.mode", func(object client.Object) []string {
		return []string{object.(*Gadget).Spec.Mode}
	}))
	byName := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
	})
	must("a controller", ctrl.NewControllerManagedBy(manager).For(&Gadget{}).Owns(&corev1.ConfigMap{}).
		WatchesMetadata(&corev1.Secret{}, byName).Complete(&applier{Client: manager.GetClient(), log: log}))
}

func tests(ctx context.Context, config *rest.Config) {
	scheme := runtime.NewScheme()
	must("a scheme", clientscheme.AddToScheme(scheme))
	must("a scheme", gadgetsBuilder.AddToScheme(scheme))
	direct, err := client.New(config, client.Options{Scheme: scheme, FieldOwner: "tester"})
	must("a client", err)
	writes(ctx, direct)

	log := &eventLog{}
	first, second := newManager(config, scheme, "first"), newManager(config, scheme, "second")
	addController(ctx, first, log)
	addController(ctx, second, log)
	run := func(manager manager.Manager) (context.CancelFunc, chan error) {
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- manager.Start(running) }()
		return stop, ended
	}
	stopFirst, firstEnded := run(first)
	select {
	case <-first.Elected():
	case err := <-firstEnded:
		fail("the first manager is elected", "it ended: %v", err)
	}
	stopSecond, secondEnded := run(second)
	holds("the second manager's cache is in sync while it waits", second.GetCache().WaitForCacheSync(ctx), nil)
	reconciles(ctx, first.GetClient(), direct, log)

	select {
	case <-second.Elected():
		fail("one manager leads at a time", "the second was elected while the first led")
	default:
		passed("one manager leads at a time")
	}
	stopFirst()
	succeeds("the first manager ends", <-firstEnded)
	must("create", direct.Create(ctx, newGadget("inherited", 1)))
	select {
	case <-second.Elected():
		passed("the second leads when the first has ended")
	case <-time.After(patience):
		fail("the second leads when the first has ended", "not met within %s", patience)
	}
	inherited := &Gadget{ObjectMeta: metav1.ObjectMeta{Name: "inherited", Namespace: namespace}}
	eventually("and reconciles", ready(ctx, second.GetClient(), inherited))
	must("delete", direct.Delete(ctx, inherited))
	eventually("and runs the finalizer", func() bool { return log.count("cleaned inherited") == 1 })
	stopSecond()
	succeeds("the second manager ends", <-secondEnded)
	must("delete", direct.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace)))
}

func newGadget(name string, size int64) *Gadget {
	return &Gadget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: GadgetSpec{Size: size}}
}

func ready(ctx context.Context, reader client.Client, gadget *Gadget) func() bool {
	return func() bool {
		return reader.Get(ctx, client.ObjectKeyFromObject(gadget), gadget) == nil &&
			meta.IsStatusConditionTrue(gadget.Status.Conditions, "Ready") && controllerutil.ContainsFinalizer(gadget, finalizer)
	}
}

// Direct writes to objects of the custom resource, without a cache.
func writes(ctx context.Context, direct client.Client) {
	gadget := newGadget("written", 2)
	must("create", direct.Create(ctx, gadget))
	equal("the result of Create has the defaults of the schema", []any{*gadget.Spec.Replicas, gadget.Spec.Mode}, []any{int32(1), "slow"})
	refused("the schema's minimum", apierrors.IsInvalid, direct.Create(ctx, newGadget("small", 0)))
	fast := newGadget("fast", 1)
	result, err := controllerutil.CreateOrUpdate(ctx, direct, fast, func() error { fast.Spec.Mode = "fast"; fast.Spec.Size = 3; return nil })
	must("CreateOrUpdate", err)
	equal("CreateOrUpdate of a gadget creates it", result, controllerutil.OperationResultCreated)
	result, err = controllerutil.CreateOrUpdate(ctx, direct, fast, func() error { fast.Spec.Mode = "fast"; fast.Spec.Size = 3; return nil })
	must("CreateOrUpdate", err)
	equal("CreateOrUpdate without a change writes nothing", result, controllerutil.OperationResultNone)
	result, err = controllerutil.CreateOrPatch(ctx, direct, fast, func() error { fast.Spec.Size = 4; fast.Status.Replicas = 1; return nil })
	must("CreateOrPatch", err)
	equal("CreateOrPatch writes spec and status", []any{result, fast.Spec.Size, fast.Status.Replicas},
		[]any{controllerutil.OperationResultUpdatedStatus, int64(4), int32(1)})
	selected := &GadgetList{}
	must("list", direct.List(ctx, selected, client.InNamespace(namespace), client.MatchingFields{"spec.mode": "fast"}))
	holds("a selectable field selects", len(selected.Items) == 1 && selected.Items[0].Name == "fast", selected.Items)

	before := gadget.DeepCopyObject().(*Gadget)
	gadget.Spec.Size = 5
	gadget.Status.Replicas = 7
	must("patch the status", direct.Status().Patch(ctx, gadget, client.MergeFrom(before)))
	equal("a status patch changes only the status", []any{gadget.Spec.Size, gadget.Status.Replicas}, []any{int64(2), int32(7)})
	before = gadget.DeepCopyObject().(*Gadget)
	before.ResourceVersion = "1"
	gadget.Spec.Size = 6
	err = direct.Patch(ctx, gadget, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	refused("a patch of an old version", apierrors.IsConflict, err)

	applied := newGadget("written", 8)
	applied.APIVersion, applied.Kind = gadgets.GroupVersion().String(), "Gadget"
	refused("Patch(client.Apply) of a field of another manager", apierrors.IsConflict, direct.Patch(ctx, applied, client.Apply, client.FieldOwner("applying")))
	applied.ManagedFields = nil
	must("apply", direct.Patch(ctx, applied, client.Apply, client.FieldOwner("applying"), client.ForceOwnership))
	equal("Patch(client.Apply) with force", []any{applied.Spec.Size, applied.Status.Replicas, managers(applied)},
		[]any{int64(8), int32(7), "applying Apply, tester Update, tester Update status"})
	dry := coreac.ConfigMap("dry", namespace).WithData(map[string]string{"a": "b"})
	must("apply in a dry run", client.NewDryRunClient(direct).Apply(ctx, dry, client.ForceOwnership))
	refused("Apply in a dry run stores nothing", apierrors.IsNotFound, direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "dry"}, &corev1.ConfigMap{}))
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "written", Namespace: namespace}}
	partial.SetGroupVersionKind(gadgets.GroupVersion().WithKind("Gadget"))
	must("get metadata", direct.Get(ctx, client.ObjectKeyFromObject(partial), partial))
	equal("the metadata belong to the object", partial.UID, applied.UID)
	must("delete", direct.DeleteAllOf(ctx, &Gadget{}, client.InNamespace(namespace)))
	must("list", direct.List(ctx, selected, client.InNamespace(namespace)))
	equal("DeleteAllOf leaves none", len(selected.Items), 0)
}

// Reconciles after changes of the objects, of owned objects, and of other watched objects.
func reconciles(ctx context.Context, cached, direct client.Client, log *eventLog) {
	gadget := newGadget("applied", 2)
	must("create", direct.Create(ctx, gadget))
	child := &corev1.ConfigMap{}
	key := client.ObjectKeyFromObject(gadget)
	has := func(wanted map[string]string) func() bool {
		return func() bool {
			if cached.Get(ctx, key, child) != nil {
				return false
			}
			for name, value := range wanted {
				if child.Data[name] != value {
					return false
				}
			}
			return true
		}
	}
	eventually("a controller applies its object", has(map[string]string{"size": "2", "mode": "slow", "note": ""}))
	holds("with its owner", metav1.IsControlledBy(child, gadget), child.OwnerReferences)
	eventually("it applies the status", ready(ctx, cached, gadget))
	equal("who manages a gadget", managers(gadget), "applier Apply status, applier Update, tester Update")

	before := child.DeepCopy()
	child.Data["size"], child.Data["extra"] = "99", "mine"
	must("patch", direct.Patch(ctx, child, client.StrategicMergeFrom(before)))
	eventually("it restores its fields, and keeps those of other managers", has(map[string]string{"size": "2", "extra": "mine"}))
	must("delete", direct.Delete(ctx, child))
	eventually("it recreates a deleted object", func() bool {
		again := &corev1.ConfigMap{}
		return cached.Get(ctx, key, again) == nil && again.UID != child.UID && again.Data["size"] == "2"
	})
	note := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: gadget.Name, Namespace: namespace, Annotations: map[string]string{"note": "seen"}}}
	must("create", direct.Create(ctx, note))
	eventually("it watches the metadata of secrets", has(map[string]string{"note": "seen"}))
	must("patch", direct.Patch(ctx, gadget, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/mode","value":"fast"}]`))))
	eventually("it follows the spec", has(map[string]string{"mode": "fast"}))
	found := &GadgetList{}
	eventually("an index of the cache finds it by a field", func() bool {
		must("list", cached.List(ctx, found, client.InNamespace(namespace), client.MatchingFields{".spec.mode": "fast"}))
		return len(found.Items) == 1 && found.Items[0].Name == "applied"
	})
	must("delete", direct.Delete(ctx, note))
	eventually("it receives the deletion of a secret", has(map[string]string{"note": ""}))
	must("delete", direct.Delete(ctx, gadget))
	eventually("it releases a deleted object", func() bool { return apierrors.IsNotFound(cached.Get(ctx, key, gadget)) })
	eventually("it cleaned up once, with its finalizer", func() bool { return log.count("cleaned applied") == 1 })
}

func uninstall(ctx context.Context, config *rest.Config, environment *envtest.Environment) {
	succeeds("envtest stops", environment.Stop())
	uninstalled(ctx, config)
}

func uninstalled(ctx context.Context, config *rest.Config) {
	all := dynamic.NewForConfigOrDie(config).Resource(definitions)
	eventually("its definitions are deleted", func() bool {
		_, err := all.Get(ctx, "gadgets."+gadgets.Group, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

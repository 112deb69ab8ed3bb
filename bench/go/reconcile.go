package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	reader "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	events "sigs.k8s.io/controller-runtime/pkg/source"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// minReconciles is the minimum number of reconciles before the first change, as for the other controllers.
const minReconciles = 100

// work contains the state of the reconciles, which count and wait.
type work struct {
	client  reader.Client
	wait    time.Duration
	writes  int
	writing atomic.Bool
	calls   atomic.Int64
	target  atomic.Int64
	reached chan struct{}

	mutex sync.Mutex
	seen  map[string]time.Time
	ended map[string]bool
}

func (work *work) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var object corev1.ConfigMap
	if err := work.client.Get(ctx, request.NamespacedName, &object); err != nil {
		return ctrl.Result{}, reader.IgnoreNotFound(err)
	}
	if value := object.Data["value"]; len(value) > 1 {
		work.mutex.Lock()
		if _, known := work.seen[value]; !known {
			work.seen[value] = time.Now()
		}
		work.mutex.Unlock()
	}
	if work.wait > 0 {
		time.Sleep(work.wait)
	}
	if work.writing.Load() {
		if err := work.write(ctx, &object); err != nil {
			return ctrl.Result{}, err
		}
	}
	if work.calls.Add(1) == work.target.Load() {
		work.reached <- struct{}{}
	}
	return ctrl.Result{}, nil
}

// write increments the value of the object up to its limit.
func (work *work) write(ctx context.Context, object *corev1.ConfigMap) error {
	value, err := strconv.Atoi(object.Data["value"])
	if err != nil {
		return err
	}
	if value < 1+work.writes {
		patch := fmt.Appendf(nil, `{"data":{"value":"%d"}}`, value+1)
		target := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
		return work.client.Patch(ctx, target, reader.RawPatch(types.MergePatchType, patch))
	}
	work.mutex.Lock()
	work.ended[object.Name] = true
	work.mutex.Unlock()
	return nil
}

// written waits until this number of objects has the final value.
func (work *work) written(objects int) {
	for {
		work.mutex.Lock()
		ended := len(work.ended)
		work.mutex.Unlock()
		if ended >= objects {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// reach waits until this number of reconciles has run.
func (work *work) reach(calls int64) {
	work.target.Store(calls)
	for work.calls.Load() < calls {
		select {
		case <-work.reached:
		case <-time.After(time.Millisecond):
		}
	}
}

// reconcile measures controller-runtime as one of the controllers.
func reconcile(arguments []string) error {
	flags := flag.NewFlagSet("reconcile", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "the server")
	keys := flags.Int("keys", 0, "number of objects, named map-0 and so on, in default")
	rounds := flags.Int("rounds", 0, "number of times that all objects are enqueued")
	concurrency := flags.Int("concurrency", 1, "number of concurrent reconciles")
	wait := flags.Int("wait-us", 0, "duration of a reconcile, in microseconds")
	backlogChanges := flags.Int("changes-during-backlog", 0, "number of measured changes while the first reconciles are queued; at most the number of keys")
	writes := flags.Int("writes", 0, "number of writes to each object by its reconciles")
	outside := flags.Bool("outside", false, "enqueue and wait on a thread that runs no reconciles")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *backlogChanges > *keys {
		return fmt.Errorf("more changes than keys; set -changes-during-backlog to at most -keys")
	}
	if *outside {
		runtime.LockOSThread()
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	ctrl.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	work := &work{
		client:  manager.GetClient(),
		wait:    time.Duration(*wait) * time.Microsecond,
		reached: make(chan struct{}, 1),
		seen:    map[string]time.Time{},
		writes:  *writes,
		ended:   map[string]bool{},
	}
	work.target.Store(-1)
	all := make(chan event.GenericEvent, 1024)
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}).
		WatchesRawSource(events.Channel(all, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: *concurrency}).
		Complete(work)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- manager.Start(ctx) }()

	if *backlogChanges > 0 {
		set, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		// Before the first change, each key is reconciled once. A higher number would never be reached.
		work.reach(min(minReconciles, int64(*keys)))
		changed := map[string]time.Time{}
		for number := range *backlogChanges {
			value := fmt.Sprintf("change-%d", number)
			patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value)
			name := fmt.Sprintf("map-%d", *keys-1-number)
			_, err := set.CoreV1().ConfigMaps("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				return err
			}
			changed[value] = time.Now()
			time.Sleep(5 * time.Millisecond)
		}
		var times []int64
		for value, at := range changed {
			for {
				work.mutex.Lock()
				called, known := work.seen[value]
				work.mutex.Unlock()
				if known {
					times = append(times, max(0, called.Sub(at).Nanoseconds()))
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		slices.Sort(times)
		response := map[string]any{"phase": "changes during backlog", "times": len(times)}
		addQuantiles(response, times)
		printResponse(response)
		return nil
	}

	work.reach(int64(*keys))
	time.Sleep(time.Second)
	objects := make([]event.GenericEvent, *keys)
	for number := range objects {
		object := &corev1.ConfigMap{}
		object.Namespace, object.Name = "default", fmt.Sprintf("map-%d", number)
		objects[number] = event.GenericEvent{Object: object}
	}
	started, used, before := time.Now(), processorTime(), work.calls.Load()
	switched := contextSwitches()
	for range *rounds {
		calls := work.calls.Load() + int64(*keys)
		for _, object := range objects {
			all <- object
		}
		work.reach(calls)
	}
	if *writes > 0 {
		work.writing.Store(true)
		for _, object := range objects {
			all <- object
		}
		work.written(*keys)
	}
	calls := work.calls.Load() - before
	printResponse(map[string]any{
		"phase": "calls", "calls": calls, "writes": *writes * *keys,
		"seconds": time.Since(started).Seconds(), "processor": processorTime() - used,
		"switches": contextSwitches() - switched,
	})
	printResponse(memory())
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, "the manager ended:", err)
		return err
	default:
		return nil
	}
}

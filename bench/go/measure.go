package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/cache"
)

func printResponse(response map[string]any) {
	line, err := json.Marshal(response)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

// processorTime returns the processor time of this process in seconds.
func processorTime() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// contextSwitches returns the number of context switches of this process so far.
func contextSwitches() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return usage.Nvcsw + usage.Nivcsw
}

// memory returns the current and the maximum resident memory, the resident memory without mapped files, and the heap in
// use, in bytes. The program itself is a mapped file.
func memory() map[string]any {
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	response := map[string]any{"phase": "memory", "heap": heap.HeapAlloc}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err)
	}
	for line := range strings.Lines(string(status)) {
		for label, name := range map[string]string{"VmRSS:": "resident", "RssAnon:": "own", "VmHWM:": "peak"} {
			if rest, found := strings.CutPrefix(line, label); found {
				kilobytes, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
				if err != nil {
					fail(err)
				}
				response[name] = kilobytes * 1024
			}
		}
	}
	return response
}

func addQuantiles(response map[string]any, nanoseconds []int64) {
	if len(nanoseconds) == 0 {
		return
	}
	sorted := slices.Clone(nanoseconds)
	slices.Sort(sorted)
	response["p50_us"] = float64(sorted[len(sorted)/2]) / 1e3
	response["p99_us"] = float64(sorted[len(sorted)*99/100]) / 1e3
}

// reads gets objects in a fixed order for a while, alternating between names and prepared keys, and lists a namespace
// from time to time.
func reads(indexer cache.Indexer, limit time.Duration) map[string]any {
	keys := indexer.ListKeys()
	slices.Sort(keys)
	type name struct{ namespace, name string }
	names := make([]name, len(keys))
	for place, key := range keys {
		namespace, of, _ := strings.Cut(key, "/")
		names[place] = name{strings.Clone(namespace), strings.Clone(of)}
	}
	// The key is built as in a lister (PodNamespaceLister.Get).
	byNames := func(place int) string { return names[place].namespace + "/" + names[place].name }
	byKey := func(place int) string { return keys[place] }
	var gets, found uint64
	var named, keyed, listed []int64
	started := time.Now()
	for place := 0; time.Since(started) < limit; {
		for _, lookup := range []struct {
			key   func(int) string
			times *[]int64
		}{{byNames, &named}, {byKey, &keyed}} {
			for range 1000 {
				place = (place + 7919) % len(keys)
				// Reading the clock costs as much as a read.
				timed := gets%16 == 0
				var before time.Time
				if timed {
					before = time.Now()
				}
				_, exists, err := indexer.GetByKey(lookup.key(place))
				if timed {
					*lookup.times = append(*lookup.times, time.Since(before).Nanoseconds())
				}
				if err == nil && exists {
					found++
				}
				gets++
			}
		}
		before := time.Now()
		objects, err := indexer.ByIndex(cache.NamespaceIndex, "team-7")
		if err != nil || len(objects) == 0 {
			fail(fmt.Errorf("the namespace team-7 is empty: %v", err))
		}
		listed = append(listed, time.Since(before).Nanoseconds())
	}
	response := map[string]any{"phase": "reads", "per_second": float64(gets) / time.Since(started).Seconds(), "found": found == gets}
	for method, times := range map[string][]int64{"get": named, "get_by_key": keyed} {
		slices.Sort(times)
		response[method+"_p50_ns"], response[method+"_p99_ns"] = times[len(times)/2], times[len(times)*99/100]
	}
	slices.Sort(listed)
	response["list_p50_us"], response["list_p99_us"] = float64(listed[len(listed)/2])/1e3, float64(listed[len(listed)*99/100])/1e3
	return response
}

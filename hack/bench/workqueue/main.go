// Command workqueue is the Go side of `cargo bench --bench workqueue`. It runs the same cases on client-go's
// work queues and on controller-runtime's priority queue, and prints one line of JSON per measurement.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type key = cache.ObjectName

type result struct {
	Case  string  `json:"case"`
	Nanos float64 `json:"nanos"`
	Bytes float64 `json:"bytes"`
}

const (
	million = 1_000_000
	delayed = 100_000
	rounds  = 5
)

func main() {
	log.SetLogger(logr.Discard())
	keys := make([]key, million)
	for i := range keys {
		keys[i] = key{Namespace: "default", Name: fmt.Sprintf("object-%07d", i)}
	}
	out := json.NewEncoder(os.Stdout)
	for range rounds {
		for _, c := range []struct {
			name string
			run  func([]key) (time.Duration, int, float64)
		}{
			{"one key", oneKey},
			{"million keys", millionKeys},
			{"4 + 4", fourAndFour},
			{"4 + 16", fourAndSixteen},
			{"hot keys", hotKeys},
			{"rate limited", rateLimited},
			{"delayed", delayedKeys},
			{"priorities", priorities},
			{"controller", wholeController},
		} {
			runtime.GC()
			took, n, bytes := c.run(keys)
			if err := out.Encode(result{c.name, float64(took.Nanoseconds()) / float64(n), bytes}); err != nil {
				panic(err)
			}
		}
	}
}

// oneKey adds, gets and finishes one key repeatedly.
func oneKey(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	defer q.ShutDown()
	start := time.Now()
	for range million {
		q.Add(keys[0])
		k, _ := q.Get()
		q.Done(k)
	}
	return time.Since(start), million, 0
}

// millionKeys adds all keys, then gets and finishes all of them. The bytes are those of a queued key.
func millionKeys(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	defer q.ShutDown()
	before := heap()
	start := time.Now()
	for _, k := range keys {
		q.Add(k)
	}
	took := time.Since(start)
	bytes := float64(heap()-before) / float64(len(keys))
	start = time.Now()
	for range keys {
		k, _ := q.Get()
		q.Done(k)
	}
	return took + time.Since(start), len(keys), bytes
}

// fourAndFour runs four producers and four workers.
func fourAndFour(keys []key) (time.Duration, int, float64) { return fourAnd(4, keys) }

// fourAndSixteen runs four producers and sixteen workers.
func fourAndSixteen(keys []key) (time.Duration, int, float64) { return fourAnd(16, keys) }

// fourAnd runs four producers, which share the keys, and workerCount workers.
func fourAnd(workerCount int, keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	var producers, workers sync.WaitGroup
	start := time.Now()
	for range workerCount {
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(k)
			}
		})
	}
	for w := range 4 {
		producers.Go(func() {
			for i := w; i < len(keys); i += 4 {
				q.Add(keys[i])
			}
		})
	}
	producers.Wait()
	q.ShutDown()
	workers.Wait()
	return time.Since(start), len(keys), 0
}

// hotKeys adds a hundred keys that are already queued.
func hotKeys(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTyped[key]()
	defer q.ShutDown()
	start := time.Now()
	for i := range million {
		q.Add(keys[i%100])
	}
	return time.Since(start), million, 0
}

// rateLimited adds a key with rate limiting, as after a failure, then gets, forgets and finishes it.
func rateLimited(keys []key) (time.Duration, int, float64) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](0, time.Minute)
	q := workqueue.NewTypedRateLimitingQueue[key](limiter)
	defer q.ShutDown()
	start := time.Now()
	for i := range million {
		q.AddRateLimited(keys[i])
		k, _ := q.Get()
		q.Forget(k)
		q.Done(k)
	}
	return time.Since(start), million, 0
}

// delayedKeys adds keys that become due over half a second, starting a second from now. It measures the processor
// time to add them and to get them when they are due, and the bytes of a waiting key.
func delayedKeys(keys []key) (time.Duration, int, float64) {
	q := workqueue.NewTypedDelayingQueue[key]()
	defer q.ShutDown()
	before := heap()
	busy := processorTime()
	for i, k := range keys[:delayed] {
		// Due times are out of order, as they are for failing keys.
		at := time.Duration((i*7919)%delayed) * (500 * time.Millisecond / delayed)
		q.AddAfter(k, time.Second+at)
	}
	// Wait until the queue has moved all keys from its channel to its heap.
	time.Sleep(100 * time.Millisecond)
	added := processorTime() - busy
	bytes := float64(heap()-before) / delayed
	busy = processorTime()
	for range delayed {
		k, _ := q.Get()
		q.Done(k)
	}
	return added + processorTime() - busy, delayed, bytes
}

// priorities adds a hundred thousand keys of three priorities, then gets and finishes them.
func priorities(keys []key) (time.Duration, int, float64) {
	q := priorityqueue.New[key]("bench")
	defer q.ShutDown()
	start := time.Now()
	for i, k := range keys[:delayed] {
		p := []int{-100, 0, 10}[i%3]
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &p}, k)
	}
	for range delayed {
		k, _, _ := q.GetWithPriority()
		q.Done(k)
	}
	return time.Since(start), delayed, 0
}

// wholeController passes a hundred thousand keys through a controller whose reconciler does nothing.
func wholeController(keys []key) (time.Duration, int, float64) {
	var left atomic.Int64
	left.Store(delayed)
	done := make(chan struct{})
	nothing := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		if left.Add(-1) == 0 {
			close(done)
		}
		return reconcile.Result{}, nil
	})
	unchecked := true
	c, err := controller.NewUnmanaged("bench", controller.Options{Reconciler: nothing, SkipNameValidation: &unchecked})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	start := time.Now()
	feed := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for _, k := range keys[:delayed] {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
			}
		}()
		return nil
	})
	if err := c.Watch(feed); err != nil {
		panic(err)
	}
	go func() {
		if err := c.Start(ctx); err != nil {
			panic(err)
		}
	}()
	<-done
	return time.Since(start), delayed, 0
}

// heap returns the bytes of the live heap.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

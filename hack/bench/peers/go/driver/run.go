package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

const (
	// How long the Deployments of a step may take.
	stepLimit = 15 * time.Minute
	// How long controller and server may take to come to rest after a step, and after a start.
	restLimit  = time.Minute
	startLimit = 5 * time.Minute
)

// Result is what one scenario of one run measured.
type Result struct {
	Round       int     `json:"round"`
	Controller  string  `json:"controller"`
	Scenario    string  `json:"scenario"`
	Foos        int     `json:"foos"`
	Samples     int     `json:"samples"`
	Wall        float64 `json:"wallSeconds"`
	CPU         float64 `json:"controllerSeconds"`
	ServerCPU   float64 `json:"apiserverSeconds"`
	EtcdCPU     float64 `json:"etcdSeconds"`
	Resident    float64 `json:"residentMB"`
	Descriptors int     `json:"descriptors"`
	Connections int     `json:"connections"`
	Peak        float64 `json:"peakMB"`
	P50         float64 `json:"p50Milliseconds"`
	P99         float64 `json:"p99Milliseconds"`
	Max         float64 `json:"maxMilliseconds"`
	Rested      bool    `json:"rested"`
	Requests    []Count `json:"requests"`
}

// Count is a number of requests of one sort.
type Count struct {
	Request
	Count int `json:"count"`
}

// A scenario's name, and what it does to the Foos, for the tables.
type scenario struct {
	name  string
	title func(Plan) string
}

var scenarios = []scenario{
	{"burst-full", func(p Plan) string { return fmt.Sprintf("%d Foos created at full rate", p.Burst) }},
	{"churn-small", func(p Plan) string {
		return fmt.Sprintf("%d changes of spec.replicas at 100/s, %d Foos in 10 namespaces", p.Changes, p.Burst)
	}},
	{"churn-calm", func(p Plan) string {
		return fmt.Sprintf("%d changes of spec.replicas at 60/s, %d Foos in 10 namespaces", p.Changes, p.Burst)
	}},
	{"burst-paced", func(p Plan) string { return fmt.Sprintf("%d Foos created at 100/s", p.Paced) }},
	{"grow", func(p Plan) string { return fmt.Sprintf("more Foos at full rate, to %d", p.Size) }},
	{"cold", func(p Plan) string { return fmt.Sprintf("start with %d converged Foos, until at rest", p.Size) }},
	{"cold-changed", func(p Plan) string {
		return fmt.Sprintf("start with %d Foos, of which %d changed meanwhile, until at rest", p.Size, p.SlowChanges)
	}},
	{"churn-large", func(p Plan) string {
		return fmt.Sprintf("%d changes of spec.replicas at 20/s, %d Foos in 10 namespaces", p.SlowChanges, p.Size)
	}},
	{"rest", func(p Plan) string { return fmt.Sprintf("%v at rest, %d Foos", p.Rest, p.Size) }},
	{"grow-one", func(p Plan) string { return fmt.Sprintf("%d Foos created at full rate in one namespace", p.Size) }},
	{"churn-one", func(p Plan) string {
		return fmt.Sprintf("%d changes of spec.replicas at 20/s, %d Foos in one namespace", p.SlowChanges, p.Size)
	}},
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

type runner struct {
	Plan
	server      *server
	deployments *deployments
	controller  *process
	namespaces  []string
	replicas    []int // of each Foo, by number
	cursor      int   // the Foo to change next
	profiles    int   // kept so far
	results     *os.File
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// The scenarios of the plan on one server: those on ten namespaces, or the one on one namespace.
func run(ctx context.Context, plan Plan) error {
	config, err := clientcmd.BuildConfigFromFlags("", plan.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	r := &runner{Plan: plan}
	if r.results, err = os.OpenFile(plan.Results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	defer r.results.Close()
	if r.server, err = connect(config); err != nil {
		return err
	}
	if r.deployments, err = watchDeployments(ctx, config); err != nil {
		return err
	}
	r.namespaces = []string{"one"}
	if !plan.Scenarios["churn-one"] {
		r.namespaces = nil
		for i := range 10 {
			r.namespaces = append(r.namespaces, fmt.Sprintf("ten-%d", i))
		}
	}
	if plan.Adopt {
		if r.replicas, err = r.server.replicasOfFoos(ctx); err != nil {
			return err
		}
	} else {
		for _, namespace := range r.namespaces {
			if err := r.server.createNamespace(ctx, namespace); err != nil {
				return err
			}
		}
	}
	defer func() { r.controller.stop() }()
	if err := r.restart(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		name    string
		applies bool
		do      func(context.Context, string) error
	}{
		{"burst-full", plan.Scenarios["burst-full"] || plan.Scenarios["churn-small"] || plan.Scenarios["churn-calm"], r.burst(plan.Burst, 0)},
		{"churn-small", plan.Scenarios["churn-small"], r.churn(plan.Changes, 100)},
		{"churn-calm", plan.Scenarios["churn-calm"], r.churn(plan.Changes, 60)},
		{"burst-paced", plan.Scenarios["burst-paced"], r.burst(plan.Paced, 100)},
		{"grow", plan.Scenarios["cold"] || plan.Scenarios["cold-changed"] || plan.Scenarios["churn-large"] || plan.Scenarios["rest"], r.grow},
		{"cold", plan.Scenarios["cold"], r.repeat(plan.Starts, r.cold(0))},
		{"cold-changed", plan.Scenarios["cold-changed"], r.repeat(plan.Starts, r.cold(plan.SlowChanges))},
		{"churn-large", plan.Scenarios["churn-large"], r.churn(plan.SlowChanges, 20)},
		{"rest", plan.Scenarios["rest"], r.rest},
		{"grow-one", plan.Scenarios["churn-one"], r.grow},
		{"churn-one", plan.Scenarios["churn-one"], r.churn(plan.SlowChanges, 20)},
	} {
		if !step.applies {
			continue
		}
		if err := step.do(ctx, step.name); err != nil {
			return fmt.Errorf("%s, %s: %w", plan.Name, step.name, err)
		}
	}
	return nil
}

// Stops the controller, if it runs, and starts it; waits until it rests.
func (r *runner) restart(ctx context.Context) error {
	r.controller.stop()
	var err error
	if r.controller, err = start(r.Command, r.Log); err != nil {
		return err
	}
	_, _, err = atRest(ctx, r.controller, r.Server, startLimit)
	return err
}

func (r *runner) burst(count int, rate float64) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		return r.measure(ctx, name, func() (measured, error) { return r.create(ctx, count, rate) })
	}
}

func (r *runner) grow(ctx context.Context, name string) error {
	if len(r.replicas) >= r.Size {
		return nil
	}
	return r.measure(ctx, name, func() (measured, error) { return r.create(ctx, r.Size-len(r.replicas), 0) })
}

func (r *runner) churn(count int, rate float64) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		return r.measure(ctx, name, func() (measured, error) { return r.change(ctx, count, rate) })
	}
}

// Measures a step so many times, each for itself.
func (r *runner) repeat(times int, step func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		for range times {
			if err := step(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// A start after so many Foos were changed while no controller ran.
func (r *runner) cold(changes int) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		r.controller.stop()
		r.controller = nil
		numbers, keys := r.renew(changes)
		r.deployments.expect(keys)
		if _, err := r.send(ctx, numbers, 0, r.scale); err != nil {
			return err
		}
		return r.measure(ctx, name, func() (measured, error) {
			var m measured
			began := time.Now()
			var err error
			if r.controller, err = start(r.Command, r.Log); err != nil {
				return m, err
			}
			last, rested, err := atRest(ctx, r.controller, r.Server, startLimit)
			if err != nil {
				return m, err
			}
			m.wall, m.waited, m.rested = last.Sub(began), true, rested
			return m, r.deployments.wait(ctx, r.controller, restLimit)
		})
	}
}

func (r *runner) rest(ctx context.Context, name string) error {
	return r.measure(ctx, name, func() (measured, error) {
		return measured{wall: r.Rest, waited: true, rested: true}, sleep(ctx, r.controller, r.Rest)
	})
}

// Waits until controller and server are at rest and nobody has made a request for two seconds: events that are written
// slowly cost little at a time, but belong to the scenario that caused them. Returns whether that was within the limit.
func (r *runner) settled(ctx context.Context) (bool, error) {
	before, err := r.server.requests(ctx)
	if err != nil {
		return false, err
	}
	for deadline := time.Now().Add(restLimit); ; {
		if _, rested, err := atRest(ctx, r.controller, r.Server, time.Until(deadline)); err != nil || !rested {
			return false, err
		}
		after, err := r.server.requests(ctx)
		if err != nil {
			return false, err
		}
		if len(after.Minus(before)) == 0 {
			return true, nil
		}
		before = after
	}
}

type measured struct {
	wall      time.Duration
	latencies []time.Duration
	waited    bool // for the rest
	rested    bool
}

// Counts what a piece of work costs everybody, from its begin until controller and server are at rest.
func (r *runner) measure(ctx context.Context, name string, work func() (measured, error)) error {
	logf("%s, round %d: %s", r.Name, r.Round, name)
	before, err := r.server.requests(ctx)
	if err != nil {
		return err
	}
	began, err := r.times()
	if err != nil {
		return err
	}
	profiled := r.profile(ctx, name)
	m, err := work()
	if problem := profiled(); err == nil {
		err = problem
	}
	if err != nil {
		return err
	}
	if !m.waited {
		if m.rested, err = r.settled(ctx); err != nil {
			return err
		}
	}
	ended, err := r.times()
	if err != nil {
		return err
	}
	after, err := r.server.requests(ctx)
	if err != nil {
		return err
	}
	result := Result{
		Round: r.Round, Controller: r.Name, Scenario: name, Foos: len(r.replicas), Samples: len(m.latencies),
		Wall: m.wall.Seconds(), Rested: m.rested,
		CPU: (ended[0] - began[0]).Seconds(), ServerCPU: (ended[1] - began[1]).Seconds(), EtcdCPU: (ended[2] - began[2]).Seconds(),
	}
	if result.Resident, result.Peak, err = memory(r.controller.pid()); err != nil {
		return err
	}
	if result.Descriptors, result.Connections, err = descriptors(r.controller.pid()); err != nil {
		return err
	}
	if count := len(m.latencies); count > 0 {
		slices.Sort(m.latencies)
		rank := func(share float64) float64 {
			return float64(m.latencies[min(count-1, int(float64(count)*share))].Microseconds()) / 1000
		}
		result.P50, result.P99, result.Max = rank(0.5), rank(0.99), rank(1)
	}
	for request, count := range after.Minus(before) {
		result.Requests = append(result.Requests, Count{request, count})
	}
	slices.SortFunc(result.Requests, func(a, b Count) int { return b.Count - a.Count })
	logf("  wall %.1f s, controller %.2f s, API server %.2f s, p50 %.1f ms, p99 %.1f ms",
		result.Wall, result.CPU, result.ServerCPU, result.P50, result.P99)
	return json.NewEncoder(r.results).Encode(result)
}

// Processor times so far of controller, API server and etcd.
func (r *runner) times() (times [3]time.Duration, err error) {
	pids := []int{0, r.Server, r.Etcd}
	if r.controller != nil {
		pids[0] = r.controller.pid()
	}
	for i, pid := range pids {
		if pid == 0 {
			continue
		}
		if times[i], err = processorTime(pid); err != nil {
			return times, err
		}
	}
	return times, nil
}

const nameFormat = "foo-%06d"

func (r *runner) namespaceOf(number int) string { return r.namespaces[number%len(r.namespaces)] }
func nameOf(number int) string                  { return fmt.Sprintf(nameFormat, number) }
func (r *runner) keyOf(number int) string       { return r.namespaceOf(number) + "/" + nameOf(number) }

func (r *runner) create(ctx context.Context, count int, rate float64) (measured, error) {
	var numbers []int
	for range count {
		numbers = append(numbers, len(r.replicas))
		r.replicas = append(r.replicas, 1)
	}
	return r.each(ctx, numbers, rate, func(ctx context.Context, number int) error {
		return r.server.createFoo(ctx, r.namespaceOf(number), nameOf(number))
	})
}

// Changes so many Foos, a different one each time, spread over all.
func (r *runner) change(ctx context.Context, count int, rate float64) (measured, error) {
	numbers, _ := r.renew(count)
	return r.each(ctx, numbers, rate, r.scale)
}

func (r *runner) scale(ctx context.Context, number int) error {
	return r.server.scaleFoo(ctx, r.namespaceOf(number), nameOf(number), r.replicas[number])
}

// Chooses the Foos to change, and their new replicas.
func (r *runner) renew(count int) (numbers []int, keys []string) {
	if count == 0 {
		return nil, nil
	}
	stride := max(1, len(r.replicas)/count)
	for stride%2 == 0 || stride%5 == 0 {
		stride-- // so that all ten namespaces have their share
	}
	for i := range min(count, len(r.replicas)) {
		number := (r.cursor + i*stride) % len(r.replicas)
		r.replicas[number] = r.replicas[number]%10 + 1
		numbers, keys = append(numbers, number), append(keys, r.keyOf(number))
	}
	r.cursor++
	return numbers, keys
}

// Sends a request for each, at a rate or as fast as the writers can, and waits for the Deployments to follow. The
// latency of one is from the server's answer to the driver until the driver hears of the Deployment.
func (r *runner) each(ctx context.Context, numbers []int, rate float64, request func(context.Context, int) error) (measured, error) {
	var m measured
	keys := make([]string, len(numbers))
	for i, number := range numbers {
		keys[i] = r.keyOf(number)
	}
	r.deployments.expect(keys)
	began := time.Now()
	answered, err := r.send(ctx, numbers, rate, request)
	if err != nil {
		return m, err
	}
	if err := r.deployments.wait(ctx, r.controller, stepLimit); err != nil {
		return m, err
	}
	for i, key := range keys {
		followed := r.deployments.at(key)
		m.latencies = append(m.latencies, max(0, followed.Sub(answered[i])))
		m.wall = max(m.wall, followed.Sub(began))
	}
	return m, nil
}

// Sends the requests; returns when each was answered.
func (r *runner) send(ctx context.Context, numbers []int, rate float64, request func(context.Context, int) error) ([]time.Time, error) {
	answered := make([]time.Time, len(numbers))
	errors := make(chan error, 1)
	began := time.Now()
	writers := r.Writers
	if rate > 0 {
		writers = 64 // enough that none is late
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(numbers) || ctx.Err() != nil || len(errors) > 0 {
					return
				}
				if rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
				}
				if err := request(ctx, numbers[i]); err != nil {
					select {
					case errors <- err:
					default:
					}
					return
				}
				answered[i] = time.Now()
			}
		})
	}
	group.Wait()
	select {
	case err := <-errors:
		return nil, err
	default:
		return answered, ctx.Err()
	}
}

// Command cache is the Go side of `cargo bench --bench cache`. It runs the same cases on client-go's informers and
// prints one line of JSON per measurement. "go run . protobuf" prints the Deployment of deployment.json as protobuf,
// which our side reads from deployment.pb.
package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"time"
)

const (
	objects = 20_000
	stored  = 100_000
	page    = 500
	rounds  = 3
)

type result struct {
	Case  string  `json:"case"`
	Nanos float64 `json:"nanos"`
	Bytes float64 `json:"bytes"`
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "protobuf" {
		must(os.Stdout.Write(marshalled()))
		return
	}
	if !bytes.Equal(deploymentMessage, marshalled()) {
		panic("deployment.pb is not deployment.json: go run . protobuf > deployment.pb")
	}
	out := json.NewEncoder(os.Stdout)
	report := func(name string, took time.Duration, n int, bytes float64) {
		if err := out.Encode(result{name, float64(took.Nanoseconds()) / float64(n), bytes / float64(n)}); err != nil {
			panic(err)
		}
	}
	for range rounds {
		decodeCases(report)
		storeCases(report)
		for _, n := range []int{1, 4, 16} {
			handlers(report, n)
		}
		coldStart(report, objects, "20,000")
		coldStart(report, stored, "100,000")
	}
}

type reporter func(name string, took time.Duration, n int, bytes float64)

// heap returns the bytes that are in use after a collection.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

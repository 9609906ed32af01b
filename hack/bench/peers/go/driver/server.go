package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

const foosPath = "/apis/samplecontroller.k8s.io/v1alpha1"

// Request is what requests are counted by, as apiserver_request_total has it.
type Request struct {
	Verb        string `json:"verb"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Code        string `json:"code"`
}

// Counts are numbers of requests.
type Counts map[Request]int

// Minus takes other counts off; what comes to nothing is left out.
func (c Counts) Minus(other Counts) Counts {
	left := Counts{}
	for request, count := range c {
		if count -= other[request]; count != 0 {
			left[request] = count
		}
	}
	return left
}

// The server as the driver uses it; the driver's own requests are counted.
type server struct {
	client *http.Client
	url    string

	lock sync.Mutex
	own  Counts
}

func connect(config *rest.Config) (*server, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &server{client: client, url: strings.TrimSuffix(config.Host, "/"), own: Counts{}}, nil
}

func (s *server) createNamespace(ctx context.Context, name string) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	return s.send(ctx, "POST", "/api/v1/namespaces", "application/json", body, "namespaces")
}

func (s *server) createFoo(ctx context.Context, namespace, name string) error {
	body := fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo",`+
		`"metadata":{"name":%q},"spec":{"deploymentName":%q,"replicas":1}}`, name, name)
	return s.send(ctx, "POST", foosPath+"/namespaces/"+namespace+"/foos", "application/json", body, "foos")
}

func (s *server) scaleFoo(ctx context.Context, namespace, name string, replicas int) error {
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	path := foosPath + "/namespaces/" + namespace + "/foos/" + name
	return s.send(ctx, "PATCH", path, "application/merge-patch+json", body, "foos")
}

// The replicas of all Foos, by the number in their name.
func (s *server) replicasOfFoos(ctx context.Context) ([]int, error) {
	type page struct {
		Metadata struct{ Continue string }
		Items    []struct {
			Metadata struct{ Name string }
			Spec     struct{ Replicas int }
		}
	}
	byNumber := map[int]int{}
	for query := (url.Values{"limit": {"500"}}); ; {
		text, err := s.get(ctx, foosPath+"/foos?"+query.Encode())
		if err != nil {
			return nil, err
		}
		var foos page
		if err := json.Unmarshal(text, &foos); err != nil {
			return nil, err
		}
		for _, foo := range foos.Items {
			var number int
			if _, err := fmt.Sscanf(foo.Metadata.Name, nameFormat, &number); err != nil {
				return nil, fmt.Errorf("the Foo %q is of another program: %w", foo.Metadata.Name, err)
			}
			byNumber[number] = foo.Spec.Replicas
		}
		if foos.Metadata.Continue == "" {
			break
		}
		query.Set("continue", foos.Metadata.Continue)
	}
	replicas := make([]int, len(byNumber))
	for number, count := range byNumber {
		if number >= len(replicas) {
			return nil, fmt.Errorf("%d Foos, but one of them has the number %d", len(replicas), number)
		}
		replicas[number] = count
	}
	return replicas, nil
}

func (s *server) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", path, answer.Status, text)
	}
	return text, nil
}

func (s *server) send(ctx context.Context, method, path, contentType, body, resource string) error {
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	s.lock.Lock()
	s.own[Request{Verb: method, Resource: resource, Code: fmt.Sprint(answer.StatusCode)}]++
	s.lock.Unlock()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return nil
}

// Counts the requests of Foos, Deployments and events so far that the driver did not make.
func (s *server) requests(ctx context.Context) (Counts, error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	all, err := countRequests(text)
	if err != nil {
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	return all.Minus(s.own), nil
}

func countRequests(metrics []byte) (Counts, error) {
	counts := Counts{}
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line, found := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !found {
			continue
		}
		labels, value, found := strings.Cut(line, "} ")
		if !found {
			return nil, fmt.Errorf("unreadable metric %q", line)
		}
		var request Request
		for _, label := range strings.Split(labels, ",") {
			name, quoted, _ := strings.Cut(label, "=")
			text := strings.Trim(quoted, `"`)
			switch name {
			case "verb":
				request.Verb = text
			case "resource":
				request.Resource = text
			case "subresource":
				request.Subresource = text
			case "code":
				request.Code = text
			}
		}
		if request.Resource == "deployments" && request.Subresource == "status" {
			continue // kube-controller-manager's; no operator writes it
		}
		switch request.Resource {
		case "foos", "deployments", "events":
			var count float64
			if _, err := fmt.Sscan(value, &count); err != nil {
				return nil, err
			}
			counts[request] += int(count)
		}
	}
	return counts, lines.Err()
}

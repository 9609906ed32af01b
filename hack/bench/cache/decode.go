package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	restwatch "k8s.io/client-go/rest/watch"
	"windlass/bench/peers/foo"
)

func decodeCases(report reporter) {
	for _, format := range []struct{ name, mediaType string }{
		{"JSON", apiruntime.ContentTypeJSON},
		{"protobuf", apiruntime.ContentTypeProtobuf},
	} {
		report("frame, "+format.name, frames(format.mediaType), objects, 0)
		took, bytes := pages(format.mediaType)
		report("page, "+format.name, took, objects, bytes)
	}
	took, bytes := fooPages()
	report("page, Foos", took, objects, bytes)
}

// frames decodes the frames of a watch, as the client's watch does.
func frames(mediaType string) time.Duration {
	decoder, info := decoder(mediaType)
	body := watchBody(mediaType)
	runtime.GC()
	reader := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(body)))
	watch := restwatch.NewDecoder(streaming.NewDecoder(reader, info.StreamSerializer.Serializer), decoder)
	start := time.Now()
	for range objects {
		_, object, err := watch.Decode()
		if err != nil || object.(*appsv1.Deployment).Name == "" {
			panic(fmt.Sprint("no Deployment: ", err))
		}
	}
	return time.Since(start)
}

func watchBody(mediaType string) []byte {
	var body bytes.Buffer
	_, info := decoder(mediaType)
	framer := info.StreamSerializer.Framer.NewFrameWriter(&body)
	text := newTemplate(deploymentTemplate)
	for n := range objects {
		raw := []byte(text.object(n))
		if mediaType == apiruntime.ContentTypeProtobuf {
			raw = asProtobuf(deployment(n))
		}
		event := &metav1.WatchEvent{Type: "MODIFIED", Object: apiruntime.RawExtension{Raw: raw}}
		if err := info.StreamSerializer.Serializer.Encode(event, framer); err != nil {
			panic(err)
		}
	}
	return body.Bytes()
}

// pages decodes the pages of a list. The bytes are those of the decoded objects.
func pages(mediaType string) (time.Duration, float64) {
	decoder, _ := decoder(mediaType)
	text := newTemplate(deploymentTemplate)
	var bodies [][]byte
	for from := 0; from < objects; from += page {
		body := text.list(from, from+page)
		if mediaType == apiruntime.ContentTypeProtobuf {
			list := &appsv1.DeploymentList{ListMeta: metav1.ListMeta{ResourceVersion: "90000000"}}
			for n := from; n < from+page; n++ {
				list.Items = append(list.Items, *deployment(n))
			}
			body = asProtobuf(list)
		}
		bodies = append(bodies, outside(body))
	}
	return decodeAll(bodies, func(body []byte) (apiruntime.Object, error) {
		return apiruntime.Decode(decoder, body)
	})
}

func fooPages() (time.Duration, float64) {
	decoder := fooDecoder()
	text := newTemplate(fooTemplate)
	var bodies [][]byte
	for from := 0; from < objects; from += page {
		bodies = append(bodies, outside(text.list(from, from+page)))
	}
	return decodeAll(bodies, func(body []byte) (apiruntime.Object, error) {
		into := new(foo.List)
		object, _, err := decoder.Decode(body, nil, into)
		return object, err
	})
}

func decodeAll(bodies [][]byte, decode func([]byte) (apiruntime.Object, error)) (time.Duration, float64) {
	before := heap()
	var lists []apiruntime.Object
	start := time.Now()
	for _, body := range bodies {
		lists = append(lists, must(decode(body)))
	}
	took := time.Since(start)
	bytes := heap() - before
	runtime.KeepAlive(lists)
	for _, body := range bodies {
		release(body)
	}
	return took, bytes
}

package localcluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/millrace/millrace/cmd/internal/localcluster/subprocess"
	"github.com/millrace/millrace/pkg/events/sleep"
)

//go:embed manifests
var manifests embed.FS

// render renders a manifest. Its delimiters are << and >>, because kwok's stages
// are themselves templates with the usual ones.
func render(name string, data any) ([]byte, error) {
	parsed, err := template.New(name).Delims("<<", ">>").ParseFS(manifests, "manifests/"+name)
	if err != nil {
		return nil, fmt.Errorf("parse manifest %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("fill manifest %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// apply applies every object of a manifest. It retries for a while, because a server that
// has just become ready may refuse objects until its caches are filled.
func (c *Cluster) apply(ctx context.Context, name string, data any) error {
	rendered, err := render(name, data)
	if err != nil {
		return err
	}
	return c.applyText(ctx, name, rendered)
}

// applyText is apply for a rendered manifest.
func (c *Cluster) applyText(ctx context.Context, name string, rendered []byte) error {
	config, err := c.Config()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read manifest %s: %w", name, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := applyOne(ctx, client, &object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func applyOne(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, subprocess.ReadyDeadline)
	defer cancel()
	resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	var target dynamic.ResourceInterface = client.Resource(resource)
	if ns := object.GetNamespace(); ns != "" {
		target = client.Resource(resource).Namespace(ns)
	}
	for {
		_, err := target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "millrace-localcluster", Force: true})
		if err == nil {
			return nil
		}
		if !sleep.For(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

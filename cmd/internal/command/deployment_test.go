package command

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	yamls "sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/settings"
)

const deployments = "../../../deployments"

// manifests decodes a folder of manifests to the API's types; an unknown field is an
// error.
func manifests(t *testing.T, folder string) (found []runtime.Object) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob(filepath.Join(deployments, folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests in %s (%v)", folder, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found = append(found, object)
		}
	}
	return found
}

// of are the objects of one type.
func of[T runtime.Object](all []runtime.Object) (some []T) {
	for _, object := range all {
		if one, ok := object.(T); ok {
			some = append(some, one)
		}
	}
	return some
}

// TestManifestsHoldFlags: every argument of a container and every setting of the
// services is a flag of Millrace, with a valid value.
func TestManifestsHoldFlags(t *testing.T) {
	for _, folder := range []string{"kubernetes", "kubernetes-ha", "kubernetes-shadow", "kubernetes-split", "notary"} {
		all := manifests(t, folder)
		var containers []corev1.Container
		for _, s := range of[*appsv1.StatefulSet](all) {
			containers = append(containers, s.Spec.Template.Spec.Containers...)
		}
		for _, d := range of[*appsv1.Deployment](all) {
			containers = append(containers, d.Spec.Template.Spec.Containers...)
		}
		for _, c := range containers {
			command := subcommand(t, c.Args[0])
			if err := command.ParseFlags(c.Args[1:]); err != nil {
				t.Errorf("%s: container %s: %v", folder, c.Name, err)
			}
		}
		for _, m := range of[*corev1.ConfigMap](all) {
			for service, name := range map[string]string{"watcher": "services", "reconcilers": "services", "writer": "services", "provisioner": "provisioner"} {
				file := filepath.Join(t.TempDir(), name+".yaml")
				ok(t, os.WriteFile(file, []byte(m.Data[name+".yaml"]), 0o600))
				none := func(string) (string, bool) { return "", false }
				if err := settings.Fill(subcommand(t, service).Flags(), file, none); err != nil {
					t.Errorf("%s: %s: %v", folder, service, err)
				}
			}
		}
	}
}

func subcommand(t *testing.T, name string) *cobra.Command {
	t.Helper()
	commands := newRoot().Commands()
	i := slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		t.Fatalf("there is no command %q", name)
	}
	return commands[i]
}

// TestBusOfThreeServers compares the manifests of three servers with the needs of the record:
// each server on a node of its own, messages on disk before they are acknowledged, no voluntary
// disruption of two servers at once, and services that connect to all.
func TestBusOfThreeServers(t *testing.T) {
	all := manifests(t, "kubernetes-ha")
	set, service := of[*appsv1.StatefulSet](all)[0], of[*corev1.Service](all)[0]
	budget, config := of[*policyv1.PodDisruptionBudget](all)[0], of[*corev1.ConfigMap](all)[0]
	pod := labels.Set(set.Spec.Template.Labels)
	if *set.Spec.Replicas != 3 || set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || set.Spec.ServiceName != service.Name {
		t.Errorf("%d servers, %s, of service %q", *set.Spec.Replicas, set.Spec.PodManagementPolicy, set.Spec.ServiceName)
	}
	if !service.Spec.PublishNotReadyAddresses || !labels.SelectorFromSet(service.Spec.Selector).Matches(pod) {
		t.Error("the servers do not find each other by the service before they are ready")
	}
	if budget.Spec.MaxUnavailable.IntValue() != 1 || !labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(pod) {
		t.Error("more than one server may be taken away at a time")
	}
	apart := set.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(apart) != 1 || apart[0].TopologyKey != corev1.LabelHostname || !labels.SelectorFromSet(apart[0].LabelSelector.MatchLabels).Matches(pod) {
		t.Error("two servers may share a machine")
	}
	args := set.Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--sync-interval=always") {
		t.Error("messages are acknowledged before they are on disk")
	}
	var file struct {
		Flags map[string]any `json:"flags"`
	}
	if err := yamls.Unmarshal([]byte(config.Data["services.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		host := set.Name + "-" + string(rune('0'+i)) + "." + service.Name
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--routes=") && strings.Contains(a, host+":6222") }) {
			t.Errorf("no route to %s", host)
		}
		for flag, port := range map[string]string{"nats-url": ":4222", "nats-monitoring": ":10260"} {
			if text, _ := file.Flags[flag].(string); !strings.Contains(text, host+port) {
				t.Errorf("%s does not name %s", flag, host+port)
			}
		}
	}
	if file.Flags["stream-replicas"] != 3.0 || file.Flags["require-audit-grade"] != true {
		t.Errorf("the services are told %v", file.Flags)
	}
}

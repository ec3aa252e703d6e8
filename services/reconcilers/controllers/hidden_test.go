package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// TestWhatIsDecidedOnIsNotHidden checks that a rule that redacts what a controller needs
// is refused, with the controller's name, and accepted if the controller is off.
func TestWhatIsDecidedOnIsNotHidden(t *testing.T) {
	all := []string{"*"}
	for _, c := range []struct {
		rule        string
		controllers []string
		want        []string // nil: the rule is allowed
	}{
		{"pods:.spec.containers[*].env[*].value", all, nil},
		{"pods:.spec.initContainers[*].args", all, nil},
		{"pods:.spec.containers[*].env", all, []string{"legacy-serviceaccount-token-cleaner-controller"}},
		{"pods:.spec.initContainers[*].env[*].valueFrom.secretKeyRef", all, []string{"legacy-serviceaccount-token-cleaner-controller"}},
		{"pods:.spec.containers[*].env", []string{"*", "-legacy-serviceaccount-token-cleaner-controller"}, nil},
		{"pods:.metadata.annotations['example.com/token']", all, nil},
		{"configmaps!kube-root-ca.crt!kube-apiserver-legacy-service-account-token-tracking:.data", all, nil},
		{"configmaps:.data", []string{"*", "-root-ca-certificate-publisher-controller", "-legacy-serviceaccount-token-cleaner-controller"}, nil},
		{"configmaps!kube-root-ca.crt:.data", all, []string{"legacy-serviceaccount-token-cleaner-controller", "configmaps!kube-root-ca.crt!kube-apiserver-legacy-service-account-token-tracking:.data"}},
		{"configmaps:.data", all, []string{"root-ca-certificate-publisher-controller", "configmaps!kube-root-ca.crt!kube-apiserver-legacy-service-account-token-tracking:.data"}},
		{"configmaps!other:.data", all, []string{"configmaps!other!kube-root-ca.crt!kube-apiserver-legacy-service-account-token-tracking:.data"}},
		{"pods:.spec.nodeName", all, []string{"replicaset-controller"}},
		{"pods:.spec", all, []string{"replicaset-controller"}},
		{"pods:.metadata.annotations", all, []string{"replicaset-controller"}},
		{"pods:.metadata.annotations['daemonset.millrace.io/failures']", all, []string{"daemonset-controller"}},
		{"pods:.metadata.annotations['controller.kubernetes.io/pod-deletion-cost']", all, []string{"replicaset-controller"}},
		// Creates copy templates: redacted values would be created.
		{"deployments.apps:.spec.template.spec.containers[*].env[*].value", all, []string{"deployment-controller"}},
		{"replicasets.apps:.spec.template.spec.containers[*].env", all, []string{"deployment-controller", "replicaset-controller"}},
		{"deployments.apps:.metadata.annotations['example.com/token']", all, []string{"deployment-controller"}},
		// A status update also writes the object's annotations.
		{"statefulsets.apps:.metadata.annotations['example.com/token']", all, []string{"statefulset-controller"}},
		{"deployments.apps:.spec.template", []string{"replicaset-controller"}, nil},
		{"widgets.example.com:.spec", all, nil},
	} {
		chosen, err := Select(c.controllers, Config{RootCA: []byte("ca")})
		if err != nil {
			t.Fatal(err)
		}
		rule, err := redact.Parse(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		err = Hidden(chosen, redact.Rules{rule})
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s with %v: %v", c.rule, c.controllers, err)
		}
		for _, word := range c.want {
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error does not say %q: %v", c.rule, word, err)
			}
		}
	}
}

// TestWithheldSparesWhatControllersRead checks that the default does not depend on which
// controllers run, and spares every ConfigMap that one of them reads by name.
func TestWithheldSparesWhatControllersRead(t *testing.T) {
	const want = "[configmaps!kube-apiserver-legacy-service-account-token-tracking!kube-root-ca.crt:.data" +
		" configmaps!kube-apiserver-legacy-service-account-token-tracking!kube-root-ca.crt:.binaryData]"
	rules := Withheld()
	for _, r := range rules {
		slices.Sort(r.Spared)
	}
	if got := fmt.Sprint(rules); got != want {
		t.Errorf("withheld is %s, want %s", got, want)
	}
	if err := Hidden(everyone(), rules); err != nil {
		t.Error(err)
	}
}

// TestWhatIsWrittenBackKeepsItsCopies compares the promises of all controllers with the
// list, because the API server removes the fields that a replacement lacks.
func TestWhatIsWrittenBackKeepsItsCopies(t *testing.T) {
	back := WrittenBack()
	for kind, want := range map[kinds.Name][]string{
		kinds.Deployments.Name: nil, kinds.StatefulSets.Name: nil, kinds.Endpoints.Name: nil, kinds.Namespaces.Name: nil,
		kinds.ConfigMaps.Name: {"kube-root-ca.crt"},
	} {
		if names, there := back[kind]; !there || !slices.Equal(names, want) {
			t.Errorf("%s: %v (%t), want %v", kind, names, there, want)
		}
	}
	for _, kind := range []kinds.Name{kinds.Pods.Name, kinds.Services.Name, kinds.Nodes.Name, kinds.ServiceAccounts.Name, kinds.Secrets.Name, kinds.ClusterRoles.Name} {
		if _, there := back[kind]; there {
			t.Errorf("%s is patched only, and its copies stay", kind)
		}
	}
}

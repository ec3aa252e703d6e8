package reconcilers_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const promises = "../../docs/promises.md"

// The document says what the promises in the program are.
func TestThePromisesAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("# What each controller may write\n\n" +
		"The writer refuses every command beyond its controller's promise, and raises an alarm. A body may always hold\n" +
		"what names its object, and the uid and version that it must have. This document is generated\n" +
		"(`go test ./services/reconcilers -run Promises -update`).\n")
	for _, c := range every(t) {
		d := c.Describe()
		fmt.Fprintf(&b, "\n## %s\n\n", d.Name)
		for _, w := range d.Writes {
			fmt.Fprintf(&b, "- %s\n", w)
		}
	}
	if flag.Lookup("update").Value.String() == "true" { // of reconciletest
		if err := os.WriteFile(promises, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(promises); err != nil || string(have) != b.String() {
		t.Errorf("%s is not what the promises say (%v): run with -update", promises, err)
	}
}

// forged are turns that a stolen reconciler may store, by controller: none fits.
func TestForgedBodiesAreBeyondThePromise(t *testing.T) {
	described := map[string]reconcile.Description{}
	for _, c := range every(t) {
		described[c.Describe().Name] = c.Describe()
	}
	patch := func(kind, namespace, name, body string) events.Command {
		how := types.StrategicMergePatchType
		if strings.HasPrefix(kind, "clusterroles.") {
			how = types.ApplyPatchType
		}
		return events.Command{Verb: events.VerbPatch, PatchType: how, Kind: kinds.Name(kind), Version: "v1", Namespace: namespace, Name: name, Body: json.RawMessage(body), If: &events.If{UID: "u", ResourceVersion: "7"}}
	}
	birth := func(namespace, body string) events.Command {
		return events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: namespace, Name: "web-1", Body: json.RawMessage(body)}
	}
	const child = `{"metadata":{"ownerReferences":[{"apiVersion":"%s","kind":"%s","name":"%s","uid":"%s","controller":true}]}}`
	aggregating := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}
	key := events.Key{Namespace: "ns", Name: "web"}
	for what, c := range map[string]struct {
		controller string
		key        events.Key
		command    events.Command
		own        metav1.Object
		fits       bool
	}{
		"GC: owners":                  {"garbage-collector-controller", events.Key{Kind: "pods", Namespace: "ns", Name: "web"}, patch("pods", "ns", "web", `{"metadata":{"uid":"u","ownerReferences":[{"$patch":"delete","uid":"x"}]}}`), nil, true},
		"GC: finalizers":              {"garbage-collector-controller", events.Key{Kind: "pods", Namespace: "ns", Name: "web"}, patch("pods", "ns", "web", `{"metadata":{"finalizers":[]}}`), nil, true},
		"GC: rules":                   {"garbage-collector-controller", key, patch("clusterroles.rbac.authorization.k8s.io", "", "admin", `{"rules":[]}`), nil, false},
		"GC: a webhook":               {"garbage-collector-controller", key, patch("validatingwebhookconfigurations.admissionregistration.k8s.io", "", "a", `{"metadata":{"finalizers":[]},"webhooks":null}`), nil, false},
		"GC: all metadata":            {"garbage-collector-controller", key, patch("pods", "ns", "web", `{"metadata":null}`), nil, false},
		"GC: labels":                  {"garbage-collector-controller", key, patch("pods", "ns", "web", `{"metadata":{"labels":{"a":"b"}}}`), nil, false},
		"GC: a JSON patch":            {"garbage-collector-controller", key, patch("pods", "ns", "web", `[{"op":"remove","path":"/spec"}]`), nil, false},
		"GC: replaces":                {"garbage-collector-controller", key, patch("pods", "ns", "web", `{"$patch":"replace","metadata":{"finalizers":[]}}`), nil, false},
		"GC: deletes another":         {"garbage-collector-controller", events.Key{Kind: "pods", Namespace: "ns", Name: "web"}, events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "db", If: &events.If{UID: "u"}}, nil, false},
		"aggregation":                 {"clusterrole-aggregation-controller", events.Key{Name: "admin"}, patch("clusterroles.rbac.authorization.k8s.io", "", "admin", `{"rules":[]}`), aggregating, true},
		"aggregation: no such role":   {"clusterrole-aggregation-controller", events.Key{Name: "admin"}, patch("clusterroles.rbac.authorization.k8s.io", "", "admin", `{"rules":[]}`), &rbacv1.ClusterRole{}, false},
		"aggregation: unknown":        {"clusterrole-aggregation-controller", events.Key{Name: "admin"}, patch("clusterroles.rbac.authorization.k8s.io", "", "admin", `{"rules":[]}`), nil, false},
		"aggregation: another":        {"clusterrole-aggregation-controller", events.Key{Name: "admin"}, patch("clusterroles.rbac.authorization.k8s.io", "", "system:basic-user", `{"rules":[]}`), aggregating, false},
		"aggregation: the rule":       {"clusterrole-aggregation-controller", events.Key{Name: "admin"}, patch("clusterroles.rbac.authorization.k8s.io", "", "admin", `{"rules":[],"aggregationRule":null}`), aggregating, false},
		"aggregation: old version":    {"clusterrole-aggregation-controller", events.Key{Name: "admin"}, events.Command{Verb: events.VerbPatch, Kind: "clusterroles.rbac.authorization.k8s.io", Version: "v1beta1", Name: "admin", Body: []byte(`{"rules":[]}`)}, aggregating, false},
		"a pod":                       {"replicaset-controller", key, birth("ns", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "web", "u")), nil, true},
		"a pod of another":            {"replicaset-controller", key, birth("ns", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "db", "u")), nil, false},
		"a pod of an earlier one":     {"replicaset-controller", key, birth("ns", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "web", "x")), nil, false},
		"a pod of another kind":       {"replicaset-controller", key, birth("ns", fmt.Sprintf(child, "apps/v1", "DaemonSet", "web", "u")), nil, false},
		"a pod elsewhere":             {"replicaset-controller", key, birth("kube-system", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "web", "u")), nil, false},
		"a pod of nobody":             {"daemonset-controller", key, birth("ns", `{"spec":{"hostNetwork":true}}`), nil, false},
		"a pod's image":               {"replicaset-controller", key, patch("pods", "ns", "web-1", `{"metadata":{"uid":"u"},"spec":{"containers":[]}}`), nil, false},
		"a node's address":            {"node-lifecycle-controller", events.Key{Name: "zone"}, patch("nodes", "", "worker", `{"spec":{"podCIDR":"10.0.0.0/8"}}`), nil, false},
		"a Secret's content":          {"legacy-serviceaccount-token-cleaner-controller", key, patch("secrets", "ns", "web", `{"data":{"token":"eA=="}}`), nil, false},
		"a status of another":         {"deployment-controller", key, events.Command{Verb: events.VerbUpdate, Kind: "deployments.apps", Version: "v1", Namespace: "ns", Name: "db", Subresource: "status", Body: []byte(`{}`), If: &events.If{UID: "u"}}, nil, false},
		"a delete out of a namespace": {"namespace-controller", events.Key{Name: "ns"}, events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "kube-system", Name: "etcd", If: &events.If{UID: "u"}}, nil, false},
		"a root certificate's name":   {"root-ca-certificate-publisher-controller", events.Key{Name: "ns"}, events.Command{Verb: events.VerbUpdate, Kind: "configmaps", Version: "v1", Namespace: "ns", Name: "coredns", Body: []byte(`{}`)}, nil, false},
	} {
		d, known := described[c.controller]
		if !known {
			t.Fatalf("%s: there is no %s", what, c.controller)
		}
		turn := events.Turn{Controller: d.Name, Key: c.key, UID: "u"}
		if err := d.Fits(turn, c.command, func() metav1.Object { return c.own }); (err == nil) != c.fits {
			t.Errorf("%s: fits %t, %v", what, !c.fits, err)
		}
	}
	record := events.Command{Verb: events.VerbRecord, OnApplied: &events.Notice{}}
	record.OnApplied.About.Namespace = "kube-system"
	d := described["replicaset-controller"]
	if d.Fits(events.Turn{Key: key}, record, nil) == nil {
		t.Error("an Event about another namespace fits")
	}
}

func every(t testing.TB) []reconcile.Any {
	t.Helper()
	all, err := controllers.Select([]string{"*"}, controllers.Config{RootCA: []byte("a certificate"), StorageVersions: true, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

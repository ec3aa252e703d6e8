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

// docs/promises.md lists the promises of all controllers.
func TestThePromisesAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("# What each controller may write\n\n" +
		"The writer refuses every command beyond its controller's promise, and raises an alarm. A body may always hold\n" +
		"what names its object, and the uid and version that it must have; an update, a patch and a delete always name the uid,\n" +
		"and an update the version. A body is compared with the key's object at the version that the turn saw; on another\n" +
		"version, where the two differ, the turn is stale, and no alarm is raised. An update of another object is compared with\n" +
		"that, and a pod of an earlier revision with the revision, as the state has them; where it does not have them, the turn is stale.\n" +
		"This document is generated\n" +
		"(`go test ./services/reconcilers -run Promises -update`).\n")
	for _, c := range every(t) {
		d := c.Describe()
		fmt.Fprintf(&b, "\n## %s\n\n", d.Name)
		for _, w := range d.Writes {
			fmt.Fprintf(&b, "- %s\n", w)
		}
		for _, w := range d.Events {
			fmt.Fprintf(&b, "- %s\n", w)
		}
		if worst[d.Name] == "" {
			t.Errorf("say in worst what a stolen key of %s can do", d.Name)
		}
		fmt.Fprintf(&b, "\nA stolen key of it can at worst %s.\n", worst[d.Name])
	}
	if flag.Lookup("update").Value.String() == "true" { // a flag of reconciletest
		if err := os.WriteFile(promises, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(promises); err != nil || string(have) != b.String() {
		t.Errorf("%s is not what the promises say (%v): run with -update", promises, err)
	}
}

// worst states, by controller, the most that a stolen key can do within the promise.
var worst = map[string]string{
	"deployment-controller":                                          "give replica sets of a Deployment another size and other annotations, delete replica sets of the namespace, and say what it likes in a Deployment's status; with a rollback asked for, give the Deployment another template",
	"replicaset-controller":                                          "create as many pods of a set's own template as quota lets it, delete the pods of the namespace, and say what it likes in the set's status",
	"replicationcontroller-controller":                               "create as many pods of a controller's own template as quota lets it, delete the pods of the namespace, and say what it likes in its status",
	"statefulset-controller":                                         "create pods of a set's own template or of a revision in its namespace, which it can adopt; delete the pods and revisions of the namespace, and have the set's claims deleted by giving them an owner that is gone",
	"daemonset-controller":                                           "create pods of a set's own template on any node, with any tolerations; delete the pods and revisions of the namespace",
	"job-controller":                                                 "create as many pods of a Job's own template as quota lets it, with other variables in them; delete the pods of the namespace and free them of finalizers",
	"cronjob-controller":                                             "start the Jobs of a CronJob at any time, and delete Jobs of the namespace",
	"disruption-controller":                                          "let all pods of a budget be evicted, or none",
	"horizontal-pod-autoscaler-controller":                           "set the target of an autoscaler to any size",
	"garbage-collector-controller":                                   "delete any object whose uid it knows, and change the owners and finalizers of any",
	"namespace-controller":                                           "delete what is in a namespace that is being deleted, and end that without waiting for it",
	"pod-garbage-collector-controller":                               "end any pod at once",
	"ttl-after-finished-controller":                                  "delete any Job with a time to live, finished or not",
	"serviceaccount-controller":                                      "create the default account of a namespace",
	"serviceaccount-token-controller":                                "have a Secret that is a token of an account filled, delete one whose account is gone, and take Secrets off the lists of accounts",
	"root-ca-certificate-publisher-controller":                       "publish another root certificate in the namespaces, which pods then trust",
	"legacy-serviceaccount-token-cleaner-controller":                 "declare any token Secret invalid, and delete it",
	"endpoints-controller":                                           "send the traffic of any service to any address, as far as Endpoints are read",
	"endpointslice-controller":                                       "send the traffic of any service to any address",
	"endpointslice-mirroring-controller":                             "send the traffic of a service of the same namespace to any address",
	"resourcequota-controller":                                       "say that any amount of a quota is used, so that nothing more can be created or quota is exceeded",
	"clusterrole-aggregation-controller":                             "give any rules to a ClusterRole that aggregates, such as admin: it is as good as a cluster administrator",
	"validatingadmissionpolicy-status-controller":                    "say what it likes in the status of an admission policy",
	"node-lifecycle-controller":                                      "taint every node as one that is not well or cordoned, so that its pods go and none come, or take such taints off; say that nodes and pods are not ready",
	"device-taint-eviction-controller":                               "delete any pod, with the time that it has to end, and say what it likes in the status of a DeviceTaintRule",
	"resourcepoolstatusrequest-controller":                           "give any answer to a request about pools of devices, once, and delete any such request",
	"node-ipam-controller":                                           "give a node that has no range of addresses any that no other node has a part of, also one outside of the cluster's",
	"taint-eviction-controller":                                      "delete any pod, with the time that it has to end",
	"ttl-controller":                                                 "say in an annotation how long kubelets keep Secrets",
	"resourceclaim-controller":                                       "create ResourceClaims of templates in the name of pods that ask for them, give a pod's entries other claims, reserve claims for any pods, take their reservations and devices away, and delete them",
	"ephemeral-volume-controller":                                    "create the claims that a pod asks for, though it is gone",
	"persistentvolumeclaim-protection-controller":                    "take the finalizers off any claim, so that one in use can be deleted",
	"persistentvolume-protection-controller":                         "take the finalizers off any volume, so that one in use can be deleted",
	"persistentvolume-attach-detach-controller":                      "have any volume attached to any node, or detached from a node that uses it, and say what it likes of what is attached to a node",
	"persistentvolume-expander-controller":                           "name another driver's resizer in a claim, so that nothing expands its volume",
	"persistentvolume-binder-controller":                             "bind any claim to any volume, also to one of another claim, take the finalizers off any volume, and say what it likes in the statuses of claims and volumes",
	"volumeattributesclass-protection-controller":                    "take the finalizers off any class",
	"selinux-warning-controller":                                     "tell any pod that its volumes conflict with others'",
	"bootstrap-signer-controller":                                    "have the writer sign cluster-info with the tokens that sign, which changes nothing but signatures",
	"token-cleaner-controller":                                       "learn when a bootstrap token expires, and delete any Secret, of which Kubernetes' own role leaves those in kube-system",
	"certificatesigningrequest-approving-controller":                 "approve any request for the client certificate of a kubelet, and so become any node where a signer signs it",
	"certificatesigningrequest-signing-controller":                   "have an approved request for a certificate answered by the rules of its signer, which is to happen anyway",
	"kube-apiserver-serving-clustertrustbundle-publisher-controller": "publish another root certificate in a bundle of the API server's signer, which pods that have it projected then trust, and delete any ClusterTrustBundle",
	"certificatesigningrequest-cleaner-controller":                   "delete any request for a certificate, so that its requester has to ask again",
	"podgroup-protection-controller":                                 "take the finalizers off a PodGroup that no pod needs",
	"service-cidr-controller":                                        "say what it likes of whether a ServiceCIDR is ready, and take the finalizers off one that no address needs",
	"podcertificaterequest-cleaner-controller":                       "delete any request for the certificate of a pod, so that the pod waits for it",
	"storage-version-migrator-controller":                            "say what it likes in the status of a migration, and which stored versions a CustomResourceDefinition has",
	"storageversion-garbage-collector-controller":                    "delete the storage versions that API servers have told",
}

// Commands that a stolen reconciler could store are beyond the promises of their controllers.
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
	letGo := patch("servicecidrs.networking.k8s.io", "", "a", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["networking.k8s.io/service-cidr-finalizer"]}}`)
	proven := letGo
	proven.If = &events.If{UID: "u", Unused: true}
	ranged := func(field, value string, when events.If) events.Command {
		c := patch("nodes", "", "n", `{"spec":{"`+field+`":`+value+`}}`)
		c.If = &when
		return c
	}
	unshared := events.If{UID: "u", Unshared: true}
	protects := func(finalizers string) events.Command {
		return patch("servicecidrs.networking.k8s.io", "", "a", `{"metadata":{"finalizers":`+finalizers+`}}`)
	}
	create := func(namespace, body string) events.Command {
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
		"IPAM: a range":               {"node-ipam-controller", events.Key{Name: "ranges"}, ranged("podCIDRs", `["10.0.1.0/24"]`, unshared), nil, true},
		"IPAM: without a look":        {"node-ipam-controller", events.Key{Name: "ranges"}, ranged("podCIDRs", `["10.0.1.0/24"]`, events.If{UID: "u"}), nil, false},
		"IPAM: any node of that name": {"node-ipam-controller", events.Key{Name: "ranges"}, ranged("podCIDR", `"10.0.1.0/24"`, events.If{Unshared: true}), nil, false},
		"IPAM: a range is taken away": {"node-ipam-controller", events.Key{Name: "ranges"}, ranged("podCIDRs", `null`, unshared), nil, false},
		"IPAM: cordons":               {"node-ipam-controller", events.Key{Name: "ranges"}, ranged("unschedulable", `true`, unshared), nil, false},
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
		"a range is let go":           {"service-cidr-controller", events.Key{Name: "a"}, proven, nil, true},
		"a range: without a look":     {"service-cidr-controller", events.Key{Name: "a"}, letGo, nil, false},
		"a range is protected":        {"service-cidr-controller", events.Key{Name: "a"}, protects(`["networking.k8s.io/service-cidr-finalizer"]`), nil, true},
		"a range: no finalizers":      {"service-cidr-controller", events.Key{Name: "a"}, protects(`null`), nil, false},
		"a range: another finalizer":  {"service-cidr-controller", events.Key{Name: "a"}, protects(`["mine"]`), nil, false},
		"a range: a directive":        {"service-cidr-controller", events.Key{Name: "a"}, protects(`[],"$retainKeys":[]`), nil, false},
		"a range: the prefixes":       {"service-cidr-controller", events.Key{Name: "a"}, patch("servicecidrs.networking.k8s.io", "", "a", `{"spec":{"cidrs":["0.0.0.0/0"]}}`), nil, false},
		"a pod":                       {"replicaset-controller", key, create("ns", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "web", "u")), nil, true},
		"a pod of another":            {"replicaset-controller", key, create("ns", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "db", "u")), nil, false},
		"a pod of an earlier one":     {"replicaset-controller", key, create("ns", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "web", "x")), nil, false},
		"a pod of another kind":       {"replicaset-controller", key, create("ns", fmt.Sprintf(child, "apps/v1", "DaemonSet", "web", "u")), nil, false},
		"a pod elsewhere":             {"replicaset-controller", key, create("kube-system", fmt.Sprintf(child, "apps/v1", "ReplicaSet", "web", "u")), nil, false},
		"a pod without an owner":      {"daemonset-controller", key, create("ns", `{"spec":{"hostNetwork":true}}`), nil, false},
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
		if err := d.Fits(turn, func() metav1.Object { return c.own }, none)(c.command); (err == nil) != c.fits {
			t.Errorf("%s: fits %t, %v", what, !c.fits, err)
		}
	}
	record := events.Command{Verb: events.VerbRecord, OnApplied: &events.Notice{}}
	record.OnApplied.About.Namespace = "kube-system"
	d := described["replicaset-controller"]
	if d.Fits(events.Turn{Key: key}, nil, none)(record) == nil {
		t.Error("an Event about another namespace fits")
	}
}

// none finds no object.
func none(events.Ref) metav1.Object { return nil }

func every(t testing.TB) []reconcile.Any {
	t.Helper()
	all, err := controllers.Select(controllers.Everything(), controllers.Whole())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// absurd are values that no API server should admit; some field of some kind has each of these types.
var absurd = []any{
	nil, "", "..", "../../x", strings.Repeat("x", 300), "\x00", "é\u202e", true, false,
	-1, 0, 1, math.MaxInt32, math.MinInt32, json.Number("9223372036854775807"), json.Number("-9223372036854775808"), json.Number("1e400"), 0.5,
	"-1", "1e9999", "100%", "-5%", "1e30Ei", "-9223372036854775808m", "0.0000000000000001n",
	"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z", "2026-02-30T00:00:00Z",
	"* * * * *", "0 0 30 2 *", "@every 1ns", "TZ=Nowhere/City * * * * *", "99 * * * *", "*/0 * * * *",
	"0-9223372036854775807", "1,,3", "2147483648", "5-1",
	[]any{}, map[string]any{}, []any{nil}, map[string]any{"": nil},
	map[string]any{"matchLabels": map[string]any{"a b": "c"}}, map[string]any{"matchExpressions": []any{map[string]any{"key": "", "operator": "Maybe", "values": []any{}}}},
	map[string]any{"matchLabels": map[string]any{}}, "Always", "Unknown", "NotIn",
}

// thing is an object of a fuzzed world.
type thing struct {
	Kind   kinds.Name      `json:"kind"`
	Object json.RawMessage `json:"object"`
}

// worlds are lists of objects that belong together.
var worlds = []string{
	`[{"kind":"deployments.apps","object":{"metadata":{"name":"web","namespace":"ns","uid":"d","generation":1},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":1}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}},{"kind":"replicasets.apps","object":{"metadata":{"name":"web-1","namespace":"ns","uid":"r","labels":{"a":"b"},"annotations":{"deployment.kubernetes.io/revision":"7"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"d","controller":true}]},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"j"}]}}},"status":{"replicas":1,"readyReplicas":1}}},{"kind":"pods","object":{"metadata":{"name":"web-1-a","namespace":"ns","uid":"p","labels":{"a":"b"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-1","uid":"r","controller":true}]},"spec":{"nodeName":"n","containers":[{"name":"c","image":"j","resources":{"requests":{"cpu":"1"}}}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}}]`,
	`[{"kind":"jobs.batch","object":{"metadata":{"name":"j","namespace":"ns","uid":"j","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"parallelism":2,"completions":3,"completionMode":"Indexed","backoffLimit":1,"backoffLimitPerIndex":1,"maxFailedIndexes":1,"ttlSecondsAfterFinished":5,"activeDeadlineSeconds":10,"successPolicy":{"rules":[{"succeededIndexes":"0-1","succeededCount":1}]},"podFailurePolicy":{"rules":[{"action":"FailIndex","onExitCodes":{"operator":"In","values":[1]}}]},"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c"}]}}},"status":{"startTime":"2026-01-01T00:00:00Z","completedIndexes":"0","failedIndexes":"1","uncountedTerminatedPods":{"succeeded":["p"]}}}},{"kind":"pods","object":{"metadata":{"name":"j-0","namespace":"ns","uid":"p","labels":{"a":"b"},"annotations":{"batch.kubernetes.io/job-completion-index":"0"},"finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"j","controller":true}]},"status":{"phase":"Failed","containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1,"finishedAt":"2026-01-01T00:00:05Z"}}}]}}}]`,
	`[{"kind":"cronjobs.batch","object":{"metadata":{"name":"c","namespace":"ns","uid":"c","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"schedule":"*/5 * * * *","timeZone":"Europe/Vienna","startingDeadlineSeconds":100,"concurrencyPolicy":"Forbid","successfulJobsHistoryLimit":1,"failedJobsHistoryLimit":1,"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"c"}]}}}}},"status":{"lastScheduleTime":"2026-01-01T00:05:00Z"}}}]`,
	`[{"kind":"statefulsets.apps","object":{"metadata":{"name":"s","namespace":"ns","uid":"s"},"spec":{"replicas":3,"ordinals":{"start":5},"podManagementPolicy":"Parallel","minReadySeconds":3,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":1,"maxUnavailable":"10%"}},"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"},"volumeClaimTemplates":[{"metadata":{"name":"d"}}],"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]}}}}},{"kind":"pods","object":{"metadata":{"name":"s-5","namespace":"ns","uid":"p","labels":{"a":"b","controller-revision-hash":"s-1","apps.kubernetes.io/pod-index":"5"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"s","uid":"s","controller":true}]},"status":{"phase":"Running"}}},{"kind":"controllerrevisions.apps","object":{"metadata":{"name":"s-1","namespace":"ns","uid":"v","labels":{"a":"b"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"s","uid":"s","controller":true}]},"data":{"spec":{"template":{"$patch":"replace"}}},"revision":1}}]`,
	`[{"kind":"daemonsets.apps","object":{"metadata":{"name":"d","namespace":"ns","uid":"d","annotations":{"deprecated.daemonset.template.generation":"3"}},"spec":{"minReadySeconds":1,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"10%","maxUnavailable":0}},"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}],"matchExpressions":[{"key":"k","operator":"Gt","values":["1"]}]}]}}},"tolerations":[{"operator":"Exists"}],"containers":[{"name":"c"}]}}}}},{"kind":"nodes","object":{"metadata":{"name":"n","uid":"n","labels":{"k":"2"}},"spec":{"unschedulable":true,"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"}]},"status":{"conditions":[{"type":"Ready","status":"Unknown","lastHeartbeatTime":"2026-01-01T00:00:00Z"}]}}},{"kind":"pods","object":{"metadata":{"name":"p","namespace":"ns","uid":"p","labels":{"a":"b"}},"spec":{"nodeName":"n","tolerations":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute","tolerationSeconds":-1}]}}}]`,
	`[{"kind":"horizontalpodautoscalers.autoscaling","object":{"metadata":{"name":"h","namespace":"ns","uid":"h"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"minReplicas":1,"maxReplicas":5,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}],"behavior":{"scaleUp":{"stabilizationWindowSeconds":3600,"policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}},"status":{"currentReplicas":1,"desiredReplicas":2}}},{"kind":"poddisruptionbudgets.policy","object":{"metadata":{"name":"b","namespace":"ns","uid":"b"},"spec":{"minAvailable":"50%","maxUnavailable":1,"selector":{"matchLabels":{"a":"b"}}},"status":{"disruptedPods":{"p":"2026-01-01T00:00:00Z"}}}},{"kind":"resourcequotas","object":{"metadata":{"name":"q","namespace":"ns","uid":"q"},"spec":{"hard":{"pods":"3","requests.cpu":"1","count/jobs.batch":"5"},"scopes":["NotTerminating"],"scopeSelector":{"matchExpressions":[{"operator":"Exists","scopeName":"PriorityClass"}]}}}},{"kind":"pods","object":{"metadata":{"name":"p","namespace":"ns","uid":"p","labels":{"a":"b"}},"spec":{"priorityClassName":"x","containers":[{"name":"c","resources":{"requests":{"cpu":"1","x.example.com/gpu":"3"}}}]},"status":{"phase":"Running"}}}]`,
	`[{"kind":"services","object":{"metadata":{"name":"s","namespace":"ns","uid":"s"},"spec":{"clusterIP":"10.0.0.1","ipFamilies":["IPv4","IPv6"],"selector":{"a":"b"},"ports":[{"name":"h","port":80,"targetPort":"http"}],"trafficDistribution":"PreferClose"}}},{"kind":"pods","object":{"metadata":{"name":"p","namespace":"ns","uid":"p","labels":{"a":"b"}},"spec":{"nodeName":"n","hostname":"h","subdomain":"s","containers":[{"name":"c","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}]}]},"status":{"phase":"Running","podIP":"10.1.0.1","podIPs":[{"ip":"10.1.0.1"},{"ip":"::1"}],"conditions":[{"type":"Ready","status":"True"}]}}},{"kind":"nodes","object":{"metadata":{"name":"n","uid":"n","labels":{"topology.kubernetes.io/zone":"z"}},"status":{"allocatable":{"cpu":"1"}}}},{"kind":"endpoints","object":{"metadata":{"name":"s","namespace":"ns","uid":"e"},"subsets":[{"addresses":[{"ip":"10.1.0.1","targetRef":{"kind":"Pod","name":"p"}}],"ports":[{"port":70000}]}]}},{"kind":"endpointslices.discovery.k8s.io","object":{"metadata":{"name":"s-1","namespace":"ns","uid":"x","labels":{"kubernetes.io/service-name":"s","endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}},"addressType":"IPv4","endpoints":[{"addresses":["x"]}]}}]`,
	`[{"kind":"namespaces","object":{"metadata":{"name":"ns","uid":"n","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Terminating"}}},{"kind":"serviceaccounts","object":{"metadata":{"name":"default","namespace":"ns","uid":"a"}}},{"kind":"secrets","object":{"metadata":{"name":"t","namespace":"ns","uid":"t","annotations":{"kubernetes.io/service-account.name":"default","kubernetes.io/service-account.uid":"a"},"labels":{"kubernetes.io/legacy-token-last-used":"2020-01-01"}}}},{"kind":"persistentvolumeclaims","object":{"metadata":{"name":"c","namespace":"ns","uid":"c","finalizers":["kubernetes.io/pvc-protection"],"deletionTimestamp":"2026-01-01T00:00:00Z"}}},{"kind":"persistentvolumes","object":{"metadata":{"name":"v","uid":"v","finalizers":["kubernetes.io/pv-protection"]},"status":{"phase":"Bound"}}},{"kind":"clusterroles.rbac.authorization.k8s.io","object":{"metadata":{"name":"r","uid":"r","labels":{"a":"b"}},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]},"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}},{"kind":"pods","object":{"metadata":{"name":"p","namespace":"ns","uid":"p","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"p","blockOwnerDeletion":true},{"apiVersion":"v9/v9/v9","kind":"","name":"../x","uid":""}]},"spec":{"volumes":[{"name":"e","ephemeral":{"volumeClaimTemplate":{"spec":{}}}},{"name":"f","persistentVolumeClaim":{"claimName":"c"}}]}}}]`,
}

// FuzzDecide checks that no controller panics on objects with absurd values, and that
// each decision ends, is promised, has a reason, is deterministic, and requests no wake in the past.
func FuzzDecide(f *testing.F) {
	for n, world := range worlds {
		f.Add([]byte(world), []byte{}, int64(1_800_000_000))
		f.Add([]byte{byte(n)}, []byte{0, 9, 3, 0, 14, 10, 0, 20, 33, 0, 31, 41}, int64(0))
	}
	var all []reconcile.Any
	for _, e := range Catalog() {
		if e.Exists() {
			all = append(all, e.make(config))
		}
	}
	f.Fuzz(func(t *testing.T, text, edits []byte, at int64) {
		const century = 100 * 365 * 24 * 3600
		w, objects := worldOf(text, edits)
		now := time.Unix(at%century, 0).UTC()
		for _, c := range all {
			for _, k := range keysOf(c, w, objects) {
				judge(t, c, w, k, now)
			}
		}
	})
}

// worldOf returns the world of a list of objects with replaced values: each three bytes
// of edits are a place, in the order of the text, and a value.
func worldOf(text, edits []byte) (w *reconciletest.World, objects []reconcile.Object) {
	w = reconciletest.NewWorld()
	var list []thing
	if json.Unmarshal(text, &list) != nil || len(list) > 50 { // most generated inputs
		which := 0
		for _, b := range text {
			which += int(b)
		}
		list = nil
		if json.Unmarshal([]byte(worlds[which%len(worlds)]), &list) != nil {
			panic("a world is no JSON")
		}
	}
	values := make([]any, len(list))
	for i, o := range list {
		values[i] = fresh(o.Object)
	}
	edits = edits[:min(len(edits), 60)]
	for ; len(edits) >= 3 && len(list) > 0; edits = edits[3:] {
		place := int(edits[0])<<8 | int(edits[1])
		which := place % len(list)
		value := fresh(absurd[int(edits[2])%len(absurd)])
		n := place / len(list)
		if size := count(values[which]); size > 0 {
			n %= size
			values[which] = put(values[which], &n, value)
		}
	}
	for i, o := range list {
		kind, known := kinds.Lookup(o.Kind)
		if !known {
			continue
		}
		body, err := json.Marshal(values[i])
		if err != nil {
			continue
		}
		obj, err := kinds.Decode(kind, kinds.JSON, body)
		if err != nil || obj.GetName() == "" || obj.GetUID() == "" || kind.Namespaced != (obj.GetNamespace() != "") {
			continue // no API server stores it
		}
		w.Put(kind, obj)
		objects = append(objects, reconcile.Object{Kind: kind, Object: obj})
	}
	return w, objects
}

// fresh copies a value by way of JSON.
func fresh(value any) (copied any) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&copied)
	return copied
}

// count returns the number of values in a value, including itself.
func count(value any) int {
	n := 1
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			n += count(inner)
		}
	case []any:
		for _, inner := range v {
			n += count(inner)
		}
	}
	return n
}

// put replaces the n-th value.
func put(value any, n *int, other any) any {
	*n--
	if *n < 0 {
		*n = math.MaxInt
		return other
	}
	switch v := value.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			v[name] = put(v[name], n, other)
		}
	case []any:
		for i := range v {
			v[i] = put(v[i], n, other)
		}
	}
	return value
}

// keysOf returns the keys that each object asks for when it is created, changed or
// deleted, and those of the objects themselves.
func keysOf(c reconcile.Any, w *reconciletest.World, objects []reconcile.Object) (keys []events.Key) {
	add := func(found ...events.Key) {
		for _, k := range found {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	for _, o := range objects {
		add(w.Keys(c, o.Kind, nil, o.Object)...)
		add(w.Keys(c, o.Kind, o.Object, nil)...)
		add(w.Keys(c, o.Kind, o.Object, o.Object)...)
		if owns := c.Describe().Owns; owns != nil && owns.Name == o.Kind.Name {
			add(events.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
		}
	}
	return keys
}

// mostCommands is the maximum number of commands that the writer accepts in one turn.
const mostCommands = 10_000

// judge checks a decision against the rules for every decision.
func judge(t *testing.T, c reconcile.Any, w *reconciletest.World, k events.Key, now time.Time) {
	t.Helper()
	decide, ok := c.Look(w, k)
	if !ok {
		return
	}
	name, promise := c.Describe().Name, c.Describe().Writes
	d := decide(now)
	if d.Because == "" {
		t.Errorf("%s gives no reason for what it wants of %v: %+v", name, k, d)
	}
	if !d.WakeAt.IsZero() && !d.WakeAt.After(now) {
		t.Errorf("%s wants to be woken for %v at %v, at %v", name, k, d.WakeAt, now)
	}
	if len(d.Commands) > mostCommands {
		t.Errorf("%s has %d commands for %v", name, len(d.Commands), k)
	}
	for _, command := range d.Commands {
		if !promise.Allows(command) {
			t.Errorf("%s never promised to %s %v", name, command.Verb, command.Ref())
		}
		if destroys := command.Verb == events.VerbDelete || command.Verb == events.VerbUpdate; destroys && (command.If == nil || command.If.UID == "") {
			t.Errorf("%s would %s %v by its name alone", name, command.Verb, command.Ref())
		}
		if len(command.Body) > 0 && !json.Valid(command.Body) {
			t.Errorf("%s writes no JSON to %v: %q", name, command.Ref(), command.Body)
		}
	}
	if first, second := told(t, d), told(t, decide(now)); !bytes.Equal(first, second) {
		t.Errorf("%s decides otherwise of %v when it is asked again:\n%s\n%s", name, k, first, second)
	}
}

// told returns a decision in the form of its turn.
func told(t *testing.T, d reconcile.Decision) []byte {
	t.Helper()
	turn := events.Turn{Because: d.Because, Commands: slices.Clone(d.Commands)}
	if !d.WakeAt.IsZero() {
		turn.WakeAt = &d.WakeAt
	}
	turn.Pack()
	m, err := events.EncodeJSON(turn, events.Trace{})
	if err != nil {
		t.Fatalf("encode the decision: %v", err)
	}
	return append(m.Data, fmt.Sprint(d.Retry, d.Sure)...)
}

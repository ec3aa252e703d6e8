package ask_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

const claimPath = "/api/v1/namespaces/ns/persistentvolumeclaims/c"

var asksUsers = events.Command{
	Verb: events.VerbAsk, Kind: "persistentvolumeclaims", Version: "v1", Namespace: "ns", Name: "c", Subresource: query.SubUsers,
	If: &events.If{UID: "uid-c"},
}

func usersOf(t *testing.T, s *apiservertest.Server) query.Users {
	t.Helper()
	r := carry(t, open(t, s), plan.Options{}, asksUsers)[0]
	if r.Status != events.Answered {
		t.Fatalf("asked who uses a claim: %+v", r)
	}
	var users query.Users
	if err := json.Unmarshal(r.Answer.Body, &users); err != nil {
		t.Fatal(err)
	}
	return users
}

// putPod stores a pod on a node that uses a claim.
func putPod(s *apiservertest.Server, namespace, name, node, claim string) {
	pod := object(name, map[string]any{"namespace": namespace})
	pod["spec"] = map[string]any{"nodeName": node, "volumes": []any{map[string]any{
		"name": "data", "persistentVolumeClaim": map[string]any{"claimName": claim},
	}}}
	s.Put("/api/v1/namespaces/"+namespace+"/pods/"+name, "uid-"+name, pod)
}

// The users of a claim are found by a list of all pods of its namespace.
func TestUsers(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(claimPath, "uid-c", object("c", map[string]any{"namespace": "ns"}))
	putPod(s, "ns", "homeless", "", "c")
	putPod(s, "ns", "another", "n1", "d")
	putPod(s, "elsewhere", "stranger", "n1", "c")
	if users := usersOf(t, s); users.Count != 0 || len(users.Pods) != 0 {
		t.Errorf("a claim that is unused has the users %+v", users)
	}
	for i := range 1100 { // more than are listed at a time
		putPod(s, "ns", fmt.Sprintf("a%04d", i), "n1", "d")
	}
	putPod(s, "ns", "z", "n1", "c")
	if users := usersOf(t, s); users.Count != 1 || len(users.Pods) != 1 || users.Pods[0] != (query.User{Name: "z", UID: "uid-z"}) {
		t.Errorf("a claim that one pod of many uses has the users %+v", users)
	}
	for i := range query.MaxUsers {
		putPod(s, "ns", fmt.Sprintf("a%04d", i), "n1", "c")
	}
	if users := usersOf(t, s); users.Count != query.MaxUsers+1 || len(users.Pods) != query.MaxUsers {
		t.Errorf("%d users are counted, %d named", users.Count, len(users.Pods))
	}
}

// No claim counts as unused because it could not be read, or because another object has its name
// now.
func TestUsersThatCannotBeRead(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(claimPath, "uid-later", object("c", map[string]any{"namespace": "ns"}))
	if r := carry(t, open(t, s), plan.Options{}, asksUsers)[0]; r.Status != events.Absent || r.Answer != nil {
		t.Errorf("the users of another claim with that name are %+v, want Absent without an answer", r)
	}
	s.Put(claimPath, "uid-c", object("c", map[string]any{"namespace": "ns"}))
	putPod(s, "ns", "a", "n1", "d")
	putPod(s, "ns", "b", "n1", "d")
	for _, fault := range []apiservertest.Fault{{Code: 403}, {Code: 404}, {Code: 410}, {Code: 410, Continue: "1"}} { // a list of two versions has gaps
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Path == "/api/v1/namespaces/ns/pods" && r.Query.Get("continue") != "1" {
				return fault
			}
			return apiservertest.Fault{}
		})
		if r := carry(t, open(t, s), plan.Options{}, asksUsers)[0]; r.Status != events.Refused || r.Answer != nil {
			t.Errorf("when pods cannot be listed (%+v) the result is %+v, want Refused without an answer", fault, r)
		}
	}
}

// A pod group is unused when all of its pods in its namespace have ended.
func TestAPodGroupIsLetGoWhenNoPodIsInIt(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups/g", "uid-g", object("g", map[string]any{"namespace": "ns", "finalizers": []any{"f"}}))
	let := events.Command{
		Verb: events.VerbUpdate, Kind: "podgroups.scheduling.k8s.io", Version: "v1alpha2", Namespace: "ns", Name: "g",
		Body: []byte(`{"metadata":{"namespace":"ns","name":"g"}}`), If: &events.If{UID: "uid-g", ResourceVersion: "1", Unused: true},
	}
	put := func(namespace, name, group, phase string) {
		pod := object(name, map[string]any{"namespace": namespace})
		pod["spec"], pod["status"] = map[string]any{"schedulingGroup": map[string]any{"podGroupName": group}}, map[string]any{"phase": phase}
		s.Put("/api/v1/namespaces/"+namespace+"/pods/"+name, "uid-"+name, pod)
	}
	put("ns", "ended", "g", "Succeeded")
	put("ns", "other", "h", "Running")
	put("elsewhere", "stranger", "g", "Running")
	putPod(s, "ns", "claims", "n1", "g")
	put("ns", "web", "g", "Running")
	if r := carry(t, open(t, s), plan.Options{}, let)[0]; r.Reason != "InUse" || r.Message != "needed by web" {
		t.Errorf("a pod is in it: %+v", r)
	}
	put("ns", "web", "g", "Failed")
	if r := carry(t, open(t, s), plan.Options{}, let)[0]; r.Status != events.Applied {
		t.Errorf("all of its pods have ended: %+v", r)
	}
}

const rangePath = "/apis/networking.k8s.io/v1/servicecidrs/"

// putRange stores a ServiceCIDR; a deleted one waits for its finalizer.
func putRange(s *apiservertest.Server, name, cidr string, deleted bool) {
	metadata := map[string]any{"finalizers": []any{query.RangeFinalizer}}
	if deleted {
		metadata["deletionTimestamp"] = "2030-01-01T12:00:00Z"
	}
	obj := object(name, metadata)
	obj["spec"] = map[string]any{"cidrs": []any{cidr}}
	s.Put(rangePath+name, "uid-"+name, obj)
}

// putAddress stores an IPAddress of a manager.
func putAddress(s *apiservertest.Server, name, manager string) {
	s.Put("/apis/networking.k8s.io/v1/ipaddresses/"+name, "uid-"+name, object(name, map[string]any{
		"labels": map[string]any{"ipaddress.kubernetes.io/managed-by": manager},
	}))
}

var lets = events.Command{
	Verb: events.VerbPatch, PatchType: types.StrategicMergePatchType, Kind: "servicecidrs.networking.k8s.io", Version: "v1", Name: "a",
	Body: []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["f"]}}`), If: &events.If{UID: "uid-a", Unused: true},
}

// A ServiceCIDR is unused while no address needs it, of all that exist.
func TestAServiceCIDRIsLetGoWhenNoAddressNeedsIt(t *testing.T) {
	s := applytest.Serve(t)
	putRange(s, "a", "10.0.0.0/16", true)
	putAddress(s, "10.0.0.7", "another-manager")
	for i := range 1100 { // more than are listed at a time
		putAddress(s, fmt.Sprintf("10.1.%d.%d", i/200, 1+i%200), query.AddressManager)
	}
	let := func() events.Result { return carry(t, open(t, s), plan.Options{}, lets)[0] }
	if r := let(); r.Status != events.Applied {
		t.Fatalf("the finalizer of a range that no address needs: %+v, want Applied", r)
	}
	for _, r := range s.Requests() {
		if of := r.Query.Get("labelSelector"); strings.HasSuffix(r.Path, "/ipaddresses") && of != "ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io" {
			t.Errorf("addresses of %q are listed", of)
		}
	}
	putAddress(s, "10.0.0.8", query.AddressManager)
	putRange(s, "b", "10.0.0.0/24", true)
	if r := let(); r.Status != events.Refused || r.Reason != "InUse" || r.Message != "needed by 10.0.0.8" {
		t.Errorf("an address is in it, and in another that goes: %+v", r)
	}
	putRange(s, "b", "10.0.0.0/24", false)
	if r := let(); r.Status != events.Applied {
		t.Errorf("the finalizer of a range whose address is in another that stays: %+v, want Applied", r)
	}
	putAddress(s, "10.0.1.8", query.AddressManager)
	if r := let(); r.Reason != "InUse" {
		t.Errorf("another address is not: %+v", r)
	}
	s.Remove(rangePath + "a")
	if r := let(); r.Status != events.Absent {
		t.Errorf("the finalizer of a range that is gone: %+v, want Absent", r)
	}
	s.Put(rangePath+"a", "uid-later", object("a", map[string]any{}))
	if r := let(); r.Status != events.Absent {
		t.Errorf("another has its name: %+v", r)
	}
}

// No ServiceCIDR counts as unused because a list failed.
func TestAServiceCIDRStaysWhileAListFails(t *testing.T) {
	for _, kind := range []string{"ipaddresses", "servicecidrs"} {
		for _, code := range []int{403, 404, 410} {
			s := applytest.Serve(t)
			putRange(s, "a", "10.0.0.0/16", true)
			putAddress(s, "10.1.0.1", query.AddressManager)
			s.Break(func(r apiservertest.Request) apiservertest.Fault {
				if r.Path == "/apis/networking.k8s.io/v1/"+kind {
					return apiservertest.Fault{Code: code}
				}
				return apiservertest.Fault{}
			})
			if r := carry(t, open(t, s), plan.Options{}, lets)[0]; r.Status != events.Refused {
				t.Errorf("when %s cannot be listed (%d) the result is %+v, want Refused", kind, code, r)
			}
			for _, r := range s.Requests() {
				if r.Method == "PATCH" {
					t.Errorf("when %s cannot be listed (%d) the finalizer is removed", kind, code)
				}
			}
		}
	}
}

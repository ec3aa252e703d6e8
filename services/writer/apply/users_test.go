package apply_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

const claimPath = "/api/v1/namespaces/ns/persistentvolumeclaims/c"

var asksUsers = events.Command{
	Verb: events.VerbAsk, Kind: "persistentvolumeclaims", Version: "v1", Namespace: "ns", Name: "c", Subresource: events.SubUsers,
	If: &events.If{UID: "uid-c"},
}

func usersOf(t *testing.T, s *fakeserver.Server) events.Users {
	t.Helper()
	r := carry(t, open(t, s), plan.Options{}, asksUsers)[0]
	if r.Status != events.Answered {
		t.Fatalf("asked who uses a claim: %+v", r)
	}
	var users events.Users
	if err := json.Unmarshal(r.Answer.Body, &users); err != nil {
		t.Fatal(err)
	}
	return users
}

// putPod makes a pod on a node that uses a claim.
func putPod(s *fakeserver.Server, namespace, name, node, claim string) {
	pod := object(name, map[string]any{"namespace": namespace})
	pod["spec"] = map[string]any{"nodeName": node, "volumes": []any{map[string]any{
		"name": "data", "persistentVolumeClaim": map[string]any{"claimName": claim},
	}}}
	s.Put("/api/v1/namespaces/"+namespace+"/pods/"+name, "uid-"+name, pod)
}

// Who uses a claim is found by a list of the pods of its namespace, all of them.
func TestUsers(t *testing.T) {
	s := fakeserver.New(t)
	s.Put(claimPath, "uid-c", object("c", map[string]any{"namespace": "ns"}))
	putPod(s, "ns", "homeless", "", "c")
	putPod(s, "ns", "another", "n1", "d")
	putPod(s, "elsewhere", "stranger", "n1", "c")
	if users := usersOf(t, s); users.Count != 0 || len(users.Pods) != 0 {
		t.Errorf("a claim that nobody uses has the users %+v", users)
	}
	for i := range 1100 { // more than are listed at a time
		putPod(s, "ns", fmt.Sprintf("a%04d", i), "n1", "d")
	}
	putPod(s, "ns", "z", "n1", "c")
	if users := usersOf(t, s); users.Count != 1 || len(users.Pods) != 1 || users.Pods[0] != (events.User{Name: "z", UID: "uid-z"}) {
		t.Errorf("a claim that one pod of many uses has the users %+v", users)
	}
	for i := range events.MaxUsers {
		putPod(s, "ns", fmt.Sprintf("a%04d", i), "n1", "c")
	}
	if users := usersOf(t, s); users.Count != events.MaxUsers+1 || len(users.Pods) != events.MaxUsers {
		t.Errorf("%d users are counted, %d named", users.Count, len(users.Pods))
	}
}

// No claim is unused because nobody could look, or because another has its name now.
func TestUsersThatNobodyKnows(t *testing.T) {
	s := fakeserver.New(t)
	s.Put(claimPath, "uid-later", object("c", map[string]any{"namespace": "ns"}))
	if r := carry(t, open(t, s), plan.Options{}, asksUsers)[0]; r.Status != events.Absent || r.Answer != nil {
		t.Errorf("of another claim of that name: %+v", r)
	}
	s.Put(claimPath, "uid-c", object("c", map[string]any{"namespace": "ns"}))
	for _, code := range []int{403, 404, 410} {
		s.Break(func(r fakeserver.Request) fakeserver.Fault {
			if r.Path == "/api/v1/namespaces/ns/pods" {
				return fakeserver.Fault{Code: code}
			}
			return fakeserver.Fault{}
		})
		if r := carry(t, open(t, s), plan.Options{}, asksUsers)[0]; r.Status != events.Refused || r.Answer != nil {
			t.Errorf("when pods cannot be listed (%d): %+v", code, r)
		}
	}
}

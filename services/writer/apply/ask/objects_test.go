package ask_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// asker is the object that the ask is about.
const asker = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations/m"

func objectsOf(t *testing.T, s *apiservertest.Server, q query.ObjectsQuestion) (query.Objects, events.Result) {
	t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	r := carry(t, open(t, s, func(c *apply.Config) { c.Patience = 1 }), plan.Options{}, events.Command{
		Verb: events.VerbAsk, Kind: kinds.StorageVersionMigrations.Name, Version: "v1beta1", Name: "m", Subresource: query.SubObjects,
		Body: body, Note: body, If: &events.If{UID: "uid-m"},
	})[0]
	var found query.Objects
	if r.Status == events.Answered {
		if string(r.Answer.Note) != string(body) {
			t.Errorf("the question comes back as %s", r.Answer.Note)
		}
		if err := json.Unmarshal(r.Answer.Body, &found); err != nil {
			t.Fatal(err)
		}
	}
	return found, r
}

// The answers name the objects of a resource page by page, without those changed since a version.
func TestObjects(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(asker, "uid-m", object("m", map[string]any{}))
	const sets, many = "/apis/apps/v1/namespaces/ns/replicasets/", 700
	version := ""
	for i := range many {
		version = s.Put(sets+fmt.Sprintf("set-%03d", i), fmt.Sprint("uid-", i), object(fmt.Sprintf("set-%03d", i), map[string]any{"namespace": "ns"}))
	}
	stands, _ := objectsOf(t, s, query.ObjectsQuestion{Resource: "replicasets.apps"})
	if stands.Kind != "ReplicaSet" || stands.Version != "v1" || stands.At != version || len(stands.Objects) > 0 || stands.More != "" || len(stands.Lacking) > 0 {
		t.Errorf("the first answer about the objects is %+v, want ReplicaSet v1 at version %s, without objects", stands, version)
	}
	s.Put(sets+"set-007", "uid-7", object("set-007", map[string]any{"namespace": "ns"})) // changes
	var names []string
	for more := ""; ; {
		page, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "replicasets.apps", Version: version, From: more})
		if r.Status != events.Answered || len(page.Objects) > 500 {
			t.Fatalf("a page of %d objects: %+v", len(page.Objects), r)
		}
		for _, o := range page.Objects {
			if at, err := strconv.Atoi(o.ResourceVersion); err != nil || at == 0 || o.UID == "" || o.Namespace != "ns" {
				t.Errorf("the page names the object %+v, want its version, uid and namespace", o)
			}
			names = append(names, o.Name)
		}
		if more = page.More; more == "" {
			break
		}
	}
	if len(names) != many-1 || slices.Contains(names, "set-007") || !slices.Contains(names, fmt.Sprintf("set-%03d", many-1)) {
		t.Errorf("%d of %d objects are named", len(names), many)
	}
}

// If the writes of a page take so long that the list's version is compacted meanwhile, the list
// goes on: otherwise a resource whose writes always take so long would never end.
func TestObjectsOfAListThatHasExpired(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(asker, "uid-m", object("m", map[string]any{}))
	version := ""
	for _, name := range []string{"a", "b", "c"} {
		version = s.Put("/apis/apps/v1/namespaces/ns/replicasets/"+name, "uid-"+name, object(name, map[string]any{"namespace": "ns"}))
	}
	expired := func(token string) {
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Query.Get("continue") == "1" {
				return apiservertest.Fault{Code: http.StatusGone, Continue: token}
			}
			return apiservertest.Fault{}
		})
	}
	question := query.ObjectsQuestion{Resource: "replicasets.apps", Version: version, From: "1"}
	expired("2")
	if page, r := objectsOf(t, s, question); r.Status != events.Answered || len(page.Objects) != 1 || page.Objects[0].Name != "c" {
		t.Errorf("a list whose token has expired goes on with %+v, %+v; want the object c", page, r)
	}
	for _, token := range []string{"", "1"} {
		expired(token)
		if page, r := objectsOf(t, s, question); r.Status != events.Refused || r.Code != http.StatusGone {
			t.Errorf("a list that cannot go on is answered with %+v, %+v; want it refused with code 410", page, r)
		}
	}
}

// How a resource is served; unknown if discovery fails.
func TestObjectsOfWhatIsNotServed(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(asker, "uid-m", object("m", map[string]any{}))
	if found, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "widgets.example.com"}); r.Status != events.Answered || found.Kind != "" {
		t.Errorf("the objects of a kind that is not served are %+v, %+v; want an answer without a kind", found, r)
	}
	if found, _ := objectsOf(t, s, query.ObjectsQuestion{Resource: "nodes"}); !slices.Equal(found.Lacking, []string{"update", "patch"}) || found.At != "" {
		t.Errorf("the objects of a kind that cannot be patched are %+v, want that update and patch are lacking", found)
	}
	before := len(s.Requests())
	if found, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "replicasets.apps", Last: true}); r.Status != events.Answered || found.Kind != "" || len(s.Requests()) != before+1 {
		t.Errorf("the last question is answered with %+v, %+v", found, r)
	}
	broken := func(path string) func(apiservertest.Request) apiservertest.Fault {
		return func(r apiservertest.Request) apiservertest.Fault {
			if r.Path == path {
				return apiservertest.Fault{Code: 403}
			}
			return apiservertest.Fault{}
		}
	}
	s.Break(broken("/apis/apps/v1"))
	if found, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "pods"}); r.Status != events.Answered || found.Kind != "Pod" {
		t.Errorf("while another group does not answer, the objects of pods are %+v, %+v; want the kind Pod", found, r)
	}
	if found, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "widgets.example.com"}); r.Status != events.Answered || found.Kind != "" {
		t.Errorf("while another group does not answer, the objects of a kind that is not served are %+v, %+v; want an answer without a kind", found, r)
	}
	if found, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "deployments.apps"}); r.Status != events.Failed {
		t.Errorf("while its group does not answer, the objects of a kind are %+v, %+v; want Failed", found, r)
	}
	s.Break(broken("/apis/apps/v1/replicasets"))
	if _, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "replicasets.apps"}); r.Status != events.Refused || r.Code != 403 {
		t.Errorf("the objects of a kind that may not be listed are answered with %+v, want it refused with code 403", r)
	}
	s.Break(nil)
	s.Put(asker, "uid-later", object("m", map[string]any{}))
	if _, r := objectsOf(t, s, query.ObjectsQuestion{Resource: "replicasets.apps"}); r.Status != events.Absent {
		t.Errorf("the question of another migration with that name is answered with %+v, want Absent", r)
	}
}

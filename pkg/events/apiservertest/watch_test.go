package apiservertest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/apiservertest"
)

// watched is an open watch.
type watched struct {
	t     *testing.T
	lines *bufio.Scanner
}

func watch(t *testing.T, s *apiservertest.Server, query string) *watched {
	t.Helper()
	r := send(t, s, "GET", pods+"?watch=true&"+query, "")
	if r == nil || r.StatusCode != 200 {
		t.Fatalf("the watch does not begin: %v", r)
	}
	return &watched{t, bufio.NewScanner(r.Body)}
}

// next returns the next n events in words, less if the watch ends before.
func (w *watched) next(n int) (events []string) {
	w.t.Helper()
	for len(events) < n && w.lines.Scan() {
		var e struct {
			Type   string
			Object struct {
				Metadata struct {
					Name, ResourceVersion string
					Annotations           map[string]string
				}
			}
		}
		if err := json.Unmarshal(w.lines.Bytes(), &e); err != nil {
			w.t.Fatalf("%s: %v", w.lines.Text(), err)
		}
		words := []string{e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion}
		for name, value := range e.Object.Metadata.Annotations {
			words = append(words, name+"="+value)
		}
		events = append(events, strings.Join(strings.Fields(strings.Join(words, " ")), " "))
	}
	return events
}

func (w *watched) wants(want ...string) {
	w.t.Helper()
	if got := w.next(len(want)); !slices.Equal(got, want) {
		w.t.Errorf("the watch sends %q, want %q", got, want)
	}
}

// changes makes versions 1 to 5: a and b are created, a is changed and deleted, another kind changes.
func changes(s *apiservertest.Server) {
	s.Put(pods+"/a", "u", object{})
	s.Put(pods+"/b", "v", object{})
	s.Put(pods+"/a", "u", object{})
	s.Put("/api/v1/nodes/n", "", object{})
	s.Remove(pods + "/a")
	s.Remove(pods + "/a") // it does not exist any more
}

// A watch from a version gets exactly the changes after it, those before it was opened and those after.
func TestAWatchGetsTheLaterChanges(t *testing.T) {
	for since, want := range map[int][]string{
		1: {"ADDED b 2", "MODIFIED a 3", "DELETED a 5"}, 2: {"MODIFIED a 3", "DELETED a 5"}, 3: {"DELETED a 5"}, 4: {"DELETED a 5"}, 5: nil,
	} {
		s := apiservertest.New(t)
		changes(s)
		w := watch(t, s, fmt.Sprint("resourceVersion=", since))
		w.wants(want...)
		s.Put("/api/v1/namespaces/other/pods/x", "", object{})
		s.Bookmark() // which the watch has not asked for
		s.Put(pods+"/c", "", object{})
		s.Put(pods+"/c", "", object{})
		w.wants("ADDED c 8", "MODIFIED c 9")
		s.CutWatches()
		if more := w.next(1); more != nil {
			t.Errorf("after it is cut it sends %v", more)
		}
	}
}

// A watch without a version begins with the objects that there are; a streamed list ends with the
// bookmark that says so.
func TestAWatchThatBeginsWithAList(t *testing.T) {
	s := apiservertest.New(t)
	changes(s)
	s.Put(pods+"/c", "", object{})
	for _, version := range []string{"", "0"} {
		w := watch(t, s, "resourceVersion="+version)
		w.wants("ADDED b 2", "ADDED c 6")
	}
	w := watch(t, s, "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=")
	w.wants("ADDED b 2", "ADDED c 6", "BOOKMARK 6 k8s.io/initial-events-end=true")
	s.Bookmark()
	s.Remove(pods + "/b")
	w.wants("BOOKMARK 7", "DELETED b 8")
}

// A watch of one name gets its changes alone, and ends when its time is over.
func TestAWatchOfOneName(t *testing.T) {
	s := apiservertest.New(t)
	changes(s)
	w := watch(t, s, "fieldSelector=metadata.name%3Da&resourceVersion=1&timeoutSeconds=1")
	if got := w.next(3); !slices.Equal(got, []string{"MODIFIED a 3", "DELETED a 5"}) {
		t.Errorf("the watch sends %q until it ends", got)
	}
}

// A watch from before the compaction is refused with 410, one from the future with 504.
func TestWatchesThatCannotBegin(t *testing.T) {
	s := apiservertest.New(t)
	changes(s)
	watch(t, s, "resourceVersion=1").wants("ADDED b 2")
	s.Compact()
	for version, want := range map[string]int{"4": http.StatusGone, "6": http.StatusGatewayTimeout} {
		code, answer, _ := ask(t, s, "GET", pods+"?watch=true&resourceVersion="+version, "")
		if code != want || strings.Contains(answer, "ResourceVersionTooLarge") != (want == http.StatusGatewayTimeout) {
			t.Errorf("from version %s: %d %s, want %d", version, code, answer, want)
		}
	}
	w := watch(t, s, "resourceVersion=5")
	s.Put(pods+"/b", "", object{})
	w.wants("MODIFIED b 6")
}

// After a restore the objects are as they were at the version, the watches have ended, and versions
// are used again.
func TestARestore(t *testing.T) {
	s := apiservertest.New(t)
	changes(s)
	w := watch(t, s, "resourceVersion=5")
	s.Restore(2)
	if more := w.next(1); more != nil {
		t.Errorf("a watch goes on over a restore, with %v", more)
	}
	if l, names := list(t, s, pods); names != "a b" || l.Metadata.ResourceVersion != "2" {
		t.Errorf("restored are %q in version %s", names, l.Metadata.ResourceVersion)
	}
	if version := s.Put(pods+"/c", "", object{}); version != "3" {
		t.Errorf("the next version is %s, want 3", version)
	}
	watch(t, s, "resourceVersion=1").wants("ADDED b 2", "ADDED c 3")
	s.Load(20, map[string]any{pods + "/d": object{"metadata": object{"uid": "of the backup", "resourceVersion": "7"}}})
	if l, names := list(t, s, pods); names != "d" || l.Metadata.ResourceVersion != "20" || s.Version() != "20" {
		t.Errorf("loaded are %q in version %s", names, l.Metadata.ResourceVersion)
	}
	if metadata := s.Get(pods + "/d")["metadata"].(object); metadata["uid"] != "of the backup" || metadata["resourceVersion"] != "7" {
		t.Errorf("loaded is %v, want it as it was given", metadata)
	}
}

// An observer is told of each change, before the answer to the request that makes it.
func TestAnObserver(t *testing.T) {
	s := apiservertest.New(t)
	var told []string
	s.Observe(func(what string, o object) {
		told = append(told, fmt.Sprint(what, " ", o["metadata"].(object)["name"]))
	})
	ask(t, s, "POST", pods, `{"metadata":{"name":"a"}}`)
	s.Put(pods+"/a", "", object{})
	s.Bookmark()
	s.Remove(pods + "/a")
	if want := []string{"ADDED a", "MODIFIED a", "DELETED a"}; !slices.Equal(told, want) {
		t.Errorf("it is told %q, want %q", told, want)
	}
}

// A server without a network serves watches in virtual time, and ends them with their clients.
func TestWatchesOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiservertest.New(t, apiservertest.Offline)
		s.Break(func(apiservertest.Request) apiservertest.Fault { return apiservertest.Fault{Delay: time.Hour} })
		changes(s)
		began := time.Now()
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+pods+"?watch=true&resourceVersion=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.RoundTrip(r)
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("the watch begins after %v, %v", time.Since(began), err)
		}
		w := &watched{t, bufio.NewScanner(got.Body)}
		w.wants("ADDED b 2")
		if time.Since(began) != time.Hour || s.Open() != 1 {
			t.Errorf("the first event comes after %v, want an hour; %d requests are open", time.Since(began), s.Open())
		}
		got.Body.Close()
		if synctest.Wait(); s.Open() != 0 {
			t.Errorf("%d requests are open after the client went away", s.Open())
		}
	})
}

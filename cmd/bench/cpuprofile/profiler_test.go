package cpuprofile

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/pprof/profile"
)

// busy is a profile as a process returns it, with information about the machine.
func busy() *profile.Profile {
	in := &profile.Function{ID: 1, Name: "decide"}
	binary := &profile.Mapping{ID: 1, File: "/home/user/millrace", BuildID: "abc"}
	at := &profile.Location{ID: 1, Mapping: binary, Line: []profile.Line{{Function: in, Line: 7}}}
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}, TimeNanos: 5, Comments: []string{"of a user"},
		Sample: []*profile.Sample{{Location: []*profile.Location{at}, Value: []int64{3}}}, Mapping: []*profile.Mapping{binary},
		Location: []*profile.Location{at}, Function: []*profile.Function{in},
	}
}

func TestProfilesAreGatheredUntilTheProcessEnds(t *testing.T) {
	var asked atomic.Int32
	process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 2 || r.URL.Path != "/debug/pprof/profile" {
			http.Error(w, "about to end", http.StatusServiceUnavailable)
			return
		}
		if err := busy().Write(w); err != nil {
			t.Error(err)
		}
	}))
	defer process.Close()
	var p Profiler
	p.Follow(strings.TrimPrefix(process.URL, "http://"))
	file := filepath.Join(t.TempDir(), "work.pgo")
	if err := p.Save(file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	merged, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Sample) != 1 || merged.Sample[0].Value[0] != 6 {
		t.Errorf("two profiles of 3 samples became %v", merged.Sample)
	}
	if m := merged.Mapping[0]; m.File != "millrace" || m.BuildID != "" || merged.TimeNanos != 0 || len(merged.Comments) != 0 {
		t.Errorf("it tells of the machine: %+v, %d, %v", m, merged.TimeNanos, merged.Comments)
	}
}

func TestNoProfileIsNotWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "work.pgo")
	if err := new(Profiler).Save(file); err == nil {
		t.Error("a profile of nothing was written")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a file")
	}
	var none *Profiler
	none.Follow("127.0.0.1:1") // without a profiler no process is asked
}
